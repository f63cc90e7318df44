#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[V15] `tinfer pull`, `list`, `rm`, and names in place of model files, as people and scripts use them."""
import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
import unittest

import fake_hub
from fake_hub import SHA, Hub, stays
from hub_support import FOLDER, HERE, TINFER, Cache, environment, gguf, lines

NAME = "owner/Tiny-GGUF"
MODEL = FOLDER / "tiny.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MODEL], check=True)
TINY, OTHER = MODEL.read_bytes(), gguf(150_000, 1)


def hub():
    return Hub({NAME: {"Tiny-Q8_0.gguf": TINY, "Tiny-F16.gguf": OTHER, "copy/Tiny-Q6_K.gguf": TINY}})


class Pull(unittest.TestCase):
    def test_json(self):
        with hub() as one:
            cache = Cache(one)
            one.faults["store"] = [fake_hub.slow(len(TINY) // 4, 0.15)]
            done = cache.tinfer("pull", NAME, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            *states, last = lines(done.stdout)
            self.assertEqual({s["file"] for s in states}, {"Tiny-Q8_0.gguf"})
            self.assertEqual({s["size"] for s in states}, {len(TINY)})
            at = [s["completed"] for s in states]
            self.assertEqual(at, sorted(at))
            self.assertEqual(list(dict.fromkeys(s["state"] for s in states)), ["downloading", "verifying", "done"])
            self.assertEqual(last["name"], NAME + ":Q8_0")
            self.assertEqual(last["commit"], SHA)
            self.assertEqual(last["downloaded"], len(TINY))
            self.assertEqual(last["files"], [{"path": "Tiny-Q8_0.gguf", "bytes": len(TINY),
                                              "sha256": fake_hub.sha256(TINY)}])
            *states, last = lines(cache.tinfer("pull", NAME, "--json").stdout)
            self.assertEqual([s["state"] for s in states], ["cached"])
            self.assertEqual(last["downloaded"], 0)

    def test_text_and_plan(self):
        with hub() as one:
            cache = Cache(one)
            done = cache.tinfer("pull", NAME + ":F16", "--dry-run")
            self.assertEqual(done.stdout, "Tiny-F16.gguf  146.5 KiB, to be fetched\n")
            self.assertEqual(one.to("store"), [])
            self.assertEqual(list(cache.folder.rglob("*.gguf")), [])
            one.faults["store"] = [fake_hub.slow(5000, 0.02)]
            done = cache.tinfer("pull", NAME + ":F16")
            self.assertIn(NAME + ":F16  ", done.stdout)
            self.assertIn("license apache-2.0", done.stderr)
            tenths = [int(n) for n in re.findall(r": (\d+) % of", done.stderr)]
            self.assertEqual(tenths, sorted(set(tenths)))
            self.assertLessEqual(set(tenths), set(range(10, 101, 10)))
            self.assertGreaterEqual(len(tenths), 3)
            done = cache.tinfer("pull", NAME + ":F16", "--offline")
            self.assertEqual(done.returncode, 0, done.stderr)
            done = cache.tinfer("pull", NAME + ":Q8_0", "--offline")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"tinfer: {NAME}:Q8_0: not in the cache {cache.folder}, and offline\n")

    def test_bar(self):
        with hub() as one:
            cache = Cache(one)
            one.faults["store"] = [fake_hub.slow(3000, 0.02)]
            master, terminal = pty.openpty()
            process = subprocess.Popen([TINFER, "pull", NAME + ":F16"], stderr=terminal, stdout=subprocess.DEVNULL,
                                       env=cache.env())
            os.close(terminal)
            shown, began = b"", time.monotonic()
            while True:
                try:
                    piece = os.read(master, 4096)
                except OSError:
                    break
                if not piece:
                    break
                shown += piece
            os.close(master)
            self.assertEqual(process.wait(30), 0)
            percents = [int(n) for n in re.findall(rb"Tiny-F16.gguf: (\d+) %", shown)]
            self.assertEqual(percents, sorted(percents))
            self.assertGreaterEqual(len(percents), 3)
            self.assertLessEqual(len(percents), 10 * (time.monotonic() - began) + 2)
            self.assertRegex(shown, rb"KiB/s, \d+ s left")

    def test_interrupted(self):
        with hub() as one:
            cache = Cache(one)
            one.faults["store"] = [fake_hub.stall(50_000, 20)]
            process = subprocess.Popen([TINFER, "pull", NAME + ":F16", "--json"], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, env=cache.env())
            until = time.monotonic() + 20
            while not [b for b in cache.blobs(NAME) if (cache.repository(NAME) / "blobs" / b).stat().st_size == 50_000]:
                self.assertLess(time.monotonic(), until)
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            began = time.monotonic()
            self.assertEqual(process.wait(10), 130)
            self.assertLess(time.monotonic() - began, 3)
            process.communicate()
            self.assertEqual(cache.blobs(NAME), [fake_hub.sha256(OTHER) + ".tinfer.incomplete"])
            rows = json.loads(cache.tinfer("list", "--json").stdout)
            self.assertEqual([(r["name"], r["bytes"], r["complete"]) for r in rows], [(NAME, 50_000, False)])
            self.assertEqual(cache.tinfer("pull", NAME + ":F16").returncode, 0)
            self.assertEqual(one.to("store")[-1]["range"], "bytes=50000-")

    def test_errors(self):
        with hub() as one:
            cache = Cache(one)
            for args in (("pull", NAME + ":Q3_K"), ("pull", "no/body"), ("run", "-m", "hf:no/body", "-p", "x"),
                         ("pull", "a b"), ("rm", "-y", NAME), ("run", "-m", "ollama:none", "-p", "x"),
                         ("pull", "ollama:none")):
                done = cache.tinfer(*args)
                self.assertEqual((done.returncode, done.stdout), (1, ""), args)
                self.assertEqual(len([line for line in done.stderr.splitlines()]), 1, done.stderr)
            self.assertNotIn("hf_secret", cache.tinfer("pull", "no/body", HF_TOKEN="hf_secret").stderr)
            self.assertIn("no token has", cache.tinfer("pull", NAME, HF_TOKEN="a\nb").stderr)
            self.assertIn("socks5", cache.tinfer("pull", NAME, HTTP_PROXY="socks5://127.0.0.1:1").stderr)


class Names(unittest.TestCase):
    def test_in_place_of_files(self):
        """every command that takes a model takes its name; what is in the cache asks nobody"""
        with hub() as one:
            cache = Cache(one)
            arguments = ("-p", "once", "-n", "4", "--temp", "0", "--json")
            answers = [cache.tinfer("run", *model, *arguments)
                       for model in (("-m", MODEL), ("-m", f"hf:{NAME}:Q8_0"), (f"hf:{NAME}",))]
            for done in answers:
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(json.loads(done.stdout)["tokens"], json.loads(answers[0].stdout)["tokens"])
            n = len(one.asked)
            name = f"hf:{NAME}:Q8_0"
            for args in (("tokenize", name, "-p", "once"), ("inspect", name, name), ("inspect", MODEL, name),
                         ("split", name, FOLDER / "part", "--max-tensors", "5"), ("kl", name, name, "-p", "once " * 90,
                          "-c", "64"), ("merge", name, FOLDER / "merged.gguf"), (name, "-p", "once", "-n", "1"),
                         ("-m", name, "-p", "once", "-n", "1"), ("quantize", name, FOLDER / "q.gguf", "Q8_0"),
                         ("serve", name, "--check"), ("run", name, "--draft", name, "--speculate", "draft", "-p", "a",
                                                      "-n", "2")):
                done = cache.tinfer(*args, HF_ENDPOINT="http://127.0.0.1:9")
                self.assertEqual(done.returncode, 0, (args, done.stderr))
            self.assertEqual(len(one.asked), n)
            done = cache.tinfer("run", name, "-p", "x", "-n", "1", "--offline", "--hub-cache", FOLDER / "empty")
            self.assertIn(f"not in the cache {FOLDER / 'empty'}, and offline", done.stderr)

    def test_ollama(self):
        store = FOLDER / "ollama"
        (store / "blobs").mkdir(parents=True)
        digest = fake_hub.sha256(TINY)
        (store / f"blobs/sha256-{digest}").write_bytes(TINY)
        manifest = store / "manifests/registry.ollama.ai/library/tiny/latest"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model",
                                                    "digest": "sha256:" + digest, "size": len(TINY)}]}))
        done = Cache().tinfer("run", "-m", "ollama:tiny", "-p", "once", "-n", "2", OLLAMA_MODELS=store)
        self.assertEqual(done.returncode, 0, done.stderr)


class Kept(unittest.TestCase):
    def test_list_verify_rm(self):
        with hub() as one:
            cache = Cache(one)
            self.assertEqual(json.loads(cache.tinfer("list", "--json").stdout), [])
            for quant in ("Q8_0", "F16", "Q6_K"):
                self.assertEqual(cache.tinfer("pull", f"{NAME}:{quant}").returncode, 0)
            self.assertEqual(len(one.to("store")), 2)   # two of them are the same bytes
            rows = json.loads(cache.tinfer("list", "--json").stdout)
            self.assertEqual([r["name"] for r in rows], [f"{NAME}:{q}" for q in ("F16", "Q6_K", "Q8_0")])
            row = rows[0]
            self.assertEqual({k: row[k] for k in ("files", "bytes", "commit", "complete")},
                             {"files": 1, "bytes": len(OTHER), "commit": SHA, "complete": True})
            self.assertEqual(pathlib.Path(row["path"]).read_bytes(), OTHER)
            self.assertIn(f"{NAME}:F16", cache.tinfer("list").stdout)
            self.assertEqual(cache.tinfer("list", "--verify").returncode, 0)

            blob = cache.repository(NAME) / "blobs" / fake_hub.sha256(OTHER)
            blob.write_bytes(OTHER[:-1] + b"!")
            done = cache.tinfer("list", "--verify", "--json")
            self.assertEqual(done.returncode, 1)
            self.assertIn("its hash is", done.stderr)
            self.assertEqual(len(json.loads(done.stdout)), 3)

            self.assertEqual(cache.tinfer("rm", NAME + ":Q8_0").returncode, 2)   # no terminal, no -y
            done = cache.tinfer("rm", "-y", NAME + ":Q8_0", "--json")
            self.assertEqual(json.loads(done.stdout), {"removed": [NAME + ":Q8_0"], "bytes": 0})
            self.assertIn(fake_hub.sha256(TINY), cache.blobs(NAME))              # Q6_K needs it
            self.assertEqual(json.loads(cache.tinfer("rm", "-y", NAME + ":Q6_K", "--json").stdout)["bytes"], len(TINY))
            self.assertEqual(cache.blobs(NAME), [fake_hub.sha256(OTHER)])
            lock = cache.folder / f".locks/models--owner--Tiny-GGUF/{fake_hub.sha256(OTHER)}.lock"
            with open(lock) as held:
                fcntl.flock(held, fcntl.LOCK_EX)
                done = cache.tinfer("rm", "-y", NAME + ":F16")
                self.assertEqual(done.returncode, 1)
                self.assertIn("another process", done.stderr)
            self.assertEqual(cache.tinfer("rm", "-y", NAME).returncode, 0)
            self.assertFalse(cache.repository(NAME).exists())

    def test_older_snapshots(self):
        """a newer commit leaves the older snapshot alone, and rm takes the quantization out of both"""
        with hub() as one:
            cache = Cache(one)
            cache.tinfer("pull", NAME + ":F16")
            one.sha, old = "f" * 40, one.sha
            one.repositories[NAME]["Tiny-F16.gguf"] = gguf(1000, 7)
            self.assertEqual(cache.tinfer("run", "-m", f"hf:{NAME}:F16", "-p", "x").returncode, 1)   # no model
            self.assertEqual(len([r for r in one.asked if "revision" in r["path"]]), 1)              # and nobody asked
            cache.tinfer("pull", NAME + ":F16")
            rows = json.loads(cache.tinfer("list", "--json").stdout)
            self.assertEqual([r["name"] for r in rows], [NAME + ":F16", f"{NAME}@{old}:F16"])
            cache.tinfer("pull", f"{NAME}@{one.sha}:Q8_0")
            self.assertEqual(cache.tinfer("rm", "-y", NAME + ":F16").returncode, 0)
            rows = json.loads(cache.tinfer("list", "--json").stdout)
            self.assertEqual([r["name"] for r in rows], [NAME + ":Q8_0"])
            self.assertEqual(cache.blobs(NAME), [fake_hub.sha256(TINY)])


if __name__ == "__main__":
    unittest.main()
