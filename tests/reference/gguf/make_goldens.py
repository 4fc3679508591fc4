"""Writes tests/data/gguf: rows of numbers and the q8_0 blocks that the package gguf makes of them (gguf 0.19.0, numpy)."""
import pathlib
import sys
from importlib import metadata

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 20240611
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "gguf"


def main():
    values = (np.random.default_rng(SEED).standard_normal((8, 64)) * 0.05).astype(np.float32)
    values[1, :32] = 0  # a block of nothing
    values[2] *= 1e-7  # scales below fp16's normal numbers
    values[3, 5] = 8e6  # near the largest scale
    values[4] = np.arange(64, dtype=np.float32) / 2 - 16  # ties
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "values.f32").write_bytes(values.tobytes())
    (FOLDER / "q8_0.bin").write_bytes(quantize(values, GGMLQuantizationType.Q8_0).tobytes())
    versions = {name: metadata.version(name) for name in ("gguf", "numpy")}
    write_manifest(FOLDER, "tests/reference/gguf/make_goldens.py", SEED, versions)


if __name__ == "__main__":
    main()
