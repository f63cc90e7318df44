# SPDX-License-Identifier: MIT
"""[P1] Model, Vocab, Context, Sampler, Grammar, Chat, Generation, Engine, Receipt, Adapter, plan: the floor for
everything but answers."""
import copy
import gc
import hashlib
import inspect
import os
import pickle
import signal
import subprocess
import tempfile
import threading
import unittest

import numpy as np

import tinfer
from support import LOGITS, LORA, SMOL, TALKS, TINY, needs_smollm2

TEXT = "once upon a time the rain in the north"


def raises(case, code, call, *args, **keywords):
    with case.assertRaises(tinfer.Error) as caught:
        call(*args, **keywords)
    case.assertEqual(caught.exception.code, code, str(caught.exception))
    return str(caught.exception)


class Names(unittest.TestCase):
    def test_everything_public_says_what_it_is(self):
        """More than its signature, which is made."""
        silent = []
        for name in tinfer.__all__:
            one = getattr(tinfer, name)
            members = [(f"{name}.{key}", getattr(one, key)) for key in vars(one) if not key.startswith("_")] \
                if inspect.isclass(one) else []
            for what, value in [(name, one), *members]:
                text = value.__doc__ or ""
                if callable(value) and (not text or text.startswith(f"{what.split('.')[-1]}(") and "\n" not in text):
                    silent.append(what)
        self.assertEqual(silent, [])


class Models(unittest.TestCase):
    def test_a_model_knows_itself(self):
        model = tinfer.Model.load(TINY)
        self.assertEqual((model.architecture, model.n_layer, model.n_embd, model.n_vocab), ("llama", 2, 64, 306))
        self.assertEqual(model.metadata()["general.architecture"], "llama")
        self.assertEqual(len(model.fingerprint), 32)

    def test_errors_have_a_code_and_name_the_file(self):
        self.assertIn("/no/such.gguf", raises(self, "io_error", tinfer.Model.load, "/no/such.gguf"))
        raises(self, tinfer.ErrorCode.not_gguf, tinfer.Model.load, __file__)
        error = pickle.loads(pickle.dumps(tinfer.Error("no_room", "full")))
        self.assertEqual((error.code, str(error)), ("no_room", "full"))
        for wrong in (None, 7, 1.5, ["a", 3]):
            self.assertRaises(TypeError, tinfer.Model.load, wrong)

    def test_weights_are_arrays_without_a_copy_and_floats(self):
        model = tinfer.Model.load(TINY)
        name = "blk.0.attn_q.weight"
        view = model.blocks(name)
        self.assertEqual((view.shape, view.dtype), ((64, 64), np.float32))
        self.assertTrue(np.array_equal(np.asarray(view), model.dequantize(name)))
        self.assertRaises(ValueError, view.__setitem__, 0, 1)
        self.assertRaises(KeyError, model.blocks, "no.such")
        del model
        gc.collect()
        self.assertTrue(np.isfinite(view.sum()))   # the view keeps the file mapped

    def test_weights_of_a_file_that_was_cut_short_are_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.gguf")
            with open(TINY, "rb") as source, open(path, "wb") as target:
                target.write(source.read())
            model = tinfer.Model.load(path)
            context = tinfer.Context(model, n_ctx=64)
            name = model.tensors[-1].name
            view = model.blocks(name)
            os.truncate(path, 8192)
            raises(self, "io_error", view.sum)
            raises(self, "io_error", np.asarray, view)
            raises(self, "io_error", model.dequantize, name)
            raises(self, "io_error", context.decode, [1, 2])

    def test_plan_says_what_a_context_takes(self):
        model = tinfer.Model.load(TINY)
        with tinfer.Context(model, n_ctx=128) as context:
            self.assertEqual(context.memory(), tinfer.plan(TINY, n_ctx=128))
        self.assertRaises(TypeError, tinfer.plan, TINY, n_cats=3)

    def test_progress_and_its_exceptions(self):
        seen = []
        tinfer.Model.load(TINY, progress=lambda fraction: seen.append(fraction))
        self.assertEqual(seen[-1], 1.0)
        raises(self, "cancelled", tinfer.Model.load, TINY, progress=lambda fraction: False)
        self.assertRaises(ZeroDivisionError, tinfer.Model.load, TINY, progress=lambda fraction: 1 / 0)


class Texts(unittest.TestCase):
    def setUp(self):
        self.vocab = tinfer.Model.load(TINY).vocab

    def test_there_and_back(self):
        for text in ("once upon a time", "", "ä€𝄞", "a\0b"):
            self.assertEqual(self.vocab.decode(self.vocab.encode(text)).strip(), text.strip())
        self.assertEqual(self.vocab.encode(b"once"), self.vocab.encode("once"))
        self.assertEqual(self.vocab.bos, 1)

    def test_ids_come_from_lists_and_arrays(self):
        ids = self.vocab.encode("once upon")
        for kind in (np.int32, np.int64, np.uint16):
            self.assertEqual(self.vocab.decode(np.array(ids, kind)), self.vocab.decode(ids))
        self.assertEqual(self.vocab.decode(np.array(ids * 2)[::2]), self.vocab.decode((ids * 2)[::2]))
        self.assertRaises(ValueError, self.vocab.decode, np.zeros((2, 2), np.int32))
        self.assertRaises(TypeError, self.vocab.decode, np.zeros(2, np.float32))
        self.assertRaises(TypeError, self.vocab.decode, [1.5])
        self.assertRaises(TypeError, self.vocab.decode, "text")
        self.assertRaises(OverflowError, self.vocab.decode, [2**40])
        raises(self, "index_out_of_range", self.vocab.decode, [306])
        self.assertRaises(UnicodeEncodeError, self.vocab.encode, "\ud800")


class Contexts(unittest.TestCase):
    def setUp(self):
        self.model = tinfer.Model.load(TINY)
        self.ids = self.model.vocab.encode(TEXT)

    def test_logits_have_the_bits_of_cpp(self):
        for path in [TINY] + ([SMOL] if os.path.exists(SMOL) else []):
            expected = subprocess.run([LOGITS, path, TEXT], capture_output=True, text=True, check=True).stdout.strip()
            model = tinfer.Model.load(path)
            for options in ({}, {"n_threads": 1, "isa": "reference"}):
                context = tinfer.Context(model, n_ctx=256, logits_all=True, **options)
                context.decode(model.vocab.encode(TEXT))
                hashed = hashlib.sha256()
                for i in range(context.n_outputs):
                    hashed.update(context.logits(i))
                self.assertEqual(hashed.hexdigest(), expected)

    def test_a_view_does_what_an_array_does(self):
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.ids)
        view, array = context.logits(), context.logits(-1).copy()
        self.assertEqual((view.shape, view.dtype, len(view), view.ndim), ((306,), np.float32, 306, 1))
        self.assertEqual(view.argmax(), array.argmax())
        self.assertEqual(float(view[3]), float(array[3]))
        for mine, theirs in ((view + 1, array + 1), (np.exp(view), np.exp(array)), (np.sort(view), np.sort(array)),
                             (view[10:20], array[10:20]), (view.reshape(2, 153), array.reshape(2, 153)),
                             (np.stack([view, view]), np.stack([array, array])), (view == view, array == array),
                             (np.asarray(view), array), (np.frombuffer(memoryview(view), np.float32), array)):
            self.assertTrue(np.array_equal(np.asarray(mine), theirs))
        self.assertEqual(list(view)[:3], list(array)[:3])
        self.assertIsInstance(view[10:20], tinfer.View)    # no copy, so the same promise
        self.assertTrue(np.shares_memory(view, context.logits()))
        self.assertRaises(ValueError, np.add, view, 1, out=view)
        self.assertTrue(np.array_equal(pickle.loads(pickle.dumps(view)), array))
        self.assertTrue(np.array_equal(copy.deepcopy(view), array))

    def test_a_view_raises_after_the_next_decode(self):
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.ids)
        view, part, kept = context.logits(), context.logits()[2:5], np.asarray(context.logits())
        before = kept.copy()
        context.decode([5])
        for read in (lambda: view[0], lambda: view.sum(), lambda: view + 1, lambda: np.asarray(view), lambda: part[0],
                     lambda: hashlib.sha256(view), lambda: np.exp(view), lambda: memoryview(view), lambda: list(view)):
            self.assertIn(".copy()", raises(self, "no_output", read))
        self.assertTrue(np.array_equal(kept, before))
        self.assertIn("earlier decode", repr(view))
        view = context.logits()
        context.clear()
        raises(self, "no_output", view.max)

    def test_a_view_outlives_its_context(self):
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.ids)
        view, expected = context.logits(), context.logits().copy()
        del context
        gc.collect()
        self.assertTrue(np.array_equal(view, expected))
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.ids)
        view = context.logits()
        context.close()
        raises(self, "no_output", view.max)
        raises(self, "bad_parameter", context.decode, self.ids)
        raises(self, "bad_parameter", context.logits)
        context.close()

    def test_expected_outcomes_that_are_errors_here(self):
        context = tinfer.Context(self.model, n_ctx=64)
        raises(self, "no_output", context.logits)
        message = raises(self, "no_room", context.decode, [1] * 65)
        self.assertIn("65", message)
        raises(self, "invalid_batch", context.decode, [999])
        raises(self, "invalid_batch", context.decode, [])
        context.decode(self.ids)
        raises(self, "index_out_of_range", context.logits, 7)
        raises(self, "bad_sequence", context.seq_rm, 5)
        self.assertRaises(TypeError, context.decode, "text")
        self.assertRaises(TypeError, tinfer.Context, self.model, n_ctx=1.5)
        self.assertRaises(TypeError, tinfer.Context, self.model, n_ctx=True)
        self.assertRaises(TypeError, tinfer.Context, self.model, cats=1)
        self.assertRaises(ValueError, tinfer.Context, self.model, type_k="q9")
        raises(self, "bad_parameter", tinfer.Context, self.model, rope_freq_base=float("nan"))
        raises(self, "limit_exceeded", tinfer.Context, self.model, memory_limit=1000)

    def test_batches_sequences_and_states(self):
        context = tinfer.Context(self.model, n_ctx=128, n_seq_max=2)
        batch = tinfer.Batch()
        batch.add_sequence(self.ids, 0)
        batch.add_sequence(self.ids, 1)
        context.decode(batch)
        self.assertEqual(context.n_outputs, 2)
        self.assertTrue(np.array_equal(context.logits(0), context.logits(1)))
        self.assertEqual((context.seq_pos_max(0), context.used), (len(self.ids) - 1, 2 * len(self.ids)))
        context.seq_rm(1)
        state = context.save_state(seq=0, tokens=self.ids)
        other = tinfer.Context(self.model, n_ctx=256, n_threads=1)
        self.assertEqual(other.load_state(state), self.ids)
        context.decode([7])
        other.decode([7])
        self.assertTrue(np.array_equal(context.logits(), other.logits()))
        raises(self, "not_state_file", other.load_state, b"nothing")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "state")
            self.assertIsNone(context.save_state(path))
            self.assertEqual(other.load_state(path), [])

    def test_embeddings_and_kept_values(self):
        context = tinfer.Context(self.model, n_ctx=64, embeddings=True, keep=["l_out-0"])
        context.decode(self.ids)
        self.assertEqual(context.embedding().shape, (64,))
        self.assertEqual(context.result("l_out-0").size, 64 * len(self.ids))
        pooled = tinfer.Context(self.model, n_ctx=64, pooling="mean")
        pooled.decode(self.ids)
        self.assertEqual(pooled.pooled().shape, (64,))

    def test_an_adapter_changes_and_leaves_no_trace(self):
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.ids)
        plain = context.logits().copy()
        adapter = tinfer.Adapter.load(self.model, LORA)
        context.attach_adapter(adapter, 0.5)
        context.clear()
        context.decode(self.ids)
        self.assertFalse(np.array_equal(context.logits(), plain))
        context.detach_adapter(adapter)
        context.clear()
        context.decode(self.ids)
        self.assertTrue(np.array_equal(context.logits(), plain))
        raises(self, "bad_parameter", context.attach_adapter, adapter, float("nan"))

    def test_cancel_is_a_transaction(self):
        answers = []
        context = tinfer.Context(self.model, n_ctx=2048, cancel=lambda: bool(answers))
        context.decode(self.ids)
        used, answers = context.used, [True]
        raises(self, "cancelled", context.decode, self.ids * 8)
        self.assertEqual(context.used, used)

        def explode():
            raise ZeroDivisionError
        context = tinfer.Context(self.model, n_ctx=2048, cancel=explode)
        self.assertRaises(ZeroDivisionError, context.decode, self.ids)
        self.assertEqual(context.used, 0)

    @needs_smollm2
    def test_ctrl_c_stops_a_decode(self):
        model = tinfer.Model.load(SMOL)
        context = tinfer.Context(model, n_ctx=4096)
        ids = model.vocab.encode(TEXT)
        context.decode(ids)
        for delay in (0.05, 0.2):
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, delay)
            self.assertRaises(KeyboardInterrupt, context.decode, (ids * 500)[:4000])
            self.assertEqual(context.used, len(ids))
        context.decode([5])
        again = tinfer.Context(model, n_ctx=4096)
        again.decode(ids + [5])
        self.assertTrue(np.array_equal(context.logits(), again.logits()))

    @needs_smollm2
    def test_the_lock_is_free_while_it_computes(self):
        context = tinfer.Context(tinfer.Model.load(SMOL), n_ctx=2048)
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
        counter = threading.Thread(target=count)
        counter.start()
        try:
            busy = threading.Thread(target=lambda: context.decode([5] * 1500))
            busy.start()
            while busy.is_alive():
                try:
                    context.decode([5])
                except tinfer.Error as error:
                    self.assertEqual(error.code, "busy")
                    break
            before = counted[0]
            busy.join()
            self.assertGreater(counted[0], before)
        finally:
            done.set()
            counter.join()


class Sampling(unittest.TestCase):
    def setUp(self):
        self.model = tinfer.Model.load(TALKS)
        self.vocab = self.model.vocab

    def test_a_sampler_draws(self):
        context = tinfer.Context(self.model, n_ctx=64)
        context.decode(self.vocab.encode(TEXT))
        greedy = tinfer.Sampler(self.vocab, temp=0)
        self.assertEqual(greedy.sample(context), int(context.logits().argmax()))
        self.assertEqual(greedy.sample(context.logits()), greedy.sample(np.asarray(context.logits())))
        one, two = (tinfer.Sampler(self.vocab, seed=7, temp=1.5) for _ in range(2))
        self.assertEqual([one.sample(context) for _ in range(9)], [two.sample(context) for _ in range(9)])
        three = one.copy()
        self.assertEqual(one.sample(context), three.sample(context))
        self.assertEqual(one.seed, 7)
        for name in ("temp", "top_p", "min_p", "penalty_repeat"):
            raises(self, "bad_parameter", tinfer.Sampler, self.vocab, **{name: float("nan")})
        self.assertRaises(TypeError, tinfer.Sampler, self.vocab, top_k="many")
        self.assertRaises(TypeError, greedy.sample, np.zeros(306))        # float64
        self.assertRaises(TypeError, greedy.sample, np.zeros((2, 306), np.float32))
        raises(self, "non_finite_logits", greedy.sample, np.full(306, np.nan, np.float32))

    def test_grammars_and_schemas(self):
        grammar = tinfer.Grammar.parse('root ::= "yes" | "no"')
        self.assertTrue(grammar.matches("yes") and not grammar.matches("maybe"))
        raises(self, "bad_grammar", tinfer.Grammar.parse, "root ::= (")
        schema = tinfer.Grammar.schema({"type": "integer", "minimum": 3, "maximum": 5})
        self.assertTrue(schema.matches("4") and not schema.matches("6"))
        raises(self, "bad_schema", tinfer.Grammar.schema, {"type": "cat"})
        context = tinfer.Context(self.model, n_ctx=64)
        generation = tinfer.Generation(self.vocab, self.vocab.encode(TEXT), max_tokens=9)
        sampler = tinfer.Sampler(self.vocab, grammar=grammar, seed=1)
        while generation.next(context, sampler) is not None:
            pass
        self.assertIn(generation.text, ("yes", "no"))
        self.assertEqual(generation.stop, "eog")

    def test_a_generation_and_its_receipt(self):
        context = tinfer.Context(self.model, n_ctx=64)
        sampler = tinfer.Sampler(self.vocab, seed=42)
        prompt = self.vocab.encode(TEXT)
        recorder = tinfer.ReceiptRecorder(context)
        generation = tinfer.Generation(self.vocab, prompt, max_tokens=6)
        with context.attach(recorder):
            text = ""
            while (piece := generation.next(context, sampler)) is not None:
                text += piece
        self.assertEqual(text, generation.text)
        receipt = recorder.receipt(prompt, sampler)
        receipt.add_hashes(self.model)
        again = tinfer.Receipt.parse(receipt.json())
        other = tinfer.Context(self.model, n_ctx=64, isa="reference", n_threads=1)
        self.assertTrue(again.replay(other)["equal"])
        raises(self, "damaged", tinfer.Receipt.parse, receipt.json().replace("4", "5", 1))

    def test_a_chat_decodes_what_is_new(self):
        context = tinfer.Context(self.model, n_ctx=256)
        sampler = tinfer.Sampler(self.vocab, temp=0)
        chat = tinfer.Chat(self.model, max_tokens=5)
        chat.add("user", "once")
        while chat.next(context, sampler) is not None:
            pass
        self.assertEqual([message["role"] for message in chat.messages], ["user", "assistant"])
        self.assertIn("<user>once\n", chat.render(answer_follows=False))
        self.assertTrue(chat.take_back())
        self.assertRaises(TypeError, chat.add, "user")
        raises(self, "bad_parameter", chat.add, {"nothing": 1})

    def test_an_engine_answers_many(self):
        with tinfer.Engine(self.model, n_ctx=512, n_seq_max=4) as engine:
            prompts = [self.vocab.encode(TEXT[i:]) for i in range(9)]
            requests = [engine.submit(p, max_tokens=4, sampler={"temp": 0}, n_top=2) for p in prompts]
            together = [[t for t, _, _ in request.result()["tokens"]] for request in requests]
            alone = []
            for prompt in prompts:
                alone.append([t for t, _, _ in engine.submit(prompt, max_tokens=4,
                                                             sampler={"temp": 0}).result()["tokens"]])
            self.assertEqual(together, alone)
            request = engine.submit(prompts[0], max_tokens=1000, sampler={"temp": 0})
            request.cancel()
            self.assertIn(request.result()["stop"], ("interrupt", "eog", "context"))

            def times_out():
                try:
                    engine.submit(prompts[0], max_tokens=400, sampler={"temp": 0}).result(0)
                except TimeoutError:
                    return True
            self.assertTrue(any(times_out() for _ in range(20)))
            raises(self, "no_room", engine.submit, [5] * 600)
            raises(self, "index_out_of_range", engine.submit, [9999])
        raises(self, "bad_parameter", engine.submit, prompts[0])
        raises(self, "bad_parameter", engine.stats)

    @unittest.skipUnless(hasattr(os, "fork"), "no fork")
    def test_an_engine_in_a_fork_says_so(self):
        engine = tinfer.Engine(self.model, n_ctx=128)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                engine.submit([1, 5])
            except tinfer.Error as error:
                code = 0 if error.code == "not_available" else 2
            engine.close()
            os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(engine.submit([1, 5], max_tokens=1).result()["n_prompt"], 2)


if __name__ == "__main__":
    unittest.main()
