# SPDX-License-Identifier: MIT
"""Several models and the official Python client, which clients_test.py installs: requests of all kinds, mixed, with
room in memory for two of the three models. Each answer is that of its model alone."""
import concurrent.futures
import random
import unittest

import openai

import mixed_requests
from models_test import FILES, LIMITS, Several, named, room_for_two, value
from server_support import Server

N = 200
ROUTES = {"/v1/chat/completions": ("chat", "messages"), "/v1/completions": ("completions", "prompt"),
          "/v1/responses": ("responses", "input")}


def requests():
    """(model, route, body); what the client has no argument for goes into extra_body."""
    names, kinds = list(FILES), [i for i in range(3 * N) if mixed_requests.request(i, adapters=False)[0] in ROUTES]
    out = []
    for n, i in enumerate(kinds[:N]):
        path, body = mixed_requests.request(i, adapters=False)
        out.append((names[n % len(names)], path, {**body, "clip_max_tokens": True, "truncate": "middle"}))
    return out


def joined(choices):
    """Texts, arguments of calls and ends, by choice: how a stream is cut depends on what was drafted."""
    out = {}
    for choice in choices:
        one = out.setdefault(choice["index"], {"text": "", "calls": "", "end": None, "scores": []})
        delta = choice.get("delta") or {}
        one["text"] += choice.get("text") or delta.get("content") or ""
        one["calls"] += "".join((c["function"]["name"] or "") + (c["function"]["arguments"] or "")
                                for c in delta.get("tool_calls") or [])
        one["end"] = choice["finish_reason"] or one["end"]
        one["scores"] += (choice.get("logprobs") or {}).get("token_logprobs") or []
    return out


def answer(client, model, path, body, is_stream):
    name, needed = ROUTES[path]
    call = {"chat": client.chat.completions, "completions": client.completions, "responses": client.responses}[name]
    more = dict(body)
    given = call.create(model=model, stream=is_stream, **{needed: more.pop(needed)}, extra_body=more)
    if not is_stream:
        document = given.model_dump()
    elif name == "responses":
        document = [event.response.model_dump() for event in given if event.type in
                    ("response.completed", "response.incomplete")]
    else:
        document = joined(choice for part in given for choice in part.model_dump()["choices"])
    return mixed_requests.bytes_of(document)


class SeveralModels(unittest.TestCase):
    def client(self, server):
        return openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)

    def test_v16_mixed_requests_of_the_client(self):  # [V16]
        asked = [(*one, i % 3 == 0) for i, one in enumerate(requests())]
        self.assertEqual(len(asked), N)
        alone = [None] * N
        for name, file in FILES.items():
            with Server(*LIMITS, "--alias", name, model=file) as server:
                client = self.client(server)
                for i, one in enumerate(asked):
                    if one[0] == name:
                        alone[i] = answer(client, *one)
        order = list(range(N))
        random.Random(5).shuffle(order)
        with Several(*named(FILES), "--memory", room_for_two()) as server:
            client = self.client(server)
            self.assertEqual([model.id for model in client.models.list()], list(FILES))
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                found = dict(zip(order, pool.map(lambda i: answer(client, *asked[i]), order)))
            for i in range(N):
                self.assertEqual(found[i], alone[i], asked[i])
            self.assertGreater(sum(value(server, "tinfer_model_unloads_total", model=name) for name in FILES), 0)
            with self.assertRaises(openai.NotFoundError) as missing:
                client.completions.create(model="violet", prompt="x")
            self.assertEqual(missing.exception.code, "model_not_found")
            with self.assertRaises(openai.BadRequestError):
                client.completions.create(model="", prompt="x")


if __name__ == "__main__":
    unittest.main()
