"""Cases of make_config_goldens.py: as models were published that read pictures too, built as another family's."""

QWEN_PICTURES = dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2, patch_size=14, out_hidden_size=64)


# As Gemma 4 12B may be, and its text part alone.
UNIFIED = dict(
    attention_bias=False, attention_dropout=0.0, attention_k_eq_v=True, bos_token_id=2, dtype="bfloat16", eos_token_id=1,
    final_logit_softcapping=30.0, global_head_dim=32, head_dim=16, hidden_activation="gelu_pytorch_tanh", hidden_size=64,
    initializer_range=0.02, intermediate_size=96, max_position_embeddings=262144, model_type="gemma4_unified_text",
    num_attention_heads=4, num_global_key_value_heads=1, num_hidden_layers=6, num_key_value_heads=2, num_kv_shared_layers=0,
    pad_token_id=0, rms_norm_eps=1e-6, sliding_window=1024, tie_word_embeddings=True, use_bidirectional_attention="vision",
    use_cache=True, use_double_wide_mlp=False, vocab_size=300)


def picture_cases():
    mrope = dict(type="mrope", mrope_section=[4, 2, 2])
    return {
        "gemma4_unified_text_hub": UNIFIED,
        "gemma4_unified_bare": dict(model_type="gemma4_unified_text", hidden_size=64, intermediate_size=96, num_hidden_layers=3,
                                    vocab_size=300),
        "gemma4_unified_hub": {
            "model_type": "gemma4_unified", "architectures": ["Gemma4UnifiedForConditionalGeneration"], "eos_token_id": [1, 106],
            "dtype": "bfloat16", "tie_word_embeddings": True, "audio_config": None, "text_config": UNIFIED,
            "vision_config": dict(mm_embed_dim=64, mm_posemb_size=16, model_type="gemma4_unified_vision", output_proj_dims=64)},
        # The text's keys among those of the whole.
        "qwen2_5_vl_hub": {
            "model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"], "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "vision_start_token_id": 151652, "image_token_id": 151655,
            "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
            "max_position_embeddings": 128000, "max_window_layers": 70, "num_attention_heads": 4, "num_hidden_layers": 2,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
            "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
            "vision_config": dict(QWEN_PICTURES, model_type="qwen2_5_vl", fullatt_block_indexes=[0]), "rope_scaling": mrope,
            "vocab_size": 300},
        "qwen2_vl_hub": {
            "model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"], "attention_dropout": 0.0,
            "bos_token_id": 151643, "eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 96,
            "max_position_embeddings": 32768, "max_window_layers": 1, "num_attention_heads": 4, "num_hidden_layers": 3,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 40,
            "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": True,
            "vision_config": dict(depth=1, embed_dim=32, hidden_size=64, num_heads=2, mlp_ratio=2, patch_size=14,
                                  model_type="qwen2_vl"), "rope_scaling": mrope, "vocab_size": 300},
        # As transformers 4 saved it: what ties stands inside.
        "qwen2_5_vl_nested": {
            "model_type": "qwen2_5_vl", "vision_config": dict(QWEN_PICTURES, fullatt_block_indexes=[0]),
            "text_config": dict(model_type="qwen2_5_vl_text", hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                num_attention_heads=4, num_key_value_heads=None, vocab_size=300, tie_word_embeddings=True,
                                rope_scaling=dict(mrope, rope_type="default", type="default"), torch_dtype="float16"),
            "torch_dtype": "float16"},
        "qwen2_5_vl_bare": {
            "model_type": "qwen2_5_vl", "vision_config": dict(QWEN_PICTURES, fullatt_block_indexes=[0]),
            "text_config": dict(hidden_size=512, intermediate_size=96, num_hidden_layers=1, vocab_size=300)},
        "qwen3_vl_hub": {
            "model_type": "qwen3_vl", "architectures": ["Qwen3VLForConditionalGeneration"], "image_token_id": 151655,
            "tie_word_embeddings": True, "vision_config": dict(QWEN_PICTURES, model_type="qwen3_vl", num_position_embeddings=16,
                                                               deepstack_visual_indexes=[0]),
            "text_config": dict(attention_bias=False, attention_dropout=0.0, bos_token_id=151643, dtype="bfloat16",
                                eos_token_id=151645, head_dim=32, hidden_act="silu", hidden_size=64, initializer_range=0.02,
                                intermediate_size=96, max_position_embeddings=262144, model_type="qwen3_vl_text",
                                num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-06,
                                rope_scaling=dict(mrope_interleaved=True, mrope_section=[8, 4, 4], rope_type="default"),
                                rope_theta=5000000, use_cache=True, vocab_size=300)},
        "qwen3_vl_moe_hub": {
            "model_type": "qwen3_vl_moe", "architectures": ["Qwen3VLMoeForConditionalGeneration"], "image_token_id": 151655,
            "tie_word_embeddings": False, "vision_config": dict(QWEN_PICTURES, model_type="qwen3_vl_moe",
                                                                num_position_embeddings=16, deepstack_visual_indexes=[0]),
            "text_config": dict(attention_bias=False, attention_dropout=0.0, bos_token_id=151643, decoder_sparse_step=1,
                                dtype="bfloat16", eos_token_id=151645, head_dim=32, hidden_act="silu", hidden_size=64,
                                initializer_range=0.02, intermediate_size=96, max_position_embeddings=262144,
                                mlp_only_layers=[], model_type="qwen3_vl_moe_text", moe_intermediate_size=48,
                                norm_topk_prob=True, num_attention_heads=4, num_experts=8, num_experts_per_tok=2,
                                num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-06,
                                rope_scaling=dict(mrope_interleaved=True, mrope_section=[8, 4, 4], rope_type="default"),
                                rope_theta=5000000, use_cache=True, vocab_size=300)},
        "qwen3_vl_moe_bare": {
            "model_type": "qwen3_vl_moe",
            "vision_config": dict(QWEN_PICTURES, num_position_embeddings=16, deepstack_visual_indexes=[0]),
            "text_config": dict(hidden_size=64, num_hidden_layers=2, num_local_experts=6, mlp_only_layers=[0], vocab_size=300)},
        "qwen3_vl_bare": {
            "model_type": "qwen3_vl",
            "vision_config": dict(QWEN_PICTURES, num_position_embeddings=16, deepstack_visual_indexes=[0]),
            "text_config": dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, vocab_size=300)},
    }
