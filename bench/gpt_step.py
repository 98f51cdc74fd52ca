#!/usr/bin/env python3
"""One training step of the reference GPT, Piper against Debian's PyTorch, one thread each.

The contenders take turns, so that a slow moment of the machine hits both; the figure is the median of the paired
ratios. usage: gpt_step.py PROGRAM_DIR [--pairs 7] [--steps 6]
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile


def peer_environment():
    """PyTorch at its best: the OpenMP OpenBLAS, its own choice of kernels, one thread."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    libraries = glob.glob("/usr/lib/*/openblas-openmp/libopenblas.so.0")
    if libraries:
        env["LD_PRELOAD"] = libraries[0]
    env["OMP_NUM_THREADS"] = "1"
    return env, bool(libraries)


def piper_ms(program, steps):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([os.path.join(program, "train"), "--steps", str(steps + 2), "--out", out, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as lines:
            times = [json.loads(line)["step_ms"] for line in lines if '"step_ms"' in line]
    return min(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    env, fair = peer_environment()
    here = os.path.dirname(os.path.abspath(__file__))
    try:
        peer = subprocess.Popen(["/usr/bin/python3", os.path.join(here, "pytorch_gpt.py"), "--threads", "1"], env=env,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if peer.stdout.readline().strip() != "ready":
            raise OSError("no answer")
    except OSError as error:
        sys.exit(f"PyTorch does not run ({error}); apt-get install python3-torch libopenblas0-openmp")
    if not fair:
        print("note: libopenblas0-openmp is missing; PyTorch runs with another BLAS")
    pairs = []
    for _ in range(args.pairs):
        peer.stdin.write(f"{args.steps}\n")
        peer.stdin.flush()
        theirs = float(peer.stdout.readline().split()[1])
        pairs.append((theirs, piper_ms(args.program, args.steps)))
    peer.stdin.close()
    peer.wait()
    ratios = [theirs / ours for theirs, ours in pairs]
    print(f"reference GPT step, one thread: PyTorch {min(t for t, _ in pairs):.1f} ms, Piper {min(o for _, o in pairs):.1f} ms;"
          f" PyTorch / Piper: median {statistics.median(ratios):.2f}, best {max(ratios):.2f}, worst {min(ratios):.2f}")


if __name__ == "__main__":
    main()
