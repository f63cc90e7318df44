#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[N8] Text from outside stays text from outside in every published template: a string that looks like a control token
stands in every place of a request, values and names of members alike, and wherever it comes out in the prompt, no byte
of it counts as the template's. Only the template's own text can form control tokens.

usage: outside_test.py tinfer_render_lines quick|slow
"""
import copy
import json
import re
import subprocess
import sys

from published_templates import published

LEAST_TEMPLATES = 770   # of the package, where it is there
MARK = "<|zq|>"
SPELLED = re.compile(rb"<\|zq\|>", re.IGNORECASE)   # a template may write it in capitals
FUNCTION = {"name": "look", "description": "looks", "parameters": {
    "type": "object", "required": ["place"], "properties": {
        "place": {"type": "string", "description": "where", "enum": ["a", "b"], "default": "a"},
        "more": {"type": "object", "properties": {"deep": {"type": "array", "items": {"type": "string"}}}}}}}
CALL = {"id": "call00000", "type": "function",
        "function": {"name": "look", "arguments": {"place": "a", "more": {"deep": ["x", {"y": "z"}]}}}}
BASE = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "enable_thinking": True}
REQUESTS = {
    "tools": {**BASE, "tools": [{"type": "function", "function": FUNCTION}], "messages": [
        {"role": "system", "content": "S", "name": "n"}, {"role": "user", "content": "U"},
        {"role": "assistant", "content": "A", "reasoning_content": "R", "thinking": "R", "reasoning": "R",
         "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "T"}]},
    "no content": {**BASE, "tools": [{"type": "function", "function": FUNCTION}], "messages": [
        {"role": "user", "content": "U"}, {"role": "assistant", "content": "", "thinking": "R", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00000", "name": "look", "content": "T"}]},
    "parts": {**BASE, "documents": [{"title": "t", "text": "d", "content": {"k": "v"}}], "messages": [
        {"role": "user", "content": [{"type": "text", "text": "U"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A"}]},
        {"role": "user", "content": [{"type": "text", "text": "V"}]}]},
    "variables": {**BASE, "documents": [{"title": "t", "text": "d"}], "reasoning_effort": "high", "language": "l",
                  "date_string": "today", "model_identity": "me", "builtin_tools": ["browser", "python"],
                  "custom_tools": [{"name": "look", "parameters": FUNCTION["parameters"]}], "thinking": "t",
                  "response_format": {"type": "x"}, "system_prompt": "p", "available_tools": [FUNCTION],
                  "messages": [{"role": "user", "content": "U", "name": "n"},
                               {"role": "assistant", "content": "A", "reasoning_content": "R"},
                               {"role": "user", "content": "V"}]},
}
PLACES = {   # a regular expression of the paths whose text is changed; members are added where it says names
    "content": r"messages\.\d+\.content(\.\d+\.text)?$", "thoughts": r"messages\.\d+\.(reasoning|thinking)",
    "roles": r"messages\.\d+\.role$", "types": r"messages\..*\.type$", "ids": r"messages\..*(id|\d\.name)$",
    "names of calls": r"messages\..*function\.name$", "arguments": r"messages\..*arguments\.",
    "tools": r"(custom_|available_)?tools\.(?!.*\.type$)", "types of tools": r"tools\..*\.type$",
    "documents": r"documents\.", "variables": r"(?!messages|documents|bos|eos)[a-z_]+(\.\d+)?$",
    "members of arguments": None, "members of tools": None, "members of documents": None,
    "members of messages": None, "members of variables": None, "everything": None,
}
MEMBERS = {"members of arguments": r"messages\..*arguments", "members of tools": r"(custom_|available_)?tools",
           "members of documents": r"documents", "members of messages": r"messages",
           "members of variables": r"(?!messages|tools)"}


def changed(value, place, path=""):
    """A copy with the mark in the place."""
    if isinstance(value, dict):
        out = {}
        for name, inner in value.items():
            out[name] = changed(inner, place, f"{path}.{name}".lstrip("."))
        where = MEMBERS.get(place) if place != "everything" else r"messages\..*arguments|tools|documents"
        if path and where and re.match(where, path):
            out[MARK] = changed("v", place, path + ".x") if place != "everything" else MARK
            out["a " + MARK + " b"] = {"type": "string", MARK: [MARK]}
        return out
    if isinstance(value, list):
        return [changed(inner, place, f"{path}.{i}") for i, inner in enumerate(value)]
    if isinstance(value, str):
        if place == "everything":
            chosen = re.match(r"messages\..*\.(content|text|arguments\..*)$|tools\..*(description|enum\.\d+)$|doc",
                              path)
        else:
            chosen = PLACES[place] and re.match(PLACES[place], path)
        return value + MARK if chosen else value
    return copy.copy(value)


def main():
    program, size = sys.argv[1], sys.argv[2]
    templates = published()
    if not templates:
        print("no published templates: skipped")
        return 77
    n_packaged = sum(not name.startswith("golden ") for name, _ in templates)
    if 0 < n_packaged < LEAST_TEMPLATES:
        print(f"{n_packaged} templates in the package: fewer than {LEAST_TEMPLATES}")
        return 1
    if size == "quick":
        templates = templates[::12]
    counts, wrong, seen = {place: 0 for place in PLACES}, [], set()
    for name, source in templates:
        tasks = [(request, place, adapted) for request in REQUESTS for place in PLACES for adapted in (False, True)
                 if size == "slow" or not adapted or place in ("everything", "members of tools", "thoughts")]
        lines = [json.dumps({"template": source, "inputs": changed(REQUESTS[request], place), "adapted": adapted})
                 for request, place, adapted in tasks]
        answers = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True,
                                 check=True).stdout.splitlines()
        assert len(answers) == len(tasks), name
        for (request, place, adapted), line in zip(tasks, answers):
            answer = json.loads(line)
            if "text" not in answer:
                continue
            text = answer["text"].encode()
            outside = bytearray(len(text))
            for begin, end in answer["outside"]:
                outside[begin:end] = b"\1" * (end - begin)
            hits = list(SPELLED.finditer(text))
            counts[place] += bool(hits)
            seen.update([name] if hits else [])
            for hit in hits:
                if not all(outside[hit.start():hit.end()]):
                    wrong.append(f"{name}, {request}, {place}, adapted {adapted}: "
                                 f"{text[max(hit.start() - 60, 0):hit.end() + 20]!r}")
                    break
    print(f"{len(templates)} templates, {len(seen)} show the mark; prompts with it:", counts)
    print("\n".join(wrong[:12]))
    missing = [place for place, n in counts.items() if n == 0]
    print(f"{len(wrong)} prompts where the mark counts as the template's; never shown: {missing}")
    return 1 if wrong or missing or len(seen) < len(templates) * 9 // 10 else 0


if __name__ == "__main__":
    sys.exit(main())
