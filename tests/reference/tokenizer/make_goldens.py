"""Makes tests/data/tokenizer: small tokenizers of the kinds that are published, and what the library makes of strings.

Pinned: Python 3.11, tokenizers 0.23.3; seeds 1 (training) and 7 (strings). Run from the repository's root:
    python tests/reference/tokenizer/make_goldens.py
Writes for each tokenizer NAME/tokenizer.json and NAME/golden.bin: 10,000 hashes of the ids of the strings that
string_maker.py makes, then 1,250 hashes of the ranges and of the decoded text of every eighth string (64-bit FNV-1a,
little-endian). MANIFEST.json names what was written.
"""

import json
import os
import pathlib
import platform
import struct
import sys
from collections import Counter

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tokenizers  # noqa: E402
from tokenizers import Regex, Tokenizer, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, trainers  # noqa: E402

from string_maker import StringMaker, read_fragments  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

assert tokenizers.__version__ == "0.23.3"
TARGET = "tests/data/tokenizer"
SEEDS = {"training": 1, "strings": 7}
COUNT, EVERY = 10000, 8
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}" + CASED_TAIL
)
LLAMA4 = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|"
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?|\p{{N}}{{1,3}}" + CASED_TAIL
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]
# Words that no merges lead to: found only where ignore_merges is set.
UNREACHABLE = ["Supercalifragilisticexpialidocious", "ĠThe", "CamelCaseWords", "snake"]
SPACE = "\u2581"


def byte_level(**change):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True} | change


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def bos_template(token, identity):
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {token: {"id": token, "ids": [identity], "tokens": [token]}},
    }


def added(content, special=True, **flags):
    token = {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return token | {"special": special} | flags


def metaspace(scheme, split_words):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split_words}


def corpus(fragments):
    maker = StringMaker(1, fragments)
    words = "the quick brown fox jumps over a lazy dog while many other animals are watching the new world".split()
    texts = [maker.string() for _ in range(1500)]
    for _ in range(1500):
        texts.append(" ".join(words[maker.next(len(words))] for _ in range(8)))
    return texts


def most_frequent(tokenizer, texts, count):
    """The `count` characters that come most often in what the tokenizer splits; the trainer itself would draw among
    equally frequent ones by the order of a hash table."""
    counts = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal):
            counts.update(piece)
    return sorted(counts, key=lambda character: (-counts[character], character))[:count]


def train(texts, size, normalizer=None, pre_tokenizer=None, alphabet=None, special=(), limit=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    if limit:
        alphabet = most_frequent(tokenizer, texts, limit)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(special),
        initial_alphabet=alphabet or [],
        **({"limit_alphabet": limit} if limit else {}),
        show_progress=False,
        max_token_length=16,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def bpe(vocab_and_merges, as_text=False, **change):
    vocab, merges = vocab_and_merges
    if as_text:
        merges = [" ".join(pair) for pair in merges]
    base = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    }
    return base | change | {"vocab": vocab, "merges": merges}


def with_words(trained, words):
    vocab, merges = trained
    vocab = dict(vocab)
    for word in words:
        vocab.setdefault(word, len(vocab))
    return vocab, merges


def definition(model, tokens, normalizer=None, pre=None, post=None, decoder=None):
    vocab = model["vocab"]
    following = len(vocab)
    for token in tokens:
        if token["content"] in vocab:
            token["id"] = vocab[token["content"]]
        else:
            token["id"] = following
            following += 1
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(tokens, key=lambda token: token["id"]),
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": post,
        "decoder": decoder,
        "model": model,
    }


def definitions(texts):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    full = train(texts, 700, pre_tokenizer=words, alphabet=sorted(alphabet))
    partial = train(texts, 520, pre_tokenizer=words, special=["<|endoftext|>", "<|im_start|>", "<|im_end|>"], limit=150)
    llama_bytes = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    spaced = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    pieces = train(
        texts,
        760,
        normalizer=spaced,
        pre_tokenizer=pre_tokenizers.Split(Regex(f"{SPACE}[^{SPACE}]*"), "isolated"),
        special=llama_bytes,
        limit=150,
    )
    plain = train(texts, 420, pre_tokenizer=pre_tokenizers.Whitespace(), special=["<unk>"], limit=130)
    llama_decoder = sequence(
        "decoders",
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    )
    out = {}
    out["gpt2"] = definition(
        bpe(full, as_text=True),
        [added("<|endoftext|>", normalized=True)],
        pre=byte_level(add_prefix_space=True),
        post=byte_level(add_prefix_space=True),
        decoder=byte_level(),
    )
    llama3_names = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end"]
    llama3_model = bpe(with_words(full, UNREACHABLE), as_text=True, ignore_merges=True)
    out["llama3"] = definition(
        llama3_model,
        [added(name) for name in llama3_names],
        pre=sequence("pretokenizers", split(LLAMA3), byte_level(use_regex=False)),
        post=sequence(
            "processors", byte_level(), bos_template("<|begin_of_text|>", len(llama3_model["vocab"]))
        ),
        decoder=byte_level(),
    )
    out["llama4"] = definition(
        bpe(with_words(full, UNREACHABLE), ignore_merges=True),
        [added(name) for name in llama3_names],
        pre=sequence("pretokenizers", split(LLAMA4), byte_level(use_regex=False)),
        post=byte_level(trim_offsets=False),
        decoder=byte_level(),
    )
    qwen_tokens = [added(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    qwen_tokens += [added(name, special=False) for name in ("<think>", "</think>", "<tool_call>")]
    out["qwen"] = definition(
        bpe(with_words(full, UNREACHABLE), continuing_subword_prefix="", end_of_word_suffix=""),
        qwen_tokens,
        normalizer={"type": "NFC"},
        pre=sequence("pretokenizers", split(QWEN), byte_level(use_regex=False, trim_offsets=False)),
        post=byte_level(use_regex=False, trim_offsets=False),
        decoder=byte_level(),
    )
    out["smollm2"] = definition(
        bpe(partial),
        [added(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")],
        pre=sequence("pretokenizers", {"type": "Digits", "individual_digits": True}, byte_level()),
        decoder=byte_level(add_prefix_space=True),
    )
    deepseek_model = bpe(full)
    del deepseek_model["ignore_merges"]
    out["deepseek"] = definition(
        deepseek_model,
        [
            added("<|endoftext|>"),
            added("<mask>", lstrip=True, rstrip=True),
            added("<sep>", special=False, rstrip=True),
            added("Word", special=False, single_word=True),
            added("[INST]", special=False, normalized=True),
            added(" [INST]", special=False, normalized=True, lstrip=True),
            added("zzz", special=False, normalized=True, single_word=True),
            added("<abc>", special=False),
            added("<abcd>"),
            added("<ab", special=False),
            added("  ", special=False),
            added("é", special=False, single_word=True, lstrip=True),
        ],
        normalizer=sequence("normalizers"),
        pre=sequence("pretokenizers", *[split(pattern) for pattern in DEEPSEEK], byte_level(use_regex=False)),
        post=byte_level(add_prefix_space=True, trim_offsets=True),
        decoder=byte_level(),
    )
    llama_names = [added(name) for name in ("<unk>", "<s>", "</s>")]
    out["llama2"] = definition(
        bpe(pieces, byte_fallback=True, fuse_unk=True, unk_token="<unk>"),
        [dict(token) for token in llama_names],
        normalizer=sequence(
            "normalizers",
            {"type": "Prepend", "prepend": SPACE},
            {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        ),
        post=bos_template("<s>", 1),
        decoder=llama_decoder,
    )
    out["mistral_v3"] = definition(
        bpe(pieces, byte_fallback=True, fuse_unk=True, unk_token="<unk>"),
        llama_names + [added("[INST]"), added("[/INST]"), added("[TOOL_CALLS]", special=False)],
        pre=metaspace("first", False),
        post=bos_template("<s>", 1),
        decoder=llama_decoder,
    )
    # The normalizer leaves no blank to cut at; runs of blanks and line ends are tokens of their own.
    out["gemma"] = definition(
        bpe(pieces, byte_fallback=True, fuse_unk=True, unk_token="<unk>"),
        [dict(token) for token in llama_names]
        + [added("<start_of_turn>"), added("\n\n", special=False), added(SPACE * 2, special=False)],
        normalizer={"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        pre=split(" ", "MergedWithPrevious", kind="String"),
        post=bos_template("<s>", 1),
        decoder=sequence(
            "decoders",
            {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ),
    )
    tekken_names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]", "<pad>"]
    tekken = {name: i for i, name in enumerate(tekken_names)}
    tekken |= {token: i + len(tekken_names) for token, i in with_words(full, UNREACHABLE)[0].items()}
    out["tekken"] = definition(
        bpe((tekken, full[1]), ignore_merges=True),
        [added(name) for name in tekken_names],
        pre=sequence("pretokenizers", split(TEKKEN), byte_level(use_regex=False)),
        post=bos_template("<s>", 1),
        decoder=byte_level(),
    )
    # Components that the ten above leave out, and their settings.
    out["folding"] = definition(
        bpe(plain, unk_token="<unk>", fuse_unk=False),
        [
            added("<unk>"),
            added("CaféToken", special=False, normalized=True),
            added("WORLD", special=True, normalized=True, single_word=True),
        ],
        normalizer=sequence(
            "normalizers",
            {"type": "NFKC"},
            {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
        ),
        pre=sequence(
            "pretokenizers",
            split("--", "MergedWithPrevious", kind="String"),
            split("[a-c]+", "MergedWithNext"),
            {"type": "Punctuation", "behavior": "Contiguous"},
            {"type": "Digits", "individual_digits": False},
            {"type": "Whitespace"},
        ),
    )
    half = {t: i for t, i in plain[0].items()}
    for byte in range(0, 256, 2):
        half[f"<0x{byte:02X}>"] = len(half)
    out["unknowns"] = definition(
        bpe((half, plain[1]), unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        [added("<unk>"), added("<mask>", lstrip=True)],
        normalizer=sequence("normalizers", {"type": "NFKD"}, {"type": "Strip", "strip_left": True, "strip_right": False}),
        pre=sequence("pretokenizers", metaspace("always", True), {"type": "Punctuation", "behavior": "Removed"}),
        decoder=metaspace("always", True),
    )
    out["rewriting"] = definition(
        bpe(full),
        [added("<mask>", normalized=True)],
        normalizer=sequence(
            "normalizers",
            {"type": "NFD"},
            {"type": "Replace", "pattern": {"Regex": r"\s{2,}|(?<=x)"}, "content": "·"},
            {"type": "Prepend", "prepend": " >"},
        ),
        pre=sequence(
            "pretokenizers",
            split(r"\w+|[^\w\s]", "Removed", invert=True),
            metaspace("never", False),
            split(r"\b", "Contiguous"),
            byte_level(add_prefix_space=True),
        ),
        post=sequence("processors", byte_level(add_prefix_space=True)),
        decoder=sequence("decoders", byte_level(), {"type": "Strip", "content": ">", "start": 0, "stop": 2}),
    )
    return out


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def byte_offsets(text, offsets):
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return [starts[end] for pair in offsets for end in pair]


# smollm2 lacks bytes and drops them, which shifts the library's offsets; unknowns puts unknown tokens out of order.
def ranges_count(name, tokenizer, text):
    if name == "unknowns":
        return False
    if name != "smollm2":
        return True
    spelled = "".join(piece for piece, _ in pre_tokenizers.ByteLevel(False, use_regex=False).pre_tokenize_str(text))
    vocab = tokenizer.get_vocab()
    return all(character in vocab for character in set(spelled))


def golden(name, tokenizer, strings):
    identities, others = [], []
    for i, text in enumerate(strings):
        encoding = tokenizer.encode(text, add_special_tokens=i % 2 == 0)
        identities.append(fnv(struct.pack(f"<{len(encoding.ids)}i", *encoding.ids)))
        if i % EVERY:
            continue
        data = b""
        if ranges_count(name, tokenizer, text):
            offsets = byte_offsets(text, encoding.offsets)
            data += struct.pack(f"<{len(offsets)}I", *offsets)
        for skip in (False, True):
            data += tokenizer.decode(encoding.ids, skip_special_tokens=skip).encode() + b"\0"
        others.append(fnv(data))
    return struct.pack(f"<{len(identities) + len(others)}Q", *identities, *others)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)


def main():
    fragments = read_fragments(f"{TARGET}/fragments.txt")
    maker = StringMaker(SEEDS["strings"], fragments)
    strings = [maker.string() for _ in range(COUNT)]
    for name, value in definitions(corpus(fragments)).items():
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) < 60000, (name, len(text.encode()))
        tokenizer = Tokenizer.from_str(text)
        for token in value["added_tokens"]:
            assert tokenizer.token_to_id(token["content"]) == token["id"], (name, token)
        write(f"{TARGET}/{name}/tokenizer.json", text.encode())
        write(f"{TARGET}/{name}/golden.bin", golden(name, tokenizer, strings))
        print(name, len(text.encode()))
    write_manifest(TARGET, "tests/reference/tokenizer/make_goldens.py", SEEDS,
                   {"tokenizers": tokenizers.__version__, "python": platform.python_version()})


main()
