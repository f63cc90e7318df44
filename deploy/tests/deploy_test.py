#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[P2, V19] What deploy/ says is what the program does: flags, paths and ports, names and types of metrics.

usage: deploy_test.py PROGRAM MODEL
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

PROGRAM, MODEL = sys.argv[1:3]
DEPLOY = pathlib.Path(__file__).resolve().parents[1]
PROJECT = DEPLOY.parent
try:
    import yaml
except ImportError:
    sys.path.insert(0, str(PROJECT / "tests/server"))
    from client_environment import environment

    python = environment(PROGRAM, "yaml", "pyyaml")
    os.execv(python, [str(python), *sys.argv])


def documents(name):
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def flags_of_serve():
    text = subprocess.run([PROGRAM, "serve", "--help-all"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text))


class Manifests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        [cls.deployment] = documents("kubernetes/deployment.yaml")
        [cls.container] = cls.deployment["spec"]["template"]["spec"]["containers"]

    def test_all_are_named(self):
        """every file of the folder is a resource, and every resource a file"""
        [kustomization] = documents("kubernetes/kustomization.yaml")
        files = {file.name for file in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
        self.assertEqual(set(kustomization["resources"]), files)
        for name in files:
            for one in documents(f"kubernetes/{name}"):
                self.assertTrue({"apiVersion", "kind", "metadata"} <= set(one), name)

    def test_flags_are_the_programs(self):
        flags = [one.split("=", 1)[0] for one in self.container["args"] if one.startswith("-")]
        self.assertGreater(len(flags), 3)
        self.assertEqual(set(flags) - flags_of_serve(), set())

    def test_selectors_find_the_pods(self):
        labels = self.deployment["spec"]["template"]["metadata"]["labels"]
        [service] = documents("kubernetes/service.yaml")
        for selector in (self.deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]):
            self.assertTrue(selector.items() <= labels.items())
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        self.assertIn(service["spec"]["ports"][0]["targetPort"], ports)
        self.assertIn(f"--port={ports['http']}", self.container["args"])

    def test_volumes(self):
        """what the program is told to read lies in a volume, which is there"""
        spec = self.deployment["spec"]["template"]["spec"]
        mounts = {one["mountPath"]: one["name"] for one in self.container["volumeMounts"]}
        self.assertEqual(set(mounts.values()), {one["name"] for one in spec["volumes"]})
        paths = [one.split("=")[-1] for one in self.container["args"] if "/" in one]
        for path in paths:
            self.assertIn(str(pathlib.PurePosixPath(path).parent), mounts)
        claims = {one["metadata"]["name"] for one in documents("kubernetes/models.yaml")}
        self.assertIn(spec["volumes"][0]["persistentVolumeClaim"]["claimName"], claims)
        [kustomization] = documents("kubernetes/kustomization.yaml")
        secrets = {one["name"]: one["literals"] for one in kustomization["secretGenerator"]}
        [literal] = secrets[spec["volumes"][1]["secret"]["secretName"]]
        self.assertIn("--api-key-file=/keys/" + literal.split("=")[0], self.container["args"])

    def test_a_stop_waits_for_answers(self):
        drain = next(int(one.split("=")[1]) for one in self.container["args"] if one.startswith("--drain="))
        self.assertGreater(self.deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], drain)

    def test_the_image_is_that_of_the_page(self):
        """the container file is the one in docs/serve.md, and takes the manifests' arguments"""
        text = (DEPLOY / "Containerfile").read_text()
        page = (PROJECT / "docs/serve.md").read_text()
        self.assertEqual(text.split("\n", 1)[1], re.search(r"```dockerfile\n(.*?)```", page, re.S)[1])
        entry = json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.M)[1])
        self.assertEqual(entry[:2], ["tinfer", "serve"])
        user = int(re.search(r"^USER (\d+)$", text, re.M)[1])
        self.assertEqual(self.deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"], user)


class Running(unittest.TestCase):
    """The manifests' arguments on this machine."""

    more = []

    @classmethod
    def setUpClass(cls):
        [deployment] = documents("kubernetes/deployment.yaml")
        [cls.container] = deployment["spec"]["template"]["spec"]["containers"]
        keys = pathlib.Path(MODEL).with_name("deploy-keys")
        keys.write_text("sk-test\n")
        arguments = []
        for one in cls.container["args"]:
            name, _, value = one.partition("=")
            arguments += [MODEL] if not one.startswith("-") else ["--port=0"] if name == "--port" else \
                [f"{name}={keys}"] if name == "--api-key-file" else [one]
        cls.process = subprocess.Popen([PROGRAM, "serve", "--host", "127.0.0.1", "-t", "1", *arguments, *cls.more],
                                       stdout=subprocess.PIPE)
        cls.addClassCleanup(cls.stop)
        cls.address = json.loads(cls.process.stdout.readline())["address"]

    @classmethod
    def stop(cls):
        cls.process.send_signal(signal.SIGTERM)
        cls.process.wait(60)
        cls.process.stdout.close()

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=60) as answer:
            return answer.read().decode()

    def test_probes_need_no_key(self):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            self.assertEqual(json.loads(self.get(self.container[probe]["httpGet"]["path"]))["status"], "ok")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.get("/v1/models")
        self.assertEqual(refused.exception.code, 401)

class Gateway(Running):
    """The same with what the gateway's overlay adds: what the picker reads."""

    @classmethod
    def setUpClass(cls):
        [overlay] = documents("gateway/kustomization.yaml")
        [patch] = overlay["patches"]
        added = {one["path"]: one["value"] for one in yaml.safe_load(patch["patch"])}
        cls.more = [value for path, value in added.items() if path.endswith("/args/-")]
        cls.label = added["/spec/template/metadata/labels/llm-d.ai~1engine-type"]
        super().setUpClass()

    def test_flags_are_the_programs(self):
        self.assertTrue(self.more)
        self.assertEqual(set(self.more) - flags_of_serve(), set())

    def test_v19_picker_reads_the_metrics(self):  # [V19]
        """each metric that the settings name is there, without a key, and a gauge"""
        [settings] = documents("gateway/endpoint-picker.yaml")
        plugins = {one["type"]: one.get("parameters", {}) for one in settings["plugins"]}
        for profile in settings["schedulingProfiles"]:
            self.assertTrue({one["pluginRef"] for one in profile["plugins"]} <= set(plugins))
        text = self.get(plugins["metrics-data-source"]["path"])
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        [engine] = plugins["core-metrics-extractor"]["engineConfigs"]
        self.assertEqual(self.label, engine["name"])
        for key in ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "cacheInfoSpec"):
            with self.subTest(metric=engine[key]):
                self.assertEqual(types.get(engine[key]), "gauge")
                self.assertRegex(text, rf"(?m)^{engine[key]}(\{{.*\}})? \S+$")
        self.assertRegex(text, rf'{engine["cacheInfoSpec"]}\{{.*block_size="\d+".*num_gpu_blocks="\d+"')


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
