"""Golden encodings of frozen weights, from a numpy implementation of its own of the published definitions.

Usage: make_goldens.py [--judge]     writes tests/data/encodings; --judge compares with bitsandbytes where it is installed

NF4 as in QLoRA (arXiv 2305.14314): blocks of 64, quantiles of a normal distribution, the blocks' magnitudes less their
mean encoded once more in blocks of 256 with the signed dynamic map of arXiv 2110.02861. int8: blocks of 64, largest
magnitude over 127. MXFP4 as in the Open Compute Project's Microscaling Formats 1.0, section 6.3, to the nearest, ties to
even. The layout of the bytes is that of devices/include/rondo/devices/encoding.h.
"""

import hashlib
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = 20240521
BLOCK = 64
SCALE_BLOCK = 256
ELEMENTS = BLOCK * (SCALE_BLOCK + 3) + 37  # two groups of blocks, the last block short, an odd number of codes
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "encodings"

NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], dtype=np.float32)


def dynamic_map():
    """create_dynamic_map(signed=True, max_exponent_bits=7, total_bits=8)."""
    values = [0.0, 1.0]
    for exponent in range(7):
        edges = np.linspace(0.1, 1, 2**exponent + 1)
        middles = (edges[:-1] + edges[1:]) / 2
        values += list(10.0 ** (exponent - 6) * middles) + list(-(10.0 ** (exponent - 6)) * middles)
    return np.sort(np.array(values)).astype(np.float32)


def weights():
    random = np.random.default_rng(SEED)
    x = (random.standard_normal(ELEMENTS) * 0.02).astype(np.float32)
    x[3 * BLOCK : 4 * BLOCK] = 0  # a block of nothing
    x[7 * BLOCK + 5] = 3.5  # an outlier
    x[9 * BLOCK : 10 * BLOCK] *= 1e-30
    return x


def blocks_of(x, size):
    return [x[i : i + size] for i in range(0, len(x), size)]


def nearest(table, x):
    return np.abs(table[None, :].astype(np.float64) - x[:, None].astype(np.float64)).argmin(axis=1)


def padded(data):
    return data + bytes(-len(data) % 64)


def encode_int8(x):
    codes, scales = [], []
    for block in blocks_of(x, BLOCK):
        scale = np.float32(np.abs(block).max() / np.float32(127))
        scales.append(scale)
        codes.append(np.rint(block / scale) if scale > 0 else np.zeros_like(block))
    codes = np.concatenate(codes).astype(np.int8)
    scales = np.array(scales, dtype=np.float32)
    decoded = codes.astype(np.float32) * np.repeat(scales, BLOCK)[: len(x)]
    return padded(codes.tobytes()) + padded(scales.tobytes()), decoded


def encode_nf4(x):
    magnitudes = np.array([np.abs(block).max() for block in blocks_of(x, BLOCK)], dtype=np.float32)
    shares = x / np.where(magnitudes > 0, magnitudes, np.float32(1)).repeat(BLOCK)[: len(x)]
    codes = nearest(NF4, shares).astype(np.uint8)
    pairs = np.concatenate([codes, np.full(len(codes) % 2, 7, np.uint8)])
    packed = (pairs[::2] << 4) | pairs[1::2]
    offset = np.float32(magnitudes.astype(np.float64).mean())
    rest = magnitudes - offset
    table = dynamic_map()
    scales = np.array([np.abs(group).max() for group in blocks_of(rest, SCALE_BLOCK)], dtype=np.float32)
    block_codes = nearest(table, rest / scales.repeat(SCALE_BLOCK)[: len(rest)]).astype(np.uint8)
    restored = table[block_codes] * scales.repeat(SCALE_BLOCK)[: len(rest)] + offset
    decoded = NF4[codes] * restored.repeat(BLOCK)[: len(x)]
    encoded = padded(packed.tobytes()) + padded(block_codes.tobytes()) + padded(scales.tobytes())
    return encoded + padded(offset.tobytes()), decoded


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def encode_mxfp4(x):
    codes, scales, decoded = [], [], []
    for block in blocks_of(x.astype(np.float64), 32):
        most = np.abs(block).max()
        scale = max(int(np.floor(np.log2(most))) - 2 + 127, 2) if most > 0 else 2
        shares = np.abs(block) / 2.0 ** (scale - 127)
        apart = np.abs(shares[:, None] - E2M1[None, :])
        # Of two that are as near the even code.
        code = (apart + np.where(np.arange(8) % 2 == 1, 1e-12, 0)).argmin(axis=1)
        codes.append(code | np.where(np.signbit(block), 8, 0))
        scales.append(scale)
        decoded.append(np.copysign(E2M1[code], block) * 2.0 ** (scale - 127))
    codes = np.concatenate(codes).astype(np.uint8)
    pairs = np.concatenate([codes, np.zeros(len(codes) % 2, np.uint8)])
    packed = pairs[::2] | (pairs[1::2] << 4)
    encoded = padded(packed.tobytes()) + padded(np.array(scales, np.uint8).tobytes())
    return encoded, np.concatenate(decoded)


def judge(x, decoded):
    import torch
    from bitsandbytes import functional

    tensor = torch.from_numpy(x)
    packed, state = functional.quantize_4bit(tensor, blocksize=BLOCK, compress_statistics=True, quant_type="nf4")
    theirs = functional.dequantize_4bit(packed, state).numpy()
    difference = np.abs(theirs - decoded)
    print(f"bitsandbytes: largest difference {difference.max():.3g}, of the largest element {np.abs(x).max():.3g}; "
          f"{(difference > 1e-6 * np.abs(theirs)).sum()} of {len(x)} elements differ by more than 1e-6 of themselves")
    theirs_map = functional.create_dynamic_map().numpy()
    print(f"dynamic map: largest relative difference "
          f"{np.max(np.abs(theirs_map - dynamic_map()) / np.maximum(np.abs(theirs_map), 1e-12)):.3g}")


def main():
    x = weights()
    results = {"weights.f32": x.tobytes()}
    for name, encode in (("int8", encode_int8), ("nf4", encode_nf4), ("mxfp4", encode_mxfp4)):
        encoded, decoded = encode(x)
        results[f"{name}.bin"] = encoded
        results[f"{name}.f32"] = decoded.astype(np.float32).tobytes()
    if "--judge" in sys.argv:
        judge(x, np.frombuffer(results["nf4.f32"], np.float32))
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, data in sorted(results.items()):
        (FOLDER / name).write_bytes(data)
    write_manifest(FOLDER, "tests/reference/encodings/make_goldens.py", SEED, {"numpy": np.__version__})


if __name__ == "__main__":
    main()
