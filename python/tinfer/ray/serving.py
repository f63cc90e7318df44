# SPDX-License-Identifier: MIT
# mypy: ignore-errors
"""Serving: replicas of ``tinfer serve`` behind one address of Ray Serve, with all of its routes.

The ingress hands requests on as they are. It does three things of its own: it says where a request goes (``router``),
it gives each request that draws text a seed where it has none, and where a replica is lost it asks another one, which
then makes the same answer; a stream goes on behind the last event that was sent (``resume``).
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import random
import re
import time
from typing import Any, AsyncIterator, Mapping, Sequence
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from ray import serve
from ray.exceptions import NodeDiedError, ObjectLostError, RayActorError, WorkerCrashedError
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.exceptions import BackPressureError

from .prefixes import BLOCK, digests
from .replica import HOP_BY_HOP, Replica, ReplicaLost
from .resume import CannotResume, Frames, Resume

LOST = (ReplicaLost, RayActorError, WorkerCrashedError, NodeDiedError, ObjectLostError)
RETRIES = 8            # of a request, each after a longer pause: half a minute in all
SEEDED = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/infill"}
SEEDED_OPTIONS = {"/api/chat", "/api/generate"}   # Ollama's routes have the seed in "options"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def with_seed(path: str, data: bytes, body: Any) -> bytes:
    """The request with a seed from the hardware, where it draws text and has none: so another replica makes the same
    answer. What is no document is left for the server to refuse."""
    if not isinstance(body, dict):
        return data
    seed = random.SystemRandom().randrange(2**32 - 1)
    if path in SEEDED_OPTIONS:
        options = body.get("options")
        if options is not None and not isinstance(options, dict):
            return data
        if (options or {}).get("seed", -1) not in (-1, None):
            return data
        return json.dumps({**body, "options": {**(options or {}), "seed": seed}}).encode()
    if path not in SEEDED or body.get("seed", -1) not in (-1, None):
        return data
    if "seed" in body:
        return json.dumps({**body, "seed": seed}).encode()
    rest = data.lstrip()[1:]   # behind the brace: every other byte stays as it came
    return b'{"seed":%d%s' % (seed, (b"," if body else b"") + rest)


def handed_on(headers: Sequence[tuple[str, str]], is_loopback: bool) -> list[tuple[str, str]]:
    """The headers for a replica. It listens on this machine alone and takes requests that name it so; which hosts and
    origins a client may name where the ingress is open to others is no matter of the replica's address, so there Host,
    and an Origin that is the same, become the replica's."""
    host = next((value for name, value in headers if name.lower() == "host"), "")
    kept = []
    for name, value in headers:
        low = name.lower()
        if low in HOP_BY_HOP or low == "expect":
            continue
        if not is_loopback and low == "host":
            value = "localhost"
        if not is_loopback and low == "origin" and urlsplit(value).netloc.lower() == host.lower():
            value = "http://localhost"
        kept.append((name, value))
    return kept


def is_loopback(server: Any) -> bool:
    try:
        return ipaddress.ip_address(server[0]).is_loopback
    except (TypeError, ValueError, IndexError):
        return False


def error(status: int, message: str, code: str, **headers: str) -> Response:
    """In the shape of the server's own errors."""
    text = json.dumps({"error": {"message": message, "type": "server_error" if status >= 500 else
                                 "invalid_request_error", "param": None, "code": code}})
    return Response(text, status, media_type="application/json", headers=headers)


class Ingress:
    """Hands requests on to replicas, and goes on with another one where one is lost."""

    def __init__(self, replicas: Any, gives_seeds: bool, max_body: int, created: int) -> None:
        self._replicas = replicas.options(method_name="ask", stream=True)
        self._gives_seeds, self._max_body, self._created = gives_seeds, max_body, created
        self._counts = {"requests": 0, "asked_again": 0, "resumed": 0}

    def counts(self) -> dict[str, int]:
        """Requests so far, those that were sent to another replica before anything was answered, and streams that went
        on with another one."""
        return dict(self._counts)

    async def handle(self, request: Request) -> Response:
        data = bytearray()
        async for piece in request.stream():
            data += piece
            if len(data) > self._max_body:
                return error(413, f"the body has more than {self._max_body} bytes", "body_too_large")
        call = self._call(request, bytes(data))
        self._counts["requests"] += 1
        resume = Resume()
        for attempt in range(RETRIES + 1):
            try:
                status, headers, pieces = await self._begin(call)
                kinds = [value for name, value in headers if name.lower() == "content-type"]
                if status == 200 and kinds and ("event-stream" in kinds[0] or "ndjson" in kinds[0]):
                    return answer(status, headers, self._stream(call, kinds[0], pieces, resume))
                whole = b"".join([piece async for piece in pieces])
                if call["target"].startswith("/v1/models"):   # replicas have started at different times
                    whole = re.sub(rb'"created":\d+', b'"created":%d' % self._created, whole)
                return answer(status, headers, whole)
            except BackPressureError as full:
                return error(503, str(full), "queue_full", **{"Retry-After": "1"})
            except LOST as lost:
                if attempt == RETRIES:
                    return error(503, f"{attempt + 1} replicas were lost: {lost}", "replica_lost",
                                 **{"Retry-After": "5"})
                self._counts["asked_again"] += 1
                await pause(attempt)
        raise AssertionError

    def _call(self, request: Request, data: bytes) -> dict[str, Any]:
        scope = request.scope
        path = scope["path"]
        target = (scope.get("raw_path") or path.encode()).decode("ascii", "replace")
        if scope.get("query_string"):
            target += "?" + scope["query_string"].decode("ascii", "replace")
        blocks = []
        if request.method == "POST":
            try:
                body = json.loads(data)
            except (ValueError, RecursionError):
                body = None
            blocks = digests(body)
            if self._gives_seeds:
                data = with_seed(path, data, body)
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        return {"method": request.method, "target": target, "headers": handed_on(headers, is_loopback(scope["server"])),
                "body": data, "blocks": blocks}

    async def _begin(self, call: Mapping[str, Any]) -> tuple[int, list[tuple[str, str]], AsyncIterator[bytes]]:
        pieces = self._replicas.remote(**call)
        status, headers = await pieces.__anext__()
        return status, headers, pieces

    async def _stream(self, call: Mapping[str, Any], kind: str, pieces: AsyncIterator[bytes],
                      resume: Resume) -> AsyncIterator[bytes]:
        attempt = 0
        while True:
            frames = Frames(kind)
            try:
                if pieces is None:
                    status, _, pieces = await self._begin(call)
                    if status in (429, 503):
                        raise ReplicaLost(f"the next replica answered with status {status}")
                    if status != 200:
                        raise CannotResume(f"another replica answered with status {status}")
                async for piece in pieces:
                    out = b"".join(resume.take(frame) for frame in frames.push(piece))
                    if out:
                        yield out
                if frames.rest:
                    yield frames.rest
                return
            except CannotResume as reason:
                yield failure(kind, f"a replica was lost, and {reason}")
                return
            except (*LOST, BackPressureError) as lost:
                if attempt == RETRIES:
                    yield failure(kind, f"{attempt + 1} replicas were lost: {lost}")
                    return
                pieces = None
                resume.begin()
                self._counts["resumed"] += 1
                await pause(attempt)
                attempt += 1


def failure(kind: str, message: str) -> bytes:
    """The last event of a stream that cannot go on."""
    if "ndjson" in kind:
        return json.dumps({"error": message}).encode() + b"\n"
    told = {"error": {"message": message, "type": "server_error", "param": None, "code": "replica_lost"}}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


async def pause(attempt: int) -> None:
    await asyncio.sleep(min(0.1 * 2**attempt, 10.0) * random.uniform(0.8, 1.2))


def answer(status: int, headers: Sequence[tuple[str, str]], body: Any) -> Response:
    made = Response(body, status) if isinstance(body, bytes) else StreamingResponse(body, status)
    made.raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if isinstance(body, bytes):
        made.raw_headers.append((b"content-length", str(len(body)).encode()))
    return made


def _ingress_class() -> Any:
    front = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)

    class Front(Ingress):
        async def every_route(self, request):
            return await self.handle(request)

        every_route.__annotations__ = {"request": Request}   # the class: its name is unknown where this is unpickled
        front.api_route("/{path:path}", methods=METHODS, response_model=None)(every_route)

    return serve.ingress(front)(Front)


def option_of(arguments: Sequence[str], *names: str) -> str | None:
    """The value of an option of the command line, the last one that is given."""
    value = None
    for at, argument in enumerate(arguments):
        if argument in names and at + 1 < len(arguments):
            value = arguments[at + 1]
        elif argument.split("=", 1)[0] in names and "=" in argument:
            value = argument.split("=", 1)[1]
    return value


def app(model: str | os.PathLike[str], arguments: Sequence[str] = (), *, program: str | os.PathLike[str] | None = None,
        replicas: int = 1, autoscaling: Mapping[str, Any] | None = None, ingresses: int = 1, cpus: float = 1,
        max_ongoing: int = 64, prefix_routing: bool = True, stats_period_s: float = 2.0) -> Any:
    """An application for ``ray.serve.run``: what ``tinfer serve MODEL ARGUMENTS`` answers, from several replicas.

    model: a path that every node has, or a name that ``tinfer serve`` takes. arguments: of ``tinfer serve``, but for
    ``--host`` and ``--port``, and TLS (which is Ray Serve's): of a replica they are its own. program: the program
    tinfer; None: the one on the path of each node. replicas: how many; or autoscaling: what Ray Serve's
    AutoscalingConfig takes (``min_replicas``, ``max_replicas``, ``target_ongoing_requests``, …). cpus: that Ray keeps
    for a replica, and its threads, where arguments do not say ``-t``. max_ongoing: answers that a replica is given at
    once; more wait in the ingress, for any replica. prefix_routing False: replicas take turns.
    """
    given = [os.fspath(model), *map(str, arguments)]
    for name in ("--host", "--port", "--cert", "--key"):
        if option_of(given, name) is not None:
            raise ValueError(f"{name} belongs to Ray Serve here: see http_options of ray.serve.start")
    if option_of(given, "-t", "--threads") is None:
        given += ["-t", str(max(1, int(cpus)))]
    n_ctx = int(option_of(given, "-c", "--ctx") or 16384)
    most_blocks = max(64, n_ctx * 4 // BLOCK)   # four bytes of text a token: what the replica's cache can hold
    router = RequestRouterConfig(request_router_class="tinfer.ray.router.PrefixRouter",
                                 request_routing_stats_period_s=stats_period_s,
                                 request_router_kwargs={"most_blocks": most_blocks,
                                                        "is_prefix_aware": prefix_routing})
    scale = {"autoscaling_config": AutoscalingConfig(**autoscaling)} if autoscaling else {"num_replicas": replicas}
    made = serve.deployment(Replica).options(name="Replica", max_ongoing_requests=max_ongoing,
                                             ray_actor_options={"num_cpus": cpus}, request_router_config=router,
                                             health_check_period_s=5, **scale)
    front = serve.deployment(_ingress_class()).options(name="Ingress", num_replicas=ingresses,
                                                       max_ongoing_requests=10000, ray_actor_options={"num_cpus": 0})
    max_body = int(option_of(given, "--max-body") or 8 << 20)
    return front.bind(made.bind(given, os.fspath(program) if program is not None else None, most_blocks),
                      option_of(given, "--seed") is None, max_body, int(time.time()))


__all__ = ["Ingress", "app"]
