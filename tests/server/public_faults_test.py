#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Requests that have ended, blocked or misled servers of this field, by the numbers under which that became public
(docs/security.md has the list, and says what stands for the rest of it). Each gets one answer that says what is wrong
with it, or none; the server goes on, takes no more memory for it, and gives the next client the same bytes as ever."""
import re
import socket
import threading
import time
import unittest
import zlib

from server_support import NO_EOG, Server, chat, resident

CHATS, TEXTS = "/v1/chat/completions", "/v1/completions"


def statuses(server, data, wait=20):
    """Of all answers to bytes sent in one connection, until the server closes it."""
    with server.socket(wait) as one:
        received = b""
        try:
            one.sendall(data)
            one.shutdown(socket.SHUT_WR)
            while part := one.recv(65536):
                received += part
        except (ConnectionError, TimeoutError):
            pass  # closed while it was still being sent to
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d{3})", received)], received


class PublicFaults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 2, "-c", 1024, "--max-body", 1 << 20, "--read-timeout", 5, "--api-key", "k")
        cls.key = {"Authorization": "Bearer k"}
        cls.expected = cls.server.post(CHATS, chat("as ever"), **cls.key)["choices"]

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def setUp(self):
        self.before = resident(self.server)

    def tearDown(self):
        self.assertEqual(self.server.post(CHATS, chat("as ever"), **self.key)["choices"], self.expected)
        self.assertLess(resident(self.server), self.before + (48 << 20), "memory stays behind")

    def refused(self, path, body, param):
        error = self.server.post(path, body, status=400, **self.key)["error"]
        self.assertEqual(error["param"], param, error)
        self.assertNotRegex(error["message"], r"0x[0-9a-fA-F]{6,}|/(home|usr|tmp|srv)/", "nobody's business")

    def test_numbers_without_bounds(self):
        """CVE-2026-34756: n. CVE-2026-21869: a negative count of tokens to drop. And their like"""
        for huge in (2**31, 2**63, 2**64, 1e300, -1, -2**63):
            self.refused(CHATS, chat("x", n=huge), "n")
            self.refused(TEXTS, {"prompt": "x", "n": huge}, "n")
            self.refused(CHATS, chat("x", logprobs=True, top_logprobs=huge), "top_logprobs")
            if huge != -1:  # which is without a limit
                self.refused(TEXTS, {"prompt": "x", "max_tokens": huge}, "max_tokens")
            self.refused(TEXTS, {"prompt": [huge]}, "prompt")
            self.refused(TEXTS, {"prompt": "x", "logit_bias": {str(huge): 1}}, "logit_bias")
        for unknown in ("n_discard", "n_keep", "best_of_all"):
            self.assertIn(unknown, self.server.post(TEXTS, {"prompt": "x", "max_tokens": 1, unknown: -1, **NO_EOG},
                                                    **self.key)["warnings"][0])

    def test_nothing_as_a_prompt(self):
        """An empty prompt, a list of none, none of messages"""
        for prompt in ([], [[]], "", [""], None):  # of no tokens, or of BOS alone
            self.assertIn(self.server.ask("POST", TEXTS, {"prompt": prompt, "max_tokens": 1}, self.key)[0], (200, 400))
        self.refused(CHATS, {"messages": []}, "messages")

    def test_malformed_parts_of_tools(self):
        """CVE-2025-48944: a pattern that is no expression and a type that is no type, in a tool"""
        for broken in ({"type": "string", "pattern": "["}, {"type": "strange"}, {"type": 7}, {"pattern": {}},
                       {"$ref": "#/nowhere"}, {"enum": 3}):
            tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
                "type": "object", "properties": {"x": broken}, "required": ["x"], "additionalProperties": False}}}
            status = self.server.ask("POST", CHATS, chat("x", tools=[tool], tool_choice="required"), self.key)[0]
            self.assertEqual(status, 400, broken)

    def test_expressions_that_backtrack(self):
        """CWE-1333: expressions that take exponential time where they are searched by trying"""
        begin = time.monotonic()
        for pattern in ("^(a+)+$", "^(a|aa)+$", "^(.*a){20}$", "^([a-z]+)*[A-Z]$", "(x+x+)+y"):
            schema = {"type": "string", "pattern": pattern, "maxLength": 40}
            status = self.server.ask("POST", CHATS, chat("x", max_tokens=60, response_format={
                "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}), self.key)[0]
            self.assertIn(status, (200, 400))
        self.assertLess(time.monotonic() - begin, 60)

    def test_settings_of_the_template(self):
        """CVE-2025-62426: template_kwargs that stand for something else than a variable of the template"""
        for name in ("tokenize", "messages", "tools", "add_generation_prompt", "documents", "self", "loop"):
            ask = chat("x", chat_template_kwargs={name: [True] * 100})
            self.assertIn(self.server.ask("POST", CHATS, ask, self.key)[0], (200, 400), name)

    def test_media_are_not_fetched(self):
        """CVE-2026-24779: addresses in a message; nobody is asked for them"""
        with socket.create_server(("127.0.0.1", 0)) as inside:
            inside.settimeout(0.5)
            port = inside.getsockname()[1]
            for address in (f"http://127.0.0.1:{port}/a", f"http://a.example\\@127.0.0.1:{port}/",
                            "file:///etc/passwd"):
                part = {"type": "image_url", "image_url": {"url": address}}
                self.server.post(CHATS, {"messages": [{"role": "user", "content": [part]}]}, status=400, **self.key)
                schema = {"$ref": address}
                self.server.ask("POST", CHATS, chat("x", response_format={
                    "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}), self.key)
            with self.assertRaises(TimeoutError):
                inside.accept()

    def test_paths(self):
        """CWE-22: names that lead out of a folder"""
        for name in ("../../etc/passwd", "..%2f..%2fetc%2fpasswd", "sha256:../../x", "%00", "a" * 4000):
            for path in ("/v1/models/" + name, "/" + name):
                status, _, body = self.server.ask("GET", path, None, self.key)
                self.assertIn(status, (400, 404, 414), path)
                self.assertNotIn(b"root:", body)

    def test_heads(self):
        """CVE-2025-48956, CVE-2025-53628, CVE-2025-52887: one long line, and many; CVE-2026-46527: an address that is
        none. Without a key"""
        line = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
        for head in (b"GET /" + b"a" * (4 << 20) + b" HTTP/1.1\r\n", line + b"X: " + b"a" * (4 << 20) + b"\r\n\r\n",
                     line + b"".join(b"X%d: y\r\n" % i for i in range(300000)) + b"\r\n"):
            codes, _ = statuses(self.server, head)
            self.assertLessEqual(len(codes), 1)
            self.assertNotIn(200, codes)
        for value in (b"", b",", b" , ,", b"\xff\xfe", b"1.2.3.4,"):
            codes, _ = statuses(self.server, line + b"X-Forwarded-For: " + value + b"\r\n\r\n")
            self.assertIn(codes, ([200], [400]))

    def test_line_ends_in_disguise(self):
        """CVE-2026-45372: a line end that is written as %0D%0A stays what it is"""
        for name in (b"Origin", b"X-Request-Id", b"Content-Type", b"Authorization", b"Host"):
            head = (b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + name
                    + b": http://a.example%0d%0aX-Planted: yes%0d%0a%0d%0aplanted\r\n\r\n")
            codes, received = statuses(self.server, head)
            self.assertLessEqual(len(codes), 1)
            self.assertNotIn(b"X-Planted", received.split(b"\r\n\r\n")[0])

    def test_bodies_without_an_end(self):
        """CVE-2025-46728: chunks that go on for ever are too much at the limit of a body"""
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer k\r\n"
        chunks = b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"a" * 65536 + b"\r\n") * 64
        codes, _ = statuses(self.server, head + chunks)
        self.assertIn(codes, ([413], [400], []))

    def test_compressed_bodies(self):
        """CVE-2024-12886: half a megabyte that becomes 600 is too much at the limit of a body, or is not read at all"""
        packer = zlib.compressobj(9, wbits=31)
        bomb = packer.compress(b'{"prompt": "') + b"".join(packer.compress(b"a" * (1 << 20)) for _ in range(600))
        bomb += packer.flush()
        self.assertLess(len(bomb), 1 << 20)
        for name in ("gzip", "deflate", "br", "gzip, gzip", "strange"):
            status = self.server.ask("POST", TEXTS, bomb, {"Content-Encoding": name, **self.key})[0]
            self.assertIn(status, (400, 413, 415), name)

    def test_rebinding(self):
        """CVE-2024-28224: a page of a name that leads to this machine is not of this machine"""
        with Server("-c", 512) as server:
            for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "[::2]"):
                for path in ("/v1/models", "/", "/metrics", "/slots", "/openapi.json"):
                    self.assertEqual(server.ask("GET", path, None, {"Host": host})[0], 403, (host, path))

    def test_keys_are_asked_for_everywhere(self):
        """CWE-306: nothing but its health is told without a key, however the path is written"""
        for path in ("/v1/models", "/slots", "/metrics", "/activity", "/v1/models/tiny", "//v1/models", "/v1/./models",
                     "/V1/models", "/v1/models/", "/v1/models?x", "/v1%2fmodels"):
            self.assertIn(self.server.ask("GET", path)[0], (401, 404), path)
        for path in (CHATS, TEXTS, "/v1/messages", "/v1/responses", "/tokenize", "/detokenize", "/apply-template",
                     "/v1/embeddings", "/v1/rerank"):
            self.assertIn(self.server.ask("POST", path, {})[0], (401, 404), path)

    def test_caches_of_schemas_are_bounded(self):
        """GHSA-mgrm-fgjv-mhv8: schemas that nobody has asked for before, one after the other. tearDown looks at memory
        """
        def ask(first):
            for i in range(first, first + 100):
                schema = {"type": "object", "properties": {f"p{i}_{k}": {"type": "string"} for k in range(30)}}
                status = self.server.ask("POST", CHATS, chat("x", max_tokens=1, response_format={
                    "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}), self.key)[0]
                self.assertIn(status, (200, 503))
        threads = [threading.Thread(target=ask, args=(1000 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    unittest.main()
