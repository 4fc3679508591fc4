"""State spaces as the converters of the package gguf have them: keys, shapes and numbers."""
import numpy as np
import torch


def spaces_of(config):
    """Which blocks have a state space in attention's place; None of models that have none."""
    if config["model_type"] == "bamba":
        return [layer not in config["attn_layer_indices"] for layer in range(config["num_hidden_layers"])]
    kinds = config["layer_types"] if config["model_type"] == "granitemoehybrid" else config.get("layers_block_type")
    return [kind not in ("attention", "full_attention") for kind in kinds] if kinds else None


def keys_of_spaces(config, prefix):
    """What the package's converters write of them."""
    lone = config["model_type"] == "nemotron_h"
    theirs = ("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads") if lone else ("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads")
    wanted = {f"{prefix}.ssm.{ours}": config[key] for ours, key in zip(("conv_kernel", "state_size", "group_count", "time_step_rank"), theirs)}
    if lone:
        wanted[f"{prefix}.ssm.inner_size"] = config["mamba_num_heads"] * config["mamba_head_dim"]
        experts = "moe" in config["layers_block_type"]
        width = config["moe_intermediate_size" if experts else "intermediate_size"]
        wanted[f"{prefix}.feed_forward_length"] = [width if kind in ("mlp", "moe") else 0 for kind in config["layers_block_type"]]
        if experts:
            wanted.update({f"{prefix}.expert_feed_forward_length": width, f"{prefix}.expert_weights_norm": config["norm_topk_prob"],
                           f"{prefix}.expert_shared_feed_forward_length": config["moe_shared_expert_intermediate_size"],
                           f"{prefix}.expert_shared_count": 1, f"{prefix}.expert_weights_scale": np.float32(config["routed_scaling_factor"])})
        return wanted
    wanted[f"{prefix}.ssm.inner_size"] = config.get("mamba_d_ssm") or config["mamba_expand"] * config["hidden_size"]
    if config["model_type"] != "falcon_h1":
        wanted[f"{prefix}.rope.scaling.finetuned"] = config["model_type"] == "bamba"
    return wanted


def factor_of(config, name):
    """Of Falcon-H1, which the package's converter multiplies weights by: a number, or one a row."""
    if config["model_type"] != "falcon_h1":
        return np.float32(1)
    if name.endswith("in_proj.weight"):
        width, row = config["mamba_d_ssm"], config["mamba_n_groups"] * config["mamba_d_state"]
        factors = np.repeat(config["ssm_multipliers"], [width, width, row, row, config["mamba_n_heads"]])
        return np.float32(config["ssm_in_multiplier"] * factors)[:, None]
    gate, down = config["mlp_multipliers"]
    into = config["attention_in_multiplier"]
    factors = {"down_proj": down, "gate_proj": gate, "q_proj": into, "v_proj": into, "k_proj": into * config["key_multiplier"],
               "o_proj": config["attention_out_multiplier"], "out_proj": config["ssm_out_multiplier"],
               "lm_head": config["lm_head_multiplier"], "embed_tokens": config["embedding_multiplier"]}
    return np.float32(factors.get(name.split(".")[-2], 1.0))


def has_own_head_in_files(config):
    """A tied Falcon-H1 whose head is times another number than its embedding; the package's converter has no head of it, and loses the number."""
    return config["model_type"] == "falcon_h1" and config["tie_word_embeddings"] and config["lm_head_multiplier"] != config["embedding_multiplier"]


def expected_of_spaces(config, name, weights):
    """As the package's converters have them."""
    if name.endswith("conv1d.weight"):
        return weights[:, 0]
    if name.endswith("A_log"):
        weights = -torch.exp(torch.from_numpy(weights)).numpy()
    if name.endswith((".A_log", ".D")):
        return weights[:, None]
    groups = config["n_groups" if config["model_type"] == "nemotron_h" else "mamba_n_groups"]
    return weights.reshape(groups, -1) if name.endswith((".mamba.norm.weight", ".mixer.norm.weight")) else weights
