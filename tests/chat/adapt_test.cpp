// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "support/golden.hpp"
#include "tinfer/chat.hpp"

using namespace tinfer;
using OrderedJson = nlohmann::ordered_json;

namespace {

std::string shown(const ChatTemplate& chat_template, const char* inputs) {
    return chat_template.render(adapt_inputs(capabilities(chat_template), inputs)).text;
}

constexpr const char* kPlain =
    "{% for m in messages %}{% if m.role in ['system', 'tool'] %}{{ raise_exception('no such role') }}{% endif %}"
    "{% if m.content is string %}[{{ m.role }}]{{ m.content }}{% else %}{{ raise_exception('text only') }}{% endif %}"
    "{% endfor %}";

}  // namespace

TEST_CASE("adapting: a system message that a template cannot take stands in front of the user's first one") {
    const ChatTemplate plain{std::string_view(kPlain)};
    const auto able = capabilities(plain);
    CHECK_FALSE(able.system_role);
    CHECK(able.string_content);
    CHECK_FALSE(able.typed_content);
    CHECK_FALSE(able.tools);
    CHECK(shown(plain, R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]})") ==
          "[user]S\nU");
    CHECK(shown(plain, R"({"messages": [{"role": "developer", "content": "S"}, {"role": "user", "content": "U"}]})") ==
          "[user]S\nU");
    CHECK(shown(plain, R"({"messages": [{"role": "system", "content": "S"}]})").empty());
}

TEST_CASE("adapting: parts become a text, and a text a part, as the template needs it") {
    const ChatTemplate plain{std::string_view(kPlain)};
    CHECK(shown(plain, R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
                          {"type": "text", "text": "b"}]}]})") == "[user]a\nb");
    const ChatTemplate typed("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}");
    const auto able = capabilities(typed);
    CHECK(able.typed_content);
    CHECK_FALSE(able.string_content);
    CHECK(shown(typed, R"({"messages": [{"role": "user", "content": "a"}]})") == "a");
}

TEST_CASE("adapting: tools, calls and results are told in words where a template knows of none") {
    const ChatTemplate plain{std::string_view(kPlain)};
    const auto text = shown(plain, R"({"tools": [{"type": "function", "function": {"name": "now"}}], "messages": [
        {"role": "user", "content": "U"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "now", "arguments": {}}}]},
        {"role": "tool", "name": "now", "tool_call_id": "1", "content": "noon"}]})");
    CHECK(text.find("You may call these tools: [{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]") == 6);
    CHECK(text.find("[assistant]{\"tool_calls\":[{\"name\":\"now\",\"arguments\":{}}]}") != text.npos);
    CHECK(text.ends_with("[user]Result of the tool now:\nnoon"));
}

TEST_CASE("adapting: arguments are parsed or written as text, as the template takes them") {
    const ChatTemplate json("{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
                            "{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}{% else %}"
                            "{{ m.content }}{% endif %}{% endfor %}");
    const ChatTemplate text("{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
                            "{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}{% else %}"
                            "{{ m.content }}{% endif %}{% endfor %}");
    CHECK_FALSE(capabilities(json).string_arguments);
    CHECK_FALSE(capabilities(text).object_arguments);
    const char* object = R"({"messages": [{"role": "assistant", "content": "",
        "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}]})";
    const char* written = R"({"messages": [{"role": "assistant", "content": "",
        "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": 1}"}}]}]})";
    CHECK(shown(json, object) == "f {\"a\": 1}");
    CHECK(shown(json, written) == "f {\"a\": 1}");
    CHECK(shown(text, object) == "f {\"a\":1}");
    CHECK(shown(text, written) == "f {\"a\": 1}");
}

TEST_CASE("adapting: several system messages, and late ones, become one where a template takes only the first") {
    const char* strict =  // what Qwen's templates since 3.5 do
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('not first') }}"
        "{% elif m.role not in ['system', 'user', 'assistant'] %}{{ raise_exception('role') }}{% endif %}"
        "[{{ m.role }}]{{ m.content }}{% endfor %}";
    const char* dropping =  // reads the first message apart, and skips others
        "{% if messages[0].role == 'system' %}[system]{{ messages[0].content }}{% endif %}{% for m in messages %}"
        "{% if m.role in ['user', 'assistant'] %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}";
    const char* liberal = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    const char* two = R"({"messages": [{"role": "system", "content": "I"}, {"role": "developer", "content": "B"},
                          {"role": "user", "content": "y"}]})";
    const char* late = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                           {"role": "system", "content": [{"type": "text", "text": "S"}]},
                           {"role": "user", "content": "c"},
                           {"role": "developer", "content": "D"}]})";
    for (const char* source : {strict, dropping}) {
        const ChatTemplate chat_template{std::string_view(source)};
        const auto able = capabilities(chat_template);
        CHECK(able.system_role);
        CHECK_FALSE(able.several_system);
        CHECK_FALSE(able.late_system);
        CHECK(shown(chat_template, two) == "[system]I\n\nB[user]y");
        CHECK(shown(chat_template, late) == "[system]S\n\nD[user]a[assistant]b[user]c");
    }
    const ChatTemplate any{std::string_view(liberal)};
    CHECK(shown(any, two) == "[system]I[system]B[user]y");
    CHECK(shown(any, late) == "[user]a[assistant]b[system]S[user]c[system]D");
    // Only what comes late has to move.
    const ChatTemplate leading("{% set ns = namespace(late=false) %}{% for m in messages %}{% if m.role != 'system' %}"
                               "{% set ns.late = true %}{% elif ns.late %}{{ raise_exception('late') }}{% endif %}"
                               "[{{ m.role }}]{{ m.content }}{% endfor %}");
    CHECK(shown(leading, two) == "[system]I[system]B[user]y");
    CHECK(shown(leading, late) == "[system]S\n\nD[user]a[assistant]b[user]c");
}

TEST_CASE("adapting: a template that fails without `tools` gets a null, and no other does") {
    const char* text = R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]})";
    const ChatTemplate wants{std::string_view("{% if tools is not none %}[{{ tools | tojson }}]{% endif %}"
                                              "{% for m in messages %}{{ m.content }}{% endfor %}")};
    CHECK(capabilities(wants).null_tools);
    CHECK(shown(wants, text) == "su");
    const ChatTemplate only_system{
        // fails in conversations with a system message alone
        std::string_view("{% for m in messages %}{% if m.role == 'system' and tools is not none %}{{ tools | tojson }}"
                         "{% endif %}{{ m.content }}{% endfor %}")};
    CHECK(capabilities(only_system).null_tools);
    CHECK(shown(only_system, text) == "su");
    const ChatTemplate tells{std::string_view("{% if tools is defined %}[tools]{% endif %}"
                                              "{% for m in messages %}{{ m.content }}{% endfor %}")};
    CHECK_FALSE(capabilities(tells).null_tools);
    CHECK(shown(tells, text) == "su");
}

TEST_CASE("adapting: thoughts go to where the template reads them, under whatever name they come") {
    const auto with = [](const std::string& key) {
        return R"({"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "c", ")" + key +
               R"(": "T"}]})";
    };
    for (const std::string shows : {"reasoning_content", "thinking", "reasoning"}) {
        const ChatTemplate chat_template("{% for m in messages %}{% if m." + shows + " %}<{{ m." + shows +
                                         " }}>{% endif %}{{ m.content }}{% endfor %}");
        CHECK(capabilities(chat_template).reasoning_key == shows);
        for (const char* given : {"reasoning_content", "thinking", "reasoning"})
            CHECK(shown(chat_template, with(given).c_str()) == "u<T>c");
    }
    const ChatTemplate parts("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                             "{% for p in m.content %}{% if p.type == 'thinking' %}<{{ p.thinking }}>{% else %}"
                             "{{ p.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}");
    CHECK(capabilities(parts).reasoning_key == "content");
    CHECK(shown(parts, with("reasoning").c_str()) == "u<T>c");
    const ChatTemplate none("{% for m in messages %}{{ m.content }}{% endfor %}");
    CHECK(capabilities(none).reasoning_key.empty());
    CHECK(shown(none, with("thinking").c_str()) == "uc");
}

TEST_CASE("[golden] adapting: gpt-oss gets thoughts handed back, also where its template takes no text beside them") {
    if (test::skip_without_golden()) return;
    std::ifstream file(*test::golden_file("chat/openai-gpt-oss-120b.json"));
    const ChatTemplate chat_template(OrderedJson::parse(file)["template"].get<std::string>());
    const auto able = capabilities(chat_template);
    CHECK(able.reasoning_key == "thinking");
    CHECK_FALSE(able.reasoning_with_content);
    CHECK_FALSE(able.several_system);
    for (const char* content : {"", "I look."}) {
        const std::string inputs =
            std::string(R"({"add_generation_prompt": true, "messages": [
            {"role": "user", "content": "What time?"}, {"role": "assistant", "content": ")") +
            content +
            R"(", "reasoning_content": "SECRETPLAN", "tool_calls": [{"id": "c1", "type": "function",
               "function": {"name": "now", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "12:00"}],
            "tools": [{"type": "function", "function": {"name": "now", "description": "t",
                       "parameters": {"type": "object", "properties": {}}}}]})";
        const std::string text = shown(chat_template, inputs.c_str());
        CHECK(text.find("<|channel|>analysis<|message|>SECRETPLAN") != text.npos);
        if (*content != 0) CHECK(text.find("I look.") != text.npos);
    }
}

TEST_CASE("adapting: what a template can take stays to the byte, and damage is refused") {
    TemplateCapabilities able;
    able.tools = able.tool_calls = able.tool_role = able.typed_content = true;
    const char* inputs =
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"role":"tool","content":"x"}],"z":1})";
    CHECK(adapt_inputs(able, inputs) == inputs);
    for (const char* bad : {"[]", "{}", "{\"messages\": 1}", "{\"messages\": [1]}", "{\"messages\": [{}]}", "{"})
        CHECK_THROWS_AS((void)adapt_inputs(able, bad), Error);
}

TEST_CASE(
    "[golden] adapting: the published templates can what they are known for, and take every conversation of ours") {
    if (test::skip_without_golden()) return;
    const auto source_of = [](const std::filesystem::path& path) {
        std::ifstream file(path);
        return OrderedJson::parse(file)["template"].get<std::string>();
    };
    const auto of = [&](const std::string& name) {
        return capabilities(ChatTemplate(source_of(*test::golden_file("chat/" + name + ".json"))));
    };
    CHECK_FALSE(of("google-gemma-2-2b-it").system_role);
    CHECK_FALSE(of("google-gemma-2-2b-it").tools);
    CHECK(of("Qwen-Qwen2.5-7B-Instruct").tools);
    CHECK(of("Qwen-Qwen2.5-7B-Instruct").parallel_calls);
    CHECK(of("meta-llama-Llama-3.1-8B-Instruct").tools);
    CHECK_FALSE(of("meta-llama-Llama-3.1-8B-Instruct").parallel_calls);
    CHECK(of("mistralai-Mistral-Nemo-Instruct-2407").call_ids);
    CHECK(of("openai-gpt-oss-120b").developer_role);
    CHECK_FALSE(of("microsoft-Phi-3.5-mini-instruct").tools);

    const char* talk =
        R"({"add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "enable_thinking": true,
        "messages": [{"role": "system", "content": "qzsystem"}, {"role": "user",
                     "content": [{"type": "text", "text": "qzuser"}]},
                     {"role": "assistant", "content": "qzanswer"}, {"role": "user", "content": "qzagain"}]})";
    int n = 0;
    for (const auto& path : test::golden_entries("chat")) {
        // One template assigns an attribute of any answer without calls, which the language refuses.
        if (path.extension() != ".json" || path.stem() == "MiroThinker") continue;
        CAPTURE(path.filename().string());
        const ChatTemplate chat_template(source_of(path));
        const auto text = shown(chat_template, talk);
        for (const char* part : {"qzsystem", "qzuser", "qzanswer", "qzagain"}) {
            CAPTURE(part);
            CHECK(text.find(part) != text.npos);
        }
        ++n;
    }
    CHECK(n >= 37);
}
