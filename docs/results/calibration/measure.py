#!/usr/bin/env python3
"""measure.py NAME=RONDO... [--runs N]: by how much the planned step differs from the measured one.

Every case is profiled N times by each program, in turn, with an empty store of measured speeds before the first time; the
error of a run is |planned / measured - 1|. Prints one line a case and the median over the cases for the first run and
the last. Takes some ten minutes; models are random ones, made by `rondo init`.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODELS = {
    "small": ["--arch", "llama", "--hidden_size", "192", "--num_hidden_layers", "6", "--vocab_size", "4096"],
    "wide": ["--arch", "qwen3", "--hidden_size", "512", "--num_hidden_layers", "3", "--vocab_size", "8192"],
    "tall": ["--arch", "qwen2", "--hidden_size", "256", "--num_hidden_layers", "10", "--vocab_size", "16384"],
}
# model, method, dtype, tokens of a sequence, sequences of a microbatch, microbatches, devices
CPU = [
    ("small", "full", "bf16", 64, 1, 4, "cpu"),
    ("small", "lora", "fp32", 256, 2, 4, "cpu"),
    ("small", "full", "fp32", 512, 2, 2, "cpu"),
    ("wide", "full", "bf16", 128, 2, 2, "cpu"),
    ("wide", "lora", "bf16", 256, 4, 2, "cpu"),
    ("wide", "full", "fp32", 512, 1, 2, "cpu"),
    ("tall", "lora", "bf16", 128, 4, 2, "cpu"),
    ("tall", "full", "bf16", 256, 1, 4, "cpu"),
]
EMULATED = [
    ("small", "full", "bf16", 128, 1, 4, "emulated:cards.yaml#tortoise"),
    ("small", "full", "bf16", 128, 1, 8, "emulated:cards.yaml#tortoise*2"),
    ("wide", "lora", "bf16", 64, 1, 4, "emulated:cards.yaml#tortoise,emulated:cards.yaml#snail"),
]


def run(program, words, **environment):
    done = subprocess.run([program, *words], cwd=HERE, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stdout


def profile(program, case, models, cache):
    model, method, dtype, tokens, sequences, microbatches, devices = case
    document = json.loads(run(program, [
        "profile", "--model_name_or_path", str(models / model), "--finetuning_type", method, "--dtype", dtype,
        "--cutoff_len", str(tokens), "--per_device_train_batch_size", str(sequences),
        "--gradient_accumulation_steps", str(microbatches), "--devices", devices, "--threads", "2", "--steps", "6",
        "--json"], XDG_CACHE_HOME=str(cache)))
    return document["predicted"]["step_seconds"] / document["measured"]["step_seconds"] - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help="NAME=RONDO")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    programs = {name: str(Path(path).resolve()) for name, path in (one.split("=", 1) for one in options.programs)}
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder)
        for name, words in MODELS.items():
            run(next(iter(programs.values())), ["init", *words, "--output_dir", str(models / name)])
        for title, cases in (("CPU", CPU), ("emulated", EMULATED)):
            errors = {name: [] for name in programs}
            for index, case in enumerate(cases):
                found = {name: [] for name in programs}
                for _ in range(options.runs):
                    for name, program in programs.items():
                        found[name].append(profile(program, case, models, models / f"{title} {index} {name}"))
                print(" ".join(map(str, case)), "|", "; ".join(
                    f"{name} " + " ".join(f"{100 * error:+.1f}%" for error in found[name]) for name in programs),
                    flush=True)
                for name in programs:
                    errors[name].append([abs(error) for error in found[name]])
            for name in programs:
                first, last = (100 * statistics.median(case[at] for case in errors[name]) for at in (0, -1))
                print(f"{title}, {name}: median error of the first run {first:.1f}%, of the last {last:.1f}%", flush=True)


if __name__ == "__main__":
    main()
