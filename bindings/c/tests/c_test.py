#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[P4] The C interface: its symbols and the layout of its structs are those of abi.txt, a C99 program and a program
that loads it at run time (ctypes) give the logits of C++, and what is wrong is a status with a text.

usage: c_test.py LIBRARY BUILD [--update]    BUILD: the build folder; --update writes abi.txt
"""
import ctypes as c
import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PROJECT = HERE.parents[2]
HEADER = PROJECT / "include/tinfer.h"
ABI = HERE.parent / "abi.txt"
LIBRARY, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
TINY, LOGITS = BUILD / "tests/package/tiny.gguf", BUILD / "bin/tinfer_logits_sha256"
TALKS = BUILD / "python-tests/talks.gguf"
TEXT = "once upon a time the rain in the north"
COMPILER = shutil.which("cc") or shutil.which("gcc")


def structs():
    """name -> fields, from the header."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.S):
        fields = []
        for declaration in filter(None, (part.strip() for part in body.split(";"))):
            first, *more = declaration.split(",")
            fields += [re.search(r"(\w+)$", part.strip())[1] for part in (first, *more)]
        yield name, fields


def compiled(folder, source, *arguments):
    program = pathlib.Path(folder) / "program"
    subprocess.run([COMPILER, "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", PROJECT / "include", source,
                    "-o", program, *arguments], check=True)
    return program


def abi():
    """What programs that are compiled already depend on."""
    names = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    lines = sorted(re.findall(r" [TDBR] (\w+)(?:@@?\S+)?$", names, re.M))
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        prints = "".join(f'printf("{name}: %zu", sizeof({name}));' + "".join(
            f'printf(" {field}@%zu", offsetof({name}, {field}));' for field in fields) + 'puts("");'
            for name, fields in structs())
        source.write_text(f"#include <stddef.h>\n#include <stdio.h>\n#include <tinfer.h>\nint main(void) {{{prints}"
                          "return 0;}\n")
        layout = subprocess.run([compiled(folder, source)], capture_output=True, text=True, check=True).stdout
    version = re.search(r"#define TINFER_ABI_VERSION (\d+)", HEADER.read_text())[1]
    return f"abi {version}\n" + "\n".join(lines) + "\n" + layout


class ContextOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), *((name, c.c_int32) for name in (
        "n_ctx", "n_seq_max", "n_batch", "n_ubatch", "n_outputs", "n_threads", "logits_all", "embeddings")),
        *((name, c.c_char_p) for name in ("isa", "type_k", "type_v", "pooling")), ("memory_limit", c.c_uint64),
        ("cancel", c.c_void_p), ("user", c.c_void_p)]


class SamplerOptions(c.Structure):
    _fields_ = [("size", c.c_size_t), ("temperature", c.c_float), ("top_p", c.c_float), ("min_p", c.c_float),
                ("penalty_repeat", c.c_float), ("top_k", c.c_int32), ("seed", c.c_uint32), ("chain", c.c_char_p),
                ("grammar", c.c_char_p), ("schema", c.c_char_p)]


class Request(c.Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int32), ("reserved", c.c_int32), ("prompt", c.POINTER(c.c_int32)),
                ("n_prompt", c.c_size_t), ("max_tokens", c.c_int64), ("sampler", c.POINTER(SamplerOptions)),
                ("stop", c.POINTER(c.c_char_p)), ("n_stop", c.c_size_t), ("time_limit_ms", c.c_uint32),
                ("reserved_2", c.c_uint32)]


class Event(c.Structure):
    _fields_ = [("size", c.c_size_t), ("request", c.c_uint64), ("text", c.c_char_p), ("n_text", c.c_size_t),
                ("tokens", c.POINTER(c.c_int32)), ("n_tokens", c.c_size_t), ("vector", c.POINTER(c.c_float)),
                ("n_vector", c.c_size_t), ("log_probs", c.POINTER(c.c_double)), ("n_log_probs", c.c_size_t),
                ("stop", c.c_int32), ("status", c.c_int32), ("error", c.c_char_p), ("n_prompt", c.c_uint64),
                ("n_cached", c.c_uint64), ("n_generated", c.c_uint64)]


class KernelEvent(c.Structure):
    _fields_ = [*((name, c.c_uint64) for name in ("index", "run", "begin", "end", "bytes_read", "bytes_written",
                                                  "macs")),
                ("kernel", c.POINTER(c.c_char)), ("n_kernel", c.c_size_t), ("accesses", c.c_void_p),
                ("n_accesses", c.c_size_t), ("step", c.c_uint32), ("layer", c.c_int32), ("op", c.c_uint16),
                ("phase", c.c_uint8), ("status", c.c_uint8), ("reserved", c.c_uint32)]


class ChatPiece(c.Structure):
    _fields_ = [("size", c.c_size_t), ("content", c.c_void_p), ("reasoning", c.c_void_p), ("tool_calls", c.c_char_p),
                ("ended", c.c_int32), ("reserved", c.c_int32), ("n_content", c.c_size_t), ("n_reasoning", c.c_size_t)]


ENGINE_FN = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Event))
EVENTS_FN = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(KernelEvent), c.c_size_t, c.c_size_t)


class Interface(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.lib = c.CDLL(str(LIBRARY))
        for name in ("tinfer_last_error", "tinfer_version", "tinfer_status_name"):
            getattr(cls.lib, name).restype = c.c_char_p
        cls.expected = subprocess.run([LOGITS, TINY, TEXT], capture_output=True, text=True, check=True).stdout.strip()

    def ok(self, name, *arguments):
        self.assertEqual(getattr(self.lib, name)(*arguments), 0, self.lib.tinfer_last_error())

    def fails(self, status, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        self.assertEqual(self.lib.tinfer_status_name(code).decode(), status, self.lib.tinfer_last_error())
        return self.lib.tinfer_last_error().decode()

    def made(self, kind, *arguments):
        handle = c.c_void_p()
        self.ok(f"tinfer_{kind}", *arguments, c.byref(handle))
        free = kind.replace("_create", "").replace("_load", "")
        self.addCleanup(getattr(self.lib, f"tinfer_{free}_free"), handle)
        return handle

    def model_and_tokens(self):
        model = self.made("model_load", str(TINY).encode(), None)
        tokens, n = (c.c_int32 * 64)(), c.c_size_t()
        self.ok("tinfer_tokenize", model, TEXT.encode(), c.c_size_t(len(TEXT)), 1, tokens, c.c_size_t(64), c.byref(n))
        return model, tokens, n

    def context(self, model, **fields):
        options = ContextOptions()
        self.lib.tinfer_context_options_init(c.byref(options))
        for name, value in fields.items():
            setattr(options, name, value)
        return self.made("context_create", model, c.byref(options))

    def test_symbols_and_layouts_are_pinned(self):
        self.assertEqual(abi(), ABI.read_text(), "an interface that changed has another TINFER_ABI_VERSION; --update")
        dynamic = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
        self.assertRegex(dynamic, r"SONAME.*libtinfer_c\.so\.\d+\.\d+\]")
        self.assertEqual(self.lib.tinfer_abi_version(), 1)

    def test_a_c99_program_gives_the_logits_of_cpp(self):
        with tempfile.TemporaryDirectory() as folder:
            program = compiled(folder, HERE / "program.c", f"-L{LIBRARY.parent}", "-ltinfer_c",
                               f"-Wl,-rpath,{LIBRARY.parent}")
            logits = pathlib.Path(folder) / "logits"
            done = subprocess.run([program, TINY, TEXT, logits], capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(hashlib.sha256(logits.read_bytes()).hexdigest(), self.expected)
            done = subprocess.run([program, "/no/such.gguf", "a"], capture_output=True, text=True)
            self.assertEqual((done.returncode, "/no/such.gguf" in done.stderr), (1, True))

    def test_programs_of_the_page_compile(self):
        programs = re.findall(r"^```c\n(.*?)^```", (PROJECT / "docs/c.md").read_text(encoding="utf-8"), re.M | re.S)
        self.assertTrue(programs)
        with tempfile.TemporaryDirectory() as folder:
            for program in programs:
                source = pathlib.Path(folder) / "page.c"
                source.write_text(program)
                compiled(folder, source, f"-L{LIBRARY.parent}", "-ltinfer_c")

    def test_loaded_at_run_time_it_gives_them_too(self):
        model, tokens, n = self.model_and_tokens()
        context = self.context(model, logits_all=1, n_ctx=256)
        self.ok("tinfer_decode", context, tokens, n)
        hashed, row, n_row = hashlib.sha256(), c.POINTER(c.c_float)(), c.c_size_t()
        for i in range(self.lib.tinfer_n_outputs(context)):
            self.ok("tinfer_logits", context, i, c.byref(row), c.byref(n_row))
            hashed.update(c.string_at(row, 4 * n_row.value))
        self.assertEqual(hashed.hexdigest(), self.expected)

    def test_what_is_wrong_is_a_status_with_a_text(self):
        model, tokens, n = self.model_and_tokens()
        handle = c.c_void_p()
        self.assertIn("/no/such", self.fails("io_error", "tinfer_model_load", b"/no/such", None, c.byref(handle)))
        self.assertIn("NULL", self.fails("bad_parameter", "tinfer_model_load", None, None, c.byref(handle)))
        self.fails("bad_parameter", "tinfer_model_load", str(TINY).encode(), None, None)
        for name in ("tinfer_decode", "tinfer_sampler_reset", "tinfer_clear", "tinfer_engine_drain", "tinfer_chat_add"):
            self.fails("bad_parameter", name, None, None, None)
        context = self.context(model, n_ctx=64)
        self.fails("no_output", "tinfer_logits", context, 0, c.byref(handle), c.byref(n))
        many = (c.c_int32 * 65)(*[5] * 65)
        self.fails("no_room", "tinfer_decode", context, many, c.c_size_t(65))
        self.fails("invalid_batch", "tinfer_decode", context, (c.c_int32 * 1)(9999), c.c_size_t(1))
        self.fails("bad_parameter", "tinfer_context_create", model, c.byref(ContextOptions()), c.byref(handle))
        bad = ContextOptions(size=c.sizeof(ContextOptions), isa=b"cat")
        self.assertIn("cat", self.fails("bad_parameter", "tinfer_context_create", model, c.byref(bad), c.byref(handle)))
        needed = c.c_size_t()
        self.fails("limit_exceeded", "tinfer_tokenize", model, TEXT.encode(), c.c_size_t(len(TEXT)), 1, None,
                   c.c_size_t(0), c.byref(needed))
        self.assertGreater(needed.value, 5)
        sampler = SamplerOptions()
        self.lib.tinfer_sampler_options_init(c.byref(sampler))
        sampler.top_p = float("nan")
        self.fails("bad_parameter", "tinfer_sampler_create", model, c.byref(sampler), c.byref(handle))

    def test_older_and_newer_callers(self):
        model, tokens, n = self.model_and_tokens()
        older = ContextOptions(size=16, n_ctx=64, n_seq_max=2, n_ubatch=7)   # knows the first two numbers alone
        context = self.made("context_create", model, c.byref(older))
        room = c.c_int32()
        self.ok("tinfer_room", context, 1, c.byref(room))
        self.assertEqual(room.value, 64)

        class Newer(c.Structure):
            _fields_ = [("options", ContextOptions), ("more", c.c_uint64 * 4)]
        newer = Newer()
        newer.options.size, newer.options.n_ctx = c.sizeof(Newer), 64
        self.made("context_create", model, c.byref(newer))

    def test_states_and_sequences(self):
        model, tokens, n = self.model_and_tokens()
        context, other = self.context(model, n_seq_max=2), self.context(model, n_ctx=128)
        self.ok("tinfer_decode", context, tokens, n)
        self.ok("tinfer_seq_cp", context, 0, 1, 0, -1)
        self.ok("tinfer_seq_rm", context, 1, 3, -1)
        self.fails("bad_sequence", "tinfer_seq_keep", context, 7)
        size = c.c_size_t()
        self.fails("limit_exceeded", "tinfer_state_save", context, 0, None, c.c_size_t(0), c.byref(size))
        state = c.create_string_buffer(size.value)
        self.ok("tinfer_state_save", context, 0, state, size, c.byref(size))
        self.ok("tinfer_state_load", other, state, size, -1)
        self.assertEqual(self.lib.tinfer_used(other), n.value)
        self.fails("not_state_file", "tinfer_state_load", other, b"nothing", c.c_size_t(7), -1)

    def test_observers_see_and_fail_decodes(self):
        model, tokens, n = self.model_and_tokens()
        context, seen, answer = self.context(model), [], [0]

        @EVENTS_FN
        def see(user, events, count, event_bytes):
            self.assertEqual(event_bytes, c.sizeof(KernelEvent))
            seen.append([(events[i].index, events[i].kernel[:events[i].n_kernel], events[i].bytes_read)
                         for i in range(count)])
            return answer[0]
        attachment = c.c_void_p()
        self.ok("tinfer_attach", context, see, None, c.byref(attachment))
        self.ok("tinfer_decode", context, tokens, n)
        self.assertEqual([index for index, _, _ in seen[0]], list(range(len(seen[0]))))
        self.assertTrue(any(kernel.startswith(b"mul_mat") for _, kernel, _ in seen[0]), seen[0][:3])
        answer[0] = 1
        self.fails("compute_failed", "tinfer_decode", context, tokens, c.c_size_t(2))
        self.assertEqual(self.lib.tinfer_used(context), n.value)
        self.lib.tinfer_detach(attachment)
        self.ok("tinfer_decode", context, tokens, c.c_size_t(2))
        self.assertEqual(len(seen), 2)

    def answered(self, max_tokens, sampler_options=None):
        """The content of an answer in pieces, and its message in the conversation."""
        model = self.made("model_load", str(TALKS).encode(), None)
        options = (c.c_uint64 * 5)(40, 0, 0, max_tokens, 0)   # tinfer_chat_options
        chat, context = self.made("chat_create", model, options), self.context(model)
        sampler = self.made("sampler_create", model, sampler_options)
        self.ok("tinfer_chat_add", chat, b"user", b"once")
        piece, content = ChatPiece(size=c.sizeof(ChatPiece)), b""
        while not piece.ended:
            self.ok("tinfer_chat_next", chat, context, sampler, c.byref(piece))
            content += c.string_at(piece.content, piece.n_content)
            self.assertEqual((piece.tool_calls, c.string_at(piece.content + piece.n_content, 1)), (b"[]", b"\0"))
        text, n = c.create_string_buffer(4096), c.c_size_t()
        self.ok("tinfer_chat_messages", chat, text, c.c_size_t(4096), c.byref(n))
        self.fails("bad_parameter", "tinfer_chat_add_json", chat, b"[]")
        return content.decode(), json.loads(text.value)[1]["content"]

    def test_a_conversation(self):
        content, message = self.answered(4)
        self.assertEqual(content, message)

    def test_answers_with_zeros_are_whole(self):
        options, zeros = SamplerOptions(), 0
        self.lib.tinfer_sampler_options_init(c.byref(options))
        options.temperature, options.top_k, options.top_p, options.min_p = 100, 0, 1, 0   # any byte may come
        for options.seed in range(1, 60):
            content, message = self.answered(64, c.byref(options))
            self.assertEqual(content, message)
            zeros += content.count("\0")
        self.assertGreater(zeros, 0)

    def test_an_engine_answers(self):
        model, tokens, n = self.model_and_tokens()
        options = ContextOptions(size=c.sizeof(ContextOptions), n_ctx=512, n_seq_max=4)
        engine = self.made("engine_create", model, c.byref(options), 0)
        texts, stops, done = {}, {}, threading.Event()

        @ENGINE_FN
        def take(user, event):
            event = event[0]
            texts[event.request] = texts.get(event.request, b"") + event.text[:event.n_text]
            if event.stop:
                stops[event.request] = event.stop
                if len(stops) == 6:
                    done.set()
        greedy = SamplerOptions()
        self.lib.tinfer_sampler_options_init(c.byref(greedy))
        greedy.temperature = 0
        request = Request(size=c.sizeof(Request), prompt=tokens, n_prompt=n, max_tokens=4, sampler=c.pointer(greedy))
        for _ in range(6):
            self.ok("tinfer_engine_submit", engine, c.byref(request), take, None, None)
        self.assertTrue(done.wait(60))
        self.assertEqual((len(set(texts.values())), set(stops.values()) <= {1, 2}), (1, True))
        request.n_prompt = 0
        self.fails("bad_parameter", "tinfer_engine_submit", engine, c.byref(request), take, None, None)
        self.ok("tinfer_engine_drain", engine, 1000)


if __name__ == "__main__":
    if "--update" in sys.argv:
        ABI.write_text(abi())
    else:
        unittest.main(argv=sys.argv[:1])
