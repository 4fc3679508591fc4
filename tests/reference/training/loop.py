"""The training loop that Rondo's numbers are judged against: transformers' model, PEFT's adapter, PyTorch's AdamW.

Each sequence runs by itself, so that neither padding nor packing takes part. A step is a list of microbatches, a
microbatch a list of sequences {"ids": [...], "labels": [...]} with labels as transformers has them (-100 is masked,
not shifted). The loss of a step is the sum over all its targets divided by their number.
"""
import math

import torch
import torch.nn.functional as F
from transformers import Trainer, get_constant_schedule_with_warmup, get_cosine_schedule_with_warmup
from transformers import get_linear_schedule_with_warmup

MASKED = -100
NO_LIMIT = (0.0, math.inf)  # of the time steps of Granite 4


def count_targets(step):
    return sum(label != MASKED for micro in step for sequence in micro for label in sequence["labels"][1:])


def sequence_loss(model, sequence):
    """Sum of -log p over the targets of one sequence."""
    logits = model(input_ids=torch.tensor([sequence["ids"]])).logits[0]
    labels = torch.tensor(sequence["labels"])
    return F.cross_entropy(logits[:-1].float(), labels[1:], ignore_index=MASKED, reduction="sum")


def padded_loss(model, micro):
    """The same sum for a whole microbatch, padded on the right: other summation orders, the same number."""
    longest = max(len(sequence["ids"]) for sequence in micro)

    def pad(key, value):
        return torch.tensor([sequence[key] + [value] * (longest - len(sequence[key])) for sequence in micro])

    mask = torch.tensor([[1] * len(s["ids"]) + [0] * (longest - len(s["ids"])) for s in micro])
    logits = model(input_ids=pad("ids", 0), attention_mask=mask).logits.float()
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), pad("labels", MASKED)[:, 1:].flatten(),
                           ignore_index=MASKED, reduction="sum")


def warmup_of(steps, warmup_steps=None, warmup_ratio=0.0):
    return warmup_steps if warmup_steps is not None else math.ceil(warmup_ratio * steps)


def make_schedule(optimizer, kind, warmup, steps):
    if kind == "constant":
        return get_constant_schedule_with_warmup(optimizer, warmup)
    make = {"linear": get_linear_schedule_with_warmup, "cosine": get_cosine_schedule_with_warmup}[kind]
    return make(optimizer, warmup, steps)


def make_optimizer(model, learning_rate, weight_decay, betas=(0.9, 0.999), epsilon=1e-8):
    """AdamW with the groups of transformers' Trainer: norm weights and biases do not decay, magnitudes and sinks do."""
    names = set(Trainer.get_decay_parameter_names(None, model))
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    names -= {name for name in names if name.endswith(("post_norm1.weight", "post_norm2.weight"))}  # norms that its patterns miss
    groups = [dict(params=[p for n, p in trained.items() if n in names], weight_decay=weight_decay),
              dict(params=[p for n, p in trained.items() if n not in names], weight_decay=0.0)]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=learning_rate, betas=betas, eps=epsilon,
                             foreach=False, fused=False)


def train(model, steps, *, learning_rate, weight_decay, schedule, warmup, max_grad_norm, betas=(0.9, 0.999),
          epsilon=1e-8, padded=False, on_first_gradients=None, build_optimizer=make_optimizer):
    """Runs the steps and returns one record for each: loss, grad_norm (before clipping), learning_rate, targets."""
    optimizer = build_optimizer(model, learning_rate, weight_decay, betas, epsilon)
    scheduler = make_schedule(optimizer, schedule, warmup, len(steps))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    records = []
    for number, step in enumerate(steps, 1):
        targets = count_targets(step)
        total = 0.0
        for micro in step:
            parts = [padded_loss(model, micro)] if padded else (sequence_loss(model, s) for s in micro)
            for part in parts:
                (part / targets).backward()
                total += part.item()
        if number == 1 and on_first_gradients:
            on_first_gradients(model)
        norm = torch.nn.utils.clip_grad_norm_(trained, max_grad_norm, foreach=False)
        records.append(dict(step=number, loss=total / targets, grad_norm=norm.item(),
                            learning_rate=optimizer.param_groups[0]["lr"], target_tokens=targets))
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


def relative(found, expected):
    return abs(found - expected) / max(abs(expected), 1e-12)


def worst(found, expected, key):
    """Largest relative difference of one column of two lists of records."""
    return max(relative(f[key], e[key]) for f, e in zip(found, expected, strict=True))


def cosine(first, second):
    """Cosine between two updates given as {name: tensor}; 64-bit, so that the sum itself adds no error."""
    dot = sum((first[n].double() * second[n].double()).sum() for n in second)
    norms = [math.sqrt(sum(u[n].double().square().sum() for n in second)) for u in (first, second)]
    return float(dot) / max(norms[0] * norms[1], 1e-300)


def compare_updates(found, expected):
    """The cosine over all tensors together, and the worst tensor's |found - expected| / |expected|, which also sees a
    small tensor (a norm weight, a bias) that is treated wrongly."""
    errors = {n: float((found[n].double() - expected[n].double()).norm() / max(expected[n].double().norm(), 1e-30))
              for n in expected}
    tensor = max(errors, key=errors.get)
    return dict(cosine=cosine(found, expected), worst_tensor_error=errors[tensor], worst_tensor=tensor)


def greedy(model, prompt, count, stop_ids=()):
    """Greedy continuation by transformers' generate; also the least gap between the best and the second-best logit."""
    model.eval()
    # From a cache transformers goes on without the limit.
    limited = getattr(model.config, "time_step_limit", NO_LIMIT) != NO_LIMIT or model.config.model_type == "nemotron_h"
    with torch.no_grad():
        result = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                max_new_tokens=count, do_sample=False, num_beams=1, return_dict_in_generate=True,
                                output_logits=True, eos_token_id=list(stop_ids) or None, use_cache=not limited)
    tokens = result.sequences[0, len(prompt):].tolist()
    gaps = [row[0].float().topk(2).values for row in result.logits]
    return tokens, min(float(best - second) for best, second in gaps)
