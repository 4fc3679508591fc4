#!/usr/bin/env bash
# Builds Rondo and runs its tests: the README's second command. ctest's summary is the last thing it prints.
#
#   scripts/test.sh [--ci] [ctest argument]...
#
# Tests run on the release build: what they hold must hold with assertions compiled out. The checks that need no build
# (format, architecture, documents, goldens) come first. --ci, or CI set, installs the tools that .ci/run needs too; without
# clang-format on the machine the format is not checked, which is said. RONDO_TEST_CHECKS=0 leaves the checks out.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"
cd "$root"

setup=()
if [ "${1:-}" = --ci ]; then
  setup=(--ci)
  shift
elif [ -n "${CI:-}" ]; then
  setup=(--ci)
fi
say "packages"
scripts/setup.sh "${setup[@]}"
use_ccache
if [ "${RONDO_TEST_CHECKS:-1}" != 0 ]; then run_checks; fi
say "build"
cmake --preset release >/dev/null
cmake --build --preset release
say "tests"
# Passed ones go by in hundreds: what fails, with its output, and the summary stand out.
ctest --preset release -j "$(nproc)" "$@" | awk '
  / Passed +[0-9.]+ sec/ { if (++passed % 100 == 0) { print "  " passed " passed"; fflush() } next }
  /^ +Start +[0-9]+: / { next }
  { print; fflush() }'
