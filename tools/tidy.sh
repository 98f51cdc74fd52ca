#!/bin/sh
# clang-tidy with the short list of .clang-tidy, on as many cores as there are.
# usage: tidy.sh BUILD_DIR [BASE [WHICH]]
#   WHICH empty: the sources that differ from BASE (main), committed or not; all: every source; sample: a fixed few, which
#   is what the tests take (they skip it, exit 77, where clang-tidy is not installed)
set -eu
build=$1
base=${2:-main}
which=${3:-}

if ! command -v clang-tidy >/dev/null 2>&1; then
  echo "tidy: clang-tidy is not installed (Debian: clang-tidy)" >&2
  [ "$which" = sample ] && exit 77
  exit 1
fi
[ -f "$build/compile_commands.json" ] || { echo "tidy: $build is not configured; make build does it" >&2; exit 1; }
case "$which" in
  sample) files="codegen/text.cpp frontend/scanner.cpp ir/directives/stream.cpp ir/lower/lanes.cpp kernels/norm.cpp
                 runtime/shared_memory_collectives.cpp runtime/trainer.cpp tools/verify.cpp" ;;
  all) files=$(git ls-files 'codegen/*.cpp' 'frontend/*.cpp' 'ir/*.cpp' 'kernels/*.cpp' 'runtime/*.cpp' 'tools/*.cpp') ;;
  *) files=$({ git diff --name-only --diff-filter=d "$base"...HEAD
               git diff --name-only --diff-filter=d HEAD
               git ls-files --others --exclude-standard; } | grep -E '^(codegen|frontend|ir|kernels|runtime|tools)/.*\.cpp$' | sort -u || true) ;;
esac
# What clang 14 does not accept as the project's compiler does: headers of ANTLR and LLVM, names of processor features.
files=$(printf '%s\n' $files |
  grep -vxE 'frontend/parser.cpp|ir/support/diagnostics.cpp|kernels/isa.cpp|runtime/processor.cpp' || true)
[ -n "$files" ] || { echo "tidy: no source differs from $base"; exit 0; }
printf '%s\n' $files | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet 2>/dev/null
echo "tidy: nothing found in $(printf '%s\n' $files | wc -l) sources"
