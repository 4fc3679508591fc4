#!/usr/bin/env bash
# Shows that the tests of tests/complaints/ would notice if what they are about went: takes each cure away, one at a time,
# and expects its test to fail.
#
#   scripts/check_cures.sh                   all of them; the first build takes minutes, each cure some seconds more
#   scripts/check_cures.sh NAME...           these alone; NAME is a file of tests/complaints/cures without .patch
#   scripts/check_cures.sh --apply-only      only whether each change still applies (part of the checks of .ci/run)
#
# A file of cures/ bears the name of the test. It says in its first line what is taken away, in a line `program:` which test
# program has the test, then the change, for `git apply`. Works on a checkout of HEAD of its own, build/cures. Ends with
# status 1 when a test passed, or did not run, without its cure.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"
cd "$root"

if [ "${1:-}" = --apply-only ]; then
  failed=0
  for cure in tests/complaints/cures/*.patch; do
    git apply --check -C1 "$cure" || { echo "error: $cure does not apply: bring it up to date" >&2 && failed=1; }
  done
  exit "$failed"
fi

if [ $# -eq 0 ]; then
  cures=(tests/complaints/cures/*.patch)
else
  cures=("${@/#/tests/complaints/cures/}")
  cures=("${cures[@]/%/.patch}")
fi

work=$root/build/cures
[ -e "$work/.git" ] || git worktree add --quiet --force --detach "$work" HEAD
git -C "$work" checkout --quiet --force --detach "$(git rev-parse HEAD)"
cd "$work"
export CCACHE_BASEDIR="$work" CCACHE_NOHASHDIR=true
cmake --preset release >/dev/null

program_of() { sed -n 's/^program: //p' "$1"; }

# outcome_of CURE: builds what CURE names and prints how its test ended: passed, failed, skipped
outcome_of() {
  local test program output
  test=$(basename "$1" .patch)
  program=$(program_of "$1")
  cmake --build --preset release --target rondo "$program" >build.log 2>&1 || {
    tail -20 build.log >&2
    die "$test: does not build"
  }
  if output=$(timeout 600 "build/release/tests/$program" --gtest_filter="$test" 2>&1); then
    if grep -q '\[  SKIPPED \]' <<<"$output" || ! grep -q '\[  PASSED  \] 1 test' <<<"$output"; then
      echo skipped
    else
      echo passed
    fi
  else
    echo failed
  fi
}

faults=0
expect() { # expect OUTCOME CURE WHEN
  local outcome
  outcome=$(outcome_of "$2")
  say "$(basename "$2" .patch) $3: $outcome"
  [ "$outcome" = "$1" ] || faults=$((faults + 1))
}

for cure in "${cures[@]}"; do expect passed "$cure" "with its cure"; done
for cure in "${cures[@]}"; do
  git apply -C1 "$cure"
  expect failed "$cure" "without"
  git apply -R -C1 "$cure"
done
[ "$faults" -eq 0 ] || die "$faults outcomes are not as they should be"
say "every test notices that its cure is gone"
