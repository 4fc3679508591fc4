"""Writes core/data/tokenizer/src/newer_characters.inc: where the `tokenizers` library's regular expressions know a newer
Unicode than PCRE2 10.42 (Unicode 14.0), character by character.

Pinned: Python 3.11 (unicodedata 14.0.0), tokenizers 0.23.3. No random numbers. Run from the repository's root:
    python tests/reference/tokenizer/unicode_table.py
Every code point is put to every general category of the library; a run of code points whose category differs from
Unicode 14.0 becomes one row {first, last, stand-in}: the stand-in is a character that Unicode 14.0 gives the category
that the library sees and that has as many bytes in UTF-8.
"""

import unicodedata

import tokenizers
from tokenizers import Regex, pre_tokenizers

assert unicodedata.unidata_version == "14.0.0" and tokenizers.__version__ == "0.23.3"
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()
)
CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Ideographs must stay ideographs for patterns that name the script; cased stand-ins have no partner in ASCII.
HAN = range(0x2EBF0, 0x323B0)
HAN_STAND_IN = 0x20000
TARGET = "core/data/tokenizer/src/newer_characters.inc"


def library_categories():
    category = {}
    for name in CATEGORIES:
        split = pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")
        for c in CODE_POINTS:
            if not split.pre_tokenize_str(chr(c)):
                category[c] = name
    return category


def stand_in(category, size, first):
    if first in HAN:
        return HAN_STAND_IN
    for c in range(0x600 if size < 4 else 0x10000, 0x110000):
        if len(chr(c).encode()) == size and unicodedata.category(chr(c)) == category and c != 0x180E:
            return c
    raise ValueError((category, size))


def main():
    seen = library_categories()
    runs = []
    for c in CODE_POINTS:
        wanted = seen.get(c, "Cn")
        if unicodedata.category(chr(c)) == wanted:
            continue
        key = (wanted, len(chr(c).encode()), c in HAN)
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == key:
            runs[-1][1] = c
        else:
            runs.append([c, c, key])
    rows = [f"{{{a:#x}, {b:#x}, {stand_in(key[0], key[1], a):#x}}}," for a, b, key in runs]
    # PCRE2 counts the Mongolian vowel separator as white space; it has been a format character since Unicode 6.3.
    rows.append(f"{{0x180e, 0x180e, {stand_in('Cf', 3, 0x180E):#x}}},")
    rows.sort(key=lambda row: int(row[1:].split(",")[0], 16))
    with open(TARGET, "w") as out:
        out.write("// Written by tests/reference/tokenizer/unicode_table.py: {first, last, stand-in}.\n")
        line = ""
        for row in rows:
            if len(line) + len(row) + 1 > 118:
                out.write(line + "\n")
                line = ""
            line += (" " if line else "") + row
        out.write(line + "\n")


main()
