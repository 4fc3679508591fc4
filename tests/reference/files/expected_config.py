"""What transformers makes of a model directory, in the words of model_files_probe."""

import json
import pathlib
import sys

import torch
from transformers import AutoConfig

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from auto_class import auto_class  # noqa: E402
from experts import in_files  # noqa: E402

ROPE_KINDS = ["default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"]
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh", "relu2"]
DTYPES = {None: 0, torch.float32: 0, torch.bfloat16: 1, torch.float16: 2,
          "float32": 0, "bfloat16": 1, "float16": 2}


LINEAR_IN_PART = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next")
TURN_IN_PART = ("stablelm", "gpt_neox", "nemotron", "bamba", "phi3", "glm", "glm4", "glm4_moe", "solar_open", "minimax_m2", *LINEAR_IN_PART)
ALWAYS_NORMALISED = ("mixtral", "minimax_m2", "granitemoe", "granitemoeshared", "granitemoehybrid", "hunyuan_v1_moe", "afmoe",
                     "qwen3_vl_moe_text")
EXPERTS_EVERYWHERE = ("qwen3_5_moe_text", "solar_open")  # no MLP is so wide as intermediate_size
# Of models that read pictures too, whose text part is another family's model but for defaults.
BUILT_AS = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
            "qwen3_vl_moe_text": "qwen3_moe", "gemma4_unified_text": "gemma4_text"}


def as_list(value):
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def ropes_of(config):
    """Of the layers that see all and of those that slide, None where these have no settings of their own."""
    rope = config.rope_parameters
    if config.model_type == "granite_swa":
        return ropes_by_layer(config)
    if "full_attention" not in rope:
        return rope_of(config, rope), None
    return rope_of(config, rope["full_attention"]), rope_of(config, rope["sliding_attention"])


def ropes_by_layer(config):
    """Of layers with one base for each kind."""
    thetas = {kind: theta for kind, theta in zip(config.layer_types, config.layer_rope_theta) if theta}
    full, window = (thetas.get(f"{kind}_attention") for kind in ("full", "sliding"))
    ropes = [rope_of(config, {**config.rope_parameters, "rope_theta": theta}) for theta in (full or window, window)]
    return ropes[0], ropes[1] if full and window and full != window else None


def rope_of(config, rope):
    kind = rope["rope_type"]
    stretched = kind in ("yarn", "llama3", "longrope")
    original = rope.get("original_max_position_embeddings", 0) if stretched else 0
    factor = rope.get("factor", 1.0) if kind != "default" else 1.0
    alpha = (rope.get("alpha") or None) if kind == "dynamic" and config.model_type.startswith("hunyuan_v1") else None
    if factor is None or (kind == "longrope" and "factor" not in rope):  # the ratio of the two lengths
        factor = config.max_position_embeddings / original
    yarn = rope if kind == "yarn" else {}
    long = rope if kind == "longrope" else {}
    return {
        "kind": ROPE_KINDS.index(kind), "theta": float(rope["rope_theta"]), "factor": float(factor),
        "low": rope["low_freq_factor"] if kind == "llama3" else 1.0,
        "high": rope["high_freq_factor"] if kind == "llama3" else 4.0,
        "original": original, "alpha": alpha,
        "attention_factor": (yarn or long).get("attention_factor"),
        "beta_fast": yarn.get("beta_fast") or 32.0, "beta_slow": yarn.get("beta_slow") or 1.0,
        "mscale": yarn.get("mscale") or None, "mscale_all_dim": yarn.get("mscale_all_dim") or None,
        "truncate": config.rope_parameters.get("truncate", True) if yarn else True,  # not in settings of one kind of layer
        "short_factors": long.get("short_factor", []), "long_factors": long.get("long_factor", []),
        "query_growth": [rope["llama_4_scaling_beta"], rope["original_max_position_embeddings"]]
        if config.model_type == "ministral3" else None,
        "turned_share": rope.get("partial_rotary_factor", 1.0) if config.model_type in TURN_IN_PART or kind == "proportional" else 1.0,
    }


def windows_of(config, layers):
    if config.model_type in ("mistral", "ministral3", "mixtral", "qwen3_moe", "phi3"):
        return [config.sliding_window or 0] * config.num_hidden_layers
    if config.model_type in ("exaone4", "exaone_moe"):
        return [(config.sliding_window or 0) if layer.self_attn.is_sliding else 0 for layer in layers]
    if config.model_type == "starcoder2":
        return [config.sliding_window or 0] * config.num_hidden_layers
    return [getattr(getattr(layer, "self_attn", None), "sliding_window", None) or 0 for layer in layers]


def without_rope_of(config, layers):
    if config.model_type == "afmoe":
        return [not layer.self_attn.is_local_attention for layer in layers]
    if config.model_type == "cohere2":
        return [layer.self_attn.sliding_window is None for layer in layers]
    if config.model_type == "nemotron_h":
        return [True] * len(layers)
    if config.model_type == "granite_swa":
        return [theta == 0 for theta in config.layer_rope_theta]
    if config.model_type == "granitemoehybrid":
        return [config.position_embedding_type != "rope"] * len(layers)
    if config.model_type in ("exaone4", "exaone_moe"):
        return [config.sliding_window is not None and not layer.self_attn.is_sliding for layer in layers]
    return [not getattr(getattr(layer, "self_attn", None), "use_rope", True) for layer in layers]


def linear_of(config, layers):
    """Heads of keys and values, their sizes, tokens that the convolution spans, and which blocks have linear attention;
    None where no block may."""
    if config.model_type not in LINEAR_IN_PART:
        return None
    return [config.linear_num_key_heads, config.linear_num_value_heads, config.linear_key_head_dim,
            config.linear_value_head_dim, config.linear_conv_kernel_dim,
            [hasattr(layer, "linear_attn") for layer in layers]]


def convolution_of(config):
    """Tokens that a short convolution spans, and which blocks have one; None where no block may."""
    if not config.model_type.startswith("lfm2"):
        return None
    return [config.conv_L_cache, [kind == "conv" for kind in config.layer_types]]


def space_of(config, layers):
    """Heads of a state space, their size, that of a row of the state, tokens that the convolution spans, whether this and the
    linear layers have biases, what a step may be, which blocks have one, and in how many groups heads are; None where no block
    has."""
    spaces = [getattr(layer, "mamba", None) or mixer_of(layer, "linear_attention") for layer in layers]
    own = next((space for space in spaces if space is not None), None)
    if own is None:
        return None
    least, most = own.time_step_limit
    return [own.num_heads, own.head_dim, own.ssm_state_size, own.conv_kernel_size, own.conv1d.bias is not None,
            own.in_proj.bias is not None, least, None if most == float("inf") else most, [space is not None for space in spaces],
            own.n_groups]


def linear_factors_of(config):
    """Falcon-H1: what linear layers read or give is times these, and whether what a state space gives is normed, and before it is
    gated."""
    factors = [float(getattr(config, f"{key}_multiplier")) for key in ("attention_in", "key", "attention_out", "ssm_in", "ssm_out")]
    normed = config.mamba_rms_norm
    return [*factors, config.ssm_multipliers, *config.mlp_multipliers, normed, normed and config.mamba_norm_before_gate]


def mixer_of(layer, *kinds):
    """Nemotron-H: the one half of a layer, where it is of these kinds."""
    return getattr(layer, "mixer", None) if getattr(layer, "block_type", None) in kinds else None


def attention_in(layers):
    """Of the first layer that has any."""
    halves = [getattr(layer, name, None) for layer in layers for name in ("self_attn", "attention")]
    return next((half for half in [*halves, *(mixer_of(layer, "full_attention") for layer in layers)] if half is not None), None)


def size_without_attention(config):
    """Of heads, where no layer attends."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def heads_of(config, layers):
    """Of the layers that most of the configuration speaks of heads of keys and values and their size; and of Gemma 4's layers
    that see all the same, and whether keys are values, else None."""
    if config.model_type == "gpt_neox":
        return config.num_attention_heads, layers[0].attention.head_size, None
    if not config.model_type.startswith("gemma4"):
        attention = attention_in(layers)
        size = getattr(attention, "qk_head_dim", None) or getattr(attention, "head_dim", None) or size_without_attention(config)
        return config.num_key_value_heads, size, None
    written = config.to_dict()
    attention = next(layer.self_attn for layer in layers if not layer.self_attn.is_sliding)
    heads = attention.k_proj.out_features // attention.head_dim
    return written["num_key_value_heads"], written["head_dim"], [heads, attention.head_dim, attention.v_proj is None]


def choice_of(config, mixture):
    """Whether a bias chooses, whether scores are sigmoids, the factor of shares, groups and how many of them are chosen; None
    for softmax alone."""
    if config.model_type == "ernie4_5_moe":
        return [hasattr(mixture.gate, "moe_statics"), False, 1.0, 1, 1]
    if config.model_type in ("glm4_moe", "glm4_moe_lite", "deepseek_v3", "dots1", "solar_open", "exaone_moe", "nemotron_h"):
        router = mixture.gate
        return [hasattr(router, "e_score_correction_bias"), True, router.routed_scaling_factor, router.num_group, router.topk_group]
    if config.model_type == "deepseek_v2" and mixture.gate.routed_scaling_factor != 1.0:
        return [False, False, mixture.gate.routed_scaling_factor, 1, 1]
    if config.model_type == "minimax_m2":
        return [hasattr(mixture, "e_score_correction_bias"), True, 1.0, 1, 1]
    if config.model_type == "afmoe":
        return [hasattr(mixture, "expert_bias"), True, mixture.router.route_scale, 1, 1]
    if config.model_type == "lfm2_moe":
        return [hasattr(mixture, "expert_bias"), True, mixture.gate.routed_scaling_factor, 1, 1]
    return None


def experts_of(config, layers):
    """Count, choices, whether their shares sum to 1, the blocks without, what their activation is clamped by, and
    choice_of(); None where no block has any."""
    if config.model_type.startswith("gemma4"):
        if not getattr(config, "enable_moe_block", False):
            return None
        return [layers[0].router.proj.out_features, config.top_k_experts, True, [], None, None]

    def mixture_of(layer):
        if config.model_type == "nemotron_h":
            return mixer_of(layer, "moe")
        return next((getattr(layer, name) for name in ("block_sparse_moe", "feed_forward", "mlp") if hasattr(layer, name)), None)

    mixtures = [mixture_of(layer) for layer in layers if hasattr(mixture_of(layer), "experts")]
    if not mixtures:
        return None
    router, experts = getattr(mixtures[0], "gate", None) or mixtures[0].router, mixtures[0].experts
    normalised = getattr(router, "norm_topk_prob", config.model_type in (*ALWAYS_NORMALISED, "gpt_oss", "qwen3_5_moe_text", "ernie4_5_moe"))
    scores = next(getattr(router, name) for name in ("weight", "wg", "gate") if hasattr(router, name))
    choices = router.top_k[0] if isinstance(router.top_k, list) else router.top_k
    return [getattr(scores, "weight", scores).shape[0], choices, normalised,
            [i for i, layer in enumerate(layers) if not hasattr(mixture_of(layer), "experts")],
            [experts.alpha, experts.limit] if config.model_type == "gpt_oss" else None, choice_of(config, mixtures[0])]


def choice_biases(model):
    """Those that are no parameters."""
    return [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(("e_score_correction_bias", "expert_bias", "layer_scalar"))]


def sharing_of(config):
    """By block "store" where others share its keys and values, "reuse" where it shares those of another; None where no block
    does."""
    modes = getattr(config, "kv_sharing_modes", [])
    sharing = {kind for kind, mode in zip(config.layer_types, modes) if mode == "reuse"} if "reuse" in modes else set()
    return [mode if kind in sharing else None for kind, mode in zip(config.layer_types, modes)] if sharing else None


def intermediate_of(config, layers):
    if config.model_type == "lfm2":
        return layers[0].feed_forward.w1.out_features
    if config.model_type == "granitemoehybrid" and config.num_local_experts == 0:
        return config.shared_intermediate_size
    return 0 if config.model_type in EXPERTS_EVERYWHERE else config.intermediate_size


def in_fp32(number):
    return torch.tensor(number, dtype=torch.float64).float().item()


def expected(folder):
    """The configuration of `folder` as transformers loads it; shapes come from the model built on no memory."""
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = auto_class(config).from_config(config)
    whole = model.gpt_neox if config.model_type == "gpt_neox" else model.model
    text_model = getattr(whole, "language_model", whole)
    outer, config = config, getattr(config, "text_config", config)
    with open(f"{folder}/config.json") as file:
        written = json.load(file)
    dtype = written.get("dtype") or written.get("torch_dtype") or written.get("text_config", {}).get("dtype")
    act = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", "silu")
    act = "silu" if config.model_type.startswith("lfm2") else getattr(config, "mlp_hidden_act", act)  # no key says so there
    act = {"swish": "silu", "gelu_new": "gelu_pytorch_tanh"}.get(act, act)
    rope, window_rope = ropes_of(config) if hasattr(config, "rope_parameters") else (None, None)
    layers = text_model.layers
    attention = attention_in(layers)
    kv_heads, head_dim, global_heads = heads_of(config, layers)
    embedding = next(getattr(text_model, name) for name in ("embed_tokens", "embed_in", "embeddings") if hasattr(text_model, name))
    embedding_scale = getattr(embedding, "scalar_embed_scale", getattr(config, "embedding_multiplier", 1.0))
    if config.model_type == "afmoe" and config.mup_enabled:
        embedding_scale = config.hidden_size**0.5
    logits_scaling = float(getattr(config, "logits_scaling", 1.0))
    if config.model_type == "falcon_h1":
        logits_scaling = 1.0 / config.lm_head_multiplier
    if hasattr(config, "logit_scale"):
        logits_scaling = 1.0 / config.logit_scale
    eps = next((getattr(config, key) for key in ("rms_norm_eps", "norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon") if hasattr(config, key)), 1e-5)
    return {
        "model_type": BUILT_AS.get(config.model_type, config.model_type), "hidden_size": config.hidden_size,
        "intermediate_size": intermediate_of(config, layers), "num_layers": config.num_hidden_layers,
        "num_heads": config.num_attention_heads, "num_kv_heads": kv_heads,
        "head_dim": head_dim, "global_heads": global_heads, "vocab_size": config.vocab_size,
        "max_positions": config.max_position_embeddings, "rms_norm_eps": eps,
        "activation": ACTIVATIONS.index(act), "rope": rope, "window_rope": window_rope,
        "without_rope": without_rope_of(config, layers),
        "attention_scale": in_fp32(attention.scaling if attention is not None else head_dim**-0.5), "embedding_scale": in_fp32(embedding_scale),
        "residual_multiplier": float(getattr(layers[0], "residual_multiplier", getattr(layers[0], "residual_scale", 1.0))),
        "logits_scaling": 1.0 / logits_scaling if config.model_type == "hyperclovax" else logits_scaling,
        "attention_cap": float(getattr(config, "attn_logit_softcapping", None) or 0.0),
        "logits_cap": float(getattr(config, "final_logit_softcapping", None) or 0.0),
        "tie_word_embeddings": outer.tie_word_embeddings, "initializer_range": config.initializer_range,
        "dtype": DTYPES[dtype], "sliding_window": windows_of(config, layers), "bos": getattr(config, "bos_token_id", None),
        "eos": as_list(getattr(outer, "eos_token_id", None) or getattr(config, "eos_token_id", None)), "pad": config.pad_token_id,
        "experts": experts_of(config, layers), "linear_attention": linear_of(config, layers),
        "short_convolution": convolution_of(config),
        **({"sharing": sharing_of(config)} if sharing_of(config) else {}),
        **({"linear_factors": linear_factors_of(config)} if config.model_type == "falcon_h1" else {}),
        **({"state_space": space_of(config, layers)} if space_of(config, layers) else {}),
        "parameters": sorted([name, list(part.shape)] for whole, p in (*model.named_parameters(), *choice_biases(model))
                             if not any(part in whole for part in ("vision_tower", "multi_modal_projector", "visual", "embed_vision"))
                             for name, part in in_files(config, whole, p)),
    }
