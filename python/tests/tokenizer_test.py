# SPDX-License-Identifier: MIT
"""[P1] The tokenizer shim beside transformers itself, whose tokenizer is built from the same file: the same ids, texts
and shapes for the same calls; and inside libraries that want such an object."""
import functools
import os
import sys
import unittest

import numpy as np
from support import PROJECT, SMOL, needs_smollm2

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.insert(0, str(PROJECT / "benchmarks"))
import second_opinion   # noqa: E402
import semchunk         # noqa: E402
import transformers     # noqa: E402
from tokenizers import AddedToken, decoders   # noqa: E402

from tinfer.shims.transformers import Tokenizer   # noqa: E402

TEXTS = ["Hello world", "", " leading", "wörld 𝄞 123 4567", "<|im_start|>user\nHi<|im_end|>\n", "a\n\n\tb  c",
         "It's 5 o'clock. " * 9]
TALK = [{"role": "user", "content": "Hi, what's 2+2?"}, {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Thanks."}]


@functools.cache
def theirs():
    """As the model's repository has it: its vocabulary, merges, template and special tokens."""
    metadata = second_opinion.read_metadata(SMOL)
    tokens = metadata["tokenizer.ggml.tokens"]
    inner = second_opinion.build_byte_level(metadata, second_opinion.PATTERNS["smollm"])
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False)
                              for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == 3])
    names = {name: tokens[metadata[f"tokenizer.ggml.{key}_token_id"]] for name, key in (
        ("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding"))}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=8192,
                                                chat_template=metadata["tokenizer.chat_template"], **names)


@needs_smollm2
class Beside(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ours, cls.theirs = Tokenizer(SMOL), theirs()

    def same(self, call, message=None):
        ours, theirs = call(self.ours), call(self.theirs)
        if hasattr(theirs, "keys"):
            self.assertEqual(set(ours.keys()) - {"token_type_ids"}, set(theirs.keys()) - {"token_type_ids"}, message)
            for key in set(theirs.keys()) - {"token_type_ids"}:
                mine, other = ours[key], theirs[key]
                if isinstance(other, np.ndarray):
                    self.assertEqual((mine.dtype, mine.shape), (other.dtype, other.shape), message)
                    mine, other = mine.tolist(), other.tolist()
                self.assertEqual(mine, other, message)
        else:
            self.assertEqual(ours, theirs, message)

    def test_texts_and_ids(self):
        for text in TEXTS:
            for call in (lambda t: t(text), lambda t: t.encode(text), lambda t: t.tokenize(text),
                         lambda t: t.encode(text, add_special_tokens=False), lambda t: t.decode(t.encode(text)),
                         lambda t: t.decode(t.encode(text), skip_special_tokens=True),
                         lambda t: t.convert_ids_to_tokens(t.encode(text)),
                         lambda t: t.convert_ids_to_tokens(t.encode(text), skip_special_tokens=True),
                         lambda t: t.convert_tokens_to_ids(t.tokenize(text)),
                         lambda t: t.convert_tokens_to_string(t.tokenize(text)),
                         lambda t: t(text, truncation=True, max_length=2), lambda t: t(text, "second")["input_ids"]):
                self.same(call, text)

    def test_rows(self):
        for options in ({}, {"padding": True}, {"padding": "longest", "pad_to_multiple_of": 8},
                        {"padding": "max_length", "max_length": 40, "truncation": True},
                        {"padding": True, "truncation": True, "max_length": 3},
                        {"padding": True, "return_tensors": "np"}):
            self.same(lambda t: t(TEXTS, **options), options)
        self.same(lambda t: t.batch_decode([t.encode(text) for text in TEXTS]))
        self.same(lambda t: t.batch_decode(np.array([[81, 82], [83, 84]])))
        self.same(lambda t: t.decode(81))
        self.same(lambda t: t.pad({"input_ids": [[81], [82, 83]]}))
        self.same(lambda t: t.pad([t("a"), t("b c d")], return_tensors="np"))
        self.same(lambda t: t("a", return_tensors="np"))
        for side in ("left", "right"):
            self.ours.padding_side = self.theirs.padding_side = side
            self.same(lambda t: t(["a", "b c d"], padding=True), side)

    def test_what_it_has(self):
        for name in ("bos_token", "bos_token_id", "eos_token", "eos_token_id", "pad_token", "pad_token_id",
                     "unk_token", "unk_token_id", "sep_token", "sep_token_id", "mask_token", "cls_token_id",
                     "vocab_size", "model_max_length", "padding_side", "truncation_side", "special_tokens_map"):
            self.same(lambda t: getattr(t, name), name)
        self.same(lambda t: sorted(t.all_special_ids))
        self.same(lambda t: sorted(t.all_special_tokens))
        self.same(len)
        self.same(lambda t: t.get_vocab())
        self.same(lambda t: t.convert_tokens_to_ids(["no such token", "Hello"]))
        self.assertRaises(AttributeError, getattr, self.ours, "cats_token")

    def test_conversations(self):
        for follows in (False, True):
            self.same(lambda t: t.apply_chat_template(TALK, tokenize=False, add_generation_prompt=follows))
            self.same(lambda t: t.apply_chat_template(TALK, add_generation_prompt=follows))
            self.same(lambda t: t.apply_chat_template(TALK, add_generation_prompt=follows, return_dict=False))
            self.same(lambda t: t.apply_chat_template(TALK, add_generation_prompt=follows, return_tensors="np"))
        # Here they part: what a message says is text.
        said = [{"role": "user", "content": "<|im_end|>"}]
        ids = self.ours.apply_chat_template(said, return_dict=False)
        self.assertLess(ids.count(2), self.theirs.apply_chat_template(said, return_dict=False).count(2))

    def test_libraries_that_want_one(self):
        text = " ".join(f"Sentence number {i} says something. It ends here." for i in range(60))
        self.same(lambda t: semchunk.chunkerify(t, 24)(text))
        for make in (lambda t: transformers.DataCollatorWithPadding(t, return_tensors="np"),
                     lambda t: transformers.DataCollatorWithPadding(t, padding="max_length", max_length=12,
                                                                    return_tensors="np")):
            self.same(lambda t: make(t)([t("a"), t("b c d")]))


if __name__ == "__main__":
    unittest.main()
