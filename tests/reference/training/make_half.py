"""Writes tests/data/half: what PyTorch computes in fp16 with the tiny models of tests/data/golden, and the course of its
loss scale.

    python make_half.py

The reference keeps its weights in fp32 and computes under torch.autocast in fp16, as transformers' `fp16: true` does:
matrix products in fp16, softmax, norms and the loss in fp32. tests/data/half/README.md says where that differs from
Rondo. `noise` is by how much this reference differs from the one in fp32, at the most over several scales and orders of
summation: what fp16 costs at all.
"""
import json
import pathlib
import platform
import sys
import warnings

import peft
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file

import loop
import make_goldens

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

CASES = ["llama", "qwen2_tied_window", "qwen3"]
HALF = make_goldens.GOLDEN.parent / "half"
SCALE = 1024.0  # of the cases: PyTorch's gradients of weights are fp16 as well, and overflow where Rondo's do not
COURSE_STEPS = 4600
COURSE_OVERFLOWS = [0, 1, 2, 7, 8, 1000, 3001, 3002, *range(3003, 3009)]
COURSE_RATE = dict(learning_rate=1e-3, schedule="linear", warmup=10)


class Scaled:
    """Steps as transformers' Trainer has them with accelerate: a step that overflowed counts, but neither the weights
    nor the schedule of the learning rate go on."""

    def __init__(self, optimizer, scheduler, **scale):
        self.optimizer, self.scheduler = optimizer, scheduler
        self.scaler = torch.amp.GradScaler("cpu", **scale)

    def step(self):
        """Whether it was skipped; accelerate finds that out by whether the optimizer was called."""
        called = []
        handle = self.optimizer.register_step_pre_hook(lambda *_: called.append(True))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        handle.remove()
        if called:
            self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        return not called


def train(model, steps, settings, scale, padded=False):
    optimizer = loop.make_optimizer(model, settings["learning_rate"], settings["weight_decay"], settings["betas"],
                                    settings["epsilon"])
    run = Scaled(optimizer, loop.make_schedule(optimizer, settings["schedule"], settings["warmup"], len(steps)),
                 init_scale=scale)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    records = []
    for number, step in enumerate(steps, 1):
        targets = loop.count_targets(step)
        total = 0.0
        for work in step if padded else (sequence for micro in step for sequence in micro):
            with torch.autocast("cpu", dtype=torch.float16):
                part = loop.padded_loss(model, work) if padded else loop.sequence_loss(model, work)
            run.scaler.scale(part / targets).backward()
            total += part.item()
        run.scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(trained, settings["max_grad_norm"], foreach=False)
        record = dict(step=number, loss=total / targets, grad_norm=norm.item(),
                      learning_rate=optimizer.param_groups[0]["lr"], target_tokens=targets,
                      loss_scale=run.scaler.get_scale())
        if run.step():
            sys.exit(f"error: step {number} overflowed; the goldens are of steps that do not")
        records.append(record)
    return records


def noise_of(records, final, initial, folder, method):
    """By how much they differ from the goldens in fp32: the worst step, and each tensor's update."""
    plain = json.loads((folder / f"{method}.json").read_text())["steps"]
    other = load_file(folder / f"{method}_final.safetensors")
    found, expected = (make_goldens.update_of(f, initial) for f in (final, other))
    tensors = {name: loop.compare_updates({name: found[name]}, {name: expected[name]})["worst_tensor_error"]
               for name in expected}
    return dict(loss=loop.worst(records, plain, "loss"), grad_norm=loop.worst(records, plain, "grad_norm"),
                tensors=tensors)


def make_case(name, method):
    folder = make_goldens.GOLDEN / name
    batches = json.loads((folder / "batches.json").read_text())
    noise = {}
    for scale, padded in ((SCALE, False), (SCALE, True), (SCALE / 2, False), (2 * SCALE, False)):
        model = transformers.AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32,
                                                                  attn_implementation="eager").train()
        if method == "lora":
            model = peft.PeftModel.from_pretrained(model, folder / "adapter", is_trainable=True).train()
        initial = make_goldens.sample(make_goldens.trained_tensors(model))
        records = train(model, batches["steps"], batches["training"], scale, padded)
        final = make_goldens.sample(make_goldens.trained_tensors(model))
        if not noise:
            make_goldens.write_json(HALF / f"{name}_{method}.json", dict(case=name, method=method, steps=records))
            save_file(final, HALF / f"{name}_{method}_final.safetensors")
        noise = larger(noise, noise_of(records, final, initial, folder, method))
    return noise


def larger(first, second):
    """The larger numbers of two dicts of the same keys."""
    if not first:
        return second
    return {key: larger(first[key], value) if isinstance(value, dict) else max(first[key], value)
            for key, value in second.items()}


def make_course():
    """What steps that overflow do to scale and rate, told to GradScaler by a gradient that is infinite."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=COURSE_RATE["learning_rate"])
    schedule = loop.make_schedule(optimizer, COURSE_RATE["schedule"], COURSE_RATE["warmup"], COURSE_STEPS)
    run = Scaled(optimizer, schedule)
    changes, rates = [], {}
    scale = None
    for step in range(COURSE_STEPS):
        if run.scaler.get_scale() != scale:
            scale = run.scaler.get_scale()
            changes.append(dict(step=step, loss_scale=scale))
        if step % 97 == 0 or step in COURSE_OVERFLOWS or step - 1 in COURSE_OVERFLOWS:
            rates[step] = optimizer.param_groups[0]["lr"]
        run.scaler.scale(weight.sum() * 0).backward()
        weight.grad.fill_(torch.inf if step in COURSE_OVERFLOWS else 0.0)
        if run.step() != (step in COURSE_OVERFLOWS):
            sys.exit(f"error: step {step} was or was not skipped")
    make_goldens.write_json(HALF / "course.json",
                            dict(**COURSE_RATE, steps=COURSE_STEPS, overflows=COURSE_OVERFLOWS, scales=changes,
                                 rates=[dict(step=step, learning_rate=rate) for step, rate in rates.items()]))


def main():
    make_goldens.check_versions()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    HALF.mkdir(exist_ok=True)
    noise = {}
    for name in CASES:
        for method in ("full", "lora"):
            noise[f"{name}_{method}"] = make_case(name, method)
            print(name, method, noise[f"{name}_{method}"]["loss"], flush=True)
    make_course()
    write_manifest(HALF, "tests/reference/training/make_half.py", make_goldens.SEED,
                   {**make_goldens.VERSIONS, "safetensors": safetensors.__version__,
                    "python": platform.python_version()}, noise=noise)


if __name__ == "__main__":
    main()
