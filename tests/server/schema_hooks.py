# SPDX-License-Identifier: MIT
"""What schemathesis needs to know beside the description: texts in formats of ours, and rules between two fields, which
the description tells in words."""
import json

import schemathesis
from hypothesis import strategies as st

schemathesis.openapi.format("gbnf", st.sampled_from(
    ['root ::= "a"+', 'root ::= [a-z] | "x" root', "root ::= [^\\x00]*"]))
schemathesis.openapi.format("regular-expression", st.sampled_from(
    ["a+", "[a-z]{2,5}|x", "(yes|no), [0-9]+", "^.{0,9}$"]))
schemathesis.openapi.format("sampler-name", st.sampled_from(["top_k", "top_p", "min_p", "temp", "typical_p", "xtc"]))
schemathesis.openapi.format("sampler-chain", st.sampled_from(["top_k;top_p;temp", "temp", "top_k;min_p;xtc;temp"]))
schemathesis.openapi.format("json-arguments", st.dictionaries(st.text(), st.integers()).map(json.dumps))


LENGTHS = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
PROMPTS = ["messages", "prompt", "input", "system", "instructions", "tools", "suffix", "documents", "query"]


def names_of(tools):
    tools = tools if isinstance(tools, list) else []
    functions = [tool.get("function", tool) if isinstance(tool, dict) else None for tool in tools]
    return [function.get("name") if isinstance(function, dict) else None for function in functions]


def fits(body):
    """Whether the rules between fields hold. What has another type than described is for the server to judge."""
    if not isinstance(body, dict):
        return True
    names, choice = names_of(body.get("tools")), body.get("tool_choice")
    if isinstance(choice, dict):
        inner = choice.get("function")
        name = inner.get("name") if isinstance(inner, dict) else choice.get("name")
        kind = choice.get("type")
        if kind in ("function", "tool") and name not in names:
            return False
        if kind == "any" and not names:
            return False
        allowed = choice.get("allowed_tools") if isinstance(choice.get("allowed_tools"), dict) else choice
        if kind == "allowed_tools" and not set(map(str, names_of(allowed.get("tools")))) <= set(map(str, names)):
            return False
    if choice == "required" and not names:
        return False
    text = body.get("text")
    form = body.get("response_format") or (text.get("format") if isinstance(text, dict) else None)
    has_form = isinstance(form, dict) and form.get("type") not in ("text", None)
    if has_form and (body.get("grammar") is not None or (names and choice != "none")):
        return False
    bounds = body.get("structured_outputs")
    if isinstance(bounds, dict) and any(value not in (None, False) for value in bounds.values()):
        if has_form or body.get("grammar") is not None or (names and choice != "none"):
            return False
        if sum(bounds.get(name) not in (None, False)
               for name in ("json", "regex", "choice", "grammar", "json_object")) > 1:
            return False
    if names and len(set(map(str, names))) < len(names):
        return False
    if not body.get("logprobs") and body.get("top_logprobs"):
        return False
    whole_only = ["prompt_logprobs", "prompt_logprob_token_ids"]
    if body.get("stream") and any(body.get(name) is not None for name in whole_only):
        return False
    lengths = [body[name] for name in LENGTHS if isinstance(body.get(name), int)]
    if body.get("clip_max_tokens") is False and any(length > 64 for length in lengths):
        return False  # prompt and answer together have the room of the model
    if len(json.dumps([body.get(name) for name in PROMPTS])) > 5000:
        return False
    if body.get("best_of") is not None and body["best_of"] != (body.get("n") if body.get("n") is not None else 1):
        return False
    loras = body.get("lora") if isinstance(body.get("lora"), list) else []
    names = [lora.get("name") if isinstance(lora, dict) else lora for lora in loras]
    if len(set(map(str, names))) < len(names):
        return False
    if body.get("receipt") and (body.get("lora") not in (None, []) or body.get("max_tokens") == 0):
        return False
    prompts = body.get("prompt", body.get("input"))
    answers = (body.get("n") or 1) * (len(prompts) if isinstance(prompts, list) else 1)
    options = body.get("options")
    if isinstance(options, dict):   # of Ollama's interface
        formed = body.get("format") not in (None, "")
        if not fits(options) or (formed and (options.get("grammar") is not None or names_of(body.get("tools")))):
            return False
        if names_of(body.get("tools")) and options.get("grammar") is not None:
            return False
    elif body.get("format") not in (None, "") and names_of(body.get("tools")):
        return False
    messages = body.get("messages")
    if body.get("continue_final_message") and isinstance(messages, list):
        last = messages[-1] if messages and isinstance(messages[-1], dict) else {}
        if last.get("role") != "assistant" or not isinstance(last.get("content"), str) or last.get("tool_calls"):
            return False
    if body.get("raw") and (body.get("system") or body.get("context")):
        return False
    return not (body.get("trace") and answers > 16)


@schemathesis.hook
def filter_case(context, case):
    return fits(case.body)
