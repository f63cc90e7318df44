// SPDX-License-Identifier: MIT
#include "tokenizer/pretokenizer_table.hpp"

#include <algorithm>

namespace tinfer::tokenizer {

namespace {

// gpt2: Contractions are case sensitive here.
constexpr std::string_view kGpt2[] = {
    R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re",
};

// llama3: Published with (?i:…) around the contractions; a Unicode case-insensitive s would also match U+017F.
constexpr std::string_view kLlama3[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// qwen2: llama3 with single digits.
constexpr std::string_view kQwen2[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// qwen35: qwen2 with marks joined to letters.
constexpr std::string_view kQwen35[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// starcoder: Digits one by one, then gpt2.
constexpr std::string_view kStarcoder[] = {
    R"re(\p{N})re",
    R"re(%G%)re",
};

// falcon: Punctuation runs, gpt2, then ASCII digits in groups of three from the left.
constexpr std::string_view kFalcon[] = {
    R"re([\p{P}\$\+<=>\^~\|`]+)re",
    R"re(%G%)re",
    R"re([0-9][0-9][0-9])re",
};

// default: For files that name none. The first class has no back-tick, unlike falcon.
constexpr std::string_view kDefault[] = {
    R"re([\p{P}\$\+<=>\^~\|]+)re",
    R"re(%G%)re",
    R"re(\p{N}+)re",
    R"re([0-9][0-9][0-9])re",
};

// deepseek-llm: Expression 2 lists the cased letters of Latin, Greek, Cyrillic and similar scripts. Expression 4 is the
// published `\s+$`: a match can only begin where a whitespace run begins, and saying so keeps the search linear.
constexpr std::string_view kDeepseekLlm[] = {
    R"re([\r\n])re",
    R"re(\s?[A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF})re"
    R"re(\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D}\x{037F}\x{0386})re"
    R"re(\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5}\x{03F7}-\x{0481}\x{048A}-\x{052F})re"
    R"re(\x{0531}-\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA})re"
    R"re(\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})re"
    R"re(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D})re"
    R"re(\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC})re"
    R"re(\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})re"
    R"re(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134})re"
    R"re(\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4})re"
    R"re(\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787})re"
    R"re(\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A})re"
    R"re(\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})re"
    R"re(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)re",
    R"re(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re",
    R"re((?<!\s)\s+$)re",
    R"re([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re",
    R"re(\p{N}+)re",
};

constexpr std::string_view kDeepseekCoder[] = {
    R"re([\r\n])re",    R"re(\s?\p{L}+)re",
    R"re(\s?\p{P}+)re", R"re([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re",
    R"re(\p{N})re",
};

constexpr std::string_view kDeepseekV3[] = {
    R"re(\p{N}{1,3})re",
    R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
    R"re(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

constexpr std::string_view kTekken[] = {
    R"re([^\r\n\p{L}\p{N}]?%U%*%W%+|[^\r\n\p{L}\p{N}]?%U%+%W%*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)re"
    R"re(|\s+(?!\S)|\s+)re",
};

constexpr std::string_view kGpt4o[] = {
    R"re([^\r\n\p{L}\p{N}]?%U%*%W%+%C%?|[^\r\n\p{L}\p{N}]?%U%+%W%*%C%?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// tiny_aya: Digit runs that end at a word boundary are grouped in threes from the right. The boundary is written out
// because PCRE2 counts digits such as U+00B2 as word characters, unlike the engine for which the expression was
// published.
constexpr std::string_view kTinyAya[] = {
    R"re(\d{1,3}(?=(?:\d{3})*(?![\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])))re",
    R"re([^\r\n\p{L}\p{N}]?%U%*%W%+%C%?|[^\r\n\p{L}\p{N}]?%U%+%W%*%C%?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// kimi-k2: Published with class intersection, %U%&&[^\p{Han}]. A class that excludes all other categories and Han is
// equivalent; so would be a lookahead before each character, but that needs memory for each one of a run.
constexpr std::string_view kKimiK2[] = {
    R"re(\p{Han}+)re"
    R"re(|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*)re"
    R"re([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+%C%?)re"
    R"re(|[^\r\n\p{L}\p{N}]?[^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]+)re"
    R"re([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{Han}]*%C%?)re"
    R"re(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// superbpe: The second expression is zero-width: it cuts before each group of three digits counted from the right.
constexpr std::string_view kSuperbpe[] = {
    R"re(\p{N}+)re",
    R"re((?=(\d{3})+(?!\d)))re",
};

constexpr std::string_view kBailingmoe[] = {
    R"re('(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*)re"
    R"re(|\s*[\r\n]|\s+(?!\S)|\s+)re",
};

constexpr std::string_view kSeedCoder[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// afmoe: Digit runs in groups of three from the right, runs of scripts without spaces, then deepseek-v3.
constexpr std::string_view kAfmoe[] = {
    R"re(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))re",
    R"re([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})re"
    R"re(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF})re"
    R"re(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)re",
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)re"
    R"re(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// exaone-moe: Published as (?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+, which has only one possible match: a possessive
// repetition finds it without memory for each word.
constexpr std::string_view kExaoneMoe[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*+(?: ?\p{L}\p{M}*+)*+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n])re"
    R"re(|\s+(?!\S)|\s+)re",
};

constexpr std::string_view kYoutu[] = {
    R"re([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014})re"
    R"re(\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|[\x{4E00}-\x{9FA5})re"
    R"re(\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re",
    R"re([^\r\n\p{L}\p{N}]?%U%*%W%+%C%?|[^\r\n\p{L}\p{N}]?%U%+%W%*%C%?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)re"
    R"re(|\s*[\r\n]+|\s+(?!\S)|\s+)re",
};

// jais-2: Whitespace runs are cut by descending powers of two. After such a cut the run has no line break, or
// \s*[\r\n]+ would have matched; the lookbehind avoids searching the rest of the run for one again at every cut.
constexpr std::string_view kJais2[] = {
    R"re(%C%|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)re"
    R"re(|(?<![^\S\r\n])\s*[\r\n]+|\s{512}(?!\S))re"
    R"re(|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))re"
    R"re(|\s{1,2}(?!\S)|\s{1})re",
};

// bloom: Published with a nested set [^(\s|[.,…])]; the parentheses and the bar are literal members.
constexpr std::string_view kBloom[] = {
    R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)re",
};

// viking: bloom plus single digits.
constexpr std::string_view kViking[] = {
    R"re( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)re",
    R"re(\p{N})re",
};

constexpr std::string_view kChameleon[] = {
    R"re(<sentinel:[0-9]+>)re",    R"re((IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z)re",
    R"re(([\t\n]|    |  ))re",     R"re(\p{N})re",
    R"re([\p{P}!-/:-@\[-`{-~])re", R"re(%G%)re",
};

constexpr std::string_view kGemma4[] = {
    R"re([^\n]+|\n+)re",
};

constexpr PretokenizerFamily kFamilies[] = {
    {"gpt2", kGpt2},
    {"llama3", kLlama3},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"starcoder", kStarcoder},
    {"falcon", kFalcon},
    {"default", kDefault},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"deepseek-v3", kDeepseekV3},
    {"tekken", kTekken},
    {"gpt-4o", kGpt4o},
    {"tiny_aya", kTinyAya},
    {"kimi-k2", kKimiK2},
    {"superbpe", kSuperbpe},
    {"bailingmoe", kBailingmoe},
    {"seed-coder", kSeedCoder},
    {"afmoe", kAfmoe},
    {"exaone-moe", kExaoneMoe},
    {"youtu", kYoutu},
    {"jais-2", kJais2},
    {"bloom", kBloom},
    {"viking", kViking},
    {"chameleon", kChameleon},
    {"gemma4", kGemma4},
};

constexpr PretokenizerName kNames[] = {
    {"default", "default"},
    {"llama3", "llama3", kIgnoreMerges | kAddBos},
    {"llama-v3", "llama3", kIgnoreMerges | kAddBos},
    {"llama-bpe", "llama3", kIgnoreMerges | kAddBos},
    {"falcon3", "llama3", kIgnoreMerges | kAddBos},
    {"falcon-h1", "llama3", kIgnoreMerges | kAddBos},
    {"pixtral", "llama3", kIgnoreMerges | kAddBos},
    {"midm-2.0", "llama3", kIgnoreMerges | kAddBos},
    {"lfm2", "llama3", kIgnoreMerges | kAddBos},
    {"jina-v5-nano", "llama3", kIgnoreMerges | kAddBos},
    {"laguna", "llama3", kIgnoreMerges | kAddBos},
    {"dbrx", "llama3"},
    {"smaug-bpe", "llama3"},
    {"glm4", "llama3", kNoDefaultBos},
    {"chatglm-bpe", "llama3", kNoDefaultBos},
    {"deepseek-llm", "deepseek-llm", kKeepSpaces},
    {"deepseek-coder", "deepseek-coder", kKeepSpaces},
    {"deepseek-v3", "deepseek-v3", kKeepSpaces},
    {"hunyuan-dense", "deepseek-v3", kKeepSpaces},
    {"joyai-llm", "deepseek-v3", kKeepSpaces},
    {"falcon", "falcon"},
    {"mpt", "gpt2"},
    {"olmo", "gpt2"},
    {"jais", "gpt2"},
    {"gpt-2", "gpt2"},
    {"phi-2", "gpt2"},
    {"gigachat", "gpt2"},
    {"jina-es", "gpt2"},
    {"jina-de", "gpt2"},
    {"jina-v2-es", "gpt2"},
    {"jina-v2-de", "gpt2"},
    {"a.x-4.0", "gpt2"},
    {"mellum", "gpt2"},
    {"modern-bert", "gpt2"},
    {"exaone4", "gpt2"},
    {"jina-v1-en", "gpt2", kAddSep},
    {"jina-v2-code", "gpt2", kAddSep},
    {"roberta-bpe", "gpt2", kAddSep},
    {"trillion", "gpt2", kKeepSpaces},
    {"granite-docling", "gpt2", kKeepSpaces},
    {"starcoder", "starcoder"},
    {"refact", "starcoder"},
    {"codeshell", "starcoder"},
    {"exaone", "starcoder"},
    {"minerva-7b", "starcoder"},
    {"mellum2", "starcoder"},
    {"command-r", "starcoder", kKeepSpaces},
    {"cohere2_moe", "starcoder", kKeepSpaces},
    {"smollm", "starcoder", kKeepSpaces},
    {"qwen2", "qwen2", kKeepSpaces},
    {"deepseek-r1-qwen", "qwen2", kKeepSpaces},
    {"kormo", "qwen2", kKeepSpaces},
    {"openpangu", "qwen2", kKeepSpaces},
    {"f2llmv2", "qwen2", kKeepSpaces},
    {"hunyuan", "qwen2", kKeepSpaces},
    {"solar-open", "qwen2", kKeepSpaces},
    {"grok-2", "qwen2", kKeepSpaces},
    {"stablelm2", "qwen2"},
    {"megrez", "qwen2"},
    {"qwen35", "qwen35", kKeepSpaces},
    {"poro-chat", "bloom", kKeepSpaces},
    {"bloom", "bloom"},
    {"gpt3-finnish", "bloom"},
    {"viking", "viking", kKeepSpaces},
    {"tekken", "tekken", kIgnoreMerges | kAddBos | kKeepSpaces},
    {"chameleon", "chameleon", kAddBos | kKeepSpaces},
    {"gpt-4o", "gpt-4o", kKeepSpaces},
    {"llama4", "gpt-4o", kKeepSpaces},
    {"kanana2", "gpt-4o", kKeepSpaces},
    {"minimax-m2", "gpt-4o", kKeepSpaces},
    {"tiny_aya", "tiny_aya", kKeepSpaces},
    {"kimi-k2", "kimi-k2", kKeepSpaces | kMergesOptional},
    {"superbpe", "superbpe", kKeepSpaces},
    {"bailingmoe", "bailingmoe", kKeepSpaces},
    {"bailingmoe2", "bailingmoe", kKeepSpaces},
    {"llada-moe", "bailingmoe", kKeepSpaces},
    {"seed-coder", "seed-coder", kKeepSpaces},
    {"afmoe", "afmoe", kKeepSpaces},
    {"exaone-moe", "exaone-moe"},
    {"youtu", "youtu", kIgnoreMerges | kKeepSpaces},
    {"jais-2", "jais-2"},
    {"gemma4", "gemma4", kPlainText},
};

}  // namespace

std::span<const PretokenizerFamily> pretokenizer_families() noexcept { return kFamilies; }

std::span<const PretokenizerName> pretokenizer_names() noexcept { return kNames; }

const PretokenizerFamily* find_pretokenizer_family(std::string_view name) noexcept {
    const auto found = std::ranges::find(kFamilies, name, &PretokenizerFamily::name);
    return found == std::end(kFamilies) ? nullptr : found;
}

const PretokenizerName* find_pretokenizer(std::string_view name) noexcept {
    const auto found = std::ranges::find(kNames, name, &PretokenizerName::name);
    return found == std::end(kNames) ? nullptr : found;
}

}  // namespace tinfer::tokenizer
