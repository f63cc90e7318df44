// SPDX-License-Identifier: MIT
// A lazy constraint: every token is allowed until a token, a word or a regular expression over the text so far triggers
// the grammar.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/error.hpp"
#include "grammar/constraint.hpp"

namespace tinfer::grammar {
namespace {

struct FreeTrigger {
    void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
    void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
    void operator()(pcre2_match_context* context) const noexcept { pcre2_match_context_free(context); }
    void operator()(pcre2_compile_context* context) const noexcept { pcre2_compile_context_free(context); }
    void operator()(pcre2_general_context* memory) const noexcept { pcre2_general_context_free(memory); }
};

constexpr std::uint32_t kMatchLimit = 1'000'000;

/// PCRE2 gets its memory from operator new, as everything else here.
std::unique_ptr<pcre2_general_context, FreeTrigger> trigger_memory() {
    std::unique_ptr<pcre2_general_context, FreeTrigger> memory(
        pcre2_general_context_create([](PCRE2_SIZE n, void*) { return ::operator new(n, std::nothrow); },
                                     [](void* block, void*) { ::operator delete(block); }, nullptr));
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

std::shared_ptr<const pcre2_code> compile(const std::string& pattern) {
    const auto memory = trigger_memory();
    const std::unique_ptr<pcre2_compile_context, FreeTrigger> context(pcre2_compile_context_create(memory.get()));
    if (context == nullptr) throw std::bad_alloc();
    int code = 0;
    PCRE2_SIZE at = 0;
    std::unique_ptr<pcre2_code, FreeTrigger> compiled(pcre2_compile(
        reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
        PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY | PCRE2_ALT_BSUX | PCRE2_NEVER_BACKSLASH_C, &code,
        &at, context.get()));
    if (compiled == nullptr) {
        if (code == PCRE2_ERROR_HEAP_FAILED) throw std::bad_alloc();
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(code, reason, sizeof reason);
        fail(ErrorCode::bad_parameter, cat("trigger pattern '", escaped(pattern),
                                           "': ", reinterpret_cast<const char*>(reason), " (byte ", at, ")"));
    }
    return {compiled.release(), FreeTrigger{}};
}

/// A compiled expression with its match buffers, which are reused for every token. Copies have buffers of their own.
class TriggerPattern {
public:
    explicit TriggerPattern(const std::string& pattern) : TriggerPattern(compile(pattern)) {}
    TriggerPattern(const TriggerPattern& other) : TriggerPattern(other.code_) {}
    TriggerPattern(TriggerPattern&&) = default;
    TriggerPattern& operator=(const TriggerPattern&) = delete;
    TriggerPattern& operator=(TriggerPattern&&) = default;
    ~TriggerPattern() = default;

    /// Where the constrained part begins: the first non-empty capture, else the end of the match. nullopt without a
    /// match.
    [[nodiscard]] std::optional<std::size_t> find(std::string_view text) const {
        const int n = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                  match_.get(), context_.get());
        if (n == PCRE2_ERROR_NOMATCH) return std::nullopt;
        if (n == PCRE2_ERROR_NOMEMORY) throw std::bad_alloc();
        if (n < 0) fail(ErrorCode::limit_exceeded, cat("trigger pattern: matching stopped with code ", n));
        const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(match_.get());
        for (int i = 1; i < n; ++i)
            if (ends[2 * i] != PCRE2_UNSET && ends[2 * i + 1] > ends[2 * i]) return ends[2 * i];
        return ends[0];
    }

private:
    explicit TriggerPattern(std::shared_ptr<const pcre2_code> code)
        : code_(std::move(code)), memory_(trigger_memory()),
          match_(pcre2_match_data_create_from_pattern(code_.get(), memory_.get())),
          context_(pcre2_match_context_create(memory_.get())) {
        if (match_ == nullptr || context_ == nullptr) throw std::bad_alloc();
        pcre2_set_match_limit(context_.get(), kMatchLimit);
    }

    std::shared_ptr<const pcre2_code> code_;
    std::unique_ptr<pcre2_general_context, FreeTrigger> memory_;
    std::unique_ptr<pcre2_match_data, FreeTrigger> match_;
    std::unique_ptr<pcre2_match_context, FreeTrigger> context_;
};

class LazyConstraint final : public SlicedConstraint {
public:
    LazyConstraint(std::shared_ptr<const Grammar::Impl> grammar, std::shared_ptr<const TokenTrie> trie,
                   const Vocab* vocab, GrammarTriggers triggers)
        : trie_(std::move(trie)), triggers_(std::move(triggers)), inner_(std::move(grammar), trie_, vocab) {
        for (const std::string& word : triggers_.words) {
            if (word.empty()) fail(ErrorCode::bad_parameter, "trigger word: the text is empty");
            longest_word_ = std::max(longest_word_, word.size());
        }
        for (const std::string& pattern : triggers_.patterns) patterns_.emplace_back(pattern);
        all_.assign(trie_->n_words(), ~std::uint64_t{0});
        if (const std::size_t rest = trie_->size() % 64; rest != 0) all_.back() = (1ull << rest) - 1;
    }

    [[nodiscard]] bool allows(Token token) override {
        if (is_active_) return inner_.allows(token);
        return !has_ended_ && static_cast<std::uint32_t>(token) < trie_->size();
    }
    [[nodiscard]] std::span<const std::uint64_t> mask() override {
        if (!is_active_ && !has_ended_) return all_;
        return inner_.mask();
    }
    void accept(Token token) override {
        if (is_active_) {
            inner_.accept(token);
            ++n_inner_;
            return;
        }
        if (!allows(token))
            fail(ErrorCode::grammar_violation, cat("token ", static_cast<std::int32_t>(token), " behind the end"));
        const auto id = static_cast<std::uint32_t>(token);
        if (patterns_.empty()) forget();
        lengths_.push_back(static_cast<std::uint32_t>(trie_->piece(id).size()));
        text_ += trie_->piece(id);
        if (std::ranges::find(triggers_.tokens, token) != triggers_.tokens.end() && inner_.allows(token)) {
            inner_.accept(token);
            is_active_ = true;
        } else if (trie_->is_eog(id)) {
            has_ended_ = true;
        } else {
            fire();
        }
    }
    void rewind(std::size_t n) override {
        if (is_active_ && n <= n_inner_) {
            inner_.rewind(n);
            n_inner_ -= n;
            return;
        }
        const std::size_t before = n - (is_active_ ? n_inner_ : 0);
        if (before > lengths_.size())
            fail(ErrorCode::bad_parameter,
                 cat("rewind: ", n, " tokens, but ", n_inner_ + lengths_.size(), " are remembered"));
        if (before == 0) return;
        inner_.reset();
        n_inner_ = 0;
        is_active_ = has_ended_ = false;
        for (std::size_t i = 0; i < before; ++i) {
            text_.resize(text_.size() - lengths_.back());
            lengths_.pop_back();
        }
    }
    void reset() override {
        inner_.reset();
        n_inner_ = 0;
        is_active_ = has_ended_ = false;
        text_.clear();
        lengths_.clear();
    }
    [[nodiscard]] std::unique_ptr<TokenConstraint> clone() const override {
        return std::make_unique<LazyConstraint>(*this);
    }
    [[nodiscard]] const std::shared_ptr<const Grammar::Impl>& grammar() const noexcept override {
        return inner_.grammar();
    }
    void pause_after(std::uint64_t n) noexcept override { inner_.pause_after(n); }
    [[nodiscard]] bool prepare(std::uint64_t n_steps) override { return !is_active_ || inner_.prepare(n_steps); }
    [[nodiscard]] std::span<const Token> forced() override {
        return is_active_ ? inner_.forced() : std::span<const Token>{};
    }

private:
    static constexpr std::size_t kRemembered = 1024;  // tokens that rewind() can undo

    /// Drops old text. Only called without expressions, which may need the whole text.
    void forget() {
        if (lengths_.size() < 2 * kRemembered) return;
        std::size_t n = 0, n_bytes = 0;
        while (lengths_.size() - n > kRemembered && text_.size() - n_bytes - lengths_[n] >= longest_word_)
            n_bytes += lengths_[n++];
        text_.erase(0, n_bytes);
        lengths_.erase(lengths_.begin(), lengths_.begin() + static_cast<std::ptrdiff_t>(n));
    }
    /// Looks for triggers that the last token completed. A trigger fires only if the grammar allows the text from there
    /// on.
    void fire() {
        const std::size_t last = lengths_.back();
        const std::size_t from =
            text_.size() - std::min(text_.size(), last + std::max<std::size_t>(longest_word_, 1) - 1);
        for (const std::string& word : triggers_.words)
            for (std::size_t at = text_.find(word, from); at != std::string::npos; at = text_.find(word, at + 1))
                if (feed(at)) return;
        for (const auto& pattern : patterns_)
            if (const auto at = pattern.find(text_); at && feed(*at)) return;
    }
    bool feed(std::size_t at) { return is_active_ = inner_.accept_bytes(std::string_view(text_).substr(at)); }

    std::shared_ptr<const TokenTrie> trie_;
    GrammarTriggers triggers_;
    GrammarConstraint inner_;
    std::vector<TriggerPattern> patterns_;
    std::vector<std::uint64_t> all_;
    std::size_t longest_word_ = 0;
    std::string text_;                    // before the trigger fired
    std::vector<std::uint32_t> lengths_;  // bytes of each token in text_
    std::size_t n_inner_ = 0;             // tokens after the trigger
    bool is_active_ = false, has_ended_ = false;
};

}  // namespace

std::unique_ptr<TokenConstraint> make_lazy(std::shared_ptr<const Grammar::Impl> grammar,
                                           std::shared_ptr<const TokenTrie> trie, const Vocab* vocab,
                                           GrammarTriggers triggers) {
    return std::make_unique<LazyConstraint>(std::move(grammar), std::move(trie), vocab, std::move(triggers));
}

}  // namespace tinfer::grammar
