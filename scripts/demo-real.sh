#!/usr/bin/env bash
# LoRA teaches a real model, SmolLM2-135M-Instruct, to answer in a strict format; under ten minutes on two cores.
#
#   scripts/demo-real.sh [FOLDER]     default: build/demo-real in the checkout
#
# The task: turn an order in plain English ("Please book 3 seats to Oslo for Monday.") into one line, "OSLO|3|MON".
# Measured before and after by exact match on orders whose combination of city, number, day and wording was not trained
# on. The model comes from the package index (scripts/fetch_smollm2.py). RONDO_BIN=FILE uses a ready `rondo`;
# RONDO_DEMO_STEPS and RONDO_DEMO_DEVICES change the length of the run and the pool, RONDO_DEMO_OPTIONS
# adds options of `rondo train`.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"

steps=${RONDO_DEMO_STEPS:-40}
devices=${RONDO_DEMO_DEVICES:-auto}
read -ra options <<<"${RONDO_DEMO_OPTIONS:-}"
work=${1:-$root/build/demo-real}
cities=(Oslo Rome Lima Cairo Delhi Paris Quito Seoul Tunis Vienna Lisbon Athens)
days=(Monday Tuesday Wednesday Thursday Friday Saturday Sunday)
wordings=("Please book %d seats to %s for %s." "We need %d tickets to %s on %s." "%d people want to go to %s on %s."
  "Could you reserve %d places to %s for %s?")

# order I: sets $question and $answer of order number I. The strides mix the lists so that no order comes twice
# (make_data checks it).
order() {
  local i=$1 city day count
  city=${cities[i * 5 % ${#cities[@]}]}
  day=${days[(i * 3 + i / 12) % ${#days[@]}]}
  count=$((2 + (i * 7 + i / 84) % 8))
  # shellcheck disable=SC2059
  question=$(printf "${wordings[(i + i / 8) % ${#wordings[@]}]}" "$count" "$city" "$day")
  answer="${city^^}|$count|$(printf '%.3s' "${day^^}")"
}

make_data() {
  local i
  : >"$work/train.jsonl"
  : >"$work/questions.tsv"
  declare -A seen=()
  for ((i = 0; i < 200; i++)); do
    order "$i"
    [ -z "${seen[$question]:-}" ] || die "the generator repeats itself at order $i"
    seen[$question]=1
    if [ $((i % 10)) -eq 7 ]; then
      printf '%s\t%s\n' "$question" "$answer" >>"$work/questions.tsv"
    else
      printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' \
        "$question" "$answer" >>"$work/train.jsonl"
    fi
  done
}

if [ -e "$work" ] && [ ! -e "$work/.rondo-demo" ]; then
  die "$work exists and is no earlier demo; name another folder"
fi

say "1/5 packages and build"
if [ -z "${RONDO_BIN:-}" ]; then "$root/scripts/setup.sh"; fi
build_rondo
say "2/5 the model"
model=${RONDO_SMOLLM2:-${XDG_CACHE_HOME:-$HOME/.cache}/rondo-models/smollm2-135m-instruct}
[ -n "${RONDO_SMOLLM2:-}" ] || python3 "$root/scripts/fetch_smollm2.py" "$model"
rm -rf "$work"
mkdir -p "$work"
touch "$work/.rondo-demo"

say "3/5 data, and the model as it comes"
make_data
say "$(wc -l <"$work/train.jsonl") samples to train on, $(wc -l <"$work/questions.tsv") held-out orders"
exact_match "$work/questions.tsv" "before training" --model_name_or_path "$model" --max_new_tokens 16
before=$right

say "4/5 training $steps steps of 16 samples on $devices"
"$rondo" train --model_name_or_path "$model" --dataset "$work/train.jsonl" --output_dir "$work/adapter" \
  --finetuning_type lora --lora_rank 8 --lora_alpha 16 --dtype bf16 --devices "$devices" \
  --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --max_steps "$steps" --learning_rate 1e-3 \
  --lr_scheduler_type cosine --warmup_ratio 0.1 --cutoff_len 128 --logging_steps 5 --save_steps 0 "${options[@]}"

say "5/5 the held-out orders again"
exact_match "$work/questions.tsv" "after training" --model_name_or_path "$model" \
  --adapter_name_or_path "$work/adapter" --max_new_tokens 16
IFS=$'\t' read -r question answer <"$work/questions.tsv"
echo
echo "  order:    $question"
echo "  expected: $answer"
echo "  answer:   $("$rondo" generate --model_name_or_path "$model" --adapter_name_or_path "$work/adapter" \
  --prompt "$question" --max_new_tokens 16 2>>"$work/generate.log")"
echo
echo "  exact match on held-out orders: $before of $asked before, $right of $asked after"
echo "  the adapter: $work/adapter (PEFT loads it as it is), its metrics: $work/adapter/metrics.jsonl"
if [ "$right" -le "$before" ]; then die "training has not improved the answers; see $work/adapter/train.log"; fi
say "done"
