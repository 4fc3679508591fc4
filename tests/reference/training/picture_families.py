"""Cases of families.py: models that read pictures too, whose text part is built as another family's models."""
import json

from transformers import Gemma4UnifiedConfig, Gemma4UnifiedForCausalLM, Gemma4UnifiedForConditionalGeneration, Gemma4UnifiedTextConfig
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLMoeConfig, Qwen3VLMoeForConditionalGeneration

BUILT_AS_OTHERS = ("qwen2_vl_pictures", "qwen2_5_vl_pictures", "qwen3_vl_pictures", "qwen3_vl_moe_pictures",
                   "gemma4_unified", "gemma4_unified_pictures")


def _whole(config_class, vision):
    def make(**values):
        tied = values.pop("tie_word_embeddings")
        return config_class(text_config=values, tie_word_embeddings=tied, vision_config=vision(values["hidden_size"]))
    return make


def picture_cases(case):
    turns = dict(rope_type="default", rope_theta=3000.0)
    gemma = dict(rope_parameters=dict(
        sliding_attention=dict(rope_type="default", rope_theta=500.0),
        full_attention=dict(rope_type="proportional", rope_theta=5000.0, partial_rotary_factor=0.25)))
    return {
        "gemma4_unified": case(
            Gemma4UnifiedTextConfig, Gemma4UnifiedForCausalLM, hidden_size=48, intermediate_size=66, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=14, global_head_dim=20, num_global_key_value_heads=1,
            attention_k_eq_v=True, vocab_size=127, rms_norm_eps=1e-6, tie_word_embeddings=True, sliding_window=6,
            final_logit_softcapping=1.5, layer_types=["sliding_attention", "sliding_attention", "full_attention"], **gemma),
        "gemma4_unified_pictures": case(
            _whole(Gemma4UnifiedConfig, lambda width: dict(mm_embed_dim=width, mm_posemb_size=16, output_proj_dims=width)),
            Gemma4UnifiedForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, head_dim=16, global_head_dim=24, vocab_size=123, rms_norm_eps=1e-6,
            tie_word_embeddings=True, sliding_window=5, layer_types=["sliding_attention", "full_attention"], **gemma),
        "qwen2_vl_pictures": case(
            _whole(Qwen2VLConfig, lambda width: dict(depth=1, embed_dim=32, hidden_size=width, num_heads=2, mlp_ratio=2,
                                                     patch_size=14)),
            Qwen2VLForConditionalGeneration, hidden_size=48, intermediate_size=62, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=121, rms_norm_eps=1e-6, tie_word_embeddings=False,
            rope_parameters=dict(turns, mrope_section=[2, 2, 2])),
        # Its part for pictures has layers of the names that the text's have.
        "qwen2_5_vl_pictures": case(
            _whole(Qwen2_5_VLConfig, lambda width: dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2,
                                                        out_hidden_size=width, patch_size=14, fullatt_block_indexes=[0])),
            Qwen2_5_VLForConditionalGeneration, hidden_size=48, intermediate_size=58, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=1, vocab_size=127, rms_norm_eps=1e-6, tie_word_embeddings=True,
            rope_parameters=dict(turns, mrope_section=[1, 2, 3])),
        "qwen3_vl_pictures": case(
            _whole(Qwen3VLConfig, lambda width: dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2,
                                                     out_hidden_size=width, patch_size=14, num_position_embeddings=16,
                                                     deepstack_visual_indexes=[0])),
            Qwen3VLForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=125, rms_norm_eps=1e-6,
            tie_word_embeddings=False, rope_parameters=dict(turns, mrope_section=[4, 2, 2], mrope_interleaved=True)),
        # Experts lie transposed in its files.
        "qwen3_vl_moe_pictures": case(
            _whole(Qwen3VLMoeConfig, lambda width: dict(depth=1, hidden_size=32, intermediate_size=40, num_heads=2,
                                                        out_hidden_size=width, patch_size=14, num_position_embeddings=16,
                                                        deepstack_visual_indexes=[0])),
            Qwen3VLMoeForConditionalGeneration, hidden_size=44, intermediate_size=62, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=125, rms_norm_eps=1e-6, num_experts=7,
            num_experts_per_tok=3, moe_intermediate_size=26, mlp_only_layers=[1], tie_word_embeddings=False,
            rope_parameters=dict(turns, mrope_section=[4, 2, 2], mrope_interleaved=True)),
    }


def flatten(path):
    """A config.json as Qwen2.5-VL was published: the text's keys among those of the whole."""
    config = json.loads(path.read_text())
    text = config.pop("text_config")
    settings = text.pop("rope_parameters")
    text.update(rope_theta=settings["rope_theta"], rope_scaling=dict(type="mrope", mrope_section=settings["mrope_section"]))
    path.write_text(json.dumps({**text, **config}, indent=2) + "\n")
