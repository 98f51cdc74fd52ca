#!/usr/bin/env python3
"""How long a job lasts after one of its ranks was killed (SIGKILL): from the signal until the launcher and every other
rank have ended. Each rank in turn. usage: kill_rank.py PROGRAM_DIR
"""
import os
import signal
import subprocess
import sys
import tempfile
import time


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(word) for word in f.read().split()]
    except OSError:
        return []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def lines(path):
    try:
        with open(path, "rb") as f:
            return f.read().count(b"\n")
    except OSError:
        return 0


def seconds_until_all_ended(program, index):
    with tempfile.TemporaryDirectory() as out:
        job = subprocess.Popen([os.path.join(program, "train"), "--steps", "100000", "--out", out, "--quiet"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while lines(os.path.join(out, "metrics.jsonl")) < 3:
            if job.poll() is not None:
                sys.exit(f"the job ended by itself: {job.stderr.read()}")
            time.sleep(0.05)
        ranks = sorted(children(job.pid))
        start = time.monotonic()
        os.kill(ranks[index], signal.SIGKILL)
        while any(alive(rank) for rank in ranks) or job.poll() is None:
            if time.monotonic() - start > 60:
                sys.exit("a rank still runs a minute after another was killed")
            time.sleep(0.001)
        took = time.monotonic() - start
        return took, len(ranks), job.returncode


def main():
    program = sys.argv[1]
    times = []
    index, ranks = 0, 1
    while index < ranks:
        took, ranks, code = seconds_until_all_ended(program, index)
        if code != 75:
            sys.exit(f"exit code {code}, not 75")
        times.append(took)
        index += 1
    print(f"one of {ranks} ranks killed: the others ended after {min(times) * 1e3:.0f} to {max(times) * 1e3:.0f} ms,"
          f" exit code 75")


if __name__ == "__main__":
    main()
