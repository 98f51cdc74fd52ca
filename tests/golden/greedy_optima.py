#!/usr/bin/env python3
"""Optimal pipeline orders by an exact solver, for tests/greedy_optima_test.cpp: prints greedy_optima.csv.

Needs Debian's coinor-cbc (`cbc`); the tests need only the file. A row is a chain of p stages, one a rank, with m equal
microbatches: stage s takes F[s], BI[s], BW[s] (whole numbers), a message between neighbours arrives `latency` after it is
sent and occupies nobody, at most `in_flight` microbatches are on a rank from the start of F to the end of BI, and `makespan`
is the least time of a step.

The model. Equal microbatches can be renumbered, so every rank may run each pass in ascending order. Start times of F_i, BI_i,
BW_i are the variables; a cap of n is BI_i before F_(i+n); what is left to decide is, for j < i, whether F_i or BI_j comes
first, F_i or BW_j, BI_i or BW_j: a binary each, monotone in both indices, tied to the times by a large constant. Cuts that
hold in every schedule: a rank cannot end before its first possible start plus all its work, and no F starts before its rank
could have done what the binaries put before it.

What is proved. CBC must report `Optimal solution found`; makespans are whole numbers, so a gap of 0.999 is allowed. Its
two-step MIR cuts are off: with them version 2.10.8 called 23 optimal where 21 is (p = 4, m = 6, all costs 1, cap 4). For the
same reason nothing is believed once: every instance is solved again without any cuts and without preprocessing, and both
makespans must agree; and the schedule is checked here, constraint by constraint, in whole numbers. Instances that either run
does not prove within the time limit are left out and counted on standard error.

    greedy_optima.py [--seconds 60] [--instances 150] > greedy_optima.csv
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile


def chain(p, m, cap, latency):
    """The precedences [(before, after, delay)], the disjunctions [(a, b)]."""
    precedences, pairs = [], []
    for s in range(p):
        for i in range(m):
            if s + 1 < p:
                precedences.append((("F", s, i), ("F", s + 1, i), latency))
                precedences.append((("B", s + 1, i), ("B", s, i), latency))
            else:
                precedences.append((("F", s, i), ("B", s, i), 0))
            precedences.append((("B", s, i), ("W", s, i), 0))
            if i + 1 < m:
                for kind in "FBW":
                    precedences.append(((kind, s, i), (kind, s, i + 1), 0))
            if i + cap < m:
                precedences.append((("B", s, i), ("F", s, i + cap), 0))
            for j in range(i):
                if j + cap > i:
                    pairs.append((("F", s, i), ("B", s, j)))
                pairs.append((("F", s, i), ("W", s, j)))
                pairs.append((("B", s, i), ("W", s, j)))
    return precedences, pairs


def heads(p, costs, latency):
    """The earliest start of each rank's first pass."""
    return [sum(costs["F"][:s]) + s * latency for s in range(p)]


def bound(p, m, costs, latency):
    """What no schedule beats: a rank's first start plus all of its work; one microbatch there and back."""
    work = [m * sum(costs[kind][s] for kind in "FBW") for s in range(p)]
    back = sum(costs["F"]) + sum(costs["B"]) + 2 * (p - 1) * latency + costs["W"][0]
    return max([back] + [h + w for h, w in zip(heads(p, costs, latency), work)])


def name(node):
    return "%s_%d_%d" % node


def write_lp(path, p, m, costs, cap, latency, horizon):
    precedences, pairs = chain(p, m, cap, latency)
    cost = lambda node: costs[node[0]][node[1]]
    lines = ["Minimize", " c", "Subject To"]
    n = 0

    def row(text):
        nonlocal n
        n += 1
        lines.append(" r%d: %s" % (n, text))

    for a, b, delay in precedences:
        row("%s - %s >= %d" % (name(b), name(a), cost(a) + delay))
    for s in range(p):
        for kind in "FBW":
            row("c - %s >= %d" % (name((kind, s, m - 1)), costs[kind][s]))
    row("c >= %d" % bound(p, m, costs, latency))
    binaries = []
    variable = {}
    for a, b in pairs:  # 1: a first
        x = "x_%s_%s" % (name(a), name(b))
        variable[(a, b)] = x
        binaries.append(x)
        row("%s - %s + %d %s <= %d" % (name(a), name(b), horizon, x, horizon - cost(a)))
        row("%s - %s - %d %s <= %d" % (name(b), name(a), horizon, x, -cost(b)))
    for (a, b), x in variable.items():
        # a_i before b_j: then a_{i-1} before b_j, and a_i before b_{j+1}.
        down = ((a[0], a[1], a[2] - 1), b)
        up = (a, (b[0], b[1], b[2] + 1))
        if down in variable:
            row("%s - %s >= 0" % (variable[down], x))
        if up in variable:
            row("%s - %s >= 0" % (variable[up], x))
    # A rank is a machine: before F_i stand i forwards, and each BI or BW that comes first.
    for s, head in enumerate(heads(p, costs, latency)):
        for i in range(m):
            fixed = head + i * costs["F"][s]
            text = name(("F", s, i))
            for j in range(i):
                for kind in "BW":
                    key = (("F", s, i), (kind, s, j))
                    if key in variable:
                        text += " + %d %s" % (costs[kind][s], variable[key])
                        fixed += costs[kind][s]
                    elif kind == "B":  # the cap puts it first
                        fixed += costs["B"][s]
            row("%s >= %d" % (text, fixed))
    lines.append("Binary")
    lines += [" " + x for x in binaries]
    lines.append("End")
    with open(path, "w") as out:
        out.write("\n".join(lines) + "\n")


def check(p, m, costs, cap, latency, start):
    """The makespan of a schedule, or None if it breaks a constraint."""
    precedences, _ = chain(p, m, cap, latency)
    cost = lambda node: costs[node[0]][node[1]]
    for a, b, delay in precedences:
        if start[a] + cost(a) + delay > start[b]:
            return None
    for s in range(p):
        busy = sorted((start[n], start[n] + cost(n)) for n in start if n[1] == s and cost(n) > 0)
        if any(a[1] > b[0] for a, b in zip(busy, busy[1:])):
            return None
    return max(start[n] + cost(n) for n in start)


SETTINGS = [["twoMirCuts", "off"], ["cuts", "off", "preprocess", "off"]]


def solve(p, m, costs, cap, latency, seconds):
    """The optimum, or None where it is not proved by both settings."""
    horizon = m * (sum(sum(costs[kind]) for kind in "FBW") + 2 * p * latency)
    found = []
    with tempfile.TemporaryDirectory() as directory:
        lp, solution = os.path.join(directory, "a.lp"), os.path.join(directory, "a.sol")
        write_lp(lp, p, m, costs, cap, latency, horizon)
        for setting in SETTINGS:
            command = ["cbc", lp] + setting + ["allowableGap", "0.999", "sec", str(seconds), "solve", "solu", solution]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            if "Result - Optimal solution found" not in result.stdout:
                return None
            with open(solution) as lines:
                header = lines.readline()
                if not header.startswith("Optimal"):
                    return None
                objective = round(float(header.split()[-1]))
                start = {(kind, s, i): 0 for kind in "FBW" for s in range(p) for i in range(m)}
                for line in lines:
                    fields = line.split()
                    parts = fields[1].split("_")
                    if parts[0] in ("F", "B", "W"):
                        start[(parts[0], int(parts[1]), int(parts[2]))] = round(float(fields[2]))
            if check(p, m, costs, cap, latency, start) != objective:
                sys.stderr.write("a solution of %s breaks its constraints\n" % setting)
                return None
            found.append(objective)
    if len(set(found)) > 1:
        sys.stderr.write("the solver contradicts itself: %s at %s\n" % (found, (p, m, costs, cap, latency)))
        return None
    return found[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--instances", type=int, default=150)
    options = parser.parse_args()
    sys.stdout.write("p,m,F,BI,BW,latency,in_flight,makespan\n")
    left_out = 0

    def emit(p, m, costs, cap, latency):
        optimum = solve(p, m, costs, cap, latency, options.seconds)
        if optimum is None:
            return 1
        row = [p, m] + [" ".join(map(str, costs[kind])) for kind in "FBW"] + [latency, cap, optimum]
        sys.stdout.write(",".join(map(str, row)) + "\n")
        sys.stdout.flush()
        return 0

    for p, m, cap in [(2, 4, 2), (3, 4, 3), (4, 4, 4), (4, 6, 4), (4, 8, 4), (4, 6, 3), (4, 6, 2)]:
        left_out += emit(p, m, {kind: [1] * p for kind in "FBW"}, cap, 0)
    chooser = random.Random(20260729)
    for _ in range(options.instances):
        p, m = chooser.randint(2, 4), chooser.randint(3, 6)
        most = chooser.choice([3, 9, 20])
        costs = {kind: [chooser.randint(1, most) for _ in range(p)] for kind in "FBW"}
        cap = chooser.randint(1, p + 1)
        latency = chooser.choice([0, 0, 1, 3])
        left_out += emit(p, m, costs, cap, latency)
    sys.stderr.write("%d instances were not proved within %d s and are left out\n" % (left_out, options.seconds))


if __name__ == "__main__":
    main()
