"""Matrix products and attention on a card: ours (cuda_bench) beside PyTorch's (peer_ops.py), in turns.

    card_ops.py --bench CUDA_BENCH --peer PYTHON [--pairs 3] [--peer-device cuda] [--seconds 200] [--json FILE]

A ratio is the median over the pairs of the peer's time over ours within the pair. Prints a table; the peak is what the peer's
largest product reaches.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def figures(command, left):
    """By name: entries of a JSON list on the standard output."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"error: {command[0]} is not done after {left:.0f} s")
    if done.returncode != 0:
        lines = (done.stderr.strip() or "no message").splitlines()
        sys.exit(f"error: {command[0]} ended with {done.returncode}: {lines[-1][:300]}")
    return json.loads(done.stdout)


def own_seconds(bench, left):
    """Seconds by name; attention's passes together too."""
    found = {entry["name"]: entry.get("seconds") for entry in figures([bench, "Product/", "Attention/"], left)}
    for name, forward in list(found.items()):
        backward = found.get(name.replace("/forward/", "/backward/"))
        if "/forward/" in name and forward and backward:
            found[name.replace("/forward/", "/forward and backward/")] = forward + backward
    return found


def main():
    parser = argparse.ArgumentParser(description="products and attention beside PyTorch's")
    parser.add_argument("--bench", required=True, help="the program cuda_bench")
    parser.add_argument("--peer", required=True, help="a Python with torch")
    parser.add_argument("--peer-device", default="cuda")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=200, help="no pair begins later")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    ours, theirs = [], []
    for pair in range(arguments.pairs):
        if pair > 0 and time.monotonic() > end:
            break
        ours.append(own_seconds(arguments.bench, arguments.seconds + 60))
        theirs.append(figures([arguments.peer, HERE / "peer_ops.py", "--device", arguments.peer_device],
                              arguments.seconds + 60))
    rows, peaks = [], []
    for place, entry in enumerate(theirs[0]):
        name, peer = entry["name"], entry["peer"]
        times = [list_of[place].get("seconds") for list_of in theirs]
        if name.startswith("Peak/"):
            peaks = [list_of[place]["flops_per_second"] for list_of in theirs if "flops_per_second" in list_of[place]]
            continue
        row = dict(name=name, peer=peer)
        if not all(times):
            row["error"] = next(list_of[place]["error"] for list_of in theirs if "error" in list_of[place])
        elif all(own.get(name) for own in ours):
            row.update(own_seconds=statistics.median(own[name] for own in ours), peer_seconds=statistics.median(times),
                       own_speed_of_peer=statistics.median(other / own[name] for own, other in zip(ours, times)))
        else:
            row["error"] = "cuda_bench has no such figure"
        rows.append(row)
    peak = statistics.median(peaks) if peaks else None
    document = dict(pairs=len(ours), peak_flops_per_second=peak, rows=rows)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if peak:
        print(f"peak in bf16: {peak / 1e12:.1f} TFLOP/s; {len(ours)} pairs\n")
    print("| op | peer | ours, ms | peer, ms | our part of the peer's speed |\n|---|---|---|---|---|")
    for row in rows:
        if "error" in row:
            print(f"| {row['name']} | {row['peer']} | | | {row['error']} |")
        else:
            print(f"| {row['name']} | {row['peer']} | {row['own_seconds'] * 1e3:.3f} | {row['peer_seconds'] * 1e3:.3f} "
                  f"| {row['own_speed_of_peer']:.2f} |")


if __name__ == "__main__":
    main()
