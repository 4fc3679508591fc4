"""Writes tests/data/golden: tiny models and what transformers, PEFT and PyTorch compute with them, in fp32.

    python make_goldens.py [CASE...]      all cases but BUILT_AS_OTHERS, and MANIFEST.json, without arguments

tests/data/golden/README.md says what each file holds. The versions are pinned: other ones may compute other numbers.
"""
import json
import pathlib
import platform
import shutil
import sys
import warnings

import peft
import safetensors
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import families
import loop

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import auto_class  # noqa: E402
from experts import in_files  # noqa: E402
from manifest import write_manifest  # noqa: E402

VERSIONS = {"torch": "2.15.0", "transformers": "5.23.0", "peft": "0.21.2"}
SEED = 20240
STEPS = 20
SAMPLE_STRIDE = 11  # of a tensor larger than SAMPLE_WHOLE; no row length here is a multiple of 11
SAMPLE_WHOLE = 128
TRAINING = dict(learning_rate=1e-3, weight_decay=0.01, schedule="linear", warmup=3, max_grad_norm=1.0,
                betas=(0.9, 0.999), epsilon=1e-8)
SPELLED_AS_TRANSFORMERS_4 = ("llama_llama3", "llama_yarn")
GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "data" / "golden"


def check_versions():
    for module in (torch, transformers, peft):
        found = module.__version__.split("+")[0]
        if found != VERSIONS[module.__name__]:
            sys.exit(f"error: {module.__name__} {found}: the goldens are defined by {VERSIONS[module.__name__]}")


def write_json(path, value):
    path.write_text(json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n")


def save_tokenizer(folder):
    """Byte-level BPE over printable ASCII without merges: a model directory needs one, these goldens never read it."""
    alphabet = ["<pad>", "<s>", "</s>"] + [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a"]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(alphabet[:3])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>",
                                                eos_token="</s>")
    fast.save_pretrained(folder)


def spell_as_transformers_4(folder):
    """The same config.json with rope_theta, rope_scaling and torch_dtype at the top level."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.0"
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def random_tokens(generator, vocabulary, count):
    """Ids with a skew towards small ones, so that there is something to learn; some never occur at all."""
    uniform = torch.rand(count, generator=generator, dtype=torch.float64)
    return (3 + (vocabulary - 3) * uniform.square()).long().tolist()


def make_steps(name, vocabulary):
    """Steps of 2-3 microbatches of 1-3 sequences of 2-40 tokens; the targets are all, a tail, or a middle part."""
    generator = torch.Generator().manual_seed(families.case_seed(name, SEED + 1))

    def draw(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=generator))

    def sequence():
        length = draw(2, 40)
        ids = random_tokens(generator, vocabulary, length)
        first, end = [(0, length), (draw(1, length - 1), length), (length // 3, max(length // 3 + 2, 3 * length // 4))][
            draw(0, 2)]
        return dict(ids=ids, labels=[t if first <= i < end else loop.MASKED for i, t in enumerate(ids)])

    return [[[sequence() for _ in range(draw(1, 3))] for _ in range(draw(2, 3))] for _ in range(STEPS)]


def sample(tensors):
    """Small tensors whole, large ones each SAMPLE_STRIDE-th element of the flat tensor."""
    return {name: (t if t.numel() <= SAMPLE_WHOLE else t.flatten()[::SAMPLE_STRIDE]).detach().clone().contiguous()
            for name, t in tensors.items()}


def plain_name(name):
    """PEFT's name of a factor in adapter_model.safetensors; a model's own parameters keep theirs."""
    return name.replace(".default.weight", ".weight")


def trained_tensors(model, value=lambda parameter: parameter):
    """By the names in files; without the biases that transformers counts among a loaded model's trained parameters and
    that never have a gradient."""
    trained = {n: value(p) for n, p in model.named_parameters()
               if p.requires_grad and not n.endswith(families.CHOICE_BIASES)}
    return {name: part.detach().clone() for n, tensor in trained.items() if tensor is not None
            for name, part in in_files(model.config, plain_name(n), tensor)}


def update_of(final, initial):
    return {name: final[name] - initial[name] for name in final}


def run_training(build, steps, noise):
    """Trains twice, apart and padded; what the two differ by is the noise of fp32 summation order in this case."""
    gradients = {}

    def keep_norms(model):
        gradients.update({name: part.norm().item() for name, part in trained_tensors(model, lambda p: p.grad).items()})

    model, padded = build(), build()
    initial = trained_tensors(model)
    records = loop.train(model, steps, on_first_gradients=keep_norms, **TRAINING)
    other = loop.train(padded, steps, padded=True, **TRAINING)
    final = trained_tensors(model)
    noise.update(
        loss=loop.worst(other, records, "loss"), grad_norm=loop.worst(other, records, "grad_norm"),
        **loop.compare_updates(update_of(trained_tensors(padded), initial), update_of(final, initial)))
    return dict(steps=records, first_step_gradient_norms=gradients), final


def generation_golden(model, name, vocabulary):
    """The first seeded prompt whose greedy continuation has clear winners and does not stop early."""
    generator = torch.Generator().manual_seed(families.case_seed(name, SEED + 2))
    for _ in range(400):
        prompt = random_tokens(generator, vocabulary, 9)
        tokens, gap = loop.greedy(model, prompt, 24)
        if len(tokens) == 24 and 2 not in tokens and gap > 0.02 and len(set(tokens)) >= 6:
            return dict(prompt_ids=prompt, new_ids=tokens, least_logit_gap=gap)
    sys.exit(f"error: {name}: no prompt with a clear greedy continuation; change the seed")


def inference_golden(folder, model, name, steps):
    model.eval()
    sequence = max((s for micro in steps[0] for s in micro), key=lambda s: len(s["ids"]))
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([sequence["ids"]])).logits[0].float()
        total = loop.sequence_loss(model, sequence).item()
    targets = loop.count_targets([[sequence]])
    save_file({"logits": logits.contiguous()}, folder / "logits.safetensors")
    write_json(folder / "inference.json",
               dict(ids=sequence["ids"], labels=sequence["labels"], loss=total / targets, target_tokens=targets,
                    greedy=generation_golden(model, name, families.text_config(model).vocab_size)))


def make_case(name):
    folder = GOLDEN / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model_folder, adapter_folder = folder / "model", folder / "adapter"
    model = families.make_model(name, SEED)
    model.save_pretrained(model_folder)
    families.settle_files(model_folder)
    save_tokenizer(model_folder)
    if name in SPELLED_AS_TRANSFORMERS_4:
        spell_as_transformers_4(model_folder)
    families.make_adapter(families.make_model(name, SEED), families.case_seed(name, SEED + 3)).save_pretrained(
        adapter_folder)
    (adapter_folder / "README.md").unlink(missing_ok=True)
    settle_adapter_config(adapter_folder / "adapter_config.json", families.targets_of(model))

    def load():  # from the files, so that what was written is what was trained
        return families.prepared(auto_class.load(model_folder))

    def load_adapter():
        return peft.PeftModel.from_pretrained(load(), adapter_folder, is_trainable=True).train()

    steps = make_steps(name, families.text_config(model).vocab_size)
    write_json(folder / "batches.json", dict(training=TRAINING, steps=steps))
    inference_golden(folder, load(), name, steps)
    noise = dict(full={}, lora={})
    full, final = run_training(load, steps, noise["full"])
    write_json(folder / "full.json", full)
    save_file(sample(final), folder / "full_final.safetensors")
    lora, final = run_training(load_adapter, steps, noise["lora"])
    stored = load_file(adapter_folder / "adapter_model.safetensors")
    if set(final) != {part for name, tensor in stored.items() for part, _ in in_files(model.config, name, tensor)}:
        sys.exit(f"error: {name}: names of trained factors and of the stored adapter differ")
    write_json(folder / "lora.json", lora)
    save_file(sample(final), folder / "lora_final.safetensors")
    return noise


def settle_adapter_config(path, targets):
    """No path of the machine that wrote it, and one order of the target modules (PEFT keeps a set)."""
    config = json.loads(path.read_text())
    config["base_model_name_or_path"] = "../model"
    config["target_modules"] = targets
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    check_versions()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.simplefilter("ignore", FutureWarning)
    names = sys.argv[1:] or [name for name in families.CASES if name not in families.BUILT_AS_OTHERS]
    manifest = GOLDEN / "MANIFEST.json"
    noise = json.loads(manifest.read_text())["noise"] if sys.argv[1:] and manifest.exists() else {}
    for name in names:
        noise[name] = make_case(name)
        print(name, json.dumps(noise[name]), flush=True)
    write_manifest(GOLDEN, "tests/reference/training/make_goldens.py", SEED,
                   {**VERSIONS, "safetensors": safetensors.__version__, "python": platform.python_version()},
                   steps=STEPS, sample=dict(stride=SAMPLE_STRIDE, whole_up_to=SAMPLE_WHOLE), noise=noise)


if __name__ == "__main__":
    main()
