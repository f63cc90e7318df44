# SPDX-License-Identifier: MIT
"""Requests as agents and clients send them today: fields of every level are honoured, said to be unknown, or refused by
name. Run by clients_test.py in the environment with the clients."""
import json
import unittest

import anthropic
import openai

from server_support import FOLDER, Server

SCHEMA = {"type": "object", "properties": {"at": {"enum": ["sea", "sky"]}}, "required": ["at"],
          "additionalProperties": False}
# What of it cannot be enforced: texts that all differ.
VAGUE = {"type": "object", "properties": {"names": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}}}
USER = {"role": "user", "content": "Hi"}
CACHED = {"cache_control": {"type": "ephemeral"}}

# Every level of every interface, with a field that nobody knows: its path, and the request.
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
FLAT = {"type": "function", "name": "look", "parameters": SCHEMA}
OWN = {"name": "look", "input_schema": SCHEMA}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
UNKNOWN = [
    (CHAT, "foo", {"messages": [USER]}),
    (CHAT, "messages[0].foo", {"messages": [USER]}),
    (CHAT, "messages[0].content[0].foo", {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}),
    (CHAT, "messages[1].tool_calls[0].foo", {"messages": [USER, CALLED, RESULT]}),
    (CHAT, "messages[1].tool_calls[0].function.foo", {"messages": [USER, CALLED, RESULT]}),
    (CHAT, "tools[0].foo", {"messages": [USER], "tools": [TOOL]}),
    (CHAT, "tools[0].function.foo", {"messages": [USER], "tools": [TOOL]}),
    (CHAT, "tool_choice.foo", {"messages": [USER], "tools": [TOOL],
                               "tool_choice": {"type": "function", "function": {"name": "look"}}}),
    (CHAT, "tool_choice.function.foo", {"messages": [USER], "tools": [TOOL],
                                        "tool_choice": {"type": "function", "function": {"name": "look"}}}),
    (CHAT, "stream_options.foo", {"messages": [USER], "stream_options": {}}),
    (CHAT, "response_format.foo", {"messages": [USER], "response_format": {"type": "json_object"}}),
    (CHAT, "response_format.json_schema.foo", {"messages": [USER], "response_format": {
        "type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}),
    (TEXT, "foo", {"prompt": "a"}),
    (TEXT, "response_format.foo", {"prompt": "a", "response_format": {"type": "json_object"}}),
    (RESPONSES, "foo", {"input": "a"}),
    (RESPONSES, "input[0].foo", {"input": [USER]}),
    (RESPONSES, "input[0].content[0].foo", {"input": [{"role": "user", "content": [{"type": "input_text",
                                                                                    "text": "a"}]}]}),
    (RESPONSES, "input[1].foo", {"input": [USER, {"type": "reasoning", "summary": []}]}),
    (RESPONSES, "tools[0].foo", {"input": "a", "tools": [FLAT]}),
    (RESPONSES, "tool_choice.foo", {"input": "a", "tools": [FLAT], "tool_choice": {"type": "function",
                                                                                   "name": "look"}}),
    (RESPONSES, "text.foo", {"input": "a", "text": {}}),
    (RESPONSES, "text.format.foo", {"input": "a", "text": {"format": {"type": "json_schema", "name": "n",
                                                                      "schema": SCHEMA}}}),
    (RESPONSES, "reasoning.foo", {"input": "a", "reasoning": {}}),
    (RESPONSES, "stream_options.foo", {"input": "a", "stream_options": {}}),
    (MESSAGES, "foo", {"messages": [USER]}),
    (MESSAGES, "system[0].foo", {"messages": [USER], "system": [{"type": "text", "text": "a"}]}),
    (MESSAGES, "messages[0].foo", {"messages": [USER]}),
    (MESSAGES, "messages[0].content[0].foo", {"messages": [{"role": "user", "content": [{"type": "text",
                                                                                         "text": "a"}]}]}),
    (MESSAGES, "messages[1].content[0].foo", {"messages": [
        USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "look", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}]}),
    (MESSAGES, "tools[0].foo", {"messages": [USER], "tools": [OWN]}),
    (MESSAGES, "tool_choice.foo", {"messages": [USER], "tools": [OWN], "tool_choice": {"type": "auto"}}),
    (MESSAGES, "thinking.foo", {"messages": [USER], "thinking": {"type": "disabled"}}),
    (MESSAGES, "output_config.foo", {"messages": [USER], "output_config": {}}),
    (MESSAGES, "stream_options.foo", {"messages": [USER], "stream_options": {}}),
    ("/v1/messages/count_tokens", "tools[0].foo", {"messages": [USER], "tools": [OWN]}),
    ("/apply-template", "messages[0].foo", {"messages": [USER]}),
    ("/tokenize", "foo", {"text": "a"}),
    ("/detokenize", "foo", {"tokens": [5]}),
]


def with_field(body, path):
    """The body with a field more at this path."""
    body = json.loads(json.dumps(body))
    at = body
    *steps, last = path.replace("[", ".[").split(".")
    for step in steps:
        at = at[int(step[1:-1])] if step.startswith("[") else at[step]
    at[last] = 1
    return body


LENGTHS = {CHAT: "max_tokens", TEXT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 2, "-c", 4096, "--any-model", "--temp", 0)
        cls.openai = openai.OpenAI(base_url=cls.server.address + "/v1", api_key="none", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.address, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def prompt(self, *messages):
        return self.server.post("/apply-template", {"messages": messages})["prompt"]

    def test_unknown_fields(self):
        """an unknown field is named in the warnings, at every level of every interface, and refused with --strict"""
        with Server("-c", 4096, "--strict") as strict:
            for path, field, body in UNKNOWN:
                with self.subTest(path=path, field=field):
                    if path in LENGTHS:
                        body = {**body, LENGTHS[path]: 2}
                    self.assertNotIn("warnings", self.server.post(path, body))
                    self.assertNotIn("warnings", strict.post(path, body))
                    asked = with_field(body, field)
                    warnings = self.server.post(path, asked)["warnings"]
                    self.assertEqual(len(warnings), 1)
                    self.assertIn(f"'{field}'", warnings[0])
                    error = strict.post(path, asked, status=400)["error"]
                    self.assertIn(field, error["message"])
                    if not path.startswith(MESSAGES):
                        self.assertEqual(error["param"], field)

    def test_warnings_of_streams(self):
        """a stream says its warnings, too, once"""
        for path, body in [(CHAT, {"messages": [USER]}), (TEXT, {"prompt": "a"}), (MESSAGES, {"messages": [USER]})]:
            events = self.server.events(path, {**body, "max_tokens": 3, "foo": 1})
            said = [event.get("message", event).get("warnings") for event in events]
            self.assertIn("'foo'", said[0][0])
            self.assertEqual(said[1:], [None] * (len(said) - 1))
        first = next(iter(self.openai.responses.create(model="m", input="a", max_output_tokens=3, stream=True,
                                                       extra_body={"foo": 1})))
        self.assertIn("'foo'", first.response.model_extra["warnings"][0])

    def test_json_object_with_schema(self):
        schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}
        form = {"type": "json_object", "schema": schema}
        for path, body in [(CHAT, {"messages": [USER], "response_format": form, "max_tokens": 400}),
                           (TEXT, {"prompt": "a", "response_format": form, "max_tokens": 400}),
                           (RESPONSES, {"input": "a", "text": {"format": form}, "max_output_tokens": 400})]:
            answer = self.server.post(path, body)
            text = (answer["output"][0]["content"][0]["text"] if path == RESPONSES else
                    answer["choices"][0].get("text") or answer["choices"][0]["message"]["content"])
            self.assertEqual(json.loads(text), {"a": 7})
        error = self.server.post(CHAT, {"messages": [USER], "response_format": {**form, "schema": VAGUE}}, status=400)
        self.assertEqual(error["error"]["param"], "response_format.schema")
        answer = self.anthropic.messages.create(model="m", messages=[USER], max_tokens=400, extra_body={
            "output_config": {"format": {"type": "json_schema", "schema": schema}}})
        self.assertEqual(json.loads(answer.content[0].text), {"a": 7})

    def test_tools_of_others(self):
        """tools that nobody here can run are refused by their type, on every interface"""
        for kind in ["web_search", "code_interpreter", "computer_use_preview", "file_search", "local_shell", "mcp",
                     "image_generation", "custom"]:
            for path, body in [(CHAT, {"messages": [USER]}), (RESPONSES, {"input": "a"})]:
                tool = {"type": kind, "name": "x", kind: {}}
                error = self.server.post(path, {**body, "tools": [FLAT if path == RESPONSES else TOOL, tool]},
                                         status=400)["error"]
                self.assertEqual(error["param"], "tools[1].type")
                self.assertIn(f"'{kind}'", error["message"])
        for kind in ["web_search_20250305", "bash_20250124", "text_editor_20250728", "computer_20250124",
                     "code_execution_20250825", "memory_20250818", "web_fetch_20250910"]:
            body = {"messages": [USER], "max_tokens": 2, "tools": [OWN, {"type": kind, "name": "x"}]}
            for path in [MESSAGES, "/v1/messages/count_tokens"]:
                error = self.server.post(path, body, status=400)["error"]
                self.assertIn("tools[1].type", error["message"])
                self.assertIn(f"'{kind}'", error["message"])
        for name, value in [("mcp_servers", [{"type": "url", "url": "https://a.example", "name": "a"}])]:
            error = self.server.post(MESSAGES, {"messages": [USER], "max_tokens": 2, name: value}, status=400)["error"]
            self.assertIn(name, error["message"])
        self.assertIn("web_search_options", self.server.post(CHAT, {"messages": [USER], "web_search_options": {}},
                                                             status=400)["error"]["message"])

    def test_schema_that_cannot_be_enforced(self):
        """one such tool takes nothing from the others, and is told; with strict it is refused"""
        forms = {
            CHAT: ({"messages": [USER], "max_tokens": 1500, "tool_choice": "required"}, ".function.parameters",
                   lambda name, schema, **more: {"type": "function", "function": {"name": name, "parameters": schema,
                                                                                  **more}}),
            RESPONSES: ({"input": "a", "max_output_tokens": 1500, "tool_choice": "required"}, ".parameters",
                        lambda name, schema, **more: {"type": "function", "name": name, "parameters": schema, **more}),
            MESSAGES: ({"messages": [USER], "max_tokens": 1500, "tool_choice": {"type": "any"}}, ".input_schema",
                       lambda name, schema, **more: {"name": name, "input_schema": schema, **more})}
        beyond = {"type": "object", "properties": {"a": {"$ref": "https://schemas.example/a"}}}
        for path, (body, field, tool) in forms.items():
            body = {**body, "logit_bias": {"2": -100}}
            for bad in [VAGUE, beyond]:
                with self.subTest(path=path, bad=bad):
                    asked = {**body, "tools": [tool("look", SCHEMA), tool("labels", bad)]}
                    name = {CHAT: {"type": "function", "function": {"name": "look"}},
                            RESPONSES: {"type": "function", "name": "look"},
                            MESSAGES: {"type": "tool", "name": "look"}}[path]
                    answer = self.server.post(path, asked)
                    self.assertEqual([f"tools[1]{field}" in warning for warning in answer["warnings"]], [True])
                    self.assertIn("not enforced", answer["warnings"][0])
                    answer = self.server.post(path, {**asked, "tool_choice": name})  # none but the good one
                    self.assertNotIn("warnings", answer)
                    error = self.server.post(path, {**body, "tools": [
                        tool("look", SCHEMA), tool("labels", bad, strict=True)]}, status=400)["error"]
                    self.assertIn(f"tools[1]{field}", error["message"])
                    strict = self.server.post(path, {**body, "tools": [tool("look", SCHEMA, strict=True)],
                                                     "tool_choice": name})
                    self.assertNotIn("warnings", strict)
        self.server.errors.seek(0)
        said = self.server.errors.read()
        self.assertIn("tools[1].function.parameters: not enforced", said)
        self.assertEqual(said.count("tools[1].input_schema: not enforced"), 2)  # each of the two schemas once

    def test_claude_code(self):
        """the shape of an agent's request: system texts in blocks and between messages, thoughts handed back"""
        answer = self.anthropic.beta.messages.create(
            model="m", max_tokens=8, betas=["context-management-2025-06-27"],
            system=[{"type": "text", "text": "You are an agent.", **CACHED}, {"type": "text", "text": "Be brief."}],
            metadata={"user_id": "u"}, thinking={"type": "enabled", "budget_tokens": 1024},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "high"}, extra_body={"temperature": 1},
            tools=[{"name": "Read", "description": "reads", "input_schema": SCHEMA, **CACHED},
                   {"type": "custom", "name": "Write", "input_schema": SCHEMA, "eager_input_streaming": True}],
            messages=[{"role": "user", "content": [{"type": "text", "text": "Hi", **CACHED}]},
                      {"role": "system", "content": "<system-reminder>Today is Monday.</system-reminder>"},
                      {"role": "assistant", "content": [
                          {"type": "thinking", "thinking": "I look", "signature": "x"},
                          {"type": "redacted_thinking", "data": "x"},
                          {"type": "text", "text": "Let me see."},
                          {"type": "tool_use", "id": "t1", "name": "Read", "input": {"at": "sea"}, **CACHED}]},
                      {"role": "user", "content": [
                          {"type": "tool_result", "tool_use_id": "t1", "is_error": False, **CACHED,
                           "content": [{"type": "text", "text": "blue"}]},
                          {"type": "text", "text": "<system-reminder>Go on.</system-reminder>"}]}])
        self.assertEqual(answer.usage.output_tokens, 8)
        self.assertEqual(answer.model_extra.get("warnings", []), ["context_management: messages are taken as they are"])
        count = lambda *messages: self.anthropic.messages.count_tokens(model="m", messages=messages).input_tokens
        late = {"role": "system", "content": "be brief and kind"}
        self.assertGreater(count(USER, late), count(USER) + 5)
        self.assertEqual(count(USER, late), count(USER, {**late, "content": [{"type": "text",
                                                                              "text": late["content"]}]}))

    def test_codex(self):
        """the shape of an agent's request to /v1/responses: instructions, a developer's message, calls handed back"""
        answer = self.openai.responses.create(
            model="m", instructions="You are an agent.", max_output_tokens=6, stream=False, store=False,
            include=["reasoning.encrypted_content"], prompt_cache_key="k", parallel_tool_calls=False,
            tool_choice="auto", reasoning={"effort": "medium", "summary": "auto"}, extra_body={"client_metadata": {}},
            tools=[{"type": "function", "name": "shell", "description": "runs", "strict": False, "parameters": SCHEMA}],
            input=[{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
                   {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None,
                    "content": [{"type": "reasoning_text", "text": "I look"}]},
                   {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "shell", "status": "completed",
                    "arguments": "{\"at\": \"sea\"}"},
                   {"type": "function_call_output", "call_id": "c1", "output": "blue"},
                   {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed",
                    "phase": "final_answer", "content": [{"type": "output_text", "text": "Blue.", "annotations": []}]},
                   {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "more"}]}])
        self.assertEqual(answer.usage.output_tokens, 6)
        self.assertNotIn("warnings", answer.model_extra)
        self.assertEqual(answer.top_p, 0.95)

    def test_thoughts_handed_back(self):
        """an assistant's thoughts reach the template, by each name that clients have for them"""
        template = FOLDER / "thoughts.jinja"
        template.write_text("{% for m in messages %}[{{ m.role }}]"
                            "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
                            "{{ m.content }}{% if m.tool_calls %}<calls>{{ m.tool_calls | length }}</calls>{% endif %}"
                            "{% endfor %}")
        turn = {"role": "assistant", "content": "four"}
        with Server("-c", 1024, "--any-model", "--chat-template-file", template) as server:
            thought = {**turn, "reasoning_content": "two and two"}
            expected = server.post("/apply-template", {"messages": [USER, thought]})
            self.assertIn("<think>two and two</think>", expected["prompt"])
            for name in ["reasoning_content", "reasoning", "thinking"]:
                error = server.post(CHAT, {"messages": [USER, {**turn, name: 5}]}, status=400)["error"]
                self.assertEqual(error["param"], f"messages[1].{name}")
            n = len(server.post("/tokenize", {"text": expected["prompt"], "add_special": True,
                                              "parse_special": True})["tokens"])
            client = anthropic.Anthropic(base_url=server.address, api_key="none", max_retries=0)
            counted = client.messages.count_tokens(model="m", messages=[USER, {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "two and two", "signature": ""}, {"type": "text", "text": "four"}]}])
            self.assertEqual(counted.input_tokens, n)
            answer = server.post(RESPONSES, {"max_output_tokens": 1, "input": [
                USER, {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text",
                                                                        "text": "two and two"}]},
                {"type": "message", "role": "assistant", "content": "four"}]})
            self.assertEqual(answer["usage"]["input_tokens"], n)

    def test_answers_without_content(self):
        """what an assistant left empty is an empty text, and no error of the template"""
        for turn in [{"role": "assistant"}, {"role": "assistant", "content": None},
                     {"role": "assistant", "content": None, "tool_calls": []},
                     {"role": "assistant", "content": None, "refusal": None, "annotations": []}]:
            empty = self.prompt(USER, {"role": "assistant", "content": ""}, USER)
            self.assertEqual(self.prompt(USER, turn, USER), empty)

    def test_list_of_models(self):
        """with a slash at its end, too"""
        self.assertEqual(self.server.get("/v1/models/"), self.server.get("/v1/models"))


if __name__ == "__main__":
    unittest.main()
