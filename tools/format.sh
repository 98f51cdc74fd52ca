#!/bin/sh
# clang-format over the project's own sources, in place; with --check: names what differs and changes nothing (exit 1).
# Left out: the two contract headers, whose rows of comments are aligned by hand. Releases of clang-format differ, so that
# the check wants Debian 12's, 14 (exit 77 elsewhere: the test is skipped).
set -eu
if ! git ls-files --error-unmatch tools/format.sh >/dev/null 2>&1; then
  echo "format: not a git checkout, the project's own files are not known" >&2
  exit 77
fi
files=$(git ls-files '*.cpp' '*.h' | grep -vxE 'runtime/program.h|ir/program/program.h')
if [ "${1:-}" = --check ]; then
  case "$(clang-format --version 2>/dev/null || true)" in
    *"version 14."*) ;;
    *) echo "format: no clang-format 14 here, nothing checked" >&2; exit 77 ;;
  esac
  printf '%s\n' $files | xargs clang-format --dry-run -Werror
else
  printf '%s\n' $files | xargs clang-format -i
fi
