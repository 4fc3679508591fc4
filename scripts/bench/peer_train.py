"""The peer for the speed of a whole training step: transformers + PEFT on PyTorch, on the CPU or a card, in bf16.

    python peer_train.py MODEL_DIR --batch 1 --length 512 --method lora --threads 2 --steps 5 [--compile]
    python peer_train.py MODEL_DIR --device cuda --random --accumulation 4 --steps 5 [--compile [--blocks]] [--checkpointing]

What a user of transformers would run: the model in bf16, loss computed by the model from `labels`, PyTorch's fused AdamW
on the bf16 parameters themselves, gradients clipped at a norm of 1. The peer thus has neither fp32 master weights
nor fp32 moments, so it moves less memory per step than Rondo, which keeps both; read the comparison with
that in mind. LoRA is rank 16, alpha 32, on all linear layers of the blocks; its factors are bf16 too
(`--adapter-dtype fp32` gives PEFT's default).

On a CPU without bf16 instructions (`bf16_kernels` false in the output) PyTorch computes bf16 products by a generic path
that is many times slower than its fp32 one, and a user would train in fp32: such a machine's fair peer is `--dtype fp32`
(LoRA adapter included), and a bf16 figure from it must not be quoted as PyTorch's speed without saying so.

With `--random` only MODEL_DIR's config.json is read and weights are drawn on the device itself. Attention is PyTorch's own
choice among the kernels of scaled_dot_product_attention.

Prints one JSON document: the median over the steps after warm-up, and the peak resident memory of the process and of the
card. Where the card's memory does not suffice the document has an `error` in their stead, and the exit status is 3.
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description="a training step of transformers + PEFT on PyTorch")
    parser.add_argument("model", help="model directory")
    parser.add_argument("--batch", type=int, default=1, help="sequences of a microbatch")
    parser.add_argument("--accumulation", type=int, default=1, help="microbatches of a step")
    parser.add_argument("--length", type=int, default=512, help="tokens of a sequence")
    parser.add_argument("--method", choices=["full", "lora"], default="lora")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--adapter-dtype", choices=["bf16", "fp32"], help="that of the model unless given")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--device", default="cpu", help="PyTorch's name: cpu, cuda, cuda:1")
    parser.add_argument("--random", action="store_true", help="random weights; MODEL_DIR need only hold config.json")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--compile", action="store_true", help="torch.compile; else eager")
    parser.add_argument("--blocks", action="store_true",
                        help="with --compile: one block, for all of them, and neither head nor loss: done in seconds")
    parser.add_argument("--checkpointing", action="store_true", help="recompute activations in the backward pass")
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them")
    parser.add_argument("--ids", help="JSON file with sequences of at least LENGTH token ids; else random ids")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def load_model(arguments, torch):
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
    dtype = dtypes[arguments.dtype]
    config = transformers.AutoConfig.from_pretrained(arguments.model)
    # With sinks transformers has the plain implementation alone.
    how = dict(dtype=dtype, attn_implementation="eager" if config.model_type == "gpt_oss" else "sdpa")
    with torch.device(arguments.device):
        if arguments.random:
            model = transformers.AutoModelForCausalLM.from_config(config, **how)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(arguments.model, **how)
    model.config.use_cache = False
    if arguments.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=dict(use_reentrant=False))
    if arguments.method == "lora":
        import peft
        model = peft.get_peft_model(
            model, peft.LoraConfig(r=arguments.rank, lora_alpha=2 * arguments.rank, lora_dropout=0.0, bias="none",
                                   target_modules="all-linear", task_type="CAUSAL_LM"),
            autocast_adapter_dtype=False)
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.to(dtypes[arguments.adapter_dtype or arguments.dtype])
    return model.to(arguments.device).train()


def make_batches(arguments, torch, vocabulary):
    """All microbatches of one step, [batch, length] each."""
    count = arguments.batch * arguments.accumulation
    if arguments.ids:
        with open(arguments.ids, encoding="utf-8") as file:
            rows = [row[:arguments.length] for row in json.load(file) if len(row) >= arguments.length]
        if len(rows) < count:
            sys.exit(f"error: {arguments.ids}: {len(rows)} sequences of {arguments.length} tokens, needed {count}")
        ids = torch.tensor(rows[:count])
    else:
        ids = torch.randint(vocabulary, (count, arguments.length), generator=torch.Generator().manual_seed(
            arguments.seed))
    return ids.to(arguments.device).split(arguments.batch)


def on_card(arguments):
    return arguments.device != "cpu"


def measure(arguments, torch):
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    model = load_model(arguments, torch)
    batches = make_batches(arguments, torch, model.config.vocab_size)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, fused=True)
    forward = model
    if arguments.compile and arguments.blocks:
        for block in next(module for name, module in model.named_modules() if name.endswith("model.layers")):
            block.compile(dynamic=False)
    elif arguments.compile:
        forward = torch.compile(model, dynamic=False)
    targets = sum(batch[:, 1:].numel() for batch in batches)
    seconds, losses = [], []
    for _ in range(arguments.warmup + arguments.steps):
        begin = time.perf_counter()
        total = torch.zeros((), device=arguments.device)
        for batch in batches:
            loss = forward(input_ids=batch, labels=batch, num_items_in_batch=targets).loss
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total.item())
        if on_card(arguments):
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return seconds, losses, sum(p.numel() for p in trained)


def main():
    arguments = parse_arguments()
    if arguments.steps < 1:
        sys.exit("error: --steps: expected at least 1")
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # before torch is loaded
    load_before = os.getloadavg()[0]
    import torch
    try:
        seconds, losses, parameters = measure(arguments, torch)
    except torch.OutOfMemoryError as error:
        print(json.dumps(dict(error=str(error).split("\n")[0])))
        sys.exit(3)
    import peft
    import transformers
    timed = seconds[arguments.warmup:]
    median = statistics.median(timed)
    print(json.dumps(dict(
        peer="eager" if not arguments.compile else "torch.compile of blocks" if arguments.blocks else "torch.compile", method=arguments.method, dtype=arguments.dtype,
        device=arguments.device, batch=arguments.batch, accumulation=arguments.accumulation, length=arguments.length,
        threads=arguments.threads, checkpointing=arguments.checkpointing, trained_parameters=parameters,
        median_step_seconds=median, step_seconds=timed,
        tokens_per_second=arguments.batch * arguments.accumulation * arguments.length / median,
        peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        peak_card_bytes=torch.cuda.max_memory_allocated() if on_card(arguments) else None,
        bf16_kernels=torch.ops.mkldnn._is_mkldnn_bf16_supported(), load_average_before=load_before,
        cpu_capability=torch.backends.cpu.get_cpu_capability(), first_loss=losses[0], last_loss=losses[-1],
        versions=dict(torch=torch.__version__, transformers=transformers.__version__, peft=peft.__version__))))


if __name__ == "__main__":
    main()
