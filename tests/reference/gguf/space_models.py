"""Small random models with state spaces, of kinds of blocks that `rondo init` and gguf_probe do not make."""
import json

import torch
from transformers import AutoConfig, AutoModelForCausalLM

_SPACES = dict(mamba_n_heads=8, mamba_d_state=24, mamba_d_conv=4, mamba_expand=2, mamba_n_groups=2, mamba_conv_bias=True)
_FACTORS = dict(attention_multiplier=0.11, embedding_multiplier=2.0, residual_multiplier=0.75, logits_scaling=1.5)
_FALCON = dict(attention_in_multiplier=0.9, key_multiplier=0.8, attention_out_multiplier=1.1, ssm_in_multiplier=1.3, ssm_out_multiplier=0.7,
               ssm_multipliers=[0.9, 1.1, 0.8, 1.2, 0.6], mlp_multipliers=[1.4, 0.6], embedding_multiplier=2.5, lm_head_multiplier=0.4)


def _granite(config, experts):
    layers = config["num_hidden_layers"]
    config.update(_SPACES, **_FACTORS, layer_types=["attention" if layer % 3 == 1 else "mamba" for layer in range(layers)],
                  position_embedding_type=None, num_local_experts=8 if experts else 0, num_experts_per_tok=2)
    if experts:
        config["shared_intermediate_size"] = config["intermediate_size"] // 2


def _falcon(config, normed, tied=False):
    config.update(_FALCON, mamba_rms_norm=normed, mamba_norm_before_gate=False, mamba_n_groups=2, tie_word_embeddings=tied)


def _nemotron(config, alone):
    kinds = ["linear_attention", alone, "full_attention", alone]
    config["layers_block_type"] = [kinds[layer % 4] for layer in range(config["num_hidden_layers"])]
    config["time_step_min"] = 0.001
    config.pop("hybrid_override_pattern")


# What `rondo init` knows, and what is changed of its configuration.
_KINDS = {
    "granitemoehybrid+spaces": ("granitemoehybrid", lambda config: _granite(config, False)),
    "granitemoehybrid+spaces+experts": ("granitemoehybrid", lambda config: _granite(config, True)),
    "falcon_h1+factors": ("falcon_h1", lambda config: _falcon(config, False)),
    "falcon_h1+factors+norm": ("falcon_h1", lambda config: _falcon(config, True)),
    "falcon_h1+factors+tied": ("falcon_h1", lambda config: _falcon(config, False, True)),
    "nemotron_h+mlps": ("nemotron_h", lambda config: _nemotron(config, "mlp")),
    "nemotron_h+experts": ("nemotron_h", lambda config: _nemotron(config, "moe")),
}
MADE_OF = {name: kind[0] for name, kind in _KINDS.items()}


def make_spaces(folder, name):
    """In the place of the model in `folder`, which is one of MADE_OF[name]."""
    config = json.loads((folder / "config.json").read_text())
    _KINDS[name][1](config)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").unlink()
    torch.manual_seed(37)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    model.save_pretrained(folder)
