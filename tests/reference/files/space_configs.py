"""Cases of make_config_goldens.py: families that have state spaces and no experts."""

from transformers import BambaConfig, FalconH1Config

FACTORS = dict(attention_in_multiplier=0.5, attention_out_multiplier=0.25, key_multiplier=0.125, ssm_in_multiplier=1.5, ssm_out_multiplier=0.75,
               ssm_multipliers=[0.5, 0.25, 2.0, 1.25, 0.375], mlp_multipliers=[0.875, 0.0625], embedding_multiplier=5.5,
               lm_head_multiplier=0.03125)


def space_cases(saved, written):
    return {
        "saved_bamba": saved(
            BambaConfig, num_key_value_heads=2, attn_layer_indices=[0, 2], mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=24,
            mamba_d_conv=3, mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
            time_step_limit=(0.01, 0.5), pad_token_id=None, eos_token_id=[2, 7], dtype="bfloat16",
            rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=5000.0, partial_rotary_factor=0.75)),
        "saved_bamba_attention": saved(BambaConfig, num_key_value_heads=4, head_dim=16, attn_layer_indices=[0, 1, 2], mamba_n_heads=8),
        "bamba_bare": written("bamba", num_attention_heads=8, mamba_n_heads=8),
        # As it is published; layers that are not there are passed over, and so is the share of heads that turns.
        "bamba_hub": written(
            "bamba", attention_bias=False, attention_dropout=0.0, attn_layer_indices=[1, 18, 27], attn_rotary_emb=64, bos_token_id=280,
            eos_token_id=281, hidden_act="silu", initializer_range=0.02, mamba_chunk_size=256, mamba_conv_bias=True, mamba_d_conv=4,
            mamba_d_head=16, mamba_d_state=128, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=4, mamba_proj_bias=False,
            max_position_embeddings=262144, mlp_bias=False, num_key_value_heads=2, num_logits_to_keep=1, pad_token_id=0,
            partial_rotary_factor=0.25, rms_norm_eps=1e-05, rope_scaling=None, rope_theta=20000.0, tie_word_embeddings=False,
            torch_dtype="bfloat16", use_cache=True, z_loss_coefficient=0.0),
        "saved_falcon_h1": saved(
            FalconH1Config, num_key_value_heads=2, head_dim=12, mamba_d_ssm=48, mamba_n_heads=3, mamba_n_groups=3, mamba_d_state=40,
            mamba_d_conv=3, mamba_conv_bias=False, mamba_rms_norm=True, mamba_norm_before_gate=False, time_step_limit=(0.0, 0.5),
            tie_word_embeddings=True, dtype="bfloat16", rope_parameters=dict(rope_type="default", rope_theta=1e11), **FACTORS),
        "saved_falcon_h1_biased": saved(
            FalconH1Config, num_key_value_heads=4, mamba_d_ssm=None, mamba_expand=3, mamba_n_heads=8, mamba_rms_norm=True,
            attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True, attention_in_multiplier=0.5,
            ssm_in_multiplier=0.25, lm_head_multiplier=0.5),
        "falcon_h1_bare": written("falcon_h1", num_attention_heads=8),
        # As they are published.
        "falcon_h1_hub": written(
            "falcon_h1", attention_bias=False, attention_dropout=0.0, attn_layer_indices=None, bos_token_id=1, eos_token_id=11, head_dim=16,
            hidden_act="silu", initializer_range=0.02, mamba_chunk_size=256, mamba_conv_bias=True, mamba_d_conv=4, mamba_d_head=16,
            mamba_d_ssm=64, mamba_d_state=256, mamba_expand=2, mamba_n_groups=1, mamba_n_heads=4, mamba_norm_before_gate=False,
            mamba_proj_bias=False, mamba_rms_norm=False, mamba_use_mlp=True, max_position_embeddings=131072, mlp_bias=False,
            mlp_expansion_factor=8, num_key_value_heads=2, num_logits_to_keep=1, pad_token_id=0, projectors_bias=False,
            rms_norm_eps=1e-05, rope_scaling=None, rope_theta=100000000000.0, tie_word_embeddings=False, time_step_floor=0.0001,
            time_step_max=0.1, time_step_min=0.001, time_step_rank="auto", torch_dtype="bfloat16", use_cache=True, **FACTORS),
    }
