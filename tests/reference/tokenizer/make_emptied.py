"""Makes tests/data/tokenizer_emptied: added tokens of which the normalizer leaves nothing, and what the library does.

Such a token matches everywhere and takes nothing, so that every character of the normalized text stands alone. The
library stops at characters of several bytes, which it would cut, and takes memory without end where the text ends in
the begin of another token; the strings have neither.

Pinned: Python 3.11, tokenizers 0.23.3; seed 11. Run from the repository's root:
    python tests/reference/tokenizer/make_emptied.py
"""

import json
import pathlib
import platform
import random
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, models, normalizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

assert tokenizers.__version__ == "0.23.3"
TARGET = pathlib.Path("tests/data/tokenizer_emptied")
SEED, STRINGS = 11, 60
WORDS = ["ab", "abc", "cd"]
MERGES = [("a", "b"), ("ab", "c"), ("c", "d")]
KINDS = {"plain": {}, "single_word": {"single_word": True}}


def make(flags):
    vocab = {character: i for i, character in enumerate("abcdef ")}
    for word in WORDS:
        vocab[word] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab, MERGES))
    tokenizer.normalizer = normalizers.Replace("~", "")
    tokenizer.add_tokens([AddedToken("~", normalized=True, **flags), AddedToken("ef", normalized=True)])
    return tokenizer


def main():
    maker = random.Random(SEED)
    pieces = ["a", "b", "c", "d", "e", "f", "ef", "abc", "abcd", " ", "~"]
    texts = []
    while len(texts) < STRINGS:
        text = "".join(maker.choices(pieces, k=maker.randrange(1, 8)))
        if not text.replace("~", "").endswith("e"):
            texts.append(text)
    for kind, flags in KINDS.items():
        tokenizer = make(flags)
        folder = TARGET / kind
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        cases = []
        for text in texts:
            encoding = tokenizer.encode(text)
            cases.append({"text": text, "ids": encoding.ids, "ranges": encoding.offsets})
        lines = ",\n".join(json.dumps(case) for case in cases)
        (folder / "golden.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    versions = {"python": platform.python_version(), "tokenizers": tokenizers.__version__}
    write_manifest(TARGET, "tests/reference/tokenizer/make_emptied.py", SEED, versions)


main()
