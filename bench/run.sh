#!/bin/sh
# `make bench`: what this machine shows, as ratios of runs that took turns, beside the aims. usage: run.sh BUILD_DIR
set -eu
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verdict VALUE OPERATOR BOUND UNIT
verdict() {
  awk -v value="$1" -v op="$2" -v bound="$3" -v unit="$4" 'BEGIN {
    met = op == "<" ? value < bound : op == "<=" ? value <= bound : value >= bound
    printf "   aim: %s %s %s: %s\n", op, bound, unit, met ? "met" : "MISSED" }'
}

echo "== piperc: examples/gpt_1f1b.piper to executables"
start=$(date +%s.%N)
"$build/bin/piperc" examples/gpt_1f1b.piper -o "$work/demo" >/dev/null
end=$(date +%s.%N)
took=$(awk -v a="$start" -v b="$end" 'BEGIN { printf "%.1f", b - a }')
echo "$took s"
verdict "$took" "<" 60 s

echo "== piper check examples/gpt_1f1b.piper (best of 10, whole process)"
best=999999
for i in 1 2 3 4 5 6 7 8 9 10; do
  start=$(date +%s%N)
  "$build/bin/piper" check examples/gpt_1f1b.piper >/dev/null
  end=$(date +%s%N)
  t=$(( (end - start) / 1000 ))
  [ "$t" -lt "$best" ] && best=$t
done
took=$(awk -v t="$best" 'BEGIN { printf "%.1f", t / 1000 }')
echo "$took ms"
verdict "$took" "<" 100 ms

echo "== kill -9 of one of the demo's four ranks"
python3 bench/kill_rank.py "$work/demo"

echo "== pipeline schedules: from text to proved plans"
"$build/bench/pipeline_bench"

echo "== the reference GPT against PyTorch"
"$build/bin/piperc" bench/gpt_reference.piper -o "$work/gpt" >/dev/null
python3 bench/gpt_step.py "$work/gpt" | tee "$work/step"
ratio=$(sed -n 's/.*median \([0-9.]*\).*/\1/p' "$work/step")
[ -z "$ratio" ] || verdict "$ratio" ">=" 1 "x PyTorch's speed"
