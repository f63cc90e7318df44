# SPDX-License-Identifier: MIT
"""[P1] LLM and SamplingParams: the floor for answers."""
import asyncio
import json
import math
import threading
import unittest

import numpy as np

import tinfer
from support import LORA, SMOL, TALKS, needs_smollm2
from tinfer import SamplingParams


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.llm = tinfer.LLM(TALKS, n_ctx=1024, n_parallel=4)

    @classmethod
    def tearDownClass(cls):
        cls.llm.close()

    def test_the_order_is_that_of_the_prompts_and_neighbours_change_nothing(self):
        prompts = ["once upon a time"[:i + 1] for i in range(12)]
        params = SamplingParams(seed=3, max_tokens=6, logprobs=2)
        together = self.llm.generate(prompts, params)
        self.assertEqual([output.prompt for output in together], prompts)
        for prompt, output in zip(prompts, together):
            alone = self.llm.generate(prompt, params)
            self.assertEqual((alone.text, alone.token_ids, alone.logprobs),
                             (output.text, output.token_ids, output.logprobs))
            self.assertEqual(len(output.logprobs), len(output.token_ids))
            self.assertIn(output.finish_reason, ("length", "stop"))
            self.assertLessEqual(output.cumulative_logprob, 0)

    def test_prompts_are_texts_or_ids_and_params_one_each(self):
        ids = self.llm.tokenize("once")
        params = [SamplingParams(temperature=0, max_tokens=n) for n in (1, 2, 3)]
        outputs = self.llm.generate(["once", ids, np.array(ids)], params)
        self.assertEqual([len(output.token_ids) for output in outputs], [1, 2, 3])
        self.assertEqual(outputs[2].token_ids[:2], outputs[1].token_ids)
        self.assertEqual(self.llm.generate([], max_tokens=3), [])
        self.assertEqual(len(self.llm.generate(ids, max_tokens=2, temperature=0).outputs), 1)
        self.assertRaises(ValueError, self.llm.generate, ["a", "b"], params)
        self.assertRaises(TypeError, self.llm.generate, "a", "b")
        self.assertRaises(TypeError, self.llm.generate, None)
        self.assertRaises(TypeError, self.llm.generate, "a", cats=1)

    def test_bad_parameters_are_refused_by_name(self):
        for name, value in (("temperature", math.nan), ("temperature", -1), ("top_p", 0), ("top_p", math.inf),
                            ("min_p", 2), ("max_tokens", -1), ("seed", -1), ("seed", 2**32), ("logprobs", 101)):
            with self.assertRaisesRegex(ValueError, name):
                SamplingParams(**{name: value})
        for name, value in (("temperature", "hot"), ("max_tokens", 1.5), ("top_k", None), ("stop", [1]),
                            ("seed", True)):
            self.assertRaises(TypeError, SamplingParams, **{name: value})
        self.assertRaises(tinfer.Error, self.llm.generate, "a", grammar="root ::= (")
        self.assertRaises(tinfer.Error, self.llm.generate, "a", schema={"type": "cat"})
        self.assertRaises(tinfer.Error, self.llm.generate, "once " * 3000)

    def test_stops_schemas_and_grammars(self):
        output = self.llm.generate("once", grammar='root ::= "yes" | "no"', seed=1)
        self.assertIn(output.text, ("yes", "no"))
        self.assertEqual(output.finish_reason, "stop")
        output = self.llm.generate("once", grammar='root ::= "abc"', stop="bc", seed=1)
        self.assertEqual((output.text, output.stop_reason), ("a", "bc"))
        output = self.llm.generate("once", schema={"enum": [1, "x"]}, seed=1)
        self.assertIn(output.json(), (1, "x"))

    def test_chat_and_its_tools(self):
        output = self.llm.chat("once", max_tokens=4, temperature=0)
        self.assertIn("<user>once", output.prompt)
        many = self.llm.chat([[{"role": "user", "content": text}] for text in ("once", "twice")], max_tokens=4,
                             temperature=0)
        self.assertEqual(many[0].token_ids, output.token_ids)
        tools = [{"type": "function", "function": {"name": "add", "parameters": {
            "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}},
            "required": ["n"]}}}]
        output = self.llm.chat("once", tools=tools, tool_choice="add", max_tokens=200, seed=2)
        if output.finish_reason == "tool_calls":
            [call] = output.tool_calls[:1]
            self.assertEqual(call["name"], "add")
            self.assertIn(json.loads(call["arguments"])["n"], range(10))
        output = self.llm.chat("once", schema={"enum": ["a", "b"]}, seed=2)
        self.assertIn(output.json(), ("a", "b"))
        self.assertEqual(self.llm.chat(["once"], max_tokens=4, temperature=0)[0].token_ids, many[0].token_ids)
        self.assertRaises(TypeError, self.llm.chat, [7])
        self.assertRaises(TypeError, self.llm.chat, {"role": "user", "content": "x"})
        self.assertRaises(tinfer.Error, self.llm.chat, [{"nothing": 1}])

    def test_streams_give_the_text_in_pieces(self):
        whole = self.llm.generate("once upon", temperature=0, max_tokens=8, seed=1)
        stream = self.llm.stream("once upon", temperature=0, max_tokens=8, seed=1)
        pieces = list(stream)
        self.assertEqual("".join(pieces), whole.text)
        self.assertEqual((stream.output.text, stream.output.token_ids, stream.output.finish_reason),
                         (whole.text, whole.token_ids, whole.finish_reason))
        with self.llm.stream("once", max_tokens=500) as stream:
            next(iter(stream), None)
        talk = [{"role": "user", "content": "once"}]
        self.assertEqual("".join(self.llm.stream(talk, temperature=0, max_tokens=5)),
                         self.llm.chat(talk, temperature=0, max_tokens=5).text)

    def test_streams_of_asyncio_and_of_threads(self):
        expected = [self.llm.generate(f"once {i}", temperature=0, max_tokens=5).text for i in range(20)]

        async def one(i):
            return "".join([text async for text in self.llm.stream(f"once {i}", temperature=0, max_tokens=5)])

        async def everything():
            return await asyncio.gather(*(one(i) for i in range(20)))
        self.assertEqual(asyncio.run(everything()), expected)
        found = {}

        def work(i):
            found[i] = self.llm.generate(f"once {i}", temperature=0, max_tokens=5).text
        threads = [threading.Thread(target=work, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[i] for i in range(20)], expected)

    def test_embed_and_score(self):
        vectors = self.llm.embed(["once", "upon a time", "once"])
        self.assertEqual((vectors.shape, vectors.dtype), ((3, 64), np.float32))
        self.assertTrue(np.array_equal(vectors[0], vectors[2]))
        self.assertTrue(np.allclose(np.linalg.norm(vectors, axis=1), 1))
        self.assertTrue(np.array_equal(self.llm.embed("once"), vectors[0]))
        self.assertEqual(self.llm.embed([]).shape, (0, 64))
        self.assertRaises(ValueError, self.llm.embed, "a", pooling="sum")
        score = self.llm.score("once upon")
        context = tinfer.Context(self.llm.model, n_ctx=64, logits_all=True)
        context.decode(score.token_ids)
        for i in range(1, len(score.token_ids)):
            row = context.logits(i - 1).astype(np.float64)
            expected = row[score.token_ids[i]] - (row.max() + np.log(np.exp(row - row.max()).sum()))
            self.assertAlmostEqual(score.logprobs[i], expected, 12)
        self.assertIsNone(score.logprobs[0])
        self.assertAlmostEqual(score.log_prob, sum(score.logprobs[1:]))
        with self.assertRaises(tinfer.Error) as caught:
            self.llm.rank("once", ["upon"])
        self.assertEqual(caught.exception.code, "unsupported_operation")

    def test_memory_and_adapters(self):
        with self.assertRaises(tinfer.Error) as caught:
            tinfer.LLM(TALKS, ram=1000)
        self.assertEqual(caught.exception.code, "limit_exceeded")
        with tinfer.LLM(TALKS, n_ctx=256, lora=(LORA, 1.0)) as changed:
            self.assertNotEqual(changed.score("once upon").log_prob, self.llm.score("once upon").log_prob)
        with self.assertRaises(tinfer.Error) as caught:
            changed.generate("once")
        self.assertEqual(caught.exception.code, "bad_parameter")

    @needs_smollm2
    def test_a_real_model_answers(self):
        with tinfer.LLM(SMOL, n_ctx=1024) as llm:
            output = llm.generate("The capital of France is", temperature=0, max_tokens=4)
            self.assertIn("Paris", output.text)
            context = tinfer.Context(llm.model, n_ctx=256)
            ids = list(output.prompt_token_ids)
            for token in output.token_ids:       # greedy, one token at a time, on one sequence
                context.decode(ids)
                self.assertEqual(int(context.logits().argmax()), token)
                ids = [token]


if __name__ == "__main__":
    unittest.main()
