#!/usr/bin/env bash
# Stands in for the compiler in the preset tidy: clang-tidy parses a source once, reports Clang's own warnings with its
# findings, and leaves an empty object behind. Nothing is compiled.
#
#   tidy.sh CLANG-TIDY COMPILER FLAG... -o OBJECT -c SOURCE
set -uo pipefail
tidy=$1
shift 2
flags=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) object=$2 && shift ;;
    -c) source=$2 && shift ;;
    -MF | -MT) shift ;;  # which headers a source reads is not asked for: the preset is built from nothing
    -MD) ;;
    *) flags+=("$1") ;;
  esac
  shift
done
if ! report=$("$tidy" --quiet --warnings-as-errors='*' "$source" -- "${flags[@]}" 2>&1); then
  printf '%s\n' "$report"
  exit 1
fi
: >"$object"
