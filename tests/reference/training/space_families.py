"""Cases of families.py that have state spaces and no experts."""
from transformers import BambaConfig, BambaForCausalLM

BUILT_AS_OTHERS = ("bamba_wide",)


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
    }
