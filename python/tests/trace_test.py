# SPDX-License-Identifier: MIT
"""[P1] Observers in Python and traces in files, as structured arrays."""
import gc
import os
import tempfile
import unittest
import weakref

import numpy as np

import tinfer
from support import TINY
from tinfer.trace import OPS

TEXT = "once upon a time the rain in the north"


class Observers(unittest.TestCase):
    def setUp(self):
        self.model = tinfer.Model.load(TINY)
        self.ids = self.model.vocab.encode(TEXT)
        self.context = tinfer.Context(self.model, n_ctx=256)

    def test_events_are_a_structured_array(self):
        observer = tinfer.Observer()
        with self.context.attach(observer):
            self.context.decode(self.ids)
            self.context.mark("here")
            tinfer.Sampler(self.model.vocab, temp=0).sample(self.context)
        self.context.decode([5])     # nobody looks any more
        events, accesses, tensors = observer.events, observer.accesses, observer.tensors
        self.assertEqual(events["index"].tolist(), list(range(len(events))))
        self.assertTrue((events["end"] >= events["begin"]).all())
        self.assertEqual(len(accesses), events["n_accesses"].sum())
        [run] = observer.runs
        self.assertEqual((run["n_tokens"], run["n_events"]), (len(self.ids), len(events)))
        # What the events say of the weights is what the library's own arithmetic expects.
        reads = accesses[(accesses["mode"] == 1) & (tensors["tensor_class"][accesses["tensor"]] == "weight")]
        self.assertEqual(reads["bytes"].sum(), run["expected_weight_bytes"])
        self.assertEqual(run["observed_weight_bytes"], run["expected_weight_bytes"])
        self.assertEqual([tensor.name for tensor in self.model.tensors],
                         tensors["name"][:len(self.model.tensors)].tolist())
        ops = {OPS[op] for op in events["op"]}
        self.assertIn("mul_mat", " ".join(ops))
        self.assertEqual([text for _, text in observer.marks], ["here"])
        self.assertEqual(len(observer.samples), 1)
        self.assertEqual(len(observer.plans), len(set(zip(observer.plans["plan"], observer.plans["step"]))))
        self.assertEqual(set(observer.columns()["kernel"]) <= set(observer.names), True)
        observer.clear()
        self.assertEqual(len(observer.events), 0)

    def test_a_bit_is_the_same_with_and_without(self):
        self.context.decode(self.ids)
        expected = self.context.logits().copy()
        self.context.clear()
        with self.context.attach(tinfer.Observer(level="threads")):
            self.context.decode(self.ids)
        self.assertTrue(np.array_equal(self.context.logits(), expected))

    def test_a_subclass_is_called_once_a_run(self):
        calls = []

        class Bytes(tinfer.Observer):
            def on_events(self, events, accesses):
                calls.append((len(events), len(accesses), int(events["bytes_read"].sum())))
        observer = Bytes()
        attached = self.context.attach(observer)
        self.context.decode(self.ids)
        self.context.decode([5])
        attached.detach()
        self.context.decode([5])
        self.assertEqual(len(calls), 2)
        self.assertEqual(len(observer.events), 0)
        self.assertTrue(all(n > 0 for call in calls for n in call))

    def test_arrays_of_a_run_stay(self):
        """They are handed over without a copy: kept ones are not written over by later runs, which use the memory of
        those that are gone."""
        kept, sums = [], []

        class Keeps(tinfer.Observer):
            def on_events(self, events, accesses):
                if len(sums) % 2 == 0:
                    kept.append((events, accesses[1:], len(sums)))
                sums.append((events["index"].tolist(), accesses["bytes"].tolist(), accesses["event"].tolist()))
        watched = tinfer.Observer()
        with self.context.attach(Keeps()), self.context.attach(watched):
            for _ in range(12):
                self.context.decode([5])
        gc.collect()
        self.assertEqual(len(kept), 6)
        for events, accesses, i in kept:
            self.assertEqual((events["index"].tolist(), accesses["bytes"].tolist(), accesses["event"].tolist()),
                             (sums[i][0], sums[i][1][1:], sums[i][2][1:]))
            self.assertRaises(ValueError, events.setflags, write=True)
        # Tensors have the numbers of an observer that keeps everything.
        self.assertEqual(watched.events["index"].tolist(), [n for each in sums for n in each[0]])
        self.assertEqual(watched.accesses["bytes"].tolist(), [n for each in sums for n in each[1]])

    def test_called_and_kept(self):
        calls = []

        class Both(tinfer.Observer):
            def on_events(self, events, accesses):
                rows = [accesses[event["first_access"]:event["first_access"] + event["n_accesses"]] for event in events]
                calls.append((events["index"].tolist(), [row["event"].tolist() for row in rows],
                              [row["tensor"].tolist() for row in rows]))
        observer = Both(keep=True)
        with self.context.attach(observer):
            self.context.decode(self.ids)
            self.context.decode([5])
            self.context.decode([7])
        self.assertEqual([n for indices, _, _ in calls for n in indices], observer.events["index"].tolist())
        for indices, events, _ in calls:
            self.assertEqual([set(row) for row in events], [{index} for index in indices])
        self.assertEqual([n for call in calls for row in call[2] for n in row], observer.accesses["tensor"].tolist())
        self.assertEqual(len(observer.ranges), observer.accesses["n_ranges"].sum())

    def test_several_runs_for_a_call(self):
        calls = []

        class Some(tinfer.Observer):
            def on_events(self, events, accesses):
                calls.append([events["run"].tolist(), len(accesses), 0])
                self.last = int(events["first_access"][-1] + events["n_accesses"][-1])

            def on_run(self, run):
                calls[-1][2] += int(run["n_events"])
        observer = Some(runs_per_call=3)
        with self.context.attach(observer):
            for _ in range(7):
                self.context.decode([5])
            self.assertEqual(len(calls), 2)
        self.assertEqual([sorted(set(runs)) for runs, _, _ in calls], [[0, 1, 2], [3, 4, 5], [6]])
        self.assertEqual([n for _, _, n in calls], [len(runs) for runs, _, _ in calls])
        self.assertEqual(observer.last, calls[-1][1])
        events = Some(runs_per_call=2, accesses=False)
        attached = self.context.attach(events)
        self.context.decode([5])
        attached.detach()
        attached.detach()
        self.assertEqual((len(calls), calls[-1][1]), (4, 0))
        self.assertRaises(ValueError, tinfer.Observer, runs_per_call=0)

        class Breaks(tinfer.Observer):
            def on_events(self, events, accesses):
                raise LookupError("mine")
        attached = self.context.attach(Breaks(runs_per_call=2))
        self.context.decode([5])
        self.assertRaisesRegex(LookupError, "mine", attached.detach)
        self.assertFalse(attached.attached)
        with self.assertRaisesRegex(LookupError, "mine"), self.context.attach(Breaks(runs_per_call=2)):
            self.context.decode([5])
            self.context.decode([5])

    def test_who_does_not_take_accesses_gets_none(self):
        calls = []

        class Events(tinfer.Observer):
            def on_events(self, events):
                calls.append((len(events), int(events["n_accesses"].sum())))

        class May(tinfer.Observer):
            def on_events(self, events, accesses=None):
                calls.append((len(events), len(accesses)))

        class Any(tinfer.Observer):
            def on_events(self, *arrays):
                calls.append(tuple(map(len, arrays)))
        for made in (Events(), Events(accesses=True), Events(keep=True), May(), Any(), Any(accesses=False)):
            with self.context.attach(made):
                self.context.decode([5])
        n, n_accesses = calls[-2]
        self.assertGreater(n_accesses, n)
        self.assertEqual(calls, [(n, 0), (n, n_accesses), (n, n_accesses), (n, n_accesses), (n, n_accesses), (n, 0)])

    def test_runs_alone(self):
        runs = []

        class Runs(tinfer.Observer):
            def on_run(self, run):
                runs.append((int(run["n_tokens"]), int(run["n_events"])))
        observer = Runs()
        with self.context.attach(observer):
            self.context.decode(self.ids)
            self.context.decode([5])
        self.assertEqual([n for n, _ in runs], [len(self.ids), 1])
        self.assertTrue(all(n > 0 for _, n in runs))
        self.assertEqual(len(observer.runs), 0)

    def test_what_an_observer_raises_fails_the_decode(self):
        class Broken(tinfer.Observer):
            def on_events(self, events, accesses):
                raise LookupError("mine")
        self.context.decode(self.ids)
        with self.context.attach(Broken()):
            self.assertRaisesRegex(LookupError, "mine", self.context.decode, [5])
        self.assertEqual(self.context.used, len(self.ids))
        with self.context.attach(Broken(detach_on_error=True)):
            self.assertRaises(LookupError, self.context.decode, [5])
        self.context.decode([5])

    def test_a_callback_cannot_change_the_context(self):
        codes = []
        context = self.context

        class Meddles(tinfer.Observer):
            def on_events(self, events, accesses):
                self.room = context.room()        # questions are fine
                for call in (lambda: context.decode([1]), context.clear, context.close, lambda: context.attach(self)):
                    try:
                        call()
                    except tinfer.Error as error:
                        codes.append(error.code)
        with context.attach(Meddles()):
            context.decode(self.ids)
        self.assertEqual(codes, ["busy"] * 4)

    def test_values_are_arrays(self):
        observer = tinfer.Observer(values=["l_out-*"])
        with self.context.attach(observer):
            self.context.decode(self.ids)
        self.assertEqual([value.name for value in observer.values], ["l_out-0", "l_out-1"])
        self.assertEqual(observer.values[0].data.shape, (len(self.ids), 64))
        kept = tinfer.Context(self.model, n_ctx=64, keep=["l_out-0"])
        kept.decode(self.ids)
        self.assertTrue(np.array_equal(np.asarray(kept.result("l_out-0")).reshape(-1, 64), observer.values[0].data))

    def test_filters(self):
        observer = tinfer.Observer(layers=[1], parts=["ffn"])
        with self.context.attach(observer):
            self.context.decode(self.ids)
        self.assertEqual(set(observer.events["layer"]), {1})
        self.assertRaises(ValueError, tinfer.Observer, ops=["cat"])
        self.assertRaises(ValueError, tinfer.Observer, level="loud")
        self.assertRaises(TypeError, tinfer.Observer, tensors="blk.*")
        self.assertRaises(TypeError, self.context.attach, object())

        class Forgets(tinfer.Observer):
            def __init__(self):
                pass
        self.assertRaises(TypeError, self.context.attach, Forgets())

    def test_cycles_of_context_and_observer_are_collected(self):
        class Knows(tinfer.Observer):
            pass
        context, observer = tinfer.Context(self.model, n_ctx=64), Knows()
        observer.context = context
        context.attach(observer)
        gone = weakref.ref(observer)
        del context, observer
        gc.collect()
        self.assertIsNone(gone())

    def test_coverage_is_proven(self):
        check = tinfer.CoverageCheck()
        with self.context.attach(check):
            self.context.decode(self.ids)
        self.assertGreater(check.steps, 0)
        self.assertEqual(check.differences, [])

    def test_a_file_gives_the_arrays_of_the_live_observer(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "t.tntrace")
            observer = tinfer.Observer()
            with tinfer.TraceFile(path, token_ids=True) as file, self.context.attach(file), \
                    self.context.attach(observer):
                self.context.decode(self.ids)
                self.context.decode([5])
            trace = tinfer.TraceReader(path)
            with open(path, "rb") as data:
                self.assertEqual(tinfer.TraceReader.from_bytes(data.read()).content_hash, trace.content_hash)
        self.assertEqual((trace.damage, trace.is_closed, trace.session["architecture"]), (0, True, "llama"))
        for name in ("index", "begin", "op", "layer", "bytes_read", "n_accesses"):
            self.assertTrue(np.array_equal(trace.events[name], observer.events[name]), name)
        self.assertTrue(np.array_equal(trace.accesses["bytes"], observer.accesses["bytes"]))
        self.assertEqual(trace.tensors["name"][trace.accesses["tensor"]].tolist(),
                         observer.tensors["name"][observer.accesses["tensor"]].tolist())
        with self.assertRaises(tinfer.Error) as caught:
            tinfer.TraceReader.from_bytes(b"no trace")
        self.assertEqual(caught.exception.code, "damaged")


if __name__ == "__main__":
    unittest.main()
