"""Adapters of every kind that Rondo trains, loaded by PEFT: no key missing, none unexpected, and the same loss.

    python check_adapters.py [--rondo build/release/rondo] [--arch qwen3]        (torch 2.15, transformers 5.23, peft 0.21)

A small random model (seed 7) of the architecture, Granite's and Falcon-H1's with factors and gemma4_small as Gemma 4's smaller ones, is trained for four steps in fp32 with each set
of keys below. PEFT loads the result, and the loss of eight texts must be the one of `rondo eval` with the same adapter to
1e-5, and another one than the base's.
"""
import argparse
import functools
import json
import pathlib
import subprocess
import tempfile

import torch
from peft import LoraConfig, PeftConfig, get_peft_model, get_peft_model_state_dict
from peft.utils import load_peft_weights, set_peft_model_state_dict
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma4ForCausalLM, Gemma4TextConfig

KINDS = {
    "plain": [],
    "rslora": ["--use_rslora"],
    "attention only": ["--lora_target", "q_proj,v_proj"],
    "rank_pattern, alpha_pattern": ["--rank_pattern", "q_proj=2,layers.1.mlp.up_proj=4", "--alpha_pattern", "q_proj=32"],
    "layers_to_transform": ["--layers_to_transform", "1"],
    "modules_to_save": ["--modules_to_save", "lm_head,embed_tokens"],
    "loraplus": ["--loraplus_lr_ratio", "8"],
    "dropout": ["--lora_dropout", "0.1"],
    "dora": ["--use_dora"],
    "dora, rslora, dropout": ["--use_dora", "--use_rslora", "--lora_dropout", "0.1", "--lora_target", "q_proj,down_proj"],
    "dora, loraplus, by parts": ["--use_dora", "--loraplus_lr_ratio", "8", "--rank_pattern", "q_proj=2",
                                 "--layers_to_transform", "1,2"],
}
OF_EXPERTS = {
    "all": [],
    "attention and dropout": ["--lora_target", "q_proj,k_proj,v_proj,o_proj", "--lora_dropout", "0.1"],
    "tensors alone": ["--lora_target", "none", "--target_parameters", "experts.down_proj"],
    "inner tensor, rslora": ["--lora_target", "v_proj,o_proj", "--target_parameters", "experts.gate_up_proj", "--use_rslora"],
    "rank_pattern, alpha_pattern": ["--rank_pattern", "gate_up_proj=3,q_proj=2", "--alpha_pattern", "down_proj=32"],
    "loraplus": ["--loraplus_lr_ratio", "8"],
}
OF_LATENTS = {
    "all": [],
    "keys and values, dropout": ["--lora_target", "kv_a_proj_with_mqa,kv_b_proj,o_proj", "--lora_dropout", "0.1"],
    "inner tensor, rslora": ["--lora_target", "kv_b_proj", "--target_parameters", "experts.gate_up_proj", "--use_rslora"],
    "rank_pattern, alpha_pattern": ["--rank_pattern", "gate_up_proj=3,kv_b_proj=2", "--alpha_pattern", "q_b_proj=32"],
    "dora, loraplus": ["--use_dora", "--loraplus_lr_ratio", "8", "--lora_target", "q_b_proj,kv_a_proj_with_mqa,kv_b_proj"],
}
OF_CONVOLUTIONS = {
    "all": [],
    "convolutions alone, dropout": ["--lora_target", "in_proj", "--lora_dropout", "0.1"],
    "rank_pattern, rslora": ["--rank_pattern", "in_proj=3,w2=2", "--use_rslora"],
    "dora, loraplus": ["--use_dora", "--loraplus_lr_ratio", "8", "--lora_target", "in_proj,out_proj,w1,w3"],
}
OF_GRANITE = {
    "all": [],
    "tensors alone": ["--lora_target", "none", "--target_parameters", "experts.down_proj"],
    "inner tensor, rslora": ["--lora_target", "input_linear,o_proj", "--target_parameters", "experts.gate_up_proj", "--use_rslora"],
    "rank_pattern, dropout": ["--rank_pattern", "input_linear=3,output_linear=2", "--lora_dropout", "0.1"],
    "dora, loraplus": ["--use_dora", "--loraplus_lr_ratio", "8", "--lora_target", "q_proj,input_linear,output_linear"],
}
OF_MIXERS = {
    "all": [],
    "attention and dropout": ["--lora_target", "q_proj,k_proj,v_proj,o_proj", "--lora_dropout", "0.1"],
    "tensors alone": ["--lora_target", "none", "--target_parameters", "experts.down_proj"],
    "tensors and router, rslora": ["--lora_target", "in_proj,o_proj", "--target_parameters", "experts.up_proj,experts.down_proj,gate.weight",
                                   "--use_rslora"],
    "rank_pattern, alpha_pattern": ["--rank_pattern", "in_proj=3,up_proj=2", "--alpha_pattern", "q_proj=32"],
    "dora, loraplus": ["--use_dora", "--loraplus_lr_ratio", "8", "--lora_target", "q_proj,in_proj,up_proj"],
    "modules_to_save": ["--modules_to_save", "lm_head"],
}
OF_SPACES = {
    "spaces and outputs, dropout": ["--lora_target", "in_proj,o_proj", "--lora_dropout", "0.1"],
    "dora of spaces, by parts": ["--use_dora", "--lora_target", "in_proj,k_proj,down_proj", "--rank_pattern", "in_proj=3"],
}
TOLERANCE = 1e-5
FACTORS = dict(embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=0.7, attention_multiplier=0.4)
FACTORS_OF_FALCON = dict(attention_in_multiplier=0.9, attention_out_multiplier=0.7, key_multiplier=0.6, ssm_in_multiplier=1.25,
                         ssm_out_multiplier=0.4, ssm_multipliers=[0.8, 0.5, 0.7, 1.2, 0.6], mlp_multipliers=[0.9, 0.45],
                         embedding_multiplier=5.5, lm_head_multiplier=0.6)


def kinds_of(names):
    """For a model with these parameters."""
    def has(word):
        return any(word in name for name in names)

    def renamed(words):
        return {kind: [functools.reduce(lambda text, pair: text.replace(*pair), words.items(), key) for key in keys]
                for kind, keys in KINDS.items()}

    if has(".query_key_value."):
        return renamed({"q_proj,v_proj": "query_key_value", "q_proj": "query_key_value", "mlp.up_proj": "mlp.dense_h_to_4h",
                        "down_proj": "dense_4h_to_h", "lm_head,embed_tokens": "lm_head"})
    if has(".c_fc."):
        return renamed({"mlp.up_proj": "mlp.c_fc", "down_proj": "c_proj"})
    if has(".fc1."):
        return renamed({"mlp.up_proj": "mlp.fc1", "down_proj": "fc2"})
    if has(".feed_forward.up_proj."):  # beside a state space
        return {**renamed({"mlp.up_proj": "feed_forward.up_proj"}), **OF_SPACES}
    if has(".mixer."):
        return OF_MIXERS
    if has(".conv.in_proj."):
        return OF_CONVOLUTIONS
    if has(".kv_b_proj."):
        return OF_LATENTS if has(".experts.") else {
            kind: keys for kind, keys in OF_LATENTS.items() if not any("gate_up_proj" in key for key in keys)}
    if has(".input_linear."):
        return OF_GRANITE if has(".experts.") else renamed({"mlp.up_proj": "shared_mlp.input_linear", "down_proj": "output_linear"})
    if has(".experts."):
        return OF_EXPERTS
    return renamed({"mlp.up_proj": "mlp.gate_up_proj"}) if has(".gate_up_proj.") else KINDS


def run(rondo, *arguments):
    done = subprocess.run([rondo, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def loss_of(model, tokenizer, texts):
    total, count = 0.0, 0
    with torch.no_grad():
        for text in texts:
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            if ids[0, -1] != tokenizer.eos_token_id:
                ids = torch.cat([ids, torch.tensor([[tokenizer.eos_token_id]])], dim=1)
            logits = model(ids).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
            count += ids.shape[1] - 1
    return total / count


def make_small_gemma4(folder):
    """In the place of the model there: inputs of each block, and blocks that share keys and values of both kinds."""
    written = json.loads((folder / "config.json").read_text())
    config = Gemma4TextConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        global_head_dim=32, sliding_window=8, vocab_size=written["vocab_size"], hidden_size_per_layer_input=24,
        vocab_size_per_layer_input=written["vocab_size"] + 3, num_kv_shared_layers=2, use_double_wide_mlp=True,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        **{key: written[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings")})
    torch.manual_seed(7)
    Gemma4ForCausalLM(config).float().save_pretrained(folder)


def check_all_linear(base, adapter, rank):
    """What `lora_target: all` adapts is what PEFT's all-linear does, or where PEFT refuses one of these layers all others, but for
    Gemma 4's layer outside the blocks."""
    names = {name.rpartition(".")[2] for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)}
    targets = sorted(names - {"out_proj", "lm_head"}) if base.config.model_type in ("nemotron_h", "falcon_h1") else "all-linear"
    model = get_peft_model(base, LoraConfig(r=rank, target_modules=targets, task_type="CAUSAL_LM",
                                            exclude_modules=["per_layer_model_projection"]))
    expected = {name: tuple(tensor.shape) for name, tensor in get_peft_model_state_dict(model).items()}
    found = {name: tuple(tensor.shape) for name, tensor in load_peft_weights(adapter, device="cpu").items()}
    assert found == expected, f"all: {sorted(set(found.items()) ^ set(expected.items()))[:4]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rondo", default="build/release/rondo")
    parser.add_argument("--arch", default="qwen3")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        texts = [f"number {i} of the texts, with words: {'ab' * i}" for i in range(8)]
        data = work / "texts.jsonl"
        data.write_text("\n".join(json.dumps({"text": text}) for text in texts))
        small_gemma4 = arguments.arch == "gemma4_small"
        run(arguments.rondo, "init", "--arch", "gemma4_text" if small_gemma4 else arguments.arch, "--output_dir", work / "base", "--num_hidden_layers", 3,
            "--seed", 7, "--dtype", "fp32")
        if small_gemma4:
            make_small_gemma4(work / "base")
        if arguments.arch.startswith("granite") or arguments.arch == "hyperclovax":
            config = work / "base" / "config.json"
            config.write_text(json.dumps({**json.loads(config.read_text()), **FACTORS}))
        if arguments.arch == "falcon_h1":
            config = work / "base" / "config.json"
            config.write_text(json.dumps({**json.loads(config.read_text()), **FACTORS_OF_FALCON}))
        tokenizer = AutoTokenizer.from_pretrained(work / "base")
        common = ["--model_name_or_path", work / "base", "--dtype", "fp32", "--devices", "cpu"]
        plain_model = AutoModelForCausalLM.from_pretrained(work / "base", dtype=torch.float32)
        plain = loss_of(plain_model, tokenizer, texts)
        names = [name for name, _ in plain_model.named_parameters()]
        kinds = kinds_of(names)
        for number, (kind, keys) in enumerate(kinds.items()):
            adapter = work / f"adapter{number}"
            run(arguments.rondo, "train", *common, "--dataset", data, "--output_dir", adapter, "--max_steps", 4,
                "--learning_rate", 2e-2, *keys)
            report = json.loads(run(arguments.rondo, "eval", *common, "--adapter_name_or_path", adapter, "--eval_dataset",
                                    data, "--json"))
            if not keys:
                check_all_linear(AutoModelForCausalLM.from_pretrained(work / "base", dtype=torch.float32), adapter, 8)
            base = AutoModelForCausalLM.from_pretrained(work / "base", dtype=torch.float32)
            model = get_peft_model(base, PeftConfig.from_pretrained(adapter)).eval()
            loaded = set_peft_model_state_dict(model, load_peft_weights(adapter, device="cpu"))
            missing = [key for key in loaded.missing_keys if "lora_" in key or "modules_to_save" in key]
            assert not loaded.unexpected_keys, f"{kind}: unexpected {loaded.unexpected_keys}"
            assert not missing, f"{kind}: missing {missing}"
            loss = loss_of(model, tokenizer, texts)
            distance = abs(report["eval_loss"] - loss) / loss
            assert distance < TOLERANCE, f"{kind}: rondo {report['eval_loss']}, PEFT {loss}"
            run(arguments.rondo, "merge", "--model_name_or_path", work / "base", "--adapter_name_or_path", adapter,
                "--output_dir", work / f"merged{number}")
            merged = AutoModelForCausalLM.from_pretrained(work / f"merged{number}", dtype=torch.float32)
            merged_loss = loss_of(merged, tokenizer, texts)
            assert abs(merged_loss - loss) / loss < TOLERANCE, f"{kind}: merged {merged_loss}, PEFT {loss}"
            assert abs(loss - plain) > 100 * TOLERANCE * plain, f"{kind}: the adapter does nothing"
            print(f"{kind}: keys equal, loss {loss:.6f} (base {plain:.6f}), {distance:.1e} apart")


if __name__ == "__main__":
    main()
