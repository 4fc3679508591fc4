"""Speaks the part of rondo's command line that compare.py uses, computed by transformers: a check of the comparison.

Microbatches are padded here and run apart in the reference, so the two differ by the rounding of fp32 alone. With
STAND_IN_FAULT set it makes one typical mistake, and the comparison has to miss its bars:
    accumulation  mean of the microbatches' means      decay   weight decay on norms and biases too
    mask          the first target is left out         rate    the schedule begins a step late
    epsilon       1e-4 instead of 1e-7               stop    generate forgets the template's generation prompt
    keys          a tensor of the output is renamed
"""
import argparse
import json
import os
import pathlib
import shutil
import sys
import warnings

import torch
import transformers
import yaml
from safetensors.torch import load_file, save_file

import compare
import corpus
import loop

FAULT = os.environ.get("STAND_IN_FAULT", "")


def read_samples(config):
    tokenizer = corpus.load_tokenizer(config["model_name_or_path"])
    lines = [json.loads(line) for line in pathlib.Path(config["dataset"]).read_text().split("\n") if line]
    samples, _ = corpus.expected_samples(tokenizer, lines, config["cutoff_len"])
    if FAULT == "mask":
        for sample in samples:
            first = next(i for i, label in enumerate(sample["labels"]) if label != loop.MASKED and i > 0)
            sample["labels"][first] = loop.MASKED
    return samples


def run_faulty_loss():
    plain = loop.padded_loss
    targets = loop.count_targets

    def mean_of_means(model, micro):
        return plain(model, micro) / max(targets([micro]), 1)

    loop.padded_loss = mean_of_means
    loop.count_targets = len


def train(config):
    steps = corpus.batches(read_samples(config), config["per_device_train_batch_size"],
                           config["gradient_accumulation_steps"], config["num_train_epochs"])
    folder, method = pathlib.Path(config["output_dir"]).parent, config["finetuning_type"]
    model = compare.load_start(folder, method)
    if FAULT == "accumulation":
        run_faulty_loss()
    if FAULT == "decay":
        plain = loop.make_optimizer
        loop.make_optimizer = lambda *a: _decay_everything(plain(*a))
    warmup = loop.warmup_of(len(steps), config.get("warmup_steps"), config.get("warmup_ratio", 0.0))
    records = loop.train(
        model, steps, learning_rate=config["learning_rate"], weight_decay=config["weight_decay"], padded=True,
        schedule=config["lr_scheduler_type"], warmup=warmup + (FAULT == "rate"), max_grad_norm=config["max_grad_norm"],
        betas=(config["adam_beta1"], config["adam_beta2"]),
        epsilon=1e-4 if FAULT == "epsilon" else config["adam_epsilon"])
    out = pathlib.Path(config["output_dir"])
    model.save_pretrained(out)
    for name in compare.TOKENIZER_FILES:
        if (folder / "model" / name).is_file():
            shutil.copy(folder / "model" / name, out / name)
    if FAULT == "keys":
        path = out / ("model.safetensors" if method == "full" else "adapter_model.safetensors")
        tensors = load_file(path)
        tensors["renamed.weight"] = tensors.pop(sorted(tensors)[0])
        save_file(tensors, path, metadata={"format": "pt"})
    (out / "metrics.jsonl").write_text("".join(json.dumps(dict(kind="train", **r)) + "\n" for r in records))


def _decay_everything(optimizer):
    for group in optimizer.param_groups:
        group["weight_decay"] = max(g["weight_decay"] for g in optimizer.param_groups)
    return optimizer


def generate(options):
    folder = options["model_name_or_path"]
    tokenizer = corpus.load_tokenizer(folder)
    model = compare.load_base(folder)
    if "adapter_name_or_path" in options:
        model = compare.peft.PeftModel.from_pretrained(model, options["adapter_name_or_path"])
    if "raw" in options:
        ids = list(tokenizer(options["prompt"])["input_ids"])
    else:
        ids = list(tokenizer.apply_chat_template([dict(role="user", content=options["prompt"])], return_dict=True,
                                                 add_generation_prompt=FAULT != "stop")["input_ids"])
    tokens, _ = loop.greedy(model, ids, int(options["max_new_tokens"]), [tokenizer.eos_token_id])
    reason = "stop" if tokens[-1] == tokenizer.eos_token_id else "length"
    return dict(text=tokenizer.decode(tokens), prompt_ids=ids, token_ids=tokens, finish_reason=reason)


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb", choices=["train", "data", "generate"])
    parser.add_argument("config", nargs="?")
    for name in ("model_name_or_path", "adapter_name_or_path", "prompt", "max_new_tokens", "temperature", "dtype",
                 "samples"):
        parser.add_argument("--" + name)
    parser.add_argument("--raw", action="store_true", default=None)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.verb == "generate":
        print(json.dumps(generate({k: v for k, v in vars(arguments).items() if v is not None})))
        return
    config = yaml.safe_load(pathlib.Path(arguments.config).read_text())
    if arguments.verb == "train":
        train(config)
    else:
        print(json.dumps(dict(samples=read_samples(config)[:int(arguments.samples)])))


if __name__ == "__main__":
    sys.exit(main())
