# SPDX-License-Identifier: MIT
"""A hub on 127.0.0.1 with the interface of the real one: revisions, a list of files in pages, and files whose address
redirects to a store at another port. It does wrong what a test asks for."""
import hashlib
import http.server
import json
import re
import ssl
import threading
import time
import urllib.parse

SHA = "0123456789abcdef0123456789abcdef01234567"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", announced=None, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", len(body) if announced is None else announced)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.server.hub
        with hub.lock:
            hub.asked.append({"to": self.server.role, "method": self.command, "path": self.path,
                              "range": self.headers.get("Range"), "token": self.headers.get("Authorization")})
        try:
            if self.server.role == "store":
                self.store(hub)
            else:
                self.hub(hub)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def hub(self, hub):
        fault = hub.next_fault("hub")
        if fault and fault(self, b"", 0):
            return
        url = urllib.parse.urlparse(self.path)
        path = urllib.parse.unquote(url.path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path):
            if match[1] not in hub.repositories:
                return self.answer(404, b"{}", X_Error_Code="RepoNotFound")
            if match[2] not in ("main", hub.sha):
                return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
            return self.json({"sha": hub.sha, "gated": False, "cardData": {"license": "apache-2.0"}})
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/([0-9a-f]{40})", path):
            entries = hub.entries(match[1])
            page = int(urllib.parse.parse_qs(url.query).get("cursor", ["0"])[0])
            more = {}
            if (page + 1) * hub.page < len(entries):
                more["Link"] = f'<{hub.address}{url.path}?recursive=true&cursor={page + 1}>; rel="next"'
            return self.json(entries[page * hub.page:(page + 1) * hub.page], **more)
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            data = hub.repositories.get(match[1], {}).get(match[3])
            if data is None:
                return self.answer(404, b"", X_Error_Code="EntryNotFound")
            head = {"X_Repo_Commit": hub.sha}
            if match[3] in hub.small:
                return self.answer(200, data, ETag=f'"{git_hash(data)}"', **head)
            signed = f"{hub.store_address}/{sha256(data)}?signature={hub.signature}"
            return self.answer(302, b"", Location=signed, X_Linked_Etag=f'"{sha256(data)}"',
                               X_Linked_Size=str(len(data)), **head)
        self.answer(404, b"not here")

    def json(self, value, **headers):
        self.answer(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    def store(self, hub):
        name, _, signature = self.path[1:].partition("?signature=")
        data = next((d for files in hub.repositories.values() for d in files.values() if sha256(d) == name), None)
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        first = int(asked[1]) if asked else 0
        fault = hub.next_fault("store")
        if fault and fault(self, data, first):
            return
        if signature != hub.signature:
            return self.answer(403, b"expired")
        self.part(data, first, bool(asked))

    def part(self, data, first, is_range, **changes):
        if is_range and first >= len(data):
            return self.answer(416, b"", Content_Range=f"bytes */{len(data)}")
        if is_range:
            return self.answer(206, data[first:], Content_Range=changes.get(
                "range", f"bytes {first}-{len(data) - 1}/{len(data)}"))
        self.answer(200, data)


class Hub:
    """with Hub({"a/b": {"x-Q8_0.gguf": bytes}}) as hub: hub.address"""

    def __init__(self, repositories, small=(), page=2, certificate=None):
        self.repositories, self.small, self.page, self.sha, self.signature = repositories, set(small), page, SHA, "s1"
        self.asked, self.faults, self.lock = [], {"hub": [], "store": []}, threading.Lock()
        self.changed = lambda entries: entries
        self.servers = []
        for role in ("hub", "store"):
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.hub, server.role, server.daemon_threads = self, role, True
            if certificate:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(certificate)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            self.servers.append(server)
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        scheme = "https" if certificate else "http"
        self.address, self.store_address = (f"{scheme}://127.0.0.1:{s.server_address[1]}" for s in self.servers)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def entries(self, repository):
        out = [{"type": "directory", "path": "folder", "size": 0, "oid": "0" * 40}]
        for path, data in self.repositories[repository].items():
            entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
            if path not in self.small:
                entry["lfs"] = {"oid": sha256(data), "size": len(data), "pointerSize": 134}
            out.append(entry)
        return self.changed(out)

    def next_fault(self, role):
        with self.lock:
            faults = self.faults[role]
            if not faults:
                return None
            return faults[0] if getattr(faults[0], "stays", False) else faults.pop(0)

    def to(self, role):
        return [one for one in self.asked if one["to"] == role]


# ---- what can be wrong: each answers and returns True, or changes something and lets the request go on

def stays(fault):
    """The fault comes with every request from now on."""
    fault.stays = True
    return fault


def begin(handler, data, first):
    """The head of an answer with the bytes from `first` on, which it gives."""
    handler.send_response(206 if first else 200)
    if first:
        handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
    handler.send_header("Content-Length", len(data) - first)
    handler.end_headers()
    return data[first:]


def stall(n, seconds):
    """The connection stays, and behind n further bytes nothing comes for so long; then it ends."""
    def fault(handler, data, first):
        handler.wfile.write(begin(handler, data, first)[:n])
        handler.wfile.flush()
        time.sleep(seconds)
        handler.close_connection = True
        return True
    return fault


def without_end(begin_of_it, piece):
    """After this begin only such pieces come, for ever: a head or a chunk's size that does not end."""
    def fault(handler, data, first):
        try:
            handler.wfile.write(begin_of_it)
            for _ in range(20_000):   # more than anybody should take
                handler.wfile.write(piece)
        except OSError:
            pass
        handler.close_connection = True
        return True
    return fault


def cut(n):
    """The connection ends after n further bytes."""
    return stall(n, 0)


def slow(piece, pause):
    def fault(handler, data, first):
        body = begin(handler, data, first)
        for at in range(0, len(body), piece):
            handler.wfile.write(body[at:at + piece])
            handler.wfile.flush()
            time.sleep(pause)
        return True
    return fault


def without_range():
    return lambda handler, data, first: handler.answer(200, data) or True


def wrong_range(text):
    return lambda handler, data, first: handler.answer(206, data[first:], Content_Range=text) or True


def flipped(at):
    def fault(handler, data, first):
        damaged = bytearray(data)
        damaged[at] ^= 1
        handler.part(bytes(damaged), first, first > 0)
        return True
    return fault


def status(code, body=b"", **headers):
    return lambda handler, data, first: handler.answer(code, body, **headers) or True


def announces(n):
    return lambda handler, data, first: handler.answer(200, data, announced=n) or True


def endless():
    """More bytes than there are, without a length."""
    def fault(handler, data, first):
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(data + b"more")
        handler.close_connection = True
        return True
    return fault
