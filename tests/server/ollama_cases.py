# SPDX-License-Identifier: MIT
"""What clients_test.py runs in the environment with the Python clients of Ollama's interface."""
import asyncio
import datetime
import json
import subprocess
import sys
import unittest

import ollama
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings, OllamaLLM
from llama_index.core.base.llms.types import ChatMessage
from llama_index.llms.ollama import Ollama

from pulls_test import NAME, STEP, TINY, Pulling, hub
from server_support import FOLDER, HERE, Server

ASK = [{"role": "user", "content": "Hello"}]
# Random weights end a text at once; without its end token an answer has the length that was asked for.
FREE = {"temperature": 0, "num_predict": 8, "logit_bias": {"2": -100}}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}}, "required": ["city"]}}}
THINKS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<assistant>" \
         "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}" \
         "{% endif %}"


class Answer(pydantic.BaseModel, extra="forbid"):
    """Yes or no."""
    yes: bool


@tool
def look(at: bool) -> str:
    """Looks up or down."""
    return "sky"


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 4096, "--strict-model")
        cls.vectors = Server("--pooling", "mean", "-c", 512)
        cls.client = ollama.Client(host=cls.server.address)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.vectors.stop()

    def test_v17_chat(self):  # [V17]
        """the client's chat, whole and as a stream: one text, which /v1 gives for the same seed"""
        whole = self.client.chat(model="tiny", messages=ASK, options=FREE)
        self.assertEqual((whole.done, whole.done_reason, whole.eval_count), (True, "length", 8))
        self.assertGreater(whole.prompt_eval_count, 0)
        self.assertGreater(whole.total_duration, whole.eval_duration)
        parts = list(self.client.chat(model="tiny:latest", messages=ASK, options=FREE, stream=True))
        self.assertEqual("".join(part.message.content for part in parts), whole.message.content)
        self.assertEqual([part.done for part in parts], [False] * (len(parts) - 1) + [True])
        self.assertEqual((parts[-1].model, parts[-1].message.content), ("tiny:latest", ""))
        datetime.datetime.fromisoformat(parts[0].created_at)
        drawn = {**FREE, "temperature": 1.2, "seed": 7, "top_k": 20, "repeat_penalty": 1.1}
        ours = self.server.post("/v1/chat/completions", {
            "messages": ASK, "max_tokens": 8, "temperature": 1.2, "seed": 7, "top_k": 20, "repeat_penalty": 1.1,
            "logit_bias": FREE["logit_bias"]})
        self.assertEqual(self.client.chat(model="tiny", messages=ASK, options=drawn).message.content,
                         ours["choices"][0]["message"]["content"])

    def test_async(self):
        async def run():
            client = ollama.AsyncClient(host=self.server.address)
            one = lambda seed: client.chat(model="tiny", messages=ASK, options={**FREE, "temperature": 1, "seed": seed})
            texts = [a.message.content for a in await asyncio.gather(*(one(i % 2) for i in range(6)))]
            self.assertEqual(texts[:2] * 3, texts)
            async for part in await client.chat(model="tiny", messages=ASK, stream=True,
                                                options={**FREE, "num_predict": 2000}):
                break  # a client that leaves
        asyncio.run(run())

    def test_generate(self):
        whole = self.client.generate(model="tiny", prompt="Hello", options=FREE)
        parts = list(self.client.generate(model="tiny", prompt="Hello", options=FREE, stream=True))
        self.assertEqual("".join(part.response for part in parts), whole.response)
        self.assertEqual(parts[-1].context, whole.context)
        self.assertEqual(len(whole.context), whole.prompt_eval_count + 8)
        chat = self.client.chat(model="tiny", messages=[{"role": "system", "content": "Be kind."}, *ASK], options=FREE)
        system = self.client.generate(model="tiny", prompt="Hello", system="Be kind.", options=FREE)
        self.assertEqual(system.response, chat.message.content)
        again = self.client.generate(model="tiny", prompt="And", context=whole.context, options=FREE)
        alone = self.client.generate(model="tiny", prompt="And", options=FREE)
        bos = self.server.post("/tokenize", {"text": "", "add_special": True})["tokens"]
        self.assertEqual(again.prompt_eval_count, len(whole.context) + alone.prompt_eval_count - len(bos))
        raw = self.client.generate(model="tiny", prompt="Hello", raw=True, options=FREE)
        ours = self.server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 8, "temperature": 0,
                                                    "logit_bias": FREE["logit_bias"]})
        self.assertEqual(raw.response, ours["choices"][0]["text"])
        self.assertIsNone(raw.context)

    def test_tools_and_format(self):
        called = self.client.chat(model="tiny", messages=ASK, tools=[WEATHER], options={**FREE, "num_predict": 8})
        self.assertTrue(called.done)
        for stream in [False, True]:
            asked = self.client.chat(model="tiny", messages=ASK, format=Answer.model_json_schema(), stream=stream,
                                     options={**FREE, "num_predict": 1000})
            text = "".join(p.message.content for p in asked) if stream else asked.message.content
            Answer.model_validate_json(text)
        self.assertIsInstance(json.loads(self.client.generate(
            model="tiny", prompt="As JSON:", format=Answer.model_json_schema(),
            options={**FREE, "num_predict": 1000}).response), dict)
        turns = [*ASK, {"role": "assistant", "content": "", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}}]},
            {"role": "tool", "tool_name": "weather", "content": "sunny"}]
        self.assertEqual(self.client.chat(model="tiny", messages=turns, tools=[WEATHER], options=FREE).eval_count, 8)

    def test_tool_calls(self):
        """a call comes whole, its arguments as an object, in a stream, too"""
        for seed in range(80):  # random weights call now and then
            ask = dict(model="tiny", messages=ASK, tools=[WEATHER],
                       options={**FREE, "temperature": 1.5, "seed": seed, "num_predict": 400})
            whole = self.client.chat(**ask)
            if whole.message.tool_calls:
                break
        else:
            self.fail("no answer with a call")
        call = whole.message.tool_calls[0].function
        self.assertEqual(call.name, "weather")
        self.assertIn(call.arguments["city"], ["Oslo", "Rome"])
        parts = list(self.client.chat(**ask, stream=True))
        found = [c for part in parts for c in part.message.tool_calls or []]
        self.assertEqual([c.function.arguments for c in found],
                         [c.function.arguments for c in whole.message.tool_calls])

    def test_thinking(self):
        template = FOLDER / "thinks.jinja"
        template.write_text(THINKS)
        with Server("-c", 2048, "--chat-template-file", template) as server:
            client = ollama.Client(host=server.address)
            self.assertIn("thinking", client.show("tiny").capabilities)
            thought = client.chat(model="tiny", messages=ASK, options=FREE)
            self.assertEqual((thought.message.content, bool(thought.message.thinking)), ("", True))
            parts = list(client.chat(model="tiny", messages=ASK, options=FREE, think=True, stream=True))
            self.assertEqual("".join(p.message.thinking or "" for p in parts), thought.message.thinking)
            plain = client.chat(model="tiny", messages=ASK, options=FREE, think=False)
            self.assertTrue(plain.message.content)
            self.assertIsNone(plain.message.thinking)
        with self.assertRaisesRegex(ollama.ResponseError, '"tiny" does not support thinking'):
            self.client.chat(model="tiny", messages=ASK, think=True)

    def test_logprobs(self):
        whole = self.client.chat(model="tiny", messages=ASK, options=FREE, logprobs=True, top_logprobs=2)
        self.assertEqual([len(one.top_logprobs) for one in whole.logprobs], [2] * 8)
        parts = list(self.client.chat(model="tiny", messages=ASK, options=FREE, logprobs=True, top_logprobs=2,
                                      stream=True))
        self.assertEqual([one.logprob for part in parts for one in part.logprobs or []],
                         [one.logprob for one in whole.logprobs])

    def test_lists(self):
        listed = self.client.list().models[0]
        self.assertEqual((listed.model, listed.details.family, listed.details.format), ("tiny:latest", "llama", "gguf"))
        self.assertEqual(len(listed.digest), 64)
        self.assertGreater(listed.size, 0)
        running = self.client.ps().models[0]
        self.assertEqual((running.model, running.size_vram), ("tiny:latest", 0))
        self.assertGreater(running.expires_at.year, datetime.datetime.now().year + 90)
        shown = self.client.show("tiny")
        self.assertEqual(shown.modelinfo["llama.context_length"], 256)
        self.assertEqual(shown.modelinfo["general.architecture"], "llama")
        self.assertEqual(shown.modelinfo["tokenizer.ggml.tokens"], [])
        self.assertFalse(shown.parameters.endswith("\n"))
        self.assertIn("completion", shown.capabilities)
        verbose = self.server.post("/api/show", {"name": "tiny", "verbose": True})
        self.assertEqual(len(verbose["model_info"]["tokenizer.ggml.tokens"]), 306)
        self.assertRegex(self.server.get("/api/version")["version"], r"^\d+\.\d+\.\d+$")
        self.assertEqual(self.client.pull("tiny").status, "success")
        self.assertEqual([part.status for part in self.client.pull("tiny", stream=True)], ["success"])

    def test_v17_pull(self):  # [V17]
        """a model that the server fetches: as lines, whole, sync and async, what cannot be had, and an answer of it"""
        with hub() as one, Pulling(one, "--allow-pull") as server:
            client = ollama.Client(host=server.address)
            parts = list(client.pull(NAME, stream=True))
            self.assertEqual((parts[0].status, parts[-1].status), ("pulling manifest", "success"))
            steps = [part for part in parts if part.status == STEP]
            self.assertEqual((steps[-1].total, steps[-1].completed), (len(TINY), len(TINY)))
            self.assertEqual(client.list().models[0].model, NAME + ":Q8_0")
            self.assertTrue(client.chat(model=NAME, messages=ASK, options=FREE).message.content)
            self.assertEqual(client.pull("hf.co/" + NAME + ":F16").status, "success")
            asynchronous = ollama.AsyncClient(host=server.address)
            self.assertEqual(asyncio.run(asynchronous.pull(NAME + ":Q6_K")).status, "success")
            self.assertEqual(len(client.list().models), 3)
            with self.assertRaisesRegex(ollama.ResponseError, "there is no repository") as error:
                client.pull("owner/none")
            self.assertEqual(error.exception.status_code, 404)
            with self.assertRaisesRegex(ollama.ResponseError, "there is no repository"):
                list(client.pull("owner/none", stream=True))
            for ask in [lambda: client.copy(NAME, "other"), lambda: client.create("other", from_=NAME),
                        lambda: client.push(NAME)]:
                with self.assertRaisesRegex(ollama.ResponseError, "is not supported by tinfer"):
                    ask()

    def test_vectors(self):
        client = ollama.Client(host=self.vectors.address)
        two = client.embed(model="tiny", input=["Hello", "Once"])
        one = client.embed(model="tiny", input="Hello", dimensions=8)
        self.assertEqual((len(two.embeddings), len(one.embeddings[0])), (2, 8))
        for vector in [*two.embeddings, *one.embeddings]:
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
        self.assertEqual(client.embeddings(model="tiny", prompt="Hello").embedding, two.embeddings[0])
        with self.assertRaises(ollama.ResponseError):
            client.embed(model="tiny", input="a b " * 2000)
        self.assertEqual(len(client.embed(model="tiny", input="a b " * 2000, truncate=True).embeddings), 1)
        self.assertEqual(client.show("tiny").capabilities, ["embedding"])
        with self.assertRaises(ollama.ResponseError) as none:
            client.chat(model="tiny", messages=ASK)
        self.assertEqual(none.exception.status_code, 501)

    def test_errors(self):
        """each refusal as the client's exception, with the field's name"""
        refused = [
            (404, "another", dict(model="another", messages=ASK)),
            (400, "images", dict(model="tiny", messages=[{**ASK[0], "images": ["aGVsbG8="]}])),
            (400, "options.top_k", dict(model="tiny", messages=ASK, options={"top_k": "many"})),
            (400, "options.tfs_z", dict(model="tiny", messages=ASK, options={"tfs_z": 0.5})),
            (400, "keep_alive", dict(model="tiny", messages=ASK, keep_alive="soon")),
            (400, "format", dict(model="tiny", messages=ASK, format="xml")),
            (400, "tokens", dict(model="tiny", messages=[{"role": "user", "content": "a b " * 3000}])),
        ]
        for status, word, ask in refused:
            for stream in [False, True]:
                with self.assertRaises(ollama.ResponseError, msg=word) as error:
                    answer = self.server.ask("POST", "/api/chat", {**ask, "stream": stream})
                    raise ollama.ResponseError(json.loads(answer[2])["error"], answer[0])
                self.assertEqual(error.exception.status_code, status, error.exception.error)
                self.assertIn(word, error.exception.error)
        with self.assertRaises(ollama.ResponseError) as missing:
            self.client.chat(model="another", messages=ASK)
        self.assertEqual(missing.exception.status_code, 404)
        for ask in [lambda: self.client.delete("tiny"), lambda: self.client.copy("tiny", "other"),
                    lambda: self.client.create("other", from_="tiny"), lambda: self.client.push("tiny")]:
            with self.assertRaises(ollama.ResponseError) as error:
                ask()
            self.assertEqual(error.exception.status_code, 501)
            self.assertIn("is not supported by tinfer", error.exception.error)
        with self.assertRaises(ollama.ResponseError) as pulled:
            self.client.pull("another")
        self.assertEqual(pulled.exception.status_code, 403)

    def test_old_messages_go_where_asked(self):
        turns = [{"role": "system", "content": "Be kind."}]
        for i in range(40):
            turns += [{"role": "user", "content": f"{i} " * 40}, {"role": "assistant", "content": "yes " * 10}]
        turns += ASK
        ask = {"model": "tiny", "messages": turns, "stream": False, "options": FREE}
        self.assertIn("tokens", self.server.post("/api/chat", ask, 400)["error"])
        cut = self.server.post("/api/chat", {**ask, "truncate": True})
        self.assertGreater(cut["truncated_tokens"], 0)
        kept = next(n for n in range(len(turns)) if self.server.ask("POST", "/api/chat", {
            **ask, "messages": [turns[0], *turns[1 + n:]]})[0] == 200)
        fits = self.server.post("/api/chat", {**ask, "messages": [turns[0], *turns[1 + kept:]]})
        self.assertEqual((cut["message"], cut["prompt_eval_count"]), (fits["message"], fits["prompt_eval_count"]))

    def test_loads(self):
        for field, reason in [({}, "load"), ({"keep_alive": 0}, "unload"), ({"keep_alive": "1h30m"}, "load")]:
            self.assertEqual(self.client.generate(model="tiny", **field).done_reason, reason)
            self.assertEqual(self.client.chat(model="tiny", **field).done_reason, reason)

    def test_key(self):
        with Server("-c", 512, "--api-key", "sk-test") as server:
            self.assertEqual(server.get("/api/tags", 401)["error"][:16], "a valid API key ")
            ollama.Client(host=server.address, headers={"Authorization": "Bearer sk-test"}).list()

    def test_somebody_is_here(self):
        status, headers, _ = self.server.ask("HEAD", "/")
        self.assertEqual(status, 200)
        status, headers, text = self.server.ask("GET", "/", headers={"Accept": "*/*"})
        self.assertEqual((status, headers["Content-Type"].split(";")[0]), (200, "text/plain"))
        _, headers, _ = self.server.ask("GET", "/", headers={"Accept": "text/html,*/*"})
        self.assertEqual(headers["Content-Type"].split(";")[0], "text/html")

    def test_langchain(self):
        model = ChatOllama(model="tiny", base_url=self.server.address, temperature=0, num_predict=8, seed=1)
        said = model.invoke([SystemMessage("Be kind."), HumanMessage("Hello")])
        self.assertEqual(said.response_metadata["model"], "tiny")
        self.assertEqual("".join(part.content for part in model.stream("Hello")), model.invoke("Hello").content)
        longer = ChatOllama(model="tiny", base_url=self.server.address, temperature=0, num_predict=1000)
        self.assertIsInstance(longer.with_structured_output(Answer, method="json_schema").invoke("Hello"), Answer)
        self.assertGreaterEqual(model.bind_tools([look]).invoke("Hello").usage_metadata["output_tokens"], 0)
        self.assertIsInstance(OllamaLLM(model="tiny", base_url=self.server.address, num_predict=8).invoke("Hi"), str)
        vectors = OllamaEmbeddings(model="tiny", base_url=self.vectors.address)
        self.assertEqual(len(vectors.embed_documents(["one", "two"])), 2)

    def test_llama_index(self):
        model = Ollama(model="tiny", base_url=self.server.address, temperature=0.0, context_window=256,
                       additional_kwargs={"num_predict": 8})
        said = model.chat([ChatMessage(role="user", content="Hello")])
        self.assertEqual("".join(p.delta for p in model.stream_chat([ChatMessage(role="user", content="Hello")])),
                         said.message.content)
        self.assertIsInstance(model.complete("Hello").text, str)

    def test_llm(self):
        """the command `llm` with its plugin"""
        run = lambda *args: subprocess.run([sys.executable, "-m", "llm", *args], capture_output=True, text=True,
                                           env={"OLLAMA_HOST": self.server.address, "HOME": str(FOLDER), "PATH": "",
                                                "LLM_USER_PATH": str(FOLDER)})
        listed = run("ollama", "models")
        self.assertIn("tiny", listed.stdout, listed.stderr)
        said = run("-m", "ollama/tiny:latest", "-n", "-o", "num_predict", "8", "Hello")
        self.assertEqual(said.returncode, 0, said.stderr)


if __name__ == "__main__":
    unittest.main()
