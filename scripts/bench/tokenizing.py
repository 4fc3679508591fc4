"""Tokenizing beside the `tokenizers` library, one thread each, in turns within one run.

    python scripts/bench/tokenizing.py MODEL TEXT [--bench build/release/tokenizer_bench] [--pairs 5]

MODEL is a folder with tokenizer.json, TEXT a file that is taken line by line. Prints the throughput of each in MB/s, the
tokens, which must be equal, and the median of the ratios within pairs.
"""
import argparse
import json
import os
import statistics
import subprocess
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import Tokenizer  # noqa: E402 (reads the environment when it is loaded)


def ours(arguments):
    environment = os.environ | {"RONDO_BENCH_MODEL": arguments.model, "RONDO_BENCH_TEXT": arguments.text}
    printed = subprocess.run([arguments.bench, "--benchmark_format=json"], env=environment, check=True,
                             capture_output=True, text=True).stdout
    run = json.loads(printed)["benchmarks"][0]
    return run["bytes_per_second"] / 1e6, int(run["tokens"])


def theirs(tokenizer, lines):
    begin = time.perf_counter()
    tokens = sum(len(one.ids) for one in tokenizer.encode_batch(lines, add_special_tokens=False))
    return sum(len(line.encode()) for line in lines) / (time.perf_counter() - begin) / 1e6, tokens


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--bench", default="build/release/tokenizer_bench")
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer = Tokenizer.from_file(os.path.join(arguments.model, "tokenizer.json"))
    tokenizer.no_truncation()
    with open(arguments.text, encoding="utf-8") as file:
        lines = [line.removesuffix("\n") for line in file]
    theirs(tokenizer, lines)  # fills its cache
    ratios = []
    for _ in range(arguments.pairs):
        (fast, count), (reference, expected) = ours(arguments), theirs(tokenizer, lines)
        assert count == expected, f"{count} tokens, the reference has {expected}"
        ratios.append(fast / reference)
        print(f"rondo {fast:.2f} MB/s, tokenizers {reference:.2f} MB/s, ratio {ratios[-1]:.2f}; {count} tokens")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
