"""Cases of families.py whose blocks are normed by LayerNorm."""
from transformers import Cohere2Config, Cohere2ForCausalLM, CohereConfig, CohereForCausalLM, OlmoConfig, OlmoForCausalLM
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, NemotronConfig, NemotronForCausalLM
from transformers import Jais2Config, Jais2ForCausalLM, StableLmConfig, StableLmForCausalLM, Starcoder2Config, Starcoder2ForCausalLM

UNGATED_LAYERS = {  # of MLPs, and what is behind attention
    "starcoder2": ["o_proj", "c_fc", "c_proj"],
    "nemotron": ["o_proj", "up_proj", "down_proj"],
    "jais2": ["o_proj", "up_proj", "down_proj"],
    "nanochat": ["o_proj", "fc1", "fc2"],
}

BUILT_AS_OTHERS = ("cohere", "cohere_biased", "stablelm", "stablelm_parallel", "gpt_neox_serial", "nemotron_biased")


def layer_norm_cases(case):
    return {
        # Norms that add one to their weight and have a bias, MLPs without a gate; half of each head's channels turn.
        "nemotron": case(
            NemotronConfig, NemotronForCausalLM, hidden_size=44, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=12, vocab_size=125, norm_eps=1e-5, hidden_act="relu2", tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.5)),
        # Biases of keys are of no effect in channels that do not turn: here all do.
        "nemotron_biased": case(
            NemotronConfig, NemotronForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, vocab_size=121, norm_eps=1e-4, hidden_act="relu2", tie_word_embeddings=True, attention_bias=True,
            mlp_bias=True, rope_parameters=dict(rope_type="linear", factor=2.0, rope_theta=5000.0, partial_rotary_factor=1.0)),
        # Biases everywhere, MLPs without a gate.
        "jais2": case(
            Jais2Config, Jais2ForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=123, layer_norm_eps=1e-5, hidden_act="relu2", tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Blocks in parallel; logits are multiplied, neighbouring channels turn.
        "cohere": case(
            CohereConfig, CohereForCausalLM, hidden_size=48, intermediate_size=62, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=123, layer_norm_eps=1e-5, logit_scale=0.6, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        "cohere_biased": case(
            CohereConfig, CohereForCausalLM, hidden_size=44, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=119, layer_norm_eps=1e-3, logit_scale=1.4, tie_word_embeddings=False,
            attention_bias=True, rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        # The layer that sees all has no rotary embedding.
        "cohere2": case(
            Cohere2Config, Cohere2ForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=127, layer_norm_eps=1e-5, logit_scale=0.8, tie_word_embeddings=True,
            sliding_window=6, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # MLPs without a gate; biases everywhere, those of norms too; a window.
        "starcoder2": case(
            Starcoder2Config, Starcoder2ForCausalLM, hidden_size=48, intermediate_size=82, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, vocab_size=121, norm_epsilon=1e-5, tie_word_embeddings=True,
            hidden_act="gelu_pytorch_tanh", sliding_window=7, rope_parameters=dict(rope_type="default", rope_theta=1000.0)),
        # Heads turn in part: without biases of keys, which have no gradient in channels that do not turn.
        "stablelm": case(
            StableLmConfig, StableLmForCausalLM, hidden_size=48, intermediate_size=70, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=3, vocab_size=125, layer_norm_eps=1e-5, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=0.25)),
        "stablelm_parallel": case(
            StableLmConfig, StableLmForCausalLM, hidden_size=40, intermediate_size=58, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, vocab_size=117, layer_norm_eps=1e-5, tie_word_embeddings=False, use_parallel_residual=True,
            use_qkv_bias=True, rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0)),
        # Blocks in parallel with a norm of each half, layers joined by heads, names of their own.
        "gpt_neox": case(
            GPTNeoXConfig, GPTNeoXForCausalLM, hidden_size=48, intermediate_size=82, num_hidden_layers=2, num_attention_heads=3,
            vocab_size=123, layer_norm_eps=1e-5, tie_word_embeddings=False, hidden_act="gelu",
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, partial_rotary_factor=1.0)),
        "gpt_neox_serial": case(
            GPTNeoXConfig, GPTNeoXForCausalLM, hidden_size=40, intermediate_size=62, num_hidden_layers=2, num_attention_heads=2,
            vocab_size=119, layer_norm_eps=1e-5, tie_word_embeddings=False, hidden_act="gelu", use_parallel_residual=False,
            attention_bias=False, rope_parameters=dict(rope_type="default", rope_theta=5000.0, partial_rotary_factor=0.5)),
        # Norms that have no weights.
        "olmo": case(
            OlmoConfig, OlmoForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=129, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    }
