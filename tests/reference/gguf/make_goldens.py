"""Writes tests/data/gguf: rows of numbers and the q8_0 blocks that the package gguf makes of them, and, in coded/, random
blocks of every type that is read with the numbers that the package makes of them (gguf 0.19.0, numpy)."""
import pathlib
import sys
from importlib import metadata

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize, quantize

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 20240611
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "gguf"
# Byte offsets of the fp16 numbers of a block; all else may be any byte.
HALVES = {"F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "BF16": [], "F32": [], "MXFP4": []}


def random_blocks(random, name):
    """Random bytes whose fp16 numbers are finite: of every size down to the subnormal, of both signs."""
    numbers, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    count = {1: 320, 32: 12, 256: 4}[numbers]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    if numbers == 1 and name != "F16":
        values = random.standard_normal(count).astype(np.float32) * np.float32(10.0) ** random.integers(-30, 30, count)
        bits = values.astype(np.float32).view(np.uint32)
        return bits.view(np.uint8).copy() if name == "F32" else (bits >> 16).astype(np.uint16).view(np.uint8).copy()
    for offset in HALVES[name]:
        halves = random.integers(0, 0x7C00, count, dtype=np.uint16) | random.integers(0, 2, count, dtype=np.uint16) << 15
        halves[0], halves[1] = 0x0001, 0x8000
        blocks[:, offset:offset + 2] = halves[:, None].view(np.uint8)
    return blocks.reshape(-1)


def write_coded(random, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name in HALVES:
        blocks = random_blocks(random, name)
        values = dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
        (folder / f"{name.lower()}.bin").write_bytes(blocks.tobytes())
        (folder / f"{name.lower()}.f32").write_bytes(values.tobytes())


def main():
    values = (np.random.default_rng(SEED).standard_normal((8, 64)) * 0.05).astype(np.float32)
    values[1, :32] = 0  # a block of nothing
    values[2] *= 1e-7  # scales below fp16's normal numbers
    values[3, 5] = 8e6  # near the largest scale
    values[4] = np.arange(64, dtype=np.float32) / 2 - 16  # ties
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "values.f32").write_bytes(values.tobytes())
    (FOLDER / "q8_0.bin").write_bytes(quantize(values, GGMLQuantizationType.Q8_0).tobytes())
    write_coded(np.random.default_rng(SEED + 1), FOLDER / "coded")
    versions = {name: metadata.version(name) for name in ("gguf", "numpy")}
    write_manifest(FOLDER, "tests/reference/gguf/make_goldens.py", SEED, versions)


if __name__ == "__main__":
    main()
