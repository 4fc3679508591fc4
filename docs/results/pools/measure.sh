#!/usr/bin/env bash
# measure.sh RONDO: the runs of docs/results/timed-pools.md, predicted beside measured. On a quiet machine; takes minutes.
set -euo pipefail
rondo=$(realpath "$1")
cd "$(dirname "$0")"
one() { # one TITLE MODEL TYPE TOKENS MICROBATCHES HOST DEVICES
  "$rondo" profile --model_name_or_path "$2" --finetuning_type "$3" --cutoff_len "$4" --gradient_accumulation_steps "$5" \
    --host "hosts.yaml#$6" --devices "$7" --steps 5 --json 2>/dev/null |
    python3 -c '
import json, sys
run = json.load(sys.stdin)
planned, measured = run["predicted"], run["measured"]
print("%s: step %.3f s predicted, %.3f s measured; bubble %.2f%%, %.2f%%" % (
    sys.argv[1], planned["step_seconds"], measured["step_seconds"], 100 * planned["bubble"], 100 * measured["bubble"]))
' "$1"
}
card() { echo "timed:cards.yaml#$1"; }
one "4 like cards, 64 blocks, no optimizer" Qwen/Qwen3-32B full 4096 8 instant "$(card one)*4"
one "4 like cards, 64 blocks, slow optimizer" Qwen/Qwen3-32B full 4096 8 slow "$(card one)*4"
one "1, 1, 1/2, 1/2" Qwen/Qwen3-8B full 4096 16 instant "$(card one)*2,$(card half)*2"
one "1, 1/2, 1/4" Qwen/Qwen3-8B full 4096 16 instant "$(card one),$(card half),$(card quarter)"
one "RTX 4090, RTX 3060, RX 7600, Radeon 780M, LoRA" Qwen/Qwen3-8B lora 2048 16 instant "timed:rtx4090,timed:rtx3060,timed:rx7600,timed:radeon-780m"
for n in 2 4 8; do
  one "RTX 4090 x $n" Qwen/Qwen3-8B full 2048 $((4 * n)) instant "timed:rtx4090*$n"
done
