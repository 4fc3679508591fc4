"""Strings to try tokenizers on, made from fragments by a 64-bit linear congruential generator.

tests/unit/data_tokenizer/string_maker.h makes the same strings byte for byte: change both or neither.
"""

# The fragments are in tests/data/tokenizer/fragments.txt, one to a line, with \\n, \\r, \\t, \\\\ and \\u{...} escaped.
import re

MASK = (1 << 64) - 1


def read_fragments(path):
    def unescape(line):
        def one(match):
            text = match.group(0)
            if text.startswith("\\u"):
                return chr(int(text[3:-1], 16))
            return {"\\n": "\n", "\\r": "\r", "\\t": "\t", "\\\\": "\\"}[text]

        return re.sub(r"\\u\{[0-9a-fA-F]+\}|\\.", one, line)

    with open(path, encoding="utf-8", newline="\n") as file:
        return [unescape(line) for line in file.read().split("\n") if line]


class StringMaker:
    def __init__(self, seed, fragments):
        self.state = seed & MASK
        self.fragments = fragments

    def next(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & MASK
        return (self.state >> 33) % bound

    def code_point(self):
        kind = self.next(4)
        c = self.next([0x250, 0x3000, 0x10000, 0x110000][kind])
        return 0x20 if 0xD800 <= c < 0xE000 else c

    def string(self):
        out = []
        for _ in range(1 + self.next(12)):
            kind = self.next(16)
            if kind == 0:
                out.append(chr(self.code_point()))
            elif kind == 1:
                out.append(self.fragments[self.next(len(self.fragments))] * (1 + self.next(6)))
            elif kind == 2 and self.next(20) == 0:
                out.append("".join(chr(97 + self.next(26)) for _ in range(self.next(400))))
            else:
                out.append(self.fragments[self.next(len(self.fragments))])
        return "".join(out)
