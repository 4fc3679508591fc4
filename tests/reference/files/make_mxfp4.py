"""Writes tests/data/mxfp4: a tiny GPT-OSS as published, its experts in MXFP4, and what transformers expands it to.

Usage: make_mxfp4.py OUTPUT_FOLDER. `stored` is the model directory that is read, `expanded` the parameters that
transformers makes of it, under the names of its modules (save_pretrained of such a model writes others).
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 4
EXPERTS, HIDDEN, WIDTH = 3, 64, 32


def in_blocks(generator, rows, columns):
    """Random codes, and scales from the least to the largest that bf16 holds with them."""
    blocks = torch.randint(0, 256, (EXPERTS, rows, columns // 32, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 135, (EXPERTS, rows, columns // 32), generator=generator, dtype=torch.uint8)
    scales[0, 0, 0], scales[0, 1, 0] = 2, 250
    return blocks, scales


def main():
    out = pathlib.Path(sys.argv[1])
    for name in ("stored", "expanded"):
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True)
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    config = GptOssConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
                          num_key_value_heads=1, head_dim=16, vocab_size=40, num_local_experts=EXPERTS,
                          num_experts_per_tok=2, dtype="bfloat16", bos_token_id=1, eos_token_id=2, pad_token_id=0)
    with tempfile.TemporaryDirectory() as folder:
        model = GptOssForCausalLM(config).bfloat16()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "bias" in name:
                    parameter.normal_()
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder, "model.safetensors"))
        text = json.loads(pathlib.Path(folder, "config.json").read_text())
    for name, rows, columns in (("gate_up_proj", 2 * WIDTH, HIDDEN), ("down_proj", HIDDEN, WIDTH)):
        stack = f"model.layers.0.mlp.experts.{name}"
        del tensors[stack]
        tensors[f"{stack}_blocks"], tensors[f"{stack}_scales"] = in_blocks(generator, rows, columns)
    text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (out / "stored" / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    save_file(tensors, out / "stored" / "model.safetensors", metadata={"format": "pt"})
    expanded = GptOssForCausalLM.from_pretrained(
        out / "stored", dtype=torch.bfloat16, quantization_config=transformers.Mxfp4Config(dequantize=True))
    save_file({name: part.contiguous() for name, part in expanded.state_dict().items()},
              out / "expanded" / "model.safetensors", metadata={"format": "pt"})
    del text["quantization_config"]
    (out / "expanded" / "config.json").write_text(json.dumps(text, indent=1) + "\n")
    write_manifest(out, "tests/reference/files/make_mxfp4.py", SEED,
                   {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]})


if __name__ == "__main__":
    main()
