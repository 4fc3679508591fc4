# shellcheck shell=bash disable=SC2154
# Shell functions that the scripts share; sourced, not run. Expects `set -euo pipefail` and $root, the checkout.

# One line of progress, with the seconds since the script began.
say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }

die() {
  echo "error: $*" >&2
  exit 1
}

# Compiler results are found again from another checkout of the same sources.
use_ccache() {
  export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=true
}

# build_rondo: the release build of the command; sets $rondo. RONDO_BIN names a ready one instead.
build_rondo() {
  if [ -n "${RONDO_BIN:-}" ]; then
    rondo=$RONDO_BIN
    [ -x "$rondo" ] || die "RONDO_BIN: $rondo is no program"
    return
  fi
  use_ccache
  (cd "$root" && cmake --preset release >/dev/null && cmake --build --preset release --target rondo)
  rondo=$root/build/release/rondo
  [ -x "$rondo" ] || die "the build has not made $rondo"
}

# json_text: the value of the first "text" in a JSON document on stdin, escapes left as they are, blanks around it cut.
json_text() {
  tr '\n' ' ' | LC_ALL=C sed -nE 's/^[^"]*"text" *: *"(([^"\\]|\\.)*)".*$/\1/p' | LC_ALL=C sed -E 's/^ +//; s/ +$//'
}

# exact_match FILE WHAT ARGUMENT...: asks every question of FILE (lines "question<TAB>answer") of `rondo generate
# ARGUMENT...` and sets $right and $asked. An answer is right when it is the expected text and nothing else.
exact_match() {
  local file=$1 what=$2 question answer found
  shift 2
  right=0 asked=0
  while IFS=$'\t' read -r question answer <&3; do
    found=$("$rondo" generate "$@" --prompt "$question" --json 2>>"$work/generate.log" </dev/null | json_text) ||
      die "generate failed; see $work/generate.log"
    asked=$((asked + 1))
    [ "$found" = "$answer" ] && right=$((right + 1))
  done 3<"$file"
  say "exact match $what: $right of $asked"
}

# run_checks: what needs no build. Every check runs; fails at the end when one of them has.
run_checks() {
  local failed=0
  if command -v clang-format >/dev/null; then
    say "format"
    (cd "$root" && git ls-files -z '*.h' '*.cpp' | xargs -0r clang-format --dry-run -Werror) || failed=1
  else
    say "format: not checked, clang-format is not installed (scripts/setup.sh --ci)"
  fi
  say "architecture, documents and goldens"
  "$root/scripts/check_architecture.sh" || failed=1
  "$root/scripts/check_docs.sh" || failed=1
  "$root/scripts/check_goldens.sh" || failed=1
  [ "$failed" -eq 0 ] || die "the checks found faults, see above"
}
