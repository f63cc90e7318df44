# SPDX-License-Identifier: MIT
"""What clients_test.py runs in the environment with the clients."""
import asyncio
import json
import unittest

import anthropic
import openai
import pydantic

from server_support import Server

BIAS = {"2": -100}
ASK = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
           "additionalProperties": False}


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 2048, "--any-model", "--api-key", "sk-test")
        cls.openai = openai.OpenAI(base_url=cls.server.address + "/v1", api_key="sk-test", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.address, api_key="sk-test", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_v1_openai_chat(self):  # [V1]
        """the client library completes a chat unchanged, whole and as a stream"""
        ask = dict(model="m", messages=ASK, max_tokens=8, temperature=0, logit_bias=BIAS)
        whole = self.openai.chat.completions.create(**ask)
        self.assertEqual(whole.usage.completion_tokens, 8)
        parts = list(self.openai.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.delta.content or "" for p in parts for c in p.choices),
                         whole.choices[0].message.content)
        self.assertEqual(parts[-1].usage.completion_tokens, 8)

    def test_openai_async(self):
        async def run():
            async with openai.AsyncOpenAI(base_url=self.server.address + "/v1", api_key="sk-test",
                                          max_retries=0) as client:
                one = lambda i: client.chat.completions.create(model="m", messages=ASK, max_tokens=6, seed=i,
                                                               logit_bias=BIAS)
                return await asyncio.gather(*(one(i % 3) for i in range(9)))
        texts = [a.choices[0].message.content for a in asyncio.run(run())]
        self.assertEqual(texts[:3] * 3, texts)

    def test_openai_tools(self):
        tool = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
        answer = self.openai.chat.completions.create(model="m", messages=ASK, tools=[tool], tool_choice="required",
                                                     max_tokens=1500,
                                                     parallel_tool_calls=False, logit_bias=BIAS, temperature=0)
        call = answer.choices[0].message.tool_calls[0]
        self.assertIn(json.loads(call.function.arguments)["city"], ["Oslo", "Rome"])
        result = [*ASK, answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        again = self.openai.chat.completions.create(model="m", messages=result, max_tokens=4, logit_bias=BIAS)
        self.assertEqual(again.usage.completion_tokens, 4)

    def test_openai_structured(self):
        class Answer(pydantic.BaseModel):
            yes: bool
            where: pydantic.conint(ge=0, le=9)
        parsed = self.openai.chat.completions.parse(model="m", messages=ASK, response_format=Answer, max_tokens=1500,
                                                    logit_bias=BIAS)
        self.assertIsInstance(parsed.choices[0].message.parsed, Answer)

    def test_openai_parallel_tools(self):
        """several calls in one answer, whole and as a stream: the same calls, indices in order, ids apart"""
        tools = [{"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"],
            "additionalProperties": False}}} for name in ["left", "right"]]
        for seed in range(60):  # random weights call once or more as it comes
            ask = dict(model="m", messages=ASK, tools=tools, tool_choice="required", max_tokens=400, seed=seed,
                       temperature=1.5, logit_bias=BIAS)
            calls = self.openai.chat.completions.create(**ask).choices[0].message.tool_calls
            if calls and len(calls) > 1:
                break
        else:
            self.fail("no answer with two calls")
        self.assertEqual(len({call.id for call in calls}), len(calls))
        found = {}
        for part in self.openai.chat.completions.create(**ask, stream=True):
            for call in (part.choices[0].delta.tool_calls or []) if part.choices else []:
                name, arguments = found.get(call.index, ("", ""))
                found[call.index] = (name + (call.function.name or ""), arguments + (call.function.arguments or ""))
        self.assertEqual([found[i] for i in sorted(found)],
                         [(call.function.name, call.function.arguments) for call in calls])
        self.assertEqual(sorted(found), list(range(len(calls))))
        results = [{"role": "tool", "tool_call_id": call.id, "content": "done"} for call in calls]
        turn = {"role": "assistant", "content": None, "tool_calls": [call.model_dump() for call in calls]}
        self.openai.chat.completions.create(model="m", messages=[*ASK, turn, *results], tools=tools, tool_choice="none",
                                            max_tokens=4, logit_bias=BIAS)

    def test_openai_structured_stream(self):
        class Answer(pydantic.BaseModel):
            yes: bool
        with self.openai.chat.completions.stream(model="m", messages=ASK, response_format=Answer, max_tokens=1500,
                                                 logit_bias=BIAS, seed=2) as stream:
            self.assertIsInstance(stream.get_final_completion().choices[0].message.parsed, Answer)

    def test_openai_stop_and_seed(self):
        ask = dict(model="m", messages=ASK, max_tokens=24, temperature=1.3, logit_bias=BIAS)
        text = lambda **more: self.openai.chat.completions.create(**ask, **more).choices[0].message.content
        first = text(seed=11)
        self.assertEqual(text(seed=11), first)
        self.assertNotEqual(text(seed=12), first)
        stop = next(c for c in first[2:] if c.isascii() and c.isprintable())
        self.assertEqual(text(seed=11, stop=[stop, "never there"]), first[:first.index(stop)])

    def test_openai_errors(self):
        """each status as the exception that the client has for it"""
        with self.assertRaises(openai.BadRequestError) as long:
            self.openai.completions.create(model="m", prompt=[5] * 5000, max_tokens=1)
        self.assertEqual(long.exception.code, "context_length_exceeded")
        with Server("-c", 512, "--strict-model") as server:
            client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
            with self.assertRaises(openai.NotFoundError):
                client.chat.completions.create(model="another", messages=ASK)
            with self.assertRaises(openai.InternalServerError) as vectors:
                client.embeddings.create(model=client.models.list().data[0].id, input="x")
            self.assertEqual(vectors.exception.status_code, 501)

    def test_openai_rest(self):
        answer = self.openai.chat.completions.create(model="m", messages=ASK, n=2, logprobs=True, top_logprobs=2,
                                                     max_tokens=3,
                                                     seed=1, logit_bias=BIAS)
        self.assertEqual([len(c.logprobs.content) for c in answer.choices], [3, 3])
        text = self.openai.completions.create(model="m", prompt="the", max_tokens=3, echo=True, logprobs=1,
                                              logit_bias=BIAS)
        self.assertTrue(text.choices[0].text.startswith("the"))
        self.assertEqual(len(self.openai.models.list().data), 1)
        with self.assertRaises(openai.BadRequestError) as wrong:
            self.openai.chat.completions.create(model="m", messages=ASK, temperature=-1)
        self.assertEqual(wrong.exception.param, "temperature")
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.server.address + "/v1", api_key="sk-no", max_retries=0).models.list()

    def test_v13_openai_responses(self):  # [V13]
        """/v1/responses: whole, as a stream of events, with a call and its result"""
        extra = {"logit_bias": BIAS}
        whole = self.openai.responses.create(model="m", input="Hello", max_output_tokens=8, temperature=0,
                                             extra_body=extra)
        self.assertEqual((whole.status, whole.usage.output_tokens), ("incomplete", 8))
        text = ""
        with self.openai.responses.stream(model="m", input="Hello", max_output_tokens=8, temperature=0,
                                          extra_body=extra) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    text += event.delta
        self.assertEqual(text, whole.output_text)
        tool = {"type": "function", "name": "weather", "parameters": WEATHER}
        called = self.openai.responses.create(model="m", input="Hello", tools=[tool], tool_choice="required",
                                              parallel_tool_calls=False,
                                              max_output_tokens=1500, temperature=0, extra_body=extra)
        call = [item for item in called.output if item.type == "function_call"][0]
        self.assertIn(json.loads(call.arguments)["city"], ["Oslo", "Rome"])
        again = self.openai.responses.create(model="m", max_output_tokens=4, extra_body=extra, input=[
            {"role": "user", "content": "Hello"}, *[item.model_dump() for item in called.output
                                                    if item.type == "function_call"],
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}])
        self.assertEqual(again.usage.output_tokens, 4)

    def test_openai_embeddings(self):
        with Server("--pooling", "mean", "-c", 512, "--any-model") as server:
            client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
            coded = client.embeddings.create(model="m", input=["the one", "two"]).data  # base64 by default
            plain = client.embeddings.create(model="m", input=["the one", "two"], encoding_format="float").data
            for a, b in zip(coded, plain):
                for x, y in zip(a.embedding, b.embedding):
                    self.assertAlmostEqual(x, y, places=6)

    def test_v13_anthropic(self):  # [V13]
        """the client of /v1/messages: whole, as a stream, with tools, errors as exceptions"""
        ask = dict(model="m", messages=ASK, max_tokens=8, extra_body={"logit_bias": BIAS, "temperature": 0})
        whole = self.anthropic.messages.create(**ask)
        with self.anthropic.messages.stream(**ask) as stream:
            self.assertEqual("".join(stream.text_stream), whole.content[0].text)
            self.assertEqual(stream.get_final_message().stop_reason, "max_tokens")
        tool = {"name": "weather", "description": "d", "input_schema": WEATHER}
        called = self.anthropic.messages.create(**{**ask, "max_tokens": 1500}, tools=[tool],
                                                tool_choice={"type": "any", "disable_parallel_tool_use": True})
        use = [b for b in called.content if b.type == "tool_use"][0]
        self.assertIn(use.input["city"], ["Oslo", "Rome"])
        answer = self.anthropic.messages.create(**{**ask,
                                                   "messages": [*ASK, {"role": "assistant", "content": called.content},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}]},
            tools=[tool],
            tool_choice={"type": "none"})
        self.assertEqual(answer.usage.output_tokens, 8)
        self.assertGreater(self.anthropic.messages.count_tokens(model="m", messages=ASK).input_tokens, 1)
        with self.assertRaises(anthropic.BadRequestError):
            self.anthropic.messages.create(**{**ask, "extra_body": {"temperature": -1}})


if __name__ == "__main__":
    unittest.main()
