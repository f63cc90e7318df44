// SPDX-License-Identifier: MIT
// A text of any length that looks like what people send: prose, code, scripts without spaces, emoji, numbers. Words are
// drawn by Zipf's law from syllables, so that frequent ones repeat as they do in language and rare ones are new.
#pragma once

#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tinfer::bench {

inline void append_code_point(std::string& out, char32_t c) {
    const auto put = [&](char32_t bits) { out += static_cast<char>(static_cast<unsigned char>(bits)); };
    if (c < 0x80) return put(c);
    if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
    if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
    put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

class MixedText {
public:
    explicit MixedText(std::uint32_t seed) : random_(seed) {
        for (int i = 0; i < 20000; ++i) words_.push_back(make_word());
        constexpr std::string_view frequent[] = {"the",  "of",  "and",  "to",   "a",    "in",   "is",    "that", "for",
                                                 "it",   "as",  "was",  "with", "be",   "by",   "on",    "not",  "he",
                                                 "this", "are", "or",   "his",  "from", "at",   "which", "but",  "have",
                                                 "an",   "had", "they", "you",  "were", "their"};
        for (std::size_t i = 0; i < std::size(frequent); ++i) words_[i] = frequent[i];
    }

    std::string prose(std::size_t n) {
        std::string out;
        for (bool begins = true; out.size() < n;) {
            std::string word = zipf_word();
            if (begins) word[0] = static_cast<char>(word[0] - 'a' + 'A');
            out += word;
            begins = random_() % 12 == 0;
            if (random_() % 40 == 0) out += "'s";
            if (begins) out += random_() % 5 == 0 ? ".\n\n" : ". ";
            else out += random_() % 10 == 0 ? ", " : " ";
            if (random_() % 60 == 0) out += std::to_string(random_() % 10000) + " ";
        }
        return out;
    }

    std::string code(std::size_t n) {
        constexpr std::string_view shapes[] = {"if (%s == nullptr) return %s;",
                                               "for (int i = 0; i < %s.size(); ++i) {",
                                               "    %s.push_back(%s[i] * 0x1F);",
                                               "}",
                                               "// %s: %s of the %s",
                                               "auto %s_%s = std::make_unique<%s>(%s, 12.5e-3);",
                                               "\tdef %s(self, %s=None):",
                                               "\t\treturn self.%s(\"%s\")",
                                               "#include <%s/%s.hpp>",
                                               ""};
        std::string out;
        while (out.size() < n) {
            for (std::string_view shape = shapes[random_() % std::size(shapes)]; !shape.empty();) {
                const std::size_t at = shape.find("%s");
                out += shape.substr(0, at);
                if (at == shape.npos) break;
                out += zipf_word();
                shape.remove_prefix(at + 2);
            }
            out += '\n';
        }
        return out;
    }

    /// Chinese and Japanese: the frequent third of 3000 ideographs, kana, full-width punctuation.
    std::string cjk(std::size_t n) {
        std::string out;
        while (out.size() < n) {
            if (const auto kind = random_() % 12; kind < 8) append_code_point(out, 0x4E00 + zipf(3000) * 7 % 20900);
            else if (kind < 11) append_code_point(out, 0x3042 + random_() % 80);
            else append_code_point(out, random_() % 2 == 0 ? 0x3002 : 0xFF0C);
        }
        return out;
    }

    std::string emoji(std::size_t n) {
        std::string out;
        while (out.size() < n) {
            append_code_point(out, 0x1F300 + random_() % 0x2FF);
            if (random_() % 4 == 0) append_code_point(out, 0x200D), append_code_point(out, 0x1F466 + random_() % 4);
            if (random_() % 3 == 0) out += ' ';
        }
        return out;
    }

    std::string numbers(std::size_t n) {
        std::string out;
        while (out.size() < n) {
            out += std::to_string(random_() % 100000000u) + (random_() % 2 == 0 ? "." : ", ");
            if (random_() % 4 == 0)
                out += '2' + std::to_string(random_() % 1000) + "-0" + std::to_string(random_() % 10) + "\n";
        }
        return out;
    }

    /// Half prose, a quarter code, the rest in equal parts, in stretches of a few hundred bytes.
    std::string mixed(std::size_t n) {
        std::string out;
        while (out.size() < n) {
            const std::size_t stretch = 200 + random_() % 800;
            switch (random_() % 12) {
                case 0: out += cjk(stretch); break;
                case 1: out += emoji(stretch / 4); break;
                case 2: out += numbers(stretch); break;
                case 3:
                case 4:
                case 5: out += code(stretch); break;
                default: out += prose(stretch);
            }
            out += '\n';
        }
        return out;
    }

private:
    std::string make_word() {
        constexpr std::string_view syllables[] = {"con", "ter",  "ing", "al", "re",   "en",  "tion", "com", "pro",
                                                  "ver", "ment", "at",  "is", "or",   "an",  "le",   "ri",  "sta",
                                                  "mo",  "de",   "per", "un", "able", "ly",  "est",  "in",  "ur",
                                                  "po",  "li",   "ca",  "th", "sh",   "ous", "ple",  "ed"};
        std::string word;
        for (auto n = 1 + random_() % 4; n > 0; --n) word += syllables[random_() % std::size(syllables)];
        return word;
    }
    /// 0 … n−1, number k with a probability near 1/k.
    std::uint32_t zipf(std::uint32_t n) {
        const double u = static_cast<double>(random_()) * 0x1p-32;
        return static_cast<std::uint32_t>(std::pow(static_cast<double>(n), u)) - 1;
    }
    const std::string& zipf_word() { return words_[zipf(static_cast<std::uint32_t>(words_.size()))]; }

    std::mt19937 random_;
    std::vector<std::string> words_;
};

}  // namespace tinfer::bench
