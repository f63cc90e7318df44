# SPDX-License-Identifier: MIT
"""Thoughts, texts and calls in every mixture, through the official clients: what they make of a stream is the whole
answer. A grammar makes the model write each answer. Run by clients_test.py in the environment with the clients."""
import itertools
import json
import unittest

import anthropic
import openai

from server_support import FOLDER, Server

TEMPLATE = FOLDER / "thinks.jinja"
TEMPLATE.write_text("""{%- if tools %}<|im_start|>system
You may call functions, in <tools></tools>:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call give a JSON object within <tool_call></tool_call>:
<tool_call>
{"name": <name>, "arguments": <arguments>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == "assistant" and message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}""")

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"],
          "additionalProperties": False}
NAMES = ["sea", "sky"]


def call(name):
    return f'<tool_call>\n{{"name": "look", "arguments": {{"at": "{name}"}}}}\n</tool_call>'


def answers():
    """What a model may write, with what it thought, said and called."""
    for thinks, first, n_calls, between in itertools.product([False, True], [False, True], range(3), [False, True]):
        if between and not n_calls:
            continue
        text = ("so it is\n" if thinks else "") + "</think>\n\n" + ("Hello é.\n" if first else "")
        for i in range(n_calls):
            text += call(NAMES[i]) + "\n" + ("and then\n" if between else "")
        said = [*(["Hello é."] if first else []), *(["and then"] * n_calls if between else [])]
        yield text.rstrip("\n"), "so it is" if thinks else None, said, NAMES[:n_calls]


def literal(text):
    return "root ::= " + json.dumps(text)


def plain(value):
    return value.model_dump(exclude={"id", "created", "created_at", "timings", "parsed_output"})


def words(texts):
    return " ".join(" ".join(texts).split())


class Streams(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--parallel", 2, "-c", 4096, "--any-model", "--chat-template-file", TEMPLATE)
        cls.openai = openai.OpenAI(base_url=cls.server.address + "/v1", api_key="none", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.address, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def each(self):
        found = list(answers())
        self.assertEqual(len(found), 20)
        for text, *parts in found:
            with self.subTest(text=text):
                yield {"grammar": literal(text), "temperature": 0}, *parts

    def test_v13_messages(self):  # [V13]
        """the message that the client of /v1/messages accumulates is the whole one, part for part"""
        tool = {"name": "look", "input_schema": SCHEMA}
        for extra, thought, said, called in self.each():
            ask = dict(model="m", max_tokens=400, messages=[{"role": "user", "content": "Hi"}], tools=[tool],
                       extra_body=extra)
            whole = self.anthropic.messages.create(**ask)
            self.assertEqual(whole.stop_reason, "tool_use" if called else "end_turn")
            self.assertEqual(words(b.text for b in whole.content if b.type == "text"), words(said))
            self.assertEqual([b.input["at"] for b in whole.content if b.type == "tool_use"], called)
            self.assertEqual([b.thinking for b in whole.content if b.type == "thinking"], [thought] if thought else [])
            with self.anthropic.messages.stream(**ask) as stream:
                streamed = "".join(stream.text_stream)
                final = stream.get_final_message()
            self.assertEqual([plain(b) for b in final.content], [plain(b) for b in whole.content])
            self.assertEqual(streamed, "".join(b.text for b in whole.content if b.type == "text"))
            self.assertEqual((final.stop_reason, final.usage.output_tokens),
                             (whole.stop_reason, whole.usage.output_tokens))

    def test_v13_responses(self):  # [V13]
        """the same of /v1/responses, by the deltas of each item and by the last event"""
        tool = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": True}
        for extra, thought, said, called in self.each():
            ask = dict(model="m", max_output_tokens=400, input="Hi", tools=[tool], extra_body=extra)
            whole = self.openai.responses.create(**ask)
            self.assertEqual([json.loads(o.arguments)["at"] for o in whole.output if o.type == "function_call"], called)
            self.assertEqual(words(o.content[0].text for o in whole.output if o.type == "message"), words(said))
            found, numbers = {}, []
            with self.openai.responses.stream(**ask) as stream:
                for event in stream:
                    numbers.append(event.sequence_number)
                    if event.type.endswith(".delta"):
                        found[event.output_index] = found.get(event.output_index, "") + event.delta
                final = stream.get_final_response()
            self.assertEqual(numbers, list(range(len(numbers))))
            self.assertEqual([o.type for o in final.output], [o.type for o in whole.output])
            texts = [o.arguments if o.type == "function_call" else o.content[0].text for o in whole.output]
            self.assertEqual([found.get(i, "") for i in range(len(texts))], texts)
            self.assertEqual([(o.name, o.arguments) if o.type == "function_call" else o.content[0].text
                              for o in final.output],
                             [(o.name, o.arguments) if o.type == "function_call" else o.content[0].text
                              for o in whole.output])

    def test_v1_chat(self):  # [V1]
        """the same of chat completions"""
        tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA, "strict": True}}
        for extra, thought, said, called in self.each():
            ask = dict(model="m", max_tokens=400, messages=[{"role": "user", "content": "Hi"}], tools=[tool],
                       extra_body=extra)
            whole = self.openai.chat.completions.create(**ask).choices[0]
            self.assertEqual(getattr(whole.message, "reasoning_content", None), thought)
            self.assertEqual([json.loads(c.function.arguments)["at"] for c in whole.message.tool_calls or []], called)
            with self.openai.chat.completions.stream(**ask) as stream:
                for _ in stream:
                    pass
                final = stream.get_final_completion().choices[0]
            self.assertEqual(final.finish_reason, whole.finish_reason)
            self.assertEqual(final.message.content or "", whole.message.content or "")
            self.assertEqual(getattr(final.message, "reasoning_content", None), thought)
            self.assertEqual([(c.id, c.function.name, c.function.arguments) for c in final.message.tool_calls or []],
                             [(c.id, c.function.name, c.function.arguments) for c in whole.message.tool_calls or []])

    def test_v13_cut(self):  # [V13]
        """what max_tokens cuts is incomplete, and so is its last item"""
        ask = dict(model="m", max_output_tokens=30, input="Hi",
                   extra_body={"grammar": literal("</think>\n\n" + "word " * 40), "temperature": 0})
        whole = self.openai.responses.create(**ask)
        self.assertEqual((whole.status, whole.output[-1].status), ("incomplete", "incomplete"))
        *_, last = self.openai.responses.create(**ask, stream=True)
        self.assertEqual((last.type, last.response.output[-1].status), ("response.incomplete", "incomplete"))

    def test_v13_stop_sequence(self):  # [V13]
        """which string ended a message, whole and as a stream"""
        ask = dict(model="m", max_tokens=100, messages=[{"role": "user", "content": "Hi"}],
                   stop_sequences=["never", "END"],
                   extra_body={"grammar": literal("</think>\n\none END two"), "temperature": 0})
        whole = self.anthropic.messages.create(**ask)
        self.assertEqual((whole.stop_reason, whole.stop_sequence), ("stop_sequence", "END"))
        with self.anthropic.messages.stream(**ask) as stream:
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, final.stop_sequence), ("stop_sequence", "END"))
        self.assertEqual(final.content[0].text.strip(), whole.content[0].text.strip())

    def test_v13_cached_tokens(self):  # [V13]
        """the first event of a message counts cached tokens as the last one does"""
        ask = dict(model="m", max_tokens=4, messages=[{"role": "user", "content": "the one " * 60}])
        self.anthropic.messages.create(**ask)
        events = list(self.anthropic.messages.create(**ask, stream=True))
        first, last = events[0].message.usage, events[-2].usage
        self.assertGreater(first.cache_read_input_tokens, 0)
        self.assertEqual((first.input_tokens, first.cache_read_input_tokens),
                         (last.input_tokens, last.cache_read_input_tokens))
        total = self.anthropic.messages.count_tokens(model="m", messages=ask["messages"]).input_tokens
        self.assertEqual(first.input_tokens + first.cache_read_input_tokens, total)


if __name__ == "__main__":
    unittest.main()
