#!/usr/bin/env python3
"""Draws the compute streams of a dry run as SVG: docs/images/gpt_1f1b.svg in the README.

usage: piper run examples/gpt_1f1b.piper --no-timeline --trace t.json && timeline.py t.json > docs/images/gpt_1f1b.svg
"""
import json
import sys

COLOURS = {"F": "#9ec5f8", "B": "#a9dfa6", "U": "#e3b5ea"}
WIDTH, LEFT, ROW, GAP, TOP = 960, 64, 34, 8, 8


def segments(events):
    """(start, end, pass, microbatch) of one rank, neighbouring regions of a pass merged."""
    merged = []
    for event in sorted(events, key=lambda e: e["ts"]):
        word = event["name"].split()[0]
        kind = {"F": "F", "BI": "B", "BW": "B", "update": "U"}.get(word)
        if kind is None or event["dur"] <= 0:
            continue
        microbatch = event["args"].get("mb", -1) if kind != "U" else -1
        start, end = event["ts"], event["ts"] + event["dur"]
        last = merged[-1] if merged else None
        if last and last[2:] == [kind, microbatch] and start - last[1] < 0.02 * (end - last[0]) + 1:
            last[1] = end
        else:
            merged.append([start, end, kind, microbatch])
    return merged


def main():
    with open(sys.argv[1]) as file:
        trace = json.load(file)["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in trace if e.get("name") == "process_name"}
    compute = {(e["pid"], e["tid"]) for e in trace if e.get("name") == "thread_name" and e["args"]["name"] == "compute"}
    ranks = {pid: segments([e for e in trace if e["ph"] == "X" and e["pid"] == pid and (pid, e["tid"]) in compute])
             for pid in sorted(names)}
    end = max(segment[1] for rank in ranks.values() for segment in rank)
    scale = (WIDTH - LEFT - 8) / end
    height = TOP + len(ranks) * (ROW + GAP) + 28
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="13">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>')
    for row, (pid, rank) in enumerate(ranks.items()):
        y = TOP + row * (ROW + GAP)
        print(f'<text x="8" y="{y + ROW / 2 + 5:.0f}" fill="#333333">{names[pid]}</text>')
        print(f'<rect x="{LEFT}" y="{y}" width="{end * scale:.1f}" height="{ROW}" fill="#f1f1f1"/>')
        for start, stop, kind, microbatch in rank:
            x, width = LEFT + start * scale, (stop - start) * scale
            print(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" fill="{COLOURS[kind]}" stroke="#ffffff"/>')
            if microbatch >= 0 and width > 9:
                print(f'<text x="{x + width / 2:.1f}" y="{y + ROW / 2 + 5:.0f}" text-anchor="middle" fill="#222222">'
                      f'{microbatch}</text>')
    y = TOP + len(ranks) * (ROW + GAP) + 14
    x = LEFT
    for kind, text in (("F", "forward"), ("B", "backward"), ("U", "update")):
        print(f'<rect x="{x}" y="{y - 10}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        print(f'<text x="{x + 18}" y="{y}" fill="#333333">{text}</text>')
        x += 100
    print(f'<text x="{WIDTH - 8}" y="{y}" text-anchor="end" fill="#333333">{end / 1000:.0f} ms of virtual time</text>')
    print("</svg>")


main()
