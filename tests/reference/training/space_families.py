"""Cases of families.py that have state spaces and no experts."""
from transformers import BambaConfig, BambaForCausalLM, FalconH1Config, FalconH1ForCausalLM

BUILT_AS_OTHERS = ("bamba_wide", "falcon_h1_normed", "falcon_h1_groups")


def space_cases(case):
    return {
        # State spaces on both sides of attention, of whose heads half of the channels turn.
        "bamba": case(
            BambaConfig, BambaForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=121, rms_norm_eps=1e-4, tie_word_embeddings=False, attn_layer_indices=[1],
            mamba_n_heads=6, mamba_d_state=20, mamba_n_groups=1, mamba_d_conv=4,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # States larger than a kernel's, of heads in groups; steps that are limited, and biases. All channels turn: nothing depends
        # on what is added to those of keys that do not.
        "bamba_wide": case(
            BambaConfig, BambaForCausalLM, hidden_size=40, intermediate_size=66, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=127, rms_norm_eps=1e-4, tie_word_embeddings=True, attn_layer_indices=[0],
            mamba_n_heads=4, mamba_d_state=150, mamba_n_groups=2, mamba_d_conv=3, mamba_conv_bias=False, mamba_proj_bias=True,
            attention_bias=True, mlp_bias=True, time_step_limit=(0.3, 1.2),
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0)),
        # In each block both, and factors of all that is linear; states larger than a kernel's.
        "falcon_h1": case(
            FalconH1Config, FalconH1ForCausalLM, hidden_size=48, intermediate_size=58, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=14, vocab_size=123, rms_norm_eps=1e-5, tie_word_embeddings=False, mamba_d_ssm=80,
            mamba_n_heads=5, mamba_d_state=136, mamba_d_conv=4, mamba_rms_norm=False, attention_in_multiplier=0.9,
            attention_out_multiplier=0.7, key_multiplier=0.6, ssm_in_multiplier=1.25, ssm_out_multiplier=0.4,
            ssm_multipliers=[0.8, 0.5, 0.7, 1.2, 0.6], mlp_multipliers=[0.9, 0.45], embedding_multiplier=2.5,
            lm_head_multiplier=0.6, rope_parameters=dict(rope_type="default", rope_theta=1e6)),
        # What heads give is normed before it is gated; with biases.
        "falcon_h1_normed": case(
            FalconH1Config, FalconH1ForCausalLM, hidden_size=40, intermediate_size=62, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=119, rms_norm_eps=1e-4, tie_word_embeddings=True, mamba_d_ssm=None, mamba_expand=2,
            mamba_n_heads=4, mamba_d_state=18, mamba_d_conv=3, mamba_rms_norm=True, mamba_norm_before_gate=True,
            attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True, ssm_in_multiplier=1.3,
            attention_in_multiplier=0.8, embedding_multiplier=1.7, lm_head_multiplier=0.8,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # In groups, and once it is gated.
        "falcon_h1_groups": case(
            FalconH1Config, FalconH1ForCausalLM, hidden_size=40, intermediate_size=62, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=117, rms_norm_eps=1e-3, tie_word_embeddings=False, mamba_d_ssm=72, mamba_n_heads=4,
            mamba_n_groups=2, mamba_d_state=140, mamba_conv_bias=False, mamba_rms_norm=True, mamba_norm_before_gate=False,
            key_multiplier=0.5, ssm_multipliers=[0.8, 0.5, 0.7, 1.2, 0.6], ssm_out_multiplier=0.6, time_step_limit=(0.0, 0.8),
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
    }
