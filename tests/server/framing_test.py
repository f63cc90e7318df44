#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Requests as bytes: what a head may look like (RFC 9112 §2 to RFC 9112 §5), and where a body ends (RFC 9112 §6 and
RFC 9112 §7). Each malformed or ambiguous request gets one answer, the connection ends, and nothing of what was sent
with it is taken for a request."""
import email.utils
import json
import re
import socket
import ssl
import threading
import time
import unittest

from server_support import NO_EOG, Server

# What a client hides behind a request: it would be answered with a list of models.
HIDDEN = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = json.dumps({"text": "the one"}).encode()
TOKENS = b'{"tokens":['
HOST = b"Host: localhost\r\n"


def get(fields=b"", target=b"/health", version=b"HTTP/1.1", host=HOST, method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + host + fields + b"\r\n"


def post(fields, body=b"", **more):
    return get(fields, more.pop("target", b"/tokenize"), method=b"POST", **more) + body


def length(n):
    return b"Content-Length: " + (n if isinstance(n, bytes) else b"%d" % n) + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked\r\n"


def chunks(*parts, last=b"0\r\n\r\n"):
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + last


def everything(one, seconds=20):
    """(bytes until the connection ends, whether it has ended)"""
    one.settimeout(seconds)
    data = b""
    try:
        while part := one.recv(65536):
            data += part
    except (TimeoutError, ssl.SSLError):
        return data, False
    except ConnectionError:
        pass
    return data, True


def statuses(data):
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d\d\d) ", data)]


# Each is followed by HIDDEN where it ends, and is answered once.
REFUSED = {
    # RFC 9112 §2.2: lines
    "LF alone behind the request line": (400, b"GET /health HTTP/1.1\n" + HOST + b"\r\n"),
    "LF alone behind a field": (400, b"GET /health HTTP/1.1\r\nHost: localhost\n\r\n"),
    "LF alone everywhere": (400, b"GET /health HTTP/1.1\nHost: localhost\n\n"),
    "CR alone in the request line": (400, get(target=b"/health\rX")),
    "CR alone in a value": (400, get(b"X: a\rb\r\n")),
    "CR CR LF": (400, get(b"X: a\r\r\n")),
    "NUL in a value": (400, get(b"X: a\0b\r\n")),
    "another control character": (400, get(b"X: a\x0bb\r\n")),
    "DEL": (400, get(b"X: a\x7f\r\n")),
    "a space before the first field": (400, b"GET /health HTTP/1.1\r\n X: y\r\n" + HOST + b"\r\n"),
    "hello of TLS, or noise": (400, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    # RFC 9112 §2.3 and RFC 9112 §3: the request line
    "no version": (400, b"GET /health\r\n" + HOST + b"\r\n"),
    "two spaces": (400, b"GET  /health HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a space in the target": (400, get(target=b"/hea lth")),
    "a tab in place of a space": (400, b"GET\t/health HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a space behind the version": (400, get(version=b"HTTP/1.1 ")),
    "a space before the method": (400, b" GET /health HTTP/1.1\r\n" + HOST + b"\r\n"),
    "no method": (400, b"/health HTTP/1.1\r\n" + HOST + b"\r\n"),
    "a method that is no token": (400, get(method=b"G(E)T")),
    "a version in lower case": (400, get(version=b"http/1.1")),
    "another protocol": (400, get(version=b"HTTPS/1.1")),
    "a version of many digits": (400, get(version=b"HTTP/1.11")),
    "HTTP/2.0": (505, get(version=b"HTTP/2.0")),
    "the preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "HTTP/0.9": (505, get(version=b"HTTP/0.9")),
    "a target without a slash": (400, get(target=b"health")),
    "an asterisk for GET": (400, get(target=b"*")),
    "CONNECT": (400, get(method=b"CONNECT", target=b"localhost:80")),
    "a fragment": (400, get(target=b"/health#x")),
    "bytes that no URI has": (400, get(target=b"/v1/models/\xff\xfe")),
    "half a percent": (400, get(target=b"/health%2")),
    "percent without digits": (400, get(target=b"/health%zz")),
    "an absolute target of another scheme": (400, get(target=b"ftp://localhost/health")),
    "an absolute target with a user": (400, get(target=b"http://me@localhost/health")),
    # RFC 9112 §3.2: Host
    "no Host": (400, get(host=b"")),
    "two Hosts": (400, get(b"Host: evil.example\r\n")),
    "two equal Hosts": (400, get(HOST)),
    "a Host with a path": (400, get(host=b"Host: localhost/x\r\n")),
    "a Host with a user": (400, get(host=b"Host: me@localhost\r\n")),
    "a Host with two ports": (400, get(host=b"Host: localhost:1:2\r\n")),
    "a Host with a list": (400, get(host=b"Host: localhost evil.example\r\n")),
    # RFC 9112 §5: fields
    "a space before the colon": (400, get(b"X : y\r\n")),
    "a space before the colon of a length": (400, post(b"Content-Length : 5\r\n")),
    "a tab before the colon": (400, get(b"X\t: y\r\n")),
    "a field without a colon": (400, get(b"Accept\r\n")),
    "a field without a name": (400, get(b": x\r\n")),
    "a name that is no token": (400, get(b"X@Y: z\r\n")),
    "a folded line": (400, get(b"X: a\r\n b\r\n")),
    "a line folded by a tab": (400, get(b"X: a\r\n\tb\r\n")),
    "a folded length": (400, post(b"Content-Length:\r\n 5\r\n")),
    "too many fields": (431, get(b"X: y\r\n" * 200)),
    "a long header": (431, get(b"X: " + b"y" * 70000 + b"\r\n")),
    "a long request line": (414, get(target=b"/" + b"y" * 90000)),
    "an unknown expectation": (417, post(length(len(BODY)) + b"Expect: tea\r\n", BODY)),
    # RFC 9112 §6.1: Transfer-Encoding
    "length and chunks": (400, post(length(4) + CHUNKED, chunks(BODY))),
    "chunks and length": (400, post(CHUNKED + length(len(BODY)), chunks(BODY))),
    "chunks and a length of 0": (400, post(CHUNKED + length(0), chunks(BODY))),
    "an unknown coding": (501, post(b"Transfer-Encoding: xchunked\r\n", chunks(BODY))),
    "an unknown coding and a length": (400, post(length(len(BODY)) + b"Transfer-Encoding: xchunked\r\n", BODY)),
    "identity": (501, post(b"Transfer-Encoding: identity\r\n", BODY)),
    "gzip before chunked": (501, post(b"Transfer-Encoding: gzip, chunked\r\n", chunks(BODY))),
    "gzip before chunked, in two fields": (501, post(b"Transfer-Encoding: gzip\r\n" + CHUNKED, chunks(BODY))),
    "chunked before gzip": (400, post(b"Transfer-Encoding: chunked, gzip\r\n", chunks(BODY))),
    "chunked twice": (400, post(b"Transfer-Encoding: chunked, chunked\r\n", chunks(BODY))),
    "chunked in two fields": (400, post(CHUNKED + CHUNKED, chunks(BODY))),
    "chunked with a parameter": (501, post(b"Transfer-Encoding: chunked;q=1\r\n", chunks(BODY))),
    "quoted chunked": (501, post(b'Transfer-Encoding: "chunked"\r\n', chunks(BODY))),
    "an empty coding": (400, post(b"Transfer-Encoding:\r\n", chunks(BODY))),
    "chunked in HTTP/1.0": (400, post(CHUNKED, chunks(BODY), version=b"HTTP/1.0")),
    # RFC 9112 §6.2 and RFC 9112 §6.3: Content-Length
    "two lengths": (400, post(length(len(BODY)) + length(len(BODY) + len(HIDDEN)), BODY)),
    "two equal lengths": (400, post(length(len(BODY)) * 2, BODY)),
    "a list of lengths": (400, post(length(b"%d, %d" % (len(BODY), len(BODY))), BODY)),
    "letters behind a length": (400, post(length(b"%dabc" % len(BODY)), BODY)),
    "a length with a plus": (400, post(length(b"+%d" % len(BODY)), BODY)),
    "a negative length": (400, post(length(b"-1"), BODY)),
    "a hexadecimal length": (400, post(length(b"0x12"), BODY)),
    "a length with a point": (400, post(length(b"%d.0" % len(BODY)), BODY)),
    "a length with a space": (400, post(length(b"1 8"), BODY)),
    "an empty length": (400, post(length(b""), BODY)),
    "a length beyond the limit": (413, post(length(1 << 40))),
    "a length beyond all numbers": (413, post(length(b"9" * 60))),
    "a length that wraps to a small number": (413, post(length((1 << 64) + len(BODY)), BODY)),
    # RFC 9112 §7.1: chunks
    "a chunk that is too long": (400, post(CHUNKED, b"%x\r\n%sXX\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a chunk that ends with LF": (400, post(CHUNKED, b"%x\r\n%s\n0\r\n\r\n" % (len(BODY), BODY))),
    "a chunk that ends with CR": (400, post(CHUNKED, b"%x\r\n%s\r0\r\n\r\n" % (len(BODY), BODY))),
    "a size with letters": (400, post(CHUNKED, b"%xzz\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size with a sign": (400, post(CHUNKED, b"+%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size with 0x": (400, post(CHUNKED, b"0x%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size with a space before it": (400, post(CHUNKED, b" %x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size with a space behind it": (400, post(CHUNKED, b"%x \r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "no size": (400, post(CHUNKED, b"\r\n%s\r\n0\r\n\r\n" % BODY)),
    "a size that ends with LF": (400, post(CHUNKED, b"%x\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size that wraps": (400, post(CHUNKED, b"1%016x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a size beyond the limit": (413, post(CHUNKED, b"fffffff\r\n")),
    "an extension that ends with LF": (400, post(CHUNKED, b"%x;a=b\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a control character in an extension": (400, post(CHUNKED, b"%x;a=\0\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))),
    "a long extension": (431, post(CHUNKED, b"%x;%s\r\n" % (len(BODY), b"y" * 20000))),
    "a last chunk without its end": (400, post(CHUNKED, chunks(BODY, last=b"0\r\nX"))),
    "a trailer that ends with LF": (400, post(CHUNKED, chunks(BODY, last=b"0\r\nX: y\n\r\n"))),
    "a folded trailer": (400, post(CHUNKED, chunks(BODY, last=b"0\r\nX: y\r\n z\r\n\r\n"))),
    "a trailer with a space before its colon": (400, post(CHUNKED, chunks(BODY, last=b"0\r\nX : y\r\n\r\n"))),
    "long trailers": (431, post(CHUNKED, chunks(BODY, last=b"0\r\n" + b"X: y\r\n" * 2000 + b"\r\n"))),
    # RFC 9110 §8.4
    "a body in a coding": (415, post(length(len(BODY)) + b"Content-Encoding: gzip\r\n", BODY)),
}

# Answered as ever, but what may follow cannot be told from the body: the connection ends.
LAST = {
    "GET with a body": (200, get(length(len(HIDDEN)))),
    "GET with chunks": (200, get(CHUNKED)),
    "HEAD with a body": (200, get(length(len(HIDDEN)), method=b"HEAD")),
    "OPTIONS with a body": (204, get(length(len(HIDDEN)), method=b"OPTIONS")),
    "a body that nobody wants": (404, post(length(len(HIDDEN)), target=b"/nowhere")),
    "a body for another method": (405, get(length(len(HIDDEN)), method=b"PUT")),
    "a client that closes": (200, get(b"Connection: close\r\n")),
    "a client that closes, among others": (200, get(b"Connection: x, Close\r\n")),
    "HTTP/1.0": (200, get(version=b"HTTP/1.0")),
    "HTTP/1.0 without a Host": (200, get(version=b"HTTP/1.0", host=b"")),
}

# Answered, and the request behind it, too.
KEPT = {
    "a plain one": (200, get()),
    "empty lines before it": (200, b"\r\n\r\n" + get()),
    "names in any case": (200, b"GET /health HTTP/1.1\r\nhOST:localhost\r\n\r\n"),
    "spaces around a value": (200, b"GET /health HTTP/1.1\r\nHost: \t localhost \t\r\n\r\n"),
    "an empty value": (200, get(b"X:\r\n")),
    "bytes beyond ASCII in a value": (200, get(b"X: \xc3\xa9\xff\r\n")),
    "an absolute target": (200, get(target=b"http://localhost/health")),
    "an absolute target in capitals": (200, get(target=b"HTTP://LOCALHOST:80/health")),
    "a query": (200, get(target=b"/health?a=b&c=%zz")),
    "a path with percents": (200, get(target=b"/he%61lth")),
    "an asterisk": (204, get(target=b"*", method=b"OPTIONS")),
    "HTTP/1.2": (200, get(version=b"HTTP/1.2")),
    "HEAD": (200, get(method=b"HEAD")),
    "a length of 0 for GET": (200, get(length(0))),
    "an unknown path": (404, get(target=b"/nowhere")),
    "a long path": (404, get(target=b"/v1/models/" + b"a" * 40000)),
    "a path with a percent of NUL": (404, get(target=b"/health%00")),
    "a path to the parent": (404, get(target=b"/../../etc/passwd")),
    "an unknown method": (405, get(method=b"BREW")),
    "a body": (200, post(length(len(BODY)), BODY)),
    "a length with zeros before it": (200, post(length(b"000%d" % len(BODY)), BODY)),
    "one chunk": (200, post(CHUNKED, chunks(BODY))),
    "a chunk for each byte": (200, post(CHUNKED, chunks(*[BODY[i:i + 1] for i in range(len(BODY))]))),
    "chunked in capitals": (200, post(b"TRANSFER-ENCODING: ChUnKeD\r\n", chunks(BODY))),
    "empty elements of a list": (200, post(b"Transfer-Encoding: , chunked,\r\n", chunks(BODY))),
    "a size with zeros, in capitals": (200, post(CHUNKED, b"00%X\r\n%s\r\n000\r\n\r\n" % (len(BODY), BODY))),
    "extensions": (200, post(CHUNKED, b'%x;a;b=c ; d="e;f"\r\n%s\r\n0 \t;g\r\n\r\n' % (len(BODY), BODY))),
    "trailers": (200, post(CHUNKED, chunks(BODY, last=b"0\r\nX: y\r\nContent-Length: 99\r\n\r\n"))),
    "a body with an expectation": (200, post(length(len(BODY)) + b"Expect: 100-continue\r\n", BODY)),
    "no body at all": (400, post(b"")),
    "the identity coding": (200, post(length(len(BODY)) + b"Content-Encoding: identity\r\n", BODY)),
}


class Framing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("-c", 2048, "--parallel", 2, "--keep-alive", 5, "--read-timeout", 5)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, "exit code after SIGTERM"

    def talk(self, data, slices=0):
        with self.server.socket() as one:
            try:
                if slices:
                    for begin in range(0, len(data), slices):
                        one.sendall(data[begin:begin + slices])
                        time.sleep(0.0005)
                else:
                    one.sendall(data)
            except OSError:
                pass  # it was refused before all of it was sent
            return everything(one)

    def check_one(self, name, status, data, ended):
        """One answer of that status, which says that it is the last one, and is."""
        self.assertEqual(statuses(data), [status], (name, data[:600]))
        self.assertTrue(ended, f"{name}: the connection goes on")
        self.assertIn(b"\r\nConnection: close\r\n", data.split(b"\r\n\r\n")[0] + b"\r\n", name)

    def test_refused(self):
        for name, (status, data) in REFUSED.items():
            with self.subTest(name):
                answer, ended = self.talk(data + HIDDEN)
                self.check_one(name, status, answer, ended)
                error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
                self.assertTrue(error["message"] and error["code"], name)

    def test_last(self):
        for name, (status, data) in LAST.items():
            with self.subTest(name):
                answer, ended = self.talk(data + HIDDEN)
                self.check_one(name, status, answer, ended)

    def test_kept(self):
        """Requests that follow valid ones are answered, sent at once or byte by byte"""
        for name, (status, data) in KEPT.items():
            for slices in (0, 1) if len(data) < 400 else (0, 1000):
                with self.subTest(name, slices=slices):
                    last = get(b"Connection: close\r\n", b"/v1/models")
                    answer, ended = self.talk(data + get() + last, slices)
                    final = [code for code in statuses(answer) if code != 100]
                    self.assertEqual(final, [status, 200, 200], (name, answer[:600]))
                    self.assertTrue(ended and b'"object":"list"' in answer)
                    if data.startswith(b"POST") and status == 200:
                        self.assertIn(TOKENS, answer)

    def test_pipelining(self):
        """Many requests in one packet: all answers, in their order"""
        parts = [get(), post(length(len(BODY)), BODY), get(target=b"/nowhere"),
                 post(CHUNKED, chunks(BODY[:5], BODY[5:]))]
        answer, _ = self.talk(b"".join(parts * 40) + get(b"Connection: close\r\n"))
        self.assertEqual(statuses(answer), [200, 200, 404, 200] * 40 + [200])

    def test_incomplete(self):
        """A client that ends within its request gets one answer"""
        for data in [get()[:-2], post(length(len(BODY)), BODY[:-1]), post(CHUNKED, chunks(BODY)[:-1]),
                     post(CHUNKED, chunks(BODY, last=b"")), post(CHUNKED, b"5\r\nab")]:
            with self.subTest(data), self.server.socket() as one:
                one.sendall(data)
                socket.socket.shutdown(one, socket.SHUT_WR)
                answer, ended = everything(one)
                self.check_one(data, 400, answer, ended)
        with self.server.socket() as one:  # one that has not begun gets none
            one.sendall(b"\r\n")
            socket.socket.shutdown(one, socket.SHUT_WR)
            self.assertEqual(everything(one), (b"", True))

    def test_http_10(self):
        """HTTP/1.0: no chunks, no interim answers, and another request only where the client asks for it"""
        body = json.dumps({"prompt": "the", "max_tokens": 6, "temperature": 0, "stream": True, **NO_EOG}).encode()
        answer, ended = self.talk(post(length(len(body)) + b"Connection: keep-alive\r\nExpect: 100-continue\r\n", body,
                                       target=b"/v1/completions", version=b"HTTP/1.0") + HIDDEN)
        header, text = answer.split(b"\r\n\r\n", 1)
        self.assertEqual(statuses(answer), [200])
        self.assertNotIn(b"Transfer-Encoding", header)
        self.assertTrue(ended and text.startswith(b"data: {") and text.endswith(b"data: [DONE]\n\n"), text)
        stays = get(b"Connection: keep-alive\r\n", version=b"HTTP/1.0")
        answer, ended = self.talk(stays * 2 + get(version=b"HTTP/1.0"))
        self.assertEqual(statuses(answer), [200, 200, 200])
        self.assertEqual(answer.count(b"Connection: keep-alive"), 2)

    def test_stream_is_chunked(self):
        """The chunks of a stream are what RFC 9112 §7.1 says, and another request follows"""
        body = json.dumps({"prompt": "the", "max_tokens": 6, "temperature": 0, "stream": True, **NO_EOG}).encode()
        data, _ = self.talk(post(length(len(body)), body, target=b"/v1/completions") + get(b"Connection: close\r\n"))
        header, rest = data.split(b"\r\n\r\n", 1)
        self.assertIn(b"Transfer-Encoding: chunked", header)
        self.assertNotIn(b"Content-Length", header)
        text = b""
        while True:
            size, rest = rest.split(b"\r\n", 1)
            n = int(size, 16)
            self.assertEqual(rest[n:n + 2], b"\r\n")
            text, rest = text + rest[:n], rest[n + 2:]
            if n == 0:
                break
        self.assertTrue(text.endswith(b"data: [DONE]\n\n"))
        self.assertEqual(statuses(rest), [200])

    def test_expectation(self):
        """100-continue: asked for the body where it is wanted, and not where it is refused"""
        for target, first in [(b"/tokenize", 100), (b"/nowhere", 404), (b"/health", 405)]:
            with self.subTest(target), self.server.socket() as one:
                one.sendall(post(length(len(BODY)) + b"Expect: 100-continue\r\n", target=target))
                one.settimeout(10)
                self.assertEqual(statuses(one.recv(65536))[:1], [first])
                if first == 100:
                    one.sendall(BODY + get(b"Connection: close\r\n"))
                    self.assertEqual(statuses(everything(one)[0]), [200, 200])
                else:
                    self.assertEqual(statuses(everything(one)[0]), [])

    def test_fields_of_answers(self):
        answer, _ = self.talk(get(method=b"HEAD") + get(b"Connection: close\r\n"))
        first, second, body = answer.split(b"\r\n\r\n", 2)
        self.assertEqual(body, b'{"status":"ok"}')
        for header in (first, second):  # HEAD says what GET says
            self.assertIn(b"Content-Length: %d" % len(body), header)
            date = re.search(rb"\r\nDate: (.*)\r\n", header).group(1).decode()
            self.assertLess(abs(email.utils.parsedate_to_datetime(date).timestamp() - time.time()), 60)

    def test_slow(self):
        """A head, a body and chunks that do not come in --read-timeout"""
        begun = []
        for data in [b"GET /hea", post(length(100), b"{"), post(CHUNKED, b"5\r\nab")]:
            one = self.server.socket()
            one.sendall(data)
            begun.append(one)
        for one in begun:
            answer, ended = everything(one)
            self.check_one("slow", 408, answer, ended)
            one.close()

    def test_large_bodies_hold_nobody_up(self):
        """While clients send large bodies, slowly or as fast as they can, small ones are answered at once"""
        stop = threading.Event()
        big = json.dumps({"text": "the one " * 900000}).encode()

        def send_slowly():
            with self.server.socket() as one:
                try:
                    one.sendall(post(length(len(big)), big[:7 << 20]))
                    stop.wait(20)
                except OSError:
                    pass

        def send():
            while not stop.is_set():
                self.server.ask("POST", "/tokenize", big)
        threads = [threading.Thread(target=f) for f in [send_slowly] * 12 + [send]]
        for thread in threads:
            thread.start()
        try:
            time.sleep(1)
            times = []
            for _ in range(10):
                begin = time.monotonic()
                self.server.post("/tokenize", {"text": "the one"})
                times.append(time.monotonic() - begin)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertLess(sorted(times)[5], 1.0, times)


if __name__ == "__main__":
    unittest.main()
