# SPDX-License-Identifier: MIT
"""[P1] Whatever is given to a public function: tinfer.Error, or the exception that Python's own functions raise
for such values, and never the end of the process.     usage: random_calls_test.py [NUMBER OF CALLS] [SEED]"""
import math
import random
import resource
import sys
import time

import numpy as np

import tinfer
from support import LORA, TALKS, TINY

ALLOWED = (tinfer.Error, TypeError, ValueError, OverflowError, KeyError, IndexError, AttributeError, TimeoutError,
           BufferError, MemoryError, OSError, ImportError)


def main():
    n_calls, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 3000), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if "--no-limit" not in sys.argv:
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    chance = random.Random(seed)
    model, talks = tinfer.Model.load(TINY), tinfer.Model.load(TALKS)
    closed = tinfer.Context(model, n_ctx=64)
    closed.close()
    llm = tinfer.LLM(TALKS, n_ctx=512, n_parallel=2)
    gone = tinfer.LLM(TALKS, n_ctx=64)
    gone.close()
    context = tinfer.Context(model, n_ctx=256, n_seq_max=2)
    context.decode([1, 5])
    stale = context.logits()
    context.decode([5])
    grammar = tinfer.Grammar.parse('root ::= "a"+')
    batch = tinfer.Batch()
    batch.add_sequence([1, 5])
    sampler = tinfer.Sampler(model.vocab)
    generation = tinfer.Generation(model.vocab, [1, 5], max_tokens=3)
    chat = tinfer.Chat(talks, max_tokens=3)
    observer = tinfer.Observer()
    adapter = tinfer.Adapter.load(model, LORA)
    params = tinfer.SamplingParams(max_tokens=3)
    with tinfer.Context(model, n_ctx=64) as other:
        state = other.save_state()
    objects = [model, talks, closed, context, stale, grammar, batch, sampler, generation, chat, observer, adapter,
               params, llm.engine, tinfer.Roofline(), tinfer.CoverageCheck(), context.logits(), model.vocab, llm, gone]
    plain = [
        None, True, False, -1, 0, 1, 2, 5, 63, 64, 65, 255, 306, 2**31 - 1, -2**31, 2**31, 2**63, 2**70, 0.0, 0.5, 1.0,
        -1.5, math.nan, math.inf, -math.inf, 1e300, "", "a", "once upon a time", "a" * 3000, "\ud800", "\0", "user",
        "ä𝄞", b"", b"\xff\xfe", "mean", "rank", "q8_0", "l_out-0", "blk.0.attn_q.weight", "/no/such", TINY, TALKS, LORA,
        __file__, state, state[:100], "root ::= \"a\"", "root ::= (", "{", '{"type": "object"}', [], [1], [1, 5, 7],
        [-1], [306], [2**40], [1.5], ["a"], [[1]], [None], (), (1, 5), {}, {"type": "integer"}, {"role": "user"},
        {1: 2.0}, {"a": math.nan}, {"role": "user", "content": "a"}, [{"role": "user", "content": "a"}],
        [{"type": "function", "function": {"name": "f"}}], np.zeros(0, np.int32), np.array([1, 5], np.int64),
        np.array([[1, 5]]), np.array([1.0, 2.0], np.float32), np.full(306, math.nan, np.float32),
        np.zeros(306, np.float32), np.zeros(612, np.float32)[::2], np.zeros((2, 306), np.float32, order="F"),
        np.zeros(64, np.float32), np.array(["a"]), np.array(3), np.zeros(3, np.complex64), np.zeros(3, object),
        lambda *a: 1, lambda *a: 1 / 0, object(), int, range(3), iter([1, 5]), 1j, float,
    ]
    keywords = (
        "n_ctx n_seq_max n_batch n_threads isa type_k pooling keep cancel temp seed adapters top_p "
        "top_k grammar max_tokens stop seq pos output tools schema system messages kind sampler "
        "n_top timeout values level ops tensors params begin end logit_bias memory_limit "
        "rope_freq_base embeddings time_limit speculate overrides add_special tool_choice variables "
        "normalize chat_template zero_data").split()
    # a context of so many threads or requests is legal, and slow
    bounded = {"n_ctx", "n_seq_max", "n_batch", "n_threads", "max_queue", "n_kept", "max_tokens", "timeout"}
    small = [None, -1, 0, 1, 2, 64, "a", math.nan, 1.5, [], True]
    makers = [tinfer.Model.load, tinfer.Vocab.load, tinfer.Context, tinfer.Sampler, tinfer.Batch, tinfer.Generation,
              tinfer.Chat, tinfer.ChatPrompt, tinfer.Grammar.parse, tinfer.Grammar.schema, tinfer.Observer,
              tinfer.Receipt.parse, tinfer.Adapter.load, tinfer.plan, tinfer.SamplingParams, tinfer.TraceReader,
              tinfer.TraceReader.from_bytes, tinfer.ReceiptRecorder, tinfer.Error, tinfer.Roofline]
    # engines are slow to make; the program's own stay open, and files are written where it says alone
    left_out = {"close", "save_state", "set_threads", "drain", "register"}
    methods = [getattr(one, name) for one in objects for name in dir(type(one)) if not name.startswith("_")
               and name not in left_out and callable(getattr(type(one), name, None))]
    ids, talk = [1, 5, 7], [{"role": "user", "content": "a"}]
    # what would be right: one argument of it, or none, is replaced by something else
    right = {
        "Model.load": [TINY], "Vocab.load": [TINY], "Context": [model], "Sampler": [model.vocab],
        "Adapter.load": [model, LORA],
        "Generation": [model.vocab, ids], "Chat": [talks], "ChatPrompt": [talks, talk],
        "Grammar.parse": ["root ::= [a-z]"],
        "Grammar.schema": [{"type": "integer"}], "Receipt.parse": ["{}"], "plan": [TINY], "ReceiptRecorder": [context],
        "Context.decode": [ids], "Context.encode": [ids], "Context.logits": [0], "Context.embedding": [0],
        "Context.pooled": [0], "Context.result": ["l_out-0"], "Context.seq_rm": [0, 1, 2], "Context.seq_cp": [0, 1],
        "Context.seq_keep": [0], "Context.seq_add": [0, 1, 2, 1], "Context.seq_div": [0, 0, 2, 2],
        "Context.seq_shift": [0, 1, 1], "Context.load_state": [state], "Context.attach": [observer],
        "Context.attach_adapter": [adapter, 0.5], "Context.detach_adapter": [adapter], "Context.mark": ["a"],
        "Batch.add": [5], "Batch.add_sequence": [ids, 0], "Batch.add_embedding": [np.zeros(64, np.float32)],
        "Sampler.sample": [context], "Sampler.accept": [5], "Sampler.probs": [3], "Generation.next": [context, sampler],
        "Generation.prompt": [ids], "Chat.add": ["user", "a"], "Chat.next": [context, sampler],
        "Chat.add_tool_result": [{"id": "1", "name": "f", "arguments": "{}"}, "a"], "Vocab.encode": ["a"],
        "Vocab.decode": [ids], "Vocab.piece": [5], "Vocab.text": [5], "Vocab.find": ["a"], "Vocab.special": ["bos"],
        "Vocab.is_eog": [5], "Model.blocks": ["output.weight"], "Model.dequantize": ["output.weight"],
        "Grammar.matches": ["a"], "Engine.submit": [ids], "LLM.generate": ["a"], "LLM.chat": ["a"], "LLM.stream": ["a"],
        "LLM.embed": [["a"]], "LLM.rank": ["a", ["b"]], "LLM.score": ["a"], "LLM.tokenize": ["a"]}
    targets = makers * 4 + methods
    called, raised, begin = set(), 0, time.monotonic()
    for i in range(n_calls):
        target = chance.choice(targets)
        name = getattr(target, "__qualname__", repr(target))
        arguments = [chance.choice(objects) if chance.random() < 0.35 else chance.choice(plain)
                     for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4)))]
        if name in right and chance.random() < 0.8:
            arguments = list(right[name])
            if chance.random() < 0.6:
                arguments[chance.randrange(len(arguments))] = chance.choice(objects + plain)
        named = {key: chance.choice(small if key in bounded else plain + objects)
                 for key in chance.sample(keywords, chance.choice((0, 0, 0, 0, 0, 1, 2)))}
        if name.endswith(("generate", "chat", "stream", "submit")):
            named.setdefault("max_tokens", 2)
        if name.endswith(("Request.next", "Request.result")):
            named["timeout"] = 0
        try:
            result = target(*arguments, **named)
            if isinstance(result, tinfer.Stream):
                result.close()
            elif isinstance(result, tinfer.Request):
                result.cancel()
            elif isinstance(result, tinfer.Attachment):
                result.detach()
        except ALLOWED:
            raised += 1
        except ZeroDivisionError:
            raised += 1   # of the callable that was given
        except BaseException as error:
            print(f"call {i} of seed {seed}: {name}({arguments!r}, {named!r}): {type(error).__name__}: {error}")
            return 1
        called.add(name)
        if context.n_outputs == 0:   # so that there is something to be wrong about
            context.clear()
            context.decode([1, 5])
    missing = [name for name in right if not any(name == seen for seen in called)]
    if n_calls >= 3000 and missing:
        print("never called:", *missing)
        return 1
    print(f"{n_calls} calls of {len(called)} functions, {raised} raised, {time.monotonic() - begin:.1f} s")
    # and after all of it:
    again = tinfer.Context(model, n_ctx=64)
    again.decode([1, 5])
    assert np.isfinite(np.asarray(again.logits())).all()
    llm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
