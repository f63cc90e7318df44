#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A server under mixed load for a long time: every answer is equal to the first one to the same request, memory and the
number of pages stay flat, and answers take hardly longer than beside the same clients alone. Eight clients ask requests
of all kinds over and over, ask for texts that nobody has seen, leave in the middle, and send nonsense. Beside them are
a crowd of connections that are idle, half sent, or read nothing, and clients that are stopped and killed while they
read; the disk of the prompt store is full.
--seconds N (default 12; an hour in the slow form), --connections N of the crowd (default 100; a thousand),
--model FILE (default: a tiny one with adapters)"""
import json
import os
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest


def option(name, default):
    if name not in sys.argv:
        return default
    at = sys.argv.index(name)
    value = sys.argv[at + 1]
    del sys.argv[at:at + 2]
    return value


SECONDS, MODEL = float(option("--seconds", 12)), option("--model", "")
N_CONNECTIONS = int(option("--connections", 100))

from server_support import (FOLDER, HERE, NO_EOG, Server, SmallDisk, chat,  # noqa: E402  takes the program's path away
                            resident)
from mixed_requests import N_KINDS, VECTORS, ask, bytes_of  # noqa: E402

N_CLIENTS = 8
POOL = [i for i in range(48) if i % N_KINDS != VECTORS]
PAGES = ["/health", "/v1/models", "/slots", "/metrics", "/activity", "/openapi.json", "/", "/nowhere"]


def request(body):
    data = json.dumps(body).encode()
    return (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(data) + data)


class Crowd:
    """Connections that want little: most are idle, the others have sent a part, or read nothing of what they asked for.
    Now and then one leaves and another comes."""

    LONG = request({"prompt": "once the one", "max_tokens": 60, "stream": True, "logprobs": 5, **NO_EOG})
    SENT = [*[b""] * 20, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"POST /v1/completi",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Y: ", LONG[:-9], LONG]

    def __init__(self, server, n, stop):
        self.server, self.stop, self.n_came, self.n_refused = server, stop, 0, 0
        self.own, self.open = random.Random(5), []
        for _ in range(n):
            self.open.append(self.come())
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def come(self):
        one = socket.socket()
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.settimeout(30)
            one.connect((self.server.host, self.server.port))
            one.sendall(self.own.choice(self.SENT))
            self.n_came += 1
        except OSError:  # it has been closed already
            self.n_refused += 1
        return one

    def run(self):
        while not self.stop.wait(0.02):
            i = self.own.randrange(len(self.open))
            self.open[i].close()
            self.open[i] = self.come()

    def leave(self):
        self.thread.join()
        for one in self.open:
            one.close()


class Victims:
    """Clients in processes of their own, which are stopped while they read, and killed or woken."""

    CLIENT = """import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one.sendall(sys.stdin.buffer.read())
while one.recv(4096): pass"""

    LONGEST = 600  # seconds of a client that reads again, however busy the machine is

    def __init__(self, server, stop, faults):
        self.server, self.stop, self.faults = server, stop, faults
        self.n_stopped = self.n_killed = self.n_woken = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def one(self, own):
        body = {"prompt": "once " * own.randrange(1, 300), "max_tokens": own.randrange(20, 400), "stream": True,
                **NO_EOG}
        process = subprocess.Popen([sys.executable, "-S", "-c", self.CLIENT, self.server.host, str(self.server.port)],
                                   stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.stdin.write(request(body))
        process.stdin.close()
        time.sleep(own.random() * 0.2)
        process.send_signal(signal.SIGSTOP)
        self.n_stopped += 1
        self.stop.wait(own.random())
        if own.random() < 0.7:
            process.kill()
            self.n_killed += 1
        else:
            process.send_signal(signal.SIGCONT)
            self.n_woken += 1
        try:
            process.wait(self.LONGEST)
        except subprocess.TimeoutExpired:
            self.faults.append(f"a client that was woken waits for the end of its answer; slots: "
                               f"{self.server.get('/slots')}")
        finally:
            process.kill()
            process.wait()

    def run(self):
        own = random.Random(6)
        while not self.stop.is_set() and not self.faults:
            try:
                self.one(own)
            except Exception as error:  # noqa: BLE001  a thread tells what went wrong, or nobody does
                self.faults.append(repr(error)[:2000])


def gauge(server, name):
    text = server.ask("GET", "/metrics")[2].decode()
    return float(next(x for x in text.splitlines() if x.startswith(name + "{")).rsplit(" ", 1)[1])


class Soak(unittest.TestCase):
    def serve(self, *args):
        if MODEL:
            return Server(*args, model=MODEL)
        tiny, files = HERE.parent / "support/tiny_model.py", {}
        for name, seed, kind in [("talks", 1, "talks"), ("red", 3, "lora"), ("blue", 4, "lora")]:
            files[name] = FOLDER / f"soak-{name}.gguf"
            subprocess.run([sys.executable, tiny, files[name], str(seed), kind], check=True)
        loras = [x for name in ("red", "blue") for x in ("--lora", f"{name}={files[name]}")]
        return Server(*loras, *args, model=files["talks"])

    def act(self, own, server, expected, counts, faults):
        """One deed of a client."""
        kind = own.random()
        if kind < 0.6:  # one of the known requests
            i = own.choice(POOL)
            try:
                if ask(server, i, adapters=not MODEL) != expected[i]:
                    faults.append(f"request {i} has another answer")
                counts["compared"] += 1
            except AssertionError as error:
                if "requests wait, limit max_queue" not in str(error):  # a full queue says so
                    raise
            return
        words = " ".join(own.choice(["once", "the", "one"]) for _ in range(own.randrange(1, 120)))
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": own.randrange(1, 80),
                "seed": own.randrange(1 << 30), "stream": own.random() < 0.5, **NO_EOG}
        if kind < 0.7:
            status = server.ask("POST", "/v1/chat/completions", body)[0]
            if status not in (200, 503):
                faults.append((status, body))
        elif kind < 0.85:  # leaves in the middle
            data = json.dumps(body).encode()
            with server.socket() as one:
                one.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                            + str(len(data)).encode() + b"\r\n\r\n" + data[:own.randrange(len(data) + 1)])
                time.sleep(own.random() * 0.05)
        elif kind < 0.95:
            status = server.ask("POST", "/v1/chat/completions", own.randbytes(own.randrange(2000)))[0]
            if status != 400:
                faults.append((status, "random bytes"))
        else:
            path = own.choice(PAGES)
            status = server.ask("GET", path)[0]
            if status != (404 if path == "/nowhere" else 200):
                faults.append((status, path))

    def client(self, seed, stop, counts, faults, *about):
        own = random.Random(seed)
        while not stop.is_set() and not faults:
            try:
                self.act(own, *about, counts, faults)
                counts["deeds"] += 1
            except Exception as error:  # noqa: BLE001  a thread tells what went wrong, or nobody does
                faults.append(repr(error)[:2000])

    def test_v11_soak(self):  # [V11]
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # of this process and of the server, for a large crowd
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        has_small_disk = os.geteuid() == 0
        with (SmallDisk("256k") if has_small_disk else tempfile.TemporaryDirectory()) as store, \
                self.serve("--parallel", 4, "-c", 2048, "--keep-sequences", 3, "--max-queue", 20, "--prompt-store",
                           store, "--prompt-store-memory", 4 << 20, "--receipts", "--read-timeout", 600,
                           "--keep-alive", 600, "--request-timeout", 3600, "--max-connections",
                           N_CONNECTIONS + 64) as server:
            first = {i: ask(server, i, adapters=not MODEL) for i in POOL}
            asked = chat("what stays the same", max_tokens=20, seed=3)
            answer = lambda: bytes_of(server.post("/v1/chat/completions", asked))
            expected, stop, faults = answer(), threading.Event(), []
            counts = [dict.fromkeys(("deeds", "compared"), 0) for _ in range(N_CLIENTS)]
            clients = [threading.Thread(target=self.client, args=(i, stop, counts[i], faults, server, first))
                       for i in range(N_CLIENTS)]
            begin = time.monotonic()

            def sample(seconds):
                """[(moment, bytes, seconds of an answer)]"""
                samples, end = [], time.monotonic() + seconds
                while time.monotonic() < end and not faults:
                    start = time.monotonic()
                    try:
                        self.assertEqual(answer(), expected)
                        samples.append((start - begin, resident(server), time.monotonic() - start))
                    except AssertionError as error:
                        if "requests wait, limit max_queue" not in str(error):
                            raise
                    stop.wait(SECONDS / 2000)
                return samples
            hostile_end, crowd, victims, samples, quiet = threading.Event(), None, None, [], []
            for client in clients:
                client.start()
            try:
                quiet += sample(SECONDS / 8)  # the same clients without the hostile ones, before them and behind
                crowd, victims = Crowd(server, N_CONNECTIONS, hostile_end), Victims(server, hostile_end, faults)
                samples += sample(SECONDS * 3 / 4)
                hostile_end.set()
                crowd.leave()
                victims.thread.join()
                quiet += sample(SECONDS / 8)
            finally:
                stop.set()
                hostile_end.set()
                for client in clients:
                    client.join()
                if victims:
                    crowd.leave()
                    victims.thread.join()
            self.assertEqual(faults, [])
            self.assertGreater(crowd.n_came, N_CONNECTIONS)
            self.assertGreater(victims.n_killed, 0)
            until = time.monotonic() + 20
            while server.get("/slots") and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(server.get("/slots"), [])
            self.assertEqual(answer(), expected)
            # An answer as long as the cache needs every page that there is.
            room = server.get("/v1/models")["data"][0]["meta"]["n_ctx"]
            self.assertEqual(room, 2048)
            whole = server.post("/v1/completions", {"prompt": "once", "max_tokens": room - 16, "temperature": 0,
                                                    "cache_prompt": False, **NO_EOG})
            self.assertEqual(whole["usage"]["completion_tokens"], room - 16)
            self.assertEqual(gauge(server, "tinfer_cache_tokens_used"), 0, "a page is lost")
            third = len(samples) // 3
            parts = samples[third:2 * third], samples[2 * third:]  # the first third fills what is bounded
            memory = [statistics.median(s[1] for s in part) for part in parts]
            latency = [statistics.median(s[2] for s in part) for part in (quiet, parts[1])]
            self.assertEqual(gauge(server, "tinfer_store_errors_total"), 0)
            left = os.statvfs(store)
            if has_small_disk:
                self.assertLess(left.f_bavail, 8, "the disk of the store was not full")
            deeds, compared = (sum(c[name] for c in counts) for name in ("deeds", "compared"))
            tenth = max(1, len(samples) // 10)
            course = [statistics.median(s[1] for s in samples[i:i + tenth]) / 2**20
                      for i in range(0, len(samples), tenth)]
            print("memory in MiB, tenth by tenth:", " ".join(f"{m:.1f}" for m in course))
            print(f"{samples[-1][0]:.0f} s, {deeds} deeds of {N_CLIENTS} clients, {compared + len(samples)} answers "
                  f"equal to their first, memory {memory[0] / 2**20:.1f} to {memory[1] / 2**20:.1f} MiB "
                  f"(most {max(s[1] for s in samples) / 2**20:.1f}), "
                  f"latency {1e3 * latency[0]:.0f} ms without and {1e3 * latency[1]:.0f} with {N_CONNECTIONS} in the "
                  f"crowd, "
                  f"{crowd.n_came} came, {crowd.n_refused} were refused; {victims.n_stopped} clients stopped, "
                  f"{victims.n_killed} killed, {victims.n_woken} woken; "
                  f"{left.f_bavail * left.f_bsize >> 10} KiB left on the disk of the store")
            self.assertGreater(compared, N_CLIENTS)
            self.assertLess(memory[1], memory[0] * 1.05 + (8 << 20), "memory grows")
            self.assertLess(latency[1], latency[0] * 4 + 0.05, "hostile clients slow the others")


if __name__ == "__main__":
    unittest.main()
