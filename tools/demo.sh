#!/bin/sh
# The demo: examples/gpt_1f1b.piper becomes four processes that learn real text.
# usage: demo.sh BUILD_DIR OUTPUT_DIR [TEXT_FILE]
set -eu
build=$1
out=$2
text=${3:-}
steps=200
bound=2.44   # the bigram entropy of the default text, in nats a byte

mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }
now() { date +%s; }
begun=${PIPER_DEMO_BEGUN:-$(now)}   # set by make: before it built

say "compile: piperc examples/gpt_1f1b.piper -o $out/program"
start=$(now)
"$build/bin/piperc" examples/gpt_1f1b.piper -o "$out/program"
compiled=$(( $(now) - start ))

say "train: $out/program/train --steps $steps  (4 processes, one a pipeline stage)"
rm -rf "$out/run"
if [ -n "$text" ]; then set -- --data "$text"; else set --; fi
start=$(now)
"$out/program/train" --steps "$steps" --out "$out/run" "$@"
trained=$(( $(now) - start ))

mean=$(awk -v n=10 '
  match($0, /"loss":[-+0-9.eE]+/) { loss[++k] = substr($0, RSTART + 7, RLENGTH - 7) }
  END { if (k < n) exit 1; for (i = k - n + 1; i <= k; ++i) s += loss[i]; printf "%.4f", s / n }' "$out/run/metrics.jsonl")
say "mean loss of the last 10 steps: $mean nats a byte"
if [ -z "$text" ]; then
  awk -v m="$mean" -v b="$bound" 'BEGIN { exit !(m < b) }' || {
    echo "demo: FAILED: the loss is not below $bound, the bigram entropy of the text" >&2
    exit 1
  }
  echo "below $bound, the bigram entropy of that text: it has learned more than letter pairs"
fi

say "the same program in virtual time: piper run examples/gpt_1f1b.piper"
"$build/bin/piper" run examples/gpt_1f1b.piper

say "a line of text from the checkpoint: $out/program/train --sample 80 --resume $out/run"
"$out/program/train" --sample 80 --prompt "The " --resume "$out/run" --seed 7
echo
say "checkpoint: $out/run   metrics: $out/run/metrics.jsonl   program: $out/program"
say "took: compile $compiled s, train $trained s, in all $(( $(now) - begun )) s${PIPER_DEMO_BEGUN:+ with the build} on $(nproc) cores"
