# SPDX-License-Identifier: MIT
"""What clients_test.py runs in the environment with dspy and outlines: programs over prompts, and answers that have a
structure, through the server."""
import json
import os
import typing
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look at the network for prices

import dspy
import openai
import outlines
import pydantic

from server_support import Server

BIAS = {"2": -100}


class Place(pydantic.BaseModel):
    """A place."""
    sunny: bool
    number: pydantic.conint(ge=0, le=9)


class Judge(dspy.Signature):
    """Judges a text."""
    text: str = dspy.InputField()
    sunny: bool = dspy.OutputField()
    kind: typing.Literal["good", "bad"] = dspy.OutputField()


class Structured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 4096, "--any-model", "--api-key", "sk-test")
        cls.base = cls.server.address + "/v1"

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def test_v13_outlines(self):  # [V13]
        """outlines: a text, a type's JSON whole and as a stream, a wrong key"""
        client = openai.OpenAI(base_url=self.base, api_key="sk-test", max_retries=0)
        model = outlines.from_openai(client, "m")
        plain = model("Hello", max_tokens=8, temperature=0, logit_bias=BIAS)
        ours = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0, "logit_bias": BIAS},
            Authorization="Bearer sk-test")
        self.assertEqual(plain, ours["choices"][0]["message"]["content"])
        for seed in range(3):
            Place.model_validate_json(model("Hello", Place, max_tokens=1500, seed=seed))
        self.assertIsInstance(outlines.Generator(model, Place)("Hello", max_tokens=1500, seed=1), str)
        parts = list(model.stream("Hello", Place, max_tokens=1500, seed=1))
        self.assertGreater(len(parts), 3)
        Place.model_validate_json("".join(parts))
        wrong = outlines.from_openai(openai.OpenAI(base_url=self.base, api_key="sk-wrong", max_retries=0), "m")
        self.assertRaises(Exception, wrong, "Hello")

    def test_v13_outlines_as_vllm(self):  # [V13]
        """outlines for servers of vLLM: a type's JSON, a regular expression, one of some texts, a grammar"""
        client = openai.OpenAI(base_url=self.base, api_key="sk-test", max_retries=0)
        model = outlines.from_vllm(client, "m")
        Place.model_validate_json(model("Hello", Place, max_tokens=1500, seed=1))
        number = outlines.types.Regex(r"[0-9]{3}-[a-c]{2,4}")
        for seed in range(3):
            self.assertRegex(model("Hello", number, max_tokens=40, seed=seed), r"\A[0-9]{3}-[a-c]{2,4}\Z")
            self.assertIn(model("Hello", typing.Literal["good", "so so"], max_tokens=40, seed=seed), ("good", "so so"))
        grammar = outlines.types.CFG('root ::= "<" [x-z]{2} ">"')
        self.assertRegex(model("Hello", grammar, max_tokens=40, seed=1), r"\A<[x-z]{2}>\Z")

    def test_v13_dspy(self):  # [V13]
        """dspy: a language model, signatures with types, a module of several calls, threads, and what was used"""
        model = dspy.LM("openai/gpt-4o", api_base=self.base, api_key="sk-test", cache=False, max_tokens=1500,
                        temperature=0.7, seed=3, num_retries=0)   # a name that dspy knows to take schemas
        with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
            for text in ("once", "the rain in the north"):
                found = dspy.Predict(Judge)(text=text)
                self.assertIsInstance(found.sunny, bool)
                self.assertIn(found.kind, ("good", "bad"))
            entry = model.history[-1]
            self.assertGreater(entry["usage"]["completion_tokens"], 3)
            json.loads(entry["outputs"][0] if isinstance(entry["outputs"][0], str) else entry["outputs"][0]["text"])

            class Twice(dspy.Module):
                def __init__(self):
                    super().__init__()
                    self.first, self.second = dspy.Predict(Judge), dspy.Predict("text, sunny: bool -> sure: bool")

                def forward(self, text):
                    judged = self.first(text=text)
                    return self.second(text=text, sunny=judged.sunny)
            self.assertIsInstance(Twice()(text="once").sure, bool)
            examples = [dspy.Example(text=text).with_inputs("text") for text in ("a", "b", "c", "d")]
            several = dspy.Predict(Judge).batch(examples, num_threads=4)
            self.assertEqual([type(each.sunny) for each in several], [bool] * 4)
        [text] = model("Hello", max_tokens=8, temperature=0, logit_bias=BIAS)
        self.assertTrue(text)


if __name__ == "__main__":
    unittest.main()
