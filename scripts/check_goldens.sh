#!/usr/bin/env bash
# Holds the goldens to their manifests; needs no build and no Python.
#
#   scripts/check_goldens.sh [FOLDER]...     default: every folder of tests/data
#
# Each folder has a MANIFEST.json that tests/reference/manifest.py wrote: the generator, its seed, the versions and the
# SHA-256 of each file. A file that differs, one that is missing, one that is not listed and a generator that is not in
# the tree are faults. README.md is prose and not listed.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -eq 0 ]; then mapfile -t folders < <(git ls-files --cached --others --exclude-standard 'tests/data/*' |
  cut -d/ -f1-3 | sort -u); else folders=("${@%/}"); fi

want=$(mktemp) have=$(mktemp)
trap 'rm -f "$want" "$have"' EXIT
failed=0 checked=0
fault() {
  echo "goldens: $*" >&2
  failed=1
}

# listed MANIFEST: "hash  path" of every file, as sha256sum writes it.
listed() { grep -oE '"[^"]+": *"[0-9a-f]{64}"' "$1" | sed -E 's/^"([^"]+)": *"([0-9a-f]{64})"$/\2  \1/' | LC_ALL=C sort; }
# found FOLDER: the same of what lies there.
found() {
  git ls-files --cached --others --exclude-standard -- "$1" | while read -r file; do
    case ${file##*/} in MANIFEST.json | README.md) continue ;; esac
    if [ -f "$file" ]; then echo "${file#"$1"/}"; fi
  done | (cd "$1" && xargs -r -d '\n' sha256sum --) | LC_ALL=C sort
}

for folder in "${folders[@]}"; do
  manifest=$folder/MANIFEST.json
  if [ ! -f "$manifest" ]; then
    fault "$folder: has no MANIFEST.json; its generator in tests/reference writes it"
    continue
  fi
  generator=$(sed -nE 's/^ *"generator": *"([^"]+)".*/\1/p' "$manifest")
  [ -n "$generator" ] && [ -f "$generator" ] || fault "$manifest: the generator '$generator' is not in the tree"
  for key in seed versions; do
    grep -qE "^ *\"$key\":" "$manifest" || fault "$manifest: has no $key"
  done
  listed "$manifest" >"$want"
  found "$folder" >"$have"
  checked=$((checked + $(wc -l <"$have")))
  while read -r path; do
    if ! grep -qF "  $path" "$want"; then
      fault "$folder/$path: is not in MANIFEST.json; $generator makes it"
    elif ! grep -qF "  $path" "$have"; then
      fault "$folder/$path: is in MANIFEST.json, but missing; $generator makes it"
    else
      fault "$folder/$path: has another SHA-256 than MANIFEST.json says; $generator makes it"
    fi
  done < <(LC_ALL=C comm -3 "$want" "$have" | sed -E 's/^\t?[0-9a-f]{64}  //' | sort -u)
done
if [ "$failed" -eq 0 ]; then echo "goldens: $checked files in ${#folders[@]} folders, no fault"; fi
exit "$failed"
