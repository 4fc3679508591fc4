"""Reads GGUF files of gguf_probe with the package gguf and compares every key and number with the model's files; writes
others with the package and compares what the probe reads: numbers, and what transformers makes of the directory.

Usage: check_gguf.py --probe PROGRAM [--archs NAME...] [--model FOLDER]...     (gguf 0.19.0, numpy, torch, safetensors, transformers)
Every check prints a line; the exit status is the number of failures. --model adds published model directories.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import traceback

import numpy as np
import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFReader, GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.constants import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize
from safetensors import safe_open
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from gguf.tensor_mapping import get_tensor_name_map
from make_goldens import HALVES, random_blocks
from picture_models import BUILT_AS, make_whole
from space_models import MADE_OF, make_spaces
from spaces_in_files import expected_of_spaces, factor_of, has_own_head_in_files, keys_of_spaces, spaces_of
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[3]
ARCHS = {"llama": MODEL_ARCH.LLAMA, "mistral": MODEL_ARCH.LLAMA, "ministral3": MODEL_ARCH.MISTRAL3, "qwen2": MODEL_ARCH.QWEN2, "qwen3": MODEL_ARCH.QWEN3,
         "smollm3": MODEL_ARCH.SMOLLM3, "granite": MODEL_ARCH.GRANITE, "granitemoe": MODEL_ARCH.GRANITE_MOE, "olmo2": MODEL_ARCH.OLMO2, "olmo3": MODEL_ARCH.OLMO2,
         "gemma": MODEL_ARCH.GEMMA, "gemma2": MODEL_ARCH.GEMMA2, "gemma3_text": MODEL_ARCH.GEMMA3, "gemma4_text": MODEL_ARCH.GEMMA4, "qwen2_moe": MODEL_ARCH.QWEN2MOE,
         "qwen3_moe": MODEL_ARCH.QWEN3MOE,
         "mixtral": MODEL_ARCH.LLAMA, "olmoe": MODEL_ARCH.OLMOE, "gpt_oss": MODEL_ARCH.GPT_OSS, "phi3": MODEL_ARCH.PHI3,
         "hunyuan_v1_dense": MODEL_ARCH.HUNYUAN_DENSE, "exaone4": MODEL_ARCH.EXAONE4, "arcee": MODEL_ARCH.ARCEE,
         "seed_oss": MODEL_ARCH.SEED_OSS, "ernie4_5": MODEL_ARCH.ERNIE4_5,
         "glm4": MODEL_ARCH.GLM4, "lfm2": MODEL_ARCH.LFM2, "glm4_moe": MODEL_ARCH.GLM4_MOE,
         "ernie4_5_moe": MODEL_ARCH.ERNIE4_5_MOE, "lfm2_moe": MODEL_ARCH.LFM2MOE,
         "qwen3_5_text": MODEL_ARCH.QWEN35, "qwen3_5_moe_text": MODEL_ARCH.QWEN35MOE, "qwen3_next": MODEL_ARCH.QWEN3NEXT,
         "glm": MODEL_ARCH.CHATGLM, "qwen2_vl": MODEL_ARCH.QWEN2VL, "qwen2_5_vl": MODEL_ARCH.QWEN2VL,
         "qwen3_vl": MODEL_ARCH.QWEN3VL, "qwen3_vl_moe": MODEL_ARCH.QWEN3VLMOE, "nemotron": MODEL_ARCH.NEMOTRON,
         "granitemoehybrid": MODEL_ARCH.GRANITE_HYBRID, "bamba": MODEL_ARCH.GRANITE_HYBRID, "falcon_h1": MODEL_ARCH.FALCON_H1,
         "nemotron_h": MODEL_ARCH.NEMOTRON_H,
         **dict.fromkeys(("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "youtu"), MODEL_ARCH.DEEPSEEK2)}
TYPES = {"f32": Type.F32, "f16": Type.F16, "bf16": Type.BF16, "q8_0": Type.Q8_0}
PROBE = ""
FAILURES = []


def probe(*words):
    done = subprocess.run([PROBE, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def check(name, function, *arguments):
    try:
        function(*arguments)
        print(f"ok    {name}", flush=True)
    except Exception:
        FAILURES.append(name)
        print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)


def tensors_in(file):
    """Of a whole that reads pictures the text part, by the names of a text model."""
    with safe_open(file, framework="pt") as opened:
        names = [name for name in opened.keys() if not name.startswith(("model.visual.", "visual."))]
        return {name.replace(".language_model.", "."): opened.get_tensor(name).to(torch.float32).numpy() for name in names}


def config_of(folder):
    """Likewise; the tokens are those of the whole."""
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", {})
    layers = {"num_hidden_layers": len(config["layers_block_type"])} if "layers_block_type" in config else {}
    return {**layers, **config, **text, "model_type": config["model_type"]}


def stacked(config, tensors):
    """The matrices of a block's experts in one, under the name that the package knows for all."""
    stacks, others = {}, {}
    for name, weights in tensors.items():
        if ".shared_mlp." in name:  # Granite 4: gate and up behind one another, where there are no experts in a MLP's place
            module = "mlp.shared_expert" if config["num_local_experts"] else "mlp"
            halves = dict(zip(("gate_proj", "up_proj"), np.split(weights, 2))) if "input_linear" in name else {"down_proj": weights}
            others.update({f"{name.partition('shared_mlp.')[0]}{module}.{part}.weight": np.ascontiguousarray(half) for part, half in halves.items()})
            continue
        if name.endswith("input_linear.weight"):  # Granite: gate and up in halves
            for word, half in zip(("gate_proj", "up_proj"), np.split(weights, 2, axis=1)):
                others[name.replace("block_sparse_moe.input_linear", f"mlp.experts.{word}")] = np.ascontiguousarray(half)
            continue
        if re.fullmatch(r"model\.layers\.\d+\.experts\.\w+", name):  # Gemma 4: as files have them
            others[f"{name}.weight"] = weights
            continue
        if ".experts.gate_up_proj" in name or ".experts.down_proj" in name and not name.endswith(".weight"):
            others.update(parts_of_stack(name, weights, by_turns=config["model_type"] == "gpt_oss"))
            continue
        place = re.fullmatch(r"(.*\.experts)\.(\d+)\.(\w+\.weight)", name)
        if place:
            stacks.setdefault(f"{place[1]}.{place[3]}", {})[int(place[2])] = weights
        else:
            others[name] = weights
    return {**others, **{name: np.stack([parts[e] for e in range(len(parts))]) for name, parts in stacks.items()}}


def parts_of_stack(name, weights, by_turns):
    """GPT-OSS and Qwen3-VL, as the package's converter has it: gate and up apart, rows as in a linear layer."""
    whole, dot, word = name.rpartition(".")
    ending = ".bias" if word.endswith("_bias") else ".weight"
    weights = weights if ending == ".bias" else weights.swapaxes(1, 2)
    if word.startswith("down_proj"):
        return {f"{whole}.down_proj{ending}": weights}
    halves = (weights[:, ::2], weights[:, 1::2]) if by_turns else np.split(weights, 2, axis=1)
    return {f"{whole}.{part}{ending}": half for part, half in zip(("gate_proj", "up_proj"), halves)}


def interleaved(weights, heads, share=1.0):
    """Rows (half, i) of what turns of each head become (i, half)."""
    by_heads = weights.reshape(heads, -1, *weights.shape[1:])
    turned, others = np.split(by_heads, [int(by_heads.shape[1] * share)], axis=1)
    turned = turned.reshape(heads, 2, -1, *weights.shape[1:]).swapaxes(1, 2).reshape(turned.shape)
    return np.ascontiguousarray(np.concatenate([turned, others], axis=1)).reshape(weights.shape)


def of_value_heads(config, weights, axis, width):
    """(key head, number, width) become (number, key head, width)."""
    keys = config["linear_num_key_heads"]
    numbers = config["linear_num_value_heads"] // keys
    shape = weights.shape
    parts = weights.reshape(*shape[:axis], keys, numbers, width, *shape[axis + 1:])
    return np.ascontiguousarray(parts.swapaxes(axis, axis + 1)).reshape(shape)


def expected_of_linear_attention(config, name, weights):
    """As the package's converter has them."""
    value = config["linear_value_head_dim"]
    if name.endswith("conv1d.weight"):
        weights = weights[:, 0]
    if name.endswith("A_log"):
        weights = -torch.exp(torch.from_numpy(weights)).numpy()
    if config["model_type"] == "qwen3_next":
        return weights
    if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        keys = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
        return np.concatenate([weights[:keys], of_value_heads(config, weights[keys:], 0, value)])
    if name.endswith("in_proj_z.weight"):
        return of_value_heads(config, weights, 0, value)
    if name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
        return of_value_heads(config, weights, 0, 1)
    return of_value_heads(config, weights, 1, value) if name.endswith("out_proj.weight") else weights


def queries_and_gate(config, tensors):
    """Qwen3-Next's q, k and v one behind the other, z by itself."""
    if config["model_type"] != "qwen3_next":
        return tensors
    parted = {}
    keys, size = config["linear_num_key_heads"], config["linear_key_head_dim"]
    values = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    for name, weights in tensors.items():
        if not name.endswith("in_proj_qkvz.weight"):
            parted[name] = weights
            continue
        by_heads = weights.reshape(keys, -1, weights.shape[-1])
        parts = [part.reshape(-1, weights.shape[-1]) for part in np.split(by_heads, np.cumsum([size, size, values]), axis=1)]
        parted[name.replace("in_proj_qkvz", "in_proj_qkv")] = np.concatenate(parts[:3])
        parted[name.replace("in_proj_qkvz", "in_proj_z")] = np.ascontiguousarray(parts[3])
    return parted


def keys_and_values(config, tensors):
    """Of a latent, head by head and those of keys transposed, as the package's converter has them."""
    if "kv_lora_rank" not in config:
        return tensors
    parted = {}
    for name, weights in tensors.items():
        if not name.endswith("kv_b_proj.weight"):
            parted[name] = weights
            continue
        by_heads = weights.reshape(config["num_attention_heads"], -1, weights.shape[-1])
        keys, values = np.split(by_heads, [config["qk_nope_head_dim"]], axis=1)
        parted[name.replace("kv_b_proj", "k_b_proj")] = np.ascontiguousarray(keys.swapaxes(1, 2))
        parted[name.replace("kv_b_proj", "v_b_proj")] = np.ascontiguousarray(values)
    return parted


def keys_of_latent(config, prefix):
    """What the package's converter writes of attention by a latent."""
    rank, turned = config["kv_lora_rank"], config["qk_rope_head_dim"]
    experts = "n_routed_experts" in config
    width = config["moe_intermediate_size"] if experts else config["intermediate_size"]
    wanted = {"attention.head_count_kv": 1, "attention.key_length": rank + turned, "attention.value_length": rank,
              "attention.key_length_mla": config["qk_nope_head_dim"] + turned, "attention.value_length_mla": config["v_head_dim"],
              "attention.q_lora_rank": config["q_lora_rank"], "attention.kv_lora_rank": rank, "rope.dimension_count": turned,
              "expert_feed_forward_length": width, "expert_shared_count": config.get("n_shared_experts", 0),
              "leading_dense_block_count": config.get("first_k_dense_replace", 1 if experts else config["num_hidden_layers"])}
    if experts:
        softmax = config["model_type"] == "deepseek_v2"
        wanted.update({"expert_gating_func": 1 if softmax else 2, "expert_weights_norm": not softmax and config["norm_topk_prob"],
                       "expert_weights_scale": np.float32(config["routed_scaling_factor"])})
    return {f"{prefix}.{key}": number for key, number in wanted.items()}


def expected_rows(config, name, weights):
    if name.endswith("conv.conv.weight"):
        return weights[:, 0]
    if config["model_type"] == "falcon_h1":
        weights = weights * factor_of(config, name)
    if ".mamba." in name or ".mixer." in name:
        return expected_of_spaces(config, name, weights)
    if ".linear_attn." in name:
        return expected_of_linear_attention(config, name, weights)
    if config["model_type"].startswith(("gemma", "qwen3_5", "qwen3_next")) and config["model_type"] != "gemma4_text" and name.endswith("norm.weight") or \
            config["model_type"] == "nemotron" and name.endswith("norm.weight"):
        return weights + np.float32(1)
    if name.endswith((".shared_expert_gate.weight", ".moe_statics.e_score_correction_bias")):
        return weights.reshape(-1)
    if config["model_type"] in ("llama", "arcee", "mistral", "ministral3", "mixtral", "smollm3", "granite", "granitemoe", "granitemoehybrid", "bamba"):
        # The package's converter moves whole heads of a Bamba, of which readers turn halves; neighbours are what they turn.
        share = 0.5 if config["model_type"] == "bamba" else 1.0
        if ".q_proj." in name:
            return interleaved(weights, config["num_attention_heads"], share)
        if ".k_proj." in name:
            return interleaved(weights, config["num_key_value_heads"], share)
    return weights


def same_tensor(found, wanted, quantization):
    """Bit for bit what the package makes of the same numbers."""
    shape = tuple(int(n) for n in reversed(found.shape))
    assert shape == wanted.shape, f"{found.name}: shape {shape}, expected {wanted.shape}"
    kind = Type.F32 if wanted.ndim == 1 or "ffn_gate_inp" in found.name or "shortconv.conv" in found.name or "ssm_conv1d" in found.name or found.name.endswith(("_exps.bias", "ssm_a", "ssm_d", "ssm_norm.weight")) else TYPES[quantization]
    if kind == Type.Q8_0 and wanted.shape[-1] % 32:
        kind = Type.F16
    assert found.tensor_type == kind, f"{found.name}: {found.tensor_type.name}, expected {kind.name}"
    encoded = quantize(np.ascontiguousarray(wanted), kind)
    assert found.data.tobytes() == encoded.tobytes(), f"{found.name}: other bytes"
    assert np.isfinite(dequantize(found.data, kind)).all()


def value(reader, key):
    return reader.get_field(key).contents() if reader.get_field(key) else None


def same_tokenizer(reader, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    reference = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens, kinds = value(reader, "tokenizer.ggml.tokens"), value(reader, "tokenizer.ggml.token_type")
    assert len(tokens) == len(kinds) == config["vocab_size"]
    special = {token["id"]: token["special"] for token in tokenizer["added_tokens"]}
    for i, (token, kind) in enumerate(zip(tokens, kinds)):
        wanted = reference.id_to_token(i)
        assert token == (wanted if wanted is not None else f"[PAD{i}]"), i
        if wanted is None:
            assert kind == 5, i
        elif tokenizer["model"].get("unk_token") != token or not tokenizer["model"].get("byte_fallback"):
            assert (kind == 3) == special.get(i, False) and (kind == 4) == (i in special and not special[i]), i
    pairs = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
    if value(reader, "tokenizer.ggml.model") == "gpt2":
        # A reader takes an empty array for an absent one.
        assert (value(reader, "tokenizer.ggml.merges") or []) == pairs
    template = folder / "chat_template.jinja"
    assert value(reader, "tokenizer.chat_template") == (template.read_text() if template.exists() else None)


def kv_heads_of(config):
    heads = config["num_key_value_heads"]
    if spaces_of(config):
        return [0 if space else heads for space in spaces_of(config)]
    if "global_head_dim" in config:
        return [config["num_global_key_value_heads"] if kind == "full_attention" else heads for kind in config["layer_types"]]
    return [0 if kind == "conv" else heads for kind in config["layer_types"]] if config["model_type"].startswith("lfm2") else heads


def model(folder, quantization, pre, scratch):
    file = scratch / f"{folder.name}-{quantization}.gguf"
    probe("model", folder, quantization, file)
    reader = GGUFReader(file)
    config = config_of(folder)
    arch = ARCHS[config["model_type"]]
    if config["model_type"] == "nemotron_h" and "moe" in config["layers_block_type"]:
        arch = MODEL_ARCH.NEMOTRON_H_MOE
    prefix = MODEL_ARCH_NAMES[arch]
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    wanted = {
        "general.architecture": prefix, "general.type": "model", "tokenizer.ggml.pre": pre,
        f"{prefix}.block_count": config["num_hidden_layers"], f"{prefix}.embedding_length": config["hidden_size"],
        f"{prefix}.feed_forward_length": config.get("intermediate_size"), f"{prefix}.attention.head_count": heads,
        f"{prefix}.attention.head_count_kv": kv_heads_of(config),
        f"{prefix}.attention.key_length": config.get("global_head_dim") or config.get("head_dim") or config["hidden_size"] // heads,
        f"{prefix}.context_length": config["max_position_embeddings"], f"{prefix}.vocab_size": config["vocab_size"],
        f"{prefix}.rope.freq_base": np.float32(config.get("rope_theta", rope.get("full_attention", rope).get("rope_theta", 10000))),
    }
    centred = config["model_type"] == "nemotron"
    wanted[f"{prefix}.attention.layer_norm_{'' if centred else 'rms_'}epsilon"] = np.float32(next(config[key] for key in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon") if key in config))
    if config["model_type"] == "granitemoehybrid":
        wanted[f"{prefix}.feed_forward_length"] = config["intermediate_size"]
    if config["model_type"].startswith("granite"):
        for ours, theirs in (("attention.scale", "attention_multiplier"), ("embedding_scale", "embedding_multiplier"),
                             ("residual_scale", "residual_multiplier"), ("logit_scale", "logits_scaling")):
            wanted[f"{prefix}.{ours}"] = np.float32(config[theirs])
    if config["model_type"].startswith("lfm2"):
        wanted[f"{prefix}.shortconv.l_cache"] = config["conv_L_cache"]
    if "linear_num_value_heads" in config:
        values = config["linear_num_value_heads"]
        wanted.update({f"{prefix}.ssm.conv_kernel": config["linear_conv_kernel_dim"],
                       f"{prefix}.ssm.state_size": config["linear_key_head_dim"],
                       f"{prefix}.ssm.group_count": config["linear_num_key_heads"], f"{prefix}.ssm.time_step_rank": values,
                       f"{prefix}.ssm.inner_size": values * config["linear_value_head_dim"],
                       f"{prefix}.full_attention_interval": config["layer_types"].index("full_attention") + 1})
    if config["model_type"] == "ministral3":
        scaling = config["rope_scaling"]
        wanted.update({f"{prefix}.attention.temperature_scale": np.float32(scaling["llama_4_scaling_beta"]),
                       f"{prefix}.rope.scaling.yarn_log_multiplier": np.float32(scaling["mscale_all_dim"]),
                       f"{prefix}.rope.scaling.original_context_length": scaling["original_max_position_embeddings"]})
    if config["model_type"] in BUILT_AS:
        wanted[f"{prefix}.rope.dimension_sections"] = [*rope["mrope_section"], 0]
        if "qwen3" in config["model_type"]:
            wanted[f"{prefix}.n_deepstack_layers"] = len(config["vision_config"]["deepstack_visual_indexes"])
    if config["model_type"] == "gemma2":
        for key in ("attn_logit_softcapping", "final_logit_softcapping"):
            wanted[f"{prefix}.{key}"] = np.float32(config[key])
    if config["model_type"] == "gemma4_text":
        slides = [kind == "sliding_attention" for kind in config["layer_types"]]
        wanted.update({f"{prefix}.attention.sliding_window_pattern": slides, f"{prefix}.attention.shared_kv_layers": 0,
                       f"{prefix}.embedding_length_per_layer_input": 0, f"{prefix}.final_logit_softcapping": 0,
                       f"{prefix}.rope.freq_base_swa": np.float32(rope["sliding_attention"]["rope_theta"])})
        for key, width in (("attention.key_length", "head_dim"), ("attention.value_length", "head_dim"), ("rope.dimension_count", "head_dim")):
            wanted.update({f"{prefix}.{key}_swa": config[width], f"{prefix}.{key}": config[f"global_{width}"]})
    if config["model_type"] in ("olmo3", "gemma2", "gemma3_text", "gemma4_text", "gpt_oss"):
        wanted[f"{prefix}.attention.sliding_window"] = config["sliding_window"]
    for ours, names in (("expert_count", ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")),
                        ("expert_used_count", ("num_experts_per_tok", "moe_k", "top_k_experts")),
                        ("expert_shared_count", ("n_shared_experts", "moe_num_shared_experts")),
                        ("leading_dense_block_count", ("first_k_dense_replace", "moe_layer_start_index", "num_dense_layers"))):
        wanted.update({f"{prefix}.{ours}": config[name] for name in names if name in config})
    if config["model_type"] == "granitemoehybrid" and not config["num_local_experts"]:
        wanted.update({f"{prefix}.expert_count": None, f"{prefix}.expert_used_count": None})
    if config["model_type"] == "nemotron_h" and "moe" not in config["layers_block_type"]:
        wanted.update({f"{prefix}.expert_count": None, f"{prefix}.expert_used_count": None, f"{prefix}.expert_shared_count": None})
    if config["model_type"] == "gpt_oss":
        wanted[f"{prefix}.expert_feed_forward_length"] = config["intermediate_size"]
    if config["model_type"] == "glm4_moe":
        wanted.update({f"{prefix}.expert_gating_func": 2, f"{prefix}.expert_weights_norm": config["norm_topk_prob"],
                       f"{prefix}.expert_weights_scale": np.float32(config["routed_scaling_factor"])})
    if config["model_type"] == "lfm2_moe":
        wanted[f"{prefix}.expert_gating_func"] = 2
    if config["model_type"] == "ernie4_5_moe":
        wanted[f"{prefix}.interleave_moe_layer_step"] = 1
        wanted[f"{prefix}.expert_shared_feed_forward_length"] = config["moe_num_shared_experts"] * config["moe_intermediate_size"]
    if config["model_type"] in ("gemma4_text", "qwen2_moe", "qwen3_moe", "glm4_moe", "ernie4_5_moe", "lfm2_moe", "qwen3_5_moe_text", "qwen3_next", "qwen3_vl_moe"):
        wanted[f"{prefix}.expert_feed_forward_length"] = config.get("moe_intermediate_size")
    if config["model_type"] in ("qwen2_moe", "qwen3_5_moe_text", "qwen3_next"):
        wanted[f"{prefix}.expert_shared_feed_forward_length"] = config["shared_expert_intermediate_size"]
    if "kv_lora_rank" in config:
        wanted.update(keys_of_latent(config, prefix))
    if spaces_of(config) or config["model_type"] == "falcon_h1":
        wanted.update(keys_of_spaces(config, prefix))
    for key, expected in wanted.items():
        assert value(reader, key) == expected, f"{key}: {value(reader, key)}, expected {expected}"
    same_tokenizer(reader, folder, config)
    names = get_tensor_name_map(arch, config["num_hidden_layers"])
    base = keys_and_values(config, queries_and_gate(config, stacked(config, tensors_in(folder / "model.safetensors"))))
    if has_own_head_in_files(config):
        base["lm_head.weight"] = base["model.embed_tokens.weight"]
    found = {tensor.name: tensor for tensor in reader.tensors}
    if config["model_type"] == "gemma4_text":
        same_tensor(found.pop("rope_freqs.weight"), still_frequencies(config), "f32")
    assert len(found) == len(base), f"{len(found)} tensors, expected {len(base)}"
    for name, weights in base.items():
        by_module = name.replace("correction_bias", "correction.bias").replace("expert_bias", "expert_bias.bias")  # likewise
        by_module = by_module.replace(".dt_bias", ".dt_proj.bias").replace(".layer_scalar", ".layer_scalar.weight")
        if ".mixer.experts." in name:  # as the converter has it
            by_module = by_module.replace("backbone.", "model.").replace(".mixer.", ".mlp.")
        by_module = by_module.removeprefix("model." if ".feed_forward.experts." in name else "")
        theirs = names.get_name(by_module, try_suffixes=(".weight", ".bias"))
        for factor, ours in ((".router.scale", "ffn_gate_inp"), (".router.per_expert_scale", "ffn_down_exps")):  # as the converter has them
            theirs = f"blk.{name.split('.')[2]}.{ours}.scale" if name.endswith(factor) else theirs
        theirs = theirs or {"lm_head.weight": "output.weight"}[name]  # which the package forgot of lfm2moe
        theirs += ".weight" if name.endswith(".sinks") else ""  # as the converter has it
        same_tensor(found[theirs], expected_rows(config, name, weights), quantization)


def still_frequencies(config):
    """What frequencies of layers that see all are divided by, as the package's converter has it."""
    width, share = config["global_head_dim"], config["rope_parameters"]["full_attention"]["partial_rotary_factor"]
    turned = int(width * share / 2)
    return np.array([1.0] * turned + [1e30] * (width // 2 - turned), dtype=np.float32)


def with_norms(folder):
    """Weights of norms, factors and scales that differ: those that a model begins with are all alike. Eighths, to which one adds exactly."""
    random = np.random.default_rng(29)
    with safe_open(folder / "model.safetensors", framework="pt") as opened:
        tensors = {name: opened.get_tensor(name).to(torch.float32).numpy() for name in opened.keys()}
    for name in sorted(tensors):
        if name.endswith(("norm.weight", "layernorm_1.weight", "layernorm_2.weight", "scale", "scalar")):
            tensors[name] = tensors[name] + random.integers(-4, 5, tensors[name].shape).astype(np.float32) / 8
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def adapter(folder, scratch):
    file = scratch / f"{folder.name}-adapter.gguf"
    probe("adapter", folder / "base", folder / "adapter", "f32", file)
    reader = GGUFReader(file)
    config = json.loads((folder / "base" / "config.json").read_text())
    lora = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    scale = lora["lora_alpha"] / (lora["r"] ** 0.5 if lora["use_rslora"] else lora["r"])
    assert value(reader, "general.type") == "adapter" and value(reader, "adapter.type") == "lora"
    assert abs(value(reader, "adapter.lora.alpha") / lora["r"] - scale) < 1e-6
    names = get_tensor_name_map(ARCHS[config["model_type"]], config["num_hidden_layers"])
    base = tensors_in(folder / "adapter" / "adapter_model.safetensors")
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert len(found) == len(base)
    for name, weights in base.items():
        module, factor, _ = name.removeprefix("base_model.model.").rsplit(".", 2)
        if factor == "lora_B":
            weights = expected_rows(config, module + ".", weights)
        same_tensor(found[f"{names.get_name(module)}.weight.{factor.lower()}"], weights, "f32")


def decoding(name, scratch):
    """A million random numbers of a type, bit for bit."""
    random = np.random.default_rng(17)
    numbers, _ = GGML_QUANT_SIZES[Type[name]]
    blocks = np.concatenate([random_blocks(random, name) for _ in range(3000 if numbers == 1 else 1000)])
    (scratch / "codes").write_bytes(blocks.tobytes())
    probe("decode", Type[name].value, scratch / "codes", scratch / "numbers")
    wanted = dequantize(blocks, Type[name]).astype(np.float32)
    found = np.frombuffer((scratch / "numbers").read_bytes(), dtype=np.float32)
    assert found.tobytes() == wanted.tobytes(), f"{(found != wanted).sum()} of {wanted.size} numbers differ"


TEXTS = ["Hello, world! It's 2024.", "  two  blanks \n\n lines\t", "\u00dcber caf\u00e9 \u4f60\u597d \U0001f680", "",
         "<|im_start|>user\nhi<|im_end|>\n", "x = {'a': [1, 22, 333]}  # don't"]


def logits_of(folder, ids):
    kind = AutoModelForImageTextToText if "vision_config" in config_of(folder) else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32, experts_implementation="eager")
    for weights in model.parameters():  # where they lie in the file decides on what multiplies them
        weights.data = weights.data.clone()
    with torch.no_grad():
        return model(ids).logits


def round_trip(folder, scratch):
    """Exported, read back, loaded by transformers: the same logits, ids and templates as the directory's own."""
    file, back = scratch / f"{folder.name}-back.gguf", scratch / f"{folder.name}-back"
    probe("model", folder, "f32", file)
    probe("import", file, back)
    base, found = tensors_in(folder / "model.safetensors"), tensors_in(back / "model.safetensors")
    sees = "vision_config" in config_of(folder)
    if sees:  # experts of the whole are one tensor
        base, found = stacked(config_of(folder), base), stacked(config_of(folder), found)
    if has_own_head_in_files(config_of(folder)):
        base["lm_head.weight"] = base["model.embed_tokens.weight"]
    assert base.keys() == found.keys()
    stored = config_of(folder)
    factors = stored.get("key_multiplier", 1.0) != 1.0  # which files have in weights
    for name in base if not factors else []:  # files have -exp(A_log)
        close = np.allclose(base[name], found[name], rtol=1e-6, atol=1e-6) if name.endswith("A_log") else False
        assert close or (base[name] == found[name]).all(), name
    theirs, ours = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(back)
    for text in TEXTS:
        assert ours(text).input_ids == theirs(text).input_ids, text
        assert ours.decode(ours(text).input_ids) == theirs.decode(theirs(text).input_ids), text
    chat = [{"role": "user", "content": "hi"}]
    assert ours.apply_chat_template(chat, tokenize=False) == theirs.apply_chat_template(chat, tokenize=False)
    assert (ours.bos_token, ours.eos_token, ours.pad_token) == (theirs.bos_token, theirs.eos_token, theirs.pad_token)
    ids = torch.tensor([theirs("Hello, world").input_ids])
    wanted, logits = logits_of(folder, ids), logits_of(back, ids)
    exact = not sees and not factors and not any(name.endswith("A_log") for name in base)
    assert torch.equal(logits, wanted) if exact else torch.allclose(logits, wanted, rtol=1e-5, atol=1e-6), (logits - wanted).abs().max()


def foreign(scratch):
    """A llama file of the package's own making, its matrices random blocks of every type in turn."""
    heads, width, layers, vocabulary = 2, 256, 3, 8
    random = np.random.default_rng(23)
    file, wanted = scratch / "foreign.gguf", {}
    writer = GGUFWriter(str(file), "llama")
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([b"<unk>", b"<s>", b"</s>", b"a", b"b", b"ab", b"\xe2\x96\x81", b"<0x41>"])
    writer.add_token_scores([0.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0, 0.0])
    writer.add_token_types([2, 3, 3, 1, 1, 1, 1, 6])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    kinds = [name for name in HALVES if name != "F32"]
    made = 0

    def add(name, theirs, rows):
        nonlocal made
        kind = Type[kinds[made % len(kinds)]]
        made += 1
        blocks = np.empty(0, dtype=np.uint8)
        while blocks.size < rows * width // GGML_QUANT_SIZES[kind][0] * GGML_QUANT_SIZES[kind][1]:
            blocks = np.concatenate([blocks, random_blocks(random, kind.name)])
        data = blocks[: rows * width // GGML_QUANT_SIZES[kind][0] * GGML_QUANT_SIZES[kind][1]].reshape(rows, -1)
        writer.add_tensor(theirs, data.copy(), raw_dtype=kind)
        wanted[name] = dequantize(data, kind).astype(np.float32).reshape(rows, width)

    def norm(name, theirs):
        wanted[name] = random.standard_normal(width).astype(np.float32)
        writer.add_tensor(theirs, wanted[name])

    add("model.embed_tokens.weight", "token_embd.weight", vocabulary)
    for i in range(layers):
        for theirs, ours in (("attn_q", "self_attn.q_proj"), ("attn_k", "self_attn.k_proj"), ("attn_v", "self_attn.v_proj"),
                             ("attn_output", "self_attn.o_proj"), ("ffn_gate", "mlp.gate_proj"), ("ffn_up", "mlp.up_proj"),
                             ("ffn_down", "mlp.down_proj")):
            add(f"model.layers.{i}.{ours}.weight", f"blk.{i}.{theirs}.weight", width)
        norm(f"model.layers.{i}.input_layernorm.weight", f"blk.{i}.attn_norm.weight")
        norm(f"model.layers.{i}.post_attention_layernorm.weight", f"blk.{i}.ffn_norm.weight")
    norm("model.norm.weight", "output_norm.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    probe("import", file, scratch / "foreign")
    found = tensors_in(scratch / "foreign" / "model.safetensors")
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for name, weights in wanted.items():
        if ".q_proj." in name or ".k_proj." in name:  # (i, half) of each head back to (half, i)
            weights = weights.reshape(heads, -1, 2, width).swapaxes(1, 2).reshape(weights.shape)
        assert found[name].tobytes() == np.ascontiguousarray(weights).tobytes(), name
    tokenizer = AutoTokenizer.from_pretrained(scratch / "foreign")
    assert tokenizer("ab A").input_ids == [1, 6, 5, 6, 7], tokenizer("ab A").input_ids


def main():
    global PROBE
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True)
    parser.add_argument("--archs", nargs="*")
    parser.add_argument("--model", action="append", default=[], type=pathlib.Path)
    arguments = parser.parse_args()
    PROBE = arguments.probe
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for arch in arguments.archs or [*(arch for arch in ARCHS if arch not in MADE_OF.values() or arch in ("bamba", "falcon_h1")), "gemma4_text+experts", *MADE_OF]:
            probe("init", MADE_OF.get(arch) or BUILT_AS.get(arch, arch), scratch / arch)
            if arch in BUILT_AS:
                make_whole(scratch / arch, arch)
            if arch in MADE_OF:
                make_spaces(scratch / arch, arch)
            with_norms(scratch / arch)
            for quantization in TYPES:
                check(f"{arch} {quantization}", model, scratch / arch, quantization, "gpt-2", scratch)
            check(f"{arch} round trip", round_trip, scratch / arch, scratch)
        for name in HALVES:
            check(f"decode {name}", decoding, name, scratch)
        check("foreign file", foreign, scratch)
        for case in ("plain", "rslora"):
            check(f"adapter {case}", adapter, ROOT / "tests" / "data" / "merge" / case, scratch)
        for folder in arguments.model:
            for quantization in TYPES:
                check(f"{folder.name} {quantization}", model, folder, quantization, "smollm", scratch)
            check(f"{folder.name} round trip", round_trip, folder, scratch)
    print(f"{len(FAILURES)} failures")
    return len(FAILURES)


if __name__ == "__main__":
    sys.exit(main())
