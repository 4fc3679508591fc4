"""Small random models that read pictures too, made of those that `rondo init` and gguf_probe make: their text part is built alike."""
import json

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen3VLConfig,
                          Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration)

# What the text part is built as, the classes of the whole, and a part for pictures.
_DEEP = dict(depth=2, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, num_position_embeddings=16,
             deepstack_visual_indexes=[0, 1])
_KINDS = {
    "qwen2_vl": ("qwen2", Qwen2VLConfig, Qwen2VLForConditionalGeneration, dict(depth=1, embed_dim=32, num_heads=2, mlp_ratio=2, patch_size=14)),
    "qwen2_5_vl": ("qwen2", Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration,
                   dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, fullatt_block_indexes=[0])),
    "qwen3_vl": ("qwen3", Qwen3VLConfig, Qwen3VLForConditionalGeneration, _DEEP),
    "qwen3_vl_moe": ("qwen3_moe", Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration, _DEEP),
}
BUILT_AS = {name: kind[0] for name, kind in _KINDS.items()}
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")


def sections_of(config):
    """Pairs of channels that turn by time, height and width, as like as they go: of Qwen3-VL llama.cpp turns no pair that is not some
    coordinate's where the three take turns, transformers turns it by time."""
    pairs = (config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]) // 2
    return [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3]


def make_whole(folder, name):
    """Turns the model in `folder`, which is one of BUILT_AS[name], into the text part of a whole."""
    _, config_class, model_class, pictures = _KINDS[name]
    config = json.loads((folder / "config.json").read_text())
    turns = dict(rope_type="default", rope_theta=config.pop("rope_theta", 10000.0), mrope_section=sections_of(config))
    if name.startswith("qwen3"):
        turns["mrope_interleaved"] = True
    tied = config.pop("tie_word_embeddings")
    for key in ("architectures", "model_type", "torch_dtype", "rope_scaling", "layer_types"):
        config.pop(key, None)
    width = {"hidden_size" if name == "qwen2_vl" else "out_hidden_size": config["hidden_size"]}
    if name == "qwen3_vl_moe":  # of another size, by which one sees how matrices lie
        config["moe_intermediate_size"] = config["hidden_size"] // 4 * 3
    torch.manual_seed(31)
    whole = model_class(config_class(text_config={**config, "rope_parameters": turns}, vision_config={**pictures, **width},
                                     tie_word_embeddings=tied, **{key: config.get(key) for key in TOKENS}))
    text = whole.model.language_model
    with safe_open(folder / "model.safetensors", framework="pt") as opened, torch.no_grad():
        tensors = {key: opened.get_tensor(key) for key in opened.keys()}
        for key, weights in text.named_parameters():
            if f"model.{key}" in tensors:
                weights.copy_(tensors[f"model.{key}"])
        if not tied:
            whole.lm_head.weight.copy_(tensors["lm_head.weight"])
    (folder / "model.safetensors").unlink()
    whole.save_pretrained(folder)
    if name == "qwen3_vl_moe":
        transpose_experts(folder / "model.safetensors")


def transpose_experts(file):
    """As published files have them, which transformers reads but does not write of a model that it has not read."""
    with safe_open(file, framework="pt") as opened:
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}
    for name in tensors:
        if ".experts." in name:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, file, metadata={"format": "pt"})
