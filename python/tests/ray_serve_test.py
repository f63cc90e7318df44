# SPDX-License-Identifier: MIT
"""[P2] Serving over replicas of Ray: the answers of one process, whatever is lost on the way.

usage: ray_serve_test.py [--large]     200 streams, 50 streams with losses and long conversations; without it a sample
"""
import asyncio
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time
import unittest

import aiohttp

import ray_support
import ray
import ray._private.state
from ray import serve
from support import TALKS

from tinfer.ray.serving import app

PROGRAM = os.environ.get("TINFER_PROGRAM", "")
LARGE = "--large" in sys.argv
CHAT = "/v1/chat/completions"
FLAGS = ["-c", "16384", "--parallel", "32", "--any-model"]
NO_EOG = {"logit_bias": {"2": -100}}   # random weights end a text at once


def chat(seed, n=24, **more):
    return {"messages": [{"role": "user", "content": f"Tell me of {seed} kings " + "and the sea " * (seed % 5)}],
            "max_tokens": n, "seed": seed, "temperature": 1.1, **NO_EOG, **more}


@contextlib.contextmanager
def one_process(*flags):
    """The program itself, with nothing in front."""
    process = subprocess.Popen([PROGRAM, "serve", TALKS, "--port", "0", "-t", "1", *flags], stdout=subprocess.PIPE)
    try:
        yield json.loads(process.stdout.readline())["address"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def post(address, path, body, **headers):
    connection = http.client.HTTPConnection(address.split("//")[1], timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer.status, data


async def streamed(session, address, body, begun=None):
    """The documents of a stream, which has to have an end."""
    documents, ended = [], False
    async with session.post(address + CHAT, json={**body, "stream": True}) as answer:
        assert answer.status == 200, await answer.text()
        async for line in answer.content:
            if line.startswith(b"data: [DONE]"):
                ended = True
            elif line.startswith(b"data: "):
                documents.append(json.loads(line[6:]))
                if begun is not None and len(documents) == 4:
                    begun()
    assert ended, "the stream has no end"
    return documents


def text_of(documents):
    return "".join(choice["delta"].get("content") or "" for one in documents for choice in one.get("choices", []))


async def all_streams(address, bodies, begun=None):
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0),
                                     timeout=aiohttp.ClientTimeout(total=300)) as session:
        return await asyncio.gather(*(streamed(session, address, body, begun) for body in bodies))


class Serving(unittest.TestCase):
    @staticmethod
    def nodes():
        return ray_support.local_ray(n_cpus=4)

    @classmethod
    def setUpClass(cls):
        if not pathlib.Path(PROGRAM).is_file():
            raise unittest.SkipTest("there is no program tinfer")
        nodes = cls.nodes()
        nodes.__enter__()
        cls.addClassCleanup(nodes.__exit__, None, None, None)
        cls.addClassCleanup(serve.shutdown)
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        cls.address = f"http://127.0.0.1:{port}"
        serve.run(app(TALKS, FLAGS, program=PROGRAM, replicas=2, stats_period_s=1), name="tinfer")
        alone = one_process(*FLAGS)
        cls.alone = alone.__enter__()
        cls.addClassCleanup(alone.__exit__, None, None, None)

    def replicas(self):
        """Process ids of the actors and of their programs."""
        handle = serve.get_deployment_handle("Replica", "tinfer")
        return {tuple(handle.process_id.remote().result(timeout_s=60)) for _ in range(8)}

    def wait_for_replicas(self, n=2):
        until = time.monotonic() + 120
        while True:
            with contextlib.suppress(Exception):
                found = self.replicas()
                if len(found) >= n:
                    return found
            self.assertLess(time.monotonic(), until, "no replicas")
            time.sleep(0.5)

    def test_p2_whole_answers(self):  # [P2]
        """every route of the server, with its answers, errors and headers"""
        for path, body in [(CHAT, chat(3)), ("/v1/completions", {"prompt": "the sea", "max_tokens": 8, "seed": 2}),
                           ("/tokenize", {"text": "the sea"}), (CHAT, {"messages": 3}), (CHAT, [1]),
                           ("/v1/nothing", {})]:
            with self.subTest(path=path, body=body):
                status, data = post(self.address, path, body)
                expected_status, expected = post(self.alone, path, body)
                self.assertEqual(status, expected_status)
                loose = [json.loads(one) for one in (data, expected)]
                for one in loose:
                    for name in "id", "created", "timings", "usage":
                        one.pop(name, None)
                self.assertEqual(*loose)
        status, data = post(self.address, CHAT, chat(1), Origin="http://elsewhere.example")
        self.assertEqual(status, 403)
        ask = {**chat(1), "seed": None}
        seeds = {json.loads(post(self.address, CHAT, ask)[1])["timings"]["seed"] for _ in range(4)}
        self.assertEqual(len(seeds), 4)

    def test_p2_streams(self):  # [P2]
        """many streams at once, each equal to that of one process"""
        n = 200 if LARGE else 24
        bodies = [chat(i) for i in range(n)]
        expected = asyncio.run(all_streams(self.alone, bodies[:60])) if n <= 60 else [
            one for at in range(0, n, 50) for one in asyncio.run(all_streams(self.alone, bodies[at:at + 50]))]
        begin = time.monotonic()
        got = asyncio.run(all_streams(self.address, bodies))
        print(f"{n} streams in {time.monotonic() - begin:.1f} s", flush=True)
        self.assertEqual([text_of(one) for one in got], [text_of(one) for one in expected])
        self.assertEqual(len({one[0]["id"] for one in got}), n)

    def counts(self):
        return serve.get_deployment_handle("Ingress", "tinfer").counts.remote().result(timeout_s=60)

    def lose(self, how):
        """Streams of which some lose their replica: all are whole, each under one name."""
        n = 50 if LARGE else 12
        bodies = [chat(100 + i, 300, stream_options={"include_usage": True}) for i in range(n)]
        expected = asyncio.run(all_streams(self.alone, bodies))
        found = sorted(self.wait_for_replicas())
        killed, before, n_begun = [], self.counts(), 0

        def begun():   # once all streams are on their way
            nonlocal n_begun
            n_begun += 1
            if n_begun == n:
                killed.append(found[0])
                os.kill(found[0][how], signal.SIGKILL)

        got = asyncio.run(all_streams(self.address, bodies, begun))
        self.assertEqual(len(killed), 1)
        n_resumed = self.counts()["resumed"] - before["resumed"]
        print(f"{n_resumed} of {n} streams went on with another replica", flush=True)
        self.assertGreater(n_resumed, n // 6)
        self.assertEqual([text_of(one) for one in got], [text_of(one) for one in expected])
        for one, like in zip(got, expected):
            self.assertEqual(len({(part["id"], part["created"]) for part in one}), 1)
            self.assertEqual(len(one), len(like))
            self.assertEqual(one[-1]["usage"]["completion_tokens"], 300)
        after = self.wait_for_replicas()
        self.assertNotIn(killed[0], after)
        with self.assertRaises(ProcessLookupError):   # one ends with the other
            os.kill(killed[0][1 - how], 0)

    def test_p2_program_killed(self):  # [P2]
        """the server process of a replica killed in the middle of streams"""
        self.lose(1)

    @unittest.skipUnless(LARGE, "with --large")
    def test_p2_actor_killed(self):  # [P2]
        """the actor of a replica killed in the middle of streams"""
        self.lose(0)

    def test_whole_answers_are_asked_for_again(self):
        bodies = [chat(300 + i, 150) for i in range(6)]
        expected = [json.loads(post(self.alone, CHAT, body)[1])["choices"] for body in bodies]
        victim = sorted(self.wait_for_replicas())[0]

        async def run():
            async with aiohttp.ClientSession() as session:
                async def one(body):
                    async with session.post(self.address + CHAT, json=body) as answer:
                        return answer.status, json.loads(await answer.read())
                asked = [asyncio.ensure_future(one(body)) for body in bodies]
                await asyncio.sleep(0.1)
                os.kill(victim[1], signal.SIGKILL)
                return await asyncio.gather(*asked)
        got = asyncio.run(run())
        self.assertEqual([status for status, _ in got], [200] * len(bodies))
        self.assertEqual([body["choices"] for _, body in got], expected)
        self.wait_for_replicas()


def conversations(address, n, turns, seed=0):
    """Runs conversations whose turns come mixed, one request after another. Gives a row for each turn: the
    conversation, which of its turns it is, tokens of the prompt, and those that were found in a cache."""
    pick = random.Random(seed)
    system = {"role": "system", "content": "You are brief. " * 6}
    talks = [[system, {"role": "user", "content": f"Talk {i}: " + "tell me of the king " * 4}] for i in range(n)]
    left = [i for i in range(n) for _ in range(turns)]
    pick.shuffle(left)
    rows = []
    for i in left:
        status, data = post(address, CHAT, {"messages": talks[i], "max_tokens": 24, "seed": i, **NO_EOG})
        assert status == 200, data
        document = json.loads(data)
        usage = document["usage"]
        rows.append((i, len(talks[i]) // 2 - 1, usage["prompt_tokens"],
                     usage["prompt_tokens_details"]["cached_tokens"]))
        talks[i] += [document["choices"][0]["message"], {"role": "user", "content": "and then " * 8}]
    return rows


def share_of(rows):
    return sum(row[3] for row in rows) / sum(row[2] for row in rows)


class ServingOverNodes(Serving):
    """All of it with replicas on several nodes."""

    @staticmethod
    def nodes():
        return ray_support.several_nodes(2)

    @classmethod
    def setUpClass(cls):
        if not LARGE:
            raise unittest.SkipTest("with --large")
        super().setUpClass()

    def test_p2_replicas_are_on_several_nodes(self):  # [P2]
        self.wait_for_replicas()
        nodes = {actor["Address"]["NodeID"] for actor in ray._private.state.actors().values()
                 if actor["State"] == "ALIVE" and "tinfer#Replica" in actor["Name"]}
        self.assertEqual(len(nodes), 2)


class Routing(unittest.TestCase):
    def test_p2_prefix_routing(self):  # [P2]
        """prompts go where their beginnings are: more of them is reused than by turns"""
        if not pathlib.Path(PROGRAM).is_file():
            self.skipTest("there is no program tinfer")
        n, turns, replicas = (24, 8, 4) if LARGE else (6, 4, 2)
        shares = {}
        with ray_support.local_ray(n_cpus=4):
            port = free_port()
            serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
            for is_aware in (False, True):
                serve.run(app(TALKS, ["-c", "16384", "--keep-sequences", "32"], program=PROGRAM, replicas=replicas,
                              prefix_routing=is_aware, stats_period_s=1), name="tinfer")
                rows = conversations(f"http://127.0.0.1:{port}", n, turns)
                shares[is_aware], total = share_of(rows), sum(row[2] for row in rows)
                serve.delete("tinfer")
            serve.shutdown()
        print(f"{replicas} replicas, {n} conversations of {turns} turns, {total} prompt tokens: reused "
              f"{shares[True]:.3f} by prefix, {shares[False]:.3f} by turns", flush=True)
        self.assertGreater(shares[True], shares[False] + 0.2)


if __name__ == "__main__":
    sys.argv = [one for one in sys.argv if one != "--large"]
    unittest.main()
