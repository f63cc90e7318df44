# SPDX-License-Identifier: MIT
"""What clients_test.py runs in the environment with litellm and langchain-openai."""
import json
import os
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network for prices
os.environ["LANGCHAIN_TRACING_V2"] = "false"

import litellm
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from server_support import Server

litellm.suppress_debug_info = True
BIAS = {"2": -100}
ASK = [{"role": "user", "content": "Hello"}]
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
    "additionalProperties": False}}}


class Place(pydantic.BaseModel):
    """A place."""
    sunny: bool
    number: pydantic.conint(ge=0, le=9)


@tool
def look(at: bool) -> str:
    """Looks up or down."""
    return "sky"


class Frameworks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 4096, "--any-model", "--api-key", "sk-test")
        cls.base = cls.server.address + "/v1"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def lite(self, **more):
        return litellm.completion(**{**dict(model="openai/m", api_base=self.base, api_key="sk-test", messages=ASK,
                                            max_tokens=8, temperature=0, logit_bias=BIAS, max_retries=0), **more})

    def test_v13_litellm(self):  # [V13]
        """litellm: whole, as a stream, tools, structured, and errors of its own types"""
        whole = self.lite()
        self.assertEqual(whole.usage.completion_tokens, 8)
        parts = list(self.lite(stream=True))
        self.assertEqual("".join(c.delta.content or "" for p in parts for c in p.choices),
                         whole.choices[0].message.content)
        called = self.lite(tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=1500)
        self.assertIn(json.loads(called.choices[0].message.tool_calls[0].function.arguments)["city"], ["Oslo", "Rome"])
        structured = self.lite(response_format=Place, max_tokens=1500)
        Place.model_validate_json(structured.choices[0].message.content)
        with self.assertRaises(litellm.BadRequestError):
            self.lite(temperature=-1)
        with self.assertRaises(litellm.AuthenticationError):
            self.lite(api_key="sk-wrong")
        with Server("--pooling", "mean", "-c", 512) as server:
            name = server.get("/v1/models")["data"][0]["id"]
            got = litellm.embedding(model="openai/" + name, api_base=server.address + "/v1", api_key="none",
                                    input=["the one"])
            self.assertAlmostEqual(sum(x * x for x in got.data[0]["embedding"]), 1, places=4)

    def test_v17_litellm(self):  # [V17]
        """litellm over Ollama's interface: whole, as a stream, structured, tools, vectors, an error"""
        with (Server("--parallel", 4, "-c", 4096, "--strict-model") as server,
              Server("--pooling", "mean", "-c", 512) as vectors):
            ask = lambda **more: litellm.completion(**{**dict(
                model="ollama_chat/tiny", api_base=server.address, messages=ASK, max_tokens=8, temperature=1, seed=3,
                max_retries=0), **more})
            whole = ask()
            ours = server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 8, "temperature": 1, "seed": 3})
            self.assertEqual(whole.usage.completion_tokens, ours["usage"]["completion_tokens"])
            self.assertEqual(whole.choices[0].message.content, ours["choices"][0]["message"]["content"])
            parts = list(ask(stream=True))
            self.assertEqual("".join(c.delta.content or "" for p in parts for c in p.choices),
                             whole.choices[0].message.content)
            structured = ask(response_format=Place, max_tokens=1500)
            Place.model_validate_json(structured.choices[0].message.content)
            self.assertGreater(ask(tools=[WEATHER]).usage.prompt_tokens, whole.usage.prompt_tokens)
            self.assertGreater(ask(model="ollama/tiny").usage.completion_tokens, 0)
            got = litellm.embedding(model="ollama/tiny", api_base=vectors.address, input=["the one", "two"])
            self.assertAlmostEqual(sum(x * x for x in got.data[0]["embedding"]), 1, places=4)
            with self.assertRaises(litellm.NotFoundError) as missing:
                ask(model="ollama_chat/another")
            self.assertIn("no model 'another'", str(missing.exception))

    def test_v13_langchain(self):  # [V13]
        """langchain-openai: invoke, stream, batch, bound tools and their results, structured output, vectors"""
        chat = ChatOpenAI(model="m", base_url=self.base, api_key="sk-test", max_tokens=8, temperature=0, seed=1,
                          max_retries=0, logit_bias=BIAS)
        whole = chat.invoke([SystemMessage("S"), HumanMessage("Hello")])
        self.assertEqual(whole.usage_metadata["output_tokens"], 8)
        self.assertEqual("".join(p.content for p in chat.stream([SystemMessage("S"), HumanMessage("Hello")])),
                         whole.content)
        self.assertEqual(len(chat.batch(["a", "b", "c"])), 3)
        long = chat.model_copy(update={"max_tokens": 1500})
        answer = long.bind_tools([look], tool_choice="look", parallel_tool_calls=False).invoke("Hello")
        self.assertIsInstance(answer.tool_calls[0]["args"]["at"], bool)
        result = ToolMessage(look.invoke(answer.tool_calls[0]["args"]), tool_call_id=answer.tool_calls[0]["id"])
        self.assertEqual(chat.invoke([HumanMessage("Hello"), answer, result]).usage_metadata["output_tokens"], 8)
        for method in ["json_schema", "function_calling"]:
            self.assertIsInstance(long.with_structured_output(Place, method=method).invoke("Hello"), Place)
        with Server("--pooling", "mean", "-c", 512) as server:
            vectors = OpenAIEmbeddings(model=server.get("/v1/models")["data"][0]["id"], base_url=server.address + "/v1",
                                       api_key="none", check_embedding_ctx_length=False, max_retries=0)
            got = vectors.embed_documents(["the one", "two"])
            self.assertEqual(len(got), 2)
            self.assertAlmostEqual(sum(x * x for x in got[0]), 1, places=4)


if __name__ == "__main__":
    unittest.main()
