"""What files have of a parameter, under Rondo's names: transformers holds the experts of a block in one tensor, files have
each by itself. GPT-OSS's files have one tensor too, and Phi-3's one for q, k and v and one for gate and up, but Rondo names
their parts as it does those of the others."""


def names_of(model_type):
    """Module and matrices of an expert, as files have them."""
    if model_type == "lfm2_moe":
        return "feed_forward", "w1", "w3", "w2"
    if model_type in ("mixtral", "minimax_m2"):
        return "block_sparse_moe", "w1", "w3", "w2"
    return "mlp", "gate_proj", "up_proj", "down_proj"


def parts_of_stack(name, tensor):
    """GPT-OSS: gate and up in turns, matrices transposed."""
    experts, _, what = name.rpartition(".")
    if what == "down_proj":
        return [(f"{experts}.{e}.down_proj.weight", part.T) for e, part in enumerate(tensor)]
    if what == "gate_up_proj":
        return [(f"{experts}.{e}.{word}.weight", part[:, first::2].T)
                for e, part in enumerate(tensor) for first, word in enumerate(("gate_proj", "up_proj"))]
    if what == "gate_up_proj_bias":
        return [(f"{experts}.{word}.bias", tensor[:, first::2]) for first, word in enumerate(("gate_proj", "up_proj"))]
    return [(name.replace("down_proj_bias", "down_proj.bias"), tensor)]


def parts_of_space(name, tensor, heads, width, state):
    """Mamba's: rows of what the first linear layer and the convolution give behind one another. None of other tensors."""
    rows = {"in_proj": dict(z_proj=width, x_proj=width, b_proj=state, c_proj=state, dt_proj=heads),
            "conv1d": dict(x_conv1d=width, b_conv1d=state, c_conv1d=state)}
    for fused, parts in rows.items():
        if f".{fused}." in name and "lora_A" not in name:
            return [(name.replace(fused, word), part) for word, part in zip(parts, tensor.split(list(parts.values())))]
    return None


def parts_of_nemotron(config, name, tensor):
    """Nemotron-H: of all experts one tensor, and one of a state space's linear layers."""
    parts = parts_of_space(name, tensor, config.mamba_num_heads, config.mamba_num_heads * config.mamba_head_dim,
                           config.n_groups * config.ssm_state_size)
    experts, _, what = name.rpartition(".")
    if experts.endswith(".experts"):
        return [(f"{experts}.{e}.{what}.weight", part) for e, part in enumerate(tensor)]
    return parts or [(name, tensor)]


def parts_of_mamba(config, name, tensor):
    """Of a block's state space the parts of what is one tensor, where the rest is as it is."""
    width = config.mamba_n_heads * config.mamba_d_head
    parts = parts_of_space(name, tensor, config.mamba_n_heads, width, config.mamba_n_groups * config.mamba_d_state)
    return parts or [(name, tensor)]


def parts_of_granite(config, name, tensor):
    """Granite's mixtures: files have experts in stacks, but Rondo names each by itself, and another name of the router."""
    if ".mamba." in name:
        return parts_of_mamba(config, name, tensor)
    if ".shared_mlp.input_linear." in name and "lora_A" not in name:
        return [(name.replace("input_linear", word), half) for word, half in zip(("gate_proj", "up_proj"), tensor.chunk(2))]
    block, _, rest = name.partition(".block_sparse_moe.")
    if rest == "router.weight":
        return [(f"{block}.block_sparse_moe.router.layer.weight", tensor)]
    if rest == "experts.down_proj":
        return [(f"{block}.block_sparse_moe.experts.{e}.down_proj.weight", part) for e, part in enumerate(tensor)]
    if rest == "experts.gate_up_proj":
        return [(f"{block}.block_sparse_moe.experts.{e}.{word}.weight", half)
                for e, part in enumerate(tensor) for word, half in zip(("gate_proj", "up_proj"), part.chunk(2))]
    return [(name, tensor)]


def parts_of_gemma(name, tensor):
    """Gemma 4's mixtures: files have experts in stacks beside the MLP."""
    experts, _, what = name.rpartition(".")
    if what == "down_proj":
        return [(f"{experts}.{e}.down_proj.weight", part) for e, part in enumerate(tensor)]
    return [(f"{experts}.{e}.{word}.weight", half)
            for e, part in enumerate(tensor) for word, half in zip(("gate_proj", "up_proj"), part.chunk(2))]


def parts_of_fused(config, name, tensor):
    """Phi-3, LFM2: rows of several linear layers behind one another; of an adapter too, but for the factor that they share."""
    heads = config.hidden_size // config.num_attention_heads
    rows = {"qkv_proj": {"q_proj": heads * config.num_attention_heads, "k_proj": heads * config.num_key_value_heads,
                         "v_proj": heads * config.num_key_value_heads},
            "gate_up_proj": {"gate_proj": config.intermediate_size, "up_proj": config.intermediate_size},
            "in_proj": dict.fromkeys(("b_proj", "c_proj", "x_proj"), config.hidden_size)}
    for fused, parts in rows.items():
        if f".{fused}." in name and "lora_A" not in name:
            return [(name.replace(fused, word), part)
                    for word, part in zip(parts, tensor.split(list(parts.values())))]
    return [(name, tensor)]


def parts_of_delta(config, name, tensor):
    """Qwen3.5: of each head rows of queries, then of their gate; q, k and v of linear attention behind one another."""
    config = getattr(config, "text_config", config)
    if "lora_A" in name:
        return [(name, tensor)]
    if ".self_attn.q_proj." in name:
        heads = tensor.reshape(config.num_attention_heads, 2, config.head_dim, *tensor.shape[1:])
        return [(name.replace("q_proj", word), heads[:, half].reshape(-1, *tensor.shape[1:]))
                for half, word in enumerate(("query_proj", "gate_proj"))]
    for joined, words in {"in_proj_qkvz": ("q_proj", "k_proj", "v_proj", "z_proj"), "in_proj_ba": ("b_proj", "a_proj")}.items():
        if f".{joined}." in name:
            return [(name.replace(joined, word), part) for word, part in zip(words, parts_by_heads(config, words, tensor))]
    keys = config.linear_num_key_heads * config.linear_key_head_dim
    rows = [keys, keys, config.linear_num_value_heads * config.linear_value_head_dim]
    for fused, words in {"in_proj_qkv": ("q_proj", "k_proj", "v_proj"),
                         "conv1d": ("q_conv1d", "k_conv1d", "v_conv1d")}.items():
        if f".{fused}." in name:
            return [(name.replace(fused, word), part) for word, part in zip(words, tensor.split(rows))]
    return [(name, tensor)]


def parts_by_heads(config, words, tensor):
    """Qwen3-Next: of each head of keys rows of one part behind those of the other."""
    values = config.linear_num_value_heads // config.linear_num_key_heads
    of_values = values * config.linear_value_head_dim
    rows = [config.linear_key_head_dim] * 2 + [of_values] * 2 if len(words) == 4 else [values] * 2
    heads = tensor.reshape(config.linear_num_key_heads, sum(rows), *tensor.shape[1:])
    return [part.reshape(-1, *tensor.shape[1:]) for part in heads.split(rows, dim=1)]


def parts_of_factors(config, name, tensor):
    """An adapter's B of all experts [out, r * E]: of each linear layer [E * out, r], expert by expert."""
    count = getattr(config, "num_experts", None) or config.num_local_experts
    b = tensor.reshape(tensor.shape[0], -1, count).permute(2, 0, 1)
    experts = name.partition(".experts.")[0] + ".experts."
    inner = ".base_layer." in name or tensor.shape[0] != config.hidden_size
    if inner and config.model_type == "nemotron_h":
        parts = {"up_proj": b}
    elif inner:
        half = tensor.shape[0] // 2
        gate, up = (b[:, 0::2], b[:, 1::2]) if config.model_type == "gpt_oss" else (b[:, :half], b[:, half:])
        parts = {"gate_proj": gate, "up_proj": up}
    else:
        parts = {"down_proj": b}
    return [(f"{experts}{word}.lora_B.weight", part.reshape(-1, part.shape[2])) for word, part in parts.items()]


LATENT = ("glm4_moe_lite", "deepseek_v3", "deepseek_v2", "youtu", "minicpm3")  # attention by a latent


def parts_of_latent(config, name, tensor):
    """Of each head of queries first the channels that turn, pairs parted; keys' and values' parts by themselves."""
    if "lora_A" in name:
        return [(name, tensor)]
    heads, plain, turned, values = config.num_attention_heads, config.qk_nope_head_dim, config.qk_rope_head_dim, config.v_head_dim
    pairs = [*range(0, turned, 2), *range(1, turned, 2)] if getattr(config, "rope_interleave", config.model_type != "minicpm3") else [*range(turned)]
    if ".q_proj." in name or ".q_b_proj." in name:
        order = [*(plain + i for i in pairs), *range(plain)]
        return [(name, tensor.reshape(heads, plain + turned, *tensor.shape[1:])[:, order].reshape(tensor.shape))]
    if ".kv_a_proj_with_mqa." in name:
        return [(name.replace("kv_a_proj_with_mqa", "latent_proj"), tensor[:config.kv_lora_rank]),
                (name.replace("kv_a_proj_with_mqa", "turned_proj"), tensor[config.kv_lora_rank:][pairs])]
    if ".kv_b_proj." in name:
        parts = tensor.reshape(heads, plain + values, *tensor.shape[1:]).split([plain, values], dim=1)
        return [(name.replace("kv_b_proj", word), part.reshape(-1, *tensor.shape[1:]))
                for word, part in zip(("key_proj", "value_proj"), parts)]
    return [(name, tensor)]


PAIRED = ("ernie4_5", "ernie4_5_moe", "glm", "glm4", "helium", "cohere", "cohere2")  # neighbouring channels of queries and keys turn


def with_pairs_parted(config, name, tensor):
    """Rows of queries and keys in Rondo's order: of each head the even ones, the odd ones, those that do not turn."""
    if "lora_A" in name or not (".q_proj." in name or ".k_proj." in name):
        return tensor
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = int(size * config.rope_parameters.get("partial_rotary_factor", 1.0))
    order = [*range(0, turned, 2), *range(1, turned, 2), *range(turned, size)]
    return tensor.reshape(-1, size, *tensor.shape[1:])[:, order].reshape(tensor.shape)


def parts_of_joined(config, name, tensor):
    """GPT-NeoX: of each head rows of queries, keys and values behind one another."""
    if ".query_key_value." not in name or "lora_A" in name:
        return [(name, tensor)]
    heads = tensor.reshape(config.num_attention_heads, 3, -1, *tensor.shape[1:])
    return [(name.replace("query_key_value", word), heads[:, part].reshape(-1, *tensor.shape[1:]))
            for part, word in enumerate(("q_proj", "k_proj", "v_proj"))]


def in_files(config, name, tensor):
    """What files have of the parameter `name`, as pairs of name and tensor."""
    model_type = config.model_type
    if ".experts." in name and "lora_" in name:
        return parts_of_factors(config, name, tensor) if "lora_B" in name else [(name, tensor)]
    if model_type == "gpt_neox":
        return parts_of_joined(config, name, tensor)
    if model_type == "nemotron_h":
        return parts_of_nemotron(config, name, tensor)
    if model_type in ("bamba", "falcon_h1"):
        return parts_of_mamba(config, name, tensor)
    if model_type in PAIRED:
        tensor = with_pairs_parted(config, name, tensor)
    if model_type in ("phi3", "glm", "glm4", "lfm2") or model_type == "lfm2_moe" and ".experts." not in name and ".gate." not in name:
        return parts_of_fused(config, name, tensor)
    if model_type.startswith(("qwen3_5", "qwen3_next")) and ".mlp." not in name:
        return parts_of_delta(config, name, tensor)
    if model_type in LATENT and ".self_attn." in name:
        return parts_of_latent(config, name, tensor)
    module, gate, up, down = names_of(model_type)
    block, _, rest = name.partition(".feed_forward." if model_type == "lfm2_moe" else ".mlp.")
    if model_type == "gpt_oss":
        return parts_of_stack(name, tensor)
    if model_type.startswith("gemma4") and ".experts." in name:
        return parts_of_gemma(name, tensor)
    if model_type.startswith("granitemoe"):
        return parts_of_granite(config, name, tensor)
    if rest == "gate.moe_statics.e_score_correction_bias":
        return [(f"{block}.mlp.{rest.removeprefix('gate.')}", tensor)]
    if rest == "gate.e_score_correction_bias" and model_type == "exaone_moe":
        return [(f"{block}.mlp.e_score_correction_bias", tensor)]
    if rest == "e_score_correction_bias":
        return [(f"{block}.{module}.e_score_correction_bias", tensor)]
    if rest == "gate.weight":
        return [(f"{block}.{module}.gate.weight", tensor)]
    if rest == "experts.down_proj":
        return [(f"{block}.{module}.experts.{e}.{down}.weight", part) for e, part in enumerate(tensor)]
    if rest == "experts.gate_up_proj":
        return [(f"{block}.{module}.experts.{e}.{word}.weight", half)
                for e, part in enumerate(tensor) for word, half in zip((gate, up), part.chunk(2))]
    return [(name, tensor)]
