// SPDX-License-Identifier: MIT
#include "chat/built_in.hpp"

#include <algorithm>
#include <array>
#include <span>

namespace tinfer::chat {
namespace {

struct BuiltIn {
    std::string_view name, source;
};

// "<|role|>" formats differ in the separators between role, text and the next turn.
constexpr std::array kBuiltIn = std::to_array<BuiltIn>({
    {"chatml", "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
    {"phi4", "{% for m in messages %}<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>{% endfor %}"
             "{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"},
    {"mistral-v7",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT]"
     "{% elif m.role == 'user' %}[INST] {{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token or '</s>' }}{% "
     "endif %}{% endfor %}"},
    {"mistral-v1", "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
                   "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\n\n' %}"
                   "{% elif m.role == 'user' %} [INST] {{ ns.system ~ m.content }} [/INST]{% set ns.system = '' %}"
                   "{% else %} {{ m.content }}{{ eos_token or '</s>' }}{% endif %}{% endfor %}"},
    {"mistral-v3", "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
                   "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\n\n' %}"
                   "{% elif m.role == 'user' %}[INST] {{ ns.system ~ m.content }}[/INST]{% set ns.system = '' %}"
                   "{% else %} {{ m.content|trim }}{{ eos_token or '</s>' }}{% endif %}{% endfor %}"},
    {"mistral-v3-tekken", "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
                          "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\n\n' %}"
                          "{% elif m.role == 'user' %}[INST]{{ ns.system ~ m.content }}[/INST]{% set ns.system = '' %}"
                          "{% else %}{{ m.content }}{{ eos_token or '</s>' }}{% endif %}{% endfor %}"},
    {"llama2",
     "{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = '<<SYS>>\n' ~ m.content ~ '\n<</SYS>>\n\n' %}"
     "{% elif m.role == 'user' %}{{ bos_token }}[INST] {{ ns.system ~ m.content }} [/INST]{% set ns.system = '' %}"
     "{% else %} {{ m.content }} {{ eos_token or '</s>' }}{% endif %}{% endfor %}"},
    {"phi3", "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
             "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"falcon3", "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}\n{% endfor %}"
                "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"zephyr", "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|endoftext|>\n{% endfor %}"
               "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"monarch",
     "{% for m in messages %}{{ bos_token }}{{ m.role }}\n{{ m.content }}{{ eos_token or '</s>' }}\n{% endfor %}"
     "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content|trim ~ '\n\n' %}"
     "{% else %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ ns.system ~ m.content|trim "
     "}}<end_of_turn>\n"
     "{% set ns.system = '' %}{% endif %}{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"},
    {"openchat", "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}<|end_of_turn|>"
                 "{% else %}GPT4 Correct {{ m.role|title }}: {{ m.content }}<|end_of_turn|>{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}GPT4 Correct Assistant:{% endif %}"},
    {"vicuna", "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n{% elif m.role == 'user' %}USER: "
               "{{ m.content }}\n"
               "{% else %}ASSISTANT: {{ m.content }}{{ eos_token or '</s>' }}\n{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}ASSISTANT:{% endif %}"},
    {"vicuna-orca", "{% for m in messages %}{% if m.role == 'system' %}SYSTEM: {{ m.content }}\n{% elif m.role == "
                    "'user' %}USER: {{ m.content }}\n"
                    "{% else %}ASSISTANT: {{ m.content }}{{ eos_token or '</s>' }}\n{% endif %}{% endfor %}"
                    "{% if add_generation_prompt %}ASSISTANT:{% endif %}"},
    {"deepseek",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}"
     "{% elif m.role == 'user' %}### Instruction:\n{{ m.content }}\n{% else %}### Response:\n{{ m.content }}\n<|EOT|>\n"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"},
    {"deepseek2",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n"
     "{% elif m.role == 'user' %}User: {{ m.content }}\n\n{% else %}Assistant: {{ m.content }}<｜end▁of▁sentence｜>"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"},
    {"deepseek3",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}\n\n"
     "{% elif m.role == 'user' %}<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"},
    {"command-r", "{{ bos_token }}{% for m in messages %}<|START_OF_TURN_TOKEN|>"
                  "{{ {'system': '<|SYSTEM_TOKEN|>', 'user': '<|USER_TOKEN|>'}.get(m.role, '<|CHATBOT_TOKEN|>') }}{{ "
                  "m.content|trim }}"
                  "<|END_OF_TURN_TOKEN|>{% endfor %}{% if add_generation_prompt "
                  "%}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}"},
    {"llama3", "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ "
               "m.content|trim }}<|eot_id|>{% endfor %}"
               "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"},
    {"chatglm3", "[gMASK]sop{% for m in messages %}<|{{ m.role }}|>\n {{ m.content }}{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>{% endif %}"},
    {"chatglm4", "[gMASK]<sop>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
                 "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"},
    {"minicpm", "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<用户>{{ m.content|trim }}<AI>{% else "
                "%}{{ m.content|trim }}{% endif %}"
                "{% endfor %}"},
    {"exaone3", "{% for m in messages %}[|{{ m.role }}|]{{ m.content|trim }}{{ '[|endofturn|]' if m.role != 'user' "
                "}}\n{% endfor %}"
                "{% if add_generation_prompt %}[|assistant|]{% endif %}"},
    {"granite",
     "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end_of_text|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"},
});

/// Matches a template whose source contains all marks of `all` and, if given, `any`.
struct Detection {
    std::string_view name;
    std::array<std::string_view, 3> all;
};

// In order: the first match wins.
constexpr std::array kDetections = std::to_array<Detection>({
    {"phi4", {"<|im_start|>", "<|im_sep|>"}},
    {"chatml", {"<|im_start|>"}},
    {"mistral-v7", {"[INST]", "[SYSTEM_PROMPT]"}},
    {"mistral-v1", {"[INST]", "' [INST] ' + system_message"}},
    {"mistral-v3-tekken", {"[INST]", "[AVAILABLE_TOOLS]", "\"[INST]\""}},
    {"mistral-v3", {"[INST]", "[AVAILABLE_TOOLS]"}},
    {"llama2", {"[INST]"}},
    {"phi3", {"<|assistant|>", "<|end|>"}},
    {"falcon3", {"<|assistant|>", "<|user|>", "</s>"}},
    {"zephyr", {"<|user|>", "<|endoftext|>"}},
    {"monarch", {"bos_token + message['role']"}},
    {"gemma", {"<start_of_turn>"}},
    {"openchat", {"GPT4 Correct "}},
    {"vicuna-orca", {"USER: ", "ASSISTANT: ", "SYSTEM: "}},
    {"vicuna", {"USER: ", "ASSISTANT: "}},
    {"deepseek", {"### Instruction:", "<|EOT|>"}},
    {"command-r", {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}},
    {"llama3", {"<|start_header_id|>", "<|end_header_id|>"}},
    {"chatglm3", {"[gMASK]sop"}},
    {"chatglm4", {"[gMASK]<sop>"}},
    {"minicpm", {"<用户>"}},
    {"deepseek2", {"'Assistant: ' + message['content'] + eos_token"}},
    {"deepseek3", {"<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"}},
    {"exaone3", {"[|system|]", "[|assistant|]", "[|endofturn|]"}},
    {"granite", {"<|start_of_role|>"}},
});

}  // namespace

std::string_view built_in_source(std::string_view name) noexcept {
    const auto it = std::ranges::find(kBuiltIn, name, &BuiltIn::name);
    return it != kBuiltIn.end() ? it->source : std::string_view();
}

std::vector<std::string_view> built_in_names() {
    std::vector<std::string_view> out;
    for (const BuiltIn& row : kBuiltIn) out.push_back(row.name);
    return out;
}

std::string_view detect_built_in(std::string_view source) noexcept {
    for (const Detection& row : kDetections)
        if (std::ranges::all_of(row.all, [&](std::string_view mark) { return source.find(mark) != source.npos; }))
            return row.name;
    return {};
}

}  // namespace tinfer::chat
