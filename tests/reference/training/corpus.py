"""Generated text, a tokenizer trained on it, and data sets in three formats with their tokens and targets.

`expected_samples` says what a data set means, by transformers alone: apply_chat_template, the tokenizer's own offsets,
and the definitions of the product's interface. It shares nothing with what it checks.
"""
import json
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

MASKED = -100
FORMATS = ("messages", "prompt_completion", "text")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>"]
VOCABULARY = 400
END_OF_TURN = "<|im_end|>"
CHATML = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou answer briefly.<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")

_NOUNS = "river garden engine letter winter teacher market bridge signal harbour kitchen number forest window".split()
_VERBS = "carries follows opens measures repairs finds counts draws cools greets answers moves hides weighs".split()
_ADJECTIVES = "quiet old narrow bright sudden careful distant hollow patient early second plain".split()
_ODDITIES = ["12,345.67", "don't", "naïve café", "多少钱", "🙂", "x = f(y) + 3\n    return x", "Ünïcödé", "…", "\t-> ok",
             "e\u0301tude", "3 × 4"]


def sentence(rng):
    words = f"The {rng.choice(_ADJECTIVES)} {rng.choice(_NOUNS)} {rng.choice(_VERBS)} the {rng.choice(_NOUNS)}"
    if rng.random() < 0.35:
        words += " " + rng.choice(_ODDITIES)
    return words + rng.choice([".", "!", "?", ".\n"])


def paragraph(rng, low, high):
    return " ".join(sentence(rng) for _ in range(rng.randint(low, high)))


def load_tokenizer(folder):
    """By the file alone: AutoTokenizer rebuilds some by the model's class, and then ids differ from tokenizer.json's."""
    return PreTrainedTokenizerFast.from_pretrained(folder)


def build_tokenizer(folder, seed, llama_like):
    """Byte-level BPE with ChatML, saved as a model directory's tokenizer files. Llama's and Mistral's put <s> first;
    Qwen's normalise to NFC."""
    rng = random.Random(seed)
    tokenizer = Tokenizer(models.BPE())
    if not llama_like:
        tokenizer.normalizer = normalizers.NFC()
    split = Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                  r"|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(split, behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    roles = ("system", "user", "assistant")
    texts = (rng.choice(roles) + rng.choice(["\n", "\n\n"]) + paragraph(rng, 2, 6) for _ in range(400))
    tokenizer.train_from_iterator(texts, trainer)
    if llama_like:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token=END_OF_TURN,
                                   pad_token="<|endoftext|>", clean_up_tokenization_spaces=False)
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    loaded = load_tokenizer(folder)
    text = paragraph(rng, 3, 3) + "".join(_ODDITIES)
    if loaded(text)["input_ids"] != tokenizer.encode(text).ids:
        raise RuntimeError("the saved tokenizer does not load as it was trained")
    return loaded


def write_dataset(path, form, seed, records):
    """JSON lines: short and long samples, some cut by cutoff_len, one whose targets are all cut off."""
    rng = random.Random(seed)
    lines = []
    for index in range(records):
        size = 9 if index % 6 == 4 else 2
        question, answer = paragraph(rng, 1, 2), paragraph(rng, 1, size)
        if index == 7:
            question = paragraph(rng, 30, 30)
        if index == 3:
            answer = "\n\n  " + answer  # a token that reaches from the assistant's header into its answer
        if index == 5:
            question += " <|endoftext|>" + sentence(rng)
        if form == "messages":
            turns = [dict(role="user", content=question), dict(role="assistant", content=answer)]
            if index % 4 == 1:
                turns.insert(0, dict(role="system", content=sentence(rng)))
            if index % 3 == 2:
                turns += [dict(role="user", content=sentence(rng)), dict(role="assistant", content=sentence(rng))]
            lines.append(dict(messages=turns))
        elif form == "prompt_completion":
            lines.append(dict(prompt=question + rng.choice(["", " ", "\n"]), completion=answer))
        else:
            lines.append(dict(text=question + " " + answer))
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    return lines


def _conversation(tokenizer, messages):
    """Tokens that overlap an assistant's turn, from the end of its header through its end-of-turn token."""
    def render(count, prompt):
        return tokenizer.apply_chat_template(messages[:count], tokenize=False, add_generation_prompt=prompt)

    text = render(len(messages), False)
    spans = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            header, turn = render(index, True), render(index + 1, False)
            assert turn.startswith(header) and text.startswith(turn)
            spans.append((len(header), turn.rindex(END_OF_TURN) + len(END_OF_TURN)))
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids = encoded["input_ids"]
    assert ids == list(tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True)["input_ids"])
    labels = [token if any(first < end and begin < last for begin, end in spans) else MASKED
              for token, (first, last) in zip(ids, encoded["offset_mapping"], strict=True)]
    return ids, labels


def _ended(tokenizer, text):
    ids = list(tokenizer(text)["input_ids"])
    return ids if ids[-1] == tokenizer.eos_token_id else ids + [tokenizer.eos_token_id]


def expected_samples(tokenizer, lines, cutoff):
    """[{"input_ids", "labels"}] in file order; samples that keep no target are left out, and their number returned."""
    samples, without_target = [], 0
    for line in lines:
        if "messages" in line:
            ids, labels = _conversation(tokenizer, line["messages"])
        elif "prompt" in line:
            ids = _ended(tokenizer, line["prompt"] + line["completion"])
            prompt = len(tokenizer(line["prompt"])["input_ids"])
            labels = [MASKED] * prompt + ids[prompt:]
        else:
            ids = _ended(tokenizer, line["text"])
            labels = list(ids)
        ids, labels = ids[:cutoff], labels[:cutoff]
        if any(label != MASKED for label in labels[1:]):
            samples.append(dict(input_ids=ids, labels=labels))
        else:
            without_target += 1
    return samples, without_target


def batches(samples, batch_size, accumulation, epochs):
    """Optimizer steps in file order; the last step of an epoch takes what is left."""
    sequences = [dict(ids=s["input_ids"], labels=s["labels"]) for s in samples]
    span = batch_size * accumulation
    return [[part[i:i + batch_size] for i in range(0, len(part), batch_size)]
            for _ in range(epochs) for start in range(0, len(sequences), span)
            for part in [sequences[start:start + span]]]
