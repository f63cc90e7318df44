# SPDX-License-Identifier: MIT
"""Several models in one server: an answer is that of its model alone, whoever else is asked, loaded and unloaded."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading
import time
import unittest

from server_support import FOLDER, HERE, NO_EOG, TINFER, Server

NAMES = {"red": (1, "llama"), "green": (2, "talks"), "blue": (3, "moe")}
LIMITS = ["-c", 256, "--parallel", 2, "--max-connections", 64]


def make(path, seed, kind):
    subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", path, str(seed), kind], check=True)
    return path


FILES = {name: make(FOLDER / f"{name}.gguf", *how) for name, how in NAMES.items()}


def named(files):
    return [part for name, file in files.items() for part in ("--models", f"{name}={file}")]


class Several(Server):
    """A server that gets its models by options, and -m only where `default` says so."""

    def __init__(self, *args, default=None, **more):
        super().__init__(*LIMITS, *args, model=default, **more)

    def state(self, name):
        return self.get(f"/v1/models/{name}")["status"]["value"]


def check(*args):
    run = subprocess.run([TINFER, "serve", *map(str, args), "--check"], capture_output=True, text=True)
    if run.returncode != 0:
        raise AssertionError(run.stderr)
    return json.loads(run.stdout)


def room_for_two():
    """--memory with which two of the three fit at a time, whichever they are."""
    numbers = check(*LIMITS, *named(FILES), "--memory", "8G")
    sizes = sorted(model["memory"] for model in numbers["models"])
    return (8 << 30) - numbers["memory_for_models"] + sum(sizes[1:]) + sizes[0] // 2


def hub_cache(file, repo="team/tiny", quant="Q8_0"):
    """A folder as the hub's clients leave it, with one model in it."""
    folder = FOLDER / "hub"
    data, commit = pathlib.Path(file).read_bytes(), "0123456789abcdef0123456789abcdef01234567"
    here = folder / f"models--{repo.replace('/', '--')}"
    blob = here / "blobs" / hashlib.sha256(data).hexdigest()
    link = here / "snapshots" / commit / f"tiny-{quant}.gguf"
    for path in (blob, link, here / "refs/main"):
        path.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(data)
    link.symlink_to(os.path.relpath(blob, link.parent))
    (here / "refs/main").write_text(commit)
    return folder


def question(i, name, **more):
    words = ["once", "the rain", "on a hill", "nothing", "an answer here"]
    return {"model": name, "prompt": f"{words[i % 5]} {i // 5}", "max_tokens": 4 + i % 9, "seed": i,
            "temperature": 0.8, **NO_EOG, **more}


def ask(server, body):
    if body.get("stream"):
        return "".join(event["choices"][0]["text"] for event in server.events("/v1/completions", body))
    return server.post("/v1/completions", body)["choices"][0]["text"]


def value(server, name, **labels):
    text = server.ask("GET", "/metrics")[2].decode()
    wanted = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) + "} "
    return float(next(line for line in text.splitlines() if line.startswith(name + wanted)).split()[-1])


class SeveralModels(unittest.TestCase):
    def test_v16_list_choice_and_unknown_names(self):
        with Several(*named(FILES)) as server:
            listed = server.get("/v1/models")["data"]
            self.assertEqual([model["id"] for model in listed], list(FILES))
            self.assertEqual({model["status"]["value"] for model in listed}, {"unloaded"})
            self.assertEqual(listed[2]["meta"]["n_expert"], 8)
            before = {model["id"]: model["meta"] for model in listed}
            for name in FILES:
                self.assertEqual(server.post("/v1/completions", question(0, name))["model"], name)
                self.assertEqual(server.state(name), "loaded")
                after = server.get(f"/v1/models/{name}")["meta"]
                self.assertEqual(before[name], {key: after[key] for key in before[name]})
            self.assertEqual(server.post("/v1/completions", question(0, "red:latest"))["model"], "red")
            missing = server.post("/v1/completions", question(0, "violet"), 404)["error"]
            self.assertEqual((missing["code"], missing["param"]), ("model_not_found", "model"))
            for path, body in [("/v1/completions", {"prompt": "x"}), ("/tokenize", {"text": "x"})]:
                self.assertEqual(server.post(path, body, 400)["error"]["param"], "model")
            self.assertEqual(server.post("/tokenize", {"text": "x", "model": "no/../such"}, 404)["error"]["code"],
                             "model_not_found")
            self.assertIn("n_ctx", server.get("/props?model=red")["default_generation_settings"])
            self.assertEqual(server.post("/models/unload", {"model": "red"}), {"success": True})
            self.assertEqual(server.state("red"), "unloaded")
            self.assertEqual(server.get("/props?model=red&autoload=false", 400)["error"]["code"], "model_not_loaded")
            self.assertEqual(server.post("/models/load", {"model": "red"}), {"success": True})
            self.assertEqual(server.state("red"), "loaded")
            self.assertEqual(value(server, "tinfer_model_loads_total", model="red"), 2)
            tags = {model["name"]: model for model in server.get("/api/tags")["models"]}
            self.assertEqual(list(tags), [name + ":latest" for name in FILES])
            server.post("/models/unload", {"model": "blue"})
            self.assertEqual({model["name"] for model in server.get("/api/ps")["models"]},
                             {"red:latest", "green:latest"})
            self.assertEqual({model["name"]: model for model in server.get("/api/tags")["models"]}, tags)
            self.assertIn("completion", server.post("/api/show", {"name": "blue"})["capabilities"])
            self.assertEqual(server.state("blue"), "unloaded")   # neither list nor show loads
            server.post("/models/unload", {"model": "red"})
            for is_first in [True, False]:   # of which one has waited for its model
                said = server.post("/api/generate", {"model": "red", "prompt": "x", "stream": False})
                self.assertLess(said["load_duration"] + said["eval_duration"], said["total_duration"])
                self.assertGreater(said["load_duration"], 1e5 if is_first else -1)
            self.assertEqual(server.get("/v1/models/red")["created"], int(FILES["red"].stat().st_mtime))
            server.post("/api/generate", {"model": "green", "keep_alive": 0, "stream": False})
            for _ in range(100):
                if server.state("green") == "unloaded":
                    break
                time.sleep(0.02)
            self.assertEqual(server.state("green"), "unloaded")

    def test_models_of_the_cache_by_their_names(self):
        folder = hub_cache(FILES["red"])
        cache = ["--hub-cache", folder, "--offline"]
        known = subprocess.run([TINFER, "serve", "--cached", *map(str, cache), "--check"], capture_output=True,
                               text=True)
        if "without models by name" in known.stderr:
            self.skipTest(known.stderr)
        with Server(*LIMITS, model=FILES["red"]) as server:
            alone = ask(server, {**question(1, None), "seed": 5})
        with Several("--cached", "--models", "mine=hf:team/tiny:Q8_0", *cache) as server:
            self.assertEqual([model["id"] for model in server.get("/v1/models")["data"]], ["mine", "team/tiny:Q8_0"])
            for name in ("mine", "team/tiny:Q8_0"):
                self.assertEqual(ask(server, {**question(1, name), "seed": 5}), alone)
        run = subprocess.run([TINFER, "serve", "--models", "x=hf:team/none", *map(str, cache)], capture_output=True,
                             text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("not in the cache", run.stderr)

    def test_v16_answers_are_those_of_each_model_alone(self):
        bodies = [question(i, name, stream=i % 3 == 0) for i in range(30) for name in FILES]
        alone = {}
        for name, file in FILES.items():
            with Server(*LIMITS, "--alias", name, model=file) as server:
                alone |= {json.dumps(body): ask(server, body) for body in bodies if body["model"] == name}
        memory = room_for_two()
        with Several(*named(FILES), "--memory", memory) as server:
            random.Random(1).shuffle(bodies)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                answers = list(pool.map(lambda body: ask(server, body), bodies))
            for body, answer in zip(bodies, answers):
                self.assertEqual(answer, alone[json.dumps(body)], body)
            self.assertGreater(sum(value(server, "tinfer_model_unloads_total", model=name) for name in FILES), 0)
            self.assertEqual(sum(server.state(name) == "loaded" for name in FILES), 2)
            status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
            peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]) << 10
            self.assertLess(peak, memory * 1.05)

    def test_v16_nobody_starves_and_no_unload_ends_an_answer(self):
        with Several(*named(FILES), "--memory", room_for_two()) as server:
            stops, failures = threading.Event(), []

            def hammer(name):
                for i in range(100000):
                    if stops.is_set():
                        return
                    status, _, data = server.ask("POST", "/v1/completions", question(i, name, stream=i % 2 == 0))
                    if status != 200 or (i % 2 == 0 and not data.endswith(b"[DONE]\n\n")):
                        failures.append((status, data[:200]))

            threads = [threading.Thread(target=hammer, args=(name,)) for name in ["red", "green"] * 2]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            for i in range(3):
                self.assertEqual(server.ask("POST", "/v1/completions", question(i, "blue"))[0], 200)
            stops.set()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])

    def test_v16_one_in_use_stays_and_a_damaged_one_hurts_none(self):
        broken = FOLDER / "broken.gguf"
        broken.write_bytes(FILES["red"].read_bytes()[:5000])
        with Several(*named(FILES | {"broken": broken})) as server:
            expected = ask(server, question(7, "red"))
            connection = server.connect()
            body = question(1, "red", stream=True, max_tokens=200)
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read(10)
            busy = server.post("/models/unload", {"model": "red"}, 409)["error"]
            self.assertEqual(busy["code"], "model_busy")
            status, headers, data = server.ask("POST", "/v1/completions", question(0, "broken"))
            self.assertEqual((status, json.loads(data)["error"]["code"]), (503, "model_load_failed"))
            self.assertLessEqual(int(headers["Retry-After"]), 10)
            self.assertNotIn(str(FOLDER), data.decode())
            self.assertEqual(server.get("/v1/models/broken")["status"]["value"], "failed")
            self.assertIn("error", server.get("/v1/models/broken")["status"])
            self.assertEqual(ask(server, question(7, "red")), expected)
            self.assertTrue(response.read().endswith(b"[DONE]\n\n"))
            connection.close()

    def test_v16_a_file_that_was_replaced_is_loaded_anew(self):
        changing = FOLDER / "changing.gguf"
        shutil.copy(FILES["red"], changing)
        with Several("--models", f"it={changing}") as server:
            first = server.post("/v1/completions", question(3, "it"))
            make(FOLDER / "next.gguf", 9, "llama")
            os.replace(FOLDER / "next.gguf", changing)
            second = server.post("/v1/completions", question(3, "it"))
            self.assertNotEqual(first["system_fingerprint"], second["system_fingerprint"])
        with Server(*LIMITS, "--alias", "it", model=changing) as server:
            self.assertEqual(ask(server, question(3, "it")), second["choices"][0]["text"])

    def test_v16_tables_of_a_configuration_file(self):
        config = FOLDER / "models.toml"
        config.write_text(f'memory = "2G"\n[model."o.w.n/red:Q8"]\nmodel = "{FILES["red"]}"\n'
                          'alias = ["r", "rouge"]\nload = "start"\npin = true\nctx = 128\ntemp = 0\n'
                          f'[model.green]\nmodel = "{FILES["green"]}"\n'
                          f'keep = 0.2\n[model.big]\nmodel = "{FILES["blue"]}"\nctx = 4000000\n')
        with Several("--config", config, default=FILES["blue"]) as server:
            self.assertEqual(server.state("o.w.n/red:Q8"), "loaded")
            red = server.get("/v1/models/rouge")
            self.assertEqual((red["id"], red["aliases"], red["max_model_len"]), ("o.w.n/red:Q8", ["r", "rouge"], 128))
            self.assertEqual(red["meta"]["defaults"]["temperature"], 0)
            self.assertEqual(server.post("/v1/completions", question(0, "r"))["model"], "o.w.n/red:Q8")
            self.assertEqual(server.post("/models/unload", {"model": "r"}, 409)["error"]["code"], "model_pinned")
            self.assertEqual(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})["model"], "tiny")
            server.post("/v1/completions", question(0, "green"))
            time.sleep(0.5)
            self.assertEqual(server.state("green"), "unloaded")
            big = server.post("/v1/completions", question(0, "big"), 503)["error"]
            self.assertEqual(big["code"], "model_too_large")
            self.assertEqual(len([word for word in big["message"].split() if word.isdigit()]), 2)

        for text, said, code in [('[model.x]\nmodel = "M"\nport = 80\n', "[model.x] port", 2),
                                 ('[model.x]\nmodel = "M"\nctx = "many"\n', "[model.x]", 2),
                                 ('[model.x]\nmodel = "M"\nalias = "y"\n[model.y]\nmodel = "M"\n', "'y'", 1)]:
            config.write_text(text.replace("M", str(FILES["red"])))
            run = subprocess.run([TINFER, "serve", "--port", "0", "--config", config], capture_output=True, text=True)
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertIn(said, run.stderr)


if __name__ == "__main__":
    unittest.main()
