"""Packed beside unpacked training on short chats: tokens a second and losses, in turns within one run.

    python scripts/bench/packing.py MODEL [--rondo build/release/rondo] [--pairs 2] [--chats 48] [--dtype bf16]

An epoch is one step in both, so that each step sees the same chats. Chats have some 40 tokens, the template's included,
and sequences 512. Prints both throughputs, their ratio, and how far the losses of the steps lie apart.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

WORDS = ("the cat sat on a mat and dog ran to other side of road what is answer this question small model briefly you "
         "are welcome thanks hello who be terse name bird weather city sun wind rain").split()
STEPS = 3


def write_chats(path, count):
    draw = random.Random(5)

    def words(mean, most):
        return " ".join(draw.choice(WORDS) for _ in range(min(max(1, int(draw.expovariate(1 / mean))), most)))

    with open(path, "w", encoding="utf-8") as file:
        for _ in range(count):
            turns = [{"role": "user", "content": words(4, 20)}, {"role": "assistant", "content": words(5, 30)}]
            file.write(json.dumps({"messages": turns}) + "\n")


def train(arguments, folder, *more):
    subprocess.run([arguments.rondo, "train", "--model", arguments.model, "--dataset", folder / "chats.jsonl",
                    "--output_dir", folder / "run", "--overwrite_output_dir", "--devices", "cpu", "--cutoff_len", "512",
                    "--max_steps", str(STEPS), "--gradient_accumulation_steps", str(arguments.chats), "--save_steps", "0",
                    "--logging_steps", "1", "--learning_rate", "1e-4", "--dtype", arguments.dtype, *more],
                   check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(folder / "run" / "metrics.jsonl", encoding="utf-8")]
    rows = [row for row in rows if row["kind"] == "train"]
    speed = sum(row["tokens"] for row in rows[1:]) / sum(row["step_seconds"] for row in rows[1:])
    return speed, [row["loss"] for row in rows]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--rondo", default="build/release/rondo")
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--chats", type=int, default=48)
    parser.add_argument("--dtype", default="bf16")
    arguments = parser.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_chats(folder / "chats.jsonl", arguments.chats)
        for _ in range(arguments.pairs):
            (apart, losses), (packed, others) = train(arguments, folder), train(arguments, folder, "--packing")
            ratios.append(packed / apart)
            distance = max(abs(a - b) / a for a, b in zip(losses, others, strict=True))
            print(f"apart {apart:.0f} tokens/s, packed {packed:.0f} tokens/s, ratio {ratios[-1]:.2f}, "
                  f"losses within {distance:.1e}")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
