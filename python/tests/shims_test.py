# SPDX-License-Identifier: MIT
"""[P1] The shapes of other packages, with the packages themselves where they have to be there."""
import asyncio
import hashlib
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import tinfer
from support import LOGITS, SMOL, TALKS, needs_smollm2
from tinfer.shims.llama_cpp import Llama, LlamaGrammar

TALK = [{"role": "user", "content": "once"}]
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {
    "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"]}}}]


def needs(package):
    return unittest.skipUnless(importlib.util.find_spec(package), f"no package {package}")


class LlamaShape(unittest.TestCase):
    def setUp(self):
        self.llama = Llama(model_path=TALKS, n_ctx=1024, seed=7, n_gpu_layers=-1, verbose=False, embedding=True,
                           logits_all=True)
        self.addCleanup(self.llama.close)

    def test_completions(self):
        answer = self.llama("once upon", max_tokens=6, temperature=0, logprobs=2, echo=True)
        [choice] = answer["choices"]
        self.assertEqual((answer["object"], answer["usage"]["completion_tokens"]), ("text_completion", 6))
        self.assertTrue(choice["text"].startswith("once upon"))
        self.assertEqual(len(choice["logprobs"]["token_logprobs"]), 6)
        plain = self.llama("once upon", max_tokens=6, temperature=0)["choices"][0]["text"]
        pieces = list(self.llama("once upon", max_tokens=6, temperature=0, stream=True))
        self.assertEqual("".join(piece["choices"][0]["text"] for piece in pieces), plain)
        self.assertEqual(pieces[-1]["choices"][0]["finish_reason"], "length")
        again = [self.llama("once", max_tokens=6)["choices"][0]["text"] for _ in range(2)]
        self.assertEqual(again[0], again[1])    # the seed
        text = self.llama("once", grammar=LlamaGrammar.from_string('root ::= "yes"'))["choices"][0]["text"]
        self.assertEqual(text, "yes")
        self.assertRaises(TypeError, Llama, model_path=TALKS, cats=1)

    def test_conversations(self):
        answer = self.llama.create_chat_completion(TALK, max_tokens=5, temperature=0)
        message = answer["choices"][0]["message"]
        self.assertEqual((answer["object"], message["role"]), ("chat.completion", "assistant"))
        pieces = list(self.llama.create_chat_completion(TALK, max_tokens=5, temperature=0, stream=True))
        self.assertEqual("".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces),
                         message["content"])
        answer = self.llama.create_chat_completion(TALK, response_format={
            "type": "json_schema", "json_schema": {"schema": {"enum": ["a", "b"]}}})
        self.assertIn(json.loads(answer["choices"][0]["message"]["content"]), ("a", "b"))
        choice = self.llama.create_chat_completion(
            TALK, tools=TOOLS, tool_choice={"type": "function", "function": {"name": "add"}},
            max_tokens=200)["choices"][0]
        if choice["finish_reason"] == "tool_calls":
            self.assertEqual(choice["message"]["tool_calls"][0]["function"]["name"], "add")

    def test_tokens_scores_and_states(self):
        text = b"once upon a time the rain in the north"
        ids = self.llama.tokenize(text)
        self.assertEqual(self.llama.detokenize(ids).strip(), text)
        self.llama.eval(ids)
        self.assertEqual((self.llama.n_tokens, self.llama.scores.shape), (len(ids), (len(ids), 306)))
        expected = subprocess.run([LOGITS, TALKS, text], capture_output=True, text=True, check=True).stdout.strip()
        self.assertEqual(hashlib.sha256(self.llama.scores.tobytes()).hexdigest(), expected)
        state = self.llama.save_state()
        self.llama.eval([5])
        after = self.llama.scores[-1].copy()
        self.llama.reset()
        self.assertEqual(self.llama.n_tokens, 0)
        self.llama.load_state(state)
        self.llama.eval([5])
        self.assertTrue(np.array_equal(self.llama.scores[-1], after))
        tokens = self.llama.generate(ids, temp=0)
        drawn = [next(tokens) for _ in range(4)]
        self.assertEqual(drawn, tinfer.LLM(TALKS, n_ctx=256).generate(ids, temperature=0, max_tokens=4).token_ids)

    def test_vectors(self):
        self.assertEqual(len(self.llama.embed("once")), 64)
        self.assertEqual([entry["index"] for entry in self.llama.create_embedding(["a", "b"])["data"]], [0, 1])


class TokenizerShape(unittest.TestCase):
    def test_texts_rows_and_conversations(self):
        """What tokenizer_test.py shows beside the package, without it."""
        from tinfer.shims.transformers import Tokenizer
        tokenizer = Tokenizer(TALKS)
        ids = tokenizer.encode("once upon")
        self.assertEqual((ids[0], tokenizer.bos_token_id, tokenizer.eos_token), (1, 1, "</s>"))
        self.assertEqual(tokenizer.decode(ids, skip_special_tokens=True).strip(), "once upon")
        rows = tokenizer(["once upon", "a"], padding=True, return_tensors="np")
        self.assertEqual((rows.input_ids.shape, rows["attention_mask"].sum()),
                         ((2, len(ids)), len(ids) + len(tokenizer.encode("a"))))
        talk = [{"role": "user", "content": "once"}]
        whole = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
        part = tokenizer.apply_chat_template(talk, return_dict=False)
        self.assertEqual(whole[:len(part)], part)
        self.assertIn("<user>once\n", tokenizer.apply_chat_template(talk, tokenize=False))
        self.assertRaises(TypeError, tokenizer, [7])
        self.assertRaises(ValueError, tokenizer, ["a"], padding="sideways")
        self.assertRaises(TypeError, Tokenizer(tinfer.Vocab.load(TALKS)).apply_chat_template, talk)


@needs("langchain_core")
class LangChain(unittest.TestCase):
    def setUp(self):
        from tinfer.shims.langchain import ChatTinfer
        self.chat = ChatTinfer(path=TALKS, n_ctx=2048, temperature=0, max_tokens=5)

    def test_answers_streams_and_batches(self):
        answer = self.chat.invoke("once")
        self.assertEqual(answer.content, tinfer.LLM(TALKS, n_ctx=256).chat("once", temperature=0, max_tokens=5).text)
        self.assertEqual(answer.usage_metadata["output_tokens"], 5)
        self.assertEqual("".join(chunk.content for chunk in self.chat.stream("once")), answer.content)
        self.assertEqual([one.content for one in self.chat.batch(["once"] * 3)], [answer.content] * 3)

        async def pieces():
            return "".join([chunk.content async for chunk in self.chat.astream("once")])
        self.assertEqual(asyncio.run(pieces()), answer.content)

    def test_tools(self):
        def add(n: int) -> int:
            """Adds."""
            return n
        answer = self.chat.bind_tools([add], tool_choice="add").invoke("once", max_tokens=300)
        self.assertTrue(answer.tool_calls or answer.response_metadata["finish_reason"] == "length")
        for call in answer.tool_calls:
            self.assertIsInstance(call["args"]["n"], int)

    def test_embeddings(self):
        from tinfer.shims.langchain import TinferEmbeddings
        vectors = TinferEmbeddings(TALKS, n_ctx=256)
        self.assertEqual(vectors.embed_documents(["once", "upon"])[0], vectors.embed_query("once"))


@needs("lm_eval")
class Harness(unittest.TestCase):
    def requests(self, *arguments):
        from lm_eval.api.instance import Instance
        return [Instance("loglikelihood", {}, args, i) for i, args in enumerate(arguments)]

    def test_results_do_not_depend_on_the_batch(self):
        from tinfer.shims.lm_eval import TinferLM
        pairs = self.requests(("once upon", " a time"), ("", "once"), ("the rain ", "in the"), ("once", " upon a time"))
        texts = self.requests(("once upon a time the rain in the north " * 12,), ("once",))
        until = self.requests(("once upon", {"until": ["e"], "max_gen_toks": 6}),
                              ("the", {"until": [], "max_gen_toks": 4}))
        results = []
        for batch_size in (1, 8):
            model = TinferLM(TALKS, n_ctx=1024, batch_size=batch_size, max_length=64)
            results.append((model.loglikelihood(pairs), model.loglikelihood_rolling(texts),
                            model.generate_until(until)))
            one = model.loglikelihood(pairs[:1])[0][0]
            self.assertEqual(one, results[-1][0][0][0])
        self.assertEqual(*results)
        whole = model.llm.score("once upon a time")
        before = len(model.llm.tokenize("once upon"))
        self.assertAlmostEqual(results[0][0][0][0], math.fsum(whole.logprobs[before:]), 9)
        self.assertTrue(all(value < 0 for value in results[0][1]))


@needs("llm")
class Plugin(unittest.TestCase):
    @needs_smollm2
    def test_the_program_llm_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "LLM_USER_PATH": folder}

            def run(*arguments):
                done = subprocess.run([sys.executable, "-m", "llm", *arguments], capture_output=True, text=True,
                                      env=environment, timeout=300)
                self.assertEqual(done.returncode, 0, done.stderr)
                return done.stdout
            run("tinfer", "add", "smol", SMOL)
            self.assertIn("smol:", run("tinfer", "list"))
            options = ["-m", "smol", "-o", "temperature", "0", "-o", "max_tokens", "12", "-n"]
            answer = run(*options, "Say hello.")
            expected = tinfer.LLM(SMOL, n_ctx=512).chat("Say hello.", temperature=0, top_p=0.95, max_tokens=12).text
            self.assertEqual(answer.strip(), expected.strip())
            vector = json.loads(run("embed", "-m", "smol-embed", "-c", "hello"))
            self.assertEqual(len(vector), 576)


if __name__ == "__main__":
    unittest.main()
