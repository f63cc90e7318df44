# SPDX-License-Identifier: MIT
"""[P2] The rules of serving over replicas, without one: what is sent again, what is recognised, what is handed on."""
import json
import unittest

from tinfer.ray.prefixes import BLOCK, Branches, Known, digests
from tinfer.ray.resume import CannotResume, Frames, Resume
from tinfer.ray.serving import handed_on, option_of, with_seed


def events(name, created, texts, choice=0):
    return [b"data: " + json.dumps({"id": name, "created": created, "choices": [{"index": choice, "delta": {
        "content": text}}]}, separators=(",", ":")).encode() + b"\n\n" for text in texts]


class Streams(unittest.TestCase):
    def test_p2_goes_on_behind_the_last_event(self):  # [P2]
        """cut behind each event: what the client gets is one stream, under its first name"""
        first, second = events("chatcmpl-a", 10, "abcdef"), events("chatcmpl-b", 17, "abcdef")
        for n in range(len(first) + 1):
            resume = Resume()
            got = [resume.take(frame) for frame in first[:n]]
            resume.begin()
            got += [resume.take(frame) for frame in second]
            expected = first if n > 0 else second
            self.assertEqual(b"".join(got), b"".join(expected))
            self.assertEqual(resume.n_sent, 6)

    def test_another_answer_is_never_put_behind(self):
        resume = Resume()
        for frame in events("chatcmpl-a", 10, "abc"):
            resume.take(frame)
        resume.begin()
        other = events("chatcmpl-b", 10, "axc")
        self.assertEqual(resume.take(other[0]), b"")
        with self.assertRaisesRegex(CannotResume, "event 1"):
            resume.take(other[1])

    def test_choices_are_lanes(self):
        """events of two choices may mix in another way; each choice goes on where it was"""
        a, b = events("x", 1, "abc", 0), events("x", 1, "ABC", 1)
        a2, b2 = events("y", 2, "abc", 0), events("y", 2, "ABC", 1)
        resume = Resume()
        got = [resume.take(frame) for frame in (a[0], b[0], a[1])]
        resume.begin()
        got += [resume.take(frame) for frame in (b2[0], b2[1], b2[2], a2[0], a2[1], a2[2])]
        self.assertEqual([frame for frame in got if frame], [a[0], b[0], a[1], b[1], b[2], a[2]])

    def test_what_depends_on_a_cache(self):
        """numbers of cached tokens and times may differ; comments and how far a prompt is are none of an answer"""
        make = lambda cached, seconds: [
            b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_%d","usage":{"input_tokens":%d,'
            b'"cache_read_input_tokens":%d,"output_tokens":0}}}\n\n' % (cached, 90 - cached, cached),
            b'data: {"prompt_progress":{"total":90,"cached":%d,"processed":90},"choices":[]}\n\n' % cached,
            b": ping\n\n",
            b'data: {"choices":[],"timings":{"queued_s":%s,"prompt_s":1e-05,"cached_n":%d,"seed":4}}\n\n' % (
                seconds, cached)]
        resume = Resume()
        for frame in make(0, b"0.25"):
            self.assertEqual(resume.take(frame), frame)
        resume.begin()
        self.assertEqual([resume.take(frame) for frame in make(64, b"1e-7")], [b"", b"", b": ping\n\n", b""])

    def test_dates_of_lines(self):
        """lines of Ollama's routes have a date each"""
        make = lambda second: [b'{"model":"m","created_at":"2026-01-01T00:00:%02d","response":"%s","done":false}\n' % (
            second + i, text) for i, text in enumerate((b"a", b"b", b"c"))]
        resume = Resume()
        got = [resume.take(frame) for frame in make(1)[:2]]
        resume.begin()
        got += [resume.take(frame) for frame in make(30)]
        self.assertEqual([json.loads(frame)["response"] for frame in got if frame], ["a", "b", "c"])

    def test_frames_are_cut_anywhere(self):
        body = b"".join(events("x", 1, "abc")) + b": ping\n\ndata: [DONE]\n\n"
        for size in (1, 7, 1000):
            frames = Frames("text/event-stream; charset=utf-8")
            got = [frame for at in range(0, len(body), size) for frame in frames.push(body[at:at + size])]
            self.assertEqual((len(got), b"".join(got), frames.rest), (5, body, b""))
        frames = Frames("application/x-ndjson")
        self.assertEqual((list(frames.push(b"{}\n{")), frames.rest), ([b"{}\n"], b"{"))


class Prefixes(unittest.TestCase):
    def test_p2_a_conversation_goes_on(self):  # [P2]
        """the next turn of a conversation begins with the blocks of the turn before; others share the system's text"""
        talk = [{"role": "system", "content": "s" * 300}, {"role": "user", "content": "u" * 200}]
        one = digests({"messages": talk, "seed": 1})
        more = digests({"messages": [*talk, {"role": "assistant", "content": "a" * 200}], "seed": 2})
        self.assertEqual(more[:len(one)], one)
        self.assertGreater(len(more), len(one))
        other = digests({"messages": [talk[0], {"role": "user", "content": "v" * 200}]})
        n = sum(a == b for a, b in zip(one, other))
        self.assertTrue(300 // BLOCK <= n < len(one))
        self.assertEqual(digests({"prompt": "a" * 1000})[:15], digests({"prompt": "a" * 999})[:15])
        self.assertNotEqual(digests({"prompt": "a" * 100, "lora": "x"}), digests({"prompt": "a" * 100}))
        for nothing in (None, 5, [], {"text": "a" * 1000}, {"messages": None, "prompt": ""}):
            self.assertEqual(digests(nothing), [])

    def test_the_least_recent_go(self):
        known = Known(4)
        known.add([1, 2, 3])
        known.add([1, 5])
        self.assertEqual((known.covers([1, 2]), known.covers([1, 5, 9]), len(known)), (2, 2, 4))
        known.add([1, 6])
        self.assertEqual((known.covers([1, 2, 3]), known.covers([1, 6]), known.covers([2])), (2, 2, 1))
        self.assertEqual(known.covers([7, 1]), 0)


    def test_p2_what_all_begin_with(self):  # [P2]
        """a system's text before many conversations does not bind them to the replica that has it; their own does"""
        branches = Branches()
        system = {"role": "system", "content": "s" * 300}
        talks = [digests({"messages": [system, {"role": "user", "content": f"{i}" * 300}]}) for i in range(8)]
        n = Known(1000)
        n.add(talks[0])
        common = n.covers(talks[1])
        for talk in talks[:4]:
            branches.add(talk)
        self.assertFalse(branches.is_shared(talks[5], common))
        for talk in talks[4:]:
            branches.add(talk)
        self.assertTrue(branches.is_shared(talks[5], common))
        self.assertFalse(branches.is_shared(talks[5], common + 1))
        self.assertFalse(branches.is_shared(talks[5][:common], common))


class Requests(unittest.TestCase):
    def seed_of(self, path, data):
        made = with_seed(path, data, json.loads(data))
        return made, json.loads(made)

    def test_p2_seeds(self):  # [P2]
        """an answer that another replica may have to make again has a seed, and every other byte stays"""
        for data in (b'{}', b' {"a":1e400}', b'{"max_tokens":12345678901234567890,"x":"\\ud800"}'):
            made, body = self.seed_of("/v1/completions", data)
            self.assertTrue(0 <= body["seed"] < 2**32 - 1)
            self.assertTrue(made.endswith(data.lstrip()[1:]))
        for data in (b'{"seed":null}', b'{"seed":-1}'):
            self.assertGreaterEqual(self.seed_of("/v1/messages", data)[1]["seed"], 0)
        for data in (b'{"seed":5}', b'{"seed":"a"}', b'[1]'):
            self.assertEqual(self.seed_of("/v1/chat/completions", data)[0], data)
        self.assertEqual(self.seed_of("/tokenize", b'{"text":"a"}')[0], b'{"text":"a"}')
        self.assertIn("seed", self.seed_of("/api/chat", b'{"model":"m","options":{"top_k":3}}')[1]["options"])
        self.assertEqual(self.seed_of("/api/chat", b'{"options":{"seed":3}}')[0], b'{"options":{"seed":3}}')

    def test_headers(self):
        given = [("Host", "models.example:8000"), ("Origin", "http://models.example:8000"), ("Connection", "close"),
                 ("Authorization", "Bearer k"), ("Expect", "100-continue")]
        self.assertEqual(handed_on(given, False), [("Host", "localhost"), ("Origin", "http://localhost"),
                                                   ("Authorization", "Bearer k")])
        self.assertEqual(handed_on(given, True), [*given[:2], given[3]])
        other = ("Origin", "http://evil.example")
        self.assertIn(other, handed_on([given[0], other], False))

    def test_options(self):
        self.assertEqual(option_of(["m", "-c", "5", "--seed=3"], "--seed"), "3")
        self.assertEqual(option_of(["m", "-c", "5", "--ctx", "6"], "-c", "--ctx"), "6")
        self.assertIsNone(option_of(["m", "-c"], "-c"))


if __name__ == "__main__":
    unittest.main()
