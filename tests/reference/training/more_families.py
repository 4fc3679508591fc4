"""Cases of families.py: families with rows of their own that differ from others in where tensors lie and what keys say."""
from transformers import AfmoeConfig, AfmoeForCausalLM, Dots1Config, Dots1ForCausalLM, ExaoneMoeConfig, ExaoneMoeForCausalLM
from transformers import GlmConfig, GlmForCausalLM, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM
from transformers import GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM, HeliumConfig, HeliumForCausalLM
from transformers import HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM, HyperCLOVAXConfig, HyperCLOVAXForCausalLM
from transformers import InternLM3Config, IQuestCoderConfig, LlamaForCausalLM, MellumConfig, MellumForCausalLM, MiniMaxM2Config, MiniMaxM2ForCausalLM
from transformers import CwmConfig, CwmForCausalLM, FlexOlmoConfig, FlexOlmoForCausalLM
from transformers import GraniteSWAConfig, GraniteSWAForCausalLM, LlamaConfig, MiniCPM3Config, MiniCPM3ForCausalLM
from transformers import MinistralConfig, MinistralForCausalLM, NanoChatConfig, NanoChatForCausalLM, VaultGemmaConfig, VaultGemmaForCausalLM
from transformers import NemotronHConfig, NemotronHForCausalLM, SolarOpenConfig, SolarOpenForCausalLM, YoutuConfig, YoutuForCausalLM

BUILT_AS_OTHERS = ("internlm3", "iquestcoder", "helium", "glm", "solar_open", "granitemoehybrid_mixture", "granitemoehybrid_groups",
                   "nemotron_h_dense", "cwm", "ministral", "flex_olmo", "granite_swa_even", "minicpm3_plain",
                   "nanochat_biased", "llama_longrope")


def more_cases(case):
    return {
        # Of the windows' pattern the first layer sees all.
        "cwm": case(
            CwmConfig, CwmForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, vocab_size=125, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=6,
            mlp_bias=True, rope_parameters=dict(rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0,
                                                high_freq_factor=4.0, original_max_position_embeddings=32)),
        "ministral": case(
            MinistralConfig, MinistralForCausalLM, hidden_size=44, intermediate_size=58, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1, head_dim=18, vocab_size=121, rms_norm_eps=1e-6, tie_word_embeddings=False, sliding_window=5,
            layer_types=["full_attention", "sliding_attention", "full_attention"],
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Frequencies with a factor each, in a family that is not Phi.
        "llama_longrope": case(
            LlamaConfig, LlamaForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-5, tie_word_embeddings=True, max_position_embeddings=256,
            rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, original_max_position_embeddings=8,
                                 short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=[1.0, 1.5, 2.0, 3.0, 4.0, 6.0])),
        # Gemma 2 without the norms behind attention and MLP.
        "vaultgemma": case(
            VaultGemmaConfig, VaultGemmaForCausalLM, hidden_size=40, intermediate_size=62, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=4, head_dim=14, vocab_size=123, rms_norm_eps=1e-6,
            query_pre_attn_scalar=18, sliding_window=6, attn_logit_softcapping=5.0, final_logit_softcapping=12.0,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Attention by a latent whose channels turn in halves, factors by depth and width.
        "minicpm3": case(
            MiniCPM3Config, MiniCPM3ForCausalLM, hidden_size=40, intermediate_size=62, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=4, q_lora_rank=22, kv_lora_rank=16, qk_nope_head_dim=10, qk_rope_head_dim=6, vocab_size=125,
            rms_norm_eps=1e-5, tie_word_embeddings=True, scale_emb=0.5, scale_depth=1.3, dim_model_base=90, max_position_embeddings=256,
            rope_parameters=dict(rope_type="longrope", rope_theta=1000.0, original_max_position_embeddings=128,
                                 short_factor=[1.0, 1.2, 1.5], long_factor=[1.0, 2.0, 5.0])),
        "minicpm3_plain": case(
            MiniCPM3Config, MiniCPM3ForCausalLM, hidden_size=44, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, q_lora_rank=None, kv_lora_rank=18, qk_nope_head_dim=14, qk_rope_head_dim=8, v_head_dim=16,
            vocab_size=119, rms_norm_eps=1e-5, tie_word_embeddings=False, scale_emb=1, scale_depth=None, dim_model_base=None,
            attention_bias=True, mlp_bias=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Norms without weights, of the embedding and of what is turned too; channels turn the other way.
        "nanochat": case(
            NanoChatConfig, NanoChatForCausalLM, hidden_size=48, intermediate_size=82, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-5, hidden_act="relu2", final_logit_softcapping=2.5,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        "nanochat_biased": case(
            NanoChatConfig, NanoChatForCausalLM, hidden_size=40, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=2, vocab_size=121, rms_norm_eps=1e-4, hidden_act="relu2", final_logit_softcapping=None, attention_bias=True,
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=1000.0)),
        # Sinks, and by layer a base of its rotary embedding or none.
        "granite_swa": case(
            GraniteSWAConfig, GraniteSWAForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=123, rms_norm_eps=1e-5, tie_word_embeddings=True, sliding_window=6,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"], layer_rope_theta=[1000.0, 50.0, 0],
            embedding_multiplier=0.7, residual_multiplier=0.8, attention_multiplier=0.4, logits_scaling=0.6,
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=7000.0)),
        "granite_swa_even": case(
            GraniteSWAConfig, GraniteSWAForCausalLM, hidden_size=40, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=119, rms_norm_eps=1e-4, tie_word_embeddings=False, sliding_window=7,
            attention_bias=True, mlp_bias=True, embedding_multiplier=1.5, attention_multiplier=0.3, logits_scaling=0.7,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        "flex_olmo": case(
            FlexOlmoConfig, FlexOlmoForCausalLM, hidden_size=48, intermediate_size=30, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts=7,
            num_experts_per_tok=3, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        "internlm3": case(
            InternLM3Config, LlamaForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=14, vocab_size=123, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
            mlp_bias=True, rope_parameters=dict(rope_type="default", rope_theta=50000.0)),
        "iquestcoder": case(
            IQuestCoderConfig, LlamaForCausalLM, hidden_size=44, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=18, vocab_size=119, rms_norm_eps=1e-5, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0)),
        # Neighbouring channels turn, all of each head.
        "helium": case(
            HeliumConfig, HeliumForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, vocab_size=127, rms_norm_eps=1e-8, tie_word_embeddings=False, attention_bias=True,
            mlp_bias=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        "glm": case(
            GlmConfig, GlmForCausalLM, hidden_size=44, intermediate_size=62, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=20, vocab_size=129, rms_norm_eps=1e-6, tie_word_embeddings=False,
            attention_bias=False, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)),
        # Attention by a latent before plain MLPs; the head is the embedding.
        "youtu": case(
            YoutuConfig, YoutuForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=3, q_lora_rank=22, kv_lora_rank=16, qk_nope_head_dim=10, qk_rope_head_dim=6, v_head_dim=14,
            vocab_size=123, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Windows from the second block on, each head's norm, groups of experts.
        "dots1": case(
            Dots1Config, Dots1ForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-6, tie_word_embeddings=False, n_routed_experts=8,
            num_experts_per_tok=3, n_shared_experts=2, moe_intermediate_size=18, n_group=4, topk_group=2, norm_topk_prob=True,
            routed_scaling_factor=1.7, first_k_dense_replace=1, sliding_window=7, max_window_layers=1,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        # Experts in every block.
        "solar_open": case(
            SolarOpenConfig, SolarOpenForCausalLM, hidden_size=44, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, vocab_size=121, rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True,
            n_routed_experts=7, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=22, routed_scaling_factor=1.4,
            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=2.0, original_max_position_embeddings=64)),
        # The layer that sees all has no rotary embedding; which blocks have experts is listed.
        "exaone_moe": case(
            ExaoneMoeConfig, ExaoneMoeForCausalLM, hidden_size=48, intermediate_size=54, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=119, rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts=6,
            num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=22, routed_scaling_factor=1.9, sliding_window=6,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"], mlp_layer_types=["sparse", "dense", "sparse"],
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Norms behind the rotary embedding; a router that is a linear layer, and an MLP that all tokens share.
        "hunyuan_moe": case(
            HunYuanMoEV1Config, HunYuanMoEV1ForCausalLM, hidden_size=44, intermediate_size=26, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=14, vocab_size=125, rms_norm_eps=1e-5, tie_word_embeddings=True,
            num_experts=6, moe_topk=3, rope_parameters=dict(rope_type="dynamic", rope_theta=500.0, factor=1.0, alpha=20.0)),
        # Norms of all heads, which turn in part.
        "minimax_m2": case(
            MiniMaxM2Config, MiniMaxM2ForCausalLM, hidden_size=48, intermediate_size=22, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=16, vocab_size=117, rms_norm_eps=1e-6, tie_word_embeddings=False, num_local_experts=7,
            num_experts_per_tok=3, rotary_dim=8, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Rotary settings by kind of layer, yarn where all is seen.
        "mellum": case(
            MellumConfig, MellumForCausalLM, hidden_size=44, intermediate_size=54, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, vocab_size=123, rms_norm_eps=1e-6, tie_word_embeddings=False, num_experts=6,
            num_experts_per_tok=3, moe_intermediate_size=22, norm_topk_prob=True, sliding_window=6,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"], mlp_layer_types=["sparse", "sparse", "dense"],
            rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=300.0),
                                 full_attention=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                                     original_max_position_embeddings=32))),
        # Attention that is gated, and not turned where it sees all; embeddings times the root of the width.
        "afmoe": case(
            AfmoeConfig, AfmoeForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, vocab_size=121, rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts=6,
            num_experts_per_tok=3, num_shared_experts=1, moe_intermediate_size=22, num_dense_layers=1, route_scale=1.8,
            mup_enabled=True, sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # A shared MLP beside them, of two linear layers.
        "granitemoeshared": case(
            GraniteMoeSharedConfig, GraniteMoeSharedForCausalLM, hidden_size=40, intermediate_size=22, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=121, rms_norm_eps=1e-6, tie_word_embeddings=False,
            num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=30, embedding_multiplier=2.3,
            residual_multiplier=0.71, logits_scaling=0.8, attention_multiplier=0.31,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        # That MLP alone.
        "granitemoehybrid": case(
            GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=125, rms_norm_eps=1e-5, tie_word_embeddings=False,
            num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=62, layer_types=["full_attention"] * 2,
            position_embedding_type="rope", mamba_n_heads=1, embedding_multiplier=2.7, residual_multiplier=0.83, logits_scaling=0.6,
            attention_multiplier=0.29, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        # State spaces before and behind attention that turns nothing; some steps are too small or too large.
        "granitemoehybrid_mamba": case(
            GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=123, rms_norm_eps=1e-5, tie_word_embeddings=True,
            num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=58,
            layer_types=["linear_attention", "full_attention", "linear_attention"], mamba_n_heads=6, mamba_d_head=16,
            mamba_d_state=20, mamba_d_conv=4, time_step_limit=(0.1, 1.2), embedding_multiplier=2.5, residual_multiplier=0.79,
            logits_scaling=0.7, attention_multiplier=0.27),
        # The same beside experts, with biases of linear layers and none of convolutions.
        "granitemoehybrid_mixture": case(
            GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, hidden_size=40, intermediate_size=22, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=119, rms_norm_eps=1e-5, tie_word_embeddings=False,
            num_local_experts=6, num_experts_per_tok=3, shared_intermediate_size=30,
            layer_types=["linear_attention", "linear_attention", "full_attention"], mamba_n_heads=4, mamba_d_head=20,
            mamba_d_state=14, mamba_d_conv=3, mamba_conv_bias=False, mamba_proj_bias=True, embedding_multiplier=2.1,
            logits_scaling=0.9, attention_multiplier=0.33),
        # The same in groups of heads.
        "granitemoehybrid_groups": case(
            GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=117, rms_norm_eps=1e-5, tie_word_embeddings=True,
            num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=58,
            layer_types=["linear_attention", "full_attention"], mamba_n_heads=6, mamba_d_head=16, mamba_n_groups=2,
            mamba_d_state=20, embedding_multiplier=2.5, residual_multiplier=0.79, logits_scaling=0.7, attention_multiplier=0.27),
        # Layers of one half: state spaces in groups of heads, experts and MLPs without a gate, attention that turns nothing. Many
        # steps are too small. With a smaller epsilon single tokens' groups are so close to 0 that rounding shows in gradients.
        "nemotron_h": case(
            NemotronHConfig, NemotronHForCausalLM, hidden_size=48, intermediate_size=58, vocab_size=123, layer_norm_epsilon=1e-2,
            layers_block_type=["linear_attention", "moe", "full_attention", "linear_attention", "mlp"], num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, mamba_num_heads=6, mamba_head_dim=22, n_groups=3, ssm_state_size=20, conv_kernel=4,
            time_step_min=0.5, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2, moe_intermediate_size=18,
            moe_shared_expert_intermediate_size=26, norm_topk_prob=True, routed_scaling_factor=1.7),
        # The same without experts, with biases.
        "nemotron_h_dense": case(
            NemotronHConfig, NemotronHForCausalLM, hidden_size=40, intermediate_size=62, vocab_size=119, layer_norm_epsilon=1e-5,
            layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"], num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, mamba_num_heads=4, mamba_head_dim=18, n_groups=2, ssm_state_size=12, conv_kernel=3,
            use_conv_bias=False, use_bias=True, mlp_bias=True),
        # Norms on both sides, and factors; logits are multiplied.
        "hyperclovax": case(
            HyperCLOVAXConfig, HyperCLOVAXForCausalLM, hidden_size=40, intermediate_size=54, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=127, rms_norm_eps=1e-5, tie_word_embeddings=False,
            embedding_multiplier=2.1, residual_multiplier=0.77, logits_scaling=1.6, attention_multiplier=0.27,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    }
