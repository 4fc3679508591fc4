#!/usr/bin/env bash
# schedules.sh RONDO: the schedules that the executor carries out, predicted beside measured. On a quiet machine; minutes.
set -euo pipefail
rondo=$(realpath "$1")
cd "$(dirname "$0")"
for cards in 2 4; do
  for schedule in roundpipe gpipe looped_bfs 1f1b interleaved zb_h1 zb_v; do
    "$rondo" profile --model_name_or_path Qwen/Qwen3-8B --finetuning_type full --cutoff_len 2048 \
      --gradient_accumulation_steps 16 --host hosts.yaml#instant --devices "timed:a100-80g*$cards" --schedule $schedule \
      --steps 5 --json 2>/dev/null |
      python3 -c '
import json, sys
run = json.load(sys.stdin)
planned, measured = run["predicted"], run["measured"]
peak = max(device["peak_bytes"] for device in planned["devices"]) / 2**30
print("| %s | %s | %.3f s | %.3f s | %.1f%% | %.1f%% | %.1f GiB |" % (
    sys.argv[1], sys.argv[2], planned["step_seconds"], measured["step_seconds"], 100 * planned["bubble"],
    100 * measured["bubble"], peak))
' "$cards" "$schedule"
  done
done
