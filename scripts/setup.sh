#!/usr/bin/env bash
# Installs the packages that Rondo is built from: those of Debian 12, which Debian 13 and Ubuntu 24.04 have
# under the same names.
#
#   scripts/setup.sh [--ci]
#
# --ci adds what the checks need: Clang, clang-tidy, clang-format and Clang's runtime libraries. Does nothing when all
# packages are there. Needs root, or sudo. Changes nothing else on the machine.
set -euo pipefail

packages=(
  # compiler and build
  g++ cmake ninja-build ccache pkg-config
  # matrix products, vector kernels
  libdnnl-dev libhwy-dev
  # status and containers, formatting
  libabsl-dev libfmt-dev
  # JSON, YAML
  nlohmann-json3-dev libyaml-cpp-dev
  # regular expressions, Unicode
  libpcre2-dev libicu-dev
  # the list of runs, hashes of contents
  libsqlite3-dev libxxhash-dev
  # the Vulkan backend: headers and shader compiler; to run it, the loader and a driver (of GPUs, and one in software)
  libvulkan-dev glslc libvulkan1 mesa-vulkan-drivers
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev vulkan-validationlayers
  # only scripts/fetch_smollm2.py and scripts/bench.sh run Python
  python3 python3-venv
)
ci_packages=(clang clang-tidy clang-format libclang-rt-dev libomp-dev)

case "${1:-}" in
  "") ;;
  --ci) packages+=("${ci_packages[@]}") ;;
  *)
    echo "error: setup.sh: unknown argument '$1'; expected nothing or --ci" >&2
    exit 2
    ;;
esac

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if ! command -v dpkg-query >/dev/null; then
  echo "error: setup.sh: this is no Debian; install what the list in this script names by hand" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  echo "setup: all ${#packages[@]} packages are there"
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "error: setup.sh: not root and no sudo; have these installed: ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "setup: installing ${missing[*]}"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q update
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get -q -y --no-install-recommends install "${missing[@]}"
echo "setup: done"
