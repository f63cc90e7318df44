// SPDX-License-Identifier: MIT
// Which of a folder's files the vocabulary comes from, added tokens, and as many tokens as the embedding has rows.
#include "convert/vocabulary.hpp"

#include <algorithm>

#include "convert/checkpoint_json.hpp"
#include "convert/config.hpp"

namespace tinfer::convert {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTokenizer = "tokenizer.json";

bool is_there(const fs::path& path) {
    std::error_code error;
    return fs::exists(path, error);
}

struct AddedToken {
    std::string text;
    std::optional<bool> is_special;
    bool strips = false;  ///< white space around it, or wants to stand alone: GGUF files cannot say so
};
using AddedTokens = std::map<std::uint64_t, AddedToken>;

/// Published control tokens that their files do not mark as special.
bool looks_special(std::string_view text) {
    const auto framed = [&](std::string_view begin, std::string_view end) {
        return text.size() >= begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
    };
    return framed("<|", "|>") || framed("<\uFF5C", "\uFF5C>") || framed("<unused", ">") || text == "<pad>" ||
           text == "<mask>" || text == "<2mass>" || text == "[@BOS@]";
}

void add_entry(AddedTokens& added, std::uint64_t id, const Json& entry, const std::string& label) {
    const Json* content = entry.find("content");
    if (content == nullptr || !content->is_string())
        fail(ErrorCode::bad_vocabulary, label, "the token ", id, " has no 'content'");
    const auto flag = [&](std::string_view key) {
        const Json* value = entry.find(key);
        return value != nullptr && value->is_boolean() && value->boolean();
    };
    added.try_emplace(
        id, AddedToken{content->string(), flag("special"), flag("lstrip") || flag("rstrip") || flag("single_word")});
}

std::uint64_t token_id(const Json& value, std::string_view key, const std::string& label) {
    const auto id = whole_number(value);
    if (!id) fail(ErrorCode::bad_vocabulary, label, "'", shown(key), "' has the id ", value_text(value));
    return *id;
}

AddedTokens read_added(const TokenizerFiles& files) {
    AddedTokens added;
    const auto label = [&](std::string_view file, std::string_view key) {
        return cat((files.folder / file).string(), ": '", key, "': ");
    };
    if (files.tokenizer)
        for (const Json& entry : (*files.tokenizer)["added_tokens"])
            add_entry(added, token_id(entry["id"], entry.text("content"), label(kTokenizer, "added_tokens")), entry,
                      label(kTokenizer, "added_tokens"));
    if (files.tokenizer_config)
        for (const auto& [key, entry] : (*files.tokenizer_config)["added_tokens_decoder"].items()) {
            const std::string place = label("tokenizer_config.json", "added_tokens_decoder");
            if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != key.npos)
                fail(ErrorCode::bad_vocabulary, place, "'", shown(key), "' is no id");
            add_entry(added, std::stoul(key), entry, place);
        }
    if (files.added_tokens)
        for (const auto& [text, id] : files.added_tokens->items())
            added.try_emplace(token_id(id, text, label("added_tokens.json", text)), AddedToken{text, std::nullopt});
    return added;
}

void apply_added(Vocabulary& vocabulary, const AddedTokens& added, std::uint64_t n_rows) {
    std::size_t beyond = 0, strips = 0;
    const std::size_t n_own = vocabulary.tokens.size();
    for (const auto& [id, token] : added) {
        if (id >= n_rows) {
            ++beyond;
            continue;
        }
        const bool is_own = id < n_own && vocabulary.is_claimed[id];
        TokenText text{.text = token.text, .score = is_own ? vocabulary.tokens[id].score : -1000.0f, .type = kControl};
        if (is_own && vocabulary.has_scores() && vocabulary.tokens[id].type == kUnknown) text.type = kUnknown;
        else if (!token.is_special.value_or(false) && !looks_special(token.text)) {
            text.type = kUserDefined;
            replace_all(text.text, kEscapedSpace, " ");
            strips += token.strips;
        }
        vocabulary.put(id, std::move(text));
    }
    if (beyond > 0)
        vocabulary.notes.push_back(cat(beyond, " added tokens have ids beyond the ", n_rows,
                                       " rows of the embedding and are "
                                       "left out"));
    if (strips > 0)
        vocabulary.notes.push_back(cat(strips,
                                       " added tokens take white space around them or stand alone, which GGUF files "
                                       "cannot say"));
}

void fill(Vocabulary& vocabulary, std::uint64_t n_rows) {
    for (std::uint64_t id = 0; id < n_rows; ++id)
        if (id >= vocabulary.tokens.size() || !vocabulary.is_claimed[id])
            vocabulary.put(id, {.text = cat("[PAD", id, "]"), .score = -10000, .type = kUnused});
}

Vocabulary from_pieces(const TokenizerFiles& files) {
    const SentencePiece& pieces = *files.pieces;
    const auto refuse = [&](std::string_view what) { fail(ErrorCode::bad_vocabulary, files.pieces_name, ": ", what); };
    if (pieces.model != SentencePiece::bpe && pieces.model != SentencePiece::unigram)
        refuse("a vocabulary of whole words or single characters has no counterpart in GGUF files");
    if (pieces.suffix_whitespace)
        refuse("spaces behind words (treat_whitespace_as_suffix) have no counterpart in GGUF files");
    if (!pieces.escape_whitespaces) refuse("spaces that are not escaped have no counterpart in GGUF files");
    Vocabulary vocabulary;
    vocabulary.model = pieces.model == SentencePiece::bpe ? "llama" : "t5";
    for (std::size_t id = 0; id < pieces.pieces.size(); ++id) {
        TokenText piece = pieces.pieces[id];
        if (piece.type == kUserDefined) replace_all(piece.text, kEscapedSpace, " ");
        vocabulary.put(id, std::move(piece));
    }
    vocabulary.add_space_prefix = pieces.add_dummy_prefix;
    if (files.tokenizer) {
        read_spaces(vocabulary, *files.tokenizer);
    } else if (files.tokenizer_config) {
        const Json& flag = (*files.tokenizer_config)["add_prefix_space"];
        if (flag.is_boolean()) vocabulary.add_space_prefix = flag.boolean();
    }
    if (vocabulary.model == "t5") {
        vocabulary.remove_extra_whitespaces = pieces.remove_extra_whitespaces;
        vocabulary.character_map = pieces.character_map;
    } else if (!pieces.character_map.empty()) {
        vocabulary.notes.emplace_back(
            "the SentencePiece file normalizes characters, which vocabularies of this kind do not");
    }
    const std::pair<std::string_view, std::int32_t> ids[] = {
        {"unk", pieces.unk}, {"bos", pieces.bos}, {"eos", pieces.eos}, {"pad", pieces.pad}};
    for (const auto& [key, id] : ids)
        if (id >= 0) vocabulary.trainer_ids.emplace(key, id);
    return vocabulary;
}

std::vector<std::string> lines_of(const fs::path& path) {
    const std::string text = read_bytes(path, kMaxTokenizerBytes);
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find('\n', begin), text.size());
        std::string line = text.substr(begin, end - begin);
        if (line.ends_with('\r')) line.pop_back();
        lines.push_back(std::move(line));
        begin = end + 1;
    }
    return lines;
}

/// Tokens of this text become control tokens: what the class of a tokenizer adds where no file says it.
void mark_special(Vocabulary& vocabulary, std::initializer_list<std::string_view> texts, std::string_view prefix) {
    for (TokenText& token : vocabulary.tokens)
        for (const std::string_view text : texts)
            if (token.text == cat(prefix, text)) token = {.text = std::string(text), .score = 0, .type = kControl};
}

/// vocab.json and merges.txt of GPT-2, in the form of tokenizer.json.
Vocabulary from_merges_file(const fs::path& folder) {
    Json model{{"type", "BPE"},
               {"vocab", *find_json(folder, "vocab.json", ErrorCode::bad_vocabulary, kMaxTokenizerBytes)}};
    Json merges = Json::array();
    for (std::string& line : lines_of(folder / "merges.txt"))
        if (!line.empty() && !line.starts_with("#version")) merges.push_back(Json(std::move(line)));
    model["merges"] = std::move(merges);
    Json json = Json::object();
    json["model"] = std::move(model);
    json["decoder"] = Json{{"type", "ByteLevel"}};
    Vocabulary vocabulary = read_tokenizer_json(json, (folder / "vocab.json, merges.txt").string());
    vocabulary.pretokenizer = "gpt-2";
    mark_special(vocabulary, {"<|endoftext|>", "<s>", "</s>", "<unk>", "<pad>", "<mask>"}, "");
    return vocabulary;
}

Vocabulary from_words_file(const fs::path& folder) {
    Json vocab = Json::object();
    std::set<std::string> seen;
    std::size_t id = 0;
    for (const std::string& line : lines_of(folder / "vocab.txt")) {
        if (!seen.insert(line).second)
            fail(ErrorCode::bad_vocabulary, (folder / "vocab.txt").string(), ": '", shown(line), "' is there twice");
        vocab.append(line, Json(id++));
    }
    Json json = Json::object();
    json["model"] = Json{{"type", "WordPiece"}};
    json["model"]["vocab"] = std::move(vocab);
    Vocabulary vocabulary = read_tokenizer_json(json, (folder / "vocab.txt").string());
    mark_special(vocabulary, {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}, kEscapedSpace);
    return vocabulary;
}

bool is_byte_level(const Json& tokenizer) {
    const std::string text = tokenizer["pre_tokenizer"].dump() + tokenizer["decoder"].dump();
    return text.find("\"ByteLevel\"") != text.npos;
}

Vocabulary choose_source(const TokenizerFiles& files) {
    const std::string name = (files.folder / kTokenizer).string();
    const bool in_bytes = files.tokenizer && is_byte_level(*files.tokenizer);
    if (files.pieces && !in_bytes) return from_pieces(files);
    if (files.tokenizer) return read_tokenizer_json(*files.tokenizer, name);
    if (is_there(files.folder / "vocab.json") && is_there(files.folder / "merges.txt"))
        return from_merges_file(files.folder);
    if (is_there(files.folder / "vocab.txt")) return from_words_file(files.folder);
    fail(ErrorCode::no_tokenizer, files.folder.string(),
         ": has no tokenizer.json, tokenizer.model, spiece.model, vocab.json "
         "with merges.txt, or vocab.txt",
         is_there(files.folder / "tekken.json") ? "; tekken.json is not read" : "");
}

std::string pretokenizer_of(const TokenizerFiles& files, const Vocabulary& vocabulary, std::string_view given) {
    if (vocabulary.model == "bert") return "";
    if (vocabulary.has_scores()) return "default";
    if (!given.empty()) return std::string(given);
    if (!vocabulary.pretokenizer.empty()) return vocabulary.pretokenizer;
    const Json& ignores = (*files.tokenizer)["model"]["ignore_merges"];
    bool cleans = true;
    if (files.tokenizer_config)
        if (const Json& flag = (*files.tokenizer_config)["clean_up_tokenization_spaces"]; flag.is_boolean())
            cleans = flag.boolean();
    return find_pretokenizer(pretokenizer_list(*files.tokenizer), ignores.is_boolean() && ignores.boolean(), cleans,
                             (files.folder / kTokenizer).string());
}

}  // namespace

TokenizerFiles read_tokenizer_files(const fs::path& folder, bool is_shifted) {
    TokenizerFiles files{.folder = folder};
    files.tokenizer = find_json(folder, kTokenizer, ErrorCode::bad_vocabulary, kMaxTokenizerBytes);
    files.tokenizer_config = find_json(folder, "tokenizer_config.json");
    files.added_tokens = find_json(folder, "added_tokens.json");
    files.generation_config = find_json(folder, "generation_config.json");
    for (const char* name : {"tokenizer.model", "spiece.model"}) {
        const fs::path path = folder / name;
        if (is_shifted || files.pieces || !is_there(path)) continue;
        try {
            const std::string bytes = read_bytes(path, std::size_t{64} << 20);
            files.pieces = read_sentencepiece(std::as_bytes(std::span(bytes)), path.string());
            files.pieces_name = path.string();
        } catch (const Error&) {
            if (!files.tokenizer) throw;  // other tokenizers have files of that name, too
        }
    }
    return files;
}

Vocabulary read_vocabulary(const TokenizerFiles& files, std::uint64_t n_rows, std::string_view pretokenizer) {
    Vocabulary vocabulary = choose_source(files);
    if (vocabulary.tokens.size() > n_rows)
        fail(ErrorCode::bad_vocabulary, files.folder.string(), ": the vocabulary has ", vocabulary.tokens.size(),
             " tokens, the embedding ", n_rows, " rows");
    apply_added(vocabulary, read_added(files), n_rows);
    fill(vocabulary, n_rows);
    vocabulary.pretokenizer = pretokenizer_of(files, vocabulary, pretokenizer);
    return vocabulary;
}

}  // namespace tinfer::convert
