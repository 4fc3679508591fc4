"""Trains models of random configurations by the rondo program and by transformers + PEFT, and compares numbers.

    python fuzz.py --count 3                                    three configurations of every family and method
    python fuzz.py --families llama,gemma3 --seed 5 --count 20   (torch 2.15, transformers 5.23, peft 0.21)
    python fuzz.py --families qwen3 --only 4 --seed 5 --keep /tmp/q    one of them again, its files kept

The cases are those of families.py with what draws.py changes in them; the adapters have random layers, ranks, factors and
kinds. A run is three steps in fp32. Losses, gradient norms and the update of each tensor must be within compare.py's bars.

What does not count as a difference, and why:
- AdamW's first steps have the size of the rate whatever the gradient's, so a gradient that is nothing but rounding (a bias of
  keys whose channels do not turn, say) would move a tensor as far as any: adam_epsilon is 1e-3 here, and an update counts
  in comparison with its tensor's own only above FLOOR of all tensors' together.
- Two experts of nearly the same score, norms of next to nothing, steep scores: there the reference in fp32 is as far from
  itself in fp64. Where a bar is missed that is measured, and the draw is set aside as `noise` if rondo is no farther from
  fp64 than FARTHER times what the reference in fp32 is. A real difference is one to both.
Exit status 1 when a difference is left. What rondo refuses is listed with its message and does not count.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter

import peft
import torch
import yaml

import compare
import corpus
import draws
import families
import loop

STEPS, EPSILON, FLOOR, FARTHER, LEAST_GAP = 3, 1e-3, 1e-4, 4.0, 1e-3
TRAINING = dict(compare.TRAINING, epsilon=EPSILON)
STORED = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Unfit(Exception):
    """A draw that transformers or PEFT does not take."""


def draw_adapter(rng, model, case):
    """A LoraConfig; PEFT may refuse it."""
    names = families.targets_of(model)
    some = rng.sample(names, rng.randint(1, len(names)))
    targets = rng.choice([some] * 5 + ["all-linear", None, f".*layers.*\\.({'|'.join(some)})"])
    values = dict(r=rng.randint(1, 9), lora_alpha=rng.randint(1, 24), use_rslora=rng.random() < 0.3)
    experts = any(".experts." in name for name, _ in model.named_parameters())
    if experts and rng.random() < 0.3:
        values["target_parameters"] = ["experts.gate_up_proj", "experts.up_proj", "experts.down_proj", "gate.weight", "router.weight"]
    else:
        values["use_dora"] = rng.random() < 0.25
        layers = families.text_config(model).num_hidden_layers
        if rng.random() < 0.2 and layers > 1:
            values["layers_to_transform"] = sorted(rng.sample(range(layers), rng.randint(1, layers)))
    if rng.random() < 0.1 and not values.get("use_dora") and not families.text_config(model).tie_word_embeddings:
        values["modules_to_save"] = ["lm_head"]
    if isinstance(targets, list) and rng.random() < 0.3:
        values["rank_pattern"] = {rng.choice(targets): rng.randint(1, 12)}
    if isinstance(targets, list) and rng.random() < 0.3:
        values["alpha_pattern"] = {rng.choice(targets): rng.randint(1, 40)}
    if families.text_config(model) is not model.config:
        values["exclude_modules"] = f".*({'|'.join(families.excluded_of(model))}).*"
    return peft.LoraConfig(target_modules=targets, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", **values)


def make_adapter(rng, make, case, seed, folder):
    """`make`: gives the model anew; PEFT leaves one that it refuses half wrapped."""
    for _ in range(8):
        model = make()
        try:
            config = draw_adapter(rng, model, case)
            wrapped = peft.get_peft_model(model, config)
        except Exception:  # noqa: BLE001 whatever PEFT has against it
            continue
        generator = torch.Generator().manual_seed(seed)
        largest = (max(config.lora_alpha, *config.alpha_pattern.values(), 0)
                   / min(config.r, *config.rank_pattern.values(), 99)**(0.5 if config.use_rslora else 1.0))
        with torch.no_grad():  # in both factors away from zero, and with any alpha no more than a model stands
            for name, parameter in wrapped.named_parameters():
                if parameter.requires_grad and "lora_" in name and "magnitude" not in name:
                    scale = (1.0 if "lora_A" in name else 0.6 / largest) * parameter.shape[1]**-0.5
                    parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        wrapped.save_pretrained(folder)
        return {key: value for key, value in config.to_dict().items()
                if value and key in ("r", "lora_alpha", "use_rslora", "use_dora", "target_modules", "target_parameters",
                                     "layers_to_transform", "rank_pattern", "alpha_pattern", "modules_to_save")}
    raise Unfit("no adapter")


def draw_model(rng, case, tokenizer, seed):
    """A function that makes the model, and its values."""
    config_class, model_class, _ = families.CASES[case]
    why = "?"
    for _ in range(25):
        values = draws.draw_values(rng, case)
        families.CASES["drawn"] = (config_class, model_class, values)
        words = dict(vocab_size=len(tokenizer) + rng.randint(0, 60), bos_token_id=tokenizer.bos_token_id,
                     eos_token_id=tokenizer.eos_token_id, pad_token_id=None if case == "youtu" else tokenizer.pad_token_id)
        try:
            model = families.make_model("drawn", seed, **words)
            loop.sequence_loss(model, dict(ids=[5, 6, 7, 8, 9], labels=[5, 6, 7, 8, 9])).backward()
            return lambda: families.make_model("drawn", seed, **words), values  # noqa: B023 returned at once
        except Exception as error:  # noqa: BLE001 whatever transformers has against it
            why = f"{type(error).__name__}: {str(error)[:200]}"
    raise Unfit(why)


def build(rng, case, method, folder, shared, seed):
    """Writes model, adapter and data; gives the steps and what was drawn."""
    model_folder = folder / "model"
    tokenizer_folder = shared / ("llama" if case.startswith(("llama", "mi")) else "other")
    if not tokenizer_folder.exists():
        corpus.build_tokenizer(tokenizer_folder, compare.SEED, llama_like=tokenizer_folder.name == "llama")
    tokenizer = corpus.load_tokenizer(tokenizer_folder)
    make, values = draw_model(rng, case, tokenizer, seed)
    shutil.copytree(tokenizer_folder, model_folder)
    drawn = dict(values=values)
    if method == "lora":
        drawn["adapter"] = make_adapter(rng, make, case, seed, folder / "adapter")
    drawn["stored"] = rng.choice(["float32", "float32", "bfloat16", "float16"])
    drawn["shards"] = rng.random() < 0.3 and case != "qwen3_5_moe_pictures"
    make().to(STORED[drawn["stored"]]).save_pretrained(model_folder, max_shard_size="40KB" if drawn["shards"] else "1GB")
    families.settle_files(model_folder)
    path = model_folder / "config.json"
    own = json.loads(path.read_text())
    model_class = families.CASES["drawn"][1]
    config = draws.drop_keys(rng, draws.respell(rng, own), model_class, model_folder, own) if rng.random() < 0.8 else own
    path.write_text(json.dumps(config, indent=2) + "\n")
    drawn["config"] = config
    form = rng.choice(corpus.FORMATS)
    batch, accumulation = rng.randint(1, 3), rng.randint(1, 3)
    drawn.update(form=form, batch=batch, accumulation=accumulation, cutoff=rng.choice([64, 96, 130]))
    count = STEPS * batch * accumulation - rng.randint(0, 1)
    lines = corpus.write_dataset(folder / "data.jsonl", form, seed, count)
    samples, _ = corpus.expected_samples(tokenizer, lines, drawn["cutoff"])
    return corpus.batches(samples, batch, accumulation, 1), drawn


def write_config(folder, method, drawn, arguments):
    path = compare.write_config(folder, method, arguments)
    config = {key: value for key, value in yaml.safe_load(path.read_text()).items()
              if not key.startswith(("lora_", "warmup"))}
    config.update(cutoff_len=drawn["cutoff"], per_device_train_batch_size=drawn["batch"], gradient_accumulation_steps=drawn["accumulation"],
                  num_train_epochs=1, adam_epsilon=EPSILON, lr_scheduler_type="constant")
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def forgets_lengths(model):
    """transformers keeps the frequencies of dynamic scaling of the longest sequence so far for all later ones that are too
    long; here, as in Rondo, they follow from each sequence's own length."""
    def forget(module, _):
        for key in [key for key in vars(module) if key.endswith("max_seq_len_cached")]:
            setattr(module, key, module.original_max_seq_len)
        for key, buffer in list(module.named_buffers(recurse=False)):
            if key.endswith("original_inv_freq"):
                setattr(module, key.replace("original_", ""), buffer.clone())

    for module in model.modules():
        if hasattr(module, "max_seq_len_cached"):
            module.register_forward_pre_hook(forget)


def reference(folder, method, steps, dtype):
    """Records of the steps, and start and end of what is trained."""
    model = compare.load_start(folder, method).to(dtype)
    forgets_lengths(model)
    initial = compare.trained(model)
    torch.set_default_dtype(dtype)
    try:
        records = loop.train(model, steps, schedule="constant", warmup=0, **TRAINING)
    finally:
        torch.set_default_dtype(torch.float32)
    return records, initial, compare.trained(model)


def distances(records, updates, other_records, other_updates):
    """How far the first are from the others: losses, gradient norms, the whole update, the worst tensor's."""
    floor = FLOOR * (sum(float(u.double().square().sum()) for u in other_updates.values())
                     / sum(u.numel() for u in other_updates.values()))**0.5
    errors = {n: float((updates[n].double() - u.double()).norm() / max(float(u.double().norm()), floor * u.numel()**0.5))
              for n, u in other_updates.items()}
    worst = max(errors, key=errors.get)
    return dict(loss=loop.worst(records, other_records, "loss"), grad_norm=loop.worst(records, other_records, "grad_norm"),
                cosine=1.0 - loop.cosine(updates, other_updates), worst_tensor_error=errors[worst]), worst


LIMITS = dict(loss=compare.BARS["loss"], grad_norm=compare.BARS["grad_norm"], cosine=1.0 - compare.BARS["cosine"],
              worst_tensor_error=compare.BARS["worst_tensor_error"])


def refused(text):
    """A refusal as it must be: one line that names the culprit."""
    lines = [line for line in text.strip().split("\n") if line.startswith("error: ")]
    return lines[0] if len(lines) == 1 else None


def check_generation(folder, method, output, arguments):
    """What differs in greedy answers of the trained model, where the reference's winners are clear. With frequencies that
    follow from the length transformers' cache has keys of many lengths (docs/numerics.md): not asked there."""
    if any(word in (folder / "model" / "config.json").read_text() for word in ('"dynamic"', '"longrope"', '"su"')):
        return ""
    tokenizer = corpus.load_tokenizer(folder / "model")
    text = compare.check_generation(compare.Program(arguments.rondo, ""), folder, method, output, tokenizer, True)
    gap = re.search(r"least logit gap (.*)\)", text)
    return "" if gap and float(gap[1]) < LEAST_GAP else text


def examine(rng, case, method, folder, shared, seed, arguments):
    result = dict(case=case, method=method)
    steps, result["drawn"] = build(rng, case, method, folder, shared, seed)
    config = write_config(folder, method, result["drawn"], arguments)
    command = [arguments.rondo, "train", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    why = refused(done.stderr).replace(str(folder), "") if refused(done.stderr) else done.stderr[-600:]
    if not steps:
        raise Unfit("no targets")
    try:
        expected, initial, final = reference(folder, method, steps, torch.float32)
    except Exception as error:  # noqa: BLE001 whatever it is
        raise Unfit(f"the reference: {type(error).__name__}: {error}; rondo: exit {done.returncode} {why}") from error
    if done.returncode != 0:
        clear = done.returncode == 2 and refused(done.stderr)
        return dict(result, verdict="refused" if clear else "DIFFERS", why=f"exit {done.returncode}: {why}")
    found = compare.read_metrics(folder / "out" / "metrics.jsonl")
    if len(found) != len(expected):
        return dict(result, verdict="DIFFERS", why=f"{len(found)} steps, expected {len(expected)}")
    output, wrong = compare.load_output(folder, method)
    tensors = compare.trained(output)
    wrong = [text for text in wrong if "did not match any targeted module" not in text]  # PEFT looks at no tensors of experts there
    if wrong or set(tensors) != set(final):
        return dict(result, verdict="DIFFERS", why=f"keys: {wrong[:4]} {sorted(set(tensors) ^ set(final))[:4]}")
    updates = {n: tensors[n] - initial[n] for n in final}
    numbers, worst = distances(found, updates, expected, {n: final[n] - initial[n] for n in final})
    result.update(numbers=numbers, worst=worst)
    missed = [key for key, limit in LIMITS.items() if not numbers[key] <= limit]
    if not missed:
        said = check_generation(folder, method, output, arguments) if arguments.generate else ""
        return dict(result, verdict="DIFFERS" if said else "same", why=said and f"generate: {said}")
    exact, begun, ended = reference(folder, method, steps, torch.float64)
    moved = {n: ended[n] - begun[n] for n in ended}
    own, _ = distances(expected, {n: final[n] - initial[n] for n in final}, exact, moved)
    other, _ = distances(found, updates, exact, moved)
    noise = all(other[key] <= max(FARTHER * own[key], LIMITS[key]) for key in missed)
    texts = [f"{key} {numbers[key]:.1e} (to fp64 {other[key]:.1e}, the reference's {own[key]:.1e})" for key in missed]
    return dict(result, verdict="noise" if noise else "DIFFERS", why=f"{', '.join(texts)}; worst tensor {worst}")


def parse_arguments():
    parser = argparse.ArgumentParser(description="random configurations: rondo against transformers + PEFT")
    parser.add_argument("--families", default="all", help="cases of families.py, comma-separated")
    parser.add_argument("--count", type=int, default=1, help="draws of each case and method")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this draw alone")
    parser.add_argument("--methods", default="full,lora")
    parser.add_argument("--rondo", default="build/release/rondo")
    parser.add_argument("--devices", default="cpu")
    parser.add_argument("--generate", action="store_true", help="greedy answers too")
    parser.add_argument("--keep", help="keep what differs here")
    parser.add_argument("--log", help="one JSON object a draw is added to this file")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    compare.settle_libraries()
    warnings.simplefilter("ignore")
    cases = [name for name in families.CASES] if arguments.families == "all" else arguments.families.split(",")
    root = pathlib.Path(tempfile.mkdtemp(prefix="rondo-fuzz-"))
    verdicts = Counter()
    draws_of_all = [(index, case, method) for index in range(arguments.count) for case in cases for method in arguments.methods.split(",")
                    if arguments.only in (None, index)]
    for index, case, method in draws_of_all:
        key = f"{case}-{method}-{arguments.seed}-{index}"
        rng = random.Random(key)
        folder = root / key
        folder.mkdir()
        begun = time.monotonic()
        try:
            result = examine(rng, case, method, folder, root, rng.randrange(2**31), arguments)
        except Unfit as error:
            result = dict(case=case, method=method, verdict="unfit", why=str(error))
        except Exception as error:  # noqa: BLE001 one draw must not end the others
            result = dict(case=case, method=method, verdict="DIFFERS", why=f"{type(error).__name__}: {error}")
        result.update(key=key, seconds=round(time.monotonic() - begun, 1))
        verdicts[result["verdict"]] += 1
        numbers = " ".join(f"{value:.1e}" for value in result.get("numbers", {}).values())
        print(f"{result['verdict']:8} {key:44} {result['seconds']:5} s  {numbers}  {result.get('why', '')}", flush=True)
        if arguments.log:
            with open(arguments.log, "a", encoding="utf-8") as log:
                log.write(json.dumps(result, default=str) + "\n")
        if arguments.keep and result["verdict"] == "DIFFERS":
            shutil.copytree(folder, pathlib.Path(arguments.keep) / key, dirs_exist_ok=True)
        shutil.rmtree(folder)
    shutil.rmtree(root)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
    sys.exit(1 if verdicts["DIFFERS"] else 0)


if __name__ == "__main__":
    main()
