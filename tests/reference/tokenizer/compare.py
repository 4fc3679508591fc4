"""Sets our tokenizer beside the `tokenizers` library on a folder's tokenizer.json: ids, ranges, decoding and speed.

Pinned: Python 3.11, tokenizers 0.23.3; seed 20240607. Needs the tool tokenizer_dump (a target of the build):
    python tests/reference/tokenizer/compare.py build/dev/tests/tokenizer_dump FOLDER [COUNT [TEXT_FILE]]
With TEXT_FILE both tokenize its paragraphs, on one thread, and the times are printed (build with the release preset).
"""

import os
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

from tokenizers import Tokenizer  # noqa: E402

from string_maker import StringMaker, read_fragments  # noqa: E402

SEED = 20240607


def dump(tool, folder, strings, rounds=None):
    with tempfile.TemporaryDirectory() as scratch:
        source, target = scratch + "/strings", scratch + "/results"
        with open(source, "wb") as out:
            for text in strings:
                data = text.encode()
                out.write(struct.pack("<I", len(data)) + data)
        command = [tool, folder, source, target] + ([str(rounds)] if rounds else [])
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        with open(target, "rb") as file:
            return file.read(), printed


def parse(data):
    at = 0
    while at < len(data):
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
        numbers = struct.unpack_from("<" + "iII" * count, data, at)
        at += 12 * count
        (dropped,) = struct.unpack_from("<I", data, at)
        at += 4
        texts = []
        for _ in range(2):
            (size,) = struct.unpack_from("<I", data, at)
            texts.append(data[at + 4 : at + 4 + size].decode())
            at += 4 + size
        yield list(numbers[0::3]), list(zip(numbers[1::3], numbers[2::3])), texts, dropped


def byte_offsets(text, offsets):
    starts = [0]
    for character in text:
        starts.append(starts[-1] + len(character.encode()))
    return [(starts[a], starts[b]) for a, b in offsets]


def main():
    tool, folder = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10000
    tokenizer = Tokenizer.from_file(folder + "/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    here = os.path.dirname(os.path.abspath(__file__))
    maker = StringMaker(SEED, read_fragments(here + "/../../data/tokenizer/fragments.txt"))
    strings = [maker.string() for _ in range(count)]
    wrong = {"ids": 0, "ranges": 0, "decoded": 0}
    for text, (ids, ranges, texts, dropped) in zip(strings, parse(dump(tool, folder, strings)[0])):
        wanted = tokenizer.encode(text)
        decoded = [tokenizer.decode(wanted.ids, skip_special_tokens=skip) for skip in (False, True)]
        for key, ours, theirs in (
            ("ids", ids, wanted.ids),
            ("ranges", ranges, byte_offsets(text, wanted.offsets)),
            ("decoded", texts, decoded),
        ):
            # Where symbols were left out the library's offsets slip by as many characters; ours do not.
            if key == "ranges" and dropped:
                continue
            if ours != theirs:
                wrong[key] += 1
                if wrong[key] <= 3:
                    print(f"{key} differ for {text!r}:\n  ours   {ours}\n  theirs {theirs}")
    print(f"{count} strings; differences: {wrong}")
    if len(sys.argv) > 4:
        with open(sys.argv[4], encoding="utf-8") as file:
            paragraphs = [p + "\n\n" for p in file.read().split("\n\n")]
        size = sum(len(p.encode()) for p in paragraphs) / 1e6
        ours = float(dump(tool, folder, paragraphs, 5)[1])
        theirs = 1e9
        for _ in range(5):
            start = time.perf_counter()
            for p in paragraphs:
                tokenizer.encode(p)
            theirs = min(theirs, time.perf_counter() - start)
        print(f"{size:.1f} MB: ours {size / ours:.1f} MB/s, theirs {size / theirs:.1f} MB/s, {theirs / ours:.2f}x")
    sys.exit(1 if any(wrong.values()) else 0)


main()
