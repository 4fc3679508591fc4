"""Records what transformers' chat-template environment makes of the templates and snippets here.

Run with the pinned packages of requirements.txt:

    python generate.py <folder for the outputs: tests/data/template> [<conversations> <seed>]

Writes conversations.json (the inputs), renderings.json (a hash of every rendering, some whole), snippets.json and
MANIFEST.json (versions, seed and the SHA-256 of every file). The same packages and seed give the same bytes.
A larger check with another seed: copy tests/data/template to FOLDER/tests/data/template, write 500 conversations there,
and run data_template_test in FOLDER.
"""

import json
import pathlib
import random
import sys

import jinja2
import transformers
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: F401 (what transformers builds on)
from transformers.utils.chat_template_utils import _compile_jinja_template

import snippets

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from manifest import write_manifest  # noqa: E402

SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 20250101
CONVERSATIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 48
WHOLE = 2  # renderings kept whole for each template

WORDS = ["hello", "Wörld", "日本", "🎉", "x", "the", "<b>", "{{ no }}", "{% raw %}", "it's", '"q"', "a\\b", "naïve", "42",
         "e\u0301", "\u00a0", "&amp;", "</think>", "<think>", "é"]
JOINS = [" ", "\n", "\n\n", "  ", "\t", "\r\n"]

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city — now.",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "Where, e.g. Zürich"},
            "days": {"type": "integer", "minimum": 1, "description": " How many "},
            "units": {"type": ["string", "number"]}}, "required": ["city"]}}},
    {"type": "function", "function": {
        "name": "search", "description": "Finds <things>.",
        "parameters": {"type": "object", "properties": {
            "queries": {"type": "array", "items": {"type": "string"}, "description": "What"},
            "limits": {"type": "object", "additionalProperties": {"type": "number"}}, "x": {"type": "null"}}},
        "return": {"type": "string"}}},
]


def text(rng):
    if rng.random() < 0.08:
        return ""
    count = rng.randint(1, 9)
    body = "".join(rng.choice(WORDS) + rng.choice(JOINS) for _ in range(count))
    return body if rng.random() < 0.3 else body.strip()


def tool_turn(rng):
    calls = []
    for _ in range(rng.choice([1, 1, 2])):
        arguments = {"city": text(rng), "days": rng.randint(-2, 9), "ratio": rng.choice([1.0, 0.5, 1e-7])}
        if rng.random() < 0.3:
            arguments = {"queries": [text(rng), None, True], "nested": {"é": []}}
        identity = "".join(rng.choice("abcDEF123") for _ in range(9 if rng.random() < 0.9 else 4))
        calls.append({"id": identity, "type": "function",
                      "function": {"name": rng.choice(["get_weather", "search"]), "arguments": arguments}})
    turn = [{"role": "assistant", "tool_calls": calls}]
    if rng.random() < 0.7:
        turn[0]["content"] = text(rng)
    for call in calls:
        turn.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"], "content": text(rng)})
    return turn


def assistant(rng):
    message = {"role": "assistant", "content": text(rng)}
    if rng.random() < 0.2:
        message["content"] = "<think>\n" + text(rng) + "\n</think>\n\n" + message["content"]
    if rng.random() < 0.2:
        message["reasoning_content"] = text(rng)
    return message


def user(rng, plain):
    if not plain and rng.random() < 0.1:
        return {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text(rng)}]}
    return {"role": "user", "content": text(rng)}


def conversation(rng):
    plain = rng.random() < 0.45  # strictly alternating texts, which every template takes
    messages = [{"role": "system", "content": text(rng)}] if rng.random() < (0.3 if plain else 0.5) else []
    for _ in range(rng.randint(1, 4)):
        messages.append(user(rng, plain))
        if not plain and rng.random() < 0.3:
            messages.extend(tool_turn(rng))
        if plain or rng.random() < 0.85:
            messages.append(assistant(rng))
    if not plain and rng.random() < 0.1:
        messages.append({"role": rng.choice(["critic", "system", "user"]), "content": text(rng)})
    context = {"messages": messages, "tools": rng.choice([None, None, TOOLS, TOOLS[:1], []]),
               "documents": rng.choice([None, None, None, [{"title": "T", "text": text(rng), "doc_id": 3}, {"text": "t"}]]),
               "add_generation_prompt": rng.random() < 0.5, "bos_token": "<s>", "eos_token": "</s>"}
    if rng.random() < 0.2:
        context["enable_thinking"] = rng.random() < 0.5
    if rng.random() < 0.2:
        context["date_string"] = "01 Jan 2025"
    if rng.random() < 0.15:
        context["builtin_tools"] = ["get_weather", "code_interpreter"]
    if rng.random() < 0.2:
        context["tools_in_user_message"] = False
    if rng.random() < 0.15:
        context["controls"] = {"length": "short"}
    return context


def fnv1a(value):
    result = 0xCBF29CE484222325
    for byte in value.encode():
        result = ((result ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{result:016x}"


def render(source, context):
    """(text, None) or (None, what went wrong: `raised` with the message of raise_exception, else `error`)."""
    try:
        return _compile_jinja_template(source).render(**context), None
    except jinja2.exceptions.TemplateError as error:
        raised = type(error) is jinja2.exceptions.TemplateError
        return None, {"raised": error.message} if raised else {"error": True}
    except Exception:
        return None, {"error": True}


def dump(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1])
    rng = random.Random(SEED)
    conversations = [conversation(rng) for _ in range(CONVERSATIONS)]
    dump(out / "conversations.json", conversations)

    renderings = {}
    for path in sorted((out / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        results = []
        whole = 0
        for context in conversations:
            rendered, failure = render(source, context)
            if failure:
                results.append(failure)
            elif whole < WHOLE:
                whole += 1
                results.append({"text": rendered})
            else:
                results.append({"hash": fnv1a(rendered), "bytes": len(rendered.encode())})
        assert whole == WHOLE and sum("hash" in r for r in results) >= 8, (path.name, results)
        renderings[path.name] = results
    dump(out / "renderings.json", renderings)

    cases = []
    for source in ["{{ " + expression + " }}" for expression in snippets.EXPRESSIONS] + snippets.TEMPLATES:
        rendered, failure = render(source, snippets.CONTEXT)
        if rendered is not None and (" at 0x" in rendered or "<built-in" in rendered):
            continue  # an address or an implementation detail of Python
        cases.append({"template": source, **({"text": rendered} if failure is None else failure)})
    dump(out / "snippets.json", {"context": snippets.CONTEXT, "cases": cases})

    write_manifest(out, "tests/reference/template/generate.py", SEED,
                   {"jinja2": jinja2.__version__, "transformers": transformers.__version__})
    print(len(cases), "snippets;", {k: sum("hash" in r or "text" in r for r in v) for k, v in renderings.items()})


main()
