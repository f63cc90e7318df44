# SPDX-License-Identifier: MIT
"""[P3] One model over several actors of Ray: the logits of one process to the bit, one transaction over all stages, and
answers that survive a lost actor.

usage: ray_pipeline_test.py [--rate]      also measures what several lanes in flight are worth
"""
import hashlib
import os
import signal
import sys
import threading
import time
import unittest

import numpy as np

import ray_support
import ray
from support import SMOL, TALKS, TINY, needs_smollm2

import tinfer
from tinfer import SamplingParams
from tinfer.ray import Pipeline

IDS = [[1, 5, 9, 13, 40, 7], [3, 60, 61, 62], [9] * 40, [2, 8, 64, 5, 77, 31, 20]]
PROMPTS = ["once upon a time", "the king and his sea", "one", "there was a king"]


def sha(logits):
    return hashlib.sha256(np.ascontiguousarray(logits).tobytes()).hexdigest()


def logits_of_one(path, ids):
    context = tinfer.Context(tinfer.Model.load(path), n_ctx=256, logits_all=True, n_threads=1)
    context.decode(ids)
    return np.stack([np.array(context.logits(i)) for i in range(len(ids))])


def pid_of(stage):
    return ray.get(stage.pid.remote())


class Pipelines(unittest.TestCase):
    def test_logits_and_answers_are_those_of_one_process(self):
        model = tinfer.Model.load(TALKS)
        params = [SamplingParams(max_tokens=12, seed=3), SamplingParams(max_tokens=5, temperature=0),
                  SamplingParams(max_tokens=8, seed=8, temperature=1.5, top_k=20), SamplingParams(max_tokens=0)]
        with tinfer.LLM(model, n_ctx=1024) as llm:
            expected = llm.generate(PROMPTS, params)
        for stages in (1, 2):
            with self.subTest(stages=stages), Pipeline(TALKS, stages, n_ctx=1024, n_parallel=4) as pipeline:
                for ids, logits in zip(IDS, pipeline.logits(IDS)):
                    self.assertEqual(sha(logits), sha(logits_of_one(TALKS, ids)))
                for one, other in zip(pipeline.generate(PROMPTS, params), expected):
                    self.assertEqual((one.token_ids, one.text, one.finish_reason),
                                     (other.token_ids, other.text, other.finish_reason))
                self.assertEqual(sum(map(sum, pipeline.used())), 0)

    @needs_smollm2
    def test_two_and_four_stages_of_a_trained_model(self):
        ids = tinfer.Model.load(SMOL).vocab.encode("Once upon a time there was a king who lived by the sea")
        expected = logits_of_one(SMOL, ids)
        with tinfer.LLM(SMOL, n_ctx=512, n_threads=1) as llm:
            text = llm.generate("The capital of France is", max_tokens=12, temperature=0).text
        for stages in (2, 4):
            with self.subTest(stages=stages), Pipeline(SMOL, stages, n_ctx=512, n_parallel=2,
                                                       actor_options={"num_cpus": 0.5}) as pipeline:
                self.assertEqual(sha(pipeline.logits(ids)), sha(expected))
                self.assertEqual(pipeline.generate("The capital of France is", max_tokens=12, temperature=0).text, text)
                memory = pipeline.memory()
                whole = sum(tensor.nbytes for tensor in tinfer.Model.load(SMOL).tensors)
                print(f"{stages} stages, weights of each:", [one["weights_mapped"] for one in memory], "of", whole,
                      flush=True)
                for planned, counted in zip(pipeline.planned, memory):
                    self.assertEqual(planned["weights_mapped"], counted["weights_mapped"])
                    self.assertEqual(planned["cache"] * 2, counted["cache"])   # of two lanes

    def test_a_batch_that_fails_leaves_nothing(self):
        with Pipeline(TINY, 2, n_ctx=128, n_parallel=1, lanes=1) as pipeline:
            with self.assertRaises(tinfer.Error) as caught:
                pipeline.generate([[1] * 129], max_tokens=1)
            self.assertEqual(caught.exception.code, "no_room")
            with self.assertRaises(tinfer.Error) as caught:
                pipeline.logits([[5, 1 << 20]])
            self.assertEqual(caught.exception.code, "invalid_batch")
            self.assertEqual(pipeline.used(), [[0], [0]])
            self.assertEqual(sha(pipeline.logits(IDS[0])), sha(logits_of_one(TINY, IDS[0])))
            timer = threading.Timer(0.5, pipeline.cancel)
            timer.start()
            with self.assertRaises(tinfer.Error) as caught:
                while True:
                    pipeline.generate([[5, 6, 7]], max_tokens=100, temperature=0, logit_bias={2: -100.0})
            self.assertEqual(caught.exception.code, "cancelled")
            self.assertEqual(pipeline.used(), [[0], [0]])
            self.assertEqual(sha(pipeline.logits(IDS[1])), sha(logits_of_one(TINY, IDS[1])))

    def test_a_stage_without_room_undoes_the_others(self):
        with Pipeline(TINY, 2, n_ctx=128, n_parallel=1, lanes=1) as pipeline:
            first, last = pipeline.actors
            rows = np.array([(5, i, 0, True) for i in range(6)], np.int32)
            self.assertEqual(ray.get(first.compute.remote(0, 0, 1, 0, [], rows, None)).shape[0], 6)
            self.assertEqual(ray.get(first.used.remote()), [6])
            wrong = np.zeros((5, 64), np.float32)   # one token short
            failed = ray.get(last.compute.remote(0, 0, 1, 0, [], rows, wrong))
            self.assertEqual(failed.code, "invalid_batch")
            ray.get([stage.settle.remote(0, 0, 0, []) for stage in pipeline.actors])
            self.assertEqual(pipeline.used(), [[0], [0]])

    def test_a_killed_actor_is_made_anew_and_answers_are_the_same(self):
        params = [SamplingParams(max_tokens=60, seed=seed, logit_bias={2: -100.0}) for seed in range(4)]
        with Pipeline(TALKS, 2, n_ctx=1024, n_parallel=4) as pipeline:
            expected = [output.token_ids for output in pipeline.generate(PROMPTS, params)]
            for victim in (0, 1):
                pid = pid_of(pipeline.actors[victim])
                timer = threading.Timer(0.15, os.kill, (pid, signal.SIGKILL))
                timer.start()
                outputs = pipeline.generate(PROMPTS, params)
                while timer.is_alive():   # it was faster than the timer
                    outputs = pipeline.generate(PROMPTS, params)
                self.assertEqual([output.token_ids for output in outputs], expected)
                self.assertEqual(pipeline.generate(PROMPTS[0], params[0]).token_ids, expected[0])
                self.assertNotEqual(pid_of(pipeline.actors[victim]), pid)
            self.assertEqual(pipeline.used(), [[0] * 4] * 2)

    def test_a_pipeline_that_may_not_begin_anew_ends_cleanly(self):
        params = SamplingParams(max_tokens=400, seed=1, logit_bias={2: -100.0})
        with Pipeline(TALKS, 2, n_ctx=1024, n_parallel=1, max_restarts=0) as pipeline:
            timer = threading.Timer(0.15, os.kill, (pid_of(pipeline.actors[1]), signal.SIGKILL))
            timer.start()
            with self.assertRaises(tinfer.Error) as caught:
                for _ in range(100):
                    pipeline.generate(PROMPTS[0], params)
            self.assertEqual(caught.exception.code, "compute_failed")
            self.assertEqual(sha(pipeline.logits(IDS[0])), sha(logits_of_one(TALKS, IDS[0])))

    def test_what_is_refused(self):
        for stages in (0, 3, [(0, 0)], [(1, 1), (0, 0)]):
            with self.subTest(stages=stages), self.assertRaises((ValueError, tinfer.Error)):
                Pipeline(TINY, stages)


@needs_smollm2
def measure():
    """8 sequences over 2 stages: tokens a second with one lane in flight, and with all of them."""
    prompts = [[1, 5 + i, 9, 13] for i in range(8)]
    params = SamplingParams(max_tokens=24, temperature=0, logit_bias={0: -100.0, 2: -100.0})
    with Pipeline(SMOL, 2, n_ctx=2048, n_parallel=8) as pipeline:
        times = {1: [], 0: []}
        for in_flight in (1, 0) * 5:
            pipeline.set_in_flight(in_flight)
            begin = time.monotonic()
            pipeline.generate(prompts, params)
            times[in_flight].append(time.monotonic() - begin)
        one, all_lanes = min(times[1]), min(times[0])
        n = 8 * 24
        print(f"tokens/s of 8 sequences over 2 stages: {n / one:.1f} with one lane in flight, {n / all_lanes:.1f} with "
              f"all: {one / all_lanes:.2f} times", [round(t, 2) for t in times[1]], [round(t, 2) for t in times[0]],
              flush=True)


if __name__ == "__main__":
    with ray_support.local_ray(4):
        if "--rate" in sys.argv:
            measure()
        else:
            unittest.main()
