"""Random model configurations for fuzz.py: each a case of families.py with other sizes, flags, factors and lists of layers,
and its config.json in other spellings.

What transformers refuses is drawn again; what it makes of a file is the reference.
"""
import json

import torch
import transformers

import families

# Within these the case's own value or a larger one: with a smaller epsilon what a head gives is next to nothing at single
# tokens, and gradients show rounding (docs/numerics.md).
KEEPS_EPSILON = ("qwen3_5", "qwen3_next", "nemotron_h", "bamba", "falcon_h1", "granitemoehybrid", "gemma4", "lfm2")
FILLS_WIDTH = ("helium", "cohere", "stablelm", "gpt_neox", "olmo", "starcoder2", "nemotron_biased")
ONE_ACTIVATION = ("arcee", "nemotron", "qwen3_5", "qwen3_next", "nemotron_h", "bamba", "falcon_h1", "granitemoehybrid", "gpt_oss",
                  "minimax_m2")
OWN_ROPES = ("gemma4", "ministral3", "phi3", "hunyuan", "nemotron_h")  # settings of one kind, or none
TURN_IN_PART = ("bamba", "qwen3_5", "qwen3_next", "glm", "stablelm", "nemotron", "gpt_neox")
FLAGS = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "norm_topk_prob", "use_qk_norm", "use_post_norm",
         "mup_enabled", "use_parallel_residual", "use_qkv_bias", "qkv_bias", "attention_out_bias", "mamba_conv_bias",
         "mamba_proj_bias", "mamba_rms_norm", "mamba_norm_before_gate", "rope_interleave", "use_expert_bias", "use_conv_bias",
         "use_sliding_window", "use_double_wide_mlp", "block_auto_adjust_ff_dim")
# What Rondo refuses by name, by the first word of a case: seldom drawn, for each such draw compares nothing else.
REFUSED_FLAGS = {"granite": ("attention_bias", "mlp_bias"), "granitemoe": ("attention_bias",), "granitemoeshared": ("attention_bias",),
                 "granitemoehybrid": ("attention_bias", "mamba_proj_bias"), "cohere": ("use_qk_norm",), "deepseek": ("norm_topk_prob",),
                 "falcon": ("attention_bias", "mlp_bias", "mamba_proj_bias"), "ernie4": ("use_bias",)}
FACTORS = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "attention_multiplier", "logit_scale",
           "routed_scaling_factor", "route_scale", "query_pre_attn_scalar", "attn_logit_softcapping", "final_logit_softcapping",
           "key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier",
           "lm_head_multiplier", "swiglu_alpha", "swiglu_limit", "block_ffn_dim_multiplier")
WIDTHS = ("intermediate_size", "moe_intermediate_size", "shared_expert_intermediate_size", "shared_intermediate_size",
          "moe_shared_expert_intermediate_size", "hidden_size_per_layer_input", "kv_lora_rank", "qk_nope_head_dim",
          "linear_key_head_dim", "linear_value_head_dim")
COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
CHOICES = ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts")
EPSILONS = ("rms_norm_eps", "norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon")
SLIDES = {"sliding_attention", "full_attention"}


def starts(name, prefixes):
    return name.startswith(tuple(prefixes))


def defaults_of(name):
    """What the configuration class says of keys that a case leaves out."""
    config_class = families.CASES[name][0]
    return config_class().to_dict() if isinstance(config_class, type) else {}


def _draw_layers(rng, name, values, known):
    layers = len(values.get("layers_block_type", ())) or rng.choice([1, 2, 2, 3, 3, 4, 5])
    if "num_hidden_layers" in values:
        values["num_hidden_layers"] = layers
    for key in ("layer_types", "mlp_layer_types", "no_rope_layers", "layers_block_type"):
        words = sorted(set(values.get(key, ())), key=str)
        if not words:
            continue
        if key == "layer_types" and set(words) <= SLIDES:
            words = sorted(SLIDES)
            if rng.random() < 0.3 and not starts(name, ("gemma4", "qwen2", "granitemoe")):
                del values[key]
                for pattern in ("sliding_window_pattern", "global_attn_every_n_layers"):
                    if pattern in known and rng.random() < 0.5:
                        values[pattern] = rng.randint(1, 4)
                continue
        if name.startswith("gemma4") and key == "layer_types":
            values[key] = [rng.choice(words) for _ in range(layers - 1)] + ["full_attention"]
            shared = values.get("num_kv_shared_layers")
            if shared is not None:
                values["num_kv_shared_layers"] = rng.randint(0, max(0, layers - 2))
        elif key == "no_rope_layers" and rng.random() < 0.4:
            values.pop(key)
            if rng.random() < 0.5:
                values["no_rope_layer_interval"] = rng.randint(1, 3)
        else:
            values[key] = [rng.choice(words) for _ in range(layers)]
    if "mlp_only_layers" in values:
        values["mlp_only_layers"] = sorted(rng.sample(range(layers), rng.randint(0, layers - 1)))
    if "decoder_sparse_step" in known and rng.random() < 0.3:
        values["decoder_sparse_step"] = rng.randint(1, 2)
    if "attn_layer_indices" in values:
        values["attn_layer_indices"] = sorted(rng.sample(range(layers), rng.randint(1, layers)))
    for key in ("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index"):
        if key in values:
            values[key] = rng.randint(0, layers)
    if "moe_layer_interval" in values:
        values.update(moe_layer_interval=rng.randint(1, 3), moe_layer_end_index=rng.choice([-1, layers - 1, max(0, layers - 2)]))
    if "max_window_layers" in values or "use_sliding_window" in known and name.startswith(("qwen2", "qwen3")):
        values.update(max_window_layers=rng.randint(0, layers), sliding_window=rng.randint(2, 14))


def _draw_heads(rng, name, values, known):
    latent = "kv_lora_rank" in values
    kv = rng.choice([1, 1, 2, 3])
    heads = kv * rng.choice([1, 1, 2, 3, 4])
    size = 2 * rng.randint(2, 14)
    values["num_attention_heads"] = heads
    if "num_key_value_heads" in values:
        values["num_key_value_heads"] = heads if latent else kv
    mrope = values.get("rope_parameters", {}).get("mrope_section")
    fills = starts(name, FILLS_WIDTH)
    values["hidden_size"] = heads * size if fills or rng.random() < 0.5 else rng.randint(17, 80)
    if fills and "head_dim" in values:
        values["head_dim"] = size
    elif "head_dim" in values or "head_dim" in known and not latent and not fills and rng.random() < 0.5:
        values["head_dim"] = 2 * rng.randint(2, 14)
    elif not latent:
        values["hidden_size"] = heads * size
    if "partial_rotary_factor" in values.get("rope_parameters", {}) or starts(name, TURN_IN_PART):
        size = 4 * rng.randint(1, 7)  # half of it is even
        values.update({"head_dim": size} if "head_dim" in values else {"hidden_size": heads * size})
        if fills:
            values["hidden_size"] = heads * size
    if mrope:
        half = (values.get("head_dim") or size) // 2
        first = rng.randint(0, half)
        second = rng.randint(0, half - first)
        values["rope_parameters"] = dict(values["rope_parameters"], mrope_section=[half - first - second, first, second])
    if latent:
        values["qk_rope_head_dim"] = 2 * rng.randint(1, 6)
        values["qk_nope_head_dim"] = rng.randint(3, 16)
        values["v_head_dim"] = rng.randint(2, values["qk_nope_head_dim"] + values["qk_rope_head_dim"])
        values["q_lora_rank"] = rng.choice([None, rng.randint(5, 30)])
    if "global_head_dim" in values:
        values["global_head_dim"] = 4 * rng.randint(2, 9)
        values["attention_k_eq_v"] = rng.random() < 0.5
        values.pop("num_global_key_value_heads", None)
        if values["attention_k_eq_v"]:
            values["num_global_key_value_heads"] = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    if "linear_num_key_heads" in values:
        values["linear_num_key_heads"] = rng.randint(1, 4)
        values["linear_num_value_heads"] = values["linear_num_key_heads"] * rng.randint(1, 3)
        values["linear_conv_kernel_dim"] = rng.randint(2, 4)
    if "conv_L_cache" in values:
        values["conv_L_cache"] = rng.randint(2, 5)
    if name.startswith("hunyuan_moe"):
        values["hidden_size"] = rng.randint(20, 70)


def _draw_spaces(rng, name, values):
    heads = rng.choice([2, 3, 4, 6])
    groups = rng.choice([n for n in (1, 1, 2, 3) if heads % n == 0])
    state = rng.choice([rng.randint(3, 40), rng.randint(100, 140)])
    if name.startswith("nemotron_h"):
        values.update(mamba_num_heads=heads, mamba_head_dim=rng.randint(5, 30), n_groups=groups, ssm_state_size=state,
                      conv_kernel=rng.randint(2, 4))
    elif name.startswith("falcon_h1"):
        values.update(mamba_n_heads=heads, mamba_d_ssm=heads * rng.randint(5, 30), mamba_d_head="auto", mamba_d_state=state,
                      mamba_n_groups=groups, mamba_d_conv=rng.randint(2, 4))
        for key, count in (("ssm_multipliers", 5), ("mlp_multipliers", 2)):
            if key in values or rng.random() < 0.3:
                values[key] = [round(rng.uniform(0.3, 1.4), 3) for _ in range(count)]
    elif starts(name, ("bamba", "granitemoehybrid_")):
        expand = rng.choice([1, 2, 3])
        possible = [n for n in (1, 2, 3, 4, 6) if expand * values["hidden_size"] % n == 0 and n % groups == 0] or [1]
        heads = rng.choice(possible)
        values.update(mamba_expand=expand, mamba_n_heads=heads, mamba_d_head=expand * values["hidden_size"] // heads,
                      mamba_n_groups=groups if heads % groups == 0 else 1, mamba_d_state=state, mamba_d_conv=rng.randint(2, 4))
        if rng.random() < 0.3:
            values["time_step_limit"] = (round(rng.uniform(0.0, 0.3), 3), rng.choice([float("inf"), 1.1]))


def _draw_experts(rng, values):
    count_key = next((key for key in COUNTS if values.get(key)), None)
    if not count_key:
        return
    choices_key = next(key for key in CHOICES if key in values)
    groups, chosen, each = 1, 1, rng.randint(2, 12)
    if "n_group" in values or "norm_topk_prob" in values and "topk_group" in values:
        groups = rng.randint(1, 4)
        chosen = rng.randint(1, groups)
        each = rng.randint(2, 4)
        values.update(n_group=groups, topk_group=chosen)
    values[count_key] = groups * each
    values[choices_key] = rng.randint(1, min(4, chosen * each))
    for key in ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"):
        if key in values:
            values[key] = rng.randint(1, 3)


def _draw_scaling(rng, theta):
    kind = rng.choice(["default", "default", "linear", "dynamic", "yarn", "llama3"])
    rope = dict(rope_type=kind, rope_theta=theta)
    if kind != "default":
        rope["factor"] = round(rng.uniform(1.0, 9.0), 2)
    if kind in ("yarn", "llama3"):
        rope["original_max_position_embeddings"] = rng.choice([8, 16, 32, 64])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=rng.choice([2.0, 4.0]))
    if kind == "yarn":
        for key, low, high in (("beta_fast", 8.0, 40.0), ("beta_slow", 0.5, 2.0), ("attention_factor", 0.6, 1.4), ("mscale", 0.5, 1.2),
                               ("mscale_all_dim", 0.5, 1.2)):
            if rng.random() < 0.3:
                rope[key] = round(rng.uniform(low, high), 3)
        if rng.random() < 0.3:
            rope["truncate"] = rng.random() < 0.5
        if rng.random() < 0.2:
            del rope["original_max_position_embeddings"]
    return rope


def _draw_ropes(rng, name, values):
    values["max_position_embeddings"] = rng.choice([24, 48, 128, 250])
    base = values.get("rope_parameters")
    if base is None or rng.random() < 0.15:
        return
    theta = round(10.0**rng.uniform(2.0, 6.0), 1)
    if name.startswith("phi3"):
        size = values["hidden_size"] // values["num_attention_heads"]
        share = rng.choice([share for share in (0.5, 0.75, 1.0) if int(size * share) % 2 == 0])
        values["original_max_position_embeddings"] = rng.choice([20, 40, 64])
        count = int(size * share) // 2
        values["rope_parameters"] = dict(
            rope_type="longrope", rope_theta=theta, partial_rotary_factor=share,
            short_factor=[round(rng.uniform(0.8, 2.0), 2) for _ in range(count)],
            long_factor=[round(rng.uniform(1.0, 9.0), 2) for _ in range(count)])
        for key, low, high in (("attention_factor", 0.7, 1.3), ("factor", 0.9, 5.0)):
            if rng.random() < 0.3:
                values["rope_parameters"][key] = round(rng.uniform(low, high), 3)
        if rng.random() < 0.3:
            values["rope_parameters"] = dict(rope_type="default", rope_theta=theta, partial_rotary_factor=share)
        return
    if starts(name, OWN_ROPES) or "mrope_section" in base:
        return
    if "full_attention" in base:
        sliding = _draw_scaling(rng, theta / 7.0) if rng.random() < 0.3 else dict(rope_type="default", rope_theta=theta / 7.0)
        values["rope_parameters"] = dict(full_attention=_draw_scaling(rng, theta), sliding_attention=sliding)
        return
    rope = _draw_scaling(rng, theta)
    if "partial_rotary_factor" in base:
        size = values.get("head_dim") or values["hidden_size"] // values["num_attention_heads"]
        shares = [share for share in (0.25, 0.4, 0.5, 0.75, 1.0) if int(size * share) >= 2 and int(size * share) % 2 == 0]
        rope["partial_rotary_factor"] = rng.choice(shares)
    values["rope_parameters"] = rope


def draw_values(rng, name):
    values = dict(families.CASES[name][2])
    known = defaults_of(name)
    _draw_layers(rng, name, values, known)
    _draw_heads(rng, name, values, known)
    for key in WIDTHS:
        if values.get(key) and rng.random() < 0.8:
            values[key] = rng.randint(11, 70) if key != "qk_nope_head_dim" else values[key]
    _draw_spaces(rng, name, values)
    if "granitemoehybrid" == name:
        values["shared_intermediate_size"] = values["intermediate_size"]
        values["layer_types"] = ["full_attention"] * values["num_hidden_layers"]
    _draw_experts(rng, values)
    _draw_ropes(rng, name, values)
    seldom = REFUSED_FLAGS.get(name.split("_")[0], ())
    for key in () if name.startswith("nemotron_h") else FLAGS:  # of that family's it passes over most
        if (key in values or key in known) and rng.random() < (0.05 if key in seldom else 0.4):
            values[key] = rng.random() < 0.5
    if name == "internlm3" and rng.random() < 0.8:
        values["mlp_bias"] = values["attention_bias"]
    for key in FACTORS:
        if values.get(key) and rng.random() < 0.6:
            values[key] = round(values[key] * rng.uniform(0.6, 1.6), 3)
            if "softcapping" in key and rng.random() < 0.2:
                values[key] = None
    if values.get("sliding_window"):
        # Of one token alone queries and keys have no gradient.
        values["sliding_window"] = rng.choice([None, 2, rng.randint(2, 12), rng.randint(12, 60), 200])
    for key in EPSILONS:
        if key in values and rng.random() < 0.6:
            values[key] = max(values[key] if starts(name, KEEPS_EPSILON) else 0.0, 10.0**rng.randint(-7, -3))
    if rng.random() < 0.25 and not starts(name, ONE_ACTIVATION):
        key = "hidden_activation" if "hidden_activation" in known else "hidden_act"
        values[key] = rng.choice(["silu", "gelu", "gelu_pytorch_tanh", "gelu_new"])
    if name == "youtu":
        values["pad_token_id"] = None
    return values


# Of these a file without them means another shape, dropout, or nothing at all.
STAYS = ("model_type", "attention_dropout", "residual_dropout", "tie_word_embeddings", *CHOICES)


def respell(rng, config):
    """A config.json as other versions and other people write it. Gives another document."""
    config = json.loads(json.dumps(config))
    part = config.get("text_config", config)
    rope = part.get("rope_parameters")
    if isinstance(rope, dict) and rng.random() < 0.5 and config["model_type"] not in ("gemma4", "gemma4_text", "mellum", "ministral3"):
        by_kind = "full_attention" in rope
        full = dict(rope["full_attention"] if by_kind else rope)
        if not by_kind or config["model_type"] in ("gemma3", "gemma3_text", "olmo3"):
            del part["rope_parameters"]
            neox = config["model_type"] == "gpt_neox"
            part["rotary_emb_base" if neox else "rope_theta"] = full.pop("rope_theta")
            if by_kind and config["model_type"] != "olmo3":
                part["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            if "partial_rotary_factor" in full:
                part["rotary_pct" if neox else "partial_rotary_factor"] = full.pop("partial_rotary_factor")
            if full.get("rope_type") == "default" and len(full) == 1:
                full = None
            elif rng.random() < 0.5 and not by_kind:
                full["type"] = full.pop("rope_type")
            if full is not None or rng.random() < 0.5:
                part["rope_scaling"] = full
    if rng.random() < 0.5 and "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    for key, value in list(part.items()):  # numbers that people write without a point
        if isinstance(value, float) and value == int(min(abs(value), 1e15)) and rng.random() < 0.3:
            part[key] = int(value)
    return config


def try_shapes(config, model_class, folder):
    """Names and shapes of the model that transformers makes of this document; nothing where it refuses it."""
    path = folder / "config.json"
    path.write_text(json.dumps(config, indent=2) + "\n")
    try:
        loaded = transformers.AutoConfig.from_pretrained(folder)
        with torch.device("meta"):
            model = model_class._from_config(loaded)
        return {key: tensor.shape for key, tensor in model.state_dict().items()}
    except Exception:  # noqa: BLE001 whatever it objects to
        return None


# Keys of some families; what they say to the others transformers knows.
FOREIGN = dict(
    attention_bias=True, mlp_bias=True, use_bias=True, qkv_bias=True, attention_out_bias=True, sliding_window=5, use_sliding_window=True,
    max_window_layers=1, sliding_window_pattern=2, partial_rotary_factor=0.5, rotary_dim=4, rotary_pct=0.5, rotary_emb_base=300.0,
    hidden_act="gelu", hidden_activation="gelu", norm_topk_prob=True, routed_scaling_factor=2.0, n_group=2, topk_group=1,
    scoring_func="softmax", topk_method="noaux_tc", embedding_multiplier=2.0, residual_multiplier=0.5, logits_scaling=2.0,
    attention_multiplier=0.3, logit_scale=0.5, final_logit_softcapping=2.0, attn_logit_softcapping=3.0, query_pre_attn_scalar=9,
    rms_norm_eps=0.05, layer_norm_eps=0.05, norm_eps=0.05, layer_norm_epsilon=0.05, rope_theta=77.0, rope_local_base_freq=33.0,
    rope_scaling=dict(rope_type="linear", factor=3.0), rope_parameters=dict(rope_type="linear", rope_theta=55.0, factor=3.0),
    use_qk_norm=True, tie_embedding=True, no_rope_layers=[0, 1], no_rope_layer_interval=2, rope_interleave=False,
    original_max_position_embeddings=16, use_parallel_residual=True, mup_enabled=True, use_post_norm=False, time_step_limit=[0.1, 0.4],
    time_step_min=0.3, mamba_rms_norm=True, head_dim=6, use_expert_bias=False, is_causal=True, parallel_attn=True, query_scale=2.0,
    global_attn_every_n_layers=2, first_k_dense_replace=1, moe_layer_interval=2, decoder_sparse_step=2, swiglu_limit=1.0, mlp_only_layers=[0])


def add_keys(rng, config):
    config = json.loads(json.dumps(config))
    part = config.get("text_config", config)
    for key in rng.sample(list(FOREIGN), rng.randint(1, 4)):
        part.setdefault(key, FOREIGN[key])
    return config


def drop_keys(rng, config, model_class, folder, own):
    """Leaves out keys, makes them null or adds those of other families, where the model keeps the shapes that it has by its
    `own` document."""
    shapes = try_shapes(own, model_class, folder)
    assert shapes is not None, "transformers does not read its own file"
    if try_shapes(config, model_class, folder) != shapes:
        config = own
    if rng.random() < 0.5:
        more = add_keys(rng, config)
        config = more if try_shapes(more, model_class, folder) == shapes else config
    part = config.get("text_config", config)
    possible = [key for key in part if key not in STAYS and not key.endswith("_config")]
    for key in rng.sample(possible, min(len(possible), rng.randint(0, 6))):
        kept = dict(part)
        if rng.random() < 0.2 and key not in FACTORS:
            part[key] = None
        else:
            del part[key]
        if try_shapes(config, model_class, folder) != shapes:
            part.clear()
            part.update(kept)
    try_shapes(config, model_class, folder)
    return config
