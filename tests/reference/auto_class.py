"""Which of transformers' classes loads a model with its head: of some that read pictures it is not the causal one's."""
import torch
import transformers

EAGER = dict(attn_implementation="eager", experts_implementation="eager")  # the other experts want widths in fours


def auto_class(config):
    pictures = config.model_type in ("mistral3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "gemma4",
                                     "gemma4_unified")
    return transformers.AutoModelForImageTextToText if pictures else transformers.AutoModelForCausalLM


def load(folder, **more):
    """In fp32, by the plain implementations."""
    whole = auto_class(transformers.AutoConfig.from_pretrained(folder))
    return whole.from_pretrained(folder, dtype=torch.float32, **EAGER, **more)
