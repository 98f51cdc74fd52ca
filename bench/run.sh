#!/bin/sh
# `make bench`: what this machine shows, as ratios of runs that took turns. usage: run.sh BUILD_DIR
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== piperc: examples/gpt_1f1b.piper to executables"
start=$(date +%s.%N)
"$build/bin/piperc" examples/gpt_1f1b.piper -o "$work/demo" >/dev/null
end=$(date +%s.%N)
awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1f s\n", b - a }'

echo "== piper check examples/gpt_1f1b.piper (best of 10, whole process)"
best=999999
for i in 1 2 3 4 5 6 7 8 9 10; do
  start=$(date +%s%N)
  "$build/bin/piper" check examples/gpt_1f1b.piper >/dev/null
  end=$(date +%s%N)
  t=$(( (end - start) / 1000 ))
  [ "$t" -lt "$best" ] && best=$t
done
awk -v t="$best" 'BEGIN { printf "%.1f ms\n", t / 1000 }'

echo "== pipeline schedules: from text to proved plans"
"$build/bin/pipeline_bench"

echo "== the reference GPT against PyTorch"
"$build/bin/piperc" bench/gpt_reference.piper -o "$work/gpt" >/dev/null
python3 bench/gpt_step.py "$work/gpt"
