"""Whole-step speed of `rondo train` beside its peer (peer_train.py), in paired alternation.

    compare.py --rondo BINARY --model MODEL_DIR [--pairs 3] [--methods full,lora] [--peers eager,compile] [--json FILE]

A pair is one run of Rondo and one of each peer, back to back; a figure is the median over the pairs of the ratio within
the pair, so that a slow spell of the machine meets both sides. A run's step time is the median over the steps after
warm-up. Memory is the highest resident set of the whole process, loading included. The share of the peak is Rondo's own
`sol` (necessary matrix products over the time), taken against the peak that `rondo devices --bench` measures.

The peer's bf16 products run a generic path on processors without bf16 instructions, many times slower than its fp32
ones; `--peer-dtype auto` (the default) then runs the peer in fp32, as its user would, and the table says so.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORDS = ("the old mill stands by a river that runs cold in spring and slow in summer while people of the valley bring "
         "grain on carts from far hills and talk of weather prices roads and sons who went to sea").split()


def parse_arguments():
    parser = argparse.ArgumentParser(description="Rondo's training step beside transformers + PEFT")
    parser.add_argument("--rondo", required=True, help="the rondo binary")
    parser.add_argument("--model", required=True, help="model directory")
    parser.add_argument("--pairs", type=int, default=3, help="times that every side is run")
    parser.add_argument("--methods", default="full,lora")
    parser.add_argument("--peers", default="eager,compile", help="of eager, compile")
    parser.add_argument("--batch", type=int, default=4, help="sequences of a step (one microbatch)")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of a run")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--peer-dtype", choices=["auto", "bf16", "fp32"], default="auto")
    parser.add_argument("--json", help="file for everything that was measured, written anew after each run")
    arguments = parser.parse_args()
    if min(arguments.pairs, arguments.steps) < 1:
        parser.error("--pairs and --steps must be at least 1")
    return arguments


def run(command, environment=None):
    """Runs to the end: (stdout, peak resident bytes)."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        if process.returncode != 0:
            err.seek(0)
            sys.exit(f"error: {' '.join(map(str, command))} ended with {process.returncode}:\n{err.read()[-2000:]}")
        return out.read(), usage.ru_maxrss * 1024


def write_texts(path, arguments):
    """More samples than a run uses, each far longer than `length` tokens: cutoff_len makes them exactly so long."""
    with open(path, "w", encoding="utf-8") as file:
        for sample in range(arguments.batch * (arguments.steps + arguments.warmup)):
            words = [WORDS[(sample * 7 + i * (3 + sample % 5)) % len(WORDS)] for i in range(2 * arguments.length)]
            file.write(json.dumps({"text": " ".join(words)}) + "\n")


def run_rondo(arguments, method, texts, folder):
    output = folder / "rondo"
    shutil.rmtree(output, ignore_errors=True)
    command = [
        arguments.rondo, "train", "--model_name_or_path", arguments.model, "--dataset", texts, "--output_dir", output,
        "--finetuning_type", method, "--lora_rank", arguments.rank, "--lora_alpha", 2 * arguments.rank, "--lora_target",
        "all", "--dtype", "bf16", "--devices", "cpu", "--threads", arguments.threads, "--cutoff_len", arguments.length,
        "--per_device_train_batch_size", arguments.batch, "--gradient_accumulation_steps", 1, "--max_steps",
        arguments.steps + arguments.warmup, "--learning_rate", 1e-5, "--weight_decay", 0.01, "--logging_steps", 1,
        "--save_steps", 0]
    _, memory = run([str(word) for word in command])
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [line for line in lines if line["kind"] == "train"][arguments.warmup:]
    tokens = arguments.batch * arguments.length
    if len(steps) != arguments.steps or any(line["tokens"] != tokens for line in steps):
        sys.exit(f"error: {output}/metrics.jsonl: expected {arguments.steps} steps of {tokens} tokens after warm-up")
    return dict(side="rondo", method=method, step_seconds=statistics.median(line["step_seconds"] for line in steps),
                sol=statistics.median(line["sol"] for line in steps), peak_rss_bytes=memory,
                losses=[line["loss"] for line in lines if line["kind"] == "train"])


def run_peer(arguments, method, peer, dtype):
    command = [sys.executable, HERE / "peer_train.py", arguments.model, "--batch", arguments.batch, "--length",
               arguments.length, "--method", method, "--rank", arguments.rank, "--dtype", dtype, "--threads",
               arguments.threads, "--steps", arguments.steps, "--warmup", arguments.warmup]
    out, memory = run([str(word) for word in command] + (["--compile"] if peer == "compile" else []))
    result = json.loads(out)
    return dict(side=peer, method=method, step_seconds=result["median_step_seconds"], peak_rss_bytes=memory,
                bf16_kernels=result["bf16_kernels"], versions=result["versions"], dtype=dtype)


def peer_dtype(arguments):
    if arguments.peer_dtype != "auto":
        return arguments.peer_dtype
    out, _ = run([sys.executable, "-c", "import torch; print(torch.ops.mkldnn._is_mkldnn_bf16_supported())"])
    return "bf16" if out.strip() == "True" else "fp32"


def measured_peak(arguments):
    out, _ = run([arguments.rondo, "devices", "--devices", "cpu", "--threads", str(arguments.threads), "--bench",
                  "--json"])
    return json.loads(out)["devices"][0]


def measure(arguments, dtype, save):
    """runs[method][side]: results of the pairs, in order. save(runs) after each: a bf16 peer may take an hour."""
    runs = {}

    def note(sides, result):
        sides.setdefault(result["side"], []).append(result)
        print(f"  {result['side']}: {result['step_seconds']:.2f} s a step, {result['peak_rss_bytes'] / 2**30:.2f} GiB",
              file=sys.stderr)
        save(runs)

    with tempfile.TemporaryDirectory(prefix="rondo-bench.") as name:
        folder = Path(name)
        write_texts(folder / "texts.jsonl", arguments)
        for method in arguments.methods.split(","):
            sides = runs.setdefault(method, {})
            for pair in range(arguments.pairs):
                load = os.getloadavg()[0]
                print(f"{method}: pair {pair + 1} of {arguments.pairs}, load {load:.1f}", file=sys.stderr)
                note(sides, dict(run_rondo(arguments, method, folder / "texts.jsonl", folder), load_before=load))
                for peer in filter(None, arguments.peers.split(",")):
                    note(sides, run_peer(arguments, method, peer, dtype))
    return runs


def print_table(arguments, runs, device, dtype):
    tokens = arguments.batch * arguments.length
    flops = device["flops"].get("bf16")
    print(f"{device['description']}; {arguments.threads} threads; measured peak in bf16: "
          f"{flops / 1e9:.0f} GFLOP/s; peer in {dtype}; {arguments.pairs} pairs of {arguments.steps} steps\n")
    print("| method | side | s/step | tokens/s | share of the peak | peak memory, GiB | Rondo is faster by |")
    print("|---|---|---|---|---|---|---|")
    for method, sides in runs.items():
        own = sides["rondo"]
        sol = statistics.median(r["sol"] for r in own)
        for side, results in sides.items():
            seconds = statistics.median(r["step_seconds"] for r in results)
            ratio = statistics.median(b["step_seconds"] / a["step_seconds"] for a, b in zip(own, results))
            memory = max(r["peak_rss_bytes"] for r in results) / 2**30
            print(f"| {method} | {side} | {seconds:.2f} | {tokens / seconds:.0f} | {sol / ratio:.2f} | {memory:.2f} | "
                  f"{'' if side == 'rondo' else f'{ratio:.2f}x'} |")


def main():
    arguments = parse_arguments()
    dtype = peer_dtype(arguments)
    device = measured_peak(arguments)

    def save(runs):
        if not arguments.json:
            return
        document = dict(device=device, peer_dtype=dtype, batch=arguments.batch, length=arguments.length,
                        threads=arguments.threads, runs=runs)
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    print_table(arguments, measure(arguments, dtype, save), device, dtype)


if __name__ == "__main__":
    main()
