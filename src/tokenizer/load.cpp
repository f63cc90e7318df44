// SPDX-License-Identifier: MIT
// Loads the vocabulary of a GGUF file into a Vocab::Impl. The file is untrusted: arrays are checked against each other,
// ids against the size, merges against the texts.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "gguf/file.hpp"
#include "tokenizer/pretokenizer_table.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

// Four times the largest vocabularies of today. Bounds the tables, whatever a file claims.
constexpr std::uint64_t kMaxTokens = 1u << 20;
constexpr std::uint64_t kMaxMerges = 1u << 21;
constexpr std::uint64_t kMaxTokenBytes = 1u << 20;

constexpr DefaultId kSpmIds[] = {
    {&SpecialIds::unk, 0, "<unk>"}, {&SpecialIds::bos, 1, "<s>"}, {&SpecialIds::eos, 2, "</s>"}};
constexpr DefaultId kBpeIds[] = {  // for Falcon, whose first files name no ids
    {&SpecialIds::bos, 11, "<|endoftext|>"},
    {&SpecialIds::eos, 11, "<|endoftext|>"}};
constexpr DefaultId kWordpieceIds[] = {{&SpecialIds::pad, 0, "[PAD]"},
                                       {&SpecialIds::unk, 100, "[UNK]"},
                                       {&SpecialIds::bos, 101, "[CLS]"},
                                       {&SpecialIds::sep, 102, "[SEP]"},
                                       {&SpecialIds::mask, 103, "[MASK]"}};
constexpr DefaultId kUnigramIds[] = {
    {&SpecialIds::pad, 0, "<pad>"}, {&SpecialIds::eos, 1, "</s>"}, {&SpecialIds::unk, 2, "<unk>"}};
constexpr DefaultId kPlamo2Ids[] = {{&SpecialIds::unk, 0, "<|plamo:unk|>"},
                                    {&SpecialIds::bos, 1, "<|plamo:bos|>"},
                                    {&SpecialIds::eos, 2, "<|plamo:eos|>"},
                                    {&SpecialIds::pad, 3, "<|plamo:pad|>"}};

/// Defaults of an algorithm for what the file does not say.
struct AlgorithmDefaults {
    std::string_view model;
    Algorithm algorithm;
    PieceStyle style;
    std::span<const DefaultId> ids;
    bool add_space_prefix, add_bos, add_eos, clean_spaces;
};
constexpr AlgorithmDefaults kAlgorithms[] = {
    // model      algorithm             pieces                      ids            space  bos    eos    clean
    {"llama", Algorithm::spm, PieceStyle::escaped_space, kSpmIds, true, true, false, false},
    {"gpt2", Algorithm::bpe, PieceStyle::mapped_bytes, kBpeIds, false, false, false, true},
    {"gemma4", Algorithm::bpe, PieceStyle::escaped_space, {}, false, true, false, true},
    {"bert", Algorithm::wordpiece, PieceStyle::escaped_space, kWordpieceIds, false, true, false, true},
    {"t5", Algorithm::unigram, PieceStyle::escaped_space, kUnigramIds, false, false, true, false},
    {"rwkv", Algorithm::rwkv, PieceStyle::rwkv_escapes, {}, false, false, false, false},
    {"plamo2", Algorithm::plamo2, PieceStyle::verbatim, kPlamo2Ids, false, false, false, false},
    {"none", Algorithm::none, PieceStyle::verbatim, {}, false, false, false, false},
    {"no_vocab", Algorithm::none, PieceStyle::verbatim, {}, false, false, false, false},
};
constexpr AlgorithmDefaults kUnknownAlgorithm{"",   Algorithm::unknown, PieceStyle::verbatim, {}, false, false, false,
                                              false};

struct IdKey {
    std::string_view key;
    std::int32_t SpecialIds::*id;
};
// In reading order: if two keys set one id, the later wins.
constexpr IdKey kIdKeys[] = {
    {"tokenizer.ggml.cls_token_id", &SpecialIds::bos},
    {"tokenizer.ggml.bos_token_id", &SpecialIds::bos},
    {"tokenizer.ggml.eos_token_id", &SpecialIds::eos},
    {"tokenizer.ggml.unknown_token_id", &SpecialIds::unk},
    {"tokenizer.ggml.separator_token_id", &SpecialIds::sep},
    {"tokenizer.ggml.seperator_token_id", &SpecialIds::sep},
    {"tokenizer.ggml.padding_token_id", &SpecialIds::pad},
    {"tokenizer.ggml.mask_token_id", &SpecialIds::mask},
    {"tokenizer.ggml.eot_token_id", &SpecialIds::eot},
    {"tokenizer.ggml.eom_token_id", &SpecialIds::eom},
    {"tokenizer.ggml.fim_pre_token_id", &SpecialIds::fim_pre},
    {"tokenizer.ggml.fim_suf_token_id", &SpecialIds::fim_suf},
    {"tokenizer.ggml.fim_mid_token_id", &SpecialIds::fim_mid},
    {"tokenizer.ggml.fim_pad_token_id", &SpecialIds::fim_pad},
    {"tokenizer.ggml.fim_rep_token_id", &SpecialIds::fim_rep},
    {"tokenizer.ggml.fim_sep_token_id", &SpecialIds::fim_sep},
    {"tokenizer.ggml.prefix_token_id", &SpecialIds::fim_pre},
    {"tokenizer.ggml.suffix_token_id", &SpecialIds::fim_suf},
    {"tokenizer.ggml.middle_token_id", &SpecialIds::fim_mid},
};

constexpr std::uint16_t kAttrOfType[] = {0,
                                         TokenAttr::normal,
                                         TokenAttr::unknown,
                                         TokenAttr::control,
                                         TokenAttr::user_defined,
                                         TokenAttr::unused,
                                         TokenAttr::byte};

class VocabLoader {
public:
    VocabLoader(const gguf::File& file, const ModelOptions& options, Vocab::Impl& vocab)
        : file_(file), options_(options), vocab_(vocab) {}

    void run() {
        read_algorithm();
        read_texts();
        read_attributes();
        read_ids();
        read_pretokenizer();
        read_flags();
        if (vocab_.attrs.empty()) return;
        const ModelNames names{file_.find_string("general.name").value_or(""),
                               file_.find_string("general.architecture").value_or(""),
                               file_.find_string("tokenizer.ggml.pre").value_or("")};
        vocab_.eog = derive_special_tokens(vocab_.texts, vocab_.attrs, vocab_.special, names, has_types_);
        vocab_.matcher.build(vocab_.texts, vocab_.attrs);
        vocab_.pieces.build(vocab_.texts, vocab_.attrs, style_);
        fill_byte_tokens();
        if (vocab_.algorithm == Algorithm::bpe) read_merges();
        if (vocab_.algorithm == Algorithm::spm) vocab_.spm.build(vocab_.texts, vocab_.scores);
        if (vocab_.algorithm == Algorithm::unigram) read_unigram();
        build_trie();
        find_newline();
    }

private:
    [[noreturn]] void refuse(ErrorCode code, std::string_view message) const {
        fail(code, cat(vocab_.name, ": ", message));
    }

    void read_algorithm() {
        vocab_.algorithm_name = file_.require_string("tokenizer.ggml.model");
        const auto row = std::ranges::find(kAlgorithms, vocab_.algorithm_name, &AlgorithmDefaults::model);
        defaults_ = row == std::end(kAlgorithms) ? kUnknownAlgorithm : *row;
        vocab_.algorithm = defaults_.algorithm;
        style_ = defaults_.style;
        if (vocab_.algorithm == Algorithm::unknown)
            vocab_.warn(cat(vocab_.name, ": unknown tokenizer model '", escaped(vocab_.algorithm_name),
                            "': token ids work, text does not"));
    }

    void read_texts() {
        const auto array = file_.find_array("tokenizer.ggml.tokens", gguf::ValueType::string);
        if (!array) {
            if (vocab_.algorithm != Algorithm::none)
                refuse(ErrorCode::missing_key, "key 'tokenizer.ggml.tokens' is missing");
            vocab_.n_tokens = size_without_texts();
            return;
        }
        const std::uint64_t n = array->size();
        if (n > kMaxTokens)
            refuse(ErrorCode::limit_exceeded, cat("the vocabulary has ", n, " tokens, the limit is ", kMaxTokens));
        if (n == 0 && vocab_.algorithm != Algorithm::none)
            refuse(ErrorCode::bad_vocabulary, "'tokenizer.ggml.tokens' is empty");
        std::uint64_t n_bytes = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const std::string_view text = array->string(i);
            if (text.size() > kMaxTokenBytes)
                refuse(ErrorCode::limit_exceeded,
                       cat("token ", i, " has ", text.size(), " bytes, the limit is ", kMaxTokenBytes));
            n_bytes += text.empty() ? empty_text(i).size() : text.size();
        }
        constexpr std::uint64_t max_bytes = std::numeric_limits<std::uint32_t>::max();
        if (n_bytes > max_bytes)
            refuse(ErrorCode::limit_exceeded, cat("token texts of ", n_bytes, " bytes, the limit is ", max_bytes));
        vocab_.texts.reserve(n, n_bytes);
        for (std::uint64_t i = 0; i < n; ++i) {
            const std::string_view text = array->string(i);
            text.empty() ? vocab_.texts.add(empty_text(i)) : vocab_.texts.add(text);
        }
        vocab_.texts.build();
        vocab_.n_tokens = n;
    }

    // An empty text would match everywhere; this one does not match by accident.
    static std::string empty_text(std::uint64_t id) { return cat("[EMPTY_", id, "]"); }

    std::size_t size_without_texts() const {
        if (const auto architecture = file_.find_string("general.architecture"))
            if (const auto n = file_.find_u32(cat(*architecture, ".vocab_size"))) return *n;
        const TensorInfo* embedding = file_.find_tensor("token_embd.weight");
        return embedding == nullptr ? 0 : static_cast<std::size_t>(embedding->ne[1]);
    }

    void read_attributes() {
        const std::size_t n = vocab_.texts.size();
        if (n == 0) return;
        vocab_.attrs.assign(n, TokenAttr::normal);
        if (const auto types = file_.find_array("tokenizer.ggml.token_type")) {
            require_length("tokenizer.ggml.token_type", types->size());
            has_types_ = true;
            for (std::size_t i = 0; i < n; ++i) {
                const std::int64_t type = types->integer(i);
                if (type < 0 || type >= std::ssize(kAttrOfType))
                    refuse(ErrorCode::bad_vocabulary, cat("token ", i, " has type ", type, ", known are 0 … 6"));
                vocab_.attrs[i] = kAttrOfType[type];
            }
        }
        if (const auto scores = file_.find_array("tokenizer.ggml.scores", gguf::ValueType::f32)) {
            require_length("tokenizer.ggml.scores", scores->size());
            vocab_.scores.resize(n);
            for (std::size_t i = 0; i < n; ++i) {
                vocab_.scores[i] = static_cast<float>(scores->number(i));
                if (std::isnan(vocab_.scores[i]))
                    refuse(ErrorCode::bad_vocabulary, cat("token ", i, " has a score that is no number"));
            }
        }
    }

    void require_length(std::string_view key, std::uint64_t length) const {
        if (length < vocab_.texts.size())
            refuse(ErrorCode::bad_vocabulary,
                   cat("'", key, "' has ", length, " elements for ", vocab_.texts.size(), " tokens"));
    }

    void read_ids() {
        const auto in_vocabulary = [&](std::int64_t id) {
            return id >= 0 && static_cast<std::uint64_t>(id) < vocab_.n_tokens;
        };
        for (const DefaultId& row : defaults_.ids)
            if (holds(row, vocab_.texts, vocab_.attrs, has_types_)) vocab_.special.*row.role = row.id;
        for (const IdKey& row : kIdKeys) {
            if (row.key.ends_with("cls_token_id") && vocab_.algorithm != Algorithm::wordpiece) continue;
            const auto id = file_.find_int(row.key);
            if (!id) continue;
            named_bos_ |= row.id == &SpecialIds::bos;
            if (*id == -1 || in_vocabulary(*id)) vocab_.special.*row.id = static_cast<std::int32_t>(*id);
            else
                vocab_.warn(cat(vocab_.name, ": '", row.key, "' is ", *id, " in a vocabulary of ", vocab_.n_tokens,
                                ": ignored"));
        }
    }

    void read_pretokenizer() {
        if (vocab_.algorithm != Algorithm::bpe) return;
        std::string_view name = vocab_.algorithm_name == "gemma4" ? "gemma4" : "default";
        if (!options_.pretokenizer_override.empty()) name = options_.pretokenizer_override;
        else if (const auto stated = file_.find_string("tokenizer.ggml.pre")) name = *stated;
        else if (name == "default")
            vocab_.warn(cat(vocab_.name, ": no 'tokenizer.ggml.pre': using the pre-tokenizer 'default'"));

        const PretokenizerName* row = find_pretokenizer(name);
        if (row == nullptr)
            refuse(ErrorCode::unknown_pretokenizer,
                   cat("unknown pre-tokenizer '", escaped(name),
                       "'; ModelOptions::pretokenizer_override names one of the known"));
        vocab_.pretokenizer_name = row->name;
        vocab_.pretokenizer = Pretokenizer(*find_pretokenizer_family(row->family));
        flags_ = row->flags;
        if (vocab_.algorithm_name == "gemma4") flags_ |= kPlainText;
        if ((flags_ & kPlainText) != 0) style_ = PieceStyle::escaped_space;
        if ((flags_ & kNoDefaultBos) != 0 && !named_bos_) vocab_.special.bos = kNoToken;
    }

    void read_flags() {
        const auto flag = [&](std::string_view key, bool otherwise) {
            return file_.find_bool(key).value_or(otherwise);
        };
        vocab_.add_space_prefix = flag("tokenizer.ggml.add_space_prefix", defaults_.add_space_prefix);
        vocab_.add_bos = flag("tokenizer.ggml.add_bos_token", defaults_.add_bos || (flags_ & kAddBos) != 0);
        vocab_.add_eos = flag("tokenizer.ggml.add_eos_token", defaults_.add_eos);
        vocab_.add_sep =
            flag("tokenizer.ggml.add_sep_token", vocab_.algorithm == Algorithm::wordpiece || (flags_ & kAddSep) != 0);
        if (vocab_.algorithm_name == "gemma4") vocab_.add_bos = true;  // files of that model wrongly say false
        if (vocab_.algorithm == Algorithm::wordpiece) {                // every text is framed by [CLS] and [SEP] only
            vocab_.add_bos = vocab_.add_sep = true;
            vocab_.add_eos = false;
        }
        vocab_.clean_spaces = defaults_.clean_spaces && (flags_ & kKeepSpaces) == 0;
        vocab_.ignore_merges = (flags_ & kIgnoreMerges) != 0;
        vocab_.plain_text = (flags_ & kPlainText) != 0;
    }

    // Byte-level BPE: the token of the mapped character. SPM and plain BPE: `<0xNN>`, else the token whose text is the
    // byte.
    void fill_byte_tokens() {
        for (unsigned value = 0; value < 256; ++value) {
            const auto byte = static_cast<unsigned char>(value);
            std::string text;
            if (vocab_.algorithm == Algorithm::bpe && !vocab_.plain_text) {
                append_code_point(text, mapped_character(byte));
                vocab_.byte_tokens[value] = vocab_.texts.find(text);
                continue;
            }
            const auto spelt = byte_text(byte);
            vocab_.byte_tokens[value] = vocab_.texts.find({spelt.data(), spelt.size()});
            if (vocab_.byte_tokens[value] == kNoToken) {
                const char raw = static_cast<char>(byte);
                vocab_.byte_tokens[value] = vocab_.texts.find({&raw, 1});
            }
        }
        const bool has_bytes = std::ranges::find(vocab_.byte_tokens, kNoToken) == vocab_.byte_tokens.end();
        switch (vocab_.algorithm) {
            case Algorithm::bpe:
            case Algorithm::plamo2: vocab_.spells_all = has_bytes; break;
            case Algorithm::spm: vocab_.spells_all = has_bytes || vocab_.special.unk != kNoToken; break;
            case Algorithm::rwkv: vocab_.spells_all = true; break;
            default: return;  // others drop white space and marks
        }
        vocab_.spells_ascii = true;
    }

    void read_merges() {
        const auto array = file_.find_array("tokenizer.ggml.merges", gguf::ValueType::string);
        if (!array) {
            if ((flags_ & kMergesOptional) == 0)
                refuse(ErrorCode::missing_key, "key 'tokenizer.ggml.merges' is missing");
            return;
        }
        if (array->size() > kMaxMerges)
            refuse(ErrorCode::limit_exceeded,
                   cat("the vocabulary has ", array->size(), " merges, the limit is ", kMaxMerges));
        vocab_.merges.reserve(array->size());
        std::string joined;
        for (std::uint64_t rank = 0; rank < array->size(); ++rank) {
            const std::string_view entry = array->string(rank);
            const std::size_t space = entry.find(' ', 1);  // a left part may begin with a space
            if (space == entry.npos) refuse_merge(rank, entry, "is not of the form 'left right'");
            const std::string_view left = entry.substr(0, space), right = entry.substr(space + 1);
            joined = left;
            joined += right;
            const std::int32_t left_id = vocab_.texts.find(left), right_id = vocab_.texts.find(right);
            const std::int32_t joined_id = vocab_.texts.find(joined);
            if (left_id == kNoToken || right_id == kNoToken || joined_id == kNoToken)
                refuse_merge(rank, entry, "names a text that is no token");
            vocab_.merges.add(left_id, right_id, {static_cast<std::uint32_t>(rank), joined_id});
        }
    }

    [[noreturn]] void refuse_merge(std::uint64_t rank, std::string_view entry, std::string_view why) const {
        refuse(ErrorCode::bad_vocabulary, cat("merge ", rank, " '", escaped(entry), "' ", why));
    }

    void read_unigram() {
        vocab_.unigram.collapse_spaces = file_.find_bool("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
        vocab_.unigram.build(vocab_.texts, vocab_.attrs, vocab_.scores);
        const auto array = file_.find_array("tokenizer.ggml.precompiled_charsmap");
        if (!array) return;
        std::string bytes;
        for (std::uint64_t i = 0; i < array->size(); ++i)
            bytes += static_cast<char>(static_cast<unsigned char>(array->integer(i)));
        vocab_.unigram.map = CharacterMap(vocab_.name, bytes);
    }

    // The texts to search for: all of WordPiece, the unescaped ones of RWKV, else those of ordinary tokens.
    void build_trie() {
        std::uint32_t wanted = TokenAttr::normal | TokenAttr::user_defined | TokenAttr::unused;
        switch (vocab_.algorithm) {
            case Algorithm::wordpiece: wanted = ~0u; break;
            case Algorithm::rwkv: wanted |= TokenAttr::byte; break;
            case Algorithm::unigram: break;
            case Algorithm::plamo2: wanted &= ~std::uint32_t{TokenAttr::unused}; break;
            default: return;
        }
        std::vector<ByteTrie::Entry> entries;
        for (std::size_t i = 0; i < vocab_.texts.size(); ++i) {
            const auto id = static_cast<std::int32_t>(i);
            const std::string_view text =
                vocab_.algorithm == Algorithm::rwkv ? vocab_.pieces.at(vocab_.texts, id) : vocab_.texts[i];
            if ((vocab_.attrs[i] & wanted) != 0 && !text.empty()) entries.push_back({text, id});
        }
        vocab_.trie.build(std::move(entries));
    }

    void find_newline() {
        std::int32_t& newline = vocab_.special.newline;
        newline = vocab_.special.pad;
        if (vocab_.algorithm == Algorithm::spm) {
            const std::int32_t byte = vocab_.byte_tokens['\n'];
            if (byte != kNoToken) newline = byte;
        } else if (vocab_.algorithm == Algorithm::bpe || vocab_.algorithm == Algorithm::unigram) {
            const auto scratch = vocab_.scratch.lend();
            std::vector<Token> tokens;
            vocab_.algorithm == Algorithm::bpe ? encode_bpe(vocab_, "\n", *scratch, tokens)
                                               : encode_unigram(vocab_, "\n", *scratch, tokens);
            if (!tokens.empty()) newline = static_cast<std::int32_t>(tokens.front());
        } else if (vocab_.algorithm == Algorithm::rwkv) {
            const ByteTrie::Match match = vocab_.trie.longest("\n");
            if (match.length != 0) newline = match.id;
        }
    }

    const gguf::File& file_;
    const ModelOptions& options_;
    Vocab::Impl& vocab_;
    AlgorithmDefaults defaults_ = kUnknownAlgorithm;
    PieceStyle style_ = PieceStyle::verbatim;
    std::uint8_t flags_ = 0;  // PretokenizerFlag bits
    bool named_bos_ = false, has_types_ = false;
};

}  // namespace

std::shared_ptr<const Vocab::Impl> load_vocab(const gguf::File& file, const ModelOptions& options) {
    auto vocab = std::make_shared<Vocab::Impl>();
    vocab->name = file.name();
    vocab->log = options.log;
    vocab->byte_tokens.fill(kNoToken);
    VocabLoader(file, options, *vocab).run();
    vocab->log = {};  // the caller's sink is only for loading
    return vocab;
}

}  // namespace tinfer::tokenizer
