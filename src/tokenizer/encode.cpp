// SPDX-License-Identifier: MIT
// Encodes text: adds special tokens at both ends, cuts special tokens out of the text, and passes each raw fragment to
// the algorithm of the vocabulary.
#include "base/error.hpp"
#include "tokenizer/vocab.hpp"

namespace tinfer::tokenizer {

namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 31;

constexpr std::string_view kWithoutSpecial =
    "; without special tokens it is encoded (--no-add-special, EncodeOptions::add_special = false)";

Token required_special(const Vocab::Impl& vocab, std::int32_t id, std::string_view role, std::string_view remedy = {}) {
    if (id == kNoToken)
        fail(ErrorCode::missing_special,
             cat(vocab.name, ": a ", role, " token is to be added but the vocabulary has none", remedy));
    return Token{id};
}

Token end_of_turn(const Vocab::Impl& vocab) {
    if (vocab.special.eot != kNoToken) return Token{vocab.special.eot};
    if (vocab.special.eos != kNoToken) return Token{vocab.special.eos};
    fail(ErrorCode::missing_special, cat(vocab.name, ": the vocabulary has neither EOT nor EOS to close a turn with"));
}

// True if the text itself begins with a special token that was already prepended, one of out[next_forced, n_forced).
// Several must come in the same order, so next_forced advances to the one that was found.
bool repeats_forced_special(Token token, const std::vector<Token>& out, std::size_t& next_forced,
                            std::size_t n_forced) {
    for (std::size_t i = next_forced; i < n_forced; ++i)
        if (out[i] == token) {
            next_forced = i;
            return true;
        }
    return false;
}

void warn(const EncodeOptions& options, std::string_view message) {
    if (options.log != nullptr && *options.log) (*options.log)(LogLevel::warning, message);
}

void encode_raw(const Vocab::Impl& vocab, std::string_view text, bool after_special, Scratch& scratch,
                std::vector<Token>& out) {
    switch (vocab.algorithm) {
        case Algorithm::spm: return encode_spm(vocab, text, vocab.add_space_prefix && after_special, scratch, out);
        case Algorithm::bpe: return encode_bpe(vocab, text, scratch, out);
        case Algorithm::wordpiece: return encode_wordpiece(vocab, text, scratch, out);
        case Algorithm::unigram: return encode_unigram(vocab, text, scratch, out);
        case Algorithm::rwkv: return encode_rwkv(vocab, text, scratch, out);
        case Algorithm::plamo2: return encode_plamo2(vocab, text, scratch, out);
        case Algorithm::none:
        case Algorithm::unknown: return;  // rejected earlier
    }
}

// Appends the byte offset of each token of a fragment, computed from the lengths of the tokens' texts. A prepended
// space has no bytes in the text. If normalization changed the text, the lengths are scaled to the fragment's.
void append_begins(const Vocab::Impl& vocab, const Fragment& fragment, const std::vector<Token>& out,
                   std::vector<std::size_t>& begins) {
    const auto bytes_of = [&](std::size_t i) { return vocab.piece(static_cast<std::int32_t>(out[i]), true).size(); };
    const std::size_t length = fragment.end - fragment.begin;
    std::size_t total = 0;
    for (std::size_t i = begins.size(); i < out.size(); ++i) total += bytes_of(i);
    const std::size_t in_front = total == length + 1 ? 1 : 0;
    const bool is_exact = total == length + in_front;
    for (std::size_t at = 0; begins.size() < out.size();) {
        const std::size_t i = begins.size(), behind = at > in_front ? at - in_front : 0;
        const std::size_t inside = is_exact || total == 0 ? behind : at * length / total;
        begins.push_back(fragment.begin + (fragment.special != kNoToken ? 0 : inside));
        at += bytes_of(i);
    }
}

}  // namespace

void encode_text(const Vocab::Impl& vocab, std::string_view text, EncodeOptions options, Scratch& scratch,
                 std::vector<Token>& out, std::span<const ByteRange> foreign, std::vector<std::size_t>* begins) {
    if (vocab.algorithm == Algorithm::none || vocab.algorithm == Algorithm::unknown)
        fail(ErrorCode::no_tokenizer, cat(vocab.name, ": text cannot be encoded with tokenizer model '",
                                          escaped(vocab.algorithm_name), "'; token ids work"));
    if (text.size() > kMaxTextBytes)
        fail(ErrorCode::limit_exceeded, cat("text of ", text.size(), " bytes; the limit is ", kMaxTextBytes));

    scratch.max_tokens = options.max_tokens;
    scratch.n_bytes = text.size();
    // Half, because repairing broken UTF-8 may shorten a text. No bound holds if white space is stripped, which could
    // be all of the text.
    const bool is_limited = options.max_tokens < text.size();
    if (is_limited && !vocab.matcher.strips()) scratch.expect(vocab.fewest_tokens(text) / 2);
    std::size_t next_forced = out.size();
    if (options.close_turn) out.push_back(end_of_turn(vocab));
    if (options.force_bos) out.push_back(required_special(vocab, vocab.special.bos, "BOS"));
    const std::size_t n_forced = out.size();
    if (options.add_special && vocab.add_bos && !options.force_bos)
        out.push_back(required_special(vocab, vocab.special.bos, "BOS", kWithoutSpecial));
    const std::size_t n_front = out.size();
    if (begins != nullptr) begins->resize(n_front, 0);

    vocab.matcher.partition(text, options.parse_special, foreign, scratch);
    bool after_special = true;
    for (const Fragment& fragment : scratch.fragments) {
        if (fragment.special != kNoToken) {
            const Token token{fragment.special};
            if (out.size() != n_front || !repeats_forced_special(token, out, next_forced, n_forced))
                out.push_back(token);
        } else {
            encode_raw(vocab, text.substr(fragment.begin, fragment.end - fragment.begin), after_special, scratch, out);
        }
        scratch.expect(out.size());
        after_special = fragment.special != kNoToken;
        if (begins != nullptr) append_begins(vocab, fragment, out, *begins);
    }

    scratch.expect(out.size());
    if (!options.add_special) return;
    const bool has_text = out.size() > n_front;
    if (vocab.add_bos && has_text && out[n_front] == Token{vocab.special.bos})
        warn(options, "the text begins with BOS and BOS was added: the prompt has two");
    if (vocab.algorithm == Algorithm::wordpiece)
        out.push_back(required_special(vocab, vocab.special.sep, "SEP", kWithoutSpecial));
    scratch.expect(out.size());
    if (!vocab.add_eos) return;
    if (has_text && out.back() == Token{vocab.special.eos})
        warn(options, "the text ends with EOS and EOS was added: the prompt has two");
    out.push_back(required_special(vocab, vocab.special.eos, "EOS", kWithoutSpecial));
    scratch.expect(out.size());
}

}  // namespace tinfer::tokenizer
