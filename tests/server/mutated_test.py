#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Bodies of requests for every route, in which values are exchanged, dropped, repeated and damaged: whatever comes of
them is one answer below 500 that is JSON, a refusal with a message in the form of its interface, and never an answer
that somebody else notices. tests/fuzz/fuzz_requests.cpp reads the same bodies without sockets, and more of them.
--rounds N (default 40; of each body)"""
import copy
import json
import random
import sys
import unittest

ROUNDS = 40
if "--rounds" in sys.argv:
    at = sys.argv.index("--rounds")
    ROUNDS = int(sys.argv[at + 1])
    del sys.argv[at:at + 2]

from infill_test import FILES, NAMES, overrides  # noqa: E402  takes the program's path away
from server_support import NO_EOG, Server, chat  # noqa: E402

TOOL = {"type": "function", "function": {"name": "look", "description": "d", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["sky", 1, None]}, "n": {"type": "integer", "minimum": 0}},
    "required": ["at"], "additionalProperties": False}}}
TURNS = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "u"}]},
         {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {
             "name": "look", "arguments": "{\"at\": \"sky\"}"}}]},
         {"role": "tool", "tool_call_id": "c", "content": "r"}]
TEXT_BODIES = [
    ("/v1/chat/completions", {"messages": TURNS, "tools": [TOOL], "tool_choice": "auto", "max_tokens": 3, "n": 2,
                              "stop": ["a", "b"], "logprobs": True, "top_logprobs": 2, "seed": 1}),
    ("/v1/chat/completions", {"messages": TURNS[:2], "max_tokens": 3, "response_format": {"type": "json_schema",
                              "json_schema": {"name": "n", "schema": TOOL["function"]["parameters"]}},
                              "logit_bias": {"5": -1}, "chat_template_kwargs": {"a": [1]}, "stream": True}),
    ("/v1/completions", {"prompt": ["a", [5, 6]], "max_tokens": 3, "echo": True, "logprobs": 2, "grammar":
                         "root ::= [a-z]* | \"x\" root", "samplers": "top_k(3) | temperature(0.5)", "top_p": 0.5}),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]},
                                 {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "o"}],
                       "instructions": "i", "max_output_tokens": 3, "tools": [{"type": "function", "name": "f",
                                                                               "parameters": {}}]}),
    ("/v1/messages", {"system": [{"type": "text", "text": "s"}], "messages": [
        {"role": "user", "content": "x"}, {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "u", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "u", "content": "r"}]}], "max_tokens": 3,
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "stop_sequences": ["z"]}),
    ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "x"}]}),
    ("/tokenize", {"text": "the one", "add_special": True, "parse_special": False}),
    ("/detokenize", {"tokens": [5, 6, 7]}),
    ("/apply-template", {"messages": TURNS[:2], "tools": [TOOL]}),
    ("/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}],
                 "prompt": "p", "n_predict": 3, "n_indent": 1, "stop": ["c"], "response_fields": ["content"]}),
    ("/api/chat", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [
        {"function": {"name": "look", "arguments": {"at": "sky"}}}]}, {"role": "tool", "content": "r"}],
        "tools": [TOOL], "stream": False, "think": False, "logprobs": True, "top_logprobs": 1, "keep_alive": "5m",
        "options": {"num_predict": 3, "seed": 1, "top_k": 4, "stop": ["a"]}}),
    ("/api/generate", {"prompt": "x", "system": "s", "context": [5, 6], "stream": False, "format": {"type": "object"},
                       "options": {"num_predict": 3, "repeat_last_n": 9}, "keep_alive": -1}),
    ("/api/show", {"model": "tiny", "verbose": False}),
    ("/api/pull", {"name": "tiny", "stream": False}),
]
VECTOR_BODIES = [("/v1/embeddings", {"input": ["a", [5, 6]], "encoding_format": "float", "dimensions": 4}),
                 ("/api/embed", {"input": ["a", "b"], "dimensions": 4, "truncate": True})]
RANK_BODIES = [("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1, "return_documents": True})]
VALUES = [None, True, 0, -1, 1, 2**31, -2**63, 2**64, 1e308, -0.0, 1e-320, "", "x", "\u0000", "\ud7ff\U0001F600",
          "</s>", "a" * 5000, [], [[]], [None], {}, {"": {}}, {"a": {"b": {"c": []}}}, ["x"] * 300, [0] * 300,
          [[[[[[[[1]]]]]]]]]


def places(node, path=()):
    yield path
    for key in (node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()):
        yield from places(node[key], (*path, key))


def mutated(own, body):
    """Another document, or bytes that may be none."""
    body = copy.deepcopy(body)
    for _ in range(own.randrange(1, 3)):
        path = own.choice([p for p in places(body) if p] or [()])
        if not path:
            break
        node = body
        for key in path[:-1]:
            node = node[key]
        deed = own.random()
        if deed < 0.7:
            node[path[-1]] = copy.deepcopy(own.choice(VALUES))
        elif deed < 0.85:
            del node[path[-1]]
        elif isinstance(node, list):
            node.extend(copy.deepcopy(node) * own.randrange(1, 20))
        else:
            node[own.choice(["stream", "n", "strange", "type", "content", ""])] = copy.deepcopy(own.choice(VALUES))
    data = json.dumps(body).encode()
    if own.random() < 0.3:
        at = own.randrange(len(data))
        data = data[:at] + own.choice([b"", b"\xff", b"\\u0000", b"{", b"]", b'"', b",,", b"1e999"]) + data[at + 1:]
    return data


class Mutated(unittest.TestCase):
    def check(self, server, bodies, seed):
        own, seen = random.Random(seed), {}
        for path, body in bodies:
            for _ in range(ROUNDS):
                data = mutated(own, body)
                status, headers, answer = server.ask("POST", path, data)
                seen[status] = seen.get(status, 0) + 1
                with self.subTest(path=path, body=data[:2000]):
                    self.assertLess(status, 500, answer[:500])
                    kind = headers["Content-Type"].split(";")[0]
                    if kind in ("text/event-stream", "application/x-ndjson"):
                        self.assertEqual(status, 200)
                        continue
                    document = json.loads(answer)
                    if status >= 400 and path.startswith("/api/"):
                        self.assertTrue(document["error"] and isinstance(document["error"], str))
                    elif status >= 400:
                        self.assertTrue(document["error"]["message"])
                        self.assertEqual(document.get("type") == "error", path.startswith("/v1/messages"))
        return seen

    def test_texts(self):
        with Server("-c", 512, "--parallel", 2, *overrides(NAMES | FILES)) as server:
            expected = server.post("/v1/chat/completions", chat("as ever"))["choices"]
            seen = self.check(server, TEXT_BODIES, 1)
            self.assertEqual(server.post("/v1/chat/completions", chat("as ever"))["choices"], expected)
            self.assertGreater(seen[200], ROUNDS / 2)  # some are still good
            self.assertGreater(seen[400], ROUNDS)

    def test_vectors(self):
        with Server("--pooling", "mean", "-c", 512) as server:
            expected = server.post("/v1/embeddings", {"input": "as ever"})["data"]
            seen = self.check(server, VECTOR_BODIES * 3, 2)
            self.assertEqual(server.post("/v1/embeddings", {"input": "as ever"})["data"], expected)
            self.assertGreater(min(seen[200], seen[400]), 10)

    def test_ranks(self):
        """of a model that ranks nothing: refused, whatever it is"""
        with Server("-c", 512) as server:
            for status in self.check_refused(server):
                self.assertIn(status, (400, 404, 501))

    def check_refused(self, server):
        own = random.Random(3)
        for path, body in RANK_BODIES:
            for _ in range(ROUNDS):
                yield server.ask("POST", path, mutated(own, body))[0]


if __name__ == "__main__":
    unittest.main()
