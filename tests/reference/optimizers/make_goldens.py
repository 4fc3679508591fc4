"""Writes tests/data/optimizers: twenty updates by torch.optim's AdamW and SGD, by Lion's formula and by AdamW with
moments of 8 bits as its paper and bitsandbytes define them.

    python make_goldens.py

Weights and gradients are fractions of powers of two that follow from element and step, so that a test makes the same
ones; see start() and gradient(). Of moments in 8 bits the tables and some blocks' codes are here too.
"""
import json
import pathlib
import platform
import sys

import numpy
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

VERSIONS = {"torch": "2.15.0"}
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "optimizers"
STEPS = 20
BLOCK = 256
SEED = 5
CASES = [
    dict(name="adamw", kind="adamw", elements=300, rate=1e-2, beta1=0.9, beta2=0.999, epsilon=1e-8, weight_decay=0.1),
    dict(name="sgd", kind="sgd", elements=300, rate=1e-2, momentum=0.0, weight_decay=0.05),
    dict(name="sgd_momentum", kind="sgd", elements=300, rate=1e-2, momentum=0.9, weight_decay=0.05),
    dict(name="lion", kind="lion", elements=300, rate=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.1),
    dict(name="adamw_8bit", kind="adamw_8bit", elements=5000, rate=1e-2, beta1=0.9, beta2=0.999, epsilon=1e-8,
         weight_decay=0.1),
]


def start(n):
    i = torch.arange(n)
    return ((i * 29) % 101 - 50).float() / 32


def gradient(n, step):
    i = torch.arange(n)
    return ((i * 37 + (step * step + i % 7) * 101) % 127 - 63).float() / 64 / 2.0 ** (i % 5)


def torch_run(case):
    p = torch.nn.Parameter(start(case["elements"]))
    if case["kind"] == "adamw":
        optimizer = torch.optim.AdamW([p], lr=case["rate"], betas=(case["beta1"], case["beta2"]), eps=case["epsilon"],
                                      weight_decay=case["weight_decay"], foreach=False, fused=False)
    else:
        optimizer = torch.optim.SGD([p], lr=case["rate"], momentum=case["momentum"],
                                    weight_decay=case["weight_decay"], foreach=False, fused=False)
    for step in range(1, STEPS + 1):
        p.grad = gradient(case["elements"], step)
        optimizer.step()
    return p.detach()


def lion_run(case):
    """Chen et al., algorithm 2: the sign of an interpolation with beta1 moves the weights, beta2 the momentum. The
    weights and their factors are in fp32, whose rounding counts beside so small an update: the decayed weights are
    rounded, then what the update leaves, as by torch's mul_() and add_()."""
    p, m = start(case["elements"]), torch.zeros(case["elements"], dtype=torch.float64)
    keep, rate = (float(numpy.float32(x)) for x in (1 - case["rate"] * case["weight_decay"], case["rate"]))
    for step in range(1, STEPS + 1):
        g = gradient(case["elements"], step).double()
        mixed = case["beta1"] * m + (1 - case["beta1"]) * g
        assert ((mixed.abs() > 1e-6) | (mixed == 0)).all(), "a sign that hangs on rounding"
        p = ((p.double() * keep).float().double() - rate * torch.sign(mixed)).float()
        m = case["beta2"] * m + (1 - case["beta2"]) * g
    return p


def code_values(signed):
    """Seven decades; decade i has 2^i (unsigned: 2^(i + 1)) values at the middles of equal parts of [0.1, 1]."""
    values = [0.0, 1.0]
    for i in range(7):
        ends = torch.linspace(0.1, 1, 2 ** (i if signed else i + 1) + 1, dtype=torch.float32)
        middles = (10.0 ** (i - 6) * ((ends[:-1] + ends[1:]) / 2)).tolist()
        values += middles + ([-v for v in middles] if signed else [])
    assert len(values) == 256
    return numpy.sort(numpy.array(values, dtype=numpy.float32))


def encode(values, table):
    """Codes of one block and its scale. The nearest code, but none on the other side of 0 and, of what has no signs, 0's for
    0 alone."""
    scale = numpy.abs(values).max()
    x = (values / (scale if scale > 0 else numpy.float32(1))).astype(numpy.float32)
    codes = numpy.abs(x[:, None] - table[None, :]).argmin(axis=1)
    zero = int(numpy.searchsorted(table, 0.0))
    codes = numpy.where((x < 0) & (codes >= zero), zero - 1, codes)
    if zero == 0:
        codes = numpy.where((x > 0) & (codes == 0), 1, codes)
    return codes.astype(numpy.uint8), scale


def blocks(n):
    return [slice(begin, min(begin + BLOCK, n)) for begin in range(0, n, BLOCK)]


def coded_run(case):
    n, tables = case["elements"], (code_values(True), code_values(False))
    f = numpy.float32
    p = start(n).numpy()
    coded = [[(numpy.full(s.stop - s.start, int(numpy.searchsorted(t, 0.0)), numpy.uint8), f(0)) for s in blocks(n)]
             for t in tables]
    for step in range(1, STEPS + 1):
        gradients = gradient(n, step).numpy()
        correction1, correction2 = 1 - case["beta1"] ** step, 1 - case["beta2"] ** step
        for b, part in enumerate(blocks(n)):
            g = gradients[part]
            m, v = (tables[k][coded[k][b][0]] * coded[k][b][1] for k in (0, 1))
            m = m + f(1 - case["beta1"]) * (g - m)
            v = f(case["beta2"]) * v + f(1 - case["beta2"]) * g * g
            p[part] *= f(1 - case["rate"] * case["weight_decay"])
            p[part] -= f(case["rate"] / correction1) * m / (numpy.sqrt(v) / f(correction2**0.5) + f(case["epsilon"]))
            coded[0][b], coded[1][b] = encode(m.astype(f), tables[0]), encode(v.astype(f), tables[1])
    return torch.from_numpy(p)


def code_examples():
    generator = numpy.random.default_rng(SEED)
    examples = []
    for signed, spread in ((True, 1.0), (True, 4.0), (False, 1.0), (False, 6.0)):
        values = generator.standard_normal(BLOCK) * numpy.exp(spread * generator.standard_normal(BLOCK))
        values = (values if signed else numpy.abs(values)).astype(numpy.float32)
        codes, scale = encode(values, code_values(signed))
        examples.append(dict(signed=signed, values=values.tolist(), codes=codes.tolist(), scale=float(scale)))
    return examples


def main():
    if torch.__version__.split("+")[0] != VERSIONS["torch"]:
        sys.exit(f"error: torch {torch.__version__}: the goldens are defined by {VERSIONS}")
    torch.set_num_threads(1)
    runs = {"adamw": torch_run, "sgd": torch_run, "lion": lion_run, "adamw_8bit": coded_run}
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = [dict(**case, stride=1 if case["elements"] <= 300 else 7) for case in CASES]
    for case in cases:
        case["weights"] = runs[case["kind"]](case)[::case["stride"]].tolist()
    document = dict(steps=STEPS, cases=cases, signed_codes=code_values(True).tolist(),
                    unsigned_codes=code_values(False).tolist(), examples=code_examples())
    (FOLDER / "optimizers.json").write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
    write_manifest(FOLDER, "tests/reference/optimizers/make_goldens.py", SEED,
                   {**VERSIONS, "numpy": numpy.__version__, "python": platform.python_version()})


if __name__ == "__main__":
    main()
