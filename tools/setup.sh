#!/bin/sh
# Installs the Debian packages that Piper builds with, if any is missing. Says plainly what it installs. Works
# offline once they are there. PIPER_NO_INSTALL=1 only reports.
set -eu

packages="g++ cmake ninja-build ccache make git lld
antlr4 default-jre-headless libantlr4-runtime-dev uuid-dev
llvm-14-dev zlib1g-dev libtinfo-dev
libfmt-dev libboost-program-options-dev nlohmann-json3-dev libxxhash-dev libgtest-dev"

missing=""
for package in $packages; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  case "$status" in
    "install ok installed") ;;
    *) # Another package may provide the tool (a newer cmake, another java).
      case "$package" in
        cmake) command -v cmake >/dev/null 2>&1 && continue ;;
        make) command -v make >/dev/null 2>&1 && continue ;;
        git) command -v git >/dev/null 2>&1 && continue ;;
        default-jre-headless) command -v java >/dev/null 2>&1 && continue ;;
      esac
      missing="$missing $package" ;;
  esac
done
[ -z "$missing" ] && exit 0

echo "setup: these Debian packages are missing:$missing"
if [ "${PIPER_NO_INSTALL:-}" = 1 ]; then
  echo "setup: PIPER_NO_INSTALL=1: not installing" >&2
  exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: no apt-get here; install their equivalents by hand" >&2
  exit 1
fi
as_root=""
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "setup: neither root nor sudo: cannot install" >&2; exit 1; }
  as_root="sudo"
fi
echo "setup: installing them with apt-get"
log=$(mktemp)
if ! { $as_root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1; then
  cat "$log" >&2
  rm -f "$log"
  exit 1
fi
rm -f "$log"
echo "setup: done"
