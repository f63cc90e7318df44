# SPDX-License-Identifier: MIT
"""[P1] Whatever is given to a public function: tinfer.Error, or the exception that Python's own functions raise
for such values, and never the end of the process. Every public name is tried at least once: functions and methods,
properties and their setters, what operators and loops ask; closed models, models whose file has vanished.
         usage: random_calls_test.py [NUMBER OF CALLS] [SEED]"""
import copy
import functools
import inspect
import itertools
import math
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time

import numpy as np

import tinfer
import support
from tinfer.shims.llama_cpp import Llama, LlamaGrammar
from tinfer.shims.transformers import Tokenizer

ALLOWED = (tinfer.Error, TypeError, ValueError, OverflowError, LookupError, AttributeError, TimeoutError,
           BufferError, MemoryError, OSError, ImportError, RuntimeError, StopIteration, pickle.PicklingError)
TINY, TALKS, LORA, OTHER, CUT = "tiny.gguf", "talks.gguf", "lora.gguf", "other.py", "cut.gguf"


def fresh_files():
    """In the folder of this run: what is called may write over them."""
    for source, target in ((support.TINY, TINY), (support.TALKS, TALKS), (support.LORA, LORA), (__file__, OTHER)):
        shutil.copy(source, target + ".new")
        os.replace(target + ".new", target)


def operators():
    """What the language asks of objects."""
    def iterates(one, *rest):
        return list(itertools.islice(iter(one), 5))

    def enters(one, *rest):
        return type(one).__enter__ and hasattr(one, "__exit__")
    return [repr, len, bool, float, int, hash, str, iterates, enters, copy.copy, copy.deepcopy, pickle.dumps,
            lambda one, *rest: one == rest, lambda one, *rest: one[rest[0] if len(rest) == 1 else rest],
            lambda one, *rest: one + rest[0], lambda one, *rest: np.asarray(one), memoryview, dir]


def main():
    n_calls, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 5000), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    if "--no-limit" not in sys.argv and "asan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            return throw(n_calls, seed)
        finally:
            os.chdir("/")


def throw(n_calls, seed):
    chance = random.Random(seed)
    fresh_files()
    shutil.copy(support.TINY, CUT)
    model, talks, cut = tinfer.Model.load(TINY), tinfer.Model.load(TALKS), tinfer.Model.load(CUT)
    closed = tinfer.Context(model, n_ctx=64)
    closed.close()
    vanished = tinfer.Context(cut, n_ctx=64)
    os.truncate(CUT, 8192)
    os.remove(CUT)
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
    observer = tinfer.Observer(values=["l_out-0"])
    adapter = tinfer.Adapter.load(model, LORA)
    params = tinfer.SamplingParams(max_tokens=3)
    with tinfer.Context(model, n_ctx=64) as other:
        state = other.save_state()
        recorder = tinfer.ReceiptRecorder(other)
        drawn = tinfer.Generation(model.vocab, [1, 5], max_tokens=2)
        with tinfer.TraceFile("t.tntrace") as trace_file, other.attach(trace_file), other.attach(observer), \
                other.attach(recorder):
            while drawn.next(other, sampler) is not None:
                pass
        receipt = recorder.receipt([1, 5], sampler)
        attachment = other.attach(tinfer.Observer())
        attachment.detach()
    stream = llm.stream("once", max_tokens=2)
    request = llm.engine.submit([1, 5], max_tokens=2)
    request.cancel()
    llama = Llama(TALKS, n_ctx=128, logits_all=True, embedding=True)
    objects = [model, talks, closed, context, stale, grammar, batch, sampler, generation, chat, observer, adapter,
               params, llm.engine, tinfer.Roofline(), tinfer.CoverageCheck(), context.logits(), model.vocab, llm, gone,
               cut, vanished, trace_file, tinfer.TraceReader("t.tntrace"), receipt, recorder, attachment, stream,
               request, llama, llama.save_state(), LlamaGrammar(grammar), Tokenizer(TALKS), observer.values[0],
               llm.generate("once", max_tokens=1, logprobs=1), llm.score("once upon"), model.tensors[0],
               tinfer.ChatPrompt(talks, [{"role": "user", "content": "once"}]), tinfer.Error("no_room", "full"),
               tinfer.ErrorCode.no_room]
    plain = [
        None, True, False, -1, 0, 1, 2, 5, 63, 64, 65, 255, 306, 2**31 - 1, -2**31, 2**31, 2**63, 2**70, 0.0, 0.5, 1.0,
        -1.5, math.nan, math.inf, -math.inf, 1e300, "", "a", "once upon a time", "a" * 3000, "\ud800", "\0", "user",
        "ä𝄞", b"", b"\xff\xfe", "mean", "rank", "q8_0", "l_out-0", "blk.0.attn_q.weight", "/no/such", TINY, TALKS, LORA,
        OTHER, state, state[:100], "root ::= \"a\"", "root ::= (", "{", '{"type": "object"}', [], [1], [1, 5, 7],
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
    # a context of so many tokens or requests is legal, and slow; threads are few
    bounded = {"n_ctx", "n_seq_max", "n_batch", "n_threads", "max_queue", "n_kept", "max_tokens", "timeout"}
    bounded_values = [None, -1, 0, 1, 2, 0.01, "a", math.nan, []]
    small = [None, -1, 0, 1, 2, 64, "a", math.nan, 1.5, [], True]
    makers = [tinfer.Model.load, tinfer.Vocab.load, tinfer.Context, tinfer.Sampler, tinfer.Batch, tinfer.Generation,
              tinfer.Chat, tinfer.ChatPrompt, tinfer.Grammar.parse, tinfer.Grammar.schema, tinfer.Observer,
              tinfer.Receipt.parse, tinfer.Adapter.load, tinfer.plan, tinfer.SamplingParams, tinfer.TraceReader,
              tinfer.TraceReader.from_bytes, tinfer.ReceiptRecorder, tinfer.Error, tinfer.Roofline, tinfer.TraceFile,
              tinfer.TraceReader.open, tinfer.Output, tinfer.Score, tinfer.Value, tinfer.CoverageCheck, Tokenizer,
              LlamaGrammar.from_string, LlamaGrammar.from_json_schema]
    # these stay open, because others are called with them; what is made for one call is closed by it
    kept_open = {id(one) for one in (llm, llm.engine, context, llama)}
    methods, properties = [], []
    for one in objects:
        for name in dir(type(one)):
            if name.startswith("_") or name == "close" and id(one) in kept_open:
                continue
            if callable(inspect.getattr_static(type(one), name, None)) or callable(getattr(type(one), name, None)):
                methods.append((f"{type(one).__name__}.{name}", getattr(one, name)))
            else:
                properties.append((f"{type(one).__name__}.{name}", one, name))
    for one in (tinfer.Context, tinfer.Engine, tinfer.LLM, Llama):
        def closes(*rest, one=one, **named):
            made = one(TALKS if one in (tinfer.LLM, Llama) else talks, n_ctx=64)
            made.__exit__(None, None, None) if hasattr(made, "__exit__") else made.close()
            return made.close(*rest, **named)
        methods.append((f"{one.__name__}.close", closes))
    public = {name for name in dir(tinfer) if inspect.isclass(getattr(tinfer, name))}
    unmade = public - {type(one).__name__ for one in objects}
    assert unmade <= {"ErrorCode"}, f"no object of {unmade}: add one"
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
    called = [(getattr(maker, "__qualname__", repr(maker)), maker) for maker in makers]
    asked = [(name, functools.partial(getattr, one, attribute)) for name, one, attribute in properties]
    asked += [(f"{name}=", functools.partial(setattr, one, attribute)) for name, one, attribute in properties
              if not isinstance(one, (tinfer.LLM, Llama, tinfer.Stream, Tokenizer))]
    asked += [(f"{type(one).__name__} {getattr(ask, '__name__', '?')}", functools.partial(ask, one))
              for one in objects for ask in operators() if not isinstance(one, (tinfer.Stream, tinfer.Request))]
    each = [*called, *methods, *asked]
    raised, begin, done = 0, time.monotonic(), set()
    for i in range(n_calls):
        if i < len(each):
            name, target = each[i]     # every one once
        else:
            name, target = chance.choice(called if chance.random() < 0.2 else
                                         asked if chance.random() < 0.2 else methods)
        if i % 500 == 0:
            fresh_files()
        pool = bounded_values if name.endswith(("set_threads", "drain", "result")) else None
        arguments = [chance.choice(pool) if pool else chance.choice(objects) if chance.random() < 0.35
                     else chance.choice(plain) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 4)))]
        if name.endswith("="):
            arguments = arguments[:1] or [None]
        if name in right and chance.random() < 0.8:
            arguments = list(right[name])
            if chance.random() < 0.6:
                arguments[chance.randrange(len(arguments))] = chance.choice(objects + plain)
        named = {} if (name, target) in asked else {
            key: chance.choice(bounded_values if key == "n_threads" else small if key in bounded else plain + objects)
            for key in chance.sample(keywords, chance.choice((0, 0, 0, 0, 0, 1, 2)))}
        if name.endswith(("generate", "chat", "stream", "submit", "completion", "__call__")):
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
        done.add(name)
        if context.n_outputs == 0:   # so that there is something to be wrong about
            context.clear()
            context.decode([1, 5])
    missing = sorted({name for name, _ in each} - done)
    if n_calls >= len(each) and missing:
        print("never called:", *missing)
        return 1
    print(f"{n_calls} calls of {len(done)} names, {raised} raised, {time.monotonic() - begin:.1f} s")
    # and after all of it:
    model = tinfer.Model.load(support.TINY)
    again = tinfer.Context(model, n_ctx=64)
    again.decode([1, 5])
    assert np.isfinite(np.asarray(again.logits())).all()
    llm.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
