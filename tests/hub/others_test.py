#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""[V15] One cache for us and for the hub's own client; a proxy on the way; certificates of an authority of one's own;
and no socket where none is needed."""
import base64
import json
import pathlib
import shutil
import socket
import socketserver
import subprocess
import sys
import threading
import unittest

import fake_hub
from fake_hub import SHA, Hub
from hub_support import FOLDER, HERE, TINFER, Cache, environment

sys.path.insert(0, str(HERE.parent / "server"))
from client_environment import environment as packages  # noqa: E402

PYTHON = packages(TINFER, "hub", "huggingface_hub==2.4.0", "trustme==1.2.1")
NAME = "owner/Tiny-GGUF"
MODEL = FOLDER / "tiny.gguf"
subprocess.run([sys.executable, HERE.parent / "support/tiny_model.py", MODEL], check=True)
TINY = MODEL.read_bytes()

CLIENT = """
import sys
from huggingface_hub import hf_hub_download, scan_cache_dir
what, repository, file = sys.argv[1:]
if what == "scan":
    found = scan_cache_dir()
    print(sorted(repo.repo_id for repo in found.repos), [str(w) for w in found.warnings])
else:
    print(hf_hub_download(repository, file, local_files_only=what == "find"))
"""
CERTIFICATES = """
import sys, trustme
authority = trustme.CA()
authority.cert_pem.write_to_path("ca.pem")
for name, host in (("right", "127.0.0.1"), ("named", "hub.example"), ("wrong", "other.example")):
    authority.issue_cert(host).private_key_and_cert_chain_pem.write_to_path(name + ".pem")
"""


class Client(unittest.TestCase):
    def client(self, cache, *args, **env):
        done = subprocess.run([PYTHON, "-c", CLIENT, *args], capture_output=True, text=True, env=cache.env(**env),
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def hub(self):
        return Hub({NAME: {"Tiny-Q8_0.gguf": TINY, "folder/Tiny-F16.gguf": TINY + b"x", "config.json": b"{}"}},
                   small={"config.json"})

    def test_ours_found_by_theirs(self):
        with self.hub() as one:
            cache = Cache(one)
            for quant, file in (("Q8_0", "Tiny-Q8_0.gguf"), ("F16", "folder/Tiny-F16.gguf")):
                self.assertEqual(cache.tinfer("pull", f"{NAME}:{quant}").returncode, 0)
                n = len(one.asked)
                found = self.client(cache, "find", NAME, file)
                self.assertEqual(pathlib.Path(found), cache.repository(NAME) / "snapshots" / SHA / file)
                self.assertEqual([r for r in one.asked[n:] if NAME in r["path"]], [])   # it also asks about itself
            self.assertEqual(self.client(cache, "scan", NAME, ""), f"['{NAME}'] []")
            cache.tinfer("rm", "-y", NAME + ":F16")
            self.assertEqual(self.client(cache, "scan", NAME, ""), f"['{NAME}'] []")
            cache.tinfer("rm", "-y", NAME + ":Q8_0")
            self.assertEqual(self.client(cache, "scan", NAME, ""), "[] []")

    def test_theirs_found_by_ours(self):
        with self.hub() as one:
            cache = Cache(one)
            for file in ("Tiny-Q8_0.gguf", "config.json"):
                self.client(cache, "fetch", NAME, file)
            n = len(one.asked)
            done = cache.tinfer("inspect", "-m", f"hf:{NAME}:Q8_0", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(one.asked), n)
            self.assertEqual([r["name"] for r in json.loads(cache.tinfer("list", "--json").stdout)], [NAME + ":Q8_0"])
            self.assertEqual(json.loads(cache.tinfer("pull", NAME, "--json").stdout.splitlines()[-1])["downloaded"], 0)
            self.assertEqual(cache.tinfer("rm", "-y", NAME).returncode, 0)
            self.assertEqual(self.client(cache, "scan", NAME, ""), f"['{NAME}'] []")   # its config.json is there
            self.assertEqual(cache.blobs(NAME), [fake_hub.git_hash(b"{}")])


class Proxy(socketserver.ThreadingTCPServer):
    """Tunnels of CONNECT, to 127.0.0.1 whatever the name, and requests for http:// addresses."""
    allow_reuse_address, daemon_threads = True, True

    def __init__(self):
        self.heads = []
        super().__init__(("127.0.0.1", 0), self.Tunnel)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def place(self):
        return f"127.0.0.1:{self.server_address[1]}"

    class Tunnel(socketserver.BaseRequestHandler):
        def handle(self):
            head = b""
            while b"\r\n\r\n" not in head:
                piece = self.request.recv(4096)
                if not piece:
                    return
                head += piece
            self.server.heads.append(head.decode())
            method, target = head.split(b" ")[:2]
            if method == b"CONNECT":
                other = socket.create_connection(("127.0.0.1", int(target.rsplit(b":", 1)[1])))
                self.request.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            else:
                host, path = target.removeprefix(b"http://").split(b"/", 1)
                other = socket.create_connection(("127.0.0.1", int(host.rsplit(b":", 1)[1])))
                other.sendall(head.replace(target, b"/" + path, 1))
            ends = threading.Thread(target=self.copy, args=(other, self.request), daemon=True)
            ends.start()
            self.copy(self.request, other)
            ends.join(10)
            other.close()

        @staticmethod
        def copy(source, target):
            try:
                while piece := source.recv(65536):
                    target.sendall(piece)
                target.shutdown(socket.SHUT_WR)
            except OSError:
                pass


class Way(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        subprocess.run([PYTHON, "-c", CERTIFICATES], cwd=FOLDER, check=True)

    def hub(self, certificate=None):
        return Hub({NAME: {"Tiny-Q8_0.gguf": TINY}}, certificate=certificate and FOLDER / certificate)

    def test_certificates(self):
        with self.hub("right.pem") as one:
            self.assertEqual(Cache(one).drive(NAME, SSL_CERT_FILE=FOLDER / "ca.pem")[0], 0)
            code, out, _ = Cache(one).drive(NAME)
            self.assertEqual(code, 1)
            self.assertIn("certificate of 127.0.0.1", out)
            self.assertEqual(one.to("store")[1:], [])
        with self.hub("wrong.pem") as one:
            code, out, _ = Cache(one).drive(NAME, SSL_CERT_FILE=FOLDER / "ca.pem")
            self.assertEqual(code, 1)
            self.assertIn("it is for another name", out)
            self.assertEqual(one.asked, [])

    def test_no_way_down(self):
        """an https hub may not send us to http"""
        with self.hub("right.pem") as one, self.hub() as plain:
            one.store_address = plain.store_address
            code, out, _ = Cache(one).drive(NAME, SSL_CERT_FILE=FOLDER / "ca.pem", HF_TOKEN="hf_secret")
            self.assertEqual(code, 1)
            self.assertIn("from https to http", out)
            self.assertEqual(plain.asked, [])

    def test_tunnel(self):
        with self.hub("named.pem") as one, Proxy() as proxy:
            port = one.address.rsplit(":", 1)[1]
            one.address = f"https://hub.example:{port}"
            one.store_address = one.store_address.replace("127.0.0.1", "hub.example")
            env = {"SSL_CERT_FILE": FOLDER / "ca.pem", "HTTPS_PROXY": f"http://me:p%40ss@{proxy.place}"}
            code, out, said = Cache(one).drive(NAME, HF_TOKEN="hf_secret", **env)
            self.assertEqual(code, 0, out + said)
            self.assertTrue(all(h.startswith("CONNECT hub.example:") for h in proxy.heads))
            basic = base64.b64encode(b"me:p@ss").decode()
            self.assertTrue(all("Basic " + basic in h for h in proxy.heads))
            self.assertTrue(all("hf_secret" not in h for h in proxy.heads))
            self.assertEqual({r["token"] for r in one.to("store")}, {None})   # the same name at another port
            self.assertEqual({r["token"] for r in one.to("hub")}, {"Bearer hf_secret"})

    def test_plain_and_exceptions(self):
        with self.hub() as one, Proxy() as proxy:
            self.assertEqual(Cache(one).drive(NAME, http_proxy=proxy.place, HTTP_PROXY="127.0.0.1:9")[0], 0)
            n = len(proxy.heads)
            self.assertEqual(n, len(one.asked))
            self.assertEqual(Cache(one).drive(NAME, HTTP_PROXY=proxy.place, NO_PROXY="x, 127.0.0.1")[0], 0)
            self.assertEqual(Cache(one).drive(NAME, HTTPS_PROXY=proxy.place)[0], 0)
            self.assertEqual(len(proxy.heads), n)
            self.assertEqual(Cache(one).drive(NAME, ALL_PROXY=proxy.place)[0], 0)
            self.assertGreater(len(proxy.heads), n)

    def test_token_over_http(self):
        with self.hub() as one, Proxy() as proxy:
            one.address = one.address.replace("127.0.0.1", "hub.example")
            self.assertEqual(Cache(one).drive(NAME, HTTP_PROXY=proxy.place, HF_TOKEN="hf_secret")[0], 0)
            self.assertTrue(all("hf_secret" not in h for h in proxy.heads))


class NoSocket(unittest.TestCase):
    def test_offline(self):
        """[V15] no call of the network while offline, or while the model is in the cache"""
        if not shutil.which("strace"):
            self.skipTest("no strace")
        with Hub({NAME: {"Tiny-Q8_0.gguf": TINY}}) as one:
            cache = Cache(one)
            self.assertEqual(cache.tinfer("pull", NAME).returncode, 0)
            for args, code in ((("run", "-m", f"hf:{NAME}", "-p", "x", "-n", "1"), 0), (("list",), 0),
                               (("pull", NAME, "--offline"), 0), (("pull", "no/body", "--offline"), 1)):
                trace = FOLDER / "strace.txt"
                done = subprocess.run(["strace", "-f", "-e", "trace=network", "-o", trace, TINFER, *args],
                                      capture_output=True, text=True, env=cache.env(), timeout=60)
                if "ptrace" in done.stderr:
                    self.skipTest("strace may not trace here")
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertNotRegex(trace.read_text(), r"socket\(|connect\(")

    def test_library(self):
        """[V15] the library has no symbol of the network"""
        built = pathlib.Path(TINFER).resolve().parent.parent
        libraries = [p for p in built.glob("src/libtinfer.*") if not p.is_symlink()]
        libraries += [p for p in built.glob("bindings/c/libtinfer*.so*") if not p.is_symlink()]
        self.assertGreater(len(libraries), 0)
        for library in libraries:
            dynamic = ["-D"] if ".so" in library.name else []
            names = subprocess.run(["nm", *dynamic, "--undefined-only", library], capture_output=True, text=True,
                                   check=True).stdout.split()
            used = {name.split("@")[0] for name in names} & {"socket", "connect", "getaddrinfo", "bind", "accept"}
            self.assertEqual(used, set(), library)


if __name__ == "__main__":
    unittest.main()
