"""Writes tests/data/samples: tiny tokenizers, templates, and the ids and labels that transformers gives for them.

The mask is transformers' own: the templates in templates/ mark their answers with {% generation %}, and every token that
overlaps a marked range is a target. The templates that are written out have the marks removed, so the code under test must
find the answers by itself. Run: python3 generate.py (transformers 5.23.0, tokenizers 0.23.3, jinja2 3.1.6). Tokenizers that are
there are kept: of merges that are equally frequent the trainer takes another one in another process.
"""
import json
import pathlib
import re
import sys
from importlib import metadata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from conversations import CONVERSATIONS, CORPUS, PAIRS, TEXTS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE.parent.parent / "data" / "samples"
MASKED = -100
CONTROL = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|header|>", "<|end_header|>", "<|eot|>",
           "<|eom|>", "<|call|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>", "[gMASK]", "<sop>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]  # added, but not special, as in published tokenizers

# style: (tokenizer, bos, eos, post-processor)
STYLES = {
    "chatml": ("bytes", None, "<|im_end|>", None),
    "thinker": ("bytes", None, "<|im_end|>", None),
    "headers": ("bytes", "<s>", "<|eot|>", "bos"),
    "brackets": ("words", "<s>", "</s>", "both"),
    "closing": ("words", "<s>", "<|endoftext|>", "bos"),
    "bare": ("bytes", None, "<|endoftext|>", None),
    "words": ("bytes", None, "</s>", "bos"),
    "promptless": ("bytes", None, "<|im_end|>", None),
}


def train(kind):
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.normalizer = normalizers.NFC()
        pattern = Regex(r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(pattern, "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(vocab_size=380, show_progress=False,
                                      initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    else:
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
        trainer = trainers.BpeTrainer(vocab_size=440, show_progress=False, limit_alphabet=60,
                                      special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)])
    # Training splits at white space so that no merge crosses a word.
    final = tokenizer.pre_tokenizer
    if kind == "words":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "first", split=True)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.pre_tokenizer = final
    if kind == "words":  # the trainer made its byte tokens special; the published files do not
        data = json.loads(tokenizer.to_str())
        data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
        tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in TAGS])
    return tokenizer


def with_processor(tokenizer, kind):
    tokenizer = Tokenizer.from_str(tokenizer.to_str())
    bos, eos = ("<s>", tokenizer.token_to_id("<s>")), ("</s>", tokenizer.token_to_id("</s>"))
    if kind == "bos":
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [bos])
    if kind == "both":
        tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A $B </s>", [bos, eos])
    return tokenizer


def masked(encoding, ranges):
    return [i if any(b < end and e > begin for begin, end in ranges) else MASKED
            for i, (b, e) in zip(encoding.ids, encoding.offsets)]


def conversation_goldens(tokenizer, wrapped, marked, plain):
    """One entry a conversation: ids and labels, or null where the template refuses it."""
    goldens = []
    for record in CONVERSATIONS:
        messages = [{k: v for k, v in m.items() if v is not None} for m in record["messages"]]
        names = dict(tools=record.get("tools"), **wrapped.special_tokens_map)
        try:
            text, ranges = render_jinja_template([messages], chat_template=marked, return_assistant_tokens_mask=True, **names)
        except Exception as error:  # noqa: BLE001 - whatever the sandbox raises means: refused
            goldens.append(None)
            print("   refused:", type(error).__name__, str(error)[:80])
            continue
        plain_text = wrapped.apply_chat_template(record["messages"], tools=record.get("tools"), chat_template=plain,
                                                 tokenize=False)
        assert text[0] == plain_text, (text[0], plain_text)
        encoding = tokenizer.encode(plain_text, add_special_tokens=False)
        goldens.append({"input_ids": encoding.ids, "labels": masked(encoding, ranges[0])})
    return goldens


def pair_goldens(tokenizer, eos, appends):
    goldens = []
    for record in PAIRS:
        ids = tokenizer.encode(record["prompt"] + record["completion"]).ids
        ids += [] if ids[-1:] == [eos] else [eos]
        prompt = len(tokenizer.encode(record["prompt"]).ids) - (1 if appends else 0)
        goldens.append({"input_ids": ids, "labels": [MASKED] * prompt + ids[prompt:]})
    return goldens


def text_goldens(tokenizer, eos):
    goldens = []
    for record in TEXTS:
        ids = tokenizer.encode(record["text"]).ids
        ids += [] if ids[-1:] == [eos] else [eos]
        goldens.append({"input_ids": ids, "labels": ids})
    return goldens


def write_lines(path, records):
    path.write_text("".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) + "\n" for r in records))


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    trained = {kind: train(kind) for kind in ("bytes", "words")}
    write_lines(OUT / "conversations.jsonl", CONVERSATIONS)
    write_lines(OUT / "pairs.jsonl", PAIRS)
    write_lines(OUT / "texts.jsonl", TEXTS)
    for style, (kind, bos, eos, processor) in STYLES.items():
        print(style)
        folder = OUT / style
        folder.mkdir(exist_ok=True)
        kept = folder / "tokenizer.json"
        tokenizer = Tokenizer.from_file(str(kept)) if kept.exists() else with_processor(trained[kind], processor)
        config = {"bos_token": bos, "eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast"}
        marked = (HERE / "templates" / f"{style}.jinja").read_text()
        plain = re.sub(r"\s*\{%- (end)?generation -%\}\s*", "", marked)  # a mark trims the white space around it
        names = {k: v for k, v in config.items() if v is not None and k != "tokenizer_class"}
        wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
        (folder / "tokenizer.json").write_text(tokenizer.to_str())
        (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
        (folder / "chat_template.jinja").write_text(plain)
        eos_id = tokenizer.token_to_id(eos)
        write_lines(folder / "conversations.golden.jsonl", conversation_goldens(tokenizer, wrapped, marked, plain))
        write_lines(folder / "pairs.golden.jsonl", pair_goldens(tokenizer, eos_id, processor == "both"))
        write_lines(folder / "texts.golden.jsonl", text_goldens(tokenizer, eos_id))
    write_manifest(OUT, "tests/reference/samples/generate.py", None,
                   {name: metadata.version(name) for name in ("transformers", "tokenizers", "jinja2")})


if __name__ == "__main__":
    main()
