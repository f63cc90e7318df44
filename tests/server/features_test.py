#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the engine can do beyond the interfaces of others, over sockets: adapters, the store of prompts, guesses,
traces, receipts, and what is being read."""
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, Server, chat

TINY = HERE.parent / "support/tiny_model.py"


def made(name, seed, kind):
    path = FOLDER / name
    if not path.exists():
        subprocess.run([sys.executable, TINY, path, str(seed), kind], check=True)
    return path


def red():
    return f"red={made('red.gguf', 3, 'lora')}"


def blue():
    return f"blue={made('blue.gguf', 4, 'lora')}"


def text_of(server, prompt="once the", **fields):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, **NO_EOG, **fields}
    return server.post("/v1/completions", body)["choices"][0]["text"]


def metrics(server):
    _, _, text = server.ask("GET", "/metrics")
    lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
    return {line.split("{")[0] + (line.split('class="')[1].split('"')[0] if "class=" in line else ""):
            float(line.rsplit(" ", 1)[1]) for line in lines}


def told(server):
    """What the server has written to stderr so far; its place in the file stays."""
    return os.pread(server.errors.fileno(), 1 << 20, 0).decode()


class Names(unittest.TestCase):
    def test_the_only_model_serves_any_name(self):
        with Server("-c", 1024, "--override", "general.name=str:Tiny Model 1") as server:
            self.assertEqual([model["id"] for model in server.get("/v1/models")["data"]], ["Tiny-Model-1"])
            for path, body in (("/v1/chat/completions", chat("x", max_tokens=2)),
                               ("/v1/completions", {"prompt": "x", "max_tokens": 2}),
                               ("/v1/messages", chat("x", max_tokens=2)),
                               ("/v1/responses", {"input": "x", "max_output_tokens": 16}),
                               ("/api/chat", {**chat("x"), "stream": False, "options": {"num_predict": 2}})):
                answer = server.post(path, {**body, "model": "gpt-4o"})
                self.assertEqual(answer["model"].removesuffix(":latest"), "Tiny-Model-1", path)
            self.assertEqual(server.get("/v1/models/gpt-4o", 404)["error"]["code"], "model_not_found")
            self.assertEqual(server.get("/v1/models/Tiny-Model-1")["id"], "Tiny-Model-1")

    def test_strict_model_refuses_others(self):
        with Server("-c", 1024, "--strict-model", "--override", "general.name=str:Tiny Model 1") as server:
            body = {"prompt": "x", "max_tokens": 2}
            for name in ("Tiny-Model-1", "Tiny Model 1", "Tiny-Model-1:latest"):
                self.assertEqual(server.post("/v1/completions", {**body, "model": name})["model"], "Tiny-Model-1")
            error = server.post("/v1/completions", {**body, "model": "gpt-4o"}, 404)["error"]
            self.assertEqual((error["code"], error["param"]), ("model_not_found", "model"))
        both = subprocess.run([TINFER, "serve", MODEL, "--strict-model", "--any-model"], capture_output=True, text=True)
        self.assertEqual(both.returncode, 2)
        self.assertIn("one of them at most", both.stderr)


class Log(unittest.TestCase):
    def lines(self, server, n):
        for _ in range(200):
            lines = [json.loads(line) for line in told(server).splitlines() if line.startswith("{")]
            if len(lines) >= n:
                break
            time.sleep(0.02)
        self.assertEqual(len(lines), n, lines)
        return lines

    def test_a_line_for_each_request_without_texts(self):
        with Server("-c", 1024, "--log-requests", "--quiet", "--api-key", "sk-hidden") as server:
            key = {"Authorization": "Bearer sk-hidden"}
            body = json.dumps(chat("hush", max_tokens=3, **NO_EOG)).encode()
            server.ask("POST", "/v1/chat/completions", body, key)
            server.ask("POST", "/v1/chat/completions", json.dumps({**json.loads(body), "stream": True}).encode(), key)
            server.ask("GET", "/metrics?who=hush", None, key)
            server.ask("GET", "/nowhere%0A{", None, key)
            server.ask("POST", "/v1/completions", b"{")
            lines = self.lines(server, 5)
            self.assertNotIn("hush", told(server))
            self.assertNotIn("hidden", told(server))
        # A line is written when its answer has gone, so the next request's may be there first.
        answers = [line for line in lines if line["path"] == "/v1/chat/completions"]
        self.assertEqual(len(answers), 2)
        for line in answers:
            keys = ("method", "path", "status", "model", "completion_tokens", "finish")
            self.assertEqual([line[key] for key in keys],
                             ["POST", "/v1/chat/completions", 200, "tiny", 3, "length"])
            self.assertGreater(line["prompt_tokens"], 3)
            self.assertRegex(line["time"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$")
            self.assertGreater(line["seconds"], 0)
        self.assertEqual({(line["path"], line["status"]) for line in lines if line not in answers},
                         {("/metrics", 200), ("/nowhere\n{", 404), ("/v1/completions", 401)})

    def test_texts_where_they_are_asked_for(self):
        with Server("-c", 1024, "--log-text") as server:
            answer = server.post("/v1/completions", {"prompt": "once\nthe", "max_tokens": 4, **NO_EOG})
            line = self.lines(server, 1)[0]
            self.assertTrue(line["prompt"].endswith("once\nthe"), line)
            self.assertEqual(line["answer"], answer["choices"][0]["text"])

    def test_longer_than_trained_is_told(self):
        long = {"prompt": "a" * 300, "max_tokens": 2, **NO_EOG}
        with Server() as server:   # a tiny model is trained with 256 tokens; this context is of four times as many
            self.assertNotIn("trained", told(server))
            for _ in range(2):
                server.post("/v1/completions", long)
            text = told(server)
            self.assertEqual(text.count("longer than the 256 tokens that the model was trained with"), 1, text)
        with Server("-c", 512) as server:
            self.assertIn("warning: with --ctx 512 an answer may go beyond the training context 256", told(server))


class Adapters(unittest.TestCase):
    def test_lora(self):
        with Server("--lora", red(), "--lora", blue(), "-c", 2048) as server:
            self.assertEqual(server.get("/v1/models")["data"][0]["meta"]["adapters"], ["red", "blue"])
            plain, one = text_of(server), text_of(server, lora="red")
            self.assertNotEqual(plain, one)
            self.assertNotEqual(one, text_of(server, lora="blue"))
            both = text_of(server, lora=[{"name": "red", "scale": 0.5}, "blue"])
            self.assertNotIn(both, [plain, one])
            self.assertEqual(both, text_of(server, lora=["blue", {"name": "red", "scale": 0.5}]), "order is nothing")
            self.assertEqual(plain, text_of(server, lora={"name": "red", "scale": 0}))
            self.assertEqual(plain, text_of(server, lora=[]))
            self.assertEqual(plain, text_of(server), "what another request had does not stay")
            texts = {}

            def ask(i):
                texts[i] = text_of(server, lora=[None, "red", [{"name": "red", "scale": 0.5}, "blue"]][i % 3])
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(9)]
            [t.start() for t in threads], [t.join() for t in threads]
            self.assertEqual([texts[i] for i in range(9)], [plain, one, both] * 3)
            said = server.post("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 8,
                                                "temperature": 0, "lora": "red", **NO_EOG})
            self.assertNotIn("warnings", said)
            for bad, param in [("green", "lora"), (["red", "red"], "lora[1]"), ([{"scale": 1}], "lora[0].name"),
                               ([{"name": "red", "scale": "x"}], "lora[0].scale"), (7, "lora"), (["red"] * 17, "lora")]:
                error = server.post("/v1/completions", {"prompt": "x", "lora": bad}, 400)["error"]
                self.assertEqual(error["param"], param)

    def test_adapters_of_every_answer(self):
        path, prompt = made("red.gguf", 3, "lora"), ["-p", "once the", "-n", 12, "--temp", 0, "--logit-bias", "2=-1e9"]
        calm = made("calm.gguf", 5, "control")
        with Server("-c", 2048) as server:
            plain = text_of(server)
        for given in [("--lora", path), ("--lora", f"{path}=0.5"), ("--control-vector", f"{calm}=2"),
                      ("--lora", path, "--control-vector", calm, "--control-vector-layers", "1,1")]:
            alone = subprocess.run([TINFER, "run", MODEL, *map(str, [*prompt, *given]), "--quiet"],
                                   capture_output=True, check=True).stdout.decode()
            with Server(*given, "--lora", blue(), "--receipts", "-c", 2048) as server:
                always = text_of(server)
                self.assertEqual(always, alone, given)
                self.assertNotEqual(always, plain)
                self.assertNotEqual(text_of(server, lora="blue"), always)
                self.assertEqual(text_of(server), always, "what another request had does not stay")
                error = server.post("/v1/completions", {"prompt": "x", "receipt": True}, 400)["error"]
                self.assertEqual(error["param"], "receipt")

    def test_lora_of_vectors(self):
        with Server("--lora", red(), "--pooling", "mean", "-c", 512) as server:
            vector = lambda **more: server.post("/v1/embeddings", {"input": "once", **more})["data"][0]["embedding"]
            self.assertNotEqual(vector(), vector(lora="red"))
            self.assertEqual(vector(), vector(lora=[]))

    def test_usage(self):
        for args, said in [(["--lora", "=red"], "NAME=FILE"), (["--lora", "red"], "red: "),
                           (["--lora", red(), "--lora", made("red.gguf", 3, "lora")],
                            "'red' is the same file as one that all requests have"),
                           (["--control-vector-layers", "1,1"], "goes with --control-vector"),
                           (["--control-vector", "none.gguf"], "none.gguf: "), (["--speculate", "draft"], "--draft"),
                           (["--pooling", "mean", "--prompt-store", FOLDER / "x"], "vectors"),
                           (["--lora", red() + "=0.5"], "NAME=FILE has no scale here"),
                           (["--lora", "red=none.gguf"], "none.gguf: "), (["--lora", "none.gguf=0.5"], "none.gguf: "),
                           (["--lora", f"red={MODEL}"], "adapter")]:
            done = subprocess.run([TINFER, "serve", MODEL, "--check", *args], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0, args)
            self.assertIn(said, done.stderr)
        done = subprocess.run([TINFER, "serve", MODEL, "--check", "--lora", red(), "--draft", MODEL, "--speculate",
                               "draft", "--prompt-store", FOLDER / "checked"], capture_output=True, check=True)
        memory = json.loads(done.stdout)["memory"]
        self.assertEqual(memory["total"], sum(v for k, v in memory.items() if k != "total"))
        self.assertTrue(memory["adapters"] and memory["draft"] and memory["prompt_store"])

    def test_an_adapter_is_counted_once_in_memory(self):
        path = made("red.gguf", 3, "lora")
        for name in "", "red=":  # one that requests name has inputs beside its weights
            done = subprocess.run([TINFER, "serve", MODEL, "--check", "--ubatch", "64", "--lora", f"{name}{path}"],
                                  capture_output=True, check=True)
            adapters = json.loads(done.stdout)["memory"]["adapters"]
            self.assertTrue(path.stat().st_size / 2 < adapters < 1.5 * path.stat().st_size, (name, adapters))

    def test_a_folder_with_the_name_of_a_scale_is_no_adapter(self):
        path = made("red.gguf", 3, "lora").resolve()
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "2").mkdir()
            done = subprocess.run([TINFER, "serve", MODEL.resolve(), "--check", "--lora", f"{path}=2"], cwd=folder,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["adapters"], [])


class Store(unittest.TestCase):
    LONG = "once the other one " * 12

    def serve(self, folder):
        return Server("--prompt-store", folder, "-c", 2048)

    def test_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.serve(folder) as server:
                first = text_of(server, self.LONG)
                self.assertGreater(metrics(server)["tinfer_store_written_pages_total"], 0)
            with self.serve(folder) as server:
                answer = server.post("/v1/completions", {"prompt": self.LONG, "max_tokens": 12, "temperature": 0,
                                                         **NO_EOG})
                self.assertEqual(answer["choices"][0]["text"], first)
                self.assertGreaterEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 64)
                self.assertGreaterEqual(metrics(server)["tinfer_store_restored_tokens_total"], 64)
                self.assertEqual(text_of(server, self.LONG, cache_prompt=False), first)

    def test_killed(self):
        """kill -9 at random moments: what is in the folder is whole, and answers are as before"""
        with tempfile.TemporaryDirectory() as folder:
            prompts = [f"{i} " + self.LONG for i in range(40)]
            with Server("-c", 2048) as server:
                expected = [text_of(server, prompt) for prompt in prompts]
            for round in range(4):
                server = self.serve(folder)
                threading.Timer(0.1 + 0.13 * round, server.process.kill).start()
                try:
                    for prompt in prompts:
                        text_of(server, prompt)
                except (OSError, AssertionError, Exception.__base__) as error:
                    if isinstance(error, (KeyboardInterrupt, SystemExit)):
                        raise
                server.stop()
            with self.serve(folder) as server:
                self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                now = metrics(server)
                self.assertGreater(now["tinfer_store_read_pages_total"], 0)
                self.assertEqual(now["tinfer_store_refused_files_total"], 0)
                self.assertEqual(now["tinfer_store_errors_total"], 0)

    def test_disk_full(self):
        """a store on a disk that takes no more: answers go on, and are the same"""
        if os.geteuid() != 0:
            self.skipTest("mounting a small disk needs root")
        with tempfile.TemporaryDirectory() as folder:
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", folder],
                              capture_output=True).returncode != 0:
                self.skipTest("no small disk can be mounted here")
            try:
                prompts = [f"{i} " + self.LONG for i in range(30)]
                with Server("-c", 2048) as server:
                    expected = [text_of(server, prompt) for prompt in prompts]
                for _ in range(2):
                    with self.serve(folder) as server:
                        self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                        self.assertEqual(server.get("/health"), {"status": "ok"})
                        self.assertEqual(metrics(server)["tinfer_store_refused_files_total"], 0)
                self.assertLess(os.statvfs(folder).f_bavail, 8, "the disk is full")
            finally:
                subprocess.run(["umount", folder], check=True)


class Guesses(unittest.TestCase):
    def test_speculate(self):
        draft = made("draft.gguf", 1, "llama")
        prompt = "the other one and the other one and the other one and the"
        with Server("-c", 2048) as plain:
            expected = text_of(plain, prompt, max_tokens=60)
            error = plain.post("/v1/completions", {"prompt": "x", "speculate": "draft"}, 400)["error"]
            self.assertEqual(error["param"], "speculate")
            body = {"prompt": prompt, "max_tokens": 60, "temperature": 0, "speculate": "ngram", **NO_EOG}
            answer = plain.post("/v1/completions", body)
            self.assertEqual(answer["choices"][0]["text"], expected)
            self.assertIn("drafted_n", answer["timings"])
        with Server("-c", 2048, "--draft", draft, "--speculate", "draft") as server:
            answer = server.post("/v1/completions", {**body, "speculate": None})
            self.assertEqual(answer["choices"][0]["text"], expected)
            self.assertEqual(metrics(server)["tinfer_accepted_tokens_total"], answer["timings"]["accepted_n"])
            off = server.post("/v1/completions", {**body, "speculate": "off"})
            self.assertEqual((off["choices"][0]["text"], off["timings"]["drafted_n"]), (expected, 0))


class Evidence(unittest.TestCase):
    def test_trace(self):  # [V10]
        with tempfile.TemporaryDirectory() as folder, Server("--trace-dir", folder, "-c", 2048) as server:
            before = metrics(server)
            answer = server.post("/v1/chat/completions", chat("trace me", trace=True, cache_prompt=False))
            after = metrics(server)
            trace = answer["choices"][0]["trace"]
            path = pathlib.Path(folder) / trace["file"]
            self.assertEqual(path.stat().st_size, trace["bytes"])
            self.assertEqual(trace["dropped_events"], 0)
            subprocess.run([TINFER, "trace", "validate", path, "--model", MODEL], check=True, capture_output=True)
            grown = after["tinfer_read_bytes_totalweight"] - before["tinfer_read_bytes_totalweight"]
            self.assertEqual(sum_of_weights(path), grown)
            events = server.events("/v1/chat/completions", chat("trace me", trace=True))
            last = [e["choices"][0]["trace"]["file"] for e in events if e["choices"] and "trace" in e["choices"][0]]
            self.assertEqual(len(last), 1)
            self.assertTrue((pathlib.Path(folder) / last[0]).exists())
            two = server.post("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 4, "trace": True, **NO_EOG})
            self.assertEqual(len({c["trace"]["file"] for c in two["choices"]}), 2)
            error = server.post("/v1/completions", {"prompt": ["a"] * 17, "max_tokens": 1, "trace": True}, 400)["error"]
            self.assertEqual(error["param"], "trace")
            for path_of, body in [("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}),
                                  ("/v1/responses", {"input": "x", "max_output_tokens": 4})]:
                self.assertTrue(server.post(path_of, {**body, "trace": True})["trace"]["file"])
            text = server.post("/v1/chat/completions", chat("trace me"))["choices"][0]["message"]
            self.assertEqual(text, answer["choices"][0]["message"], "watching changes nothing")

    def test_trace_is_bounded(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server("--trace-dir", folder, "--trace-limit", 1 << 20, "-c", 2048) as server:
            dropped, statuses = 0, set()
            for i in range(60):
                status, _, data = server.ask("POST", "/v1/completions", {
                    "prompt": "the", "max_tokens": 100, "trace": True, **NO_EOG})
                statuses.add(status)
                if status == 200:
                    dropped += json.loads(data)["choices"][0]["trace"]["dropped_events"]
                else:
                    self.assertEqual(json.loads(data)["error"]["code"], "trace_folder_full")
                if status != 200:
                    break
            self.assertEqual(statuses, {200, 503})
            self.assertGreater(dropped, 0, "what was left out is told")
            self.assertLessEqual(sum(f.stat().st_size for f in pathlib.Path(folder).iterdir()), (1 << 20) * 1.1)
            self.assertTrue(text_of(server))
        with Server() as server:
            error = server.post("/v1/completions", {"prompt": "x", "trace": True}, 400)["error"]
            self.assertEqual(error["param"], "trace")

    def test_trace_folder_is_removed(self):
        """A folder that somebody removes is made again; where that cannot be, 503 names it, and answers go on"""
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home) / "deep/traces"
            with Server("--trace-dir", f"{folder}/", "-c", 2048, "--trace-limit", 1 << 20) as server:
                body = {"prompt": "the", "max_tokens": 4, "trace": True, **NO_EOG}
                expected = text_of(server, "the", max_tokens=4)
                shutil.rmtree(folder.parent)
                answer = server.post("/v1/completions", {**body, "temperature": 0})["choices"][0]
                self.assertEqual(answer["text"], expected)
                self.assertTrue((folder / answer["trace"]["file"]).exists())
                shutil.rmtree(folder.parent)
                folder.parent.write_text("a file in its place")
                status, headers, data = server.ask("POST", "/v1/completions", body)
                error = json.loads(data)["error"]
                self.assertEqual((status, headers["Retry-After"], error["code"], error["param"]),
                                 (503, "1", "trace_folder_failed", "trace"))
                self.assertIn("'traces'", error["message"])
                self.assertNotIn(home, error["message"])
                self.assertEqual(text_of(server, "the", max_tokens=4), expected)
                folder.parent.unlink()
                self.assertTrue(server.post("/v1/completions", body)["choices"][0]["trace"]["file"])
                # A full folder takes traces again once somebody has taken some away.
                while server.ask("POST", "/v1/completions", {**body, "max_tokens": 100})[0] == 200:
                    pass
                for file in folder.iterdir():
                    file.unlink()
                self.assertTrue(server.post("/v1/completions", body)["choices"][0]["trace"]["file"])

    def test_trace_of_a_client_that_leaves(self):
        # So many tokens take long, wherever this runs: none of the answers ends before its client has left.
        with tempfile.TemporaryDirectory() as folder, Server("--trace-dir", folder, "-c", 32768) as server:
            for _ in range(5):
                with server.socket() as connection:
                    body = {"prompt": "the", "max_tokens": 30000, "trace": True, "stream": True, **NO_EOG}
                    body = json.dumps(body).encode()
                    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                       + str(len(body)).encode() + b"\r\n\r\n" + body)
                    self.assertTrue(connection.recv(64), "the answer has begun")
            until = time.monotonic() + 20
            while (server.get("/slots") or list(pathlib.Path(folder).iterdir())) and time.monotonic() < until:
                time.sleep(0.02)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [], "files that nobody has heard of")

    def test_vectors(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server("--trace-dir", folder, "--pooling", "mean", "-c", 512) as server:
            answer = server.post("/v1/embeddings", {"input": ["once", "the"], "trace": True})
            self.assertEqual([(pathlib.Path(folder) / t["file"]).stat().st_size for t in answer["traces"]],
                             [t["bytes"] for t in answer["traces"]])
            self.assertEqual(len(answer["traces"]), 2)

    def test_receipt(self):
        with Server("--receipts", "--lora", red(), "-c", 2048) as server:
            answer = server.post("/v1/chat/completions", chat("what was it", receipt=True, temperature=0.8, seed=5))
            receipt = answer["choices"][0]["receipt"]
            self.assertNotIn(str(FOLDER), receipt, "no path of the server is told")
            path = FOLDER / "receipt.json"
            path.write_text(receipt)
            done = subprocess.run([TINFER, "replay", path, "-m", MODEL], capture_output=True, text=True)
            self.assertTrue(done.stdout.startswith("equal"), done.stdout + done.stderr)
            other = made("other.gguf", 9, "llama")
            done = subprocess.run([TINFER, "replay", path, "-m", other], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "receipt": True, "lora": "red"}, 400)
                             ["error"]["param"], "receipt")
        with Server() as server:
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "receipt": True}, 400)["error"]["param"],
                             "receipt")


def sum_of_weights(path):
    """Bytes of the model's file that a trace says were read: one row for each range."""
    done = subprocess.run([TINFER, "trace", "export", path, "--format", "csv"], check=True, capture_output=True,
                          text=True)
    rows = list(csv.DictReader(done.stdout.splitlines()))
    return sum(int(row["length"]) * int(row["count"]) for row in rows if row["file"] and row["mode"] == "read")


class Reading(unittest.TestCase):
    def grown(self, server):
        before = server.get("/activity")
        text_of(server)
        return before, server.get("/activity")

    def test_activity(self):
        with Server("-c", 1024) as server:
            before, after = self.grown(server)
            self.assertGreaterEqual(after["runs"] - before["runs"], 12)
            self.assertEqual([layer["layer"] for layer in after["layers"]], [0, 1])
            self.assertTrue(all(layer["weight_bytes"] > 0 and layer["cache_bytes"] > 0 for layer in after["layers"]))
            time.sleep(2.2)  # nobody looks: nothing is counted
            text_of(server)
            self.assertEqual(server.get("/activity")["runs"], after["runs"])
        with Server("-c", 1024, model=made("moe.gguf", 1, "moe")) as server:
            _, after = self.grown(server)
            first, last = after["layers"]
            self.assertEqual((len(first["experts"]), len(last["experts"])), (8, 8))
            self.assertEqual(sum(first["experts"]), 2 * after["tokens"], "two experts for each token")
            self.assertGreaterEqual(sum(last["experts"]), 2 * 12, "the last layer computes what is drawn from")
        with Server("--no-counts") as server:
            self.assertEqual(server.get("/activity", 501)["error"]["code"], "not_supported")
            self.assertNotIn("tinfer_read_bytes_totalweight", metrics(server))


if __name__ == "__main__":
    unittest.main()
