// SPDX-License-Identifier: MIT
// The library's own templates: their turns, and which published source means which of them.
#include <doctest/doctest.h>

#include <string>

#include "tinfer/chat.hpp"

namespace tinfer::test {
namespace {

constexpr const char* kInputs = R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"},
    {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}], "add_generation_prompt": true})";

}  // namespace

TEST_CASE("chat: built-in formats write turns as published") {
    const struct {
        const char *name, *expected;
    } cases[] = {
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>"
                   "\n<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"},
        {"phi4", "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U<|im_end|><|im_start|>assistant<|"
                 "im_sep|>A<|im_end|><|im_start|>user<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>"},
        {"llama2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A </s>[INST] V [/INST]"},
        {"llama3", "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>"
                   "\n\nU<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user<"
                   "|end_header_id|>\n\nV<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral-v1", " [INST] S\n\nU [/INST] A</s> [INST] V [/INST]"},
        {"mistral-v3", "[INST] S\n\nU[/INST] A</s>[INST] V[/INST]"},
        {"mistral-v3-tekken", "[INST]S\n\nU[/INST]A</s>[INST]V[/INST]"},
        {"mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A</s>[INST] V[/INST]"},
        {"phi3",
         "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"},
        {"gemma", "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>model\nA<end_of_turn>\n<start_of_turn>"
                  "user\nV<end_of_turn>\n<start_of_turn>model\n"},
        {"zephyr", "<|system|>\nS<|endoftext|>\n<|user|>\nU<|endoftext|>\n<|assistant|>\nA<|endoftext|>\n<|user|>\nV<|"
                   "endoftext|>\n<|assistant|>\n"},
        {"deepseek3", "S\n\n<｜User｜>U<｜Assistant｜>A<｜end▁of▁sentence｜><｜User｜>V<｜Assistant｜>"},
        {"vicuna", "S\n\nUSER: U\nASSISTANT: A</s>\nUSER: V\nASSISTANT:"},
        {"command-r",
         "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_"
         "TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|USER_"
         "TOKEN|>V<|END_OF_TURN_TOKEN|><|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
    };
    for (const auto& c : cases) {
        CAPTURE(c.name);
        const auto chat_template = ChatTemplate::built_in(c.name);
        REQUIRE(chat_template);
        CHECK(chat_template->render(kInputs).text == c.expected);
    }
    CHECK_FALSE(ChatTemplate::built_in("no such format"));
}

TEST_CASE("chat: every built-in format renders, and is known by its own text where its marks are unique") {
    for (const std::string_view name : ChatTemplate::built_in_names()) {
        CAPTURE(name);
        const auto chat_template = ChatTemplate::built_in(name);
        REQUIRE(chat_template);
        const std::string text = chat_template->render(kInputs).text;
        for (const char* content : {"U", "A", "V"}) CHECK(text.find(content) != std::string::npos);
    }
    CHECK(ChatTemplate::detect("{{ '<|im_start|>' }}") == "chatml");
    CHECK(ChatTemplate::detect("{{ '<|im_start|>' + role + '<|im_sep|>' }}") == "phi4");
    CHECK(ChatTemplate::detect("<|start_header_id|>x<|end_header_id|>") == "llama3");
    CHECK(ChatTemplate::detect("[INST] <<SYS>>") == "llama2");
    CHECK(ChatTemplate::detect("<start_of_turn>") == "gemma");
    CHECK(ChatTemplate::detect("plain text").empty());
}

}  // namespace tinfer::test
