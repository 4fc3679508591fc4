"""Cases of make_config_goldens.py: families with rows of their own beside the Llamas, GLMs, Granites and mixtures there."""

from layer_norm_configs import layer_norm_cases
from llama_like_configs import llama_like_cases
from space_configs import space_cases
from transformers import AfmoeConfig, Dots1Config, ExaoneMoeConfig, GlmConfig, GraniteMoeHybridConfig, GraniteMoeSharedConfig
from transformers import HeliumConfig, HunYuanMoEV1Config, HyperCLOVAXConfig, InternLM3Config, IQuestCoderConfig, MellumConfig
from transformers import MiniMaxM2Config, NemotronHConfig, SolarOpenConfig, YoutuConfig

FACTORS = dict(embedding_multiplier=12.0, residual_multiplier=0.25, logits_scaling=8.0, attention_multiplier=0.0625)


def nemotron_cases(saved, written):
    tokens = dict(bos_token_id=1, eos_token_id=[2, 11], pad_token_id=0, tie_word_embeddings=False)
    return {
        "saved_nemotron_h": saved(
            NemotronHConfig, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], num_key_value_heads=2, head_dim=12,
            mamba_num_heads=6, mamba_head_dim=8, n_groups=3, ssm_state_size=20, conv_kernel=3, use_conv_bias=False, use_bias=True,
            mlp_bias=True, time_step_min=0.01, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
            moe_intermediate_size=20, moe_shared_expert_intermediate_size=28, norm_topk_prob=False, routed_scaling_factor=2.5,
            layer_norm_epsilon=1e-6, dtype="bfloat16"),
        "saved_nemotron_h_attention": saved(NemotronHConfig, layers_block_type=["full_attention", "mlp"], num_key_value_heads=4),
        "nemotron_h_bare": written("nemotron_h", num_attention_heads=16),
        # As Nemotron-H 8B and Nemotron Nano 2 are published.
        "nemotron_h_hub": written(
            "nemotron_h", attention_bias=False, attention_dropout=0.0, attention_head_dim=128, chunk_size=128, conv_kernel=4, expand=2,
            head_dim=16, hidden_dropout=0.0, hybrid_override_pattern="M-M-M*-M-", initializer_range=0.02, layer_norm_epsilon=1e-05,
            mamba_head_dim=8, mamba_hidden_act="silu", mamba_num_heads=8, mamba_proj_bias=False, max_position_embeddings=8192,
            mlp_bias=False, mlp_hidden_act="relu2", n_groups=8, num_key_value_heads=2, num_logits_to_keep=1,
            rescale_prenorm_residual=True, residual_in_fp32=False, rms_norm_eps=1e-05, sliding_window=None, ssm_state_size=16,
            time_step_floor=0.0001, time_step_limit=[0.0, 1e9], time_step_max=0.1, time_step_min=0.001, torch_dtype="bfloat16",
            use_bias=False, use_cache=True, use_conv_bias=True, use_mamba_kernels=True, **tokens),
        # As Nemotron 3 Nano is.
        "nemotron_h_experts_hub": written(
            "nemotron_h", attention_bias=False, attention_dropout=0.0, chunk_size=128, conv_kernel=4, expand=2, head_dim=16,
            hidden_dropout=0.0, hybrid_override_pattern="MEMEM*E", layer_norm_epsilon=1e-05, mamba_head_dim=8,
            mamba_hidden_act="silu", mamba_num_heads=8, mamba_proj_bias=False, mamba_ssm_cache_dtype="float32",
            max_position_embeddings=262144, mlp_bias=False, mlp_hidden_act="relu2", moe_intermediate_size=24,
            moe_shared_expert_intermediate_size=40, n_group=1, n_groups=4, n_routed_experts=16, n_shared_experts=1,
            norm_eps=1e-05, norm_topk_prob=True, num_experts_per_tok=6, num_key_value_heads=2, num_logits_to_keep=1,
            partial_rotary_factor=1.0, rescale_prenorm_residual=True, residual_in_fp32=False, rope_theta=10000,
            routed_scaling_factor=2.5, sliding_window=None, ssm_state_size=16, time_step_floor=0.0001, time_step_limit=[0.0, 1e9],
            time_step_max=0.1, time_step_min=0.001, topk_group=1, torch_dtype="bfloat16", use_bias=False, use_cache=True,
            use_conv_bias=True, use_mamba_kernels=True, **tokens),
        "nemotron_h_older": written(
            "nemotron_h", num_attention_heads=8, layers_block_type=["mamba", "attention", "mlp"], mamba_n_groups=2, n_groups=3, mamba_num_heads=4, mamba_d_conv=2,
            mamba_conv_bias=False, mamba_dt_min=0.02, mamba_head_dim=16, hybrid_override_pattern="MMM"),
    }


def dense_cases(saved, written):
    return {
        "saved_internlm3": saved(InternLM3Config, num_key_value_heads=4, head_dim=16, attention_bias=True, mlp_bias=True,
                                 tie_word_embeddings=True, dtype="bfloat16"),
        "internlm3_bare": written("internlm3"),
        "internlm3_hub": written(
            "internlm3", attention_dropout=0.0, bias=False, bos_token_id=1, eos_token_id=2, head_dim=16, hidden_act="silu",
            initializer_range=0.02, max_position_embeddings=32768, num_key_value_heads=2, pad_token_id=2, qkv_bias=False,
            rms_norm_eps=1e-05, rope_scaling=dict(factor=6.0, rope_type="dynamic"), rope_theta=50000000, tie_word_embeddings=False,
            torch_dtype="bfloat16", use_cache=True),
        "internlm3_biased": written("internlm3", qkv_bias=True, bias=True),
        "saved_iquestcoder": saved(IQuestCoderConfig, num_key_value_heads=4, head_dim=16, attention_bias=True, mlp_bias=True),
        "iquestcoder_bare": written("iquestcoder", num_attention_heads=8),
        "iquestcoder_hub": written(
            "iquestcoder", attention_bias=False, attention_dropout=0.0, bos_token_id=1, clip_qkv=None, eos_token_id=[2, 275],
            head_dim=16, hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, mlp_bias=False,
            num_key_value_heads=2, pad_token_id=None, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=500000.0,
            tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, use_sliding_window=False),
        "saved_helium": saved(HeliumConfig, num_key_value_heads=2, head_dim=8, attention_bias=True, mlp_bias=True, dtype="float16"),
        "helium_bare": written("helium", hidden_size=2560, num_attention_heads=20),
        "helium_hub": written("helium", attention_bias=False, attention_dropout=0.0, bos_token_id=1, eos_token_id=2, head_dim=8,
                              hidden_act="silu", max_position_embeddings=4096, mlp_bias=False, num_key_value_heads=4,
                              pad_token_id=3, rms_norm_eps=1e-08, rope_theta=100000.0, tie_word_embeddings=False,
                              torch_dtype="bfloat16", use_cache=True),
        "saved_glm": saved(GlmConfig, num_key_value_heads=4, head_dim=16, attention_bias=False, pad_token_id=0, eos_token_id=[2, 7],
                           tie_word_embeddings=True,
                           rope_parameters=dict(rope_type="default", rope_theta=20000.0, partial_rotary_factor=0.25)),
        "glm_bare": written("glm", vocab_size=151552),
        "glm_hub": written("glm", attention_bias=True, attention_dropout=0.0, eos_token_id=[269, 276, 278], head_dim=16,
                           hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, num_key_value_heads=2,
                           pad_token_id=269, partial_rotary_factor=0.5, rms_norm_eps=1.5625e-07, rope_theta=10000.0,
                           tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True),
        "saved_youtu": saved(YoutuConfig, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=12, qk_nope_head_dim=10,
                             qk_rope_head_dim=6, v_head_dim=8, attention_bias=True, rope_interleave=False, bos_token_id=1,
                             eos_token_id=2, tie_word_embeddings=False, dtype="bfloat16"),
        "youtu_bare": written("youtu", num_attention_heads=16),
        "youtu_hub": written(
            "youtu", attention_bias=False, attention_dropout=0.0, bos_token_id=280, embedding_initializer_range=0.04,
            eos_token_id=281, hidden_act="silu", initializer_range=0.02, kv_lora_rank=16, max_position_embeddings=131072,
            mlp_bias=False, num_key_value_heads=4, q_lora_rank=24, qk_head_dim=16, qk_nope_head_dim=12, qk_rope_head_dim=4,
            rms_norm_eps=1e-06, rope_interleave=True, rope_scaling=None, rope_theta=1600000, tie_word_embeddings=True,
            torch_dtype="bfloat16", use_cache=True, v_head_dim=12),
        "saved_hyperclovax": saved(HyperCLOVAXConfig, num_key_value_heads=2, head_dim=16, attention_bias=True, mlp_bias=True,
                                   tie_word_embeddings=True, **FACTORS),
        "saved_hyperclovax_plain": saved(HyperCLOVAXConfig, use_post_norm=False, embedding_multiplier=2.0, residual_multiplier=0.5),
        "hyperclovax_bare": written("hyperclovax"),
        "hyperclovax_hub": written(
            "hyperclovax", attention_bias=False, attention_dropout=0.0, attention_multiplier=0.0078125, bos_token_id=257,
            embd_pdrop=0.0, embedding_multiplier=10.0, end_token_id=257, eos_token_id=257, head_dim=16, hidden_act="silu",
            initializer_range=0.012727922061357854, logits_scaling=0.125, max_position_embeddings=131072, mlp_bias=False,
            num_key_value_heads=2, pad_token_id=257, resid_pdrop=0.0, residual_multiplier=1.0, rms_norm_eps=1e-05,
            rope_scaling=None, rope_theta=100000000, tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=False,
            use_post_norm=True),
    }


def granite_cases(saved, written):
    attention = dict(layer_types=["attention"] * 3, mamba_n_heads=1)
    return {
        "saved_granitemoeshared": saved(GraniteMoeSharedConfig, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=3,
                                        shared_intermediate_size=40, attention_bias=False, dtype="bfloat16", **FACTORS),
        "granitemoeshared_bare": written("granitemoeshared"),
        "granitemoeshared_hub": written(
            "granitemoeshared", attention_bias=False, attention_dropout=0.0, bos_token_id=0, eos_token_id=0, hidden_act="silu",
            initializer_range=0.02, max_position_embeddings=4096, num_experts_per_tok=3, num_key_value_heads=2, num_local_experts=6,
            output_router_logits=False, pad_token_id=0, rms_norm_eps=1e-06, rope_scaling=None, rope_theta=10000,
            router_aux_loss_coef=0.01, shared_intermediate_size=32, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True,
            **FACTORS),
        "saved_granitemoehybrid": saved(GraniteMoeHybridConfig, num_key_value_heads=2, num_local_experts=0, num_experts_per_tok=0,
                                        shared_intermediate_size=40, position_embedding_type="rope", attention_bias=True, **attention),
        "saved_granitemoehybrid_experts": saved(GraniteMoeHybridConfig, num_local_experts=4, num_experts_per_tok=2, dtype="float16",
                                                **attention),
        "saved_granitemoehybrid_mamba": saved(
            GraniteMoeHybridConfig, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=40, mamba_n_heads=4,
            mamba_d_state=24, layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_proj_bias=True,
            mamba_d_conv=3, mamba_conv_bias=False, mamba_expand=3, time_step_limit=(0.001, 0.5)),
        "saved_granitemoehybrid_groups": saved(
            GraniteMoeHybridConfig, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=40, mamba_n_heads=8,
            mamba_d_state=24, mamba_n_groups=4, layer_types=["linear_attention", "full_attention", "linear_attention"]),
        "granitemoehybrid_mamba_hub": written(
            "granitemoehybrid", attention_bias=False, attention_dropout=0.0, bos_token_id=257, eos_token_id=257, hidden_act="silu",
            init_method="mup", initializer_range=0.1, layer_types=["mamba", "mamba", "attention"], mamba_chunk_size=256,
            mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=16, mamba_d_state=128, mamba_expand=2, mamba_n_groups=1,
            mamba_n_heads=4, mamba_proj_bias=False, max_position_embeddings=131072, normalization_function="rmsnorm",
            num_experts_per_tok=3, num_key_value_heads=2, num_local_experts=6, output_router_logits=False, pad_token_id=256,
            position_embedding_type="nope", rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000, router_aux_loss_coef=0.01,
            shared_intermediate_size=96, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, **FACTORS),
        "granitemoehybrid_hub": written(
            "granitemoehybrid", attention_bias=False, attention_dropout=0.0, bos_token_id=257, eos_token_id=257, hidden_act="silu",
            init_method="mup", initializer_range=0.1, layer_types=["attention"] * 3, mamba_chunk_size=256, mamba_conv_bias=True,
            mamba_d_conv=4, mamba_d_head=32, mamba_d_state=256, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=2,
            mamba_proj_bias=False, max_position_embeddings=131072, normalization_function="rmsnorm", num_experts_per_tok=0,
            num_key_value_heads=2, num_local_experts=0, output_router_logits=False, pad_token_id=256,
            position_embedding_type="rope", rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000000, router_aux_loss_coef=0.01,
            shared_intermediate_size=96, tie_word_embeddings=True, torch_dtype="bfloat16", use_cache=True, **FACTORS),
    }


def mixture_cases(saved, written):
    routed = dict(num_key_value_heads=2, num_experts_per_tok=3, moe_intermediate_size=20)
    return {
        "saved_mellum": saved(
            MellumConfig, num_experts=6, head_dim=16, sliding_window=16, attention_bias=True, norm_topk_prob=False,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"], mlp_layer_types=["sparse", "dense", "sparse"],
            rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=5000.0),
                                 full_attention=dict(rope_type="yarn", rope_theta=50000.0, factor=8.0, beta_fast=16.0,
                                                     original_max_position_embeddings=512)), **routed),
        "mellum_bare": written("mellum"),
        "mellum_hub": written(
            "mellum", attention_bias=False, attention_dropout=0.0, bos_token_id=0, dtype="bfloat16", eos_token_id=0, head_dim=16,
            hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072, mlp_layer_types=["sparse"] * 3,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"], norm_topk_prob=True, num_local_experts=5,
            num_nextn_predict_layers=1, output_router_logits=False, pad_token_id=0, rms_norm_eps=1e-06,
            rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=10000.0),
                                 full_attention=dict(rope_type="default", rope_theta=500000.0)),
            sliding_window=1024, tie_word_embeddings=False, use_cache=True, **routed),
        "saved_dots1": saved(Dots1Config, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2, norm_topk_prob=True,
                             routed_scaling_factor=2.5, first_k_dense_replace=1, sliding_window=16, max_window_layers=1,
                             attention_bias=True, dtype="bfloat16", **routed),
        "saved_dots1_all_see": saved(Dots1Config, n_routed_experts=8, n_shared_experts=1, sliding_window=None, **routed),
        "dots1_bare": written("dots1", hidden_size=64, n_routed_experts=6, n_shared_experts=1, num_attention_heads=32, num_experts_per_tok=2,
                              moe_intermediate_size=20),
        "dots1_hub": written(
            "dots1", attention_bias=False, attention_dropout=0.0, bos_token_id=None, eos_token_id=251, first_k_dense_replace=1,
            head_dim=16, hidden_act="silu", initializer_range=0.02, max_position_embeddings=32768, max_window_layers=3,
            moe_layer_freq=1, n_group=1, n_routed_experts=6, n_shared_experts=2, norm_topk_prob=True, pad_token_id=None,
            rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000000, routed_scaling_factor=2.5, scoring_func="noaux_tc",
            sliding_window=None, tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", torch_dtype="bfloat16",
            use_cache=True, use_sliding_window=False, **routed),
        "saved_solar_open": saved(SolarOpenConfig, n_routed_experts=8, n_shared_experts=2, n_group=4, topk_group=2, head_dim=16,
                                  norm_topk_prob=False, routed_scaling_factor=1.5, attention_bias=True, rope_parameters=dict(
                                      rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5), **routed),
        "solar_open_bare": written("solar_open", num_attention_heads=8),
        "solar_open_hub": written(
            "solar_open", attention_bias=False, attention_dropout=0.0, bos_token_id=1, dtype="bfloat16", eos_token_id=2,
            first_k_dense_replace=0, head_dim=16, hidden_act="silu", initializer_range=0.02, max_position_embeddings=131072,
            n_group=1, n_routed_experts=6, n_shared_experts=1, norm_topk_prob=True, pad_token_id=2, partial_rotary_factor=1.0,
            rms_norm_eps=1e-05, rope_scaling=dict(factor=2.0, original_max_position_embeddings=65536, type="yarn"),
            rope_theta=1000000, routed_scaling_factor=1.0, tie_word_embeddings=False, topk_group=1, use_cache=True,
            use_qk_norm=False, **routed),
        "saved_exaone_moe": saved(ExaoneMoeConfig, num_experts=8, n_group=4, topk_group=2, norm_topk_prob=False, num_shared_experts=2,
                                  sliding_window=16, mlp_layer_types=["sparse", "dense", "sparse"], num_hidden_layers=3,
                                  layer_types=["full_attention", "sliding_attention", "full_attention"], dtype="bfloat16", **routed),
        "exaone_moe_bare": written("exaone_moe", hidden_size=64, num_attention_heads=32, num_hidden_layers=5),
        "exaone_moe_hub": written(
            "exaone_moe", attention_dropout=0.0, bos_token_id=1, eos_token_id=53, first_k_dense_replace=2, head_dim=16,
            hidden_act="silu", initializer_range=0.02, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            max_position_embeddings=262144, n_group=1, norm_topk_prob=True, num_experts=6, num_nextn_predict_layers=1,
            num_shared_experts=1, pad_token_id=0, rms_norm_eps=1e-05, rope_parameters=dict(rope_theta=1000000, rope_type="default"),
            routed_scaling_factor=2.5, scoring_func="sigmoid", sliding_window=128, sliding_window_pattern="LLG",
            tie_word_embeddings=False, topk_group=1, topk_method="noaux_tc", torch_dtype="bfloat16", use_cache=True, **routed),
        "saved_hunyuan_moe": saved(HunYuanMoEV1Config, num_key_value_heads=2, head_dim=16, num_experts=5, moe_topk=3,
                                   attention_bias=True, tie_word_embeddings=True),
        "hunyuan_moe_bare": written("hunyuan_v1_moe", head_dim=8),
        "hunyuan_moe_hub": written(
            "hunyuan_v1_moe", attention_bias=False, attention_dropout=0.0, bos_token_id=1, cla_share_factor=2, eod_token_id=293,
            eos_token_id=293, head_dim=16, hidden_act="silu", initializer_range=0.02, max_position_embeddings=32768, mlp_bias=False,
            moe_drop_tokens=False, moe_intermediate_size=[48] * 3, moe_layer_num_skipped=0, moe_random_routing_dropped_token=False,
            moe_topk=[2] * 3, norm_type="rms", num_experts=6, num_key_value_heads=2, num_shared_expert=[1] * 3, pad_token_id=294,
            rms_norm_eps=1e-05, rope_scaling=dict(alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0,
                                                  mscale_all_dim=1.0, type="dynamic"), rope_theta=10000.0, tie_word_embeddings=True,
            torch_dtype="bfloat16", use_cache=True, use_cla=False, use_mixed_mlp_moe=True, use_qk_norm=True),
        "saved_minimax_m2": saved(MiniMaxM2Config, num_key_value_heads=2, head_dim=16, num_local_experts=6, num_experts_per_tok=3,
                                  bos_token_id=1, eos_token_id=2, rotary_dim=8, tie_word_embeddings=True),
        "minimax_m2_bare": written("minimax_m2", num_attention_heads=8),
        "minimax_m2_hub": written(
            "minimax_m2", attention_dropout=0.0, attn_type_list=[1] * 3, head_dim=16, hidden_act="silu", initializer_range=0.02,
            bos_token_id=1, eos_token_id=2, max_position_embeddings=196608, num_experts_per_tok=2, num_key_value_heads=2,
            num_local_experts=5, output_router_logits=False, qk_norm_type="per_layer", rms_norm_eps=1e-06, rope_theta=5000000,
            rotary_dim=8, router_aux_loss_coef=0.001, router_jitter_noise=0.0, scoring_func="sigmoid", shared_intermediate_size=0,
            tie_word_embeddings=False, torch_dtype="bfloat16", use_cache=True, use_mtp=True, use_qk_norm=True,
            use_routing_bias=True),
        "saved_afmoe": saved(AfmoeConfig, num_experts=6, num_shared_experts=1, num_dense_layers=2, head_dim=16, route_scale=2.5,
                             mup_enabled=True, sliding_window=16, attention_bias=True, num_hidden_layers=4,
                             layer_types=["full_attention", "sliding_attention", "sliding_attention", "full_attention"], **routed),
        "afmoe_bare": written("afmoe", num_hidden_layers=5),
        "afmoe_hub": written(
            "afmoe", attention_dropout=0.0, dtype="bfloat16", eos_token_id=3, global_attn_every_n_layers=2, head_dim=16,
            hidden_act="silu", initializer_range=0.02, load_balance_coeff=0.001, max_position_embeddings=131072, mup_enabled=True,
            n_group=1, num_dense_layers=1, num_expert_groups=1, num_experts=6, num_limited_groups=1, num_shared_experts=1,
            pad_token_id=12, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=10000, route_norm=True, route_scale=2.826,
            score_func="sigmoid", sliding_window=2048, tie_word_embeddings=False, topk_group=1, use_cache=True,
            use_grouped_mm=True, **routed),
    }


def more_cases(saved, written):
    return {**dense_cases(saved, written), **llama_like_cases(saved, written), **granite_cases(saved, written), **nemotron_cases(saved, written), **mixture_cases(saved, written),
            **layer_norm_cases(saved, written), **space_cases(saved, written)}
