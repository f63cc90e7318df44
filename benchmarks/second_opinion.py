#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Another implementation's token ids and speed for the same vocabulary and text: the PyPI package `tokenizers`, built
from the vocabulary and merges or scores of a GGUF file. Ids must be equal; speeds, of one thread each, are printed side
by side and decide nothing. Without the package, or without a vocabulary it can be built for, says so and exits with 77.

usage: second_opinion.py BENCH_TOKENIZER [VOCAB.gguf…] [--bytes 1000000] [--runs 3]
Without vocabularies: those of the golden data (TINFER_GOLDEN) and of the models in models/.
"""
import argparse
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parents[1]
SKIPPED = 77   # what CTest takes for skipped
SPACE = "\u2581"
NORMAL, USER_DEFINED = 1, 4   # token types

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
# As the models publish them, by the names that GGUF files give. The golden data has further ones.
PATTERNS = {
    "gpt-2": [GPT2], "mpt": [GPT2], "olmo": [GPT2],
    "starcoder": [r"\p{N}", GPT2], "refact": [r"\p{N}", GPT2], "smollm": [r"\p{N}", GPT2],
    "command-r": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "llama-bpe": [LLAMA3], "qwen2": [QWEN2],
}

# What cleaning must get right: scripts whose letters are written in several characters, or with marks beside them.
SCRIPTS = {
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 값진 닭과 흙, 꽃밭을 밟다; 뷁 쀓 ㄱㄴㄷ ㅏㅑㅓ.",
    "Latin": "Où ça? L'été à Málaga, œuvre déjà vécue. Zażółć gęślą jaźń. Příliš žluťoučký kůň. Tiếng Việt: những ngày "
             "rồi sẽ ổn. Ǖ ṩ ḗ.",
    "Hebrew": "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ׃ וְהָאָרֶץ הָיְתָה תֹהוּ וָבֹהוּ. "
              "\ufb2a\ufb4b",
    "Arabic": "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ؛ آمَنَ رُؤًى، مَسْؤُولٌ.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। क़लम ज़मीन ड़ ढ़ फ़र्क।",
}


def text_of_scripts():
    """Each as it is, composed, decomposed; their words in turn; marks where no letter is, and in an order of their
    own."""
    texts = [form(text) for text in SCRIPTS.values()
             for form in (str, lambda t: unicodedata.normalize("NFC", t), lambda t: unicodedata.normalize("NFD", t))]
    words = [text.split() for text in texts]
    texts += [" ".join(w[i % len(w)] for w in words) for i in range(max(map(len, words)))]
    texts += ["".join(w[i % len(w)] for w in words) for i in range(8)]
    decomposed = unicodedata.normalize("NFD", SCRIPTS["Latin"] + SCRIPTS["Hebrew"])
    marks = [c for c in decomposed if unicodedata.combining(c)]
    texts += [f"a{x}{y} {y}b {x}" for x in marks[::5] for y in marks[::7]]
    return "\n".join(texts)


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


def build_wordpiece(metadata):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", [])
    special = {i for i, kind in enumerate(types) if kind != NORMAL}
    vocab = {t if i in special else t[1:] if t[0] == SPACE else "##" + t: i for i, t in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def build_byte_level(metadata, patterns):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]) for m in metadata["tokenizer.ggml.merges"]]
    whole = metadata.get("tokenizer.ggml.pre") == "llama-bpe"
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=whole))
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits
                                                      + [pre_tokenizers.ByteLevel(add_prefix_space=False,
                                                                                  use_regex=False)])
    return tokenizer


def build_spm(metadata):
    """Scores become ranks: every way to put a piece together from two others, the best score first."""
    from tokenizers import Tokenizer, models, normalizers
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    vocab = {t: i for i, t in enumerate(tokens)}
    ways = [(-scores[i], vocab[t[:k]], vocab[t[k:]], t[:k], t[k:]) for i, t in enumerate(tokens)
            for k in range(1, len(t)) if t[:k] in vocab and t[k:] in vocab]
    tokenizer = Tokenizer(models.BPE(vocab, [way[3:] for way in sorted(ways)], byte_fallback=True, unk_token=tokens[0],
                                     fuse_unk=True))
    steps = [normalizers.Replace(" ", SPACE)]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    return tokenizer


def build(metadata, patterns):
    """The same tokenizer, or why there is none. `patterns` by the names that GGUF files give to pre-tokenizers."""
    from tokenizers import AddedToken
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if model == "bert":
        return build_wordpiece(metadata)   # cuts out no added tokens
    if model == "gpt2" and pre in patterns:
        tokenizer = build_byte_level(metadata, patterns[pre])
    elif model == "llama":
        tokenizer = build_spm(metadata)
    else:
        return f"model '{model}' with pre-tokenizer '{pre}' is not built here"
    pairs = zip(metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type", []))
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in pairs if kind == USER_DEFINED])
    return tokenizer


def golden_folder():
    path = pathlib.Path(os.environ.get("TINFER_GOLDEN") or ROOT.parent / "shared" / "golden")
    return path if path.is_dir() else None


def all_patterns():
    """PATTERNS, and the expressions of the golden data under the names of their families."""
    folder = golden_folder()
    files = folder.glob("pretok/*.json") if folder else []
    families = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {family["family"]: family["patterns"] for family in families if "family" in family} | PATTERNS


def all_vocabularies():
    folder = golden_folder()
    return sorted(folder.glob("vocabs/*.gguf") if folder else []) + sorted(ROOT.glob("models/*.gguf"))


def best_seconds(n_runs, work):
    best = float("inf")
    for _ in range(n_runs):
        begin = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begin)
    return best, result


def compare(bench, path, text_file, patterns, n_runs):
    """Whether the ids of a text are equal; None where nothing could be compared."""
    text = text_file.read_bytes().decode("utf-8")
    tokenizer = build(read_metadata(path), patterns)
    name = f"{pathlib.Path(path).stem}, {text_file.stem}"
    if isinstance(tokenizer, str):
        print(f"{name}: {tokenizer}")
        return None
    seconds, theirs = best_seconds(n_runs, lambda: tokenizer.encode(text, add_special_tokens=False).ids)
    ids_file = text_file.with_suffix(".ids")
    record = json.loads(subprocess.run([bench, "--vocab", path, "--text", text_file, "--write-ids", ids_file,
                                        "--runs", str(n_runs), "--json"],
                                       check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    ours = [int(line) for line in ids_file.read_text().split()]
    their_mbps = len(text.encode()) / seconds * 1e-6
    differs = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), None)
    if differs is None and len(ours) != len(theirs):
        differs = min(len(ours), len(theirs))
    verdict = "equal"
    if differs is not None:
        some = slice(differs, differs + 5)
        verdict = f"DIFFERENT from token {differs} on: {ours[some]}, {theirs[some]}"
    print(f"{name}: {len(ours)} tokens, {verdict}; tinfer {record['encode_mbps']} MB/s, tokenizers "
          f"{their_mbps:.2f} MB/s: "
          f"{record['encode_mbps'] / their_mbps:.1f} times", flush=True)
    return differs is None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bench")
    parser.add_argument("vocabs", nargs="*")
    parser.add_argument("--bytes", type=int, default=1000000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    try:
        import tokenizers
    except ImportError:
        print(f"skipped: no package tokenizers for {sys.executable}; scripts/test installs it, or pip install "
              f"tokenizers")
        return SKIPPED
    print(f"tokenizers {tokenizers.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        text_file = pathlib.Path(folder) / "mixed.txt"
        subprocess.run([args.bench, "--write-text", text_file, "--bytes", str(args.bytes)], check=True)
        scripts_file = pathlib.Path(folder) / "scripts.txt"
        scripts_file.write_text(text_of_scripts(), encoding="utf-8")
        patterns = all_patterns()
        results = [compare(args.bench, path, file, patterns, args.runs)
                   for path in args.vocabs or all_vocabularies() for file in (text_file, scripts_file)]
    if set(results) <= {None}:
        print("skipped: no vocabulary to compare; set TINFER_GOLDEN to the folder of golden data")
        return SKIPPED
    return 1 if False in results else 0


if __name__ == "__main__":
    sys.exit(main())
