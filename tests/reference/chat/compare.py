"""Holds `rondo chat` against transformers: greedy conversations in fp32, token for token.

    python tests/reference/chat/compare.py RONDO MODEL [ADAPTER]

Each conversation is piped through `rondo chat --json`. transformers then renders the same turns with the model's chat
template, its own earlier answers among them, and generates without a cache that outlives the turn. Prompt ids and answer ids
of every turn must be equal. Needs torch, transformers and, for an adapter, peft.
"""

import json
import subprocess
import sys

import torch
import transformers

CONVERSATIONS = [
    [
        "Name three rivers of Europe.",
        "Which of them is the longest?",
        "Write one sentence about it for a child.",
    ],
    [
        "/system You are a librarian who answers in one sentence.",
        "Which book would you give to someone who likes the sea?",
        "And to someone who does not?",
        "Repeat your first advice in capital letters.",
    ],
]
NEW_TOKENS = 48


def ours(rondo, model, adapter, lines):
    command = [rondo, "chat", "--model_name_or_path", model, "--dtype", "fp32", "--devices", "cpu",
               "--max_new_tokens", str(NEW_TOKENS), "--temperature", "0", "--json"]
    if adapter:
        command += ["--adapter_name_or_path", adapter]
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["answers"]


def theirs(tokenizer, model, lines):
    messages, answers = [], []
    for line in lines:
        if line.startswith("/system "):
            messages.append({"role": "system", "content": line[len("/system "):]})
            continue
        messages.append({"role": "user", "content": line})
        ids = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            whole = model.generate(**ids, do_sample=False, max_new_tokens=NEW_TOKENS)
        prompt = ids["input_ids"][0].tolist()
        new = whole[0].tolist()[len(prompt):]
        messages.append({"role": "assistant", "content": tokenizer.decode(new, skip_special_tokens=True)})
        answers.append((prompt, new))
    return answers


def main():
    rondo, path = sys.argv[1:3]
    adapter = sys.argv[3] if len(sys.argv) > 3 else None
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    if adapter:
        import peft

        model = peft.PeftModel.from_pretrained(model, adapter)
    model.generation_config.update(do_sample=False, temperature=None, top_p=None, top_k=None)
    tokens = 0
    for number, lines in enumerate(CONVERSATIONS, 1):
        answers = ours(rondo, path, adapter, lines)
        expected = theirs(tokenizer, model, lines)
        assert len(answers) == len(expected), (len(answers), len(expected))
        for turn, (answer, (prompt, new)) in enumerate(zip(answers, expected), 1):
            where = f"conversation {number}, turn {turn}"
            assert answer["prompt_ids"] == prompt, f"{where}: prompts differ"
            assert answer["token_ids"] == new, f"{where}: answers differ:\n{answer['token_ids']}\n{new}"
            tokens += len(new)
            print(f"{where}: {len(prompt)} prompt tokens, {answer['reused_tokens']} of them reused, {len(new)} answered: equal")
    print(f"{tokens} tokens equal")


main()
