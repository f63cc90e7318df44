#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`tinfer serve --allow-pull`: clients of Ollama's interface have models downloaded from a fake hub, and use them."""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from server_support import FOLDER, HERE, MODEL, TINFER, Server, SmallDisk, chat

sys.path.insert(0, str(HERE.parent / "hub"))
import fake_hub  # noqa: E402
from fake_hub import Hub, sha256  # noqa: E402

NAME = "owner/Tiny-GGUF"
TINY = MODEL.read_bytes()
HEX = sha256(TINY)
STEP = "pulling " + HEX[:12]
QUANTS = ("Q4_0", "Q5_0", "Q6_K", "IQ4_NL", "F16")


def setUpModule():
    if subprocess.run([TINFER, "pull", "--help"], capture_output=True).returncode != 0:
        raise unittest.SkipTest("this build cannot download")


def hub():
    others = {f"Tiny-{quant}.gguf": TINY + quant.encode() for quant in QUANTS}
    return Hub({NAME: {"Tiny-Q8_0.gguf": TINY, **others}})


class Pulling(Server):
    """A server that may download from a hub, with a cache of its own."""

    def __init__(self, one, *args, cache=None, model=None):
        self.cache = pathlib.Path(cache or tempfile.mkdtemp(dir=FOLDER))
        env = {"HF_ENDPOINT": one.address, "HF_HUB_CACHE": str(self.cache), "HF_HUB_OFFLINE": "", "HF_TOKEN": "hf_own",
               "HF_TOKEN_PATH": "", **{name: "" for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY",
                                                             "HTTPS_PROXY", "ALL_PROXY")}}
        super().__init__("-c", 256, "--parallel", 1, "--memory", "4G", *args, model=model, env=env)

    def pull(self, name, **fields):
        """The lines of a pull."""
        status, headers, data = self.ask("POST", "/api/pull", {"model": name, **fields})
        if status != 200 or headers["Content-Type"] != "application/x-ndjson":
            raise AssertionError(f"{status} {headers['Content-Type']} {data[:300]}")
        return [json.loads(line) for line in data.decode().splitlines()]

    def names(self):
        return [model["name"] for model in self.get("/api/tags")["models"]]

    def blob(self):
        return self.cache / "models--owner--Tiny-GGUF/blobs" / HEX


def wait_for(condition):
    for _ in range(400):
        if condition():
            return True
        time.sleep(0.025)
    return False


class Pull(unittest.TestCase):
    def test_v17_stream_and_what_comes_of_it(self):  # [V17]
        """every line in its order, and then the model in all lists and in use by every form of its name"""
        with hub() as one, Pulling(one, "--allow-pull") as server:
            self.assertEqual((server.names(), server.get("/v1/models")["data"], server.get("/slots")), ([], [], []))
            self.assertEqual([server.ask("GET", path)[0] for path in ("/", "/metrics", "/health", "/props")],
                             [200, 200, 200, 400])
            self.assertEqual(server.ask("POST", "/v1/chat/completions", chat("Hello", model=NAME))[0], 404)
            one.faults["store"] = [fake_hub.slow(len(TINY) // 4, 0.12)]
            lines = server.pull("hf.co/" + NAME)
            told = [line["status"] for line in lines]
            self.assertEqual(list(dict.fromkeys(told)), ["pulling manifest", STEP, "verifying sha256 digest",
                                                         "writing manifest", "success"])
            steps = [line for line in lines if line["status"] == STEP]
            self.assertEqual({(line["digest"], line["total"]) for line in steps}, {("sha256:" + HEX, len(TINY))})
            at = [line["completed"] for line in steps]
            self.assertEqual(at, sorted(set(at)))
            self.assertGreater(len(at), 2)
            self.assertEqual(at[-1], len(TINY))
            self.assertTrue(all(set(line) == {"status"} for line in lines if line["status"] != STEP))
            self.assertEqual(server.blob().read_bytes(), TINY)
            self.assertEqual(server.names(), [NAME + ":Q8_0"])
            listed = server.get("/v1/models")["data"]
            self.assertEqual([(model["id"], model["aliases"]) for model in listed], [(NAME + ":Q8_0", [NAME])])
            with Server("-c", 256, "--parallel", 1) as alone:
                text = alone.post("/v1/chat/completions", chat("Hello"))["choices"][0]["message"]["content"]
            for name in (NAME, NAME + ":Q8_0", "hf.co/" + NAME, "hf:" + NAME + ":Q8_0", NAME + ":latest"):
                said = server.post("/v1/chat/completions", chat("Hello", model=name))
                self.assertEqual(said["choices"][0]["message"]["content"], text, name)
                n_asked = len(one.asked)
                self.assertEqual(server.pull(name), [{"status": "success"}])
                self.assertEqual(len(one.asked), n_asked)   # it is here
            self.assertEqual(server.ask("POST", "/v1/chat/completions", chat("Hello", model="another"))[0], 404)
            tokens = {request["token"] for request in one.to("store")}
            self.assertEqual(tokens, {None})

    def test_whole_and_beside_the_model_of_the_command_line(self):
        with hub() as one, Pulling(one, "--allow-pull", model=MODEL) as server:
            self.assertEqual(server.post("/api/pull", {"name": NAME + ":q8_0", "stream": False, "insecure": True}),
                             {"status": "success"})
            self.assertEqual(server.names(), ["tiny:latest", NAME + ":Q8_0"])
            asked = [server.post("/v1/chat/completions", chat("Hello", **which))["choices"][0]["message"]["content"]
                     for which in ({}, {"model": NAME + ":Q8_0"})]
            self.assertEqual(asked[0], asked[1])
            self.assertEqual(server.ask("POST", "/api/pull", {"model": NAME, "stream": False, "x": 1})[0], 200)
            with Pulling(one, "--cached", cache=server.cache) as again:   # under the same name without the option
                self.assertEqual(again.names(), [NAME + ":Q8_0"])
                self.assertEqual(again.pull(NAME + ":Q8_0"), [{"status": "success"}])

    def test_clients_of_one_name_share_a_download_which_outlives_them(self):
        with hub() as one, Pulling(one, "--allow-pull") as server:
            one.faults["store"] = [fake_hub.slow(len(TINY) // 8, 0.15)]
            leaves = server.connect()
            leaves.request("POST", "/api/pull", json.dumps({"model": NAME}))
            self.assertEqual(json.loads(leaves.getresponse().readline()), {"status": "pulling manifest"})
            leaves.close()
            answers = []
            others = [threading.Thread(target=lambda name=name: answers.append(server.pull(name)))
                      for name in (NAME, "hf.co/" + NAME)]
            for thread in others:
                thread.start()
            for thread in others:
                thread.join()
            for lines in answers:
                self.assertEqual(lines[-1], {"status": "success"})
                self.assertIn(STEP, {line["status"] for line in lines})
            self.assertEqual(len(one.to("store")), 1)
            one.faults["store"] = [fake_hub.slow(len(TINY) // 4, 0.1)]
            leaves = server.connect()
            leaves.request("POST", "/api/pull", json.dumps({"model": NAME + ":F16", "stream": False}))
            self.assertTrue(wait_for(lambda: len(one.to("store")) == 2))
            leaves.close()
            self.assertTrue(wait_for(lambda: NAME + ":F16" in server.names()))

    def test_a_connection_that_breaks(self):
        """bytes that came are not asked for again, and no line goes back"""
        with hub() as one, Pulling(one, "--allow-pull") as server:
            one.faults["store"] = [fake_hub.cut(len(TINY) // 2)]
            lines = server.pull(NAME)
            self.assertEqual(lines[-1], {"status": "success"})
            at = [line["completed"] for line in lines if line["status"] == STEP]
            self.assertEqual(at, sorted(at))
            self.assertEqual([request["range"] for request in one.to("store")], [None, f"bytes={len(TINY) // 2}-"])

    def test_the_end_of_the_server_ends_downloads(self):
        """the stream says so, the process ends, and the next one goes on where this one was"""
        with hub() as one:
            server = Pulling(one, "--allow-pull")
            one.faults["store"] = [fake_hub.stall(len(TINY) // 2, 20)]
            connection = server.connect()
            connection.request("POST", "/api/pull", json.dumps({"model": NAME}))
            response = connection.getresponse()
            self.assertTrue(wait_for(lambda: list(server.cache.rglob("*.incomplete")) and
                                     list(server.cache.rglob("*.incomplete"))[0].stat().st_size == len(TINY) // 2))
            begin = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            last = json.loads(response.read().decode().splitlines()[-1])
            self.assertEqual(last, {"error": "the server is stopping"})
            connection.close()
            self.assertEqual(server.process.wait(30), 0)
            self.assertLess(time.monotonic() - begin, 10)
            server.stop()
            with Pulling(one, "--allow-pull", cache=server.cache) as again:
                self.assertEqual(again.pull(NAME)[-1], {"status": "success"})
            self.assertEqual(one.to("store")[-1]["range"], f"bytes={len(TINY) // 2}-")

    def test_errors(self):
        """before the first line a status, behind it the last line; never a folder of the server's"""
        with hub() as one, Pulling(one, "--allow-pull") as server:
            refused = [("llama3", 400, "no name of a model"), ("../x/y", 400, "no name of a model"),
                       ("ollama:llama3", 501, "registry is not asked"), ("", 400, "model")]
            for name, expected, words in refused:
                for stream in (True, False):
                    status, _, data = server.ask("POST", "/api/pull", {"model": name, "stream": stream})
                    self.assertEqual(status, expected, data)
                    self.assertIn(words, json.loads(data)["error"])
            self.assertEqual(one.asked, [])
            for name, words in [("owner/none", "there is no repository"), (NAME + ":Q2_K", "there is no Q2_K"),
                                (NAME + "@other", "other")]:
                first, last = server.pull(name)
                self.assertEqual(first, {"status": "pulling manifest"})
                self.assertEqual(list(last), ["error"])
                self.assertIn(words, last["error"])
                said = server.post("/api/pull", {"name": name, "stream": False}, status=404)
                self.assertEqual(said, last)
            one.faults["store"] = [fake_hub.flipped(1000), fake_hub.flipped(1000)]
            self.assertIn("hash", server.pull(NAME)[-1]["error"])
            self.assertEqual(server.names(), [])
            for path in ("/api/push", "/api/create", "/api/copy", "/api/delete"):
                said = server.post(path, {"model": NAME}, status=501)
                self.assertIn(path + " is not supported by tinfer", said["error"])

    def test_limits(self):
        """at most four downloads at a time; a key is asked for; without the option nothing is fetched"""
        with hub() as one, Pulling(one, "--allow-pull", "--api-key", "sk-test") as server:
            key = {"Authorization": "Bearer sk-test"}
            self.assertEqual(server.ask("POST", "/api/pull", {"model": NAME})[0], 401)
            one.faults["store"] = [fake_hub.stays(fake_hub.slow(len(TINY) // 8, 0.3))]
            for n, quant in enumerate(QUANTS[:4], 1):
                connection = server.connect()
                connection.request("POST", "/api/pull", json.dumps({"model": f"{NAME}:{quant}"}), key)
                connection.getresponse().readline()
                connection.close()
                self.assertTrue(wait_for(lambda: len(one.to("store")) == n))
            status, headers, data = server.ask("POST", "/api/pull", {"model": NAME}, key)
            self.assertEqual((status, bool(headers["Retry-After"])), (503, True), data)
            self.assertIn("4 models are being downloaded", json.loads(data)["error"])
        with hub() as one, Pulling(one, model=MODEL) as server:
            for stream in (True, False):
                said = server.post("/api/pull", {"model": NAME, "stream": stream}, status=403)
                self.assertEqual(said, {"error": "pulling is off; start with --allow-pull"})
            self.assertEqual(one.asked, [])

    def test_offline_and_a_full_disk(self):
        with hub() as one:
            with Pulling(one, "--allow-pull") as server:
                self.assertEqual(server.pull(NAME)[-1], {"status": "success"})
                cache = server.cache
            n_asked = len(one.asked)
            with Pulling(one, "--offline", "--allow-pull", cache=cache) as server:
                last = server.pull(NAME + ":F16")[-1]
                self.assertIn("not in the cache, and offline", last["error"])
                self.assertNotIn(str(FOLDER), last["error"])
                self.assertEqual(server.pull(NAME)[-1], {"status": "success"})
                self.assertEqual(server.names(), [NAME + ":Q8_0"])
            self.assertEqual(len(one.asked), n_asked)
            with SmallDisk(64 << 10) as disk, Pulling(one, "--allow-pull", cache=disk) as server:
                last = server.pull(NAME)[-1]
                self.assertIn("are missing, and models--owner--Tiny-GGUF has", last["error"])
                self.assertNotIn(str(disk), last["error"])
                said = server.post("/api/pull", {"model": NAME, "stream": False}, status=500)
                self.assertEqual(said, last)


if __name__ == "__main__":
    unittest.main()
