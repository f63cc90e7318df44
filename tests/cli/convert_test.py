#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tinfer convert` on small checkpoints made on the spot: what changes on the way, what is refused, and what is left
behind when it is interrupted.

usage: convert_test.py path/to/tinfer [unittest arguments]
"""
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

import checkpoints
from checkpoints import Gguf, LLAMA, llama_tensors, save_checkpoint, tokenizer_json
from cli_support import FOLDER, TINFER, environment, tinfer


def convert(folder, *args, code=0, type="f32"):
    out = FOLDER / f"{folder.name}.gguf"
    tinfer("convert", folder, "-o", out, "--type", type, *args, code=code)
    return out


class Checkpoint(unittest.TestCase):
    def folder(self, config=None, tensors=None, name=None, **more):
        config = LLAMA | (config or {})
        folder = FOLDER / (name or self.id().rsplit(".", 1)[1])
        shutil.rmtree(folder, ignore_errors=True)
        return save_checkpoint(folder, config, llama_tensors(config) if tensors is None else tensors, **more)

    def refused(self, folder, *names, args=()):
        out = FOLDER / "refused.gguf"
        tinfer("convert", folder, "-o", out, *args, code=1)
        for name in names:
            self.assertIn(name, tinfer.stderr.replace(str(folder), ""))
        self.assertEqual([f.name for f in FOLDER.iterdir() if f.name.startswith("refused")], [])


class Values(Checkpoint):
    def test_rows_and_biases_of_q_and_k_are_permuted(self):
        """[Q4] New row 2j+t of a head is row t·d/2+j; q has four heads, k two, and v stays."""
        for head_dim in (8, 12):
            config = LLAMA | {"head_dim": head_dim}
            tensors = llama_tensors(config, biases=True)
            file = Gguf(convert(self.folder(config, tensors, name=f"heads{head_dim}")))
            for role, source in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj")):
                for kind, width in (("weight", 32), ("bias", 1)):
                    old = tensors[f"model.layers.1.self_attn.{source}.{kind}"][2]
                    rows = [old[i:i + width] for i in range(0, len(old), width)]
                    new = [rows[i - i % head_dim + i % head_dim % 2 * head_dim // 2 + i % head_dim // 2]
                           for i in range(len(rows))] if role != "v" else rows
                    self.assertEqual(file.floats(f"blk.1.attn_{role}.{kind}"), [x for row in new for x in row])

    def test_types_of_the_checkpoint_mix(self):
        """[Q4] Values are the same whatever they are stored as, in shards whose order is not that of names."""
        config, kinds = LLAMA, ("F32", "F16", "BF16", "F64")
        tensors = {name: (kinds[i % 4], shape, values)
                   for i, (name, (_, shape, values)) in enumerate(llama_tensors(config).items())}
        plain = convert(self.folder(config, llama_tensors(config), name="plain"), "--name", "x")
        folder = self.folder(config, None, name="mixed")
        (folder / "model.safetensors").unlink()
        names = list(tensors)
        parts = {"model-00001-of-00002.safetensors": names[1::2], "model-00002-of-00002.safetensors": names[0::2]}
        for file, own in parts.items():
            checkpoints.save_safetensors(folder / file, {n: tensors[n] for n in own}, order=list(reversed(own)))
        without_index = convert(folder, "--name", "x").read_bytes()
        (folder / "model.safetensors.index.json").write_text(json.dumps(
            {"metadata": {}, "weight_map": {n: file for file, own in parts.items() for n in own}}))
        mixed = convert(folder, "--name", "x").read_bytes()
        self.assertEqual(mixed, without_index)
        self.assertEqual(mixed, plain.read_bytes())

    def test_the_head_is_left_out_where_it_is_tied(self):
        """[Q4] With lm_head beside it, without, and where config.json does not say."""
        for tie, head, has_output in ((True, True, False), (True, False, False), (None, False, False),
                                      (None, True, True), (False, True, True)):
            config = LLAMA | {"tie_word_embeddings": tie}
            file = Gguf(convert(self.folder(config, llama_tensors(config, head=head), name="tied")))
            self.assertEqual("output.weight" in file.tensors, has_output, (tie, head))
        folder = self.folder(LLAMA, llama_tensors(LLAMA, head=False))
        self.refused(folder, "lm_head.weight")

    def test_llama3_scaling_becomes_a_tensor(self):
        """[Q4] Factors by wavelength, from f64; numbers may be written as 1e6 or 8.0."""
        scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4,
                   "original_max_position_embeddings": 64.0}
        file = Gguf(convert(self.folder({"rope_scaling": scaling, "rope_theta": 1e4, "head_dim": 16})))
        expected = []
        for i in range(8):
            wave = 2 * 3.141592653589793 * 1e4 ** (2 * i / 16)
            u = (64 / wave - 1) / 3
            expected.append(1 if wave < 16 else 8 if wave > 64 else 1 / ((1 - u) / 8 + u))
        for got, wanted in zip(file.floats("rope_freqs.weight"), expected):
            self.assertAlmostEqual(got, wanted, delta=1e-6 * wanted)

    def test_padded_rows_fill_the_vocabulary(self):
        """[Q4] More rows than tokens: unused ones; the other way round is refused."""
        tensors = llama_tensors(LLAMA)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            tensors[name] = ("F32", [264, 32], checkpoints.random_values([264, 32], name))
        file = Gguf(convert(self.folder({}, tensors)))
        self.assertEqual(file.keys["tokenizer.ggml.tokens"][259:], [b"[PAD%d]" % i for i in range(259, 264)])
        self.assertEqual(file.keys["tokenizer.ggml.token_type"][258:], [3] + [5] * 5)
        self.assertEqual(file.keys["llama.vocab_size"], 264)
        self.refused(self.folder({"vocab_size": 300}), "vocab_size")

    def test_types_that_are_asked_for(self):
        """[Q4] Norms stay f32, matrices get the type; rows that are no whole blocks get another; f16 may overflow."""
        tensors = llama_tensors(LLAMA)
        folder = self.folder({}, tensors)
        kinds = {name: kind for name, (_, kind, _) in Gguf(convert(folder, type="q8_0")).tensors.items()}
        self.assertEqual((kinds["blk.0.attn_norm.weight"], kinds["blk.0.attn_q.weight"]), (0, 8))
        self.assertEqual(kinds["blk.0.ffn_down.weight"], 1)  # rows of 48
        values = list(tensors["model.layers.1.mlp.up_proj.weight"][2])
        values[5] = 70000.0
        tensors["model.layers.1.mlp.up_proj.weight"] = ("F32", [48, 32], values)
        self.refused(self.folder({}, tensors, name="large"), "model.layers.1.mlp.up_proj.weight", "bf16",
                     args=("--type", "f16"))
        convert(self.folder({}, tensors, name="large"), type="bf16")

    def test_bytes_depend_on_the_files_alone(self):
        """[Q4] Threads, runs and shards: equal bytes, and equal tensors."""
        folder = self.folder()
        one, four = (convert(folder, "-t", n, type="q8_0").read_bytes() for n in (1, 4))
        self.assertEqual(one, four)
        whole = Gguf(FOLDER / f"{folder.name}.gguf")
        out = FOLDER / "cut.gguf"
        files = json.loads(tinfer("convert", folder, "-o", out, "--type", "q8_0", "--split-max-size", "40K",
                                  "--json"))["files"]
        self.assertGreater(len(files), 1)
        found = {}
        for file in map(Gguf, files):
            found |= {name: kind for name, (_, kind, _) in file.tensors.items()}
        self.assertEqual(found, {name: kind for name, (_, kind, _) in whole.tensors.items()})
        for file in files:
            os.remove(file)


class Texts(Checkpoint):
    def keys(self, **files):
        tokenizer = files.pop("tokenizer", None)
        return Gguf(convert(self.folder(tokenizer=tokenizer, **files))).keys

    def test_special_ids_come_from_texts_first(self):
        """[Q4] tokenizer_config.json before config.json; ids beyond the vocabulary are left out."""
        keys = self.keys(**{"tokenizer_config.json": {"eos_token": {"content": "the"}, "bos_token": "no such"}})
        self.assertEqual(keys["tokenizer.ggml.eos_token_id"], 257)
        self.assertEqual(keys["tokenizer.ggml.bos_token_id"], 258)
        keys = self.keys(config={"eos_token_id": 4000})
        self.assertNotIn("tokenizer.ggml.eos_token_id", keys)

    def test_the_post_processor_says_more_than_the_flags(self):
        """[Q4] bos by template against add_bos_token."""
        template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
                                                             {"Sequence": {"id": "A", "type_id": 0}}]}
        flags = {"tokenizer_config.json": {"add_bos_token": False, "add_eos_token": True}}
        keys = self.keys(tokenizer=tokenizer_json(post_processor={"type": "Sequence", "processors": [
            {"type": "ByteLevel"}, template]}), **flags)
        self.assertEqual((keys["tokenizer.ggml.add_bos_token"], keys["tokenizer.ggml.add_eos_token"]), (True, False))
        keys = self.keys(**flags)
        self.assertEqual((keys["tokenizer.ggml.add_bos_token"], keys["tokenizer.ggml.add_eos_token"]), (False, True))

    def test_pretokenizers_are_known_by_their_expressions(self):
        """[Q4] However they are spelt."""
        def split(*expressions):
            parts = [{"type": "Split", "pattern": {"Regex": e}, "behavior": "Isolated", "invert": False}
                     for e in expressions]
            return tokenizer_json(pre_tokenizer={"type": "Sequence", "pretokenizers": [
                *parts, {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}]})
        tail = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + tail
        possessive = r"'(?i:[sdmt]|ll|ve|re)|[^\n\r\p{N}\p{L}]?+\p{L}+|\p{N}{1,3}" \
                     r"| ?[^\p{L}\p{N}\s]++[\n\r]*|\s*[\r\n]|\s+(?!\S)|\s+"
        upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
        some = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
        word = r"[^\r\n\p{L}\p{N}]?"
        gpt4o = (word + upper + "*" + lower + "+" + some + "|" + word + upper + "+" + lower + "*" + some +
                 r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
        deepseek = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                    r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""]
        for name, expressions in (("dbrx", [llama3]), ("dbrx", [possessive]), ("gpt-4o", [gpt4o]),
                                  ("qwen2", [llama3.replace("{1,3}", "")]), ("deepseek-v3", deepseek)):
            keys = self.keys(tokenizer=split(*expressions),
                             **{"tokenizer_config.json": {"clean_up_tokenization_spaces": False}})
            self.assertEqual(keys["tokenizer.ggml.pre"].decode(), name)
        folder = self.folder(tokenizer=split(r"\w+|\W"))
        self.refused(folder, "pre_tokenizer", r"\w+|\W")
        keys = Gguf(convert(folder, "--pretokenizer", "gpt-2")).keys
        self.assertEqual(keys["tokenizer.ggml.pre"], b"gpt-2")

    def test_a_vocabulary_of_bytes_alone(self):
        """[Q4] No merges at all: the list is there, and empty, and the file loads."""
        tensors = llama_tensors(LLAMA)
        folder = self.folder({"vocab_size": 257}, tensors, tokenizer=tokenizer_json(n_merges=0))
        out = convert(folder)
        self.assertEqual(Gguf(out).keys["tokenizer.ggml.merges"], [])
        self.assertEqual(json.loads(tinfer("tokenize", out, "--no-add-special", "-p", "the")),
                         [tokenizer_json()["model"]["vocab"][c] for c in "the"])

    def test_old_vocabulary_files(self):
        """[Q4] vocab.json with merges.txt is GPT-2's."""
        json_form = tokenizer_json()
        folder = self.folder()
        (folder / "tokenizer.json").unlink()
        vocab = json_form["model"]["vocab"] | {"<|endoftext|>": 258}
        (folder / "vocab.json").write_text(json.dumps(vocab))
        (folder / "merges.txt").write_text("#version: 0.2\nt h\nth e\n")
        keys = Gguf(convert(folder)).keys
        self.assertEqual((keys["tokenizer.ggml.pre"], keys["tokenizer.ggml.merges"]), (b"gpt-2", [b"t h", b"th e"]))
        self.assertEqual(keys["tokenizer.ggml.token_type"][258], 3)


class Refusals(Checkpoint):
    def test_keys_and_tensors_are_named(self):
        """[Q4] What is not known is refused, never ignored."""
        for change, names in (({"residual_multiplier": 0.5}, ["residual_multiplier"]),
                              ({"clip_qkv": 8}, ["clip_qkv"]),
                              ({"attention_chunk_size": 64}, ["attention_chunk_size"]),
                              ({"final_logit_softcapping": 30}, ["final_logit_softcapping"]),
                              ({"num_hidden_layers": 2.5}, ["num_hidden_layers"]),
                              ({"rms_norm_eps": "1e-5"}, ["rms_norm_eps"]),
                              ({"layer_types": ["chunked_attention"] * 2}, ["layer_types"]),
                              ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
                              ({"attention_bias": True}, ["attention_bias"]),
                              ({"rope_scaling": {"type": "yarn"}}, ["factor"]),
                              ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor"])):
            self.refused(self.folder(change, llama_tensors(LLAMA)), *names)
        for neutral in ({"residual_multiplier": 1.0}, {"clip_qkv": None}, {"layer_types": ["full_attention"] * 2}):
            convert(self.folder(neutral))
        tensors = llama_tensors(LLAMA)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        self.refused(self.folder({}, tensors), "model.layers.1.mlp.up_proj.weight")
        tensors = llama_tensors(LLAMA)
        tensors["model.layers.0.extra.weight"] = ("F32", [2], [1.0, 2.0])
        self.refused(self.folder({}, tensors), "model.layers.0.extra.weight")
        folder = self.folder()
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text('{"weight_map": {}}')
        self.refused(folder, "weight_map", "names no tensor")

    def test_values_that_are_not_finite(self):
        """[Q4] In every type: refused with the tensor's name, how many there are, and where the first one is."""
        matrix, norm = "model.layers.1.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"
        values = list(llama_tensors(LLAMA)[matrix][2])
        for at, bad in ((37, float("nan")), (38, float("inf")), (1000, float("-inf"))):
            values[at] = bad
        damaged = self.folder({}, llama_tensors(LLAMA) | {matrix: ("F32", [48, 32], values)}, name="damaged")
        vector = [1.0] * 31 + [float("-inf")]
        small = self.folder({}, llama_tensors(LLAMA) | {norm: ("BF16", [32], vector)}, name="small")
        for kind in ("f32", "bf16", "f16", "q8_0"):
            self.refused(damaged, f"'{matrix}': 3 of 1536 values are not finite, the first, nan, in row 1, column 5",
                         args=("--type", kind))
            self.refused(small, f"'{norm}': 1 of 32 values are not finite, the first, -inf at 31",
                         args=("--type", kind))

    def test_tolerated_json(self):
        """[Q4] A byte order mark, numbers beyond 64 bits, and Infinity where nobody reads it."""
        folder = self.folder()
        text = json.dumps(LLAMA)[:-1] + ', "model_max_length": 1' + "0" * 30
        text += ', "unused": Infinity, "x": [NaN, -Infinity]}'
        (folder / "config.json").write_text("\ufeff" + text)
        convert(folder)
        (folder / "config.json").write_text(text.replace('"rms_norm_eps": 1e-05', '"rms_norm_eps": NaN'))
        self.refused(folder, "rms_norm_eps")

    def test_nothing_is_left_of_what_was_interrupted(self):
        """[Q4] Exit 130, no file and none beside it; what was there before stays."""
        config = LLAMA | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4}
        folder = self.sparse(config)
        out = FOLDER / "interrupted.gguf"
        out.write_bytes(b"older")
        process = subprocess.Popen([TINFER, "convert", folder, "-o", out, "--type", "q4_k", "-t", "1"],
                                   env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.time() + 60
        while len([f for f in FOLDER.iterdir() if f.name.startswith("interrupted")]) < 2 and process.poll() is None:
            self.assertLess(time.time(), deadline)
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertEqual([f.name for f in FOLDER.iterdir() if f.name.startswith("interrupted")], ["interrupted.gguf"])
        self.assertEqual(out.read_bytes(), b"older")

    def sparse(self, config, dtype="BF16"):
        """A checkpoint whose data is one hole."""
        e, f, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
        g = e // 4 * 2
        shapes = {"model.embed_tokens.weight": [259, e], "model.norm.weight": [e], "lm_head.weight": [259, e]}
        for n in range(layers):
            at = f"model.layers.{n}."
            shapes |= {at + "self_attn.q_proj.weight": [e, e], at + "self_attn.k_proj.weight": [g, e],
                       at + "self_attn.v_proj.weight": [g, e], at + "self_attn.o_proj.weight": [e, e],
                       at + "mlp.gate_proj.weight": [f, e], at + "mlp.up_proj.weight": [f, e],
                       at + "mlp.down_proj.weight": [e, f], at + "input_layernorm.weight": [e],
                       at + "post_attention_layernorm.weight": [e]}
        folder = self.folder(config, {})
        header, place = {}, 0
        for name, shape in shapes.items():
            n = checkpoints.SIZE[dtype]
            for extent in shape:
                n *= extent
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + n]}
            place += n
        text = json.dumps(header).encode()
        with open(folder / "model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + place)
        return folder

    def test_memory_is_bounded(self):
        """[Q4] A checkpoint of 700 MB: at most 256 MiB."""
        config = LLAMA | {"hidden_size": 4096, "intermediate_size": 24576, "num_hidden_layers": 1}
        folder = self.sparse(config)
        out = FOLDER / "bounded.gguf"
        measure = ("import resource, subprocess, sys; code = subprocess.run(sys.argv[1:]).returncode; "
                   "print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", measure, TINFER, "convert", folder, "-o", out, "--type", "q8_0"],
                              env=environment(), capture_output=True, text=True, timeout=300)
        code, kib = done.stdout.split()[-2:]
        self.assertEqual(code, "0", done.stderr)
        self.assertLess(int(kib), 256 * 1024)
        out.unlink()

    def test_a_full_disk_is_said(self):
        """[Q4] Beyond the size that files may have: an error, and nothing is left."""
        folder = self.folder()
        done = subprocess.run([TINFER, "convert", folder, "-o", FOLDER / "refused.gguf", "--type", "f32"],
                              env=environment(), capture_output=True, text=True, timeout=60, preexec_fn=lambda: (
                                  signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
                                  resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("refused.gguf", done.stderr)
        self.assertEqual([f.name for f in FOLDER.iterdir() if f.name.startswith("refused")], [])

    def test_what_is_no_checkpoint(self):
        """[Q4] Pickle files, no folder, the output among the inputs."""
        folder = self.folder()
        tinfer("convert", folder, "-o", folder / "model.safetensors", code=1)
        self.assertIn("-o", tinfer.stderr)
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.refused(folder, "pytorch_model.bin", "pickle")
        self.refused(FOLDER / "nowhere", "no folder")
        tinfer("convert", folder, code=2)

    def test_dry_run_prints_the_mapping(self):
        """[Q4] A line a tensor, and all checks; nothing is written."""
        folder = self.folder()
        before = sorted(os.listdir(FOLDER))
        lines = tinfer("convert", folder, "--dry-run", "--type", "f16").decode().splitlines()
        self.assertEqual(sorted(os.listdir(FOLDER)), before)
        self.assertEqual(len(lines), 22)
        line = next(line for line in lines if line.startswith("blk.1.attn_q.weight"))
        self.assertEqual(line.split()[1:5], ["f16", "{32,", "32}", "<-"])
        self.assertIn("model.layers.1.self_attn.q_proj.weight", line)
        self.assertIn("permuted", line)


if __name__ == "__main__":
    unittest.main()
