#!/usr/bin/env bash
# Checks that what the documents name in back-ticks exists; needs no build.
#
#   scripts/check_docs.sh [FILE.md]...     default: README.md and all of docs/
#
# A path must be in the tree (a header may be named as it is included); a file name must be one in the tree or stand in
# the sources (what a run writes); an identifier, key or flag must stand in the sources as a word, each part of a
# qualified name; links must lead to files. Spans with blanks (commands, formulas), placeholders (<...>, $...) and
# numbers are not looked at, nor are fenced blocks, but for the scripts/ paths in them.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then mapfile -t documents < <(git ls-files --cached --others --exclude-standard README.md 'docs/*.md'); else documents=("$@"); fi

tree=$(mktemp) words=$(mktemp) strings=$(mktemp)
trap 'rm -f "$tree" "$words" "$strings"' EXIT
git ls-files --cached --others --exclude-standard >"$tree"
grep -vE '\.md$|^tests/data/|^LICENSE$|^scripts/check_docs\.sh$' "$tree" | while read -r file; do
  if [ -f "$file" ]; then cat -- "$file"; fi
done | tr -d '\000' >"$strings"
grep -oE '[A-Za-z_][A-Za-z0-9_]*' "$strings" | sort -u >"$words"

failed=0
fault() {
  echo "docs: $*" >&2
  failed=1
}
is_word() { LC_ALL=C grep -qxF -- "$1" "$words"; }
# A file, a folder, or a header as it is included.
in_tree() {
  local path=${1%/}
  grep -qxF -- "$path" "$tree" || grep -qF -- "$path/" <(sed 's/^/\//' "$tree" | grep -F -- "/$path/" || true) ||
    grep -qE -- "(^|/)$(printf '%s' "$path" | sed 's/[.]/\\./g')$" "$tree"
}

check_span() { # check_span FILE SPAN
  local file=$1 span=$2 part name
  case $span in
    *[[:space:]]* | *'<'* | *'$'* | *'*'* | *'='* | *'|'* | "") return ;;
  esac
  if [[ $span =~ ^[0-9.,%-]+$ ]]; then return; fi
  if [[ $span =~ ^--?[A-Za-z] ]]; then # a flag
    name=${span#-} name=${name#-}
    is_word "${name//-/_}" || grep -qF -- "$span" "$strings" || fault "$file: \`$span\`: no such flag"
  elif [[ $span == */* ]]; then
    in_tree "$span" || grep -qF -- "$span" "$strings" || fault "$file: \`$span\`: no such path"
  elif [[ $span =~ ^[A-Za-z_~][A-Za-z0-9_]*(::~?[A-Za-z_][A-Za-z0-9_]*)*(\(.*\))?$ ]]; then
    name=${span%%(*}
    for part in ${name//::/ }; do
      is_word "${part#\~}" || fault "$file: \`$span\`: '$part' stands nowhere in the sources"
    done
  else
    in_tree "$span" || grep -qF -- "$span" "$strings" || fault "$file: \`$span\`: no such file, and no source says so"
  fi
}

for file in "${documents[@]}"; do
  while IFS= read -r span; do
    check_span "$file" "$span"
  done < <(awk '/^ *```/ { fenced = !fenced; next } !fenced' "$file" | grep -oE '`[^`]+`' | tr -d '`' | sort -u)
  while IFS= read -r path; do
    grep -qxF -- "$path" "$tree" || fault "$file: $path: no such script"
  done < <(grep -oE '(^|[^A-Za-z/])scripts/[A-Za-z0-9_/.-]+\.(sh|py)' "$file" | sed -E 's/^[^s]//' | sort -u)
  while IFS= read -r link; do
    case $link in http://* | https://* | '#'*) continue ;; esac
    [ -e "$(dirname "$file")/${link%%#*}" ] || fault "$file: the link to $link leads nowhere"
  done < <(grep -oE '\]\([^) ]+\)' "$file" | sed -E 's/^\]\(//; s/\)$//' | sort -u)
done
if [ "$failed" -eq 0 ]; then echo "docs: ${#documents[@]} documents, no fault"; fi
exit "$failed"
