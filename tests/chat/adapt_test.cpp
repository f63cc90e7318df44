// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "support/golden.hpp"
#include "tinfer/chat_session.hpp"

using namespace tinfer;
using Json = nlohmann::ordered_json;

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
        return Json::parse(file)["template"].get<std::string>();
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
