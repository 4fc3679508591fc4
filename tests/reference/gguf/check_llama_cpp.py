"""Exported models and adapters as llama.cpp itself runs them, beside transformers and PEFT.

    python check_llama_cpp.py --rondo build/release/rondo [--archs NAME...] [--model FOLDER [--adapter FOLDER]]

Needs llama-cpp-python (tried with 0.3.36), transformers 5.23, peft 0.21, torch. Small random models of every architecture are made
with `rondo init` (seed 7), trained for three steps with LoRA, and exported: f32, f16, bf16, q8_0, and the adapter. For each
the ids of a prompt must be the same, the logits within the type's tolerance (root mean square of the differences over that
of the logits), and with f32 the 12 greedy tokens too. --model checks that folder in the same way, --adapter a PEFT adapter of it.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import llama_cpp
import numpy as np
import torch
from peft import PeftModel
from safetensors import safe_open
from safetensors.numpy import save_file
from picture_models import BUILT_AS, make_whole
from space_models import MADE_OF, make_spaces
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

# llama.cpp multiplies in the type of the file: 8 bits of mantissa in bf16, blocks of 8-bit integers on both sides in q8_0.
# Its keys and values, 16 bits by default, are asked for in fp32.
# transformers with SmolLM2's weights rounded to q8_0 and all else in fp32 is 3.3e-2 from the unrounded model itself.
TOLERANCES = {"f32": 1e-5, "f16": 2e-3, "bf16": 2e-2, "q8_0": 5e-2}
# The reference looks GELU up in a table of fp16, too; what is near the middle of two numbers of it may go either way.
TOLERANCE_WITH_GELU = 5e-4
ARCHS = ["llama", "arcee", "mistral", "ministral3", "qwen2", "qwen3", "smollm3", "granite", "granitemoe", "olmo2", "olmo3", "gemma",
         "gemma2", "gemma3_text", "gemma4_text", "gemma4_text+experts", "gemma4_text+steep", "gemma4_text+experts+steep", "mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "phi3", "hunyuan_v1_dense", "exaone4",
         "seed_oss", "ernie4_5", "glm4", "lfm2", "glm4_moe", "ernie4_5_moe", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text",
         "qwen3_next", "internlm3", "iquestcoder", "helium", "glm", "granitemoeshared", "granitemoehybrid", "dots1", "hunyuan_v1_moe",
         "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu", *BUILT_AS, "nemotron", "bamba", "falcon_h1",
         *MADE_OF]
# What readers take for granted: tied heads, as many heads of keys as of queries.
# Attention by a latent: as many heads of keys as of queries. Readers apply no adapters to its layers but o_proj.
LATENT = ["--num_key_value_heads", 6]
BESIDE_LATENT = ["--lora_target", "o_proj,gate_proj,up_proj,down_proj"]
OPTIONS = {"deepseek_v2": LATENT, "deepseek_v3": LATENT, "glm4_moe_lite": LATENT, "youtu": LATENT, "olmoe": ["--num_key_value_heads", 6], "dots1": ["--num_key_value_heads", 6], "gemma": ["--tie_word_embeddings", "true"], "gemma2": ["--tie_word_embeddings", "true"],
           "gemma3_text": ["--tie_word_embeddings", "true", "--num_hidden_layers", 7],
           "gemma4_text+experts": ["--moe_intermediate_size", 64, "--tie_word_embeddings", "true"],
           "gemma4_text+experts+steep": ["--moe_intermediate_size", 64]}
TRAINED = {"gemma4_text+experts": ["--lora_target", "all", "--target_parameters", "experts.gate_up_proj"]}
TRAINED["gemma4_text+experts+steep"] = TRAINED["gemma4_text+experts"]
for latent in ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu"):
    TRAINED[latent] = BESIDE_LATENT
PROMPT = "The quick brown fox, 3 times: naïve café?\n"


def run(rondo, *arguments):
    subprocess.run([rondo, *map(str, arguments)], check=True, capture_output=True)


def llama_logits(path, adapter=None):
    model = llama_cpp.Llama(model_path=str(path), n_ctx=128, n_threads=1, logits_all=True, verbose=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32, flash_attn=False,
                            lora_path=str(adapter) if adapter else None)
    ids = model.tokenize(PROMPT.encode(), add_bos=True, special=True)
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)], dtype=np.float32)
    greedy = []
    for _ in range(12):
        greedy.append(int(np.argmax(model.scores[model.n_tokens - 1])))
        model.eval(greedy[-1:])
    return ids, logits, greedy


class TabledGelu(torch.nn.Module):
    """As llama.cpp has it (GGML_GELU_FP16): looked up in a table, numbers and results of which are fp16."""

    def forward(self, x):
        found = torch.nn.functional.gelu(x.half().float(), approximate="tanh").half().float()
        return torch.where(x >= 10, x, torch.where(x <= -10, torch.zeros_like(x), found))


def reference(folder, adapter=None):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    kind = AutoModelForImageTextToText if "vision_config" in config_of(folder) else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager")
    for module in model.modules() if looks_up_gelu(folder) else []:
        if hasattr(module, "act_fn"):
            module.act_fn = TabledGelu()
    if adapter:
        model = PeftModel.from_pretrained(model, adapter)
    ids = tokenizer(PROMPT)["input_ids"]
    greedy = []
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
        for _ in range(12):
            greedy.append(int(model(torch.tensor([ids + greedy])).logits[0, -1].argmax()))
    return ids, logits, greedy


def config_of(folder):
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


def has_experts(folder):
    config = config_of(folder)
    keys = [*config, *config.get("text_config", {})]
    return any("num_experts_per_tok" in key or key in ("moe_k", "moe_topk", "top_k_experts") for key in keys)


def with_own_numbers(folder, steep):
    """Norms, biases and factors differ from number to number, where `rondo init` has one for all: eighths are added. Gemma 4's
    scores are not divided by the root of a head's width: norms of queries are, that they are as large as those of others.
    Steep: gates so large that GELU is, but for few of them, 0 or the number itself."""
    random = np.random.default_rng(29)
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        tensors = {name: opened.get_tensor(name).numpy() for name in opened.keys()}
    for name in sorted(tensors):
        weights = tensors[name]
        if (weights == weights.flat[0]).all():
            tensors[name] = weights + random.integers(-4, 5, weights.shape).astype(np.float32) / 8
        if name.endswith("q_norm.weight") and config_of(folder)["model_type"] == "gemma4_text":
            tensors[name] = tensors[name] / 8
        if steep and ("gate_proj" in name or "gate_up_proj" in name):
            tensors[name] = tensors[name] * 3000
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_readers_epsilon(folder):
    """Norms of a latent have 1e-6 in transformers, and what all others have in llama.cpp: here that is the same. Of Qwen2-VL that of
    llama-cpp-python 0.3.36 reads none."""
    config = config_of(folder)
    if "kv_lora_rank" in config:
        config["rms_norm_eps"] = 1e-6
    if config["model_type"].startswith("qwen2") and "text_config" in config:
        config["text_config"]["rms_norm_eps"] = 1e-15
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))


def looks_up_gelu(folder):
    config = config_of(folder)
    return "gelu" in (config.get("hidden_act") or config.get("hidden_activation") or "")


def check(rondo, folder, adapter, work, types, steep=False):
    plain, tuned = reference(folder), reference(folder, adapter) if adapter else None
    if adapter:
        run(rondo, "export", "--adapter_name_or_path", adapter, "--model_name_or_path", folder, "--format", "gguf",
            "--output", work / "adapter.gguf", "--quantization", "f32")
    for kind in types:
        file = work / f"{kind}.gguf"
        run(rondo, "export", "--model_name_or_path", folder, "--format", "gguf", "--output", file, "--quantization", kind)
        for name, expected, lora in [("model", plain, None), ("adapter", tuned, work / "adapter.gguf")]:
            if expected is None:
                continue
            ids, logits, greedy = llama_logits(file, lora)
            assert ids == expected[0], f"{kind}: ids {ids}, expected {expected[0]}"
            distance = float(np.sqrt(np.square(logits - expected[1]).mean() / np.square(expected[1]).mean()))
            tolerance = TOLERANCES[kind] if steep or not looks_up_gelu(folder) else max(TOLERANCES[kind], TOLERANCE_WITH_GELU)
            # Rounded, a small random router sends tokens to other experts, and further on with GELU out of a table, too.
            judged = kind == "f32" or not has_experts(folder)
            assert not judged or distance < tolerance, f"{kind}: logits {distance:.1e} apart"
            if kind == "f32" and (steep or not (has_experts(folder) and looks_up_gelu(folder))):
                assert greedy == expected[2], f"greedy {greedy}, expected {expected[2]}"
            print(f"  {kind:5} {name:8} logits within {distance:.1e}, greedy tokens "
                  f"{'equal' if greedy == expected[2] else 'differ'}")
        file.unlink()
    (work / "adapter.gguf").unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rondo", default="build/release/rondo")
    parser.add_argument("--archs", nargs="*")
    parser.add_argument("--model")
    parser.add_argument("--adapter")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        if arguments.model:
            print(arguments.model)
            check(arguments.rondo, arguments.model, arguments.adapter, work, ["f32", "bf16", "q8_0"])
            return
        text = work / "data.jsonl"
        text.write_text("\n".join(json.dumps({"text": f"line {i}: {PROMPT}"}) for i in range(24)))
        failures = 0
        for arch in arguments.archs or ARCHS:
            print(arch, flush=True)
            # Readers take a model for one of Microsoft's, and ask for its tokens, by its name.
            folder, adapter = work / "model", work / "trained"
            for path in (folder, adapter):
                shutil.rmtree(path, ignore_errors=True)
            for file in work.glob("*.gguf"):
                file.unlink()
            run(arguments.rondo, "init", "--arch", BUILT_AS.get(arch, arch.split("+")[0]), "--output_dir", folder, "--hidden_size", 192, "--head_dim", 32,
                "--num_attention_heads", 6, "--num_key_value_heads", 2, "--num_hidden_layers", 4, "--seed", 7, "--dtype", "fp32",
                *OPTIONS.get(arch, []))
            if arch in BUILT_AS:
                make_whole(folder, arch)
            if arch in MADE_OF:
                make_spaces(folder, arch)
            with_own_numbers(folder, "+steep" in arch)
            with_readers_epsilon(folder)
            run(arguments.rondo, "train", "--model", folder, "--dataset", text, "--output_dir", adapter, "--max_steps", 3,
                "--learning_rate", 1e-2, "--dtype", "fp32", "--devices", "cpu", *TRAINED.get(arch, []))
            try:
                # Steep, a number that is rounded another way is another activation.
                check(arguments.rondo, folder, adapter, work, ["f32"] if "+steep" in arch else list(TOLERANCES), "+steep" in arch)
            except (AssertionError, subprocess.CalledProcessError, ValueError) as error:
                failures += 1
                print(f"  FAIL {error} {getattr(error, 'stderr', '')}", flush=True)
        sys.exit(failures)


if __name__ == "__main__":
    main()
