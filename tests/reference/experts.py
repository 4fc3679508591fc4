"""Names and shapes of experts: transformers holds those of a block in one tensor, files have each by itself. GPT-OSS's
files have one tensor too, but Rondo names its parts as it does those of the others."""


def names_of(model_type):
    """Module and matrices of an expert, as files have them."""
    if model_type == "mixtral":
        return "block_sparse_moe", "w1", "w3", "w2"
    return "mlp", "gate_proj", "up_proj", "down_proj"


def parts_of_stack(name, tensor):
    """GPT-OSS: gate and up in turns, matrices transposed."""
    experts, _, what = name.rpartition(".")
    if what == "down_proj":
        return [(f"{experts}.{e}.down_proj.weight", part.T) for e, part in enumerate(tensor)]
    if what == "gate_up_proj":
        return [(f"{experts}.{e}.{word}.weight", part[:, first::2].T)
                for e, part in enumerate(tensor) for first, word in enumerate(("gate_proj", "up_proj"))]
    if what == "gate_up_proj_bias":
        return [(f"{experts}.{word}.bias", tensor[:, first::2]) for first, word in enumerate(("gate_proj", "up_proj"))]
    return [(name.replace("down_proj_bias", "down_proj.bias"), tensor)]


def in_files(model_type, name, tensor):
    """What files have of the parameter `name`, as pairs of name and tensor."""
    module, gate, up, down = names_of(model_type)
    block, _, rest = name.partition(".mlp.")
    if model_type == "gpt_oss":
        return parts_of_stack(name, tensor)
    if rest == "gate.weight":
        return [(f"{block}.{module}.gate.weight", tensor)]
    if rest == "experts.down_proj":
        return [(f"{block}.{module}.experts.{e}.{down}.weight", part) for e, part in enumerate(tensor)]
    if rest == "experts.gate_up_proj":
        return [(f"{block}.{module}.experts.{e}.{word}.weight", half)
                for e, part in enumerate(tensor) for word, half in zip((gate, up), part.chunk(2))]
    return [(name, tensor)]
