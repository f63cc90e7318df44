# SPDX-License-Identifier: MIT
"""[P1] Loading, decoding and dropping, again and again: nothing grows, and what outlives its context stays right.
Threads, asyncio and Ctrl-C at once.    usage: lifetimes_test.py [NUMBER OF ITERATIONS] [--growth BYTES]"""
import gc
import os
import resource
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import tinfer
from support import SMOL, TALKS, TINY, needs_smollm2

N = int(sys.argv[1]) if len(sys.argv) > 1 else 300
# Between the first and the last quarter; a sanitizer keeps freed memory for a while.
GROWTH = int(sys.argv[sys.argv.index("--growth") + 1]) if "--growth" in sys.argv else 4 << 20


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def handles():
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@unittest.skipUnless(os.path.exists("/proc/self/statm"), "reads /proc")
class Lifetimes(unittest.TestCase):
    def test_loading_decoding_and_dropping_leaves_nothing(self):
        """In every order: the model first, the context first, the view last, and with an exception in between."""
        first = tinfer.Context(tinfer.Model.load(TINY), n_ctx=64)
        first.decode([1, 5])
        expected = first.logits().copy()
        del first
        sizes, kept = [], None
        for i in range(N):
            model = tinfer.Model.load(TINY)
            context = tinfer.Context(model, n_ctx=64, n_threads=1)
            if i % 4 == 0:
                del model
            context.decode([1, 5])
            view = context.logits()
            if i % 4 == 1:
                context.close()
                with self.assertRaises(tinfer.Error):
                    view.sum()
            elif i % 4 == 2:
                with self.assertRaises(tinfer.Error):
                    context.decode([9999])
                with self.assertRaises(tinfer.Error):   # as before, but without outputs
                    view.sum()
                context.clear()
                context.decode([1, 5])
                view = context.logits()
            del context
            if kept is not None:   # a view of the turn before, whose context and model have gone
                self.assertTrue(np.array_equal(kept, expected))
            kept = view if i % 4 != 1 else None
            sizes.append(resident())
        gc.collect()
        quarter = max(1, N // 4)
        grown = max(sizes[-quarter:]) - max(sizes[:quarter])
        print(f"{N} iterations, {grown} bytes between the first and the last quarter")
        self.assertLess(grown, GROWTH)

    def test_engines_observers_and_traces_leave_nothing(self):
        model, before = tinfer.Model.load(TALKS), None
        with tempfile.TemporaryDirectory() as folder:
            for i in range(max(12, N // 50)):
                with tinfer.LLM(model, n_ctx=128, n_parallel=2) as llm:
                    llm.generate(["once", "upon"], max_tokens=2)
                    stream = llm.stream("once", max_tokens=50)
                    next(iter(stream), None)
                context = tinfer.Context(model, n_ctx=64)
                path = os.path.join(folder, f"{i}.tntrace")
                with tinfer.TraceFile(path) as file, context.attach(file), context.attach(tinfer.Observer()):
                    context.decode([1, 5])
                self.assertGreater(len(tinfer.TraceReader(path).events), 0)
                del llm, stream, context, file
                gc.collect()
                if i == 3:
                    before = handles()
            # A thread that has just been joined may still be listed in `before`.
            for now, then in zip(handles(), before):
                self.assertLessEqual(now, then)

    def test_a_view_outlives_context_model_and_thread(self):
        views = []

        def work():
            context = tinfer.Context(tinfer.Model.load(TINY), n_ctx=64)
            context.decode([1, 5])
            views.append((context.logits(), context.logits().copy(), context.model.blocks("output.weight")))
        for _ in range(8):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        gc.collect()
        for view, copied, weights in views:
            self.assertTrue(np.array_equal(view, copied))
            self.assertTrue(np.isfinite(weights.sum()))


PROGRAM = '''
import asyncio, os, signal, sys, threading, time
import tinfer
llm = tinfer.LLM(sys.argv[1], n_ctx=8192, n_parallel=4)
model, stopped, rounds = llm.model, threading.Event(), [0] * 3

def works(i):                                   # a context of its own, again and again
    while not stopped.is_set():
        context = tinfer.Context(model, n_ctx=256, n_threads=1)
        for _ in range(20):
            context.decode([5])
            rounds[i] += 1

def interrupts():
    while not all(rounds) or not asked:
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGINT)

async def one(i):
    return "".join([text async for text in llm.stream(f"once upon {i}", max_tokens=2000, temperature=1,
                                                      logit_bias={e: -1e9 for e in llm.vocab.eog_tokens})])

async def everything():
    await asyncio.gather(*(one(i) for i in range(12)))

asked = []
threads = [threading.Thread(target=works, args=(i,)) for i in range(3)]
[thread.start() for thread in threads]
threading.Thread(target=interrupts).start()
expected = None
try:
    asked.append(1)
    if sys.argv[2] == "asyncio":
        asyncio.run(everything())
    else:
        llm.generate(["once upon"] * 12, max_tokens=2000, logit_bias={e: -1e9 for e in llm.vocab.eog_tokens})
    print("nothing stopped it")
except KeyboardInterrupt:
    pass
finally:
    stopped.set()
[thread.join() for thread in threads]
first = llm.generate("once", temperature=0, max_tokens=4).token_ids     # it goes on as if nothing had been
again = tinfer.LLM(sys.argv[1], n_ctx=256).generate("once", temperature=0, max_tokens=4).token_ids
print("equal" if first == again else (first, again), llm.engine.stats()["running"] if "running" in
      llm.engine.stats() else "")
llm.close()
'''


class Interrupts(unittest.TestCase):
    @needs_smollm2
    def test_ctrl_c_beside_threads_and_asyncio(self):
        for how in ("asyncio", "generate"):
            done = subprocess.run([sys.executable, "-c", PROGRAM, SMOL, how], capture_output=True, text=True,
                                  timeout=600)
            self.assertEqual((done.returncode, done.stdout.split()[0]), (0, "equal"), done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
