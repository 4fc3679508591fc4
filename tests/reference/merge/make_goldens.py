"""Writes tests/data/merge: small bases, LoRA and DoRA adapters of PEFT, and what PEFT's merge_and_unload makes of them in fp32.

Usage: make_goldens.py     (torch 2.15.0, transformers 5.23.0, peft 0.21.2, safetensors; MANIFEST.json has the versions)

Each case holds base/ (config.json, model.safetensors in the case's type), adapter/ and merged.safetensors: the base loaded
in fp32 and merged. Both factors are random: an adapter as PEFT makes it would add nothing.
"""
import json
import pathlib
import shutil
import sys
from importlib import metadata

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 20240607
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "merge"
SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=32, max_position_embeddings=64)
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

# name: (configuration, type of the base's file, options of the adapter)
CASES = {
    "plain": (LlamaConfig(**SIZES, tie_word_embeddings=True), torch.bfloat16,
              dict(r=4, lora_alpha=6, target_modules=ALL)),
    "rslora": (Qwen2Config(**SIZES, tie_word_embeddings=False), torch.float32,
               dict(r=5, lora_alpha=3, use_rslora=True, target_modules=["q_proj", "down_proj"])),
    "dora": (Qwen2Config(**SIZES, tie_word_embeddings=False), torch.bfloat16,
             dict(r=4, lora_alpha=6, use_dora=True, target_modules=ALL)),
    "chosen": (LlamaConfig(**SIZES, tie_word_embeddings=False), torch.float32,
               dict(r=3, lora_alpha=4, target_modules=r".*layers\.(0\.self_attn\.(q|o)_proj|1\.mlp\.(up|down)_proj)")),
}


def make(name):
    config, dtype, options = CASES[name]
    folder = FOLDER / name
    base = AutoModelForCausalLM.from_config(config)
    for parameter in base.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    base.to(dtype).save_pretrained(folder / "base")
    (folder / "base" / "generation_config.json").unlink()

    model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32),
                           LoraConfig(task_type="CAUSAL_LM", **options))
    for key, parameter in model.named_parameters():
        if "lora_magnitude" in key:
            with torch.no_grad():
                parameter.mul_(1 + 0.1 * torch.randn(parameter.shape))
        elif "lora_" in key:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(folder / "adapter")
    # PEFT writes the base's folder on this machine and, being a set, the modules in any order.
    path = folder / "adapter" / "adapter_config.json"
    written = json.loads(path.read_text())
    targets = written["target_modules"]
    written.update(base_model_name_or_path="base", target_modules=sorted(targets) if isinstance(targets, list) else targets)
    path.write_text(json.dumps(written, indent=2) + "\n")
    (folder / "adapter" / "README.md").unlink(missing_ok=True)

    fresh = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)
    merged = PeftModel.from_pretrained(fresh, folder / "adapter").merge_and_unload()
    tensors = {key: value.contiguous() for key, value in merged.state_dict().items()}
    if config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    save_file(tensors, folder / "merged.safetensors")


def main():
    torch.manual_seed(SEED)
    shutil.rmtree(FOLDER, ignore_errors=True)
    for name in CASES:
        make(name)
    versions = {name: metadata.version(name) for name in ("torch", "transformers", "peft", "safetensors")}
    write_manifest(FOLDER, "tests/reference/merge/make_goldens.py", SEED, versions)


if __name__ == "__main__":
    main()
