"""Cases of make_config_goldens.py: families whose blocks are normed by LayerNorm."""

from transformers import Cohere2Config, CohereConfig, GPTNeoXConfig, Jais2Config, NemotronConfig, OlmoConfig, StableLmConfig, Starcoder2Config


def layer_norm_cases(saved, written):
    return {
        "saved_cohere": saved(CohereConfig, num_key_value_heads=2, logit_scale=0.25, attention_bias=True, layer_norm_eps=1e-4,
                              tie_word_embeddings=False, pad_token_id=3, dtype="bfloat16"),
        "cohere_bare": written("cohere"),
        "cohere_hub": written(
            "cohere", attention_bias=False, attention_dropout=0.0, bos_token_id=5, eos_token_id=255, hidden_act="silu",
            initializer_range=0.02, layer_norm_eps=1e-05, logit_scale=0.0625, max_position_embeddings=8192, model_max_length=131072,
            num_key_value_heads=4, pad_token_id=0, rope_theta=8000000.0, torch_dtype="float16", use_cache=True, use_qk_norm=False),
        "saved_cohere2": saved(Cohere2Config, num_key_value_heads=2, sliding_window=16, logit_scale=0.5, dtype="float16", layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"]),
        "cohere2_bare": written("cohere2", num_hidden_layers=5),
        "cohere2_hub": written(
            "cohere2", attention_bias=False, attention_dropout=0.0, bos_token_id=5, cache_implementation="hybrid", eos_token_id=255,
            head_dim=8, hidden_act="silu", initializer_range=0.02, layer_norm_eps=1e-05, layer_switch=3, logit_scale=0.25,
            max_position_embeddings=8192, num_key_value_heads=2, order_of_interleaved_layers="local_attn_first", pad_token_id=0,
            position_embedding_type="rope_gptj", rope_scaling=None, rope_theta=50000, rotary_pct=1.0, sliding_window=4096,
            sliding_window_pattern=2, torch_dtype="bfloat16", use_cache=True, use_embedding_sharing=True, use_gated_activation=True,
            use_parallel_block=True, use_parallel_embedding=True),
        "saved_starcoder2": saved(Starcoder2Config, num_key_value_heads=2, sliding_window=16, norm_epsilon=1e-4, dtype="bfloat16"),
        "saved_starcoder2_unbiased": saved(Starcoder2Config, num_key_value_heads=1, use_bias=False, tie_word_embeddings=False,
                                           hidden_act="silu"),
        "starcoder2_bare": written("starcoder2"),
        "starcoder2_hub": written(
            "starcoder2", activation_function="gelu", attention_dropout=0.0, attention_softmax_in_fp32=True, bos_token_id=0,
            embedding_dropout=0.0, eos_token_id=0, hidden_act="gelu_pytorch_tanh", initializer_range=0.018042, layer_norm_epsilon=1e-05,
            max_position_embeddings=16384, mlp_type="default", norm_epsilon=1e-05, norm_type="layer_norm", num_key_value_heads=2,
            residual_dropout=0.0, rope_theta=999999.4420358813, scale_attention_softmax_in_fp32=True, scale_attn_weights=True,
            sliding_window=4096, use_bias=True, use_cache=True),
        "saved_stablelm": saved(StableLmConfig, num_key_value_heads=4, use_qkv_bias=True, tie_word_embeddings=True, dtype="float16",
                                rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.5)),
        "saved_stablelm_parallel": saved(StableLmConfig, num_key_value_heads=2, use_parallel_residual=True, pad_token_id=4),
        "stablelm_bare": written("stablelm", num_attention_heads=32, hidden_size=512),
        "stablelm_hub": written(
            "stablelm", attention_dropout=0.0, bos_token_id=0, eos_token_id=0, hidden_act="silu", hidden_dropout=0.0,
            initializer_range=0.02, layer_norm_eps=1e-05, max_position_embeddings=4096, num_key_value_heads=4,
            partial_rotary_factor=0.25, qk_layernorm=False, rope_theta=10000, tie_word_embeddings=False, torch_dtype="bfloat16",
            use_cache=True, use_parallel_residual=False, use_qkv_bias=False),
        "saved_nemotron": saved(NemotronConfig, num_key_value_heads=2, head_dim=12, attention_bias=True, mlp_bias=True, norm_eps=1e-4,
                                tie_word_embeddings=True, pad_token_id=4, dtype="bfloat16",
                                rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=20000.0, partial_rotary_factor=0.5)),
        "nemotron_bare": written("nemotron", num_key_value_heads=4),
        "nemotron_hub": written(
            "nemotron", attention_bias=False, attention_dropout=0.0, bos_token_id=2, eos_token_id=3, head_dim=16, hidden_act="relu2",
            initializer_range=0.0134, max_position_embeddings=4096, mlp_bias=False, norm_eps=1e-05, num_key_value_heads=2,
            partial_rotary_factor=0.25, rope_theta=10000, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
        "saved_jais2": saved(Jais2Config, num_key_value_heads=2, head_dim=12, attention_bias=False, mlp_bias=False, layer_norm_eps=1e-6,
                             tie_word_embeddings=True, dtype="float16", rope_parameters=dict(rope_type="default", rope_theta=5e5)),
        "jais2_bare": written("jais2"),
        "saved_gpt_neox": saved(GPTNeoXConfig, hidden_act="gelu_new", layer_norm_eps=1e-4, attention_bias=False,
                                tie_word_embeddings=True, dtype="float16",
                                rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.5)),
        "saved_gpt_neox_serial": saved(GPTNeoXConfig, use_parallel_residual=False, pad_token_id=1),
        "gpt_neox_bare": written("gpt_neox"),
        "gpt_neox_hub": written(
            "gpt_neox", bos_token_id=0, eos_token_id=0, hidden_act="gelu", initializer_range=0.02, layer_norm_eps=1e-05,
            max_position_embeddings=2048, rotary_emb_base=10000, rotary_pct=0.25, tie_word_embeddings=False, torch_dtype="float16",
            use_cache=True, use_parallel_residual=True),
        "saved_olmo": saved(OlmoConfig, num_key_value_heads=2, attention_bias=True, tie_word_embeddings=True, dtype="bfloat16"),
        "olmo_bare": written("olmo"),
        "olmo_hub": written(
            "olmo", attention_bias=False, attention_dropout=0.0, clip_qkv=None, eos_token_id=279, hidden_act="silu",
            initializer_range=0.02, max_position_embeddings=2048, num_key_value_heads=4, pad_token_id=1, rope_scaling=None,
            rope_theta=10000.0, tie_word_embeddings=False, use_cache=True),
    }
