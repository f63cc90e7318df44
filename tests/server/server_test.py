#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The routes of `tinfer serve`, asked over real sockets."""
import concurrent.futures
import json
import os
import re
import socket
import subprocess
import threading
import time
import unittest

from server_support import FOLDER, MODEL, NO_EOG, TINFER, Server, chat


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 4, "-c", 2048)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "exit code after SIGTERM"

    def test_chat_completion(self):
        """chat completions: an answer with its usage and fingerprint; what clients make of it, clients_test.py asks"""
        answer = self.server.post("/v1/chat/completions", chat("Hello"))
        self.assertEqual(answer["object"], "chat.completion")
        choice = answer["choices"][0]
        self.assertEqual((choice["message"]["role"], choice["finish_reason"]), ("assistant", "length"))
        self.assertEqual(answer["usage"]["completion_tokens"], 8)
        self.assertEqual(answer["usage"]["total_tokens"], 8 + answer["usage"]["prompt_tokens"])
        self.assertRegex(answer["system_fingerprint"], "^[0-9a-f]{32}$")

    def test_stream_equals_whole(self):
        """the deltas of a stream add up to the answer, in whole characters, with usage at the end"""
        whole = self.server.post("/v1/chat/completions", chat("Stream", seed=7, temperature=1))
        events = self.server.events("/v1/chat/completions", chat("Stream", seed=7, temperature=1,
                                                                 stream_options={"include_usage": True}))
        self.assertEqual(events[0]["choices"][0]["delta"]["role"], "assistant")
        text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
        self.assertEqual(text, whole["choices"][0]["message"]["content"])
        self.assertEqual(events[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 8)

    def test_completions(self):
        answer = self.server.post("/v1/completions", {"prompt": ["Once upon", [300, 301]], "max_tokens": 4, "n": 2,
                                                      "temperature": 0, **NO_EOG})
        self.assertEqual([c["index"] for c in answer["choices"]], [0, 1, 2, 3])
        self.assertEqual(answer["choices"][0]["text"], answer["choices"][1]["text"])

    def test_rate_of_generation(self):
        for n in (1, 2, 8):  # the first token comes from the prompt's last row
            body = {"prompt": "once", "max_tokens": n, "temperature": 0, **NO_EOG}
            times = self.server.post("/v1/completions", body)["timings"]
            self.assertEqual(times["generation_n"], n)
            if n == 1:
                self.assertIsNone(times["generation_tps"])
            else:
                self.assertAlmostEqual(times["generation_tps"] * times["generation_s"], n - 1, places=6)

    def test_logprobs(self):
        answer = self.server.post("/v1/chat/completions", chat("x", logprobs=True, top_logprobs=3))
        content = answer["choices"][0]["logprobs"]["content"]
        self.assertEqual(len(content), 8)
        for token in content:
            self.assertEqual(len(token["top_logprobs"]), 3)
            self.assertGreaterEqual(token["top_logprobs"][0]["logprob"] + 1e-9, token["logprob"])

    def test_n_seeds_and_stop(self):
        first = self.server.post("/v1/chat/completions", chat("n", n=3, seed=5, temperature=1.5))
        again = self.server.post("/v1/chat/completions", chat("n", n=3, seed=5, temperature=1.5))
        texts = [c["message"]["content"] for c in first["choices"]]
        self.assertEqual(texts, [c["message"]["content"] for c in again["choices"]])
        self.assertGreater(len(set(texts)), 1)
        one = self.server.post("/v1/chat/completions", chat("n", seed=6, temperature=1.5))
        self.assertEqual(one["choices"][0]["message"]["content"], texts[1])
        text = self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 16, "temperature": 0, **NO_EOG})
        text = text["choices"][0]["text"]
        stop = next(c for c in text[3:] if c.isascii())
        cut = self.server.post("/v1/completions", {"prompt": "a", "max_tokens": 16, "temperature": 0, "stop": stop,
                                                   **NO_EOG})
        self.assertEqual((cut["choices"][0]["text"], cut["choices"][0]["finish_reason"]),
                         (text[:text.index(stop)], "stop"))

    def test_structured(self):
        schema = {"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
                  "additionalProperties": False}
        answer = self.server.post("/v1/chat/completions", chat("json", max_tokens=300, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}))
        self.assertIsInstance(json.loads(answer["choices"][0]["message"]["content"])["yes"], bool)

    def test_tools(self):
        tool = {"type": "function", "function": {"name": "look", "parameters": {
            "type": "object", "properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"],
            "additionalProperties": False}}}
        answer = self.server.post("/v1/chat/completions", chat("tools", max_tokens=1500, tools=[tool],
                                                               parallel_tool_calls=False,
            tool_choice={"type": "function", "function": {"name": "look"}}))
        call = answer["choices"][0]["message"]["tool_calls"][0]
        self.assertEqual(answer["choices"][0]["finish_reason"], "tool_calls")
        self.assertIn(json.loads(call["function"]["arguments"])["at"], ["sky", "sea"])
        events = self.server.events("/v1/messages", {
            "messages": [{"role": "user", "content": "tools"}], "max_tokens": 1500, "temperature": 0, **NO_EOG,
            "tools": [{"name": "look", "input_schema": tool["function"]["parameters"]}],
            "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True}})
        self.assertEqual(events[-2]["delta"]["stop_reason"], "tool_use")
        self.assertEqual([e for e in events if e["type"] == "content_block_start"][0]["content_block"]["name"], "look")

    def test_v13_messages(self):  # [V13]
        """/v1/messages: whole, as a stream, and its count of tokens"""
        body = {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
                "system": "S", "max_tokens": 8, "temperature": 0, **NO_EOG}
        body.pop("model")
        answer = self.server.post("/v1/messages", body)
        self.assertEqual((answer["type"], answer["stop_reason"], answer["usage"]["output_tokens"]),
                         ("message", "max_tokens", 8))
        count = self.server.post("/v1/messages/count_tokens", body)["input_tokens"]
        self.assertEqual(count, answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"])
        events = self.server.events("/v1/messages", body)
        self.assertEqual([events[0]["type"], events[-1]["type"]], ["message_start", "message_stop"])
        text = "".join(e["delta"]["text"] for e in events if e["type"] == "content_block_delta")
        self.assertEqual(text, answer["content"][0]["text"])
        error = self.server.post("/v1/messages", {"messages": body["messages"]}, status=400)
        self.assertEqual((error["type"], error["error"]["type"]), ("error", "invalid_request_error"))

    def test_v5_errors(self):  # [V5]
        """what is wrong is said with the field, and the server stays up"""
        chats = "/v1/chat/completions"
        for body, param in [(chat("x", temperature="hot"), "temperature"), (chat("x", n=99), "n"),
                            (chat("x", top_p=2), "top_p"),
                            ({"messages": []}, "messages"), ({"messages": [{"role": "king", "content": "x"}]},
                                                             "messages[0].role"),
                            (chat("x", stop=["a"] * 17), "stop"),
                            (chat("x", samplers=["top_k", "best"]), "samplers"),
                            (chat("x", samplers="top_k(x)"), "samplers"),
                            (chat("x", response_format={"type": "xml"}), "response_format.type"),
                            (chat("x", logit_bias={"99999999": 1}), "logit_bias"),
                            (chat("x", tool_choice="required"), "tool_choice"),
                            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
                             "messages[0].content[0].type")]:
            error = self.server.post(chats, body, status=400)["error"]
            self.assertEqual((error["param"], error["type"]), (param, "invalid_request_error"), error)
        for stops in [3, [None], ["a"] * 17, [""]]:  # under the name that the request has
            error = self.server.post("/v1/messages", {**chat("x"), "stop_sequences": stops}, status=400)["error"]
            self.assertTrue(error["message"].startswith("stop_sequences: "), error)
        for body in [b"", b"{", b"[]", b'"\xff\xfe"', b'{"messages": "\xff"}', b"[" * 100000, b'{"a":' * 5000]:
            error = self.server.post(chats, body, status=400)["error"]
            self.assertEqual(error["code"], "invalid_json")
        self.assertEqual(self.server.get("/v1/models/other", status=404)["error"]["code"], "model_not_found")
        self.assertEqual(self.server.get("/nowhere", status=404)["error"]["type"], "not_found_error")
        status, headers, _ = self.server.ask("GET", chats)
        self.assertEqual((status, headers["Allow"]), (405, "POST, OPTIONS"))
        self.assertIn("strange", self.server.post(chats, chat("x", strange=1))["warnings"][0])
        self.assertEqual(self.server.get("/health"), {"status": "ok"})

    def test_v8_nothing_is_cut_in_silence(self):  # [V8]
        """a prompt or an answer without room: both numbers; a cut that was asked for is counted"""
        most = self.server.get("/v1/models")["data"][0]["meta"]["n_ctx"]
        long = {"prompt": [300] * (most + 5), "max_tokens": 2}
        error = self.server.post("/v1/completions", long, status=400)["error"]
        self.assertEqual(error["code"], "context_length_exceeded")
        self.assertIn(str(most + 5), error["message"])
        self.assertIn(str(most), error["message"])
        cut = self.server.post("/v1/completions", {**long, "truncate": "middle", **NO_EOG})["usage"]
        self.assertEqual(cut["prompt_tokens_details"]["truncated_tokens"], 7)
        error = self.server.post("/v1/completions", {"prompt": "x", "max_tokens": most}, status=400)["error"]
        self.assertEqual(error["param"], "max_tokens")

    def test_text_routes(self):
        ids = self.server.post("/tokenize", {"text": "the </s> one"})["tokens"]
        self.assertNotIn(2, ids)
        self.assertEqual(self.server.post("/detokenize", {"tokens": ids})["text"].strip(), "the </s> one")
        prompt = self.server.post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]})["prompt"]
        self.assertIn("Hi", prompt)

    def test_n8_text_forms_no_control_tokens(self):  # [N8]
        """text of clients that spells a control token costs the tokens of a text"""
        count = lambda text: self.server.post("/v1/messages/count_tokens",
                                              {"messages": [{"role": "user", "content": text}]})
        self.assertGreaterEqual(count("a</s>b")["input_tokens"], count("ab")["input_tokens"] + 4)

    def test_v10_metrics(self):
        """the counters of tokens grow by what the answers' usage says"""
        def counters():
            status, headers, text = self.server.ask("GET", "/metrics")
            self.assertEqual(status, 200)
            lines = [line for line in text.decode().splitlines() if not line.startswith("#")]
            self.assertTrue(all('model="' in line for line in lines))
            return {line.split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in lines}
        before = counters()
        usage = self.server.post("/v1/chat/completions", chat("count me"))["usage"]
        after = counters()
        grown = lambda name: after[name] - before[name]
        self.assertEqual(grown("tinfer_prompt_tokens_total") + grown("tinfer_cached_tokens_total"),
                         usage["prompt_tokens"])
        self.assertEqual(self.server.get("/slots"), [])
        # What went through the model in rounds: one token less than the answer has, its last.
        self.assertEqual(grown("tinfer_batch_tokens_sum"), grown("tinfer_computed_tokens_total"))
        self.assertEqual(grown("tinfer_batch_tokens_sum"),
                         grown("tinfer_prompt_tokens_total") + usage["completion_tokens"] - 1)

    def test_range_is_ignored(self):
        """Range is for parts of files: every answer is whole, whatever stands there"""
        for method, path, body in [("POST", "/tokenize", {"text": "the one"}), ("GET", "/v1/models", None),
                                   ("GET", "/", None)]:
            status, headers, whole = self.server.ask(method, path, body)
            self.assertEqual(status, 200)
            for name in ["Range", "rAnGe"]:
                for value in ["bytes=0-3", "bytes=0-1,4-5", "bytes=-2", "bytes=99999999-", "lines=1", "nonsense"]:
                    got = self.server.ask(method, path, body, {name: value})
                    self.assertEqual((got[0], got[2]), (200, whole), (path, value))
                    self.assertEqual(got[1]["Content-Type"], headers["Content-Type"])
                    self.assertIsNone(got[1]["Content-Range"])

    def test_long_texts(self):
        """A text far beyond the context is refused before all of it is tokenized, with the numbers"""
        most = self.server.get("/v1/models")["data"][0]["meta"]["n_ctx"]
        text = "the one " * 400000
        messages = [{"role": "user", "content": text}]
        for path, body, param in [("/v1/completions", {"prompt": text}, "prompt"),
                                  ("/v1/completions", {"prompt": ["a", text]}, "prompt[1]"),
                                  ("/v1/chat/completions", {"messages": messages}, "messages"),
                                  ("/v1/responses", {"input": text}, "input")]:
            error = self.server.post(path, body, status=400)["error"]
            self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", param))
            self.assertIn(f"more than {2 * most} tokens", error["message"])
            self.assertIn(f"the limit is {most}", error["message"])
        error = self.server.post("/v1/messages", {"messages": messages, "max_tokens": 1}, status=400)["error"]
        self.assertIn(f"more than {2 * most} tokens", error["message"])
        count = self.server.post("/v1/messages/count_tokens", {"messages": messages})["input_tokens"]
        self.assertGreater(count, 2 * most)
        cut = self.server.post("/v1/completions", {"prompt": "the one " * most, "truncate": "middle", "max_tokens": 1,
                                                   **NO_EOG})
        self.assertGreater(cut["usage"]["prompt_tokens_details"]["truncated_tokens"], most)

    def test_many_names(self):
        """Objects of many names cost what their length costs; the last of equal names counts"""
        body = {"prompt": "the", "max_tokens": 2, **{f"unknown{i}": i for i in range(300000)}}
        warnings = self.server.post("/v1/completions", body)["warnings"]
        self.assertEqual(len(warnings), 33)
        self.assertIn("299968 further", warnings[-1])
        bias = json.dumps({str(i): -100 for i in range(3, 300)})[:-1]
        for again, expected in [("-100", 400), ('"x"', 400), ("1", 200)]:
            text = '{"prompt": "the", "max_tokens": 1, "max_tokens": %s, "logit_bias": %s, "3": 0.5}}' % (again, bias)
            self.assertEqual(self.server.ask("POST", "/v1/completions", text.encode())[0], expected, again)
        null = {"role": "user", "content": "x", **{f"n{i}": None for i in range(300000)}}
        self.server.post("/v1/chat/completions", {**chat("x"), "messages": [null]})
        many = {f"v{i}": i for i in range(257)}
        error = self.server.post("/v1/chat/completions", chat("x", template_kwargs=many), status=400)
        self.assertEqual(error["error"]["param"], "template_kwargs")

    def test_name_of_model(self):
        """general.name, as long as --alias gives no other"""
        self.assertEqual(self.server.get("/v1/models")["data"][0]["id"], "tiny")
        with Server("--alias", "mine", "-c", 512) as server:
            self.assertEqual(server.get("/v1/models/mine")["id"], "mine")

    def test_hosts(self):
        self.assertEqual(self.server.ask("GET", "/v1/models", None, {"Host": "evil.example"})[0], 403)

    def test_page(self):  # [V14]
        """one document that asks nothing of other hosts"""
        status, headers, page = self.server.ask("GET", "/")
        self.assertEqual(status, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertNotIn(b"http://", page)
        self.assertNotIn(b"https://", page)

    def test_promise_one(self):
        """Alone, all at once and in another order: the same bytes"""
        bodies = [chat(f"Question {i} " * (1 + i % 5), seed=i, temperature=1.2, max_tokens=4 + i % 9)
                  for i in range(24)]
        ask = lambda body: [c["message"] for c in self.server.post("/v1/chat/completions", body)["choices"]]
        alone = [ask({**body, "cache_prompt": False}) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            self.assertEqual(list(pool.map(ask, bodies)), alone)
            self.assertEqual(list(pool.map(ask, bodies[::-1])), alone[::-1])

    def test_v11_client_gone(self):  # [V11]
        """a client that leaves frees its slot, and the answers of others do not change"""
        expected = self.server.post("/v1/chat/completions", chat("other"))["choices"]
        body = json.dumps(chat("gone", max_tokens=200)).encode()
        for _ in range(5):
            with socket.create_connection((self.server.host, self.server.port)) as gone:
                gone.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                             b"%d\r\n\r\n" % len(body) + body)
        self.assertEqual(self.server.post("/v1/chat/completions", chat("other"))["choices"], expected)
        deadline = time.monotonic() + 10
        while self.server.get("/slots") and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.server.get("/slots"), [])

    def test_v11_client_gone_with_bytes_left(self):  # [V11]
        """bytes behind the request do not hide that their client has left"""
        def interrupted():
            metrics = self.server.ask("GET", "/metrics")[2].decode()
            return int(re.search(r"^tinfer_requests_interrupted_total(?:\{.*\})? (\d+)", metrics, re.M)[1])

        before = interrupted()
        body = json.dumps({"prompt": "a", "max_tokens": 1900, "logit_bias": {"2": -100}}).encode()
        for _ in range(4):
            with socket.create_connection((self.server.host, self.server.port)) as gone:
                gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                             b"%d\r\n\r\n" % len(body) + body)
                while not self.server.get("/slots"):
                    time.sleep(0.005)
                gone.sendall(b"GET /health HTTP/1.1\r\n")  # stays unread behind the request
            deadline = time.monotonic() + 60
            while self.server.get("/slots") and time.monotonic() < deadline:
                time.sleep(0.005)
        self.assertEqual(interrupted() - before, 4)
        # Who only ends what he sends gets his answers, all of them.
        with socket.create_connection((self.server.host, self.server.port)) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            client.shutdown(socket.SHUT_WR)
            answers = b"".join(iter(lambda: client.recv(4096), b""))
        self.assertEqual(answers.count(b'{"status":"ok"}'), 2)


class Faults(unittest.TestCase):
    def test_port_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            done = subprocess.run([TINFER, "serve", MODEL, "--port", str(taken.getsockname()[1])], text=True,
                                  capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot be listened on: Address already in use", done.stderr)

    def test_limits(self):
        """Slow, silent and huge requests: refused, and the server answers others meanwhile"""
        with Server("--read-timeout", 1, "--max-body", 4096, "--max-connections", 64, "--parallel", 2, "-c",
                    512) as server:
            hanging = [socket.create_connection((server.host, server.port)) for _ in range(40)]
            self.assertEqual(server.get("/health"), {"status": "ok"})
            error = server.post("/v1/completions", {"prompt": "x" * 5000}, status=413)["error"]
            self.assertIn("4096", error["message"])
            with socket.create_connection((server.host, server.port)) as slow:
                slow.settimeout(10)
                ended = threading.Event()
                slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
                def drip():
                    try:
                        while not ended.wait(0.2):
                            slow.sendall(b"X: y\r\n")
                    except OSError:
                        pass
                thread = threading.Thread(target=drip)
                thread.start()
                try:
                    while slow.recv(4096):  # the server ends it
                        pass
                except ConnectionError:
                    pass
                ended.set()
                thread.join()
            for one in hanging:
                one.close()
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_stdout_cannot_be_written(self):
        """Where it cannot say its address, it ends as every command does, and by itself"""
        reader, writer = os.pipe()
        os.close(reader)
        with open("/dev/full", "wb") as full, os.fdopen(writer, "wb") as broken:
            for stdout, more in [(full, {}), (broken, {}), (None, {"preexec_fn": lambda: os.close(1)})]:
                done = subprocess.run([TINFER, "serve", MODEL, "--port", "0", "-t", "1"], stdout=stdout,
                                      stderr=subprocess.PIPE, timeout=60, **more)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(b"stdout cannot be written", done.stderr)

    def test_keys(self):
        keys = FOLDER / "keys.txt"
        keys.write_text("second\nthird\n")
        with Server("--api-key", "first", "--api-key-file", keys) as server:
            self.assertEqual(server.get("/health"), {"status": "ok"})
            self.assertEqual(server.get("/v1/models", status=401)["error"]["code"], "invalid_api_key")
            server.get("/v1/models", status=401, Authorization="Bearer firs")
            server.get("/v1/models", status=401, Authorization="Bearer firstfirst")
            for key in ["first", "second", "third"]:
                server.get("/v1/models", Authorization="Bearer " + key)
            self.assertEqual(server.ask("GET", "/v1/models", None, {"x-api-key": "third"})[0], 200)

    def test_files_without_keys(self):
        """A file of keys that has none would let everybody in: exit code 2"""
        keys = FOLDER / "no-keys.txt"
        for text in ["", "\n", "\r\n\n", "  \t\n"]:
            keys.write_text(text)
            for more in [[], ["--api-key", "first"]]:
                done = subprocess.run([TINFER, "serve", MODEL, "--port", "0", "--api-key-file", keys, *more],
                                      capture_output=True, timeout=60)
                self.assertEqual(done.returncode, 2)
                self.assertIn(b"no-keys.txt: the file has no key", done.stderr)

    def test_pages_of_others(self):
        """Requests of pages of other origins are refused, whatever their type, as long as --cors does not name them"""
        simple = {"Content-Type": "text/plain"}  # what a page may send without asking before
        evil = "http://evil.example"
        body = {"prompt": "x", "max_tokens": 1}
        with Server("-c", 512) as server:
            own, ask = f"http://{server.host}:{server.port}", server.ask
            for headers, status in [({}, 200), ({"Origin": own}, 200), ({"Sec-Fetch-Site": "same-origin"}, 200),
                                    ({"Sec-Fetch-Site": "none"}, 200), ({"Origin": evil}, 403),
                                    ({"Origin": "null"}, 403), ({"Origin": f"http://{server.host}:1"}, 403),
                                    ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403)]:
                for kind in [simple, {"Content-Type": "application/json"}]:
                    self.assertEqual(ask("POST", "/v1/completions", body, {**kind, **headers})[0], status, headers)
                self.assertEqual(ask("GET", "/v1/models", None, headers)[0], status, headers)
                self.assertEqual(ask("OPTIONS", "/v1/completions", None, headers)[0], 204 if status == 200 else 403)
            got, headers, data = ask("POST", "/v1/completions", body, {"Origin": evil})
            self.assertEqual(json.loads(data)["error"]["code"], "origin_not_allowed")
            self.assertIsNone(headers["Access-Control-Allow-Origin"])
        with Server("-c", 512, "--cors", "https://a.example", "--api-key", "key") as server:
            key = {"Authorization": "bearer key"}
            for origin, status in [("https://a.example", 200), ("https://b.example", 403), (evil, 403)]:
                got, headers, _ = server.ask("POST", "/v1/completions", body, {"Origin": origin, **key,
                                                                               "Sec-Fetch-Site": "cross-site"})
                self.assertEqual((got, headers["Access-Control-Allow-Origin"]),
                                 (status, origin if status == 200 else None))
        with Server("-c", 512, "--cors", "*") as server:
            for origin in [evil, "null"]:
                self.assertEqual(server.ask("POST", "/v1/completions", body, {"Origin": origin})[0], 200)

    def test_embeddings(self):
        import base64
        import struct
        with Server("--pooling", "mean", "-c", 512, "--cors", "https://a.example") as server:
            body = {"input": ["the one", "another"], "encoding_format": "float"}
            got = server.post("/v1/embeddings", body)["data"]
            self.assertEqual([item["index"] for item in got], [0, 1])
            self.assertAlmostEqual(sum(x * x for x in got[0]["embedding"]), 1, places=5)
            coded = server.post("/v1/embeddings", {**body, "encoding_format": "base64"})["data"][0]["embedding"]
            raw = base64.b64decode(coded)
            self.assertEqual(list(struct.unpack(f"<{len(raw) // 4}f", raw)),
                             [struct.unpack("<f", struct.pack("<f", x))[0] for x in got[0]["embedding"]])
            short = server.post("/v1/embeddings", {**body, "dimensions": 8})["data"][0]["embedding"]
            self.assertEqual(len(short), 8)
            self.assertAlmostEqual(sum(x * x for x in short), 1, places=5)
            server.post("/v1/chat/completions", chat("x"), status=501)
            error = server.post("/v1/embeddings", {"input": ["a", "the one " * 400000]}, status=400)["error"]
            self.assertEqual((error["code"], error["param"]), ("context_length_exceeded", "input[1]"))
            self.assertIn("more than", error["message"])
            _, headers, _ = server.ask("OPTIONS", "/v1/embeddings", None, {"Origin": "https://a.example"})
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://a.example")
            _, headers, _ = server.ask("GET", "/v1/models", None, {"Origin": "https://b.example"})
            self.assertIsNone(headers["Access-Control-Allow-Origin"])

    def test_errors_name_no_folder(self):
        """an error that is about the model's file has its name, and not where it lies"""
        with Server("-c", 512, "--override", "tokenizer.ggml.model=str:none") as server:
            for path, body in [("/v1/completions", {"prompt": "the"}), ("/tokenize", {"text": "the"})]:
                message = server.post(path, body, status=400)["error"]["message"]
                self.assertIn("tiny.gguf", message)
                self.assertNotIn(str(FOLDER), message)

    def test_check_and_usage(self):
        done = subprocess.run([TINFER, "serve", MODEL, "--check"], capture_output=True, check=True)
        found = json.loads(done.stdout)
        self.assertEqual(found["memory"]["total"], sum(v for k, v in found["memory"].items() if k != "total"))
        with Server() as first:  # an address is one server's alone
            second = subprocess.run([TINFER, "serve", MODEL, "--port", str(first.port)], capture_output=True)
        self.assertEqual(second.returncode, 1)
        self.assertIn(str(first.port).encode(), second.stderr)
        done = subprocess.run([TINFER, "serve", MODEL, "--host", "0.0.0.0", "--port", "0"], capture_output=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--no-auth", done.stderr)

    def test_drain(self):
        server = Server("-c", 2048)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(
            server.post("/v1/completions", {"prompt": "the", "max_tokens": 200, "temperature": 0, **NO_EOG})))
        thread.start()
        while not server.get("/slots") and not answers:
            time.sleep(0.005)
        self.assertEqual(server.stop(), 0)
        thread.join()
        self.assertEqual(answers[0]["usage"]["completion_tokens"], 200)


if __name__ == "__main__":
    unittest.main()
