#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Another implementation's token ids and speed for the same vocabulary and text: the PyPI package `tokenizers`, built from
the vocabulary and merges of a GGUF file. Ids must be equal; speeds are printed side by side. Without the package, or for
vocabularies it cannot be built for, says so and succeeds.

usage: second_opinion.py BENCH_TOKENIZER VOCAB.gguf… [--bytes 1000000]
"""
import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import time

SKIPPED = 77   # what CTest takes for skipped

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
# As the models publish them, by the names that GGUF files give.
PATTERNS = {
    "gpt-2": [GPT2], "mpt": [GPT2], "olmo": [GPT2],
    "starcoder": [r"\p{N}", GPT2], "refact": [r"\p{N}", GPT2], "smollm": [r"\p{N}", GPT2], "command-r": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "llama-bpe": [LLAMA3], "qwen2": [QWEN2],
}


def read_metadata(path):
    """Keys and values of a GGUF file of version 2 or 3."""
    data, at = pathlib.Path(path).read_bytes(), 8
    formats = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def scalar(code):
        nonlocal at
        (value,) = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize("<" + code)
        return value

    def read(kind):
        nonlocal at
        if kind == 8:
            n = scalar("Q")
            at += n
            return data[at - n:at].decode("utf-8", "surrogateescape")
        if kind == 9:
            kind, n = scalar("I"), scalar("Q")
            return [read(kind) for _ in range(n)]
        return scalar(formats[kind])

    scalar("Q")   # tensors
    return {read(8): read(scalar("I")) for _ in range(scalar("Q"))}


def build(metadata):
    """The same tokenizer, or why there is none."""
    from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
    model = metadata["tokenizer.ggml.model"]
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    if model == "bert":
        special = {i for i, kind in enumerate(types) if kind != 1}
        vocab = {t if i in special else t[1:] if t[0] == "\u2581" else "##" + t: i for i, t in enumerate(tokens)}
        tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=10**6))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer
    pre = metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in PATTERNS:
        return f"model '{model}' with pre-tokenizer '{pre}' is not built here"
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=pre == "llama-bpe"))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in PATTERNS[pre]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == 4])
    return tokenizer


def compare(bench, path, text_file):
    text = text_file.read_bytes().decode("utf-8")
    tokenizer = build(read_metadata(path))
    name = pathlib.Path(path).stem
    if isinstance(tokenizer, str):
        print(f"{name}: {tokenizer}")
        return True
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        theirs = tokenizer.encode(text, add_special_tokens=False).ids
        best = min(best, time.perf_counter() - begin)
    ids_file = text_file.with_suffix(".ids")
    record = json.loads(subprocess.run([bench, "--vocab", path, "--text", text_file, "--write-ids", ids_file, "--json"],
                                       check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    ours = [int(line) for line in ids_file.read_text().split()]
    their_mbps = len(text.encode()) / best * 1e-6
    differs = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
    if differs is None and len(ours) != len(theirs):
        differs = min(len(ours), len(theirs))
    verdict = "equal" if differs is None else f"DIFFERENT from token {differs} on: {ours[differs:differs + 5]}, {theirs[differs:differs + 5]}"
    print(f"{name}: {len(ours)} tokens, {verdict}; tinfer {record['encode_mbps']} MB/s, tokenizers {their_mbps:.1f} MB/s: "
          f"{record['encode_mbps'] / their_mbps:.1f} times")
    return differs is None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("vocabs", nargs="+")
    parser.add_argument("--bytes", type=int, default=1000000)
    args = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("skipped: pip install tokenizers")
        return SKIPPED
    print(f"tokenizers {tokenizers.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        text_file = pathlib.Path(folder) / "mixed.txt"
        subprocess.run([args.bench, "--write-text", text_file, "--bytes", str(args.bytes)], check=True)
        results = [compare(args.bench, path, text_file) for path in args.vocabs]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
