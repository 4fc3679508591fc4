"""Which of transformers' classes loads a model with its head: of some that read pictures it is not the causal one's."""
import transformers


def auto_class(config):
    pictures = config.model_type == "mistral3"
    return transformers.AutoModelForImageTextToText if pictures else transformers.AutoModelForCausalLM


def load(folder, **more):
    return auto_class(transformers.AutoConfig.from_pretrained(folder)).from_pretrained(folder, **more)
