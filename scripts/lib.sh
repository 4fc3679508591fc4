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

# exact_match FILE WHAT ARGUMENT...: puts every question of FILE (lines "question<TAB>answer", without quotes in them) to
# `rondo eval ARGUMENT... --exact_match` and sets $right and $asked. An answer is right when it is the expected text and
# nothing else.
exact_match() {
  local file=$1 what=$2 question answer report share
  shift 2
  while IFS=$'\t' read -r question answer; do
    printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' "$question" "$answer"
  done <"$file" >"$file.jsonl"
  report=$("$rondo" eval "$@" --eval_dataset "$file.jsonl" --exact_match --json 2>>"$work/eval.log") ||
    die "eval failed; see $work/eval.log"
  asked=$(sed -nE 's/.*"samples": *([0-9]+).*/\1/p' <<<"$report")
  share=$(sed -nE 's/.*"exact_match": *([0-9.e-]+).*/\1/p' <<<"$report")
  right=$(awk -v share="$share" -v asked="$asked" 'BEGIN { printf "%d", share * asked + 0.5 }')
  say "exact match $what: $right of $asked"
}

# run_checks: what needs no build. Every check runs; fails at the end when one of them has.
run_checks() {
  local failed=0
  if command -v clang-format >/dev/null; then
    say "format"
    (cd "$root" && git ls-files -z '*.h' '*.cpp' '*.comp' | xargs -0r clang-format --dry-run -Werror) || failed=1
  else
    say "format: not checked, clang-format is not installed (scripts/setup.sh --ci)"
  fi
  say "architecture, documents, goldens and cures"
  "$root/scripts/check_architecture.sh" || failed=1
  "$root/scripts/check_docs.sh" || failed=1
  "$root/scripts/check_goldens.sh" || failed=1
  "$root/scripts/check_cures.sh" --apply-only || failed=1
  [ "$failed" -eq 0 ] || die "the checks found faults, see above"
}
