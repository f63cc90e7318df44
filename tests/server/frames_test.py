#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Answers with a frame over sockets: stop strings act on the content alone, schemas and grammars bind it,
system messages and thoughts of a request go where the template reads them."""
import json
import unittest

from server_support import FOLDER, Server

MARKS = ("{% for m in messages %}<|{{ m.role }}|>"
         "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}{{ m.content }}"
         "{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", \"arguments\": "
         "{{ c.function.arguments }}}</tool_call>{% endfor %}{% endfor %}"
         "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% if add_generation_prompt %}<|a|>")
FREE = MARKS + "{% endif %}"
OPEN = MARKS + "<think>\n{% endif %}"
STRICT = ("{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
          "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
          "[{{ m.role }}]{{ m.content }}{% endfor %}")
TOOL = {"type": "function", "function": {"name": "w", "parameters": {
    "type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]}}}
SHORT = {"type": "function", "function": {"name": "w", "parameters": {
    "type": "object", "properties": {"c": {"enum": ["x", "y"]}}, "required": ["c"], "additionalProperties": False}}}
PERSON = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["age"], "additionalProperties": False}


def template(name, source):
    path = FOLDER / f"{name}.jinja"
    path.write_text(source)
    return "--chat-template-file", path


def says(text):
    """A request whose answer is this text, because a grammar lets the model write no other."""
    return {"messages": [{"role": "user", "content": "go"}], "max_tokens": 200, "temperature": 0,
            "grammar": "root ::= " + json.dumps(text)}


class Stops(unittest.TestCase):  # [C11]
    CALL = '<tool_call>\n{"name": "w", "arguments": {"c": "a xyz b"}}\n</tool_call>'

    def test_content_alone(self):
        thoughts = "<think>\nab\n</think>\n\nHello\nworld"
        with Server(*template("free", FREE)) as server:
            for path, stop in (("/v1/chat/completions", {"stop": ["\n"]}),
                               ("/v1/messages", {"stop_sequences": ["\n"]})):
                answer = server.post(path, {**says(thoughts), **stop})
                if path.endswith("messages"):
                    self.assertEqual([(b["type"], b.get("text", b.get("thinking"))) for b in answer["content"]],
                                     [("thinking", "ab"), ("text", "Hello")])
                    self.assertEqual(answer["stop_reason"], "stop_sequence")
                    continue
                choice = answer["choices"][0]
                message = choice["message"]
                self.assertEqual((message["content"], message["reasoning_content"]), ("Hello", "ab"))
                self.assertEqual(choice["finish_reason"], "stop")
                deltas = [e["choices"][0]["delta"] for e in server.events(path, {**says(thoughts), **stop})
                          if e["choices"]]
                self.assertEqual("".join(d.get("content") or "" for d in deltas), "Hello")
                self.assertEqual("".join(d.get("reasoning_content") or "" for d in deltas), "ab")

    def test_not_in_calls(self):
        with Server(*template("free", FREE)) as server:
            choice = server.post("/v1/chat/completions",
                                 {**says(self.CALL), "tools": [TOOL], "stop": ["xyz"]})["choices"][0]
            call = choice["message"]["tool_calls"][0]["function"]
            self.assertEqual((call["name"], json.loads(call["arguments"])), ("w", {"c": "a xyz b"}))
            self.assertEqual(choice["finish_reason"], "tool_calls")
            text = server.post("/v1/completions", {"prompt": "go", "max_tokens": 60, "temperature": 0, "stop": ["xyz"],
                                                   "grammar": "root ::= " + json.dumps(self.CALL)})
            self.assertTrue(text["choices"][0]["text"].endswith('"a '), "a plain completion has no frame")


class Schemas(unittest.TestCase):
    FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}

    def test_behind_thoughts(self):
        body = {"messages": [{"role": "user", "content": "Ann"}], "temperature": 0, "max_tokens": 60}
        with Server(*template("open", OPEN)) as server:
            closed = {**body, **self.FORMAT, "enable_thinking": False}
            choice = server.post("/v1/chat/completions", closed)["choices"][0]
            self.assertEqual(list(json.loads(choice["message"]["content"])), ["age"])
            self.assertFalse(choice["message"].get("reasoning_content"))
            deltas = [e["choices"][0]["delta"] for e in server.events("/v1/chat/completions", closed) if e["choices"]]
            self.assertEqual("".join(d.get("content") or "" for d in deltas), choice["message"]["content"])
            free = server.post("/v1/chat/completions", {**body, **self.FORMAT, "max_tokens": 300})["choices"][0]
            self.assertTrue(free["message"]["reasoning_content"])   # random weights think on, and are stopped
            self.assertEqual(list(json.loads(free["message"]["content"])), ["age"])
            self.assertEqual(free["finish_reason"], "stop")
            answer = server.post("/v1/responses", {
                "input": "Ann", "max_output_tokens": 60, "temperature": 0, "reasoning": {"effort": "none"},
                "text": {"format": {"type": "json_schema", "name": "p", "schema": PERSON}}})
            texts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
            self.assertEqual(list(json.loads("".join(texts))), ["age"])


    def test_or_calls(self):
        """with tools the answer is calls, or what the schema binds; where a call is required, only that"""
        body = {"messages": [{"role": "user", "content": "Ann"}], "max_tokens": 600, "tools": [SHORT], **self.FORMAT}
        with Server(*template("free", FREE)) as server:
            for seed in range(4):
                message = server.post("/v1/chat/completions", {**body, "seed": seed})["choices"][0]["message"]
                if message.get("tool_calls"):
                    self.assertEqual(message["tool_calls"][0]["function"]["name"], "w")
                else:
                    self.assertEqual(list(json.loads(message["content"])), ["age"])
            bias = {**body, "tool_choice": "required", "seed": 1}
            message = server.post("/v1/chat/completions", bias)["choices"][0]["message"]
            self.assertEqual(message["tool_calls"][0]["function"]["name"], "w")


class Thoughts(unittest.TestCase):
    BODY = {"messages": [{"role": "user", "content": "Ann"}], "temperature": 0, "max_tokens": 60}

    def test_budget(self):
        """thoughts end at the request's budget, and the answer goes on; none where they are switched off"""
        with Server(*template("open", OPEN)) as server:
            long = server.post("/v1/chat/completions", self.BODY)["choices"][0]["message"]
            self.assertFalse(long["content"])   # random weights think on
            for budget in (0, 1, 20):
                message = server.post("/v1/chat/completions", {**self.BODY, "reasoning_budget": budget})
                message = message["choices"][0]["message"]
                self.assertTrue(message["content"])
                self.assertTrue(long["reasoning_content"].startswith(message.get("reasoning_content") or ""))
                self.assertEqual(bool(message.get("reasoning_content")), budget > 0)
            message = server.post("/v1/chat/completions", {**self.BODY, "enable_thinking": False})
            message = message["choices"][0]["message"]
            self.assertTrue(message["content"])
            self.assertFalse(message.get("reasoning_content"))
            blocks = server.post("/v1/messages", {**self.BODY, "thinking": {"type": "enabled", "budget_tokens": 20}})
            self.assertEqual([block["type"] for block in blocks["content"]], ["thinking", "text"])
            server.post("/v1/chat/completions", {**self.BODY, "reasoning_budget": -1}, status=400)

    def test_room_for_a_call(self):
        """a call that is required finds room behind the thoughts"""
        with Server(*template("open", OPEN)) as server:
            answer = server.post("/v1/chat/completions", {**self.BODY, "max_tokens": 600, "tools": [SHORT], "seed": 3,
                                                          "temperature": 1, "tool_choice": "required"})["choices"][0]
            self.assertLess(len(answer["message"]["reasoning_content"]), 600)
            self.assertEqual(answer["message"]["tool_calls"][0]["function"]["name"], "w")


class Grammars(unittest.TestCase):
    def test_behind_thoughts(self):
        """a grammar of the request binds the content of a chat, and all of a completion; repeated rules are told"""
        body = {"messages": [{"role": "user", "content": "Ann"}], "temperature": 0, "max_tokens": 40,
                "grammar": 'root ::= "no"\nroot ::= "yes"'}
        with Server(*template("open", OPEN)) as server:
            whole = server.post("/v1/chat/completions", {**body, "enable_thinking": False})
            message = whole["choices"][0]["message"]
            self.assertEqual(message["content"], "yes")
            self.assertFalse(message.get("reasoning_content"))
            self.assertIn("is defined again", *whole["warnings"])
            free = server.post("/v1/chat/completions", body)["choices"][0]
            self.assertTrue(free["message"].get("reasoning_content"))
            self.assertEqual(free["message"]["content"], "yes")
            text = server.post("/v1/completions", {"prompt": "Ann", "max_tokens": 40, "grammar": body["grammar"]})
            self.assertEqual(text["choices"][0]["text"], "yes")
            self.assertIn("is defined again", *text["warnings"])


class AllowedTools(unittest.TestCase):  # [V13]
    SHORT = {"type": "object", "properties": {"c": {"enum": ["x", "y"]}}, "required": ["c"],
             "additionalProperties": False}
    CALLS = ("{% for t in tools or [] %}({{ t.function.name }}){% endfor %}{% for m in messages %}<|{{ m.role }}|>"
             "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ c.function.name }}\", "
             "\"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}{% endfor %}")

    def test_only_these_are_called(self):
        """the model is told of all tools, and calls none but those that are allowed"""
        functions = [{"name": name, "parameters": self.SHORT} for name in ["first", "second", "third"]]
        chat = {"messages": [{"role": "user", "content": "go"}], "max_tokens": 300, "parallel_tool_calls": False,
                "tools": [{"type": "function", "function": function} for function in functions]}
        response = {"input": "go", "max_output_tokens": 300, "parallel_tool_calls": False,
                    "tools": [{"type": "function", **function} for function in functions]}

        def of_chat(mode, *names):
            tools = [{"type": "function", "function": {"name": name}} for name in names]
            return {**chat, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}}

        def of_response(mode, *names):
            tools = [{"type": "function", "name": name} for name in names]
            return {**response, "tool_choice": {"type": "allowed_tools", "mode": mode, "tools": tools}}
        with Server(*template("calls", self.CALLS)) as server:
            n_prompt = server.post("/v1/chat/completions", {**chat, "max_tokens": 1})["usage"]["prompt_tokens"]
            for names in (["second"], ["third"], ["third", "first"]):
                called = set()
                for seed in range(3):
                    answer = server.post("/v1/chat/completions", {**of_chat("required", *names), "seed": seed})
                    called |= {c["function"]["name"] for c in answer["choices"][0]["message"]["tool_calls"]}
                    self.assertEqual(answer["usage"]["prompt_tokens"], n_prompt)
                    answer = server.post("/v1/responses", {**of_response("required", *names), "seed": seed})
                    called |= {item["name"] for item in answer["output"] if item["type"] == "function_call"}
                self.assertTrue(called)
                self.assertLessEqual(called, set(names))
            server.post("/v1/chat/completions", {**of_chat("auto", "first"), "max_tokens": 4})
            for path, wrong in (("/v1/chat/completions", of_chat), ("/v1/responses", of_response)):
                for body, said in ((wrong("required", "fourth"), "'fourth' is none of the tools"),
                                   (wrong("any", "first"), "mode"), (wrong("auto"), "names no tool")):
                    self.assertIn(said, json.dumps(server.post(path, body, status=400)["error"]))


class Requests(unittest.TestCase):
    def test_system_messages(self):
        with Server(*template("strict", STRICT)) as server:
            messages = [{"role": "system", "content": "I"}, {"role": "developer", "content": "B"},
                        {"role": "user", "content": "y"}, {"role": "system", "content": "L"},
                        {"role": "user", "content": "z"}]
            shown = server.post("/apply-template", {"messages": messages})
            self.assertIn("[system]I\n\nB\n\nL[user]y[user]z", json.dumps(shown).replace("\\n", "\n"))
            server.post("/v1/responses", {"instructions": "I", "max_output_tokens": 2,
                                          "input": [{"role": "developer", "content": "B"},
                                                    {"role": "user", "content": "y"}]})

    def test_thoughts_handed_back(self):
        with Server(*template("free", FREE)) as server:
            for key in ("reasoning_content", "reasoning", "thinking"):
                messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", key: "PLAN"},
                            {"role": "user", "content": "c"}]
                shown = server.post("/apply-template", {"messages": messages})
                self.assertIn("<think>PLAN</think>b", json.dumps(shown))


if __name__ == "__main__":
    unittest.main()
