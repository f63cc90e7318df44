// SPDX-License-Identifier: MIT
// tokenizer.json: BPE, Unigram and WordPiece models, and the parts around them as far as files can say them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <unordered_map>

#include "convert/checkpoint_json.hpp"
#include "convert/config.hpp"
#include "convert/vocabulary.hpp"

namespace tinfer::convert {

namespace {

constexpr std::uint64_t kMaxTokens = std::uint64_t{1} << 22;

template <class... Parts>
[[noreturn]] void refuse(std::string_view name, std::string_view key, const Parts&... parts) {
    fail(ErrorCode::bad_vocabulary, name, ": '", key, "': ", parts...);
}

bool is_byte_token(std::string_view text) {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    return text.size() == 6 && text.starts_with("<0x") && text[5] == '>' && is_digit(text[3]) && is_digit(text[4]);
}

/// Calls `visit` for a part and, where it is a Sequence, for each of its parts.
void each_part(const Json& part, std::string_view list, const std::function<void(const Json&)>& visit) {
    if (part.text("type") == "Sequence") {
        if (const Json* parts = part.find(list))
            for (const Json& inner : *parts) each_part(inner, list, visit);
    } else if (part.is_object()) {
        visit(part);
    }
}
void each_normalizer(const Json& json, const std::function<void(const Json&)>& visit) {
    each_part(json["normalizer"], "normalizers", visit);
}
void each_pretokenizer(const Json& json, const std::function<void(const Json&)>& visit) {
    each_part(json["pre_tokenizer"], "pretokenizers", visit);
}

bool has_byte_level(const Json& json) {
    bool found = false;
    const auto look = [&](const Json& part) { found = found || part.text("type") == "ByteLevel"; };
    each_pretokenizer(json, look);
    each_part(json["decoder"], "decoders", look);
    return found;
}

bool flag(const Json& object, std::string_view key, bool otherwise) {
    const Json& value = object[key];
    return value.is_boolean() ? value.boolean() : otherwise;
}

/// Refuses normalizers that are not among `known`.
void check_normalizers(const Json& json, std::string_view name, std::initializer_list<std::string_view> known) {
    each_normalizer(json, [&](const Json& part) {
        const std::string_view type = part.text("type");
        if (std::ranges::find(known, type) == known.end())
            refuse(name, "normalizer", "the type '", shown(type), "' has no counterpart in GGUF files");
    });
}

void read_vocab_object(Vocabulary& vocabulary, const Json& vocab, std::string_view name) {
    if (!vocab.is_object()) refuse(name, "model/vocab", "is ", to_string(vocab.kind()), ", an object is expected");
    for (const auto& [text, id] : vocab.items()) {
        const auto number = whole_number(id);
        if (!number || *number >= kMaxTokens)
            refuse(name, "model/vocab", "'", shown(text), "' has the id ", value_text(id), ", whole numbers below ",
                   kMaxTokens, " are expected");
        if (*number < vocabulary.is_claimed.size() && vocabulary.is_claimed[*number])
            refuse(name, "model/vocab", "'", shown(text), "' and '", shown(vocabulary.tokens[*number].text),
                   "' have the id ", *number);
        vocabulary.put(*number, {.text = text});
    }
}

struct Merge {
    std::string left, right;
};

Merge read_merge(const Json& entry, std::size_t i, std::string_view name) {
    if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string())
        return {entry[0].string(), entry[1].string()};
    if (entry.is_string()) {
        const std::string& text = entry.string();
        if (const std::size_t space = text.find(' ', 1); space != text.npos && space + 1 < text.size())
            return {text.substr(0, space), text.substr(space + 1)};
    }
    refuse(name, cat("model/merges/", i), "is ", value_text(entry), ", two parts are expected");
}

/// Tokens by their texts. Views into the vocabulary, which must not change meanwhile.
using TokenIndex = std::unordered_map<std::string_view, std::size_t>;
TokenIndex index_of(const Vocabulary& vocabulary) {
    TokenIndex index;
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id)
        if (vocabulary.is_claimed[id]) index.emplace(vocabulary.tokens[id].text, id);
    return index;
}

/// Reads merges in their order and calls `use` with each and the id of its result.
void each_merge(const Json& model, const TokenIndex& index, std::string_view name, bool in_bytes,
                const std::function<void(const Merge&, std::size_t result)>& use) {
    const Json* merges = model.find("merges");
    if (merges == nullptr || !merges->is_array()) refuse(name, "model/merges", "is missing or no array");
    std::size_t i = 0;
    for (const Json& entry : *merges) {
        Merge merge = read_merge(entry, i, name);
        if (in_bytes)
            for (std::string* part : {&merge.left, &merge.right}) replace_all(*part, " ", "\u0120");
        const std::string result = merge.left + merge.right;
        for (const std::string* text : std::initializer_list<const std::string*>{&merge.left, &merge.right, &result})
            if (!index.contains(*text))
                refuse(name, cat("model/merges/", i), value_text(entry), ": '", shown(*text), "' is no token");
        use(merge, index.at(result));
        ++i;
    }
}

void read_byte_level(Vocabulary& vocabulary, const Json& json, const Json& model, std::string_view name) {
    vocabulary.model = "gpt2";
    check_normalizers(json, name, {"NFC"});
    each_pretokenizer(json, [&](const Json& part) {
        if (part.text("type") == "ByteLevel" && flag(part, "add_prefix_space", false))
            refuse(name, "pre_tokenizer", "add_prefix_space of ByteLevel has no counterpart in GGUF files");
    });
    const TokenIndex index = index_of(vocabulary);
    each_merge(model, index, name, true,
               [&](const Merge& merge, std::size_t) { vocabulary.merges.push_back(merge.left + " " + merge.right); });
}

/// Scores that make a SentencePiece tokenizer merge in the order of the merges: a result has minus its place among the
/// distinct ones.
void read_byte_fallback(Vocabulary& vocabulary, const Json& json, const Json& model, std::string_view name) {
    vocabulary.model = "llama";
    check_normalizers(json, name, {"NFC", "Prepend", "Replace"});
    std::vector<std::size_t> rank(vocabulary.tokens.size(), SIZE_MAX);
    std::size_t n = 0;
    each_merge(model, index_of(vocabulary), name, false, [&](const Merge&, std::size_t result) {
        if (rank[result] == SIZE_MAX) rank[result] = n++;
    });
    for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
        TokenText& token = vocabulary.tokens[id];
        token.score = -static_cast<float>(rank[id] != SIZE_MAX ? rank[id] : n + id);
        if (is_byte_token(token.text)) token.type = kByte, token.score = 0;
        else if (token.text == model.text("unk_token") && !token.text.empty()) token.type = kUnknown;
    }
}

void read_bpe(Vocabulary& vocabulary, const Json& json, const Json& model, std::string_view name) {
    for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
        if (!model.text(key).empty()) refuse(name, cat("model/", key), "has no counterpart in GGUF files");
    if (const Json& dropout = model["dropout"]; !dropout.is_null() && !(dropout == Json(0)))
        refuse(name, "model/dropout", "is ", value_text(dropout), ", and tokenization must not be random");
    read_vocab_object(vocabulary, model["vocab"], name);
    if (has_byte_level(json)) read_byte_level(vocabulary, json, model, name);
    else if (flag(model, "byte_fallback", false)) read_byte_fallback(vocabulary, json, model, name);
    else
        refuse(name, "model",
               "BPE neither of bytes (ByteLevel) nor with byte_fallback has no counterpart in GGUF files");
}

std::string decode_base64(std::string_view text, std::string_view name) {
    std::string bytes;
    std::uint32_t bits = 0;
    int n_bits = 0;
    for (const char c : text.substr(0, text.find('='))) {
        constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const std::size_t digit = kDigits.find(c);
        if (digit == kDigits.npos) refuse(name, "precompiled_charsmap", "is no base64");
        bits = bits << 6 | static_cast<std::uint32_t>(digit);
        if ((n_bits += 6) >= 8) bytes += static_cast<char>(bits >> (n_bits -= 8) & 0xFF);
    }
    return bytes;
}

void read_unigram(Vocabulary& vocabulary, const Json& json, const Json& model, std::string_view name) {
    vocabulary.model = "t5";
    check_normalizers(json, name, {"Precompiled", "Replace", "Strip"});
    const Json& vocab = model["vocab"];
    if (!vocab.is_array()) refuse(name, "model/vocab", "is ", to_string(vocab.kind()), ", an array is expected");
    if (vocab.size() > kMaxTokens) refuse(name, "model/vocab", "has ", vocab.size(), " tokens, at most ", kMaxTokens);
    const bool has_bytes = flag(model, "byte_fallback", false);
    std::size_t id = 0;
    for (const Json& row : vocab) {
        if (!row.is_array() || row.size() != 2 || !row[0].is_string() || !row[1].is_number() ||
            !std::isfinite(row[1].get<float>()))
            refuse(name, cat("model/vocab/", id), "is ", value_text(row), ", a text and a score are expected");
        TokenText token{.text = row[0].string(), .score = row[1].get<float>()};
        if (has_bytes && is_byte_token(token.text)) token.type = kByte;
        vocabulary.put(id++, std::move(token));
    }
    if (const auto unknown = whole_number(model["unk_id"])) {
        if (*unknown >= id) refuse(name, "model/unk_id", "is ", *unknown, " of ", id, " tokens");
        vocabulary.tokens[*unknown].type = kUnknown;
        vocabulary.trainer_ids["unk"] = static_cast<std::int32_t>(*unknown);
    }
    bool collapses = false;
    each_normalizer(json, [&](const Json& part) {
        if (part.text("type") == "Precompiled")
            vocabulary.character_map = decode_base64(part.text("precompiled_charsmap"), name);
        const Json& pattern = part["pattern"];
        if (part.text("type") == "Replace" && (pattern.text("Regex") == " {2,}" || pattern.text("String") == " {2,}"))
            collapses = true;
    });
    each_pretokenizer(json, [&](const Json& part) { collapses = collapses || part.text("type") == "WhitespaceSplit"; });
    vocabulary.remove_extra_whitespaces = collapses;
}

void read_word_piece(Vocabulary& vocabulary, const Json& json, const Json& model, std::string_view name) {
    vocabulary.model = "bert";
    check_normalizers(json, name, {"BertNormalizer"});
    each_normalizer(json, [&](const Json& part) {
        if (!flag(part, "lowercase", true))
            vocabulary.notes.emplace_back("the tokenizer keeps capital letters, which GGUF files cannot say: texts are "
                                          "lowercased");
    });
    if (const std::string_view prefix = model.text("continuing_subword_prefix"); !prefix.empty() && prefix != "##")
        refuse(name, "model/continuing_subword_prefix", "is '", shown(prefix), "', '##' is expected");
    read_vocab_object(vocabulary, model["vocab"], name);
    for (TokenText& token : vocabulary.tokens)
        token.text = token.text.starts_with("##") ? token.text.substr(2) : std::string(kEscapedSpace) + token.text;
}

}  // namespace

void Vocabulary::put(std::uint64_t id, TokenText token) {
    if (id >= tokens.size()) tokens.resize(id + 1), is_claimed.resize(id + 1);
    tokens[id] = std::move(token);
    is_claimed[id] = true;
}

void read_spaces(Vocabulary& vocabulary, const Json& json) {
    bool prefixes = false;
    each_normalizer(json, [&](const Json& part) { prefixes = prefixes || part.text("type") == "Prepend"; });
    each_pretokenizer(json, [&](const Json& part) {
        if (part.text("type") != "Metaspace") return;
        const std::string_view scheme = part.text("prepend_scheme");
        prefixes = prefixes || (scheme.empty() ? flag(part, "add_prefix_space", true) : scheme != "never");
    });
    vocabulary.add_space_prefix = prefixes;
}

Vocabulary read_tokenizer_json(const Json& json, std::string_view name) {
    const Json& model = json["model"];
    if (!model.is_object()) refuse(name, "model", "is missing or no object");
    std::string type(model.text("type"));
    if (type.empty() && model.contains("merges")) type = "BPE";  // as the oldest files are
    Vocabulary vocabulary;
    if (type == "BPE") read_bpe(vocabulary, json, model, name);
    else if (type == "Unigram") read_unigram(vocabulary, json, model, name);
    else if (type == "WordPiece") read_word_piece(vocabulary, json, model, name);
    else refuse(name, "model/type", "'", shown(type), "' has no counterpart in GGUF files");
    if (vocabulary.tokens.empty()) refuse(name, "model/vocab", "has no tokens");
    if (vocabulary.has_scores()) read_spaces(vocabulary, json);
    return vocabulary;
}

PretokenizerList pretokenizer_list(const Json& json) {
    PretokenizerList list;
    each_pretokenizer(json, [&](const Json& part) {
        const std::string_view type = part.text("type");
        const Json& pattern = part["pattern"];
        const bool isolates = part.text("behavior") == "Isolated" && !flag(part, "invert", false);
        if (type == "Split" && isolates && !pattern.text("Regex").empty()) {
            list.expressions.emplace_back(pattern.text("Regex"));
        } else if (type == "Digits") {
            list.expressions.emplace_back(flag(part, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
        } else if (type == "ByteLevel") {
            if (flag(part, "use_regex", true)) list.expressions.emplace_back("%G%");
        } else if (type == "Punctuation" && part.text("behavior") == "Contiguous") {
            list.expressions.emplace_back("[\\p{P}\\$\\+<=>\\^~\\|`]+");
        } else {
            list.expressions.push_back(value_text(part));
            list.is_known = false;
        }
    });
    return list;
}

}  // namespace tinfer::convert
