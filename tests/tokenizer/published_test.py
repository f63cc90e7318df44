#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Token ids equal those of the published tokenizers, on a megabyte of many languages: SentencePiece with vocabularies
that it trains here, and RWKV's own vocabulary with the package that brings it.

usage: published_test.py path/to/tinfer path/to/bench_tokenizer [unittest arguments]
Packages that cannot be imported skip their cases.
"""
import io
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unittest

TINFER, BENCH = sys.argv.pop(1), sys.argv.pop(1)
SKIPPED = 77   # what CTest takes for skipped: of rows that were not looked at nothing passes
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="tinfer-published-"))
U32, F32, I32, BOOL, STRING, ARRAY, I8 = 4, 6, 5, 7, 8, 9, 1
FORMATS = {U32: "I", F32: "f", I32: "i", BOOL: "?", I8: "b"}


def gguf_string(data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack("<Q", len(data)) + data


def write_vocab(path, keys):
    """A GGUF file of metadata alone; keys: (name, type, value), for arrays (name, (element type,), values)."""
    out = io.BytesIO()
    out.write(b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys)))
    for name, kind, value in keys:
        out.write(gguf_string(name))
        if isinstance(kind, tuple):
            out.write(struct.pack("<IIQ", ARRAY, kind[0], len(value)))
            if kind[0] == STRING:
                out.write(b"".join(map(gguf_string, value)))
            else:
                out.write(struct.pack(f"<{len(value)}{FORMATS[kind[0]]}", *value))
        else:
            out.write(struct.pack("<I", kind))
            out.write(gguf_string(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value))
    path.write_bytes(out.getvalue())
    return path


def fields(data):
    """(number, value) of a protobuf message: bytes, integers, or four and eight bytes as they are."""
    at = 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, data[at:at + size]
        at += size


def gguf_of_sentencepiece(model, path, kind):
    """The GGUF file of a serialized SentencePiece model: `t5` for unigram, `llama` for BPE."""
    tokens, scores, types, normalizer = [], [], [], {}
    for number, value in fields(model):
        if number == 1:
            piece = dict(fields(value))
            tokens.append(piece[1])
            scores.append(struct.unpack("<f", piece[2])[0])
            types.append(piece.get(3, 1))
        elif number == 3:
            normalizer = dict(fields(value))
    keys = [("general.architecture", STRING, kind), ("tokenizer.ggml.model", STRING, kind),
            ("tokenizer.ggml.tokens", (STRING,), tokens), ("tokenizer.ggml.scores", (F32,), scores),
            ("tokenizer.ggml.token_type", (I32,), types), ("tokenizer.ggml.unknown_token_id", U32, types.index(2)),
            ("tokenizer.ggml.add_space_prefix", BOOL, bool(normalizer.get(3, 1))),
            ("tokenizer.ggml.remove_extra_whitespaces", BOOL, bool(normalizer.get(4, 1)))]
    if normalizer.get(2):
        keys.append(("tokenizer.ggml.precompiled_charsmap", (I8,),
                     struct.unpack(f"{len(normalizer[2])}b", normalizer[2])))
    return write_vocab(path, keys)


def corpus():
    """A megabyte of the languages and scripts that the benchmark mixes, in pieces of every length, and hostile
    lines."""
    file = FOLDER / "mixed.txt"
    if not file.exists():
        subprocess.run([BENCH, "--write-text", file, "--bytes", "1000000"], check=True, stdout=subprocess.DEVNULL)
    text, pieces, state, at = file.read_text(encoding="utf-8"), [], random.Random(4), 0
    while at < len(text):
        length = state.choice((1, 3, 17, 80, 400, 2000))
        pieces.append(text[at:at + length])
        at += length
    spaces = (" ", "  ", "\t", "\n", "\u3000", "\u00a0", "\u2581", "\u200b", "")
    for _ in range(2000):
        pieces.append("".join(state.choice(spaces)
                              + chr(state.choice((state.randrange(32, 127), state.randrange(160, 0x2000),
                      state.randrange(0x2000, 0xD800), state.randrange(0xF900, 0x11000))))
                      for _ in range(state.randrange(1, 24))))
    return pieces


def ids_of(vocab, texts):
    lines = FOLDER / "texts.jsonl"
    lines.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
    out = subprocess.run([TINFER, "tokenize", vocab, "--jsonl", "-f", lines, "--no-add-special"], check=True,
                         capture_output=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


class Published(unittest.TestCase):
    def compare(self, vocab, texts, encode, as_good=lambda ours, theirs: False):
        ours = ids_of(vocab, texts)
        self.assertEqual(len(ours), len(texts))
        differing = [(text, a, b) for text, a, b in zip(texts, ours, map(encode, texts)) if a != b
                     and not as_good(a, b)]
        self.assertEqual(differing[:3], [], f"{len(differing)} of {len(texts)} texts")

    def sentencepiece(self, kind, texts=None, **options):
        try:
            import sentencepiece
        except ImportError:
            self.skipTest("no package sentencepiece; scripts/test installs it, or pip install sentencepiece")
        model = io.BytesIO()
        texts = texts or corpus()
        lines = [line for text in texts for line in text.splitlines() if line.strip()]
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=12000,
                                                 character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
                                                 num_threads=1,
                                                 **options)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
        vocab = gguf_of_sentencepiece(model.getvalue(), FOLDER / f"{kind}-{len(options)}.gguf", kind)

        def as_good(ours, theirs):
            # The package adds up in float32: of two spellings of one text, within its rounding, it may take either.
            scores = [sum(processor.get_score(i) for i in ids) for ids in (ours, theirs)]
            unknown = processor.unk_id()
            return (options["model_type"] == "unigram" and ours.count(unknown) == theirs.count(unknown)
                    and scores[0] >= scores[1]
                    and scores[0] - scores[1] <= 1e-6 * abs(scores[0]))

        self.compare(vocab, texts, processor.encode, as_good)

    def test_unigram(self):
        # [T4]
        for rule in ("nmt_nfkc", "nmt_nfkc_cf", "identity"):
            with self.subTest(rule):
                self.sentencepiece("t5", model_type="unigram", normalization_rule_name=rule)

    def test_unigram_that_keeps_its_spaces(self):
        # [T4]
        # a space in front stands for the one that is added
        words = [text for text in corpus() if not text[:1].isspace()]
        self.sentencepiece("t5", words, model_type="unigram", remove_extra_whitespaces=False)
        self.sentencepiece("t5", model_type="unigram", remove_extra_whitespaces=False, add_dummy_prefix=False)

    def test_pieces_with_byte_fallback(self):
        # [T2]
        self.sentencepiece("llama", model_type="bpe", byte_fallback=True, normalization_rule_name="identity",
                           remove_extra_whitespaces=False)

    def test_rwkv_world(self):
        # [T5]
        try:
            import rwkv_tokenizer
        except ImportError:
            self.skipTest("no package rwkv-tokenizer; scripts/test installs it, or pip install rwkv-tokenizer")
        listed = pathlib.Path(rwkv_tokenizer.__file__).parent / "rwkv_vocab_v20230424.txt"
        tokens = {0: b""}
        for line in listed.read_text(encoding="utf-8").splitlines():
            number, literal = line.split(" ", 1)
            text = eval(literal.rsplit(" ", 1)[0], {"__builtins__": {}})   # a Python literal, as the file is defined
            tokens[int(number)] = text if isinstance(text, bytes) else text.encode()
        named = {ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r", ord("\\"): "\\\\"}
        escaped = ["".join(named.get(byte, chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}")
                           for byte in tokens.get(i, b""))
                   for i in range(max(tokens) + 1)]
        vocab = write_vocab(FOLDER / "world.gguf", [("general.architecture", STRING, "rwkv6"),
                                                    ("tokenizer.ggml.model", STRING, "rwkv"),
                                                    ("tokenizer.ggml.tokens", (STRING,), escaped)])
        world = rwkv_tokenizer.WorldTokenizer(str(listed))
        self.compare(vocab, corpus(), lambda text: list(world.encode(text)))


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else SKIPPED if result.skipped else 0)
