"""Compares the room model_files with transformers, PEFT and safetensors, through model_files_probe.

Usage: check_files.py --probe PROGRAM --goldens FOLDER [--model FOLDER]...
Every check prints a line; the exit status is the number of failures. --model adds published model directories whose
configuration and every weight are compared.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import traceback

import torch
from expected_config import expected
from experts import in_files
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
PROBE = ""
FAILURES = []


def probe(*words, fails=False):
    done = subprocess.run([PROBE, *map(str, words)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{words}: {done.stderr}"
    return done.stderr if fails else done.stdout


def check(name, function, *arguments):
    try:
        function(*arguments)
        print(f"ok    {name}", flush=True)
    except Exception:
        FAILURES.append(name)
        print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)


def same_config(found, wanted):
    found = dict(found, parameters=sorted(found["parameters"]))
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for key in wanted:
        assert found[key] == wanted[key], f"{key}: expected {wanted[key]}, found {found[key]}"


def golden(case, folder):
    """The text is read as transformers reads it, and what is written from it transformers reads the same way."""
    path = folder / "config.json"
    path.write_text(json.dumps(case["config"]))
    same_config(json.loads(probe("config", path)), case["expected"])
    path.write_text(probe("format", path))
    again = expected(folder)
    again["dtype"] = case["expected"]["dtype"]
    # Written is the text part alone.
    parameters = sorted([name.replace("model.language_model.", "model."), shape]
                        for name, shape in case["expected"]["parameters"])
    same_config(again, dict(case["expected"], parameters=parameters))


def fnv(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def drawn(seed, name, index, deviation):
    """The generator as init.h describes it, written a second time."""
    golden_ratio = 0x9E3779B97F4A7C15
    key = mix((seed + golden_ratio) % 2**64) ^ fnv(name.encode())
    word = mix((key + (index + 1) * golden_ratio) % 2**64)
    u, v = ((word >> 32) + 1) / 2**32, (word & 0xFFFFFFFF) / 2**32
    return deviation * math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)


def initialised(folder, arch, options):
    probe("init", arch, folder, *options)
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")], "something was left behind"
    assert "not empty" in probe("init", arch, folder, *options, fails=True)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), report
    wanted = DTYPES[{"float32": 0, "bf16": 1, "fp16": 2}[dict(o.split("=") for o in options).get("dtype", "float32")]]
    assert model.dtype == wanted, model.dtype
    same_config(json.loads(probe("config", folder / "config.json")), expected(folder))
    assert model.generation_config.eos_token_id == [258, 256] and model.generation_config.pad_token_id == 259
    named = [pair for name, parameter in model.named_parameters() for pair in in_files(model.config, name, parameter)]
    for name, parameter in named:
        if "norm" in name:
            assert torch.all(parameter == (0 if arch.startswith("gemma") else 1)), name
        elif name.endswith("bias"):
            assert torch.all(parameter == 0), name
        else:
            values = parameter.detach().float()
            few = 0.1 / len(values.flatten())**0.5  # five standard errors
            assert abs(values.std() - 0.02) < max(few, 0.001) and abs(values.mean()) < max(few, 0.001), name
            first = torch.tensor([drawn(9, name, i, 0.02) for i in range(50)]).to(wanted).float()
            assert torch.allclose(values.flatten()[:50], first, rtol=1e-6, atol=1e-9), name
    with torch.no_grad():
        logits = model(torch.arange(40).unsqueeze(0)).logits
    assert torch.isfinite(logits).all() and logits.std() > 0


def tokenizer_of(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert len(tokenizer) == 260 and tokenizer.eos_token_id == 258 and tokenizer.pad_token_id == 259
    for text in ("plain text", "tabs\tand\nlines\r\n", "h\u00e9llo \u4e16\u754c \U0001f389", "\x00\x7f\x80\u00ad"):
        ids = tokenizer(text)["input_ids"]
        assert ids == list(text.encode()), text
        assert tokenizer.decode(ids) == text, text
    assert tokenizer("a<|im_end|>b<|pad|>")["input_ids"] == [97, 258, 98, 259]
    turns = [{"role": "system", "content": " s "}, {"role": "user", "content": "q\n"},
             {"role": "assistant", "content": "a"}]
    wanted = "".join(f"<|im_start|>{t['role']}\n{t['content']}<|im_end|>\n" for t in turns)
    assert tokenizer.apply_chat_template(turns, tokenize=False) == wanted
    assert (tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
            == wanted + "<|im_start|>assistant\n")
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == (
        folder / "chat_template.jinja").read_text()


def hash_of(tensor):
    """FNV-1a-64 is serial: numpy's unsigned scalars would be no faster than Python's integers."""
    return f"{fnv(tensor.contiguous().view(torch.uint8).numpy().tobytes()):016x}"


def same_weights(folder, hashed):
    """The first `hashed` numbers of each tensor at most are compared when it is larger; hashing is slow here."""
    found = json.loads(probe("tensors", folder))
    names = set()
    for path in sorted(pathlib.Path(folder).glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                names.add(name)
                tensor = file.get_tensor(name)
                assert found[name]["shape"] == list(tensor.shape) and DTYPES[found[name]["dtype"]] == tensor.dtype, name
                if tensor.numel() <= hashed:
                    assert found[name]["float32"] == hash_of(tensor.float().flatten()), name
                    assert found[name]["bfloat16"] == hash_of(tensor.bfloat16().flatten()), name
    assert names == found.keys()


def shards(model, folder):
    folder.mkdir()
    probe("shards", model, folder, 60_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    one = AutoModelForCausalLM.from_pretrained(model).state_dict()
    many, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"], report
    assert all(torch.equal(one[name], value) for name, value in many.state_dict().items())
    assert index["metadata"]["total_parameters"] == sum(p.numel() for p in many.parameters())
    same_weights(folder, 10_000)


def adapter_for_peft(model, folder, targets):
    folder.mkdir()
    probe("lora", model, folder, 4, 12, targets)
    config = PeftConfig.from_pretrained(folder)
    assert isinstance(config, LoraConfig) and (config.r, config.lora_alpha, config.bias) == (4, 12, "none")
    assert config.target_modules == (set(TARGETS) if targets == "all" else set(targets.split(",")))
    base = AutoModelForCausalLM.from_pretrained(model)
    tokens = torch.arange(30).unsqueeze(0)
    with torch.no_grad():
        before = base(tokens).logits
        adapted = PeftModel.from_pretrained(base, folder)
        assert not torch.allclose(before, adapted(tokens).logits, atol=1e-2), "the adapter changes nothing"
    inside = {name.replace(".default", ""): value for name, value in adapted.state_dict().items() if "lora_" in name}
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        assert set(file.keys()) == inside.keys()
        assert all(torch.equal(file.get_tensor(name), inside[name]) for name in file.keys())


def adapter_from_peft(model, folder, targets, rslora):
    config = LoraConfig(r=8, lora_alpha=32, lora_dropout=0.05, target_modules=targets, task_type="CAUSAL_LM",
                        use_rslora=rslora)
    get_peft_model(AutoModelForCausalLM.from_pretrained(model), config).save_pretrained(folder)
    found = json.loads(probe("adapter", folder, model))
    wanted = TARGETS if targets == "all-linear" else [t for t in TARGETS if t in targets]
    assert found == {"r": 8, "alpha": 32.0, "dropout": 0.05, "rslora": rslora, "targets": wanted, "base": str(model),
                     "scale": 32 / math.sqrt(8) if rslora else 4.0}, found


def refused_from_peft(folder, key, **options):
    LoraConfig(**{"r": 8, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **options}).save_pretrained(folder)
    message = probe("adapter", folder, fails=True)
    assert key in message and message.count("\n") == 1, message


def main():
    global PROBE
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--goldens", required=True)
    parser.add_argument("--model", action="append", default=[])
    arguments = parser.parse_args()
    PROBE = arguments.probe
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "case").mkdir()
        for case in json.loads(pathlib.Path(arguments.goldens, "config_goldens.json").read_text())["cases"]:
            check(f"golden {case['name']}", golden, case, root / "case")
        for arch in ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "olmo2", "olmo3", "gemma", "gemma2", "gemma3_text",
                     "arcee", "ministral3", "hunyuan_v1_dense", "exaone4", "seed_oss", "ernie4_5", "glm4", "lfm2"):
            for options in ([], ["dtype=bf16", "tie=1"], ["dtype=fp16", "head_dim=32", "num_key_value_heads=1"]):
                folder = root / "models" / f"{arch}-{len(options)}-{'tie=1' in options}"
                check(f"init {arch} {options}", initialised, folder, arch, ["seed=9", *options])
        model = root / "models" / "llama-0-False"
        check("tokenizer", tokenizer_of, model)
        check("weights", same_weights, model, 100_000)
        check("weights bf16", same_weights, root / "models" / "qwen3-2-True", 100_000)
        check("weights fp16", same_weights, root / "models" / "qwen2-3-False", 100_000)
        check("shards", shards, model, root / "shards")
        check("PEFT loads all", adapter_for_peft, model, root / "a1", "all")
        check("PEFT loads two", adapter_for_peft, model, root / "a2", "q_proj,v_proj")
        check("from PEFT list", adapter_from_peft, model, root / "b1", ["v_proj", "q_proj"], False)
        check("from PEFT all-linear", adapter_from_peft, model, root / "b2", "all-linear", True)
        probe("init", "llama", root / "models" / "deep", "num_hidden_layers=4")
        check("from PEFT all-linear, shortened", adapter_from_peft, root / "models" / "deep", root / "b3", "all-linear",
              False)
        for number, (key, options) in enumerate({
                "use_qalora": dict(use_qalora=True), "bias": dict(bias="all"),
                "init_lora_weights": dict(init_lora_weights="pissa"), "task_type": dict(task_type="SEQ_CLS"),
                "target_modules: expected": dict(target_modules=".*_proj"),
                "single layers": dict(target_modules=["layers.1.self_attn.q_proj"])}.items()):
            check(f"refused {key}", lambda f, k, o: refused_from_peft(f, k, **o), root / f"c{number}", key, options)
        for folder in arguments.model:
            check(f"configuration of {folder}", lambda f: same_config(
                json.loads(probe("config", f"{f}/config.json")), expected(f)), folder)
            check(f"weights of {folder}", same_weights, folder, 400_000)
    print(f"{len(FAILURES)} failures")
    return min(len(FAILURES), 100)


if __name__ == "__main__":
    sys.exit(main())
