"""Writes tests/data/files/config_goldens.json: config.json texts and what transformers makes of each.

Usage: make_config_goldens.py OUTPUT_FOLDER. Deterministic; the versions used stand in MANIFEST.json. Cases named saved_*
are written by transformers' save_pretrained, the others are spelled as older versions and the Hub's files spell them.
"""

import json
import pathlib
import sys
import tempfile

import torch
import transformers
from expected_config import expected
from more_configs import more_cases
from picture_configs import picture_cases
from transformers import Gemma4Config, Gemma4TextConfig
from transformers import Gemma2Config, Gemma3Config, Gemma3TextConfig, GemmaConfig, GraniteConfig, LlamaConfig, MistralConfig, Olmo2Config
from transformers import DeepseekV2Config, DeepseekV3Config, Ernie4_5_MoeConfig, Glm4MoeConfig, Glm4MoeLiteConfig, Lfm2MoeConfig
from transformers import ArceeConfig, Ernie4_5Config, Exaone4Config, Glm4Config, GptOssConfig, GraniteMoeConfig, HunYuanDenseV1Config, Lfm2Config, Ministral3Config, MixtralConfig, OlmoeConfig, Qwen2MoeConfig, Qwen3MoeConfig, Qwen3NextConfig
from transformers import Olmo3Config, Phi3Config, Qwen2Config, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3Config, SeedOssConfig, SmolLM3Config

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, vocab_size=300)


def saved(config_class, **more):
    with tempfile.TemporaryDirectory() as folder:
        config_class(**{**SMALL, **more}).save_pretrained(folder)
        return json.loads(pathlib.Path(folder, "config.json").read_text())


def written(model_type, **more):
    return {"model_type": model_type, **SMALL, **more}


def saved_with_pictures(**text):
    config = Gemma3Config(text_config={**SMALL, **text}, vision_config=PICTURES, mm_tokens_per_image=4)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return json.loads(pathlib.Path(folder, "config.json").read_text())


def saved_gemma4_with_pictures(**text):
    config = Gemma4Config(text_config={**SMALL, **text}, vision_config=PICTURES_OF_GEMMA4)
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        return json.loads(pathlib.Path(folder, "config.json").read_text())


PICTURES_OF_GEMMA4 = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, head_dim=16,
                          position_embedding_size=16, patch_size=14)
# As published files have them.
HUB_OF_GEMMA4 = dict(
    attention_bias=False, attention_dropout=0.0, attention_k_eq_v=True, bos_token_id=2, dtype="bfloat16", eos_token_id=1,
    final_logit_softcapping=30.0, global_head_dim=32, head_dim=16, hidden_activation="gelu_pytorch_tanh",
    hidden_size_per_layer_input=0, initializer_range=0.02, max_position_embeddings=262144, num_global_key_value_heads=1,
    num_key_value_heads=2, num_kv_shared_layers=0, pad_token_id=0, rms_norm_eps=1e-6, sliding_window=1024,
    tie_word_embeddings=True, use_bidirectional_attention="vision", use_cache=True, use_double_wide_mlp=False,
    vocab_size_per_layer_input=300, layer_types=["sliding_attention"] * 5 + ["full_attention"],
    rope_parameters=dict(
        full_attention=dict(partial_rotary_factor=0.25, rope_theta=1000000.0, rope_type="proportional"),
        sliding_attention=dict(rope_theta=10000.0, rope_type="default")))
PICTURES = dict(hidden_size=32, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2, image_size=28,
                patch_size=14)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
CASES = {
    "saved_llama": saved(LlamaConfig),
    "saved_llama_rich": saved(
        LlamaConfig, num_key_value_heads=2, attention_bias=True, mlp_bias=True, eos_token_id=[2, 7], pad_token_id=5,
        tie_word_embeddings=True, dtype="bfloat16", head_dim=16, hidden_act="gelu", max_position_embeddings=512,
        rope_parameters=dict(LLAMA3, rope_theta=500000.0)),
    "saved_mistral": saved(MistralConfig, num_key_value_heads=2, head_dim=16, dtype="float16"),
    "saved_mistral_no_window": saved(MistralConfig, num_key_value_heads=4, sliding_window=None),
    "saved_qwen2": saved(Qwen2Config, num_key_value_heads=2, tie_word_embeddings=True, dtype="bfloat16"),
    "saved_qwen2_window": saved(Qwen2Config, num_key_value_heads=2, use_sliding_window=True, sliding_window=16,
                                max_window_layers=1),
    "saved_qwen3": saved(Qwen3Config, num_key_value_heads=1, head_dim=16, rope_parameters=dict(
        rope_type="default", rope_theta=1000000.0)),
    "saved_qwen3_mixed": saved(Qwen3Config, num_key_value_heads=4, attention_bias=True, use_sliding_window=True,
                               sliding_window=8,
                               layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "llama_bare": written("llama"),
    "llama_theta": written("llama", rope_theta=100000, rope_scaling=None, torch_dtype="bfloat16", head_dim=None,
                           num_key_value_heads=None, bos_token_id=None, eos_token_id=4, rms_norm_eps=1e-5),
    "llama_linear_old": written("llama", rope_scaling=dict(type="linear", factor=2), hidden_act="gelu_pytorch_tanh"),
    "llama_dynamic": written("llama", rope_theta=20000.0, rope_scaling=dict(rope_type="dynamic", factor=4.0)),
    "llama_llama3": written("llama", rope_theta=500000.0, rope_scaling=LLAMA3, max_position_embeddings=512),
    "llama_llama3_outer_length": written("llama", original_max_position_embeddings=32, rope_scaling=LLAMA3,
                                         max_position_embeddings=512),
    "llama_two_spellings": written("llama", rope_theta=30000.0, rope_scaling=dict(rope_type="linear", factor=3.0),
                                   rope_parameters=dict(rope_type="default", rope_theta=5.0)),
    "llama_empty_scaling": written("llama", rope_scaling={}, rope_parameters=dict(rope_type="linear", factor=3.0)),
    "llama_ignored_windows": written("llama", sliding_window=16, use_sliding_window=True, pretraining_tp=2),
    "saved_arcee": saved(ArceeConfig, num_key_value_heads=2, attention_bias=True, mlp_bias=True, head_dim=16, bos_token_id=1,
                         eos_token_id=[2, 7], tie_word_embeddings=True, dtype="bfloat16"),
    "arcee_bare": written("arcee"),
    "arcee_hub": written("arcee", bos_token_id=256, eos_token_id=257, hidden_act="relu2", num_key_value_heads=1, head_dim=8,
                         mlp_bias=False, attention_bias=False, max_position_embeddings=65536, rope_theta=10000.0, rope_scaling=dict(
                             beta_fast=32.0, beta_slow=1.0, factor=20.0, mscale=1.0, original_max_position_embeddings=4096,
                             rope_type="yarn"), rms_norm_eps=1e-05, tie_word_embeddings=False, torch_dtype="bfloat16"),
    "mistral_bare": written("mistral", num_attention_heads=8),
    "mistral_ignored_bias": written("mistral", num_key_value_heads=2, attention_bias=True, mlp_bias=True,
                                    sliding_window=7),
    "saved_ministral3": saved(Ministral3Config, num_key_value_heads=2, head_dim=16, sliding_window=16, dtype="bfloat16",
                              tie_word_embeddings=True, pad_token_id=None),
    "saved_ministral3_rich": saved(Ministral3Config, num_key_value_heads=4, head_dim=8, max_position_embeddings=512, rope_parameters=dict(
        rope_type="yarn", rope_theta=5e5, factor=4.0, original_max_position_embeddings=128, mscale=1.0, mscale_all_dim=0.8,
        llama_4_scaling_beta=0.25, beta_fast=16.0)),
    "ministral3_bare": written("ministral3", num_attention_heads=8, vocab_size=131072),
    "ministral3_theta": written("ministral3", num_attention_heads=8, rope_theta=20000.0, rope_scaling=None, pad_token_id=None),
    "ministral3_plain": written("ministral3", num_attention_heads=8, pad_token_id=None, rope_parameters=dict(
        rope_type="default", rope_theta=10000.0, llama_4_scaling_beta=0.2, original_max_position_embeddings=16)),
    "ministral3_no_length": written("ministral3", num_attention_heads=8, pad_token_id=None, max_position_embeddings=256, rope_scaling=dict(
        type="yarn", factor=2.0, llama_4_scaling_beta=0), rope_theta=20000.0),
    "ministral3_outer_length": written("ministral3", num_attention_heads=8, pad_token_id=None, max_position_embeddings=256,
                                       original_max_position_embeddings=32, rope_parameters=dict(
        rope_type="yarn", factor=8.0, llama_4_scaling_beta=0.1, original_max_position_embeddings=64, rope_theta=20000.0)),
    "qwen2_bare": written("qwen2", num_attention_heads=32, hidden_size=64),
    "qwen2_hub": written("qwen2", num_key_value_heads=2, rope_theta=1000000.0, use_sliding_window=False,
                         sliding_window=32768, max_window_layers=2, use_mrope=False, bos_token_id=250,
                         eos_token_id=251, torch_dtype="bfloat16", attention_bias=False),
    "qwen2_yarn": written("qwen2", num_key_value_heads=2, max_position_embeddings=1024, rope_scaling=dict(
        type="yarn", factor=4.0, original_max_position_embeddings=256)),
    "qwen2_window_null": written("qwen2", num_key_value_heads=2, use_sliding_window=True, sliding_window=None,
                                 max_window_layers=0),
    "qwen3_bare": written("qwen3", num_attention_heads=32),
    "qwen3_yarn": written("qwen3", num_key_value_heads=2, max_position_embeddings=1024, rope_parameters=dict(
        rope_type="yarn", factor=None, original_max_position_embeddings=256, rope_theta=70000.0, beta_fast=16,
        beta_slow=2, attention_factor=1.25, mscale=0.7, mscale_all_dim=0.9, truncate=False)),
    "saved_hunyuan": saved(HunYuanDenseV1Config, num_key_value_heads=2, head_dim=16, attention_bias=True, eos_token_id=[2, 7]),
    "hunyuan_bare": written("hunyuan_v1_dense", head_dim=8),
    "hunyuan_hub": written(
        "hunyuan_v1_dense", add_classification_head=False, attention_bias=False, attention_dropout=0.0, attention_head_dim=16,
        bos_token_id=1, cla_share_factor=2, class_num=0, dense_list=[4096, 0], enable_lm_head_fp32=True, eod_token_id=293,
        eos_token_id=293, head_dim=16, hidden_act="silu", initializer_range=0.02, max_position_embeddings=262144,
        mlp_bias=False, norm_type="rms", num_key_value_heads=2, org_vocab_size=290943, pad_token_id=294, pretraining_tp=1,
        rms_norm_eps=1e-05, rope_scaling=dict(alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0,
                                              mscale_all_dim=0.0, type="dynamic"), rope_theta=10000.0,
        tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, use_cla=False, use_qk_norm=True),
    "hunyuan_no_alpha": written("hunyuan_v1_dense", head_dim=16, rope_parameters=dict(
        rope_type="dynamic", factor=4.0, alpha=0, rope_theta=20000.0)),
    "hunyuan_linear": written("hunyuan_v1_dense", head_dim=16, rope_parameters=dict(
        rope_type="linear", factor=4.0, alpha=50, rope_theta=20000.0)),
    "saved_exaone4": saved(Exaone4Config, num_hidden_layers=5, num_key_value_heads=2, sliding_window=16, eos_token_id=[2, 7]),
    "saved_exaone4_all_see": saved(Exaone4Config, num_key_value_heads=4, layer_types=["full_attention"] * 3),
    "saved_exaone4_plain": saved(
        Exaone4Config, num_key_value_heads=1, head_dim=16, sliding_window=None, layer_types=["full_attention"] * 3,
        tie_word_embeddings=True, max_position_embeddings=512, rope_parameters=dict(LLAMA3, rope_theta=1000000.0)),
    "exaone4_bare": written("exaone4", num_attention_heads=32, num_hidden_layers=8, hidden_size=64),
    "exaone4_interval": written("exaone4", num_key_value_heads=2, num_hidden_layers=7, sliding_window=8, sliding_window_pattern=3),
    "exaone4_hub": written(
        "exaone4", attention_dropout=0.0, bos_token_id=1, eos_token_id=261, head_dim=16, hidden_act="silu", initializer_range=0.02,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], max_position_embeddings=131072,
        num_key_value_heads=2, pad_token_id=0, rms_norm_eps=1e-05, rope_scaling=dict(
            factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type="llama3"),
        rope_theta=1000000, sliding_window=4096, sliding_window_pattern="LLG", tie_word_embeddings=False,
        torch_dtype="bfloat16", use_cache=True),
    "saved_seed_oss": saved(SeedOssConfig, num_key_value_heads=2, head_dim=16, attention_dropout=0.0, residual_dropout=0.0,
                            attention_out_bias=True, attention_bias=False, mlp_bias=True, tie_word_embeddings=True),
    "seed_oss_bare": written("seed_oss", num_attention_heads=8, attention_dropout=0.0, residual_dropout=0),
    "seed_oss_hub": written(
        "seed_oss", attention_bias=True, attention_dropout=0.0, attention_out_bias=False, bos_token_id=0, eos_token_id=2,
        head_dim=32, hidden_act="silu", initializer_range=0.02, max_position_embeddings=524288, mlp_bias=False,
        num_key_value_heads=2, pad_token_id=1, residual_dropout=0.0, rms_norm_eps=1e-06, rope_scaling=dict(rope_type="default"),
        rope_theta=10000000.0, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
    "saved_ernie4_5": saved(Ernie4_5Config, num_key_value_heads=4, head_dim=16, use_bias=True, tie_word_embeddings=False),
    "ernie4_5_bare": written("ernie4_5"),
    "ernie4_5_hub": written("ernie4_5", bos_token_id=1, eos_token_id=2, head_dim=32, hidden_act="silu", num_key_value_heads=1,
                            max_position_embeddings=131072, pad_token_id=0, rms_norm_eps=1e-05, rope_scaling=None,
                            rope_theta=400000.0, tie_word_embeddings=True, torch_dtype="bfloat16", use_bias=False),
    "saved_glm4": saved(Glm4Config, num_key_value_heads=4, head_dim=16, attention_bias=False, pad_token_id=0, eos_token_id=[2, 7],
                        rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.25)),
    "glm4_bare": written("glm4", vocab_size=151552),
    "glm4_hub": written("glm4", attention_bias=False, attention_dropout=0.0, eos_token_id=[269, 276, 278], head_dim=32,
                        hidden_act="silu", initializer_range=0.02, max_position_embeddings=32768, num_key_value_heads=2,
                        pad_token_id=269, partial_rotary_factor=0.5, rms_norm_eps=1e-05, rope_theta=10000.0,
                        tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
    "saved_smollm3": saved(SmolLM3Config, pad_token_id=0, num_key_value_heads=2, no_rope_layer_interval=2),
    "saved_smollm3_window": saved(SmolLM3Config, pad_token_id=None, use_sliding_window=True, sliding_window=16, no_rope_layers=[0, 1, 0],
                                  attention_bias=True, mlp_bias=True, tie_word_embeddings=False),
    "smollm3_bare": written("smollm3", num_hidden_layers=5, vocab_size=128256),
    "smollm3_hub": written("smollm3", pad_token_id=256, num_key_value_heads=4, rope_theta=5000000.0, rope_scaling=None,
                           no_rope_layers=[1, 1, 0], layer_types=["full_attention"] * 3, use_sliding_window=False,
                           sliding_window=None, no_rope_layer_interval=4, torch_dtype="bfloat16"),
    "saved_granite": saved(GraniteConfig, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0,
                           attention_multiplier=0.0078125, tie_word_embeddings=True),
    "granite_bare": written("granite"),
    "granite_hub": written("granite", num_key_value_heads=2, attention_bias=False, mlp_bias=False, rope_theta=10000000,
                           embedding_multiplier=12, residual_multiplier=0.22, logits_scaling=10,
                           attention_multiplier=0.015625, eos_token_id=0, bos_token_id=0, pad_token_id=0),
    "granite_biased": written("granite", attention_bias=True, mlp_bias=True, logits_scaling=3.0),
    "saved_olmo2": saved(Olmo2Config, num_key_value_heads=2, attention_bias=True),
    "olmo2_bare": written("olmo2"),
    "olmo2_hub": written("olmo2", num_key_value_heads=4, rope_theta=500000, rms_norm_eps=1e-6, eos_token_id=257,
                         pad_token_id=277, torch_dtype="float32"),
    "saved_olmo3": saved(Olmo3Config, num_hidden_layers=5, num_key_value_heads=2, sliding_window=16),
    "olmo3_bare": written("olmo3"),
    "olmo3_passes_over_truncate": written("olmo3", rope_scaling=dict(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=64, truncate=False)),
    "olmo3_no_window": written("olmo3", layer_types=["full_attention"] * 3),
    "olmo3_hub": written("olmo3", rope_theta=500000, sliding_window=8, max_position_embeddings=1024, rope_scaling=dict(
        rope_type="yarn", factor=8.0, attention_factor=1.2, beta_fast=32.0, beta_slow=1.0,
        original_max_position_embeddings=128),
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "saved_gemma": saved(GemmaConfig, num_key_value_heads=1, head_dim=16),
    "gemma_bare": written("gemma", num_attention_heads=16),
    "gemma_hub": written("gemma", num_key_value_heads=1, head_dim=24, hidden_act="gelu", hidden_activation=None,
                         rope_scaling=None, rope_theta=10000.0, attention_bias=False),
    "saved_gemma2": saved(Gemma2Config, num_hidden_layers=5, num_key_value_heads=2, head_dim=16, query_pre_attn_scalar=24,
                          sliding_window=16, attn_logit_softcapping=20.0, final_logit_softcapping=10.0),
    "gemma2_bare": written("gemma2", num_attention_heads=8),
    "gemma2_no_caps": written("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None),
    "gemma2_hub": written("gemma2", num_key_value_heads=2, head_dim=64, query_pre_attn_scalar=144,
                          attn_logit_softcapping=50.0, final_logit_softcapping=30.0, rope_theta=10000.0,
                          sliding_window=512, sliding_window_size=512, hidden_act="gelu_pytorch_tanh",
                          hidden_activation="gelu_pytorch_tanh", torch_dtype="float32", cache_implementation="hybrid",
                          attention_bias=False, attention_dropout=0.0, bos_token_id=2, eos_token_id=1, pad_token_id=0),
    "saved_gemma3": saved(Gemma3TextConfig, num_hidden_layers=7, head_dim=16, query_pre_attn_scalar=24,
                          sliding_window=16),
    "gemma3_bare": written("gemma3_text"),
    "gemma3_hub": written("gemma3_text", num_key_value_heads=1, head_dim=64, query_pre_attn_scalar=168,
                          attn_logit_softcapping=None, final_logit_softcapping=None, rope_local_base_freq=20000,
                          rope_theta=1000000, rope_scaling=dict(factor=8.0, rope_type="linear"), sliding_window=512,
                          sliding_window_pattern=2, hidden_activation="gelu_pytorch_tanh", torch_dtype="bfloat16",
                          eos_token_id=[1, 106], cache_implementation="hybrid"),
    "saved_gemma3_with_pictures": saved_with_pictures(head_dim=16, sliding_window=16, num_hidden_layers=7),
    "saved_gemma4": saved(Gemma4TextConfig, num_hidden_layers=8, head_dim=16, global_head_dim=24, sliding_window=16,
                          hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=2),
    "saved_gemma4_moe": saved(Gemma4TextConfig, head_dim=8, global_head_dim=16, hidden_size_per_layer_input=0,
                              enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=12,
                              attention_bias=True, tie_word_embeddings=False),
    "gemma4_bare": written("gemma4_text", hidden_size_per_layer_input=0),
    "gemma4_last_slides": written("gemma4_text", hidden_size_per_layer_input=0, layer_types=["sliding_attention"] * 3,
                                  num_global_key_value_heads=1),
    "gemma4_moe_hub": written("gemma4_text", **{**HUB_OF_GEMMA4, "num_hidden_layers": 6, "enable_moe_block": True,
                                                "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8}),
    "saved_gemma4_small": saved(Gemma4TextConfig, num_hidden_layers=10, head_dim=16, global_head_dim=24, sliding_window=16,
                                vocab_size=60, hidden_size_per_layer_input=6, vocab_size_per_layer_input=70,
                                num_kv_shared_layers=5, use_double_wide_mlp=True,
                                layer_types=[*["sliding_attention"] * 4, "full_attention"] * 2),
    "gemma4_small_hub": written("gemma4_text", **{
        **HUB_OF_GEMMA4, "attention_k_eq_v": False, "num_global_key_value_heads": None, "num_hidden_layers": 12,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 262144, "vocab_size": 262144,
        "num_kv_shared_layers": 6, "layer_types": ([*["sliding_attention"] * 5, "full_attention"]) * 2}),
    "gemma4_defaults": written("gemma4_text", vocab_size=262144),
    "saved_gemma4_with_pictures": saved_gemma4_with_pictures(
        head_dim=16, global_head_dim=24, sliding_window=16, hidden_size_per_layer_input=0),
    "saved_mixtral": saved(MixtralConfig, num_key_value_heads=2, num_local_experts=3, sliding_window=16),
    "mixtral_bare": written("mixtral", num_attention_heads=8),
    "mixtral_hub": written("mixtral", num_key_value_heads=2, num_experts_per_tok=2, num_local_experts=4,
                           output_router_logits=False, rope_theta=1000000.0, router_aux_loss_coef=0.02,
                           sliding_window=None, torch_dtype="bfloat16"),
    "saved_qwen3_moe": saved(Qwen3MoeConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
                             mlp_only_layers=[1], norm_topk_prob=True),
    "saved_qwen3_moe_window": saved(Qwen3MoeConfig, num_experts=3, num_experts_per_tok=1, decoder_sparse_step=2,
                                    use_sliding_window=True, sliding_window=8, attention_bias=True),
    "saved_qwen3_moe_dense": saved(Qwen3MoeConfig, num_experts=0),
    "qwen3_moe_bare": written("qwen3_moe", num_hidden_layers=1),
    "qwen3_moe_hub": written("qwen3_moe", attention_bias=False, decoder_sparse_step=1, head_dim=16, num_experts=6,
                             max_window_layers=48, mlp_only_layers=[], moe_intermediate_size=20, norm_topk_prob=True,
                             num_experts_per_tok=4, num_key_value_heads=1, output_router_logits=False,
                             rope_scaling=None, rope_theta=1000000.0, router_aux_loss_coef=0.001,
                             sliding_window=None, use_sliding_window=False, torch_dtype="bfloat16"),
    "saved_qwen2_moe": saved(Qwen2MoeConfig, num_key_value_heads=4, num_experts=5, num_experts_per_tok=3,
                             moe_intermediate_size=20, shared_expert_intermediate_size=28, use_sliding_window=True,
                             sliding_window=9, max_window_layers=2, decoder_sparse_step=2, norm_topk_prob=True,
                             qkv_bias=False, tie_word_embeddings=True, dtype="bfloat16"),
    "saved_qwen2_moe_listed": saved(Qwen2MoeConfig, num_key_value_heads=2, num_experts=4, use_sliding_window=True,
                                    layer_types=["full_attention", "sliding_attention", "full_attention"]),
    "qwen2_moe_bare": written("qwen2_moe", num_hidden_layers=1, num_attention_heads=16),
    "qwen2_moe_hub": written(
        "qwen2_moe", attention_dropout=0.0, bos_token_id=297, decoder_sparse_step=1, eos_token_id=297, hidden_act="silu",
        initializer_range=0.02, max_position_embeddings=8192, max_window_layers=21, moe_intermediate_size=12,
        norm_topk_prob=False, num_experts=6, num_experts_per_tok=4, num_key_value_heads=4, output_router_logits=False,
        rms_norm_eps=1e-06, rope_theta=1000000.0, router_aux_loss_coef=0.001, shared_expert_intermediate_size=48,
        sliding_window=32768, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False),
    "saved_granitemoe": saved(GraniteMoeConfig, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=3,
                              embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=6.0,
                              attention_multiplier=0.015625, tie_word_embeddings=True, dtype="bfloat16"),
    "granitemoe_bare": written("granitemoe", num_hidden_layers=1),
    "granitemoe_hub": written(
        "granitemoe", attention_bias=False, attention_dropout=0.0, attention_multiplier=0.015625, bos_token_id=0,
        embedding_multiplier=12.0, eos_token_id=0, hidden_act="silu", initializer_range=0.02, logits_scaling=6.0,
        max_position_embeddings=131072, num_experts_per_tok=4, num_key_value_heads=2, num_local_experts=6,
        output_router_logits=False, pad_token_id=0, residual_multiplier=0.22, rms_norm_eps=1e-06, rope_scaling=None,
        rope_theta=10000000.0, router_aux_loss_coef=0.0, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True),
    "saved_olmoe": saved(OlmoeConfig, num_experts=4, num_experts_per_tok=3, attention_bias=True),
    "olmoe_bare": written("olmoe", num_hidden_layers=1, vocab_size=50304),
    "olmoe_hub": written("olmoe", clip_qkv=None, num_experts=5, num_experts_per_tok=2, num_key_value_heads=4,
                         norm_topk_prob=False, eos_token_id=279, pad_token_id=1, torch_dtype="bfloat16"),
    "saved_gpt_oss": saved(GptOssConfig, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=3, head_dim=16, sliding_window=24,
                           attention_bias=False, swiglu_alpha=1.5, swiglu_limit=3.0),
    "saved_gpt_oss_plain_rope": saved(GptOssConfig, num_key_value_heads=4, num_local_experts=4, layer_types=[
        "full_attention", "full_attention", "sliding_attention"], rope_parameters=dict(rope_type="default", rope_theta=5e4)),
    "gpt_oss_bare": written("gpt_oss", num_hidden_layers=1, num_attention_heads=8),
    "gpt_oss_hub": written(
        "gpt_oss", attention_bias=True, attention_dropout=0.0, eos_token_id=279, experts_per_token=4, head_dim=64,
        hidden_act="silu", initial_context_length=4096, initializer_range=0.02, max_position_embeddings=131072,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"], num_experts_per_tok=4,
        num_key_value_heads=1, num_local_experts=8, output_router_logits=False, pad_token_id=277, rms_norm_eps=1e-05,
        rope_scaling=dict(beta_fast=32.0, beta_slow=1.0, factor=32.0, original_max_position_embeddings=4096,
                          rope_type="yarn", truncate=False), rope_theta=150000, router_aux_loss_coef=0.9,
        sliding_window=128, swiglu_limit=7.0, tie_word_embeddings=False, use_cache=True, quantization_config=dict(
            modules_to_not_convert=["model.layers.*.self_attn", "lm_head"], quant_method="mxfp4")),
    "saved_phi3": saved(Phi3Config, num_key_value_heads=2, sliding_window=16, pad_token_id=0, eos_token_id=[2, 7]),
    "saved_phi3_long": saved(
        Phi3Config, num_key_value_heads=1, tie_word_embeddings=True, dtype="bfloat16", max_position_embeddings=512,
        original_max_position_embeddings=64, pad_token_id=0, eos_token_id=2, rope_parameters=dict(
            rope_type="longrope", rope_theta=5000.0, partial_rotary_factor=0.5, short_factor=[1.0, 1.5],
            long_factor=[1.25, 4.0])),
    "phi3_bare": written("phi3", vocab_size=32064),
    "phi3_hub": written(
        "phi3", attention_bias=False, attention_dropout=0.0, auto_map={}, bos_token_id=1, embd_pdrop=0.0, eos_token_id=279,
        hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, num_key_value_heads=4,
        original_max_position_embeddings=4096, pad_token_id=279, resid_pdrop=0.0, rms_norm_eps=1e-05,
        rope_scaling=dict(long_factor=[1.08, 1.11, 1.14, 1.34], short_factor=[1.0, 1.02, 1.03, 1.05], type="longrope"),
        rope_theta=10000.0, sliding_window=262144, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
    "phi3_hub_partial": written(
        "phi3", attention_bias=False, attention_dropout=0.0, bos_token_id=279, eos_token_id=279, pad_token_id=279,
        max_position_embeddings=131072, num_key_value_heads=2, original_max_position_embeddings=4096,
        partial_rotary_factor=0.75, rope_scaling=dict(long_factor=[1.0, 1.1, 30.0], short_factor=[1.0, 1.0, 2.0],
                                                      type="longrope", attention_factor=1.25), sliding_window=None,
        tie_word_embeddings=True, torch_dtype="bfloat16", vocab_size=320),
    "saved_qwen3_5": saved(Qwen3_5TextConfig, num_key_value_heads=2, head_dim=16, linear_num_key_heads=2,
                           linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=12, attention_bias=True,
                           linear_conv_kernel_dim=2, tie_word_embeddings=True, dtype="bfloat16", eos_token_id=[2, 7],
                           layer_types=["full_attention", "linear_attention", "linear_attention"]),
    "qwen3_5_bare": written("qwen3_5_text", num_hidden_layers=8),
    "qwen3_5_yarn": written("qwen3_5_text", num_hidden_layers=4, head_dim=64, max_position_embeddings=1024, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e7, factor=4.0, original_max_position_embeddings=256, partial_rotary_factor=0.5,
        mrope_section=[6, 5, 5], mrope_interleaved=True)),
    "qwen3_5_with_pictures_hub": {
        "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "image_token_id": 297,
        "video_token_id": 298, "vision_start_token_id": 295, "vision_end_token_id": 296, "tie_word_embeddings": True,
        "vision_config": dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, out_hidden_size=64,
                              num_position_embeddings=16, model_type="qwen3_5"),
        "text_config": dict(
            hidden_size=64, intermediate_size=96, num_hidden_layers=5, model_type="qwen3_5_text", head_dim=32, vocab_size=300,
            attention_bias=False, attention_dropout=0.0, attn_output_gate=True, dtype="bfloat16", eos_token_id=294,
            full_attention_interval=2, hidden_act="silu", initializer_range=0.02, linear_conv_kernel_dim=4,
            linear_key_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_value_head_dim=16,
            mamba_ssm_dtype="float32", max_position_embeddings=262144, mtp_num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-06, use_cache=True, rope_parameters=dict(
                mrope_interleaved=True, mrope_section=[2, 1, 1], rope_type="default", rope_theta=10000000,
                partial_rotary_factor=0.25))},
    "saved_qwen3_5_moe": saved(Qwen3_5MoeTextConfig, num_key_value_heads=4, head_dim=16, linear_num_key_heads=2,
                               linear_num_value_heads=2, linear_key_head_dim=8, linear_value_head_dim=12, num_experts=5,
                               num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28,
                               layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "qwen3_5_moe_bare": written("qwen3_5_moe_text", num_hidden_layers=1, full_attention_interval=1),
    "qwen3_5_moe_with_pictures_hub": {
        "model_type": "qwen3_5_moe", "architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 297,
        "video_token_id": 298, "vision_start_token_id": 295, "vision_end_token_id": 296, "tie_word_embeddings": False,
        "vision_config": dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, out_hidden_size=64,
                              num_position_embeddings=16, model_type="qwen3_5_moe"),
        "text_config": dict(
            hidden_size=64, num_hidden_layers=4, model_type="qwen3_5_moe_text", head_dim=32, vocab_size=300,
            attention_bias=False, attention_dropout=0.0, attn_output_gate=True, dtype="bfloat16", eos_token_id=294,
            full_attention_interval=4, hidden_act="silu", initializer_range=0.02, linear_conv_kernel_dim=4,
            linear_key_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_value_head_dim=16,
            mamba_ssm_dtype="float32", max_position_embeddings=262144, moe_intermediate_size=24, mtp_num_hidden_layers=1,
            mtp_use_dedicated_embeddings=False, num_attention_heads=4, num_experts=6, num_experts_per_tok=2,
            num_key_value_heads=2, rms_norm_eps=1e-06, router_aux_loss_coef=0.001, shared_expert_intermediate_size=24,
            use_cache=True, rope_parameters=dict(
                mrope_interleaved=True, mrope_section=[2, 1, 1], rope_type="default", rope_theta=10000000,
                partial_rotary_factor=0.25))},
    "saved_qwen3_next": saved(Qwen3NextConfig, num_key_value_heads=4, head_dim=16, linear_num_key_heads=2,
                              linear_num_value_heads=6, linear_key_head_dim=8, linear_value_head_dim=12, num_experts=4,
                              num_experts_per_tok=3, moe_intermediate_size=20, shared_expert_intermediate_size=28,
                              decoder_sparse_step=2, norm_topk_prob=False, layer_types=["linear_attention", "full_attention", "linear_attention"]),
    "saved_qwen3_next_dense": saved(Qwen3NextConfig, full_attention_interval=2, num_experts=0, tie_word_embeddings=True, attention_bias=True),
    "qwen3_next_bare": written("qwen3_next", num_hidden_layers=4, num_experts=4, num_experts_per_tok=1),
    "qwen3_next_hub": written(
        "qwen3_next", attention_bias=False, attention_dropout=0.0, bos_token_id=293, decoder_sparse_step=1, eos_token_id=295,
        full_attention_interval=2, head_dim=32, hidden_act="silu", initializer_range=0.02, linear_conv_kernel_dim=4,
        linear_key_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_value_head_dim=16,
        max_position_embeddings=262144, mlp_only_layers=[], moe_intermediate_size=24, norm_topk_prob=True, num_experts=5,
        num_experts_per_tok=2, num_key_value_heads=2, output_router_logits=False, partial_rotary_factor=0.25,
        rms_norm_eps=1e-06, rope_scaling=None, rope_theta=10000000, router_aux_loss_coef=0.001,
        shared_expert_intermediate_size=24, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True,
        use_sliding_window=False),
    "saved_lfm2": saved(Lfm2Config, num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"], conv_L_cache=4,
                        tie_word_embeddings=False),
    "saved_lfm2_attention_alone": saved(Lfm2Config, num_key_value_heads=4, block_ffn_dim_multiplier=1.3, block_multiple_of=5),
    "lfm2_bare": written("lfm2", num_attention_heads=8, full_attn_idxs=[1]),
    "lfm2_hub": written(
        "lfm2", block_auto_adjust_ff_dim=True, block_dim=32, block_ff_dim=72, block_ffn_dim_multiplier=1.0,
        block_mlp_init_scale=1.0, block_multiple_of=16, block_norm_eps=1e-05, block_out_init_scale=1.0, block_use_swiglu=True,
        block_use_xavier_init=True, bos_token_id=1, conv_L_cache=3, conv_bias=False, conv_dim=32, conv_dim_out=32,
        conv_use_xavier_init=True, eos_token_id=7, full_attn_idxs=[2], initializer_range=0.02, max_position_embeddings=128000,
        norm_eps=1e-06, num_heads=4, num_key_value_heads=2, pad_token_id=0, rope_theta=500000.0, tie_embedding=True,
        torch_dtype="bfloat16", use_cache=True, use_pos_enc=True),
    "lfm2_without_adjusting": written("lfm2", num_attention_heads=8, block_auto_adjust_ff_dim=False, full_attn_idxs=[0, 2]),
    "lfm2_passes_over_activation": written("lfm2", num_attention_heads=8, full_attn_idxs=[1], hidden_act="gelu"),
    "lfm2_moe_passes_over_activation": written("lfm2_moe", num_attention_heads=8, layer_types=["conv", "conv", "full_attention"],
                                               hidden_act="gelu_pytorch_tanh"),
    "saved_lfm2_moe": saved(Lfm2MoeConfig, num_key_value_heads=2, layer_types=["conv", "full_attention", "conv"], conv_L_cache=4,
                            num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20, num_dense_layers=1,
                            routed_scaling_factor=1.5, norm_topk_prob=False, use_expert_bias=False, tie_word_embeddings=False),
    "lfm2_moe_bare": written("lfm2_moe", num_attention_heads=8, layer_types=["conv", "conv", "full_attention"]),
    "lfm2_moe_hub": written(
        "lfm2_moe", bos_token_id=1, conv_L_cache=3, conv_bias=False, eos_token_id=7, initializer_range=0.02,
        layer_types=["conv", "conv", "full_attention"], max_position_embeddings=128000, moe_intermediate_size=20, norm_eps=1e-05,
        norm_topk_prob=True, num_dense_layers=2, num_experts=6, num_experts_per_tok=4, num_key_value_heads=2, pad_token_id=0,
        rope_theta=1000000.0, routed_scaling_factor=1.0, tie_embedding=True, torch_dtype="bfloat16", use_cache=True,
        use_expert_bias=True),
    "saved_glm4_moe": saved(Glm4MoeConfig, num_key_value_heads=2, n_routed_experts=8, num_experts_per_tok=3,
                            moe_intermediate_size=20, n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=2.5,
                            first_k_dense_replace=2, norm_topk_prob=False, use_qk_norm=True, attention_bias=True, head_dim=16,
                            dtype="bfloat16"),
    "glm4_moe_bare": written("glm4_moe", num_hidden_layers=2, num_attention_heads=8),
    "glm4_moe_hub": written(
        "glm4_moe", attention_bias=True, attention_dropout=0.0, eos_token_id=[293, 295], first_k_dense_replace=1, head_dim=16,
        hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, moe_intermediate_size=20, n_group=1,
        n_routed_experts=6, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, num_key_value_heads=2,
        num_nextn_predict_layers=1, pad_token_id=293, partial_rotary_factor=0.5, rms_norm_eps=1e-05, rope_scaling=None,
        rope_theta=1000000, routed_scaling_factor=1.0, tie_word_embeddings=False, topk_group=1, torch_dtype="bfloat16",
        use_cache=True, use_qk_norm=False),
    "saved_glm4_moe_lite": saved(
        Glm4MoeLiteConfig, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=12, qk_nope_head_dim=10, qk_rope_head_dim=6,
        v_head_dim=8, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, n_shared_experts=2, n_group=4,
        topk_group=2, norm_topk_prob=False, attention_bias=True, rope_interleave=False, dtype="bfloat16",
        mlp_layer_types=["sparse", "dense", "sparse"],
        rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=8.0, original_max_position_embeddings=64, mscale=0.8,
                             mscale_all_dim=0.6)),
    "glm4_moe_lite_bare": written("glm4_moe_lite", num_attention_heads=20),
    "glm4_moe_lite_hub": written(
        "glm4_moe_lite", attention_bias=False, attention_dropout=0.0, eos_token_id=[293, 295, 297], first_k_dense_replace=1,
        hidden_act="silu", kv_lora_rank=16, max_position_embeddings=202752, moe_intermediate_size=20, n_group=1,
        n_routed_experts=6, n_shared_experts=1, norm_topk_prob=True, num_experts_per_tok=2, num_key_value_heads=4,
        num_nextn_predict_layers=1, pad_token_id=293, partial_rotary_factor=1.0, q_lora_rank=24, qk_nope_head_dim=12,
        qk_rope_head_dim=4, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=1000000, routed_scaling_factor=1.8,
        tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", dtype="bfloat16", v_head_dim=16),
    "saved_deepseek_v3": saved(
        DeepseekV3Config, num_hidden_layers=4, num_key_value_heads=4, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=10, qk_rope_head_dim=6,
        v_head_dim=8, n_routed_experts=16, num_experts_per_tok=3, moe_intermediate_size=20, attention_bias=True,
        rope_interleave=False, dtype="bfloat16"),
    "deepseek_v3_bare": written("deepseek_v3", num_attention_heads=128, hidden_size=128, num_hidden_layers=4),
    "deepseek_v3_hub": written(
        "deepseek_v3", attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=1, ep_size=1,
        first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=16, max_position_embeddings=163840,
        moe_intermediate_size=20, moe_layer_freq=1, n_group=2, n_routed_experts=8, n_shared_experts=1, norm_topk_prob=True,
        num_experts_per_tok=2, num_key_value_heads=4, num_nextn_predict_layers=1, q_lora_rank=24, qk_nope_head_dim=12,
        qk_rope_head_dim=4, rms_norm_eps=1e-06, rope_theta=10000, routed_scaling_factor=2.5, scoring_func="sigmoid",
        rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=1.0, mscale_all_dim=1.0,
                          original_max_position_embeddings=4096, type="yarn"),
        tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", torch_dtype="bfloat16", use_cache=True,
        v_head_dim=12),
    "moonlight_hub": written(
        "deepseek_v3", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001, bos_token_id=163, eos_token_id=165,
        ep_size=1, first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=16,
        max_position_embeddings=8192, moe_intermediate_size=20, moe_layer_freq=1, n_group=1, n_routed_experts=6,
        n_shared_experts=2, norm_topk_prob=True, num_experts_per_tok=3, num_key_value_heads=4, num_nextn_predict_layers=0,
        pretraining_tp=1, q_lora_rank=None, qk_nope_head_dim=12, qk_rope_head_dim=4, rms_norm_eps=1e-05, rope_theta=50000.0,
        routed_scaling_factor=2.446, scoring_func="sigmoid", seq_aux=True, tie_word_embeddings=False, topk_group=1,
        topk_method="noaux_tc", torch_dtype="bfloat16", use_cache=True, v_head_dim=12),
    "saved_deepseek_v2": saved(
        DeepseekV2Config, q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=8,
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=20, routed_scaling_factor=1.5, attention_bias=True,
        mlp_bias=True, first_k_dense_replace=2, dtype="bfloat16"),
    "deepseek_v2_bare": written("deepseek_v2", num_experts_per_tok=2),
    "deepseek_v2_hub": written(
        "deepseek_v2", attention_bias=False, attention_dropout=0.0, aux_loss_alpha=0.001, bos_token_id=290, eos_token_id=291,
        first_k_dense_replace=1, hidden_act="silu", initializer_range=0.02, kv_lora_rank=16, max_position_embeddings=163840,
        moe_intermediate_size=20, moe_layer_freq=1, n_group=1, n_routed_experts=8, n_shared_experts=2, norm_topk_prob=False,
        num_experts_per_tok=3, num_key_value_heads=4, pretraining_tp=1, q_lora_rank=None, qk_nope_head_dim=12,
        qk_rope_head_dim=4, rms_norm_eps=1e-06, rope_theta=10000, routed_scaling_factor=1.0, scoring_func="softmax",
        rope_scaling=dict(beta_fast=32, beta_slow=1, factor=40, mscale=0.707, mscale_all_dim=0.707,
                          original_max_position_embeddings=4096, type="yarn"),
        seq_aux=True, tie_word_embeddings=False, topk_group=1, topk_method="greedy", torch_dtype="bfloat16", use_cache=True,
        v_head_dim=12),
    "saved_ernie4_5_moe": saved(Ernie4_5_MoeConfig, num_key_value_heads=2, moe_num_experts=6, moe_k=3, moe_intermediate_size=20,
                                moe_num_shared_experts=0, moe_layer_start_index=0, moe_layer_interval=2,
                                tie_word_embeddings=False, dtype="bfloat16"),
    "ernie4_5_moe_bare": written("ernie4_5_moe", num_hidden_layers=2),
    "ernie4_5_moe_hub": written(
        "ernie4_5_moe", bos_token_id=1, eos_token_id=2, hidden_act="silu", max_position_embeddings=131072, moe_capacity=[6, 6, 6],
        moe_gate="topk", moe_intermediate_size=20, moe_k=2, moe_layer_end_index=1, moe_layer_interval=1, moe_layer_start_index=1,
        moe_num_experts=5, moe_num_shared_experts=2, moe_use_aux_free=True, num_key_value_heads=2, num_nextn_predict_layers=1,
        pad_token_id=0, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=500000, tie_word_embeddings=True,
        torch_dtype="bfloat16", use_bias=False, use_cache=True),
    "mistral3_with_pictures_hub": {
        "model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "torch_dtype": "bfloat16",
        "image_token_index": 10, "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
        "vision_feature_layer": -1, "vision_config": dict(PICTURES, model_type="pixtral", head_dim=16),
        "text_config": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, model_type="mistral", head_dim=32,
                            hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, vocab_size=300,
                            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-05, rope_theta=1000000000.0,
                            sliding_window=None, use_cache=True)},
    "ministral3_with_pictures_hub": {
        "model_type": "mistral3", "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16",
        "image_token_index": 10, "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "spatial_merge_size": 2,
        "tie_word_embeddings": False, "vision_feature_layer": -1,
        "vision_config": dict(PICTURES, model_type="pixtral", head_dim=16),
        "text_config": dict(
            attention_dropout=0.0, bos_token_id=1, eos_token_id=2, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
            model_type="ministral3", head_dim=32, hidden_act="silu", initializer_range=0.02, max_position_embeddings=262144,
            num_attention_heads=4, num_key_value_heads=2, pad_token_id=11, rms_norm_eps=1e-05, sliding_window=None,
            use_cache=True, vocab_size=300, rope_parameters=dict(
                beta_fast=32.0, beta_slow=1.0, factor=16.0, llama_4_scaling_beta=0.1, mscale=1.0, mscale_all_dim=1.0,
                original_max_position_embeddings=16384, rope_theta=1000000.0, rope_type="yarn", type="yarn"))},
    "gemma4_with_pictures_hub": {
        "model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"], "eos_token_id": [1, 106],
        "dtype": "bfloat16", "initializer_range": 0.02, "tie_word_embeddings": True, "audio_config": None,
        "vision_soft_tokens_per_image": 280, "vision_config": dict(PICTURES_OF_GEMMA4, model_type="gemma4_vision"),
        "text_config": dict(HUB_OF_GEMMA4, hidden_size=64, intermediate_size=96, num_hidden_layers=6, vocab_size=300,
                            num_attention_heads=4, model_type="gemma4_text", enable_moe_block=False, num_experts=None,
                            top_k_experts=None, moe_intermediate_size=None)},
    "gemma3_with_pictures_hub": {
        "model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "eos_token_id": [1, 106],
        "torch_dtype": "bfloat16", "initializer_range": 0.02, "mm_tokens_per_image": 4, "vision_config": PICTURES,
        "text_config": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=6, model_type="gemma3_text",
                            rope_scaling=dict(factor=8.0, rope_type="linear"), sliding_window=1024)},
}


def main():
    cases = []
    for name, config in {**CASES, **more_cases(saved, written), **picture_cases()}.items():
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            cases.append({"name": name, "config": config, "expected": expected(folder)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    out = pathlib.Path(sys.argv[1])
    (out / "config_goldens.json").write_text(f'{{"cases": [\n{lines}\n]}}\n')
    write_manifest(out, "tests/reference/files/make_config_goldens.py", None,
                   {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]})


if __name__ == "__main__":
    main()
