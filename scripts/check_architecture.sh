#!/usr/bin/env bash
# Checks what the compiler cannot see of the architecture; needs no build.
#
#   scripts/check_architecture.sh
#
# 1. The rooms and edges that rondo_room() declares are those of the table in docs/architecture.md, and no others.
# 2. A room includes headers only of rooms that it names in DEPENDS, or of those that they name; nothing includes a
#    header by a path that leaves its folder.
# 3. A vendor's headers stay in their backend.
# 4. No source file has more than 600 lines.
# 5. Vulkan's kernels ask common.glsl which part of the work is theirs, not the card: tests turn that round.
set -euo pipefail
cd "$(dirname "$0")/.."
failed=0
fault() {
  echo "architecture: $*" >&2
  failed=1
}

# "room folder dependency..." for each rondo_room() call, in name order.
rooms() {
  git ls-files --cached --others --exclude-standard '*CMakeLists.txt' | while read -r file; do
    tr '\n' ' ' <"$file" | grep -oE 'rondo_room\([^)]*\)' | grep ' \?NAME ' | awk -v folder="$(dirname "$file")" '{
      gsub(/[()]/, " "); room = ""; list = ""; state = ""
      for (i = 1; i <= NF; ++i) {
        if ($i == "NAME" || $i == "DEPENDS" || $i == "PACKAGES" || $i == "SOURCES") state = $i
        else if (state == "NAME") { room = $i; state = "" }
        else if (state == "DEPENDS") list = list " " $i
      }
      print room, folder list }' || true
  done | sort -u  # a backend may declare its room twice, with a toolkit and without
}

# The same from the table: | `folder` | `room` | `dependency`, ... | what lives there |
documented() {
  awk -F'|' '/^\| `[a-z_\/]+` \| `[a-z_]+` \|/ {
    gsub(/[`, ]+/, " ", $2); gsub(/[`, ]+/, " ", $3); gsub(/[`, ]+/, " ", $4)
    if ($4 ~ /none/) $4 = ""
    split($2, folder, " "); split($3, room, " "); n = split($4, list, " ")
    line = room[1] " " folder[1]
    for (i = 1; i <= n; ++i) line = line " " list[i]
    print line }' docs/architecture.md | sort
}

if ! difference=$(diff <(documented) <(rooms)); then
  fault "docs/architecture.md (<) and the CMakeLists.txt files (>) name different rooms or edges:"
  printf '%s\n' "$difference" >&2
fi

# Includes. `closure` holds every room with all folders whose headers it may include; headers belong to the folder above
# their include/.
sources() { git ls-files --cached --others --exclude-standard "$@" | grep -v '^tests/data/' | while read -r f; do
  if [ -f "$f" ]; then echo "$f"; fi
done; }
includes=$(mktemp)
trap 'rm -f "$includes"' EXIT
sources '*.h' '*.cpp' | grep -v '^tests/' | xargs -r grep -oE '^ *# *include +["<][^">]+[">]' /dev/null |
  sed -E 's/: *# *include +["<]/ /; s/[">]$//' >"$includes"
headers=$(sources '*/include/*.h' | sed -E 's#^((.*)/include/(.*))$#\3 \2#')
if ! awk -v rooms="$(rooms)" -v headers="$headers" '
  function reach(room, from,    i, n, list) {
    if ((from, room) in may) return
    may[from, room] = 1
    n = split(needs[room], list, " ")
    for (i = 1; i <= n; ++i) reach(list[i], from)
  }
  BEGIN {
    n = split(rooms, lines, "\n")
    for (i = 1; i <= n; ++i) {
      m = split(lines[i], word, " ")
      folder_room[word[2]] = word[1]
      for (j = 3; j <= m; ++j) needs[word[1]] = needs[word[1]] " " word[j]
    }
    for (folder in folder_room) reach(folder_room[folder], folder_room[folder])
    n = split(headers, lines, "\n")
    for (i = 1; i <= n; ++i) { split(lines[i], word, " "); owner[word[1]] = word[2] }
  }
  {
    file = $1; header = $2; room = ""; folder = file
    if (header ~ /\.\.\//) { print "architecture: " file ": includes " header " by a path"; bad = 1 }
    while (room == "" && sub(/\/[^\/]*$/, "", folder)) if (folder in folder_room) room = folder_room[folder]
    if (room == "" || !(header in owner)) next
    other = folder_room[owner[header]]
    if (other != "" && !((room, other) in may)) {
      print "architecture: " file ": room " room " includes " header " of room " other ", which it may not"; bad = 1
    }
  }
  END { exit bad }' "$includes" >&2; then
  failed=1
fi

vendor() { # vendor FOLDER PATTERN
  if grep -E " ($2)" "$includes" | grep -v "^$1/" >&2; then fault "a header of $2 is included outside $1"; fi
}
vendor devices/cpu 'oneapi/|dnnl|omp\.h'
vendor devices/cuda 'cuda|cublas'
vendor devices/vulkan 'vulkan/'

while read -r file; do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt 600 ]; then fault "$file has $lines lines, more than 600: it holds two ideas, part them"; fi
done < <(sources '*.h' '*.cpp' '*.cmake' '*.sh' '*.py')

if grep -rnE 'gl_(LocalInvocation|GlobalInvocation|WorkGroupID|SubgroupID)' devices/vulkan/shaders |
  grep -v '^devices/vulkan/shaders/common.glsl:' >&2; then
  fault "a kernel asks the card which part of the work is its own, see kBackwards in common.glsl"
fi

if [ "$failed" -eq 0 ]; then echo "architecture: $(rooms | wc -l) rooms, no fault"; fi
exit "$failed"
