#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What programs that people use ask of Ollama's interface: their requests, and the fields that they read."""
import datetime
import json
import re
import unittest

from infill_test import NAMES, overrides
from server_support import Server

TOOL = {"type": "function", "function": {"name": "light", "description": "Switches a light.", "parameters": {
    "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}}}
FREE = {"temperature": 0, "num_predict": 8, "logit_bias": {"2": -100}}


class Programs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", 4096, "--parallel", 4, *overrides(NAMES))
        cls.vectors = Server("--pooling", "mean", "-c", 512)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.vectors.stop()

    def lines(self, path, body):
        status, headers, data = self.server.ask("POST", path, body)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/x-ndjson"))
        return [json.loads(line) for line in data.decode().splitlines()]

    def test_v17_home_assistant(self):  # [V17]
        """the list, a pull of what is there, streamed chats with tools, how long a model stays, structured output"""
        self.assertTrue(all(model["model"] for model in self.server.get("/api/tags")["models"]))
        self.assertEqual(self.lines("/api/pull", {"model": "tiny", "stream": True})[-1], {"status": "success"})
        for keep_alive in [-1, "300s"]:
            parts = self.lines("/api/chat", {"model": "tiny", "messages": [
                {"role": "system", "content": "You control a home."}, {"role": "user", "content": "On!"}],
                "tools": [TOOL], "stream": True, "keep_alive": keep_alive, "options": {**FREE, "num_ctx": 8192}})
            self.assertEqual([part["done"] for part in parts], [False] * (len(parts) - 1) + [True])
            self.assertTrue(all(part["message"]["role"] == "assistant" for part in parts))
        formed = self.server.post("/api/chat", {"model": "tiny", "messages": [{"role": "user", "content": "On?"}],
                                                "stream": False, "format": {**TOOL["function"]["parameters"],
                                                "additionalProperties": False},
                                                "options": {**FREE, "num_predict": 1000}})
        self.assertIsInstance(json.loads(formed["message"]["content"])["on"], bool)
        with Server("-c", 512, "--api-key", "sk-test") as closed:
            self.assertIn(closed.ask("GET", "/api/tags")[0], (401, 403))

    def test_v17_continue(self):  # [V17]
        """show by `name`: parameters line by line, a template that says that it fills in; texts around a gap"""
        shown = self.server.post("/api/show", {"name": "tiny"})
        for line in shown["parameters"].split("\n"):
            self.assertRegex(line, r'^\w+ +("[^"]*"|\S+)$')
        self.assertRegex(shown["parameters"], r"(?m)^num_ctx +4096$")
        self.assertIn(".Suffix", shown["template"])
        self.assertEqual(self.lines("/api/pull", {"name": "tiny"})[-1], {"status": "success"})
        filled = self.lines("/api/generate", {"model": "tiny", "prompt": "once ", "suffix": " the end", "raw": False,
                                              "options": FREE, "stream": True})
        ours = self.server.post("/v1/completions", {"prompt": "once ", "suffix": " the end", "max_tokens": 8,
                                                    "temperature": 0, "logit_bias": FREE["logit_bias"]})
        self.assertEqual("".join(part["response"] for part in filled), ours["choices"][0]["text"])
        self.assertEqual(len(self.vectors.post("/api/embed", {"model": "tiny", "input": ["a", "b"]})["embeddings"]), 2)

    def test_v17_open_webui(self):  # [V17]
        """version, list, those in memory with times that Python reads, a chat"""
        self.assertIn("version", self.server.get("/api/version"))
        for listed in [self.server.get("/api/tags"), self.server.get("/api/ps")]:
            model = listed["models"][0]
            self.assertTrue(model["name"].endswith(":latest") and model["digest"] and model["details"]["family"])
            stamp = model.get("modified_at") or model["expires_at"]
            datetime.datetime.fromisoformat(stamp)
        last = self.lines("/api/chat", {"model": "tiny:latest", "messages": [{"role": "user", "content": "a"}],
                                        "options": {**FREE, "num_keep": 4, "use_mmap": True}, "keep_alive": "5m"})[-1]
        for field in ["total_duration", "load_duration", "prompt_eval_count", "prompt_eval_duration", "eval_count",
                      "eval_duration"]:
            self.assertIsInstance(last[field], int)

    def test_v17_vs_code(self):  # [V17]
        """a version that is new enough, what a model can do, then chats by the other interface"""
        version = re.match(r"(\d+)\.(\d+)\.(\d+)", self.server.get("/api/version")["version"])
        self.assertGreaterEqual(tuple(map(int, version.groups())), (0, 6, 4))
        for model in self.server.get("/api/tags")["models"]:
            shown = self.server.post("/api/show", {"model": model["model"]})
            arch = shown["model_info"]["general.architecture"]
            self.assertGreater(shown["model_info"][arch + ".context_length"], 0)
            self.assertIn("completion", shown["capabilities"])
            self.assertIn("insert", shown["capabilities"])
            said = self.server.post("/v1/chat/completions", {"model": model["model"], "max_tokens": 4, "messages": [
                {"role": "user", "content": "a"}]})
            self.assertEqual(said["object"], "chat.completion")


if __name__ == "__main__":
    unittest.main()
