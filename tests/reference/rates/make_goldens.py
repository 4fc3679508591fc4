"""Writes tests/data/rates: learning rates step by step, from transformers' own schedules.

    python make_goldens.py

Each case is a schedule by its name in lr_scheduler_type, the steps of warmup and run, its further arguments, and the
rates of the steps from 0 on to two beyond the run.
"""
import json
import pathlib
import platform
import sys

import torch
import transformers
from transformers import optimization

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

VERSIONS = {"torch": "2.15.0", "transformers": "5.23.0"}
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "rates"
RATE = 3e-4

CASES = [
    ("constant", 0, 6, {}), ("constant", 3, 9, {}),
    ("linear", 0, 6, {}), ("linear", 3, 10, {}), ("linear", 10, 4, {}),
    ("cosine", 0, 7, {}), ("cosine", 3, 10, {}), ("cosine", 2, 12, {"num_cycles": 1.5}),
    ("cosine_with_restarts", 0, 9, {}), ("cosine_with_restarts", 4, 19, {"num_cycles": 3}),
    ("cosine_with_min_lr", 3, 13, {"min_lr": 2e-5}), ("cosine_with_min_lr", 0, 8, {"min_lr_rate": 0.1}),
    ("inverse_sqrt", 0, 6, {}), ("inverse_sqrt", 4, 15, {}), ("inverse_sqrt", 3, 12, {"timescale": 50}),
    ("polynomial", 0, 8, {}), ("polynomial", 3, 12, {"power": 2.0, "lr_end": 1e-5}),
    ("polynomial", 2, 9, {"power": 0.5}),
    ("warmup_stable_decay", 3, 14, {"num_decay_steps": 5}),
    ("warmup_stable_decay", 0, 9, {"num_decay_steps": 4, "min_lr_ratio": 0.1, "decay_type": "linear"}),
    ("warmup_stable_decay", 4, 16, {"num_decay_steps": 6, "min_lr_ratio": 0.05, "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", 4, 16, {"num_decay_steps": 5, "num_stable_steps": 3, "warmup_type": "cosine",
                                    "min_lr_ratio": 0.2}),
    ("warmup_stable_decay", 5, 14, {"num_decay_steps": 3, "warmup_type": "1-sqrt", "num_cycles": 0.25}),
    ("warmup_stable_decay", 5, 9, {"num_decay_steps": 6, "decay_type": "linear"}),  # no stable part
]
MAKERS = {
    "constant": lambda o, w, n, k: optimization.get_constant_schedule_with_warmup(o, w),
    "linear": lambda o, w, n, k: optimization.get_linear_schedule_with_warmup(o, w, n),
    "cosine": lambda o, w, n, k: optimization.get_cosine_schedule_with_warmup(o, w, n, **k),
    "cosine_with_restarts":
        lambda o, w, n, k: optimization.get_cosine_with_hard_restarts_schedule_with_warmup(o, w, n, **k),
    "cosine_with_min_lr": lambda o, w, n, k: optimization.get_cosine_with_min_lr_schedule_with_warmup(o, w, n, **k),
    "inverse_sqrt": lambda o, w, n, k: optimization.get_inverse_sqrt_schedule(o, w, **k),
    "polynomial": lambda o, w, n, k: optimization.get_polynomial_decay_schedule_with_warmup(o, w, n, **k),
    "warmup_stable_decay": lambda o, w, n, k: optimization.get_wsd_schedule(
        o, w, k["num_decay_steps"], n, **{a: b for a, b in k.items() if a != "num_decay_steps"}),
}


def rates_of(kind, warmup, total, arguments):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    schedule = MAKERS[kind](optimizer, warmup, total, arguments)
    rates = []
    for _ in range(total + 3):
        rates.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        schedule.step()
    return rates


def main():
    for module in (torch, transformers):
        if module.__version__.split("+")[0] != VERSIONS[module.__name__]:
            sys.exit(f"error: {module.__name__} {module.__version__}: the goldens are defined by {VERSIONS}")
    cases = [dict(kind=kind, warmup=warmup, total=total, arguments=arguments, rates=rates_of(kind, warmup, total, arguments))
             for kind, warmup, total, arguments in CASES]
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (FOLDER / "rates.json").write_text(f'{{"learning_rate": {RATE}, "cases": [\n{lines}\n]}}\n', encoding="utf-8")
    write_manifest(FOLDER, "tests/reference/rates/make_goldens.py", None,
                   {**VERSIONS, "python": platform.python_version()})


if __name__ == "__main__":
    main()
