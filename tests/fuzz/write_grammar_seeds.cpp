// SPDX-License-Identifier: MIT
// Seeds of the fuzz targets of grammars, schemas, constraints, answers and inputs of chats.
#include <filesystem>
#include <string>
#include <string_view>

#include "chat/tool_format.hpp"
#include "fuzz/seed_folder.hpp"
#include "support/family_template.hpp"
#include "tinfer/chat.hpp"

namespace {

using Folder = tinfer::test::SeedFolder;

void write_grammars(Folder out) {
    for (const char* text : {
             "root ::= \"a\" | [b-d]+ \"\\n\"\r\n# comment\n",
             "root ::= item{2,5} (\",\" item)* ws\nitem ::= [^\\x00-\\x1F\"\\u4e00-\\U0001F600]\nws ::= [ \\t]?\n",
             "root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= \"(\" expr \")\" | [0-9]{1,}\n",
             "root ::= .* \"\\\"\\\\\\[\\]\" | <[12]> !<[13]>\nroot ::= \"twice\"\n",
             "a ::= b \"x\"\nb ::= a? \"y\"\nroot ::= a\n",
             "root ::= ((((\"a\"?)*)+)){0,3} | \n  \"b\"\n",
         })
        out.add(text);
}

void write_schemas(Folder out) {
    for (const char* text : {
             R"({"type":"object","properties":{"a":{"type":"integer","minimum":-2,"maximum":30},"b":{"enum":["x",)"
             R"("yy",1]}},"required":["a"],"additionalProperties":false})",
             R"({"type":["array","null"],"items":{"type":"string","minLength":1,"maxLength":3},"minItems":1,)"
             R"("maxItems":3})",
             R"({"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},)"
             R"("additionalProperties":false}},"$ref":"#/$defs/n"})",
             R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":2}],"not":{"multipleOf":3}})",
             R"({"anyOf":[{"pattern":"^(?!ab)[a-c]{2,}$"},{"format":"date"},{"const":{"k":[1,null]}}],)"
             R"("type":["string","object"]})",
             R"({"patternProperties":{"^x":{"type":"number"}},"propertyNames":{"maxLength":2},"minProperties":1,)"
             R"("maxProperties":2,"type":"object"})",
             R"({"if":{"properties":{"k":{"const":1}},"required":["k"]},"then":{"required":["v"]},)"
             R"("else":{"maxProperties":1},"type":"object"})",
             R"({"type":"array","prefixItems":[{"type":"boolean"}],"contains":{"const":2},"minContains":1,)"
             R"("maxContains":2,"unevaluatedItems":{"type":"integer"},"maxItems":4})",
             R"({"dependentRequired":{"a":["b"]},"dependentSchemas":{"c":{"required":["d"]}},)"
             R"("unevaluatedProperties":false,"properties":{"a":true,"b":true,"c":true,"d":{"type":"null"}}})",
             R"({"$id":"http://x.org/a","properties":{"p":{"$id":"b","$anchor":"q","type":"null"},)"
             R"("r":{"$ref":"b#q"},"s":{"$dynamicRef":"#t"}},"$dynamicAnchor":"t","type":"object"})",
             R"({"not":{"additionalProperties":{"type":"string"},"propertyNames":{"pattern":"^a"}},"type":"object"})",
             R"({"type":"number","multipleOf":0.25,"exclusiveMinimum":0,"exclusiveMaximum":1.5e1})",
             R"({"type":"array","uniqueItems":true,"items":{"enum":[1,2,"a"]}})",
         })
        out.add(text);
}

void write_matches(Folder out) {
    for (char grammar = 0; grammar < 8; ++grammar) {
        std::string text(1, grammar);
        for (int i = 0; i < 60; ++i) text += static_cast<char>(i * 37 % 247 + (i % 9 == 8 ? 1 : 0));
        text += "\xFA\xFB\xF9\x11\x22\xF8\x33\xFE\x44";
        out.add(text);
    }
}

void write_answers(Folder out) {
    // For each family the call that its own template writes, and the marks that it is recognized by.
    const auto& rows = tinfer::chat::tool_formats();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::string begin{static_cast<char>(i), static_cast<char>(i * 16)};
        const std::string answer =
            tinfer::ChatTemplate(tinfer::test::family_template(rows[i]))
                .render(R"({"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefghi", "type":
                    "function", "function": {"name": "now", "arguments": {"city": "x", "days": 3}}}]}]})")
                .text;
        out.add(begin + "<think>a</think>" + answer);
        std::string text = begin + "<think>a</think>Let me see.\n";
        for (const auto& mark : rows[i].found_by)
            text += std::string(mark) + "{\"name\": \"now\", \"arguments\": {\"city\": \"x\"}}";
        out.add(text);
    }
    for (const char* text : {
             "<tool_call>\n{\"name\": \"now\", \"arguments\": {\"city\": \"a } b\"}}\n</tool_call>",
             "<tool_call>\n<function=now>\n<parameter=city>\n12\n</parameter>\n</function>\n</tool_call>",
             "<|python_tag|>brave_search.call(query=\"a 'b'\", n=2)",
             "[TOOL_CALLS][{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefghi\"}]",
             "[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{\"city\": \"Paris\"}",
             "<function=now>{\"city\": \"Paris\"}</function>",
             ">>>all\nLooking.\n>>>now\n{\"city\": \"Paris\"}",
             "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
             "<tool_call>now\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>",
             "<|tool_call_start|>[now(city='it\\'s', days=3)]<|tool_call_end|>Done",
             "<|tool_call>call:now{city:<|\"|>P, {a}<|\"|>,days:3,o:{k:null}}<tool_call|>",
             "<minimax:tool_call>\n<invoke name=\"now\">\n<parameter "
             "name=\"city\">Paris</parameter>\n</invoke>\n</minimax:tool_call>",
             "{\"tool_calls\": [{\"name\": \"now\", \"arguments\": {}}]}",
         })
        for (char family = 0; family < 24; family = static_cast<char>(family + 5))
            out.add(std::string{family, '\x23'} + text);
}

void write_inputs(Folder out) {
    for (const char* bits : {"\x01\x01", "\xFF\xFF", "\x56\x0A"})
        for (const char* text : {
                 R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",)"
                 R"("text":"a"},{"type":"image"}]}]})",
                 R"({"messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"},)"
                 R"({"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function",)"
                 R"("function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"1",)"
                 R"("content":"r"}],"tools":[{"type":"function","function":{"name":"f",)"
                 R"("parameters":{"type":"object"}}}]})",
                 R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"g",)"
                 R"("arguments":{"x":[1]}}},{"function":{"name":"h","arguments":""}}]}],"add_generation_prompt":true})",
             })
            out.add(std::string(bits) + text);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const std::filesystem::path folder = argv[1];
    write_grammars(Folder(folder / "grammar"));
    write_schemas(Folder(folder / "schema"));
    write_matches(Folder(folder / "matcher"));
    write_answers(Folder(folder / "answer"));
    write_inputs(Folder(folder / "adapt"));
    return 0;
}
