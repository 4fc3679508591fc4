"""Names and shapes of experts: transformers holds those of a block in one tensor, files have each by itself."""


def names_of(model_type):
    """Module and matrices of an expert, as files have them."""
    if model_type == "mixtral":
        return "block_sparse_moe", "w1", "w3", "w2"
    return "mlp", "gate_proj", "up_proj", "down_proj"


def in_files(model_type, name, tensor):
    """What files have of the parameter `name`, as pairs of name and tensor."""
    module, gate, up, down = names_of(model_type)
    block, _, rest = name.partition(".mlp.")
    if rest == "gate.weight":
        return [(f"{block}.{module}.gate.weight", tensor)]
    if rest == "experts.down_proj":
        return [(f"{block}.{module}.experts.{e}.{down}.weight", part) for e, part in enumerate(tensor)]
    if rest == "experts.gate_up_proj":
        return [(f"{block}.{module}.experts.{e}.{word}.weight", half)
                for e, part in enumerate(tensor) for word, half in zip((gate, up), part.chunk(2))]
    return [(name, tensor)]
