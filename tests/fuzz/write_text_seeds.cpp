// SPDX-License-Identifier: MIT
// Writes seeds for the targets about text into folders below the one given: small vocabularies of each algorithm
// (vocab, for fuzz_vocab), texts that pre-tokenizers and byte fallback find interesting (text, for fuzz_tokenize), JSON
// (json), chat templates with inputs (template, template_inputs), and large numbers (template_numbers).
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "tokenizer/vocab_support.hpp"

namespace {

using tinfer::test::GgufWriter;

/// Every flag and id that a vocabulary may state.
GgufWriter with_flags(GgufWriter w) {
    for (const char* flag : {"add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix"})
        w.set(std::string("tokenizer.ggml.") + flag, true);
    std::uint32_t id = 3;
    for (const char* role : {"unknown", "separator", "padding", "mask", "eot", "eom", "fim_pre", "fim_suf", "fim_mid",
                             "fim_pad", "fim_rep", "fim_sep"})
        w.set(std::string("tokenizer.ggml.") + role + "_token_id", id++);
    return w;
}

void write_vocabularies(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    tinfer::test::small_spm(true).save(folder / "spm");
    tinfer::test::small_spm(false).save(folder / "spm-without-bytes");
    with_flags(tinfer::test::small_spm(true)).save(folder / "spm-flags");
    for (const char* name : {"gpt-2", "llama-bpe", "deepseek-llm", "kimi-k2", "superbpe"})
        tinfer::test::small_bpe(name).save(folder / ("bpe-" + std::string(name)));
    with_flags(tinfer::test::small_bpe("qwen2")).save(folder / "bpe-flags");
    tinfer::test::small_bpe("gemma4").save(folder / "bpe-plain");
    tinfer::test::small_wordpiece().save(folder / "wordpiece");
    tinfer::test::small_unigram().save(folder / "unigram");
    with_flags(tinfer::test::small_unigram()).save(folder / "unigram-flags");
    tinfer::test::small_rwkv().save(folder / "rwkv");
    tinfer::test::small_plamo2().save(folder / "plamo2");
    GgufWriter().kv("general.architecture", "llama").kv("tokenizer.ggml.model", "no_vocab").save(folder / "none");
}

void write_each(const std::filesystem::path& folder, std::span<const std::string_view> texts) {
    std::filesystem::create_directories(folder);
    int n = 0;
    for (const std::string_view text : texts)
        std::ofstream(folder / std::to_string(++n), std::ios::binary)
            .write(text.data(), static_cast<std::streamsize>(text.size()));
}

void write_texts(const std::filesystem::path& folder) {
    constexpr std::string_view texts[] = {
        "hello world, hello hello! It's 12345.678 o'clock; we'LL've\n\n\t x  y   ",
        "<s>hello</s><unk><|endoftext|><0x41><|im_start|>",
        "Grüße aus Köln, naïve café, Ελληνικά, Русский язык ещё, עברית, العربية",
        "中文字符，日本語のテキスト、カタカナ 한국어 텍스트 ไทย हिन्दी",
        "👩‍👩‍👧‍👦 👍🏽 🇩🇪 e\xCC\x81\xCC\xA3 \xEF\xBB\xBF\xE2\x80\x8B\xC2\xA0\xE2\x96\x81 "
        "①²½",
        "\xFF\xFE\x80 \xC3 \xE2\x96 \xF0\x9F\x91 \xED\xA0\x80 \xF4\x90\x80\x80 \xC0\x80",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "for (int i = 0; i < n; ++i) { sum += x[i] * 0x1F; }  // \\path\\to \"quoted\"\r\n\r\n#include <a.h>\n",
    };
    write_each(folder, texts);
}

void write_json(const std::filesystem::path& folder) {
    constexpr std::string_view texts[] = {
        R"({"model":"tiny","messages":[{"role":"user","content":"Gr\u00fc\u00dfe \ud83e\udd8a\n"}],)"
        R"("temperature":0.80,"seed":42,"stream":true})",
        R"([0,-0,1.5,-2.50e+3,1e-400,123456789012345678901234567890,true,false,null,"",[],{},[[[[]]]]])",
        R"({"a":1,"b":{"a":2,"":3},"a":4,"list":[{"x":"y"},{"x":"\"\\\/\b\f\r\t"}]})",
        "  {\n\t\"key\" : [ 1 , 2 ] ,\r\n \"\xC3\xA4\": \"\xE2\x82\xAC\xF0\x9F\xA6\x8A\x7F\" }  \n",
        "[1,]",
        "{\"a\"}",
        "\"\\ud800\"",
        "\"\xED\xA0\x80\"",
        "01",
        "1e999",
        "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    };
    write_each(folder, texts);
}

void write_templates(const std::filesystem::path& templates, const std::filesystem::path& inputs) {
    constexpr std::string_view sources[] = {
        "{% for m in messages %}<|{{ m.role }}|>\n{{ m['content'] | trim }}{% if not loop.last %}\n{% endif %}{% "
        "endfor %}",
        "{%- set ns = namespace(a=1, b=[]) -%}{%- for i in range(3) %}{% set ns.a = ns.a + i %}{{ ns.a }}{% endfor %}",
        "{% macro f(a, b='x') %}{{ a ~ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{% call f(2, b=3) %}c{% "
        "endcall %}",
        "{{ tools | tojson(indent=2) }}{{ x[::-1] }}{{ x | sort | map('string') | join(', ') }}{{ "
        "s.split(',')[0].upper() }}",
        "{{ '%5.2f|%-4s' % (f, n) }}{{ '{:>8}{}'.format(s, n) }}{{ n // 2 ** 2 % 3 }}{{ strftime_now('%Y-%j') }}",
        "{% if s is string and n is not none %}a{% elif x is sequence %}b{% else %}c{% endif %}{% raw %}{{ }}{% endraw "
        "%}{# c #}",
        "{% set q %}{{ s }}{% endset %}{% filter indent(2, true) %}{{ q }}{% endfilter %}{{ x | batch(2, 0) | list "
        "}}{{ messages | groupby('role') }}",
    };
    constexpr std::string_view documents[] = {
        R"({"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": null,)"
        R"( "tool_calls": [{"id": "1"}]}], "tools": [1, 2.5e3, "\u00fc\ud83d\ude00"]})",
        R"({"messages": [{"role": "tool", "content": [{"type": "text", "text": "a\nb"}]}], "documents": ["b", "a"],)"
        R"( "tools": {"k": {"l": [true, false, null]}}})",
    };
    write_each(templates, sources);
    write_each(inputs, documents);
}

/// One for each number of arguments, each operation being near one of them: large and small, at their edges.
void write_numbers(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    for (std::uint8_t n = 0; n < 5; ++n)
        for (std::uint8_t k = 0; k < 16; ++k) {
            std::string seed{static_cast<char>(k * 16), static_cast<char>(n % 2), static_cast<char>(k),
                             static_cast<char>(n)};
            for (std::uint8_t i = 0; i < n; ++i) {
                seed += static_cast<char>(i + k);
                seed += k % 2 == 0 ? std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 8)
                                   : std::string("\0\0\0\0\0\0\0\x80", 8);
            }
            std::ofstream(folder / (std::to_string(n) + "-" + std::to_string(k)), std::ios::binary) << seed;
        }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    const std::filesystem::path folder = argv[1];
    write_vocabularies(folder / "vocab");
    write_texts(folder / "text");
    write_templates(folder / "template", folder / "template_inputs");
    write_numbers(folder / "template_numbers");
    write_json(folder / "json");
}
