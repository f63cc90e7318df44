# SPDX-License-Identifier: MIT
"""[V19] What an inference gateway reads: names, types and labels by Prometheus' own parser; sums as /slots."""
import json
import subprocess
import sys
import time
import unittest

from client_environment import environment
from server_support import FOLDER, HERE, NO_EOG, TINFER, Server

PYTHON = environment(TINFER, "prometheus", "prometheus-client==0.26.0")
PARSE = """
import json, sys
from prometheus_client.parser import text_string_to_metric_families
print(json.dumps([[f.name, f.type, f.documentation, [[s.name, s.labels, s.value] for s in f.samples]]
                  for f in text_string_to_metric_families(sys.stdin.read())]))
"""
ADAPTER = FOLDER / "style.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", ADAPTER, "5", "lora"], check=True)
OTHER = FOLDER / "other.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", OTHER, "6"], check=True)


def families(server, **headers):
    status, _, text = server.ask("GET", "/metrics", None, headers)
    assert status == 200, status
    run = subprocess.run([PYTHON, "-c", PARSE], input=text, capture_output=True)
    assert run.returncode == 0, run.stderr
    listed = json.loads(run.stdout)
    names = [name for name, *_ in listed]
    assert len(names) == len(set(names)), "a family stands in two places"
    return {name: (kind, samples) for name, kind, _, samples in listed}


class Gateway(unittest.TestCase):
    def test_v19_families_types_labels_and_sums(self):
        with Server("--parallel", 2, "-c", 8192, "--alias", "one", "--lora", f"style={ADAPTER}", "--models",
                    f"two={OTHER}", "--metrics-as", "vllm") as server:
            for name in ["one", "two"]:
                server.post("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 1})
            body = {"model": "one", "prompt": "a" * 200, "max_tokens": 3000, **NO_EOG}
            bodies = [body | {"lora": "style"}, body | {"model": "style"}, body, body | {"lora": "style"},
                      body | {"model": "two"}]
            connections = []
            for one in bodies:
                connection = server.connect()
                connection.request("POST", "/v1/completions", json.dumps(one | {"stream": True}))
                connections.append(connection)
            matched = False
            for _ in range(30):
                before = server.get("/slots")
                now = families(server)
                after = server.get("/slots")
                states = [(slot["request"], slot["model"], slot["state"] == "queued") for slot in before]
                if states != [(slot["request"], slot["model"], slot["state"] == "queued") for slot in after]:
                    continue
                # Slots are published behind each round: a request that came within one is counted before it is seen.
                matched = self.sums(now) == self.counted(before) and any(waits for *_, waits in states)
                self.check(now)
                if matched:
                    break
            self.assertTrue(matched)
            for connection in connections:
                connection.close()   # its answer ends with it
            for _ in range(100):
                if not server.get("/slots"):
                    break
                time.sleep(0.02)
            idle = families(server)
            self.assertEqual({labels["model"]: value for _, labels, value in idle["tinfer_cache_usage_ratio"][1]},
                             {"one": 0, "two": 0})

    def sums(self, now):
        sums = {(labels["model"], waits): value for waits, name in [(True, "queued"), (False, "running")]
                for _, labels, value in now[f"tinfer_requests_{name}"][1]}
        return sums | {("", True): now["vllm:num_requests_waiting"][1][0][2],
                       ("", False): now["vllm:num_requests_running"][1][0][2]}

    def counted(self, slots):
        return {(model, waits): sum(model in ("", slot["model"]) and (slot["state"] == "queued") == waits
                                    for slot in slots)
                for model in ["one", "two", ""] for waits in [True, False]}

    def check(self, now):
        for name in ["tinfer_requests_queued", "tinfer_requests_running", "tinfer_cache_usage_ratio",
                     "tinfer_cache_config_info", "tinfer_lora_requests_info", "vllm:num_requests_waiting",
                     "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
                     "vllm:lora_requests_info"]:
            self.assertEqual(now[name][0], "gauge", name)
        for name in ["tinfer_cache_usage_ratio", "vllm:kv_cache_usage_perc"]:
            for _, labels, value in now[name][1]:
                self.assertTrue(0 <= value <= 1)
        labels = now["tinfer_cache_config_info"][1][0][1]
        self.assertEqual((labels["block_size"], labels["num_gpu_blocks"]), ("64", "128"))
        (_, labels, value), = now["tinfer_lora_requests_info"][1]
        self.assertEqual((labels["model"], labels["max_lora"]), ("one", "1"))
        self.assertIn(labels["running_lora_adapters"], ["", "style"])
        self.assertLess(abs(value - time.time()), 60)

    def test_v19_adapters_are_absent_without_any_and_a_key_is_needed_unless_metrics_are_open(self):
        with Server("--api-key", "k") as server:
            self.assertEqual(server.ask("GET", "/metrics")[0], 401)
            now = families(server, Authorization="Bearer k")
            self.assertNotIn("tinfer_lora_requests_info", now)
            self.assertFalse([name for name in now if name.startswith("vllm:")])
        with Server("--api-key", "k", "--open-metrics") as server:
            self.assertIn("tinfer_requests_queued", families(server))
            self.assertEqual(server.ask("GET", "/slots")[0], 401)


if __name__ == "__main__":
    unittest.main()
