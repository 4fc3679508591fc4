"""Cases of make_config_goldens.py: families built as Llama but for windows, rotary embedding, norms or factors."""

from transformers import CwmConfig, FlexOlmoConfig, GraniteSWAConfig, LlamaConfig, MiniCPM3Config, MinistralConfig, NanoChatConfig
from transformers import VaultGemmaConfig

LONG_ROPE = dict(short_factor=[1.0, 1.25, 1.5, 2.0], long_factor=[1.0, 2.0, 4.0, 8.0])


def llama_like_cases(saved, written):
    return {
        "saved_llama_longrope": saved(LlamaConfig, max_position_embeddings=8192, rope_parameters=dict(
            rope_type="longrope", rope_theta=5000.0, original_max_position_embeddings=2048, **LONG_ROPE)),
        "llama_longrope_older": written("llama", rope_theta=5000.0, max_position_embeddings=4096, rope_scaling=dict(
            type="longrope", factor=3.0, attention_factor=1.5, original_max_position_embeddings=1024, **LONG_ROPE)),
        "saved_cwm": saved(CwmConfig, num_key_value_heads=2, head_dim=16, sliding_window=64, mlp_bias=True, tie_word_embeddings=True,
                           layer_types=["sliding_attention", "full_attention", "sliding_attention"], eos_token_id=7, dtype="float16",
                           rope_parameters=dict(rope_type="default", rope_theta=5000.0)),
        "cwm_bare": written("cwm", num_hidden_layers=5, num_attention_heads=8),
        "cwm_hub": written(
            "cwm", attention_dropout=0.0, bos_token_id=128000, eos_token_id=[128001, 128008, 128009], head_dim=8, hidden_act="silu",
            initializer_range=0.02, max_position_embeddings=131072, mlp_bias=False, num_key_value_heads=2, pretraining_tp=1,
            rms_norm_eps=1e-05, rope_theta=1000000.0, rope_scaling=dict(
                factor=16.0, high_freq_factor=4.0, low_freq_factor=1.0, original_max_position_embeddings=8192, rope_type="llama3"),
            sliding_window=8192, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
        "saved_ministral": saved(MinistralConfig, num_key_value_heads=2, head_dim=12, sliding_window=32,
                                 layer_types=["sliding_attention", "full_attention", "full_attention"]),
        "saved_ministral_full": saved(MinistralConfig, num_key_value_heads=2, sliding_window=None, head_dim=12),
        "ministral_bare": written("ministral", num_attention_heads=8, head_dim=8),
        "saved_minicpm3": saved(
            MiniCPM3Config, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=20, qk_nope_head_dim=12, qk_rope_head_dim=8,
            v_head_dim=10, scale_emb=5, scale_depth=None, dim_model_base=None, tie_word_embeddings=False, dtype="bfloat16",
            rope_parameters=dict(rope_type="longrope", rope_theta=5000.0, original_max_position_embeddings=2048, **LONG_ROPE)),
        "minicpm3_bare": written("minicpm3", hidden_size=80, num_attention_heads=40),
        "minicpm3_hub": written(
            "minicpm3", attention_bias=False, attention_dropout=0.0, bos_token_id=1, dim_model_base=16, eos_token_id=[2, 273],
            hidden_act="silu", initializer_range=0.1, kv_lora_rank=24, max_position_embeddings=32768, num_key_value_heads=4,
            q_lora_rank=20, qk_nope_head_dim=16, qk_rope_head_dim=8, rms_norm_eps=1e-05, rope_scaling=dict(
                type="longrope", original_max_position_embeddings=32768, **LONG_ROPE), scale_depth=1.4, scale_emb=12,
            torch_dtype="bfloat16", use_cache=True),
        "saved_nanochat": saved(NanoChatConfig, num_key_value_heads=2, attention_bias=True, final_logit_softcapping=None,
                                tie_word_embeddings=True, dtype="bfloat16", rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=5000.0)),
        "nanochat_bare": written("nanochat"),
        "nanochat_hub": written(
            "nanochat", attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=1, final_logit_softcapping=15.0,
            hidden_act="relu2", initializer_range=0.02, max_position_embeddings=2048, num_key_value_heads=4, pad_token_id=1,
            rms_norm_eps=1e-06, rope_parameters=dict(rope_theta=10000.0, rope_type="default"), tie_word_embeddings=False,
            dtype="bfloat16", use_cache=True),
        "saved_granite_swa": saved(
            GraniteSWAConfig, num_key_value_heads=2, sliding_window=24, layer_types=["full_attention", "full_attention", "sliding_attention"],
            layer_rope_theta=[5000.0, 0, 100.0], attention_bias=True, tie_word_embeddings=False, embedding_multiplier=12.0,
            logits_scaling=8.0, attention_multiplier=0.0625, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=300.0)),
        "saved_granite_swa_everywhere": saved(
            GraniteSWAConfig, num_key_value_heads=2, layer_types=["sliding_attention"] * 3, layer_rope_theta=[0, 500.0, 0],
            dtype="float16"),
        "granite_swa_bare": written("granite_swa", num_hidden_layers=6),
        "saved_vaultgemma": saved(VaultGemmaConfig, num_key_value_heads=2, head_dim=16, sliding_window=64, query_pre_attn_scalar=16,
                                  attn_logit_softcapping=None, final_logit_softcapping=20.0, dtype="bfloat16"),
        "vaultgemma_bare": written("vaultgemma"),
        "saved_flex_olmo": saved(FlexOlmoConfig, num_key_value_heads=2, num_experts=6, num_experts_per_tok=2, norm_topk_prob=True,
                                 attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-5, pad_token_id=3),
        "flex_olmo_bare": written("flex_olmo", pad_token_id=5),
    }
