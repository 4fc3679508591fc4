#!/usr/bin/env bash
# The speed of a whole training step beside transformers + PEFT on PyTorch, on this machine's CPU.
#
#   scripts/bench.sh [OPTION]...          options are those of scripts/bench/compare.py (--help lists them)
#
# SmolLM2-135M, batch 4 x 512 tokens, bf16, two threads; every weight trained, and LoRA of rank 16 on all linear layers.
# Rondo and the peer run in turn, pair by pair, so that what else the machine does meets both alike. Takes about half an
# hour. The Python side lives in ${XDG_CACHE_HOME:-~/.cache}/rondo-bench, made on the first call with the versions below;
# RONDO_BENCH_PYTHON names an interpreter that has them, RONDO_BIN a ready `rondo`, RONDO_SMOLLM2 the model's directory.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"

packages=(torch==2.15.0 transformers==5.23.0 peft==0.21.2)
cache=${XDG_CACHE_HOME:-$HOME/.cache}

if [ -z "${RONDO_BIN:-}" ]; then "$root/scripts/setup.sh"; fi
build_rondo
model=${RONDO_SMOLLM2:-$cache/rondo-models/smollm2-135m-instruct}
[ -n "${RONDO_SMOLLM2:-}" ] || python3 "$root/scripts/fetch_smollm2.py" "$model" >&2

python=${RONDO_BENCH_PYTHON:-}
if [ -z "$python" ]; then
  venv=$cache/rondo-bench
  python=$venv/bin/python3
  if [ "$(cat "$venv/packages" 2>/dev/null)" != "${packages[*]}" ]; then
    say "making $venv with ${packages[*]}" >&2
    python3 -m venv --clear "$venv"
    "$python" -m pip install -q "${packages[@]}" >&2
    echo "${packages[*]}" >"$venv/packages" # last: what makes the environment valid
  fi
fi
exec "$python" "$root/scripts/bench/compare.py" --rondo "$rondo" --model "$model" "$@"
