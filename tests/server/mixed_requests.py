# SPDX-License-Identifier: MIT
"""Requests of all kinds that a server can be asked, and what of an answer has to be the same whenever it is asked."""
import random

from server_support import NO_EOG

SCHEMA = {"type": "object", "properties": {"sunny": {"type": "boolean"}, "n": {"type": "integer", "minimum": 0,
                                                                             "maximum": 99}},
          "required": ["sunny", "n"], "additionalProperties": False}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"enum": ["sky", "sea"]}}, "required": ["at"],
    "additionalProperties": False}}}
WORDS = ["once", "the", "other", "one", "and", "then", "inner", "hero", "on", "a", "tree"]
# What is of one request alone, of the moment, or of the server's options (its fingerprint), in all protocols.
OF_THE_MOMENT = {"id", "call_id", "created", "created_at", "system_fingerprint", "timings", "cached_tokens",
                 "input_tokens", "cache_read_input_tokens", "prompt_tokens_details", "input_tokens_details"}
N_KINDS = 8
VECTORS = 7  # the kind that needs a server which pools


def bytes_of(document):
    """The document without what a clock, a random name or the cache decides."""
    if isinstance(document, dict):
        return {k: bytes_of(v) for k, v in document.items() if k not in OF_THE_MOMENT}
    return [bytes_of(v) for v in document] if isinstance(document, list) else document


def request(i, adapters=True):
    """(path, body): the i-th of the mixed requests, of the kind i % N_KINDS. With the adapters red and blue or
    without."""
    chance = random.Random(i)
    beginning = "".join(f"{w} " for w in (WORDS * 12)[i % 3:i % 3 + 40 * (i % 4)])  # shared by some of them
    say = lambda n: beginning + " ".join(chance.choice(WORDS) for _ in range(n))
    sampling = {"seed": i, "temperature": chance.choice([0, 0.7, 1.3]), "top_p": chance.choice([1, 0.9]), **NO_EOG,
                "speculate": chance.choice(["off", "ngram", None]),
                "lora": chance.choice([None, None, "red", [{"name": "red", "scale": 0.4}, "blue"]]),
                "cache_prompt": chance.random() < 0.9}
    if not adapters:
        del sampling["lora"]
    talk = {"messages": [{"role": "system", "content": beginning or "short"},
                         {"role": "user", "content": say(chance.randrange(1, 20))}], **sampling}
    kind = i % N_KINDS
    if kind in (0, 1):
        return "/v1/chat/completions", {**talk, "max_tokens": chance.randrange(4, 40), "n": 1 + kind}
    if kind == 2:
        return "/v1/chat/completions", {**talk, "max_tokens": 300, "tools": [TOOL], "tool_choice": "required",
                                        "parallel_tool_calls": False}
    if kind == 3:
        return "/v1/chat/completions", {**talk, "max_tokens": 300, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
    if kind == 4:
        return "/v1/completions", {"prompt": say(9), "max_tokens": 12, "echo": True, "logprobs": 3, **sampling}
    if kind == 5:
        return "/v1/messages", {"messages": [{"role": "user", "content": say(5)}], "max_tokens": 20, **sampling}
    if kind == 6:
        return "/v1/responses", {"input": say(5), "max_output_tokens": 20, **sampling}
    return "/v1/embeddings", {"input": [say(chance.randrange(1, 9)) for _ in range(3)], "lora": sampling.get("lora")}


def ask(server, i, adapters=True):
    """What the answer to request i says; one of eight comes as a stream."""
    path, body = request(i, adapters)
    if i % N_KINDS != 1:
        return bytes_of(server.post(path, body))
    events = server.events(path, {**body, "stream_options": {"include_usage": True}})
    texts = {}
    for event in events:
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + (choice["delta"].get("content") or "")
    return {"texts": texts, "usage": bytes_of(events[-1]["usage"])}
