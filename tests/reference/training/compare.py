"""Trains the same small models with the rondo program and with transformers + PEFT + PyTorch, and compares numbers.

    python compare.py all                              every family, full and LoRA
    python compare.py llama qwen3 --methods lora --formats text --flags "--packing true"
    python compare.py all --rondo "python stand_in.py"  the comparison itself, without the program

Only the command line is used: `rondo train`, `rondo data --json`, `rondo generate --json`, metrics.jsonl, and the
files of the output directory. Runs are fp32, 20 steps in 4 epochs with accumulation, a batch of 2 and a short last
batch. Exit status 1 when a bar is missed; a line on stderr says which, with the numbers.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
import transformers
import yaml
from safetensors.torch import load_file

import corpus
import families
import loop

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import auto_class  # noqa: E402

# worst_tensor_error: the reference against itself in another summation order stays below 8e-4 (a key bias, whose
# gradient nearly cancels); decay on norm weights by mistake gives 2e-2 and hardly shows in the other numbers.
BARS = dict(loss=2e-5, grad_norm=2e-4, learning_rate=1e-9, cosine=0.9999, worst_tensor_error=5e-3)
CUTOFF, BATCH, ACCUMULATION, EPOCHS, KEPT = 96, 2, 2, 4, 19
SEED = 11
SCHEDULES = {  # by method: configuration keys, then schedule and warm-up of the reference
    "full": (dict(lr_scheduler_type="linear", warmup_steps=3), "linear", dict(warmup_steps=3)),
    "lora": (dict(lr_scheduler_type="cosine", warmup_ratio=0.13), "cosine", dict(warmup_ratio=0.13)),
}
TRAINING = dict(learning_rate=1e-3, weight_decay=0.01, max_grad_norm=1.0, betas=(0.9, 0.98), epsilon=1e-7)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


class Failure(Exception):
    """The program under test ended wrongly or left something that cannot be compared."""


class Program:
    """The command under test."""

    def __init__(self, command, flags):
        self.command, self.flags = shlex.split(command), shlex.split(flags)

    def run(self, *arguments, flags=()):
        command = [*self.command, *map(str, arguments), *flags]
        result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
        if result.returncode != 0:
            raise Failure(f"{shlex.join(command)}: exit {result.returncode}: {result.stderr.strip()[-600:]}")
        return result.stdout

    def run_json(self, *arguments, flags=()):
        text = self.run(*arguments, "--json", flags=flags)
        try:
            return json.loads(text)
        except ValueError as error:
            raise Failure(f"{arguments[0]} --json: {error}: {text[:200]!r}") from error


def build_inputs(folder, case, method, form, experts=False):
    """Model directory with tokenizer, adapter for LoRA, data set; the expected samples."""
    model_folder = folder / "model"
    tokenizer = corpus.build_tokenizer(model_folder, SEED, llama_like=case.startswith(("llama", "mi")))
    model = families.make_model(
        case, SEED, vocab_size=len(tokenizer) + 9, bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    model.save_pretrained(model_folder)
    families.settle_files(model_folder)
    if method == "lora":
        parameters = ["experts.gate_up_proj", "experts.up_proj", "experts.down_proj", "gate.weight", "router.weight"]
        families.make_adapter(model, SEED, parameters=parameters if experts else None).save_pretrained(folder / "adapter")
    lines = corpus.write_dataset(folder / "data.jsonl", form, SEED, KEPT + (form != "text"))
    samples, _ = corpus.expected_samples(tokenizer, lines, CUTOFF)
    return tokenizer, lines, samples


def write_config(folder, method, arguments):
    beta1, beta2 = TRAINING["betas"]
    config = dict(
        model_name_or_path=str(folder / "model"), dataset=str(folder / "data.jsonl"), cutoff_len=CUTOFF,
        output_dir=str(folder / "out"), finetuning_type=method, dtype="fp32", per_device_train_batch_size=BATCH,
        gradient_accumulation_steps=ACCUMULATION, num_train_epochs=EPOCHS, learning_rate=TRAINING["learning_rate"],
        weight_decay=TRAINING["weight_decay"], max_grad_norm=TRAINING["max_grad_norm"], adam_beta1=beta1,
        adam_beta2=beta2, adam_epsilon=TRAINING["epsilon"], shuffle=False, logging_steps=1, seed=SEED,
        devices=arguments.devices, **SCHEDULES[method][0])
    if method == "lora":
        config.update(adapter_name_or_path=str(folder / "adapter"), lora_rank=4, lora_alpha=8, lora_target="all",
                      lora_dropout=0.0)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def load_base(folder):
    return auto_class.load(folder)


def load_start(folder, method):
    model = families.prepared(load_base(folder / "model"))
    if method == "lora":
        model = peft.PeftModel.from_pretrained(model, folder / "adapter", is_trainable=True).train()
    return model


def trained(model):
    """Names as in a model of the text part alone: such a one comes of full fine-tuning."""
    return {name.replace(".language_model.", "."): p.detach().clone() for name, p in model.named_parameters()
            if p.requires_grad and not any(part in name for part in families.FROZEN)}


def frozen(model):
    """What Rondo leaves as it is when all else is trained."""
    return {name.replace(".language_model.", "."): p for name, p in model.named_parameters()
            if any(part in name for part in families.FROZEN)}


def read_metrics(path):
    if not path.is_file():
        raise Failure(f"{path.name}: train left none")
    rows = [json.loads(line) for line in path.read_text().split("\n") if line]
    return [row for row in rows if row.get("kind") == "train"]


def load_output(folder, method):
    """The trained model as transformers or PEFT load it, and the keys that were missing, unexpected or misshapen."""
    out = folder / "out"
    if method == "full":
        model, info = auto_class.load(out, output_loading_info=True)
        return model, [str(key) for part in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
                       for key in info.get(part) or []]
    config = peft.PeftConfig.from_pretrained(out)
    config.inference_mode = False
    model = peft.get_peft_model(load_base(folder / "model"), config)
    weights = load_file(out / "adapter_model.safetensors")
    result = peft.set_peft_model_state_dict(model, weights)
    wrong = list(result.unexpected_keys) + [key for key in result.missing_keys if "lora_" in key]
    own = peft.get_peft_model_state_dict(model)
    wrong += sorted(set(own) ^ set(weights))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peft.PeftModel.from_pretrained(load_base(folder / "model"), out)
    return model, wrong + [str(w.message) for w in caught if "key" in str(w.message).lower()]


def choose_prompt(model, tokenizer, encode):
    """The generated prompt whose greedy continuation has the clearest winners: rounding must not decide a token."""
    best = None
    for seed in range(6):
        text = corpus.sentence(corpus.random.Random(900 + seed)).strip()
        ids = encode(text)
        tokens, gap = loop.greedy(model, ids, 24, [tokenizer.eos_token_id])
        if best is None or gap > best[3]:
            best = (text, ids, tokens, gap)
    return best


def check_generation(program, folder, method, model, tokenizer, raw):
    """An empty string, or what differs."""
    def encode(text):
        if raw:
            return list(tokenizer(text)["input_ids"])
        turn = [dict(role="user", content=text)]
        return list(tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=True)["input_ids"])

    text, prompt, expected, gap = choose_prompt(model, tokenizer, encode)
    where = folder / ("out" if method == "full" else "model")
    arguments = ["generate", "--model_name_or_path", where, "--prompt", text, "--max_new_tokens", 24,
                 "--temperature", 0, "--dtype", "fp32"]
    arguments += ["--adapter_name_or_path", folder / "out"] if method == "lora" else []
    answer = program.run_json(*arguments, *(["--raw"] if raw else []))
    stop = tokenizer.eos_token_id

    def body(tokens):
        return tokens[:tokens.index(stop)] if stop in tokens else tokens

    if answer["prompt_ids"] != prompt:
        return f"prompt ids {answer['prompt_ids']}, expected {prompt}"
    if body(answer["token_ids"]) != body(expected):
        return f"token ids {answer['token_ids']}, expected {expected} (least logit gap {gap:.2e})"
    reason = "stop" if stop in expected else "length"
    return "" if answer["finish_reason"] == reason else f"finish_reason {answer['finish_reason']}, expected {reason}"


def compare_numbers(found, expected, result):
    if len(found) != len(expected):
        raise Failure(f"metrics.jsonl has {len(found)} train lines, expected {len(expected)}")
    for key in ("loss", "grad_norm", "learning_rate"):
        result[key] = loop.worst(found, expected, key)
        if not result[key] <= BARS[key]:
            step = next(i for i, (f, e) in enumerate(zip(found, expected))
                        if not loop.relative(f[key], e[key]) <= BARS[key])
            result["missed"].append(f"{key} first at step {step + 1}: {found[step][key]!r}, "
                                    f"expected {expected[step][key]!r}")
    for f, e in zip(found, expected):
        if (f["step"], f["target_tokens"]) != (e["step"], e["target_tokens"]):
            result["missed"].append(f"step {f['step']}: {f['target_tokens']} targets, expected "
                                    f"{e['target_tokens']} at step {e['step']}")
            break


def compare_files(folder, result):
    for name in TOKENIZER_FILES:
        source, copy = folder / "model" / name, folder / "out" / name
        if source.is_file() and (not copy.is_file() or copy.read_bytes() != source.read_bytes()):
            result["missed"].append(f"{name}: not copied unchanged")


def compare_data(program, config, lines, samples, result):
    found = program.run_json("data", config, "--samples", len(lines))["samples"]
    result["data"] = [{k: s[k] for k in ("input_ids", "labels")} for s in found] == samples
    if not result["data"]:
        result["missed"].append(f"data: {len(found)} samples, expected {len(samples)}; {first_difference(found, samples)}")


def first_difference(found, expected):
    for index, (f, e) in enumerate(zip(found, expected)):
        for key in ("input_ids", "labels"):
            if f[key] != e[key]:
                at = next((i for i, (a, b) in enumerate(zip(f[key], e[key])) if a != b), min(len(f[key]), len(e[key])))
                return (f"sample {index}, {key} from {at}: {f[key][at:at + 6]} (of {len(f[key])}), expected "
                        f"{e[key][at:at + 6]} (of {len(e[key])})")
    return "those that both have are equal"


def compare_case(program, folder, case, method, form, arguments):
    result = dict(case=case, method=method, format=form, missed=[])
    tokenizer, lines, samples = build_inputs(folder, case, method, form, arguments.experts)
    steps = corpus.batches(samples, BATCH, ACCUMULATION, EPOCHS)
    assert len(steps) == 20 and len(steps[-1]) == ACCUMULATION and len(steps[-1][-1]) == 1  # short last batch
    config = write_config(folder, method, arguments)
    try:
        compare_data(program, config, lines, samples, result)
        program.run("train", config, flags=program.flags)
        _, schedule, warmup = SCHEDULES[method]
        model = load_start(folder, method)
        initial = trained(model)
        expected = loop.train(model, steps, schedule=schedule, warmup=loop.warmup_of(len(steps), **warmup), **TRAINING)
        final = trained(model)
        compare_numbers(read_metrics(folder / "out" / "metrics.jsonl"), expected, result)
        compare_files(folder, result)
        output, wrong = load_output(folder, method)
        result["keys"] = not wrong
        if wrong:
            result["missed"].append(f"keys of the output: {wrong[:6]}")
        kept, found = frozen(model), frozen(output)
        if set(kept) != set(found) or not all(torch.equal(kept[name], found[name]) for name in kept):
            result["missed"].append("what nothing trains has changed")
        tensors = trained(output)
        if set(tensors) != set(final):
            raise Failure(f"trained tensors differ: {sorted(set(tensors) ^ set(final))[:6]}")
        result.update(loop.compare_updates({n: tensors[n] - initial[n] for n in final},
                                           {n: final[n] - initial[n] for n in final}))
        if not result["cosine"] > BARS["cosine"]:
            result["missed"].append(f"cosine {result['cosine']} (worst tensor {result['worst_tensor']})")
        if not result["worst_tensor_error"] <= BARS["worst_tensor_error"]:
            result["missed"].append(f"update of {result['worst_tensor']}: off by {result['worst_tensor_error']:.2e} of it")
        said = [check_generation(program, folder, method, output, tokenizer, raw) for raw in (False, True)]
        result["generate"] = not any(said)
        result["missed"] += [f"generate: {text}" for text in said if text]
    except (Failure, OSError, KeyError, ValueError) as error:
        result["missed"].append(f"{type(error).__name__}: {error}")
    return result


COLUMNS = [("case", 18), ("method", 6), ("format", 17), ("data", 5), ("loss", 9), ("grad_norm", 9),
           ("learning_rate", 13), ("cosine", 14), ("worst_tensor_error", 18), ("keys", 5), ("generate", 8)]


def show(result):
    def text(key):
        value = result.get(key, "-")
        if isinstance(value, bool):
            return "yes" if value else "NO"
        if isinstance(value, float):
            return f"{value:.10f}" if key == "cosine" else f"{value:.2e}"
        return str(value)

    print("  ".join(text(key).ljust(width) for key, width in COLUMNS), "MISSED" if result["missed"] else "ok", flush=True)
    for line in result["missed"]:
        print(f"  {result['case']} {result['method']} {result['format']}: {line}", file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description="rondo against transformers + PEFT + PyTorch")
    parser.add_argument("cases", nargs="+", choices=[*families.CASES, "all"], metavar="CASE",
                        help=", ".join(families.CASES) + " or all")
    parser.add_argument("--rondo", default="build/release/rondo", help="the command to test")
    parser.add_argument("--methods", default="full,lora")
    parser.add_argument("--formats", help="comma-separated; else one by turns: " + ", ".join(corpus.FORMATS))
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--experts", action="store_true", help="LoRA adapts experts and routers too")
    parser.add_argument("--flags", default="", help="further flags for rondo train")
    parser.add_argument("--work", help="keep inputs and outputs here")
    return parser.parse_args()


def settle_libraries():
    """One thread, for the same sums every time, and nothing said but what the comparison says."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def main():
    arguments = parse_arguments()
    settle_libraries()
    program = Program(arguments.rondo, arguments.flags)
    cases = list(families.CASES) if "all" in arguments.cases else arguments.cases
    root = pathlib.Path(arguments.work or tempfile.mkdtemp(prefix="rondo-compare-")).resolve()
    print("  ".join(name.ljust(width) for name, width in COLUMNS), flush=True)
    missed = False
    for index, case in enumerate(cases):
        for turn, method in enumerate(arguments.methods.split(",")):
            turns = [corpus.FORMATS[(index + turn) % len(corpus.FORMATS)]]
            for form in arguments.formats.split(",") if arguments.formats else turns:
                folder = root / f"{case}-{method}-{form}"
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True)
                result = compare_case(program, folder, case, method, form, arguments)
                show(result)
                missed |= bool(result["missed"])
    if not arguments.work:
        shutil.rmtree(root)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
