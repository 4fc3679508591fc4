"""The small random models on which training numerics are compared, one for each feature that changes the arithmetic.

A case is a transformers configuration. Weights come from a seeded generator: matrices at the scale of a trained model
(so that attention is neither uniform nor one-hot and the loss is not ln(vocabulary)), norm weights around 1 (around 0 where the norm adds one), biases
away from 0; a reference with norms of exactly 1 and biases of 0 would not notice that they are left out.
"""
import json
import zlib

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3Config, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Gemma3TextConfig
from transformers import Gemma4Config, Gemma4ForCausalLM, Gemma4ForConditionalGeneration, Gemma4TextConfig
from transformers import Gemma2Config, Gemma2ForCausalLM, GemmaConfig, GemmaForCausalLM, GptOssConfig, GptOssForCausalLM
from transformers import ArceeConfig, ArceeForCausalLM, Ernie4_5Config, Ernie4_5ForCausalLM, Exaone4Config, Exaone4ForCausalLM, HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM
from transformers import Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, Glm4MoeConfig, Glm4MoeForCausalLM, Lfm2MoeConfig, Lfm2MoeForCausalLM
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM
from transformers import Glm4MoeLiteConfig, Glm4MoeLiteForCausalLM
from transformers import Glm4Config, Glm4ForCausalLM, GraniteConfig, GraniteForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import GraniteMoeConfig, GraniteMoeForCausalLM
from transformers import Lfm2Config, Lfm2ForCausalLM, MixtralConfig, MixtralForCausalLM, OlmoeConfig, OlmoeForCausalLM
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers import Ministral3Config, Ministral3ForCausalLM, Mistral3Config, Mistral3ForConditionalGeneration
from transformers import MistralConfig, MistralForCausalLM, Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM
from transformers import Phi3Config, Phi3ForCausalLM
from transformers import Qwen3_5Config, Qwen3_5ForCausalLM, Qwen3_5ForConditionalGeneration, Qwen3_5TextConfig
from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForCausalLM, Qwen3_5MoeForConditionalGeneration, Qwen3_5MoeTextConfig
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
from transformers import SeedOssConfig, SeedOssForCausalLM
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM

import layer_norm_families
import more_families
import picture_families
import space_families
from layer_norm_families import UNGATED_LAYERS, layer_norm_cases
from more_families import more_cases
from picture_families import picture_cases
from space_families import space_cases

# Their arithmetic is that of others: compared (compare.py), but without goldens.
BUILT_AS_OTHERS = more_families.BUILT_AS_OTHERS + layer_norm_families.BUILT_AS_OTHERS + picture_families.BUILT_AS_OTHERS + space_families.BUILT_AS_OTHERS + ("gemma4_small_pictures",)

LINEAR_LAYERS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
FUSED_LAYERS = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
DELTA_LAYERS = [*LINEAR_LAYERS, "in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"]
SHARED_LAYERS = [*DELTA_LAYERS, "shared_expert_gate"]
ATTENTION_LAYERS = LINEAR_LAYERS[:4]  # where a model has experts, PEFT takes the other names for theirs
CONVOLUTION_LAYERS = [*LINEAR_LAYERS[:3], "out_proj", "in_proj", "w1", "w2", "w3"]
JOINED_LAYERS = [*ATTENTION_LAYERS, "out_proj", "shared_expert_gate", "in_proj_qkvz", "in_proj_ba"]

INPUT_LAYERS = ["per_layer_input_gate", "per_layer_projection"]  # of each block's inputs
FROZEN = ("embed_tokens_per_layer", "per_layer_projection_norm")  # what Rondo does not train of them

BLOCK_SCALE = "layer_scalar"  # of what a block gives; nothing trains it
LATENT_LAYERS = ["kv_a_proj_with_mqa", "kv_b_proj", "o_proj"]  # beside those of queries

CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")  # by which experts are chosen; nothing trains them

_COMMON = dict(hidden_act="silu", max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
               attention_dropout=0.0, use_cache=True)


PICTURES = ("vision_tower", "multi_modal_projector", "visual", "embed_vision")  # the last one's layers have names of their own


def _mistral_with_pictures(**values):
    return Mistral3Config(text_config={"model_type": "mistral", **values}, tie_word_embeddings=False, vision_config=dict(
        model_type="pixtral", hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, head_dim=16,
        image_size=28, patch_size=14))


def _with_pictures(**values):
    return Gemma3Config(text_config=values, mm_tokens_per_image=4, tie_word_embeddings=True,
                        eos_token_id=values["eos_token_id"], vision_config=dict(
        hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14))


def _gemma4_with_pictures(**values):
    return Gemma4Config(text_config=values, tie_word_embeddings=True, eos_token_id=values["eos_token_id"], vision_config=dict(
        hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        position_embedding_size=16, patch_size=14))


def _qwen_with_pictures(config_class=Qwen3_5Config, **values):
    return config_class(text_config=values, tie_word_embeddings=False, vision_config=dict(
        depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, out_hidden_size=values["hidden_size"],
        num_position_embeddings=16))


def _qwen_moe_with_pictures(**values):
    return _qwen_with_pictures(Qwen3_5MoeConfig, **values)


def _case(config_class, model_class, **values):
    return config_class, model_class, {**_COMMON, **values}


# hidden sizes, intermediate sizes and vocabularies are no powers of two: a tile that assumes one shows itself.
CASES = {
    "llama": _case(
        LlamaConfig, LlamaForCausalLM, hidden_size=48, intermediate_size=68, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, vocab_size=117, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "llama_llama3": _case(
        LlamaConfig, LlamaForCausalLM, hidden_size=48, intermediate_size=60, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=179, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
    "llama_linear": _case(
        LlamaConfig, LlamaForCausalLM, hidden_size=48, intermediate_size=74, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=3, vocab_size=139, rms_norm_eps=1e-6, tie_word_embeddings=False,
        attention_bias=True, mlp_bias=True,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
    "llama_yarn": _case(
        LlamaConfig, LlamaForCausalLM, hidden_size=48, intermediate_size=74, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, vocab_size=141, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                             original_max_position_embeddings=32)),
    # MLPs without a gate, and biases.
    "arcee": _case(
        ArceeConfig, ArceeForCausalLM, hidden_size=44, intermediate_size=82, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, vocab_size=131, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
        mlp_bias=True, hidden_act="relu2", rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "mistral": _case(
        MistralConfig, MistralForCausalLM, hidden_size=52, intermediate_size=62, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=129, rms_norm_eps=1e-5,
        tie_word_embeddings=False, sliding_window=7, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # Queries that grow: sequences of up to 40 tokens are seven steps long.
    "ministral3": _case(
        Ministral3Config, Ministral3ForCausalLM, hidden_size=52, intermediate_size=70, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=133, rms_norm_eps=1e-5,
        tie_word_embeddings=False, sliding_window=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=1000.0, factor=16.0, original_max_position_embeddings=6, beta_fast=4.0,
            mscale=1.0, mscale_all_dim=0.6, llama_4_scaling_beta=0.4)),
    "qwen2": _case(
        Qwen2Config, Qwen2ForCausalLM, hidden_size=52, intermediate_size=74, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, vocab_size=137, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    # One full layer, then two with a window: the mask belongs to the layer, not to the model.
    "qwen2_tied_window": _case(
        Qwen2Config, Qwen2ForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=173, rms_norm_eps=1e-6, tie_word_embeddings=True,
        use_sliding_window=True, sliding_window=5, max_window_layers=1,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "qwen3": _case(
        Qwen3Config, Qwen3ForCausalLM, hidden_size=48, intermediate_size=76, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=18, vocab_size=127, rms_norm_eps=1e-6,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    "qwen3_tied": _case(
        Qwen3Config, Qwen3ForCausalLM, hidden_size=48, intermediate_size=72, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=3, head_dim=20, vocab_size=203, rms_norm_eps=1e-6,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # One block without experts between two that have them; shares as softmax over all experts gives them.
    "qwen3_moe": _case(
        Qwen3MoeConfig, Qwen3MoeForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=121, rms_norm_eps=1e-6,
        tie_word_embeddings=False, num_experts=11, num_experts_per_tok=3, moe_intermediate_size=26,
        norm_topk_prob=False, mlp_only_layers=[1], rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # Beside the experts one that all tokens share; windows in every second layer; a block of one MLP, which PEFT adapts.
    "qwen2_moe": _case(
        Qwen2MoeConfig, Qwen2MoeForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=129, rms_norm_eps=1e-6, tie_word_embeddings=False,
        num_experts=7, num_experts_per_tok=3, moe_intermediate_size=26, shared_expert_intermediate_size=38,
        norm_topk_prob=False, mlp_only_layers=[1], use_sliding_window=True, sliding_window=8, max_window_layers=2,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # Shares sum to 1.
    "mixtral": _case(
        MixtralConfig, MixtralForCausalLM, hidden_size=56, intermediate_size=38, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=113, rms_norm_eps=1e-5, tie_word_embeddings=False,
        num_local_experts=5, num_experts_per_tok=2, sliding_window=9,
        rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
    "olmoe": _case(
        OlmoeConfig, OlmoeForCausalLM, hidden_size=48, intermediate_size=22, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=3, vocab_size=131, rms_norm_eps=1e-5, tie_word_embeddings=False,
        num_experts=9, num_experts_per_tok=4, norm_topk_prob=True,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # Sinks, biases everywhere, activations that reach their limits, a layer that slides and one that sees all.
    "gpt_oss": _case(
        GptOssConfig, GptOssForCausalLM, hidden_size=52, intermediate_size=38, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=119, rms_norm_eps=1e-5,
        tie_word_embeddings=False, num_local_experts=5, num_experts_per_tok=2, sliding_window=6, swiglu_alpha=1.4,
        swiglu_limit=1.2, rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, truncate=False,
                                               original_max_position_embeddings=32)),
    # Fused layers; heads that turn in part, at speeds of their own; windows. No sequence here is a long one.
    "phi3": _case(
        Phi3Config, Phi3ForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=137, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=9,
        original_max_position_embeddings=64,
        rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, partial_rotary_factor=0.5,
                             short_factor=[1.0, 1.3, 2.1], long_factor=[1.1, 2.5, 7.0])),
    # A bias on o, which the others have not.
    "seed_oss": _case(
        SeedOssConfig, SeedOssForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=129, rms_norm_eps=1e-6,
        tie_word_embeddings=False, attention_bias=False, attention_out_bias=True, residual_dropout=0.0,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    # Neighbouring channels turn; biases everywhere.
    "ernie4_5": _case(
        Ernie4_5Config, Ernie4_5ForCausalLM, hidden_size=44, intermediate_size=70, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=18, vocab_size=143, rms_norm_eps=1e-5,
        tie_word_embeddings=True, use_bias=True, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    # Half of each head's channels turn, neighbours together; norms on both sides, gate and up fused.
    "glm4": _case(
        Glm4Config, Glm4ForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=20, vocab_size=133, rms_norm_eps=1e-6, tie_word_embeddings=False,
        attention_bias=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)),
    # Behind a block of one MLP experts in groups, chosen by sigmoids with a bias; half of each head's channels turn.
    "glm4_moe": _case(
        Glm4MoeConfig, Glm4MoeForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=20, vocab_size=131, rms_norm_eps=1e-5,
        tie_word_embeddings=False, attention_bias=True, use_qk_norm=True, n_routed_experts=12, num_experts_per_tok=3,
        n_shared_experts=2, moe_intermediate_size=26, n_group=4, topk_group=2, routed_scaling_factor=1.7,
        first_k_dense_replace=1, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)),
    # Keys and values by a latent, queries by another; neighbouring channels turn, those of keys the same for all heads.
    "glm4_moe_lite": _case(
        Glm4MoeLiteConfig, Glm4MoeLiteForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=22, kv_lora_rank=18, qk_nope_head_dim=10,
        qk_rope_head_dim=6, v_head_dim=16, vocab_size=133, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
        n_routed_experts=9, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=26, routed_scaling_factor=1.8,
        mlp_layer_types=["dense", "sparse", "sparse"], rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    # Queries without a latent, values narrower than keys, halves that turn; yarn stretches scores too.
    "deepseek_v3": _case(
        DeepseekV3Config, DeepseekV3ForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=10,
        qk_rope_head_dim=8, v_head_dim=14, vocab_size=127, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
        n_routed_experts=12, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=22, n_group=4, topk_group=2,
        routed_scaling_factor=2.4, first_k_dense_replace=1, rope_interleave=False,
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=32, mscale=1.0,
                             mscale_all_dim=0.7)),
    # Shares by softmax times a factor; biases of MLPs.
    "deepseek_v2": _case(
        DeepseekV2Config, DeepseekV2ForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=3, q_lora_rank=26, kv_lora_rank=14, qk_nope_head_dim=12,
        qk_rope_head_dim=6, v_head_dim=10, vocab_size=139, rms_norm_eps=1e-6, tie_word_embeddings=False, mlp_bias=True,
        n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=22, routed_scaling_factor=1.6,
        first_k_dense_replace=1, rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                                      original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=0.7)),
    # Experts in every second block, chosen by softmax with a bias that nothing else reads; neighbouring channels turn.
    "ernie4_5_moe": _case(
        Ernie4_5_MoeConfig, Ernie4_5_MoeForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=137, rms_norm_eps=1e-5, tie_word_embeddings=False,
        moe_num_experts=7, moe_k=3, moe_num_shared_experts=2, moe_intermediate_size=22,
        moe_layer_start_index=1, moe_layer_interval=2, rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    # The layer that sees all has no rotary embedding.
    "exaone4": _case(
        Exaone4Config, Exaone4ForCausalLM, hidden_size=48, intermediate_size=74, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-5, tie_word_embeddings=False,
        sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="llama3", rope_theta=500.0, factor=16.0, low_freq_factor=1.0,
                             high_freq_factor=4.0, original_max_position_embeddings=64)),
    # Norms behind the rotary embedding, whose theta is stretched.
    "hunyuan": _case(
        HunYuanDenseV1Config, HunYuanDenseV1ForCausalLM, hidden_size=52, intermediate_size=66, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=137, rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        rope_parameters=dict(rope_type="dynamic", rope_theta=500.0, factor=1.0, alpha=20.0)),
    # A layer with rotary embedding, one without, one without that slides.
    "smollm3": _case(
        SmolLM3Config, SmolLM3ForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=133, rms_norm_eps=1e-6, tie_word_embeddings=True,
        no_rope_layers=[1, 0, 0], use_sliding_window=True, sliding_window=6,
        layer_types=["full_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
    "granite": _case(
        GraniteConfig, GraniteForCausalLM, hidden_size=52, intermediate_size=66, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, vocab_size=123, rms_norm_eps=1e-5, tie_word_embeddings=False,
        embedding_multiplier=2.7, residual_multiplier=0.83, logits_scaling=0.6, attention_multiplier=0.29,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # The same factors around experts that files have in stacks.
    "granitemoe": _case(
        GraniteMoeConfig, GraniteMoeForCausalLM, hidden_size=48, intermediate_size=26, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-6, tie_word_embeddings=False,
        num_local_experts=6, num_experts_per_tok=3, embedding_multiplier=2.3, residual_multiplier=0.71, logits_scaling=0.8,
        attention_multiplier=0.31, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    "olmo2": _case(
        Olmo2Config, Olmo2ForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, vocab_size=119, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
    "olmo3": _case(
        Olmo3Config, Olmo3ForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, vocab_size=131, rms_norm_eps=1e-6, tie_word_embeddings=False,
        sliding_window=5, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=20000.0),
                             full_attention=dict(rope_type="yarn", rope_theta=20000.0, factor=4.0,
                                                 original_max_position_embeddings=32))),
    "gemma": _case(
        GemmaConfig, GemmaForCausalLM, hidden_size=44, intermediate_size=74, num_hidden_layers=2,
        num_attention_heads=3, num_key_value_heads=1, head_dim=22, vocab_size=143, rms_norm_eps=1e-6,
        tie_word_embeddings=False, hidden_act="gelu_pytorch_tanh",
        rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # Caps where scores and logits bend.
    "gemma2": _case(
        Gemma2Config, Gemma2ForCausalLM, hidden_size=52, intermediate_size=78, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=18, vocab_size=151, rms_norm_eps=1e-6,
        tie_word_embeddings=True, query_pre_attn_scalar=13, sliding_window=6, attn_logit_softcapping=1.5,
        final_logit_softcapping=1.2, rope_parameters=dict(rope_type="default", rope_theta=300.0)),
    "gemma3": _case(
        Gemma3TextConfig, Gemma3ForCausalLM, hidden_size=48, intermediate_size=78, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=18, vocab_size=149, rms_norm_eps=1e-6,
        tie_word_embeddings=True, query_pre_attn_scalar=13, sliding_window=6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=300.0),
                             full_attention=dict(rope_type="linear", rope_theta=100000.0, factor=3.0))),
    # Heads of other sizes where all is seen, whose keys are their values and turn in part; values are normed, blocks scaled.
    "gemma4": _case(
        Gemma4TextConfig, Gemma4ForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=18, global_head_dim=28, num_global_key_value_heads=1,
        attention_k_eq_v=True, vocab_size=131, rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=6,
        hidden_size_per_layer_input=0, final_logit_softcapping=1.2,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=300.0),
                             full_attention=dict(rope_type="proportional", rope_theta=1000.0, partial_rotary_factor=0.25))),
    # The same with experts beside each MLP, values of their own everywhere, and a head of its own.
    "gemma4_moe": _case(
        Gemma4TextConfig, Gemma4ForCausalLM, hidden_size=44, intermediate_size=58, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, global_head_dim=20, vocab_size=127, rms_norm_eps=1e-6,
        tie_word_embeddings=False, sliding_window=7, hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=7,
        top_k_experts=3, moe_intermediate_size=26, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=300.0),
                             full_attention=dict(rope_type="proportional", rope_theta=2000.0, partial_rotary_factor=0.5,
                                                 factor=2.0))),
    # As E2B and E4B: inputs of each block, from a table with more rows than the embedding, and blocks that share keys and
    # values of both kinds, with MLPs twice as wide. Of few channels all gates may be shut, and the norm behind them would make
    # much of next to nothing, errors too.
    "gemma4_small": _case(
        Gemma4TextConfig, Gemma4ForCausalLM, hidden_size=44, intermediate_size=38, num_hidden_layers=5,
        num_attention_heads=4, num_key_value_heads=2, head_dim=14, global_head_dim=20, vocab_size=127, rms_norm_eps=1e-6,
        tie_word_embeddings=True, sliding_window=7, hidden_size_per_layer_input=26, vocab_size_per_layer_input=131,
        num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=1.5,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=300.0),
                             full_attention=dict(rope_type="proportional", rope_theta=2000.0, partial_rotary_factor=0.5))),
    # Linear attention on both sides of attention that is gated and whose heads turn in part. What a head gives may be
    # next to nothing, which a smaller epsilon would make much of, errors too.
    "qwen3_5": _case(
        Qwen3_5TextConfig, Qwen3_5ForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=20, vocab_size=135, rms_norm_eps=1e-3,
        tie_word_embeddings=True, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=14,
        linear_value_head_dim=18, linear_conv_kernel_dim=3,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.4)),
    "qwen3_5_pictures": _case(
        _qwen_with_pictures, Qwen3_5ForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=24, vocab_size=129, rms_norm_eps=1e-3,
        linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=12,
        linear_conv_kernel_dim=4, layer_types=["full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25)),
    # Beside the experts one that all tokens share, of another width.
    "qwen3_5_moe": _case(
        Qwen3_5MoeTextConfig, Qwen3_5MoeForCausalLM, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=20, vocab_size=125, rms_norm_eps=1e-3, tie_word_embeddings=False, num_experts=7,
        num_experts_per_tok=3, moe_intermediate_size=22, shared_expert_intermediate_size=34, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=14, linear_value_head_dim=18, linear_conv_kernel_dim=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.4)),
    "qwen3_5_moe_pictures": _case(
        _qwen_moe_with_pictures, Qwen3_5MoeForConditionalGeneration, hidden_size=44, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=24, vocab_size=119, rms_norm_eps=1e-3, num_experts=5,
        num_experts_per_tok=2, moe_intermediate_size=26, shared_expert_intermediate_size=18, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=12, linear_conv_kernel_dim=3,
        layer_types=["full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.25)),
    # Joined layers whose parts take turns by heads of keys; a block of one MLP between two with experts.
    "qwen3_next": _case(
        Qwen3NextConfig, Qwen3NextForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=20, vocab_size=123, rms_norm_eps=1e-3,
        tie_word_embeddings=False, num_experts=7, num_experts_per_tok=3, moe_intermediate_size=26,
        shared_expert_intermediate_size=38, norm_topk_prob=False, mlp_only_layers=[1], linear_num_key_heads=2,
        linear_num_value_heads=6, linear_key_head_dim=14, linear_value_head_dim=18, linear_conv_kernel_dim=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.4)),
    # Short convolutions in attention's place; an MLP's width is two thirds of what the file says, rounded up.
    "lfm2": _case(
        Lfm2Config, Lfm2ForCausalLM, hidden_size=48, intermediate_size=100, block_multiple_of=6, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, vocab_size=131, norm_eps=1e-4, tie_word_embeddings=True, conv_L_cache=3,
        layer_types=["conv", "full_attention", "conv", "conv"], rope_parameters=dict(rope_type="default", rope_theta=2000.0)),
    # The same with experts behind one block of one MLP, chosen by sigmoids with a bias.
    "lfm2_moe": _case(
        Lfm2MoeConfig, Lfm2MoeForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=127, norm_eps=1e-4, tie_word_embeddings=True, conv_L_cache=3, num_dense_layers=1,
        num_experts=6, num_experts_per_tok=3, moe_intermediate_size=26, routed_scaling_factor=1.6,
        layer_types=["conv", "full_attention", "conv", "conv"], rope_parameters=dict(rope_type="default", rope_theta=2000.0)),
    # Its text part alone is trained. Published files do not say that embedding and head are two.
    "mistral3_pictures": _case(
        _mistral_with_pictures, Mistral3ForConditionalGeneration, hidden_size=52, intermediate_size=66, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=127, rms_norm_eps=1e-5, sliding_window=None,
        rope_parameters=dict(rope_type="default", rope_theta=100000.0)),
    "ministral3_pictures": _case(
        _mistral_with_pictures, Mistral3ForConditionalGeneration, model_type="ministral3", hidden_size=44,
        intermediate_size=58, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=20,
        vocab_size=121, rms_norm_eps=1e-5, sliding_window=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=5000.0, factor=4.0, original_max_position_embeddings=11, mscale=1.0,
            mscale_all_dim=1.0, llama_4_scaling_beta=0.3)),
    "gemma3_pictures": _case(
        _with_pictures, Gemma3ForConditionalGeneration, hidden_size=44, intermediate_size=70, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=24, vocab_size=139, rms_norm_eps=1e-6,
        tie_word_embeddings=True, query_pre_attn_scalar=20, sliding_window=7,
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=500.0),
                             full_attention=dict(rope_type="default", rope_theta=50000.0))),
    "gemma4_pictures": _case(
        _gemma4_with_pictures, Gemma4ForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, global_head_dim=24, attention_k_eq_v=True,
        vocab_size=123, rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=5, hidden_size_per_layer_input=0,
        final_logit_softcapping=2.0, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=500.0),
                             full_attention=dict(rope_type="proportional", rope_theta=5000.0, partial_rotary_factor=0.25))),
    "gemma4_small_pictures": _case(
        _gemma4_with_pictures, Gemma4ForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=4,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, global_head_dim=24, vocab_size=123, rms_norm_eps=1e-6,
        tie_word_embeddings=True, sliding_window=5, hidden_size_per_layer_input=36, vocab_size_per_layer_input=123,
        num_kv_shared_layers=2, final_logit_softcapping=2.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=500.0),
                             full_attention=dict(rope_type="proportional", rope_theta=5000.0, partial_rotary_factor=0.25))),
}


CASES.update(more_cases(_case))
CASES.update(layer_norm_cases(_case))
CASES.update(picture_cases(_case))
CASES.update(space_cases(_case))


def settle_files(folder):
    """As such models were published."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if config["model_type"] == "mistral3" and config.pop("tie_word_embeddings", None) is False:
        path.write_text(json.dumps(config, indent=2) + "\n")
    if config["model_type"] == "qwen2_5_vl":
        picture_families.flatten(path)
    if config["model_type"] == "qwen3_5_moe":
        stack_experts(folder / "model.safetensors")


def stack_experts(path):
    """Of all experts of a block one tensor for gate and up and one for down."""
    tensors = load_file(path)
    for layer in {name.partition(".experts.")[0] for name in tensors if ".experts." in name}:
        count = sum(name.startswith(f"{layer}.experts.") for name in tensors) // 3

        def all_of(word):
            return torch.stack([tensors.pop(f"{layer}.experts.{e}.{word}.weight") for e in range(count)])

        tensors[f"{layer}.experts.gate_up_proj"] = torch.cat([all_of("gate_proj"), all_of("up_proj")], dim=1)
        tensors[f"{layer}.experts.down_proj"] = all_of("down_proj")
    save_file(tensors, path, metadata=dict(format="pt"))


def excluded_of(model):
    """What reads pictures, of a model in which that has layers of the text's names."""
    return PICTURES[:3] if "_vl" in model.config.model_type else PICTURES[:2]


def text_config(model):
    return getattr(model.config, "text_config", model.config)


def prepared(model):
    """For training. Of a model that reads pictures the text part; in training mode transformers would ask it where in a
    text the pictures are, and without dropout the modes are the same."""
    alone = text_config(model) is model.config
    for name, parameter in model.named_parameters():
        passed_over = not alone and any(part in name for part in PICTURES)
        if passed_over or any(part in name for part in FROZEN):
            parameter.requires_grad_(False)
    if alone:
        return model.train()
    model.eval()
    model.train = lambda mode=True: model
    return model


def case_seed(name, seed):
    """A seed of its own for each case, the same on every machine."""
    return (zlib.crc32(name.encode()) + 7919 * seed) % 2**31


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    hidden = text_config(model).hidden_size
    model_type = model.config.model_type
    scales_embedding = model_type.startswith("gemma") or model_type in ("afmoe", "vaultgemma")
    adds_one = ((model_type.startswith("gemma") and not model_type.startswith("gemma4")) or model_type in ("nemotron", "vaultgemma")
                or model_type.startswith(("qwen3_5", "qwen3_next")))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith(CHOICE_BIASES):
                parameter.copy_(0.1 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif parameter.dim() == 1:
                one = not adds_one or "linear_attn.norm" in name
                parameter.copy_((1.0 if one else 0.0) + 0.25 * noise)
                if model_type.startswith("gemma4") and name.endswith(("q_norm.weight", "k_norm.weight")):
                    parameter.mul_(parameter.shape[0]**-0.25)  # no other scale keeps its scores from being one-hot
            elif any(word in name for word in ("embed_tokens", "embed_in", "embeddings", "lm_head")):
                # Where the model multiplies what it looks up, that would drown what its layers add.
                parameter.copy_((0.5 if scales_embedding else 1.3) * hidden**-0.5 * noise)
            else:
                parameter.copy_(0.9 * parameter.shape[-1]**-0.5 * noise)
        for name, buffer in model.named_buffers():
            if name.endswith(CHOICE_BIASES):
                buffer.copy_(0.1 * torch.randn(buffer.shape, generator=generator))
            elif name.endswith(BLOCK_SCALE):
                buffer.copy_(0.8 + 0.2 * torch.randn(buffer.shape, generator=generator))


def make_config(name, **changes):
    config_class, _, values = CASES[name]
    if "vocab_size" in changes and values.get("vocab_size_per_layer_input"):  # of more rows than the embedding
        changes = {**changes, "vocab_size_per_layer_input": changes["vocab_size"] + 4}
    without = dict(pad_token_id=None) if name == "youtu" or name.startswith("minicpm3") else {}  # of one transformers makes the row 0 when it loads this family
    return config_class(**{**values, **changes, **without})


def make_model(name, seed, **changes):
    """A model in fp32 with seeded weights, ready for training and with the plain attention that masks explicitly."""
    config = make_config(name, **changes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = CASES[name][1](config).float()
    randomize(model, case_seed(name, seed))
    model.tie_weights()
    return prepared(model)


def targets_of(model):
    if model.config.model_type == "phi3":
        return FUSED_LAYERS
    if model.config.model_type.startswith("gemma4"):
        if getattr(text_config(model), "hidden_size_per_layer_input", 0):
            return [*LINEAR_LAYERS, *INPUT_LAYERS]
        return [*LINEAR_LAYERS, "proj"] if getattr(text_config(model), "enable_moe_block", False) else LINEAR_LAYERS
    if model.config.model_type == "qwen3_next":
        return JOINED_LAYERS
    if model.config.model_type.startswith("qwen3_5"):
        return SHARED_LAYERS if hasattr(text_config(model), "num_experts") else DELTA_LAYERS
    if hasattr(model.config, "kv_lora_rank"):
        of_mlp = LINEAR_LAYERS[4:] if model.config.model_type in ("youtu", "minicpm3") else []
        return [*(["q_proj"] if model.config.q_lora_rank is None else ["q_a_proj", "q_b_proj"]), *LATENT_LAYERS, *of_mlp]
    if model.config.model_type in ("granitemoeshared", "granitemoehybrid"):
        of_mamba = ["in_proj", "out_proj"] if any(hasattr(layer, "mamba") and layer.mamba for layer in model.model.layers) else []
        return [*ATTENTION_LAYERS, *of_mamba, "input_linear", "output_linear"]
    if model.config.model_type == "nemotron_h":  # to PEFT out_proj is not for adapters
        return [*ATTENTION_LAYERS, "in_proj", "up_proj", "down_proj"]
    if model.config.model_type in ("bamba", "falcon_h1"):  # likewise in the latter
        return [*LINEAR_LAYERS, "in_proj", *(["out_proj"] if model.config.model_type == "bamba" else [])]
    if model.config.model_type == "hunyuan_v1_moe":
        return [*ATTENTION_LAYERS, "wg"]
    if model.config.model_type in ("glm", "glm4"):
        return [*ATTENTION_LAYERS, "gate_up_proj", "down_proj"]
    if model.config.model_type == "qwen2_moe":
        return [*LINEAR_LAYERS, "shared_expert_gate"]
    if model.config.model_type.startswith("lfm2"):
        return CONVOLUTION_LAYERS
    if model.config.model_type == "gpt_neox":
        return ["query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"]
    if model.config.model_type in UNGATED_LAYERS:
        return [*LINEAR_LAYERS[:3], *UNGATED_LAYERS[model.config.model_type]]
    if model.config.model_type == "arcee":
        return [name for name in LINEAR_LAYERS if name != "gate_proj"]
    return ATTENTION_LAYERS if any(hasattr(text_config(model), key) for key in ("num_experts", "num_local_experts")) else LINEAR_LAYERS


def make_adapter(model, seed, rank=4, alpha=8, targets=None, parameters=None):
    """Wraps the model in a PEFT adapter whose two factors are both away from zero. `parameters`: tensors of experts."""
    from peft import LoraConfig, get_peft_model
    config = LoraConfig(r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",
                        target_modules=targets or targets_of(model), target_parameters=parameters,
                        exclude_modules=None if text_config(model) is model.config else f".*({'|'.join(excluded_of(model))}).*")
    wrapped = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if parameter.requires_grad:
                scale = parameter.shape[1]**-0.5 if "lora_A" in name else 0.3 * rank**-0.5
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return wrapped
