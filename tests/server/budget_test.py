#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The memory that `tinfer serve --check` states is kept: with long heads, texts of refused requests, and all limits
filled at once."""
import concurrent.futures
import json
import socket
import threading
import time
import unittest

from limits_test import OTHERS, head, stated, status_of
from server_support import NO_EOG, Server, resident


def answer(server):
    return server.post("/v1/chat/completions", OTHERS)["choices"]


def idle(server, seconds=60):
    until = time.monotonic() + seconds
    while server.get("/slots"):
        if time.monotonic() > until:
            raise AssertionError("requests stay in their slots")
        time.sleep(0.02)


class Budgets(unittest.TestCase):
    def test_expose_text_keeps_nothing_of_what_was_refused(self):
        """Requests that are refused for their memory leave no text behind"""
        with Server("-c", 16384, "--parallel", 2, "--expose-text", "--answer-memory", 1 << 20, "--max-queue",
                    1000) as server:
            body = {"prompt": ["once " * 3500] * 64, "max_tokens": 1, "temperature": 0}
            after = []
            for _ in range(30):
                self.assertEqual(server.ask("POST", "/v1/completions", body)[0], 400)
                after.append(resident(server))
            idle(server)
            self.assertLess(max(after[10:]) - max(after[:10]), 8 << 20)
            self.assertEqual(server.get("/slots"), [])

    def test_long_heads(self):
        """Heads of megabytes, from clients without a key: refused, and within the memory that was stated"""
        args = ("--api-key", "key", "--max-connections", 40, "--max-body", 1 << 16, "-c", 512)
        limit = stated(*args)["total"]
        with Server(*args) as server:
            for begin, unit, status in [(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n", b"a:b\r\n", 431),
                                        (b"GET /v1/models?", b"abcd&", 414)]:
                def send(_, begin=begin, unit=unit):
                    with server.socket() as one:
                        try:
                            one.sendall(begin)
                            for _ in range(128):
                                one.sendall(unit * (65536 // len(unit)))
                        except OSError:
                            pass
                        return status_of(one)
                with concurrent.futures.ThreadPoolExecutor(24) as pool:
                    said = set(pool.map(send, range(24)))
                self.assertTrue(said <= {status, None} and status in said, said)
                self.assertLess(resident(server), limit)
            # Heads that are nearly as long as they may be, and stay.
            waiting = [server.socket() for _ in range(36)]
            for one in waiting:
                one.sendall(b"GET / HTTP/1.1\r\nX: " + b"y" * 65000)
            self.assertEqual(server.get("/health"), {"status": "ok"})
            self.assertLess(resident(server), limit)
            for one in waiting:
                one.close()

    def test_everything_is_full(self):
        """All limits at once, heads, bodies, documents, waiting requests with their texts, answers that nobody reads:
        the sum that was stated holds, and behind it the same answers are given"""
        args = ("--max-connections", 150, "--max-body", 1 << 20, "--answer-memory", 4 << 20, "-c", 8192,
                "--parallel", 4, "--max-queue", 32, "--expose-text", "--read-timeout", 5)
        limit = stated(*args)["total"]
        with Server(*args) as server:
            expected, most, stop = answer(server), [0], threading.Event()
            before = resident(server)

            def watch():
                while not stop.wait(0.01):
                    most[0] = max(most[0], resident(server))
            watching = threading.Thread(target=watch)
            watching.start()
            held = []

            def hold(data):
                one = socket.socket()
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                one.settimeout(10)
                one.connect((server.host, server.port))
                held.append(one)
                try:
                    one.sendall(data)
                except OSError:
                    pass
            long = {"prompt": [300] * 4000, "max_tokens": 3000, "logprobs": 20, "stop": ["~" * 500] * 16, **NO_EOG}
            for i in range(40):
                body = json.dumps({**long, "stream": i % 2 == 0, "seed": i}).encode()
                hold(head("/v1/completions", len(body)) + body)
            brackets = b'{"prompt":[' + b"[]," * 340000 + b"[]]}"
            with concurrent.futures.ThreadPoolExecutor(20) as pool:
                for i in range(20):
                    pool.submit(hold, b"GET / HTTP/1.1\r\nX: " + b"y" * 65000)
                    pool.submit(hold, head("/v1/completions", 1 << 20) + b"{" * ((1 << 20) - 1))
                    pool.submit(hold, head("/v1/completions", len(brackets)) + brackets)
            try:
                until = time.monotonic() + 60
                while server.ask("GET", "/health")[0] != 200 and time.monotonic() < until:
                    time.sleep(0.1)
                time.sleep(1)
            finally:
                stop.set()
                watching.join()
                for one in held:
                    one.close()
            self.assertLess(most[0], limit)
            self.assertGreater(most[0] - before, limit // 20, "nothing was filled")
            idle(server)
            self.assertEqual(answer(server), expected)


if __name__ == "__main__":
    unittest.main()
