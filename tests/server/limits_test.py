#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `tinfer serve` does with clients that are slow, silent, huge, many or gone, plain and over TLS: it stays up,
says what is wrong, answers the others with the same bytes, and keeps within the memory that it said."""
import concurrent.futures
import http.client
import json
import random
import select
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from server_support import FOLDER, MODEL, NO_EOG, TINFER, Server, chat, resident

OTHERS = chat("What the others ask", seed=3, temperature=1.1, max_tokens=12)


def head(path, length, more=b""):
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n" % (path.encode(), length, more)


def status_of(connection):
    """The status of the next response, None where the connection ends without one."""
    data = b""
    try:
        while b"\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                break
            data += part
    except (ConnectionError, TimeoutError, ssl.SSLError):
        pass
    return int(data.split()[1]) if data.startswith(b"HTTP/1.1 ") else None


def stated(*args):
    done = subprocess.run([TINFER, "serve", MODEL, "--check", *map(str, args)], capture_output=True, check=True)
    return json.loads(done.stdout)["memory"]


class Clients(unittest.TestCase):
    def answer(self, server):
        return server.post("/v1/chat/completions", OTHERS)["choices"]

    def idle(self, server, seconds=20):
        until = time.monotonic() + seconds
        while server.get("/slots"):
            self.assertLess(time.monotonic(), until, "requests stay in their slots")
            time.sleep(0.02)

    def slow(self, server):
        """Slow-loris: a byte now and then, in the head or in the body. Ended in --read-timeout, with 408 where it can
        be."""
        for begin, bit in [(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", b"X: y\r\n"),
                           (head("/v1/completions", 10000), b"{")]:
            with server.socket() as one:
                ended = threading.Event()

                def drip():
                    try:
                        while not ended.wait(0.1):
                            one.sendall(bit)
                    except (OSError, ssl.SSLError):
                        pass
                one.sendall(begin)
                thread = threading.Thread(target=drip)
                started = time.monotonic()
                thread.start()
                status = status_of(one)
                self.assertGreater(time.monotonic() - started, 0.5)
                ended.set()
                thread.join()
                if bit == b"{":
                    self.assertEqual(status, 408)


    def half_closed(self, server, fields):
        """(status, body) for a client that ends its side of the connection behind its request"""
        body = json.dumps({**OTHERS, **fields}).encode()
        with server.socket() as one:
            one.sendall(head("/v1/chat/completions", len(body)) + body)
            socket.socket.shutdown(one, socket.SHUT_WR)
            response = http.client.HTTPResponse(one)
            response.begin()  # leaves interim responses out
            return response.status, response.read()

    def check_half_closed(self, server):
        for n in [12, 1500]:
            whole = server.post("/v1/chat/completions", {**OTHERS, "max_tokens": n})["choices"]
            status, data = self.half_closed(server, {"max_tokens": n})
            self.assertEqual((status, json.loads(data)["choices"]), (200, whole))
            status, data = self.half_closed(server, {"max_tokens": n, "stream": True})
            self.assertTrue(status == 200 and data.endswith(b"data: [DONE]\n\n"), data[-200:])
            events = [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]
            text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
            self.assertEqual(text, whole[0]["message"]["content"])


class Limits(Clients):
    def test_half_closed(self):
        """A client that says that it sends no more is answered like any other"""
        with Server("-c", 4096, "--parallel", 2) as server:
            self.check_half_closed(server)

    def test_closed(self):
        """One that closes its connection is seen, also where it had ended its side before"""
        with Server("-c", 262144, "--parallel", 1) as server:
            for stream in [False, True]:
                for half_before in [False, True]:
                    body = json.dumps({**OTHERS, "max_tokens": 200000, "stream": stream}).encode()
                    with server.socket() as one:
                        one.sendall(head("/v1/chat/completions", len(body)) + body)
                        if half_before:
                            one.shutdown(socket.SHUT_WR)
                        while not server.get("/slots"):
                            pass
                        if half_before:
                            time.sleep(0.2)
                            self.assertTrue(server.get("/slots"))
                    self.idle(server, 5)

    def test_many_hang(self):
        """1,000 connections of which 900 hang in the middle of a request: the others are answered as ever"""
        args = ("--parallel", 4, "-c", 1024, "--read-timeout", 20, "--max-queue", 200)
        with Server(*args) as server:
            expected = self.answer(server)
            hanging = []
            for i in range(900):
                one = socket.create_connection((server.host, server.port))
                one.sendall([b"", b"POST /v1/chat", head("/v1/chat/completions", 500) + b'{"messages": [',
                             b"GET / HTTP/1.1\r\nHo"][i % 4])
                hanging.append(one)
            with concurrent.futures.ThreadPoolExecutor(100) as pool:
                for got in pool.map(lambda _: self.answer(server), range(100)):
                    self.assertEqual(got, expected)
            self.assertLess(resident(server), stated(*args)["total"])
            full = [socket.create_connection((server.host, server.port)) for _ in range(110)]
            # Beyond --max-connections. Each is counted by its own thread, so any of them may come last.
            answered = select.poll()
            for one in full:
                answered.register(one, select.POLLIN)
            of_number = {one.fileno(): one for one in full}
            refused = [of_number[number] for number, _ in answered.poll(20000)]
            self.assertTrue(refused)
            for one in refused:
                self.assertEqual(status_of(one), 503)
            for one in full + hanging:
                one.close()
            until = time.monotonic() + 20
            while server.ask("GET", "/health")[0] != 200 and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(self.answer(server), expected)

    def test_slow(self):
        with Server("--read-timeout", 1, "-c", 512) as server:
            self.slow(server)
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_bodies(self):
        """Huge, deep, damaged and chunked bodies: the right status, and the bytes of none of them are kept"""
        args = ("--parallel", 2, "-c", 512)
        with Server(*args) as server:
            expected, limit = self.answer(server), stated(*args)["total"]
            with server.socket() as one:  # 1 GB that is announced and sent
                one.sendall(head("/v1/completions", 1 << 30))
                sent, block = 0, b'{"prompt": "' + b"x" * (1 << 20)
                try:
                    while sent < 1 << 30:
                        one.sendall(block)
                        sent += len(block)
                except OSError:
                    pass
                self.assertLess(sent, 1 << 28, "the server reads what it refuses")
                self.assertIn(status_of(one), (413, None))  # None: the rest on its way broke the connection
            with server.socket() as one:  # the same in chunks, whose sum nobody announces
                one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
                try:
                    for _ in range(1024):
                        one.sendall(b"100000\r\n" + b"x" * (1 << 20) + b"\r\n")
                    self.fail("a gigabyte of chunks was taken")
                except OSError:
                    pass
            self.assertEqual(server.ask("POST", "/v1/completions", b"x" * (9 << 20))[0], 413)
            deep = [b"[" * n + b"]" * n for n in (101, 10000, 4000000)] + [
                b'{"a":' * 1000000, b'{"prompt":"' + b"\\u0000" * 10 + b"\xff" + b'"}', b'{"prompt":"\xed\xa0\x80"}',
                b'{"prompt":"\xc0\xaf"}', b"\xef\xbb\xbf{", b'{"prompt": NaN}', b"\x00" * 1000]
            for body in deep:
                status, _, text = server.ask("POST", "/v1/completions", body)
                self.assertEqual((status, json.loads(text)["error"]["code"]), (400, "invalid_json"), body[:40])
            names = b",".join(b'"%x":0' % i for i in range(700000))
            for body in [b'{"prompt":[' + b"[]," * 2700000 + b"[]]}", b'{"a":[' + b"{}," * 2700000 + b"{}]}",
                         b'{"a":{' + b'"":0,' * 1600000 + b'"b":1}}', b'{"a":{' + names + b"}}", b"{" + names + b"}"]:
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    for status in pool.map(lambda _: server.ask("POST", "/v1/completions", body)[0], range(6)):
                        self.assertEqual(status, 400)
                self.assertLess(resident(server), limit)
            self.assertEqual(self.answer(server), expected)

    def test_form_data(self):
        """What curl calls a form is a body like others, whatever its length"""
        body = json.dumps({"prompt": "x" * 20000, "max_tokens": 1, "truncate": "middle"}).encode()
        with Server("-c", 512) as server:
            for kind, expected in [("application/x-www-form-urlencoded", 200), ("text/plain", 200),
                                   ("multipart/form-data; boundary=x", 400)]:
                status, _, _ = server.ask("POST", "/v1/completions", body, {"Content-Type": kind})
                self.assertEqual(status, expected, kind)
            with server.socket() as one:  # no length at all: nothing to wait for
                one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertEqual(status_of(one), 400)

    def test_refused_bodies_are_no_requests(self):
        """A body that was refused unread ends the connection: it is not taken for the next request"""
        hidden = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key\r\n\r\n"
        with Server("-c", 512, "--api-key", "key") as server:
            for path in ["/v1/completions", "/nowhere", "/v1/models"]:
                with server.socket(10) as one:
                    one.sendall(head(path, len(hidden)) + hidden)
                    data = b""
                    try:
                        while part := one.recv(65536):
                            data += part
                    except ConnectionError:
                        pass
                    self.assertEqual(data.count(b"HTTP/1.1 "), 1, data)

    def test_cancel_at_random(self):
        """Clients that leave at random moments: the answers of the others have the same bytes, all slots are free"""
        chance = random.Random(5)
        with Server("--parallel", 4, "-c", 2048, "--max-queue", 200) as server:
            expected, stop = self.answer(server), threading.Event()

            def leave(seed):
                own = random.Random(seed)
                while not stop.is_set():
                    body = json.dumps(chat("leaves " * own.randrange(1, 60), max_tokens=300, seed=1,
                                           stream=own.random() < 0.5)).encode()
                    try:
                        with server.socket() as one:
                            data = head("/v1/chat/completions", len(body)) + body
                            one.sendall(data[:own.randrange(1, len(data) + 1)] if own.random() < 0.3 else data)
                            time.sleep(own.random() * 0.1)
                    except OSError:
                        pass
            threads = [threading.Thread(target=leave, args=(chance.random(),)) for _ in range(6)]
            for thread in threads:
                thread.start()
            try:
                for _ in range(25):
                    self.assertEqual(self.answer(server), expected)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
            self.idle(server)
            self.assertEqual(self.answer(server), expected)

    def test_does_not_read(self):
        """A client that reads nothing of its stream: others are answered, and its time ends"""
        with Server("--parallel", 4, "-c", 4096, "--read-timeout", 1) as server:
            expected = self.answer(server)
            body = json.dumps(chat("long", max_tokens=900, stream=True, logprobs=True, top_logprobs=20)).encode()
            deaf = []
            for _ in range(3):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                one.connect((server.host, server.port))
                one.sendall(head("/v1/chat/completions", len(body)) + body)
                deaf.append(one)
            for _ in range(10):
                self.assertEqual(self.answer(server), expected)
            self.idle(server)
            for one in deaf:
                one.close()

    def test_answers_that_nobody_reads(self):
        """Forty clients that want large answers and read none, whole or as a stream: what they hold stays within the
        memory that was stated, and others are answered with the same bytes. Streams wait for their readers, and lose
        nothing"""
        args = ("--parallel", 8, "-c", 16384, "--max-queue", 100, "--answer-memory", 8 << 20, "--max-body", 1 << 18,
                "--max-connections", 100, "--read-timeout", 300)
        limit = stated(*args)["total"]
        for stream in [False, True]:
            with self.subTest(stream=stream), Server(*args) as server:
                expected, most, stop = self.answer(server), [0], threading.Event()

                def watch():
                    while not stop.wait(0.01):
                        most[0] = max(most[0], resident(server))
                watching = threading.Thread(target=watch)
                watching.start()
                deaf = []
                for i in range(40):
                    body = json.dumps(chat(f"long {i}", max_tokens=600 if stream else 1500, stream=stream,
                                           logprobs=True, top_logprobs=20)).encode()
                    one = socket.socket()
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    one.connect((server.host, server.port))
                    one.sendall(head("/v1/chat/completions", len(body)) + body)
                    deaf.append(one)
                try:
                    answered = 0
                    while answered < 5 or (not stream and server.get("/slots")):
                        self.assertEqual(self.answer(server), expected)
                        answered += 1
                    until = time.monotonic() + 60
                    while stream and len(server.get("/slots")) != 40:  # all of them, and none has ended
                        self.assertLess(time.monotonic(), until)
                finally:
                    stop.set()
                    watching.join()
                self.assertLess(most[0], limit)
                said = []
                for one in deaf:  # now they read what there is, and what the server still makes
                    one.settimeout(60)
                    try:
                        response = http.client.HTTPResponse(one)  # knows where one ends on a connection that is kept
                        response.begin()
                        said.append(response.read())
                    except (OSError, http.client.HTTPException):
                        said.append(b"")
                    one.close()
                if stream:
                    self.assertEqual([data.count(b'"top_logprobs":[{') for data in said], [600] * 40)
                self.assertFalse([data for data in said if stream and b"data: [DONE]" not in data])
                self.assertEqual(self.answer(server), expected)

    def test_answer_too_large(self):
        """An answer that is larger than all may be: 400 where that is known before, or as soon as it is; as a stream
        it is given"""
        with Server("-c", 8192, "--answer-memory", 1 << 20) as server:
            long = chat("long", max_tokens=700, logprobs=True, top_logprobs=20)
            error = server.post("/v1/chat/completions", long, 400)["error"]
            self.assertEqual(error["code"], "answer_too_large")
            self.assertIn("1048576 bytes (--answer-memory)", error["message"])
            events = server.events("/v1/chat/completions", long)
            self.assertEqual(sum(len((c["logprobs"] or {}).get("content", [])) for e in events for c in e["choices"]),
                             700)
            ids = {"tokens": [server.post("/tokenize", {"text": "e"})["tokens"][-1]] * 600000}
            self.assertEqual(len(server.post("/detokenize", ids)["text"].strip()), 600000)
            ids["tokens"] *= 2
            self.assertEqual(server.post("/detokenize", ids, 400)["error"]["code"], "answer_too_large")
            text = {"text": "\U0001F98A" * 100000}
            self.assertEqual(server.post("/tokenize", text, 400)["error"]["code"], "answer_too_large")
        with Server("-c", 512, "--pooling", "mean", "--answer-memory", 1 << 20) as server:
            many = {"input": ["x"] * 1000}
            error = server.post("/v1/embeddings", many, 400)["error"]
            self.assertEqual((error["code"], error["param"]), ("answer_too_large", "input"))
            self.assertEqual(len(server.post("/v1/embeddings", {**many, "encoding_format": "base64"})["data"]), 1000)

    def test_queue_is_bounded(self):
        """--max-queue: one more gets 503 with Retry-After, and those that wait are answered"""
        with Server("--parallel", 1, "--max-queue", 2, "-c", 2048) as server:
            long = {"prompt": "the", "max_tokens": 400, "temperature": 0, **NO_EOG}
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                got = list(pool.map(lambda _: server.ask("POST", "/v1/completions", long), range(12)))
            statuses = [status for status, _, _ in got]
            self.assertEqual(set(statuses), {200, 503})
            for status, headers, text in got:
                if status == 503:
                    self.assertEqual(headers["Retry-After"], "1")
                    self.assertEqual(json.loads(text)["error"]["code"], "queue_full")

    def test_request_timeout(self):
        """--request-timeout ends an answer that takes longer"""
        with Server("-c", 262144, "--request-timeout", 1, "--parallel", 1) as server:
            status, _, text = server.ask("POST", "/v1/completions",
                                         {"prompt": "the", "max_tokens": 200000, "temperature": 0, **NO_EOG})
            self.assertEqual((status, json.loads(text)["error"]["code"]), (503, "timeout"))
            self.idle(server)

    def test_expose_text(self):
        """/slots shows texts where --expose-text allows it, and nowhere else"""
        body = chat("secret words", max_tokens=400)
        for args, shown in [([], False), (["--expose-text"], True)]:
            with Server("-c", 2048, *args) as server:
                thread = threading.Thread(target=lambda: server.post("/v1/chat/completions", body))
                thread.start()
                seen = []
                while thread.is_alive() and not (
                        seen and seen[-1]["generated_tokens"] > 5 and seen[-1].get("text", "-")):
                    seen = server.get("/slots") or seen
                thread.join()
                self.assertTrue(seen)
                if shown:
                    self.assertIn("secret words", seen[-1]["prompt"])
                    self.assertTrue(seen[-1]["text"])
                else:
                    self.assertNotIn("secret", json.dumps(seen))
                    self.assertFalse({"prompt", "text"} & set(seen[-1]))

    def test_model_cut_under_the_map(self):
        """A model file that is cut short while it is served: an error for each request, and the server stays"""
        model = FOLDER / "cut.gguf"
        shutil.copy(MODEL, model)
        with Server("-c", 512, model=model) as server:
            self.answer(server)
            with open(model, "r+b") as file:
                file.truncate(4096)
            statuses = {server.ask("POST", "/v1/chat/completions", {**OTHERS, "cache_prompt": False})[0]
                        for _ in range(3)}
            self.assertEqual(statuses, {500})
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_drain_refuses(self):
        """SIGTERM: new requests get 503, what runs is ended after --drain"""
        with Server("-c", 262144, "--parallel", 1, "--drain", 1) as server:
            got = []
            thread = threading.Thread(target=lambda: got.append(
                server.ask("POST", "/v1/completions",
                           {"prompt": "the", "max_tokens": 200000, "temperature": 0, **NO_EOG})))
            thread.start()
            while not server.get("/slots"):
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            status, headers, _ = server.ask("GET", "/v1/models")
            self.assertEqual((status, headers["Retry-After"]), (503, "1"))
            self.assertEqual(server.process.wait(30), 0)  # a second signal would end it at once
            thread.join()
            self.assertEqual(got[0][0], 200)  # cut: finish_reason says so
            self.assertEqual(json.loads(got[0][2])["choices"][0]["finish_reason"], "length")


@unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
class Tls(Clients):

    @classmethod
    def setUpClass(cls):
        cls.cert, cls.key = FOLDER / "cert.pem", FOLDER / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", cls.key,
                        "-out", cls.cert, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, capture_output=True)

    def serve(self, *args):
        return Server("--cert", self.cert, "--key", self.key, *args)

    def test_tls(self):
        """whole answers and streams over TLS, with the certificate checked; what is no TLS gets nothing"""
        with self.serve("-c", 2048) as server:
            self.assertTrue(server.address.startswith("https://"))
            whole = self.answer(server)
            events = server.events("/v1/chat/completions", OTHERS)
            text = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
            self.assertEqual(text, whole[0]["message"]["content"])
            checked = ssl.create_default_context(cafile=self.cert)
            with checked.wrap_socket(socket.create_connection((server.host, server.port)),
                                     server_hostname="localhost") as one:
                self.assertIn(one.version(), ("TLSv1.2", "TLSv1.3"))
                one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertEqual(status_of(one), 200)
            with socket.create_connection((server.host, server.port)) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                self.assertIsNone(status_of(plain))
            large = {"prompt": "y" * 300000, "max_tokens": 1, "truncate": "middle"}
            self.assertEqual(server.ask("POST", "/v1/completions", large)[0], 200)

    def test_tls_half_closed(self):
        with self.serve("-c", 4096, "--parallel", 2) as server:
            self.check_half_closed(server)

    def test_tls_slow(self):
        with self.serve("-c", 512, "--read-timeout", 1, "--max-connections", 40) as server:
            silent = [socket.create_connection((server.host, server.port)) for _ in range(30)]  # no handshake
            self.slow(server)
            self.assertEqual(server.get("/health"), {"status": "ok"})
            for one in silent:
                one.settimeout(10)
                self.assertIsNone(status_of(one))  # ended by the server
                one.close()

    def test_tls_client_gone(self):
        """a client that says goodbye, or just leaves, frees its slot"""
        body = json.dumps(chat("gone", max_tokens=2000)).encode()
        with self.serve("-c", 16384, "--parallel", 2) as server:
            expected = self.answer(server)
            for goodbye in [True, False]:
                one = server.socket()
                one.sendall(head("/v1/chat/completions", len(body)) + body)
                while not server.get("/slots"):
                    pass
                if goodbye:
                    one.settimeout(0.05)
                    try:
                        one.unwrap()
                    except (OSError, ssl.SSLError):
                        pass
                one.close()
                self.idle(server, 5)
            self.assertEqual(self.answer(server), expected)


if __name__ == "__main__":
    unittest.main()
