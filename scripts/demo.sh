#!/usr/bin/env bash
# From a bare checkout to a trained model, in under ten minutes on two cores.
#
#   scripts/demo.sh [FOLDER]          default: build/demo in the checkout; must not exist yet, or be an earlier demo
#
# Builds Rondo, makes a tiny random model and a small data set, and trains every weight of the model as a pipeline over
# three emulated cards of two kinds. They are described in a file, as slow as the model is small, compute on this
# machine's CPU and take at least the time that such cards would. The task: answer with the colour of a thing. The
# questions asked before and after are held out: their things are known from training, but never in this wording.
# RONDO_BIN=FILE uses a ready `rondo` instead of building one.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/lib.sh"

work=${1:-$root/build/demo}
devices="emulated:$work/cards.yaml#large*2,emulated:$work/cards.yaml#small"

things=(crow:black snow:white poppy:red lemon:yellow frog:green violet:purple brick:red coal:black milk:white
  canary:yellow fern:green plum:purple)
wordings=("What colour is %s?" "Tell me the colour of %s." "Colour of %s?" "Which colour has %s?" "%s: what colour?"
  "Name the colour of %s.")

make_cards() {
  cat >"$work/cards.yaml" <<'END'
large: {flops: {bf16: 20e9}, memory_bytes: 64e6, memory_bandwidth: 20e9, link_up: 4e9, link_down: 4e9,
  link_latency: 2e-5, efficiency: 0.8}
small: {flops: {bf16: 10e9}, memory_bytes: 32e6, memory_bandwidth: 10e9, link_up: 4e9, link_down: 4e9,
  link_latency: 2e-5, efficiency: 0.8}
END
}

# make_data: train.jsonl (messages) and questions.tsv (question, answer). Of every thing two of the six wordings are held
# out, other ones for each next thing.
make_data() {
  local i j thing colour question
  : >"$work/train.jsonl"
  : >"$work/questions.tsv"
  for i in "${!things[@]}"; do
    thing=${things[i]%%:*} colour=${things[i]##*:}
    for j in "${!wordings[@]}"; do
      # shellcheck disable=SC2059
      question=$(printf "${wordings[j]}" "$thing")
      if [ $(((i + j) % 3)) -eq 0 ]; then
        printf '%s\t%s\n' "$question" "$colour" >>"$work/questions.tsv"
      else
        printf '{"messages":[{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}]}\n' \
          "$question" "$colour" >>"$work/train.jsonl"
      fi
    done
  done
}

if [ -e "$work" ] && [ ! -e "$work/.rondo-demo" ]; then
  die "$work exists and is no earlier demo; name another folder"
fi

say "1/5 packages"
if [ -z "${RONDO_BIN:-}" ]; then "$root/scripts/setup.sh"; fi
say "2/5 build (a few minutes the first time)"
build_rondo
rm -rf "$work"
mkdir -p "$work"
touch "$work/.rondo-demo"

say "3/5 a tiny random model and its data"
"$rondo" init --arch llama --hidden_size 128 --num_hidden_layers 4 --num_attention_heads 4 --vocab_size 320 --seed 1 \
  --output_dir "$work/model" >/dev/null
make_cards
make_data
say "$(wc -l <"$work/train.jsonl") samples to train on, $(wc -l <"$work/questions.tsv") held-out questions"
exact_match "$work/questions.tsv" "before training" --model_name_or_path "$work/model" --max_new_tokens 10
before=$right

run=(--model_name_or_path "$work/model" --dataset "$work/train.jsonl" --finetuning_type full --devices "$devices"
  --per_device_train_batch_size 2 --gradient_accumulation_steps 10 --max_steps 300 --cutoff_len 128)
say "4/5 the plan for two large cards and a small one, then training"
"$rondo" plan "${run[@]}"
"$rondo" train "${run[@]}" --output_dir "$work/trained" --learning_rate 2e-3 --lr_scheduler_type cosine \
  --warmup_ratio 0.05 --weight_decay 0.01 --logging_steps 20 --save_steps 0

say "5/5 the held-out questions again"
exact_match "$work/questions.tsv" "after training" --model_name_or_path "$work/trained" --max_new_tokens 10
IFS=$'\t' read -r question _ <"$work/questions.tsv"
echo
echo "  question: $question"
echo "  answer:   $("$rondo" generate --model_name_or_path "$work/trained" --prompt "$question" --max_new_tokens 10 \
  2>>"$work/generate.log")"
echo
echo "  exact match on held-out questions: $before of $asked before, $right of $asked after"
echo "  the trained model: $work/trained (transformers loads it as it is)"
echo "  its metrics:       $work/trained/metrics.jsonl"
echo "  ask it yourself:   $rondo generate --model_name_or_path $work/trained --prompt \"Colour of snow?\""
if [ "$right" -le "$before" ]; then die "training has not improved the answers; see $work/trained/train.log"; fi
say "done"
