#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server under mixed load for a long time: memory, latency and the number of pages stay flat. --seconds N (default
12, half an hour in the slow form). Clients come, ask, leave in the middle, send nonsense; one asks the same all the
time."""
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time
import unittest

SECONDS = 12
if "--seconds" in sys.argv:
    at = sys.argv.index("--seconds")
    SECONDS = float(sys.argv[at + 1])
    del sys.argv[at:at + 2]

from server_support import NO_EOG, Server, chat  # noqa: E402  takes the program's path out of the arguments


def resident(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) << 10


def gauge(server, name):
    text = server.ask("GET", "/metrics")[2].decode()
    return float(next(x for x in text.splitlines() if x.startswith(name + "{")).rsplit(" ", 1)[1])


class Soak(unittest.TestCase):
    def client(self, server, seed, stop, faults):
        own = random.Random(seed)
        while not stop.is_set():
            words = " ".join(own.choice(["once", "the", "one"]) for _ in range(own.randrange(1, 120)))
            body = {"messages": [{"role": "user", "content": words}], "max_tokens": own.randrange(1, 80),
                    "seed": own.randrange(1 << 30), "stream": own.random() < 0.5, **NO_EOG}
            kind = own.random()
            try:
                if kind < 0.5:
                    status = server.ask("POST", "/v1/chat/completions", body)[0]
                    if status not in (200, 503):
                        faults.append((status, body))
                elif kind < 0.8:  # leaves in the middle
                    data = json.dumps(body).encode()
                    with server.socket() as one:
                        one.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                                    + str(len(data)).encode() + b"\r\n\r\n" + data[:own.randrange(len(data) + 1)])
                        time.sleep(own.random() * 0.05)
                else:
                    status = server.ask("POST", "/v1/chat/completions", own.randbytes(own.randrange(2000)))[0]
                    if status != 400:
                        faults.append((status, "random bytes"))
            except OSError as error:
                if not stop.is_set():
                    faults.append(error)

    def test_v11_soak(self):  # [V11]
        with tempfile.TemporaryDirectory() as store, \
                Server("--parallel", 4, "-c", 2048, "--keep-sequences", 0, "--max-queue", 20, "--prompt-store", store,
                       "--prompt-store-memory", 4 << 20) as server:
            asked = chat("what stays the same", max_tokens=20, seed=3)
            answer = lambda: server.post("/v1/chat/completions", asked)["choices"]
            expected, stop, faults = answer(), threading.Event(), []
            clients = [threading.Thread(target=self.client, args=(server, i, stop, faults)) for i in range(6)]
            for client in clients:
                client.start()
            samples, begin = [], time.monotonic()  # (moment, bytes, seconds of an answer)
            try:
                while time.monotonic() - begin < SECONDS:
                    start = time.monotonic()
                    try:
                        self.assertEqual(answer(), expected)
                    except AssertionError as error:
                        if ": 503," not in str(error):  # a full queue says so
                            raise
                    samples.append((start - begin, resident(server), time.monotonic() - start))
            finally:
                stop.set()
                for client in clients:
                    client.join()
            self.assertEqual(faults, [])
            until = time.monotonic() + 20
            while gauge(server, "tinfer_cache_tokens_used") > 0 and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(gauge(server, "tinfer_cache_tokens_used"), 0, "a page is lost")
            self.assertEqual(server.get("/slots"), [])
            self.assertEqual(answer(), expected)
            third = len(samples) // 3
            first, last = samples[third:2 * third], samples[2 * third:]  # the first third fills what is bounded
            memory = [statistics.median(s[1] for s in part) for part in (first, last)]
            latency = [statistics.median(s[2] for s in part) for part in (first, last)]
            print(f"{len(samples)} answers, memory {memory[0] / 2**20:.1f} to {memory[1] / 2**20:.1f} MiB, "
                  f"latency {1e3 * latency[0]:.0f} to {1e3 * latency[1]:.0f} ms")
            self.assertLess(memory[1], memory[0] * 1.05 + (8 << 20), "memory grows")
            self.assertLess(latency[1], latency[0] * 2 + 0.05, "answers take longer and longer")


if __name__ == "__main__":
    unittest.main()
