"""PyTorch's matrix products and attention on a card, under the names that cuda_bench gives ours.

    python peer_ops.py [--device cuda] [--scale 1]

Products are torch.matmul (cuBLAS) in bf16 with fp32 sums, without reduced-precision reductions; gradients of weights are in
bf16 here, where ours are fp32. Attention is scaled_dot_product_attention, causal, by cuDNN and by FlashAttention, each
forward, and forward with backward. A figure is the best of three rounds of ten runs in flight, as in cuda_bench. "Peak" is a
product of 8192 x 8192 x 8192. Prints one JSON list of {name, peer, seconds, flops_per_second}; what a kernel cannot do has
an `error`. `--scale` divides all extents, for trials without a card.
"""
import argparse
import json
import time

HEADS = [(32, 8, 128), (32, 32, 96), (16, 4, 256), (16, 2, 512)]  # of queries, of keys, channels: as in cuda_bench
TRIES = 3
RUNS = 10


def best_seconds(torch, device, run):
    def wait():
        if device != "cpu":
            torch.cuda.synchronize()

    best = float("inf")
    for attempt in range(TRIES + 1):
        wait()
        begin = time.perf_counter()
        for _ in range(RUNS):
            run()
        wait()
        if attempt > 0:  # the first warms up
            best = min(best, (time.perf_counter() - begin) / RUNS)
    return best


def products(torch, device, extent):
    """(name, flops, run) of the three products of a linear layer [extent, extent] over `extent` tokens."""
    x, dy, w = (torch.randn(extent, extent, device=device, dtype=torch.bfloat16) for _ in range(3))
    flops = 2 * extent**3
    name = f"{extent}x{extent}x{extent}/bf16"
    yield f"Product/matmul/{name}", flops, lambda: torch.matmul(x, w.t())
    yield f"Product/matmul_input_gradient/{name}", flops, lambda: torch.matmul(dy, w)
    yield f"Product/matmul_weight_gradient/{name}", flops, lambda: torch.matmul(dy.t(), x)


def attention(torch, device, tokens, heads, kv_heads, head_dim):
    """(name, flops, run) of causal attention: forward, and both passes."""
    def tensor(count):
        return torch.randn(1, count, tokens, head_dim, device=device, dtype=torch.bfloat16, requires_grad=True)

    q, k, v = tensor(heads), tensor(kv_heads), tensor(kv_heads)
    do = torch.randn_like(q)
    flops = 2 * tokens * tokens * heads * head_dim  # causal, forward; backward is two and a half times that
    shape = f"{tokens}x{heads}x{kv_heads}x{head_dim}"

    def forward():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)

    def both():
        q.grad = k.grad = v.grad = None
        forward().backward(do)

    yield f"Attention/{shape}/forward/bf16", flops, forward
    yield f"Attention/{shape}/forward and backward/bf16", 3.5 * flops, both


def main():
    parser = argparse.ArgumentParser(description="PyTorch's products and attention")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=int, default=1, help="what all extents are divided by")
    arguments = parser.parse_args()
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    device, scale = arguments.device, arguments.scale
    figures = []

    def report(name, peer, flops, run):
        try:
            seconds = best_seconds(torch, device, run)
            figures.append(dict(name=name, peer=peer, seconds=seconds, flops_per_second=flops / seconds))
        except RuntimeError as error:  # no kernel, or no memory
            figures.append(dict(name=name, peer=peer, error=str(error).split("\n")[0]))

    name, flops, run = next(products(torch, device, 8192 // scale))
    report("Peak/" + name, "cuBLAS", flops, run)
    for name, flops, run in products(torch, device, 4096 // scale):
        report(name, "cuBLAS", flops, run)
    backends = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention": SDPBackend.FLASH_ATTENTION}
    if device == "cpu":
        backends = {"PyTorch": SDPBackend.MATH}
    for peer, backend in backends.items():
        with sdpa_kernel(backend):
            for heads, kv_heads, head_dim in HEADS:
                for name, flops, run in attention(torch, device, 4096 // scale, heads, kv_heads, head_dim):
                    report(name, peer, flops, run)
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
