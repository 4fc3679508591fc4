"""Whole training steps on one card: Rondo beside transformers + PEFT, weights streamed beside resident, plans beside
measurements.

    card_steps.py --rondo BINARY [--device cuda:0] [--peer PYTHON] [--sizes 1.5B,8B,0.5B] [--methods lora,full]
                  [--sides best,rondo,held,held8,fp8,held-fp8,held8-fp8,eager,compile,blocks] [--pairs 1]
                  [--seconds 400] [--no-offload]
                  [--json FILE]
    card_steps.py --rondo BINARY --make-models --folder FOLDER [--sizes ...]

Models have random weights (`rondo init`) and the shapes of Qwen2.5 0.5B and 1.5B and of Llama 3.1 8B. Rondo's step is
`rondo profile`'s, the period over steps 2 to N; the peer's (peer_train.py) the median over the steps after warm-up, eager
and by torch.compile, recomputing activations where they do not fit otherwise; `blocks` compiles one block for all of them,
which is done where a whole model would not be in the time of a lent card. `held` is Rondo with `optimizer_state: device`,
for full fine-tunes: as the peer it keeps all state on the card; `held8` with moments of 8 bits beside it, where those of
fp32 have no room; `fp8` with products of eight bits, `held-fp8` and `held8-fp8` with both. `best` is what a user should set: for LoRA `rondo`, for full fine-tunes
what of the two fits. A pair runs every side once, in turn; a ratio is the median over the pairs of the peer's time over that
of Rondo's quicker side. MFU counts the matrix products of a step without
recomputation (FLOPs of `rondo plan`: twice the forward ones for LoRA, three times for full) against the peak that a large
product reaches on the same card.

Streamed beside resident: LoRA of the first size. Resident weights come once; streamed ones for every visit
(`--resident_weights false`), to a card that may hold half of them at a time (`--memory_limit`). Both recompute activations,
as a card without room for weights has to. With one, two, four ... microbatches a step until the plan with streamed weights
is bound by computing (the crossover), then measured there and with twice as many.

Memory is planned and measured as Rondo counts it (`peak_bytes`); what the whole process takes of an NVIDIA card beside that
(context, graphs, workspaces) is seen in `nvidia-smi`, asked five times a second: the most, less what others held before.

`--seconds` bounds the whole: what is not begun by then is named under `skipped`. Without a peer, or where it lacks PyTorch,
Rondo runs alone. Prints a table; `--json` writes everything measured.
"""
import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = {
    "0.5B": dict(arch="qwen2", hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                 num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "1.5B": dict(arch="qwen2", hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12,
                 num_key_value_heads=2, vocab_size=151936, tie_word_embeddings=True),
    "8B": dict(arch="llama", hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
               num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False),
    "tiny": dict(arch="llama", hidden_size=128, intermediate_size=384, num_hidden_layers=4, num_attention_heads=4,
                 num_key_value_heads=2, vocab_size=2048, tie_word_embeddings=False),  # for trials without a card
}
PEERS = {"eager": [], "compile": ["--compile"], "blocks": ["--compile", "--blocks"]}
OWN = {"rondo": [], "held": ["--optimizer_state", "device"],
       "held8": ["--optimizer_state", "device", "--optim", "adamw_8bit"], "fp8": ["--fp8"]}
EIGHT_BITS = ["--fp8", "--fp8_format", "hybrid"]
OWN |= {f"{side}-fp8": OWN[side] + EIGHT_BITS for side in ("held", "held8")}
SIDES = ("best", *OWN, *PEERS)
PASSES = {"lora": 2, "full": 3}  # times the forward products: weights' own gradients only where they are trained


def is_own(side):
    return side in OWN


class OutOfTime(Exception):
    pass


class Failed(Exception):
    pass


def parse_arguments():
    parser = argparse.ArgumentParser(description="whole steps on one card")
    parser.add_argument("--rondo", required=True, help="the rondo binary")
    parser.add_argument("--device", default="cuda:0", help="Rondo's name of the card")
    parser.add_argument("--peer", help="a Python with torch, transformers and peft")
    parser.add_argument("--peer-device", default="cuda", help="PyTorch's name of the card")
    parser.add_argument("--sizes", default="1.5B,8B,0.5B", help="of " + ", ".join(SIZES))
    parser.add_argument("--methods", default="lora,full")
    parser.add_argument("--sides", default="best,blocks")
    parser.add_argument("--no-offload", action="store_true", help="without streamed beside resident weights")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4, help="sequences of a microbatch")
    parser.add_argument("--accumulation", type=int, default=4, help="microbatches of a step")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=6, help="steps of a run, of which the first does not count")
    parser.add_argument("--peak-of", help="JSON file of card_ops.py with the peak; else as `rondo devices --bench` has it")
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--folder", help="where models are made, and left; else a temporary folder")
    parser.add_argument("--make-models", action="store_true", help="in --folder, and nothing else")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    if arguments.make_models and not arguments.folder:
        parser.error("--make-models: give a --folder")
    for size in arguments.sizes.split(","):
        if size not in SIZES:
            parser.error(f"--sizes: unknown '{size}'; known: {', '.join(SIZES)}")
    for method in arguments.methods.split(","):
        if method not in PASSES:
            parser.error(f"--methods: unknown '{method}'; known: {', '.join(PASSES)}")
    for side in arguments.sides.split(","):
        if side not in SIDES:
            parser.error(f"--sides: unknown '{side}'; known: {', '.join(SIDES)}")
    if min(arguments.pairs, arguments.batch, arguments.accumulation, arguments.length) < 1 or arguments.steps < 3:
        parser.error("expected at least one pair, sequence, microbatch and token, and three steps")
    return arguments


class CardMemory:
    """The most memory that the card held while this lived, less what it held before; None where nobody tells."""

    def __init__(self, device):
        backend, _, number = device.partition(":")
        self.command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", number or "0"]
        self.before = self.ask() if backend == "cuda" else None
        self.most = self.before
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def ask(self):
        try:
            return int(subprocess.run(self.command, capture_output=True, text=True, check=True, timeout=5).stdout) << 20
        except (OSError, ValueError, subprocess.SubprocessError):
            return None

    def watch(self):
        while not self.ended.wait(0.2):
            self.most = max(self.most, self.ask() or 0)

    def __enter__(self):
        if self.before is not None:
            self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        if self.before is not None:
            self.thread.join()

    def bytes(self):
        return None if self.before is None else self.most - self.before


class Bench:
    def __init__(self, arguments, folder):
        self.arguments = arguments
        self.folder = folder
        self.end = time.monotonic() + arguments.seconds
        self.runs, self.plans, self.offload, self.skipped = [], [], [], []
        self.peak = None
        if arguments.peak_of:
            self.peak = json.loads(Path(arguments.peak_of).read_text(encoding="utf-8"))["peak_flops_per_second"]

    # --- processes -----------------------------------------------------------------------------------------------

    def run(self, command):
        """Standard output of a command that ends in time. Raises Failed with its last line, or OutOfTime."""
        left = self.end - time.monotonic()
        if left < 5:
            raise OutOfTime
        command = [str(word) for word in command]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=left)
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()
            raise Failed(f"exit {done.returncode}: {lines[-1][:300]}")
        return done.stdout

    def attempt(self, what, function, *arguments, **more):
        """The result, or None and an entry in `skipped`."""
        try:
            return function(*arguments, **more)
        except OutOfTime:
            self.skipped.append(dict(what=what, why=f"no time left of {self.arguments.seconds:.0f} s"))
        except Failed as failure:
            self.skipped.append(dict(what=what, why=str(failure)))
        print(f"{what}: {self.skipped[-1]['why']}", file=sys.stderr)
        return None

    def model(self, size):
        path = self.folder / size
        if not (path / "config.json").exists():
            options = [f"--{key}={str(value).lower()}" for key, value in SIZES[size].items()]
            self.run([self.arguments.rondo, "init", "--output_dir", path, *options])
        return path

    def rondo(self, verb, size, method, accumulation, *more):
        a = self.arguments
        return json.loads(self.run([
            a.rondo, verb, "--model_name_or_path", self.model(size), "--devices", a.device, "--finetuning_type", method,
            "--lora_rank", 16, "--lora_alpha", 32, "--lora_target", "all", "--dtype", "bf16", "--cutoff_len", a.length,
            "--per_device_train_batch_size", a.batch, "--gradient_accumulation_steps", accumulation, "--json", *more]))

    # --- sides -----------------------------------------------------------------------------------------------------

    def run_rondo(self, size, method, side):
        a = self.arguments
        with CardMemory(a.device) as memory:
            result = self.rondo("profile", size, method, a.accumulation, "--steps", a.steps, *OWN[side])
        predicted, measured = result["predicted"], result["measured"]
        forward = sum(layer["forward_flops"] for layer in predicted["layers"])
        entry = dict(size=size, method=method, side=side, step_seconds=measured["step_seconds"],
                     tokens_per_second=measured["tokens_per_second"],
                     model_flops=PASSES[method] * forward * a.accumulation,
                     card_bytes=measured["devices"][0]["peak_bytes"])
        self.plans.append(dict(size=size, method=method, side=side, planned_step_seconds=predicted["step_seconds"],
                               measured_step_seconds=measured["step_seconds"],
                               planned_bytes=predicted["devices"][0]["peak_bytes"], measured_bytes=entry["card_bytes"],
                               process_bytes=memory.bytes(),
                               limited_by=predicted["limited_by"]))
        return entry

    def run_peer(self, size, method, side):
        a = self.arguments
        command = [a.peer, HERE / "peer_train.py", self.model(size), "--device", a.peer_device, "--random", "--method",
                   method, "--rank", 16, "--batch", a.batch, "--accumulation", a.accumulation, "--length", a.length,
                   "--steps", a.steps - 1, "--warmup", 1 if side == "eager" else 3, *PEERS[side]]
        recomputed = False
        try:
            result = json.loads(self.run(command))
        except Failed as failure:
            if not str(failure).startswith("exit 3:"):  # no memory for its activations
                raise
            recomputed = True
            result = json.loads(self.run(command + ["--checkpointing"]))
        return dict(size=size, method=method, side=side,
                    step_seconds=result["median_step_seconds"], tokens_per_second=result["tokens_per_second"],
                    card_bytes=result["peak_card_bytes"], recomputed=recomputed, versions=result["versions"])

    def best_side(self, size, method):
        """Of Rondo's, where the card has room for it."""
        for side in ("held", "held8") if method == "full" else ():
            try:
                self.rondo("plan", size, method, self.arguments.accumulation, *OWN[side])
                return side
            except Failed:
                pass
        return "rondo"

    def measure_steps(self, size, method):
        wanted = self.arguments.sides.split(",")
        if "best" in wanted:
            best = self.attempt(f"{size} {method}", self.best_side, size, method)
            wanted = [side for side in wanted if side not in ("best", best)]
            wanted = [best, *wanted] if best else wanted
        sides = [side for side in wanted
                 if (not side.startswith("held") or method == "full") and (self.arguments.peer or is_own(side))]
        for _ in range(self.arguments.pairs):
            for side in sides:
                function = self.run_rondo if is_own(side) else self.run_peer
                entry = self.attempt(f"{size} {method} {side}", function, size, method, side)
                self.runs.append(entry or dict(size=size, method=method, side=side))
                self.save()

    def measure_offload(self, size):
        """Streamed beside resident weights, at the first number of microbatches at which computing binds and twice it."""
        a = self.arguments
        recomputing = ["--recompute", "full"]
        card = self.rondo("plan", size, "lora", 1, *recomputing)["devices"][0]
        limit = card["peak_bytes"] - card["memory"]["resident weights"] // 2
        streaming = [*recomputing, "--resident_weights", "false", "--memory_limit", f"{card['name']}={limit}"]
        crossover = None
        for accumulation in (1, 2, 4, 8, 16, 32, 64):
            if self.rondo("plan", size, "lora", accumulation, *streaming)["limited_by"] == "compute":
                crossover = accumulation
                break
        if crossover is None:
            raise Failed("up to 64 microbatches a step no plan with streamed weights is bound by computing")
        for accumulation in (crossover, 2 * crossover):
            ratios, streamed_seconds = [], []
            for _ in range(max(a.pairs, 2)):
                steps = ["--steps", a.steps]
                resident = self.rondo("profile", size, "lora", accumulation, *steps, *recomputing)["measured"]
                streamed = self.rondo("profile", size, "lora", accumulation, *steps, *streaming)["measured"]
                ratios.append(resident["step_seconds"] / streamed["step_seconds"])
                streamed_seconds.append(streamed["step_seconds"])
            self.offload.append(dict(size=size, microbatches=accumulation, crossover=crossover,
                                     streamed_step_seconds=statistics.median(streamed_seconds),
                                     speed_of_resident=statistics.median(ratios)))
            self.save()

    # --- results -----------------------------------------------------------------------------------------------------

    def find_peak(self):
        """Raises Failed where the device cannot be used."""
        command = [self.arguments.rondo, "devices", "--devices", self.arguments.device, "--json"]
        device = json.loads(self.run(command + (["--bench"] if self.peak is None else [])))["devices"][0]
        if self.peak is None:
            self.peak = device["flops"]["bf16"]

    def rows(self):
        """A row a size, method and side: medians over the pairs."""
        for size in self.arguments.sizes.split(","):
            for method in self.arguments.methods.split(","):
                of_case = [run for run in self.runs if run["size"] == size and run["method"] == method]
                own = self.quickest(of_case)
                flops = next((run["model_flops"] for run in of_case if "model_flops" in run), None)
                for side in dict.fromkeys(run["side"] for run in of_case):
                    runs = [run for run in of_case if run["side"] == side]
                    seconds = [run.get("step_seconds") for run in runs]
                    done = [run for run in runs if "step_seconds" in run]
                    if not done:
                        continue
                    ratios = [theirs / ours for ours, theirs in zip(own, seconds) if ours and theirs]
                    median = statistics.median(run["step_seconds"] for run in done)
                    yield dict(size=size, method=method, side=side, step_seconds=median,
                               tokens_per_second=statistics.median(run["tokens_per_second"] for run in done),
                               mfu=flops / median / self.peak if flops and self.peak else None,
                               card_bytes=max((run["card_bytes"] or 0) for run in done),
                               recomputed=any(run.get("recomputed") for run in done),
                               rondo_is_faster_by=statistics.median(ratios) if ratios and not is_own(side) else None)

    @staticmethod
    def quickest(runs):
        """By pair: seconds of Rondo's quickest side, None where none has ended."""
        sides = {}
        for run in runs:
            if is_own(run["side"]):
                sides.setdefault(run["side"], []).append(run.get("step_seconds"))
        return [min(filter(None, pair), default=None) for pair in zip(*sides.values())]

    def document(self):
        a = self.arguments
        return dict(device=a.device, batch=a.batch, accumulation=a.accumulation, length=a.length, pairs=a.pairs,
                    peak_flops_per_second=self.peak, steps=list(self.rows()), plans=self.plans, offload=self.offload,
                    runs=self.runs, skipped=self.skipped)

    def save(self):
        if self.arguments.json:
            Path(self.arguments.json).write_text(json.dumps(self.document(), indent=1) + "\n", encoding="utf-8")

    def print_tables(self):
        def number(value, form):
            return "" if value is None else format(value, form)

        print("| model | method | side | s/step | tokens/s | MFU | card, GiB | Rondo is faster by |")
        print("|---|---|---|---|---|---|---|---|")
        for row in self.rows():
            side = row["side"] + (", recomputing" if row["recomputed"] else "")
            print(f"| {row['size']} | {row['method']} | {side} | {row['step_seconds']:.3f} "
                  f"| {row['tokens_per_second']:.0f} | {number(row['mfu'], '.2f')} | {row['card_bytes'] / 2**30:.2f} "
                  f"| {number(row['rondo_is_faster_by'], '.2f')} |")
        print("\n| model | method | side | step planned / measured | memory planned / measured | whole process, GiB |")
        print("|---|---|---|---|---|---|")
        for plan in self.plans:
            process = plan["process_bytes"]
            print(f"| {plan['size']} | {plan['method']} | {plan['side']} "
                  f"| {plan['planned_step_seconds'] / plan['measured_step_seconds']:.2f} "
                  f"| {plan['planned_bytes'] / max(plan['measured_bytes'], 1):.3f} "
                  f"| {number(process and process / 2**30, '.2f')} |")
        print("\n| model | microbatches | crossover | streamed, part of the speed of resident |\n|---|---|---|---|")
        for row in self.offload:
            print(f"| {row['size']} | {row['microbatches']} | {row['crossover']} | {row['speed_of_resident']:.2f} |")
        for skipped in self.skipped:
            print(f"skipped: {skipped['what']}: {skipped['why']}")


def has_peer(python):
    command = [python, "-c", "import importlib.util as u; raise SystemExit(not all(map(u.find_spec, "
               "('peft', 'torch', 'transformers'))))"]  # to import them takes many seconds
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def main():
    arguments = parse_arguments()
    if arguments.peer and not has_peer(arguments.peer):
        print(f"{arguments.peer} lacks torch, transformers or peft: Rondo runs alone", file=sys.stderr)
        arguments.peer = None
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="rondo-steps."))
    bench = Bench(arguments, folder)
    sizes = arguments.sizes.split(",")
    if arguments.make_models:
        for size in sizes:
            bench.attempt(f"model of {size}", bench.model, size)
        sys.exit(1 if bench.skipped else 0)
    try:
        try:
            bench.find_peak()
        except Failed as failure:
            sys.exit(f"error: {arguments.device}: {failure}")
        except OutOfTime:
            sys.exit(f"error: {arguments.seconds:.0f} s are too few")
        for size in sizes:
            for method in arguments.methods.split(","):
                bench.measure_steps(size, method)
            if size != sizes[0] and not arguments.folder:
                shutil.rmtree(folder / size, ignore_errors=True)
        if not arguments.no_offload:
            bench.attempt(f"{sizes[0]} streamed beside resident", bench.measure_offload, sizes[0])
    finally:
        if not arguments.folder:
            shutil.rmtree(folder, ignore_errors=True)
    bench.save()
    bench.print_tables()
    if not any("step_seconds" in run for run in bench.runs if is_own(run["side"])):
        sys.exit("error: Rondo finished no run")


if __name__ == "__main__":
    main()
