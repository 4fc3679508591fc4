#!/usr/bin/env bash
# Stands in for the compiler in the preset tidy: clang-tidy reports Clang's own warnings with its findings, and an empty
# object is left behind. Nothing is compiled.
#
#   tidy.sh CLANG-TIDY COMPILER FLAG... -o OBJECT -c SOURCE
#
# Most of a parse is headers, and all checks go over them too. Sources that CMake puts together (CMAKE_UNITY_BUILD) are
# therefore checked together, in a fifth of the time; then each goes by itself through Clang, for its warnings and for an
# include of a room's that is missing. Those of libraries that nearly all read come precompiled there (tidy_libraries.h),
# in three fifths of the time; their own absence is not seen. What is made known by `using` or as a namespace's other name, and then not used, is looked for
# as text: clang-tidy's two checks for that see nothing but the main file, and would take a third longer than Clang.
set -uo pipefail
tidy=$1
compiler=$2
shift 2
flags=()
while [ $# -gt 0 ]; do
  case $1 in
    -o) object=$2 && shift ;;
    -c) source=$2 && shift ;;
    -MF | -MT) shift ;;  # which headers a source reads is not asked for: the preset builds all of it, always (cleanFirst)
    -MD) ;;
    *) flags+=("$1") ;;
  esac
  shift
done

libraries() { # libraries: the precompiled tidy_libraries.h for these flags, but for -I; made where it is missing
  local here name
  here=$(dirname "$0")
  name=$PWD/tidy_libraries-$(printf '%s\n' "$compiler" "${flags[@]}" | grep -v '^-I' | sha256sum | cut -c1-16).pch
  exec 9>"$name.lock"
  flock 9
  if [ ! -e "$name" ] || [ "$here/tidy_libraries.h" -nt "$name" ]; then
    "$compiler" "${flags[@]}" -x c++-header "$here/tidy_libraries.h" -o "$name.new" >&2 && mv "$name.new" "$name"
  fi
  exec 9>&-
  echo "$name"
}

check() { # check SOURCE OPTION...: prints what is found, if anything
  local source=$1 report
  shift
  if ! report=$("$tidy" --quiet --warnings-as-errors='*' "$@" "$source" -- "${flags[@]}" 2>&1); then
    printf '%s\n' "$report"
    return 1
  fi
}

unused_names() { # unused_names SOURCE: of its own using-declarations and namespace aliases; fails when there are any
  awk '
    match($0, /^ *using [A-Za-z_:]+::[A-Za-z_0-9]+;/) { name = $2; sub(/;.*/, "", name); sub(/.*::/, "", name); line[name] = FNR; next }
    match($0, /^ *namespace [a-z_]+ = /) { line[$2] = FNR; next }
    !/^#include/ { text = text "\n" $0 }
    END {
      for (name in line) {
        if (text ~ ("(^|[^A-Za-z_0-9])" name "([^A-Za-z_0-9]|$)")) continue
        printf "%s:%d: error: %s is not used\n", FILENAME, line[name], name
        found = 1
      }
      exit found
    }' "$1"
}

case $source in
  */unity_*_cxx.cxx)
    root=$(cd "$(dirname "$0")/.." && pwd)
    mapfile -t parts < <(sed -n 's/^#include "\(.*\)"$/\1/p' "$source")
    [ ${#parts[@]} -gt 0 ] || { echo "$source: includes nothing" && exit 1; }
    # To include sources is what this one is for. Clang's warnings are left to each source by itself: here a name of one
    # would shadow another's.
    check "$source" --config-file="$root/.clang-tidy" --header-filter="^$root/.*\.(h|cpp)\$" \
      --checks=-bugprone-suspicious-include --extra-arg=-Wno-everything || exit 1
    precompiled=$(libraries)
    for part in "${parts[@]}"; do
      "$compiler" -fsyntax-only "${flags[@]}" -include-pch "$precompiled" "$part" || exit 1
      unused_names "$part" || exit 1
    done
    ;;
  *) check "$source" || exit 1 ;;
esac
: >"$object"
