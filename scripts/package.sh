#!/usr/bin/env bash
# Packs the release build: a Debian package and a tarball that runs wherever glibc is as new as here.
#
#   scripts/package.sh [FOLDER]      default: build/package
#
# The tarball brings along the libraries that the program is linked with, but for glibc's and the compiler's runtime: drivers
# of graphics cards are loaded into the program and need those of their own system. RONDO_BUILD=DIR packs another build.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"
folder=$(realpath -m "${1:-$root/build/package}")
build=${RONDO_BUILD:-$root/build/release}
if [ -z "${RONDO_BUILD:-}" ]; then
  use_ccache
  (cd "$root" && cmake --preset release >/dev/null && cmake --build --preset release --target rondo rondo_manual)
fi
mkdir -p "$folder"

say "the Debian package"
cpack --config "$build/CPackConfig.cmake" -G DEB -B "$folder" >"$folder/cpack.log" || die "cpack failed; see $folder/cpack.log"
rm -rf "$folder/_CPack_Packages"

say "the tarball"
version=$("$build/rondo" --version | cut -d' ' -f2)
name=rondo-$version-$(uname -m)
stage=$folder/$name
rm -rf "$stage"
cmake --install "$build" --prefix "$stage" --strip >/dev/null
mkdir -p "$stage/lib/rondo"
ldd "$stage/bin/rondo" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | while read -r library; do
  case ${library##*/} in
    libc.so.* | libm.so.* | libpthread.so.* | libdl.so.* | librt.so.* | ld-linux* | libstdc++.so.* | libgcc_s.so.*) ;;
    *) cp -L "$library" "$stage/lib/rondo/" ;;
  esac
done
# What is there must be what is taken.
outside=$(ldd "$stage/bin/rondo" | awk -v stage="$stage/" '$2 == "=>" && index($3, stage) != 1 { print $1 }' |
  grep -vE '^lib(c|m|pthread|dl|rt|stdc\+\+|gcc_s)\.so' || true)
[ -z "$outside" ] || die "the tarball lacks: $outside"
env -i "$stage/bin/rondo" --version >/dev/null || die "the packed program does not start"
tar -C "$folder" --owner=0 --group=0 -czf "$folder/$name.tar.gz" "$name"
rm -rf "$stage"
say "done:"
ls -l "$folder"/*.deb "$folder/$name.tar.gz"
