#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the example programs of the guide on a tiny model and looks at what they print.

usage: examples_test.py folder_of_the_programs model.gguf
"""
import json
import pathlib
import subprocess
import sys
import tempfile

PROGRAMS, MODEL = pathlib.Path(sys.argv[1]).resolve(), str(pathlib.Path(sys.argv[2]).resolve())


def run(name, *arguments, text="", cwd=None):
    result = subprocess.run([PROGRAMS / name, *arguments], input=text, capture_output=True, text=True, timeout=120,
                            errors="replace", cwd=cwd)
    assert result.returncode == 0, f"{name}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def main():
    assert len(run("minimal", MODEL, "once on")) > 0
    assert len(run("answer", MODEL, "once on")) > 0
    with tempfile.TemporaryDirectory() as folder:   # learned positions, 256 of them: the loop of the README ends there
        learned = str(pathlib.Path(folder) / "learned.gguf")
        subprocess.run([sys.executable, pathlib.Path(__file__).parents[1] / "support/tiny_model.py", learned, "3",
                        "gpt2"], check=True)
        run("minimal", learned, "a " * 250)
        assert run("minimal", learned, "a " * 300) == "", "a prompt that does not fit is not answered"

    for name in ("minimal", "answer", "run", "values", "chat_loop", "eight_sequences", "engine", "search",
                 "observer", "observers", "two_threads", "errors", "masked", "json_answer"):
        wrong = subprocess.run([PROGRAMS / name], capture_output=True, text=True, timeout=120)
        assert (wrong.returncode, wrong.stdout) == (2, ""), (name, wrong)
        assert wrong.stderr.lower().startswith(f"usage: {name} model.gguf"), (name, wrong)

    turns = run("chat_loop", MODEL, text="once\non a\n")
    assert turns.count("> ") >= 3, turns   # two turns, and the prompt at the end of the input

    stories = run("eight_sequences", MODEL, "once on").split("\n---\n")[:-1]
    assert len(stories) == 8 and len(set(stories)) > 1, stories
    assert stories == run("eight_sequences", MODEL,
                          "once on").split("\n---\n")[:-1], "the same seeds draw the same tokens"

    answers = run("engine", MODEL, "8", text="once on\nin the\nonce on\n").split("\n\n")[:-1]
    assert len(answers) == 3 and len(set(answers)) == 2, answers
    assert run("engine", MODEL, "8", text="in the\n").split("\n\n")[0] in answers, "alone as beside others"

    answer = json.loads(run("json_answer", MODEL, "once on"))   # random weights, and it parses
    assert set(answer) == {"name", "age", "hobbies"} and 0 <= answer["age"] <= 150, answer
    assert len(answer["name"]) <= 20 and set(answer["hobbies"]) <= {"chess", "music", "sport"}, answer

    found = run("search", MODEL, "once on a", text="in the\nonce on a\n\nher\n").splitlines()
    assert len(found) == 3 and found[0].endswith("  once on a"), found
    assert abs(float(found[0].split()[0]) - 1) < 1e-3, "a text is as near to itself as can be"

    rows = run("observer", MODEL, "once on a").splitlines()
    read = {row.split()[3]: (int(row.split()[0]), int(row.split()[2])) for row in rows}
    assert read["blk.1.ffn_down.weight"][0] == read["blk.1.ffn_down.weight"][1] > 0, read
    assert 0 < read["token_embd.weight"][0] < read["token_embd.weight"][1], read

    lines = run("observers", MODEL, "once on a").splitlines()
    assert lines[0].startswith("part ") and any(line.startswith("between steps: ") for line in lines), lines
    with tempfile.TemporaryDirectory() as folder:
        lines = run("values", MODEL, "once on a", cwd=folder).splitlines()
        files = {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}
    assert any(line.startswith("blk.0.ffn_down.weight ") for line in lines) and any(line.startswith("l_out-0 ")
                                                                                    for line in lines), lines
    assert lines[-1].startswith("all finite, "), lines
    assert files["values.imatrix"][:4] == b"GGUF" and files["values.tnv"][:8] == b"TNVALUE1", files.keys()

    with tempfile.TemporaryDirectory() as folder:
        greedy = ("run", MODEL, "-n", "6", "-t", "1", "-s", "top_k(1)")
        text = run(*greedy, "-p", "once on", "--trace", "a.tntrace", cwd=folder)
        assert text and text == run(*greedy, text="once on"), "the text of an option and of standard input"
        assert (pathlib.Path(folder) / "a.tntrace").stat().st_size > 1000
        again = subprocess.run([PROGRAMS / "run", *greedy[1:], "-p", "once on", "--trace", "a.tntrace"], cwd=folder,
                               capture_output=True, text=True, timeout=120)
        assert again.returncode == 1 and "a.tntrace" in again.stderr, again   # it is not overwritten
    assert run("run", MODEL, "-p", "once on", "-n", "6", "--chat"), "the built-in template"
    wrong = subprocess.run([PROGRAMS / "run", MODEL, "-n", "six"], capture_output=True, text=True, timeout=120)
    assert (wrong.returncode, wrong.stderr) == (1, "run: 'six' is no number\n"), wrong

    texts = run("two_threads", MODEL, "once on", "in the")
    assert texts.startswith("once on") and "\n---\nin the" in texts, texts

    lines = run("errors", MODEL).splitlines()
    assert lines[0].startswith("io_error: ") and "no-such-file.gguf" in lines[0], lines
    assert lines[1] == "ok, 40 tokens in use", lines
    assert lines[2] == "no room: 24 of 40 would fit", lines
    assert lines[3].startswith("invalid_batch: ") and "-7" in lines[3], lines
    assert lines[4] == "40 tokens in use", lines
    masked = subprocess.run([PROGRAMS / "masked", MODEL, "once on", "4", "2"], capture_output=True, text=True,
                            timeout=120)
    assert masked.returncode == 1 and "mask token" in masked.stderr, masked   # the tiny model's vocabulary has none
    print("the programs do what the guide says")


if __name__ == "__main__":
    main()
