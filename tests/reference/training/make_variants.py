"""Writes tests/data/variants: LoRA by parts and its relatives, DoRA, and training of some blocks alone, by PEFT and
PyTorch.

    python make_variants.py              all of them
    python make_variants.py experts dora  these alone; the others stay

Each variant trains the model of a case of tests/data/golden for as many of its steps, in fp32 and with its
hyperparameters. A folder holds adapter/ as PEFT wrote it before the first step (none for a model's own weights) and
records.json: loss, grad_norm and learning rate of each step, and the norm of every trained tensor's whole update.
"""
import json
import pathlib
import platform
import shutil
import sys
import warnings

import peft
import torch
import transformers
from peft.optimizers import create_loraplus_optimizer

import families
import loop
from make_goldens import GOLDEN, VERSIONS, check_versions, plain_name, settle_adapter_config, trained_tensors, write_json

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 331
FOLDER = GOLDEN.parent / "variants"
VARIANTS = {
    "patterns": dict(case="llama", lora=dict(
        rank_pattern={"layers.1.mlp.up_proj": 2, "up_proj": 3, "q_proj": 6},
        alpha_pattern={"v_proj": 32, "layers.0.self_attn.o_proj": 3}, use_rslora=True)),
    "some_layers": dict(case="qwen3", lora=dict(layers_to_transform=[1])),
    "loraplus": dict(case="llama", lora={}, loraplus=8.0),
    "saved_modules": dict(case="qwen2", lora=dict(modules_to_save=["embed_tokens", "lm_head"],
                                                  target_modules=["q_proj", "v_proj"])),
    "freeze": dict(case="qwen3_tied", freeze=1),
    "dora": dict(case="llama", lora=dict(use_dora=True)),
    "dora_biases": dict(case="qwen2", lora=dict(use_dora=True, use_rslora=True, rank_pattern={"up_proj": 3})),
    "dora_loraplus": dict(case="mistral", lora=dict(use_dora=True, layers_to_transform=[1],
                                                    target_modules=["q_proj", "o_proj", "down_proj"]), loraplus=8.0),
    "dora_fresh": dict(case="qwen3", lora=dict(use_dora=True), fresh=True),
    "dora_fused": dict(case="phi3", lora=dict(use_dora=True, rank_pattern={"qkv_proj": 3}, target_modules=[
        "qkv_proj", "gate_up_proj", "down_proj"])),
    "dora_delta": dict(case="qwen3_5", lora=dict(use_dora=True, target_modules=[
        "q_proj", "o_proj", "in_proj_qkv", "in_proj_a", "out_proj"])),
    "experts": dict(case="qwen3_moe", lora=dict(target_modules="all-linear"), targets=families.ATTENTION_LAYERS),
    "experts_down": dict(case="mixtral", lora=dict(target_modules=[], target_parameters=["mlp.experts.down_proj"])),
    "experts_stacked": dict(case="gpt_oss", lora=dict(
        target_modules=["v_proj"], use_rslora=True, rank_pattern={"gate_up_proj": 3}, alpha_pattern={"router.weight": 5},
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.router.weight"])),
    "experts_inner": dict(case="olmoe", lora=dict(target_modules=["k_proj", "gate_proj", "up_proj", "gate"]),
                          targets=["k_proj"], loraplus=4.0),
}


def load_model(case):
    return transformers.AutoModelForCausalLM.from_pretrained(
        GOLDEN / case / "model", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").train()


def make_adapter(model, seed, options, fresh=False):
    """`fresh`: B is zero and magnitudes are the lengths of rows, as PEFT makes them; else all is moved away from that."""
    options = {"target_modules": families.LINEAR_LAYERS, **options}
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM", **options)
    wrapped = peft.get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_A" in name:
                parameter.copy_(parameter.shape[1]**-0.5 * noise)
            elif "lora_B" in name and not fresh:
                parameter.copy_(0.3 * parameter.shape[1]**-0.5 * noise)
            elif "lora_magnitude" in name and not fresh:
                parameter.mul_(1 + 0.1 * noise)
    return wrapped


def save_adapter(wrapped, folder, targets):
    wrapped.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    settle_adapter_config(folder / "adapter_config.json", targets)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text())
    config["target_modules"] = targets
    if config["target_parameters"] is not None:
        config["target_parameters"].sort()
    path.write_text(json.dumps(config, indent=2) + "\n")  # patterns stay in their order


def build(variant, folder):
    """The model that is trained, from the files."""
    model = load_model(variant["case"])
    if "freeze" in variant:
        blocks = model.config.num_hidden_layers
        kept = [f"model.layers.{b}." for b in range(blocks - variant["freeze"], blocks)]
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(any(name.startswith(prefix) for prefix in kept))
        return model
    return peft.PeftModel.from_pretrained(model, folder / "adapter", is_trainable=True).train()


def loraplus(ratio):
    def make(model, learning_rate, weight_decay, betas, epsilon):
        return create_loraplus_optimizer(model, torch.optim.AdamW, lr=learning_rate, loraplus_lr_ratio=ratio,
                                         weight_decay=weight_decay, loraplus_weight_decay=weight_decay, betas=betas,
                                         eps=epsilon, foreach=False, fused=False)
    return make


def run(variant, folder, padded=False):
    batches = json.loads((GOLDEN / variant["case"] / "batches.json").read_text())
    model = build(variant, folder)
    initial = trained_tensors(model)
    more = {}
    if "loraplus" in variant:
        more["build_optimizer"] = loraplus(variant["loraplus"])
    records = loop.train(model, batches["steps"], padded=padded, **batches["training"], **more)
    moved = {file_name(name): (tensor - initial[name]).norm().item() for name, tensor in trained_tensors(model).items()}
    return records, moved


def file_name(name):
    """In adapter_model.safetensors."""
    return name.replace(".modules_to_save.", ".").replace("lora_magnitude_vector.weight", "lora_magnitude_vector")


def make_variant(name, variant):
    folder = FOLDER / name
    folder.mkdir(parents=True)
    if "lora" in variant:
        wrapped = make_adapter(load_model(variant["case"]), families.case_seed(name, SEED), variant["lora"],
                               variant.get("fresh", False))
        named = variant["lora"].get("target_modules", families.LINEAR_LAYERS)
        save_adapter(wrapped, folder / "adapter", variant.get("targets", named))
    records, moved = run(variant, folder)
    other, _ = run(variant, folder, padded=True)
    noise = {key: loop.worst(other, records, key) for key in ("loss", "grad_norm")}
    settings = {key: variant[key] for key in ("case", "freeze", "loraplus") if key in variant}
    write_json(folder / "records.json", dict(**settings, steps=records, moved=moved))
    print(name, noise, len(moved), flush=True)
    return noise


def main():
    check_versions()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    names = sys.argv[1:] or list(VARIANTS)
    manifest = FOLDER / "MANIFEST.json"
    noise = json.loads(manifest.read_text())["noise"] if sys.argv[1:] else {}
    for name in names:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
        noise[name] = make_variant(name, VARIANTS[name])
    write_manifest(FOLDER, "tests/reference/training/make_variants.py", SEED,
                   {**VERSIONS, "python": platform.python_version()}, noise=noise)


if __name__ == "__main__":
    main()
