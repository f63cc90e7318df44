#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What goes wrong around a server: it is told to stop at any moment, its disk is full, somebody meddles with its
folders and files. It ends in time and whole, and as long as it runs it answers with the same bytes."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import FOLDER, HERE, MODEL, NO_EOG, TINFER, Server, SmallDisk, chat

LONG = "once the other one " * 12


def text_of(server, prompt=LONG, **fields):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, **NO_EOG, **fields}
    return server.post("/v1/completions", body)["choices"][0]["text"]


def counter(server, name):
    lines = server.ask("GET", "/metrics")[2].decode().splitlines()
    return float(next(line for line in lines if line.startswith(name + "{")).rsplit(" ", 1)[1])


def post(path, body):
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data


def deaf(server, body):
    """A connection whose client asks and reads nothing."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    one.connect((server.host, server.port))
    one.sendall(post("/v1/completions", body))
    return one


class Stopping(unittest.TestCase):
    ENDLESS = {"prompt": "the", "max_tokens": 200000, "temperature": 0, **NO_EOG}

    def running(self, server, n):
        until = time.monotonic() + 30
        while len([s for s in server.get("/slots") if s["generated_tokens"] > 0]) < n:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)

    def test_while_loading(self):
        """SIGTERM at any moment of the start ends it at once: by itself, or before it listens to signals"""
        chance = random.Random(2)
        for _ in range(25):
            process = subprocess.Popen([TINFER, "serve", MODEL, "--port", "0", "-t", "1"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)
            time.sleep(chance.random() * 0.1)
            process.send_signal(signal.SIGTERM)
            out, errors = process.communicate(timeout=30)
            self.assertIn(process.returncode, (0, -signal.SIGTERM), errors)
            self.assertNotIn(b"error", errors.lower())
            for line in out.splitlines():
                self.assertTrue(json.loads(line)["address"])

    def test_drain_streams(self):
        """Streams that run when their time is up end like any that is cut: with a reason and a last event"""
        with Server("-c", 1 << 20, "--parallel", 4, "--drain", 1) as server:
            got, threads = [], []
            for path, body in [("/v1/completions", self.ENDLESS),
                               ("/v1/chat/completions", chat("x", max_tokens=200000)),
                               ("/v1/completions", {**self.ENDLESS, "logprobs": 3})]:
                threads.append(threading.Thread(
                    target=lambda path=path, body=body: got.append(server.events(path, body))))
                threads[-1].start()
            self.running(server, 3)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(30), 0)
            self.assertLess(time.monotonic() - begin, 15)
            for thread in threads:
                thread.join()
            self.assertEqual(len(got), 3, "a stream has no end")  # events() fails where [DONE] is missing
            for events in got:
                self.assertEqual([c["finish_reason"] for e in events for c in e["choices"]][-1], "length")

    def test_drain_lets_finish(self):
        """What ends within --drain is given whole, also where it was asked for just before"""
        with Server("-c", 4096, "--parallel", 2, "--drain", 60) as server:
            body = chat("to the end", max_tokens=700, seed=1)
            expected, got = server.post("/v1/chat/completions", body)["choices"], []
            threads = [threading.Thread(target=lambda: got.append(server.post("/v1/chat/completions", body)["choices"]))
                       for _ in range(2)]
            for thread in threads:
                thread.start()
            self.running(server, 1)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0)
            for thread in threads:
                thread.join()
            self.assertEqual(got, [expected] * 2)

    def test_drain_does_not_wait_for_clients(self):
        """Clients that send slowly, or read nothing, do not hold the end up beyond --drain"""
        with Server("-c", 16384, "--parallel", 4, "--drain", 1, "--read-timeout", 300) as server:
            large = {**self.ENDLESS, "max_tokens": 4000, "logprobs": 20}
            slow = [socket.create_connection((server.host, server.port)) for _ in range(3)]
            slow[0].sendall(b"POST /v1/completions HTTP/1.1\r\nHo")
            slow[1].sendall(post("/v1/completions", self.ENDLESS)[:-5])
            still = [deaf(server, {**large, "stream": True}), deaf(server, large)]
            self.running(server, 1)
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(60), 0)
            self.assertLess(time.monotonic() - begin, 20)
            for one in slow + still:
                one.close()

    def test_second_signal(self):
        """A second SIGTERM ends it at once"""
        with Server("-c", 1 << 20, "--parallel", 1, "--drain", 600) as server:
            thread = threading.Thread(target=lambda: self.assertRaises(Exception, server.post, "/v1/completions",
                                                                       self.ENDLESS))
            thread.start()
            self.running(server, 1)
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            self.assertIsNone(server.process.poll())
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(10), 130)
            thread.join()


class Disks(unittest.TestCase):
    def test_traces_on_a_full_disk(self):
        """The answer is given and says that its trace is not whole, or 503 says why there is none"""
        with Server("-c", 2048) as plain:
            expected = text_of(plain, max_tokens=60)
        with SmallDisk("512k") as folder, Server("-c", 2048, "--trace-dir", folder) as server:
            said, last = set(), 0
            for _ in range(40):
                body = {"prompt": LONG, "max_tokens": 60, "temperature": 0, "trace": True, **NO_EOG}
                last, headers, data = server.ask("POST", "/v1/completions", body)
                document = json.loads(data)
                if last == 200:
                    choice = document["choices"][0]
                    self.assertEqual(choice["text"], expected)
                    said.add(choice["trace"].get("error"))
                else:
                    self.assertEqual((last, document["error"]["code"], headers["Retry-After"]),
                                     (503, "trace_folder_failed", "1"))
                    break
            self.assertIn("the disk has not taken all of it", said)
            self.assertEqual(text_of(server, max_tokens=60), expected)
            self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_somebody_meddles_with_the_store(self):
        """Blocks that are cut, changed, foreign or no files at all, and a folder that goes, while the server runs"""
        prompts = [f"{i} {LONG}" for i in range(6)]
        with Server("-c", 2048) as plain:
            expected = [text_of(plain, prompt) for prompt in prompts]

        def meddle(folder, chance):
            blocks = sorted(folder.glob("*.rows"))
            whole = [b.read_bytes() for b in blocks if b.is_file() and not b.is_symlink()]
            for block in blocks:
                if block.is_symlink() or not block.is_file():
                    continue
                how = chance.randrange(8)
                if how == 0:
                    os.truncate(block, chance.randrange(block.stat().st_size))
                elif how == 1:
                    data = bytearray(block.read_bytes())
                    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
                    block.write_bytes(data)
                elif how == 2:
                    block.write_bytes(chance.choice(whole))  # whole, of another page
                elif how == 3:
                    block.unlink()
                    block.mkdir()
                elif how == 4:
                    block.unlink()
                    os.mkfifo(block)
                elif how == 5:
                    block.unlink()
                    block.symlink_to("/dev/zero")
                elif how == 6:
                    with open(block, "ab") as file:
                        file.truncate(1 << 40)
            (folder / "foreign").write_text("not a block")
        with tempfile.TemporaryDirectory() as home:
            folder, chance = pathlib.Path(home) / "store", random.Random(4)
            args = ("--prompt-store", folder, "--prompt-store-memory", 0, "--keep-sequences", 0, "-c", 2048)
            with Server(*args) as server:
                for round in range(6):
                    self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                    meddle(folder, chance)
                    if round % 2:  # blocks that cannot be replaced go with their folder
                        self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                        shutil.rmtree(folder)
                        self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                        self.assertTrue(list(folder.iterdir()), "the folder is made again")
                self.assertGreater(counter(server, "tinfer_store_refused_files_total"), 0)
                shutil.rmtree(folder)
                folder.write_text("no folder")
                self.assertEqual([text_of(server, prompt) for prompt in prompts], expected)
                self.assertEqual(server.get("/health"), {"status": "ok"})

    def test_adapter_files_change(self):
        """Adapters were read at the start: files that are cut, replaced or gone change no answer"""
        path = FOLDER / "changing.gguf"
        subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, "3", "lora"], check=True)
        with Server("--lora", f"red={path}", "-c", 2048) as server:
            plain, red = text_of(server), text_of(server, lora="red")
            self.assertNotEqual(plain, red)
            for change in [lambda: os.truncate(path, 100), lambda: path.write_bytes(b"x" * 10000), path.unlink]:
                change()
                self.assertEqual((text_of(server, lora="red", cache_prompt=False),
                                  text_of(server, cache_prompt=False)), (red, plain))

    def test_killed_while_it_streams(self):
        """kill -9 with many streams on the way: the next server finds a store that is whole, and the same answers"""
        with tempfile.TemporaryDirectory() as folder:
            args = ("--prompt-store", folder, "-c", 8192, "--parallel", 6)
            prompts = [f"{i} {LONG}" for i in range(6)]
            with Server("-c", 2048) as plain:
                expected = [text_of(plain, prompt) for prompt in prompts]
            for moment in [0.05, 0.2, 0.4]:
                server = Server(*args)

                def stream(prompt, server=server):
                    try:
                        server.events("/v1/completions", {"prompt": prompt, "max_tokens": 500, **NO_EOG})
                    except Exception:  # noqa: BLE001  it is killed
                        pass
                threads = [threading.Thread(target=stream, args=(prompt,)) for prompt in prompts]
                for thread in threads:
                    thread.start()
                time.sleep(moment)
                server.process.kill()
                for thread in threads:
                    thread.join()
                server.stop()
                with Server(*args) as next_one:
                    self.assertEqual([text_of(next_one, prompt) for prompt in prompts], expected)
                    self.assertEqual(counter(next_one, "tinfer_store_refused_files_total"), 0)


if __name__ == "__main__":
    unittest.main()
