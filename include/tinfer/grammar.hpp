// SPDX-License-Identifier: MIT
// Output that must parse. Chapters: grammars and schemas, where a text leaves a grammar.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/text.hpp"

// =============================================== grammars and schemas ================================================
// Output that must parse: grammars, JSON schemas, and the constraint that a sampler asks which tokens may follow.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     const auto schema = tinfer::Schema::parse(R"({"type": "object", "properties": {"age": {"type": "integer",
//         "minimum": 0, "maximum": 150}}, "required": ["age"], "additionalProperties": false})");
//     std::cout << schema.grammar().matches(R"({"age": 7})") << '\n';               // 1
//     const auto constraint = schema.grammar().constraint(model.vocab());
//     for (const tinfer::Token token : model.vocab().encode("{", {.add_special = false}))
//         std::cout << constraint->allows(token) << '\n';                           // what may come first
//     const auto yes_or_no = tinfer::Grammar::parse("root ::= \"yes\" | \"no\"");   // or a grammar of your own
//     std::cout << yes_or_no.matches("maybe") << '\n';                              // 0
namespace tinfer {

/// Which tokens may follow the tokens so far. Subclass it for a constraint of your own. One thread at a time.
class TINFER_API TokenConstraint {
public:
    virtual ~TokenConstraint() = default;
    /// Whether the token may be the next one.
    [[nodiscard]] virtual bool allows(Token token) = 0;
    /// A bit for each token that may: token t is bit t % 64 of word t / 64. Valid until the next call of any member.
    [[nodiscard]] virtual std::span<const std::uint64_t> mask() = 0;
    /// Advances by one token. Throws grammar_violation for one that is not allowed, and nothing has changed then.
    virtual void accept(Token token) = 0;
    /// Takes the last n accepted tokens back. Throws bad_parameter where fewer are remembered; at least 256 are.
    virtual void rewind(std::size_t n) = 0;
    virtual void reset() = 0;                                                  ///< as after construction
    [[nodiscard]] virtual std::unique_ptr<TokenConstraint> clone() const = 0;  ///< with its state
    /// Tokens that follow where the text has one continuation: the vocabulary's own for its bytes, with the characters
    /// of strings spelled without escapes. They can go into one decode: drawing each of them gives the text that token
    /// after token would, even where the model would spell it by other tokens. Empty where there is a choice at once.
    /// Valid until the next call of any member.
    [[nodiscard]] virtual std::span<const Token> forced() { return {}; }
};

/// Bounds of what a grammar may take; reaching one is limit_exceeded naming it.
struct GrammarOptions {
    std::size_t max_nodes = 1'000'000;        ///< of the compiled grammar
    std::size_t max_cache_bytes = 64u << 20;  ///< of what matching remembers, shared by constraints of one grammar
    std::uint64_t max_steps = 4'000'000;      ///< of matching: in one mask, one token, or for each KiB of a text
    /// Bytes that one mask, one token, or one byte of a text may take beyond max_cache_bytes.
    static constexpr std::size_t kMaskBytes = 32u << 20;
};

/// When a grammar begins to bind. Until then every token is allowed.
struct GrammarTriggers {
    std::vector<Token> tokens{};       ///< the token itself is the first that the grammar reads
    std::vector<std::string> words{};  ///< texts; the grammar reads from the first byte of the word on
    /// Regular expressions over the text so far. The grammar reads from the first group that is not empty on, else from
    /// the start of the match; an expression between ^ and $ has to match the whole text.
    std::vector<std::string> patterns{};
    [[nodiscard]] bool empty() const noexcept { return tokens.empty() && words.empty() && patterns.empty(); }
};

/// A compiled grammar: a cheap handle to immutable shared state, usable from any thread.
class TINFER_API Grammar {
public:
    /// Of a text in GBNF, whose rule `root` is the start. Throws bad_grammar naming line, column and rule: syntax,
    /// rules that are not defined, left recursion, too many repetitions; limit_exceeded. Token items such as <|im_end|>
    /// need the vocabulary.
    [[nodiscard]] static Grammar parse(std::string_view gbnf, const GrammarOptions& options = {});
    [[nodiscard]] static Grammar parse(std::string_view gbnf, const Vocab& vocab, const GrammarOptions& options = {});

    /// Whether the whole text, as bytes, is one of the grammar; token items never match here. Of a schema: whether it
    /// is a JSON text that the schema allows, with white space as its options say, its members in any order and its
    /// numbers in any spelling (1.0 is an integer from draft 6 on). Constraints keep to the order of the schema.
    [[nodiscard]] bool matches(std::string_view text) const;
    /// The constraint for a generation with this vocabulary, which is indexed at the first call. Throws bad_parameter
    /// for a trigger that is no regular expression.
    [[nodiscard]] std::unique_ptr<TokenConstraint> constraint(const Vocab& vocab, GrammarTriggers triggers = {}) const;

    [[nodiscard]] std::size_t n_rules() const noexcept;
    [[nodiscard]] std::size_t n_nodes() const noexcept;  ///< of the compiled form
    /// As given. Of a schema: in GBNF what constraints admit, with lines of comment that say where the text is narrower
    /// (characters that need no escape have none); empty where that takes more than a megabyte.
    [[nodiscard]] const std::string& text() const& noexcept;
    [[nodiscard]] const std::vector<std::string>&
    warnings() const& noexcept;  ///< rules given twice; Schema::warnings()
    const std::string& text() const&& = delete;
    const std::vector<std::string>& warnings() const&& = delete;

    struct Impl;  ///< the library's own
    explicit Grammar(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}

private:
    std::shared_ptr<const Impl> impl_;
};

/// A grammar in GBNF of the texts that a regular expression matches from end to end. It is read as the patterns of
/// schemas are: ECMA-262 with the flag u, without back-references, word boundaries and look-around. Throws
/// bad_parameter naming place and reason, also where no text matches; limit_exceeded for automata of too many states,
/// and where the grammar takes more than a megabyte.
[[nodiscard]] TINFER_API std::string gbnf_of_regex(std::string_view pattern);
/// A grammar in GBNF of these texts, each as it stands. Throws bad_parameter where there are none, and for bytes that
/// are not UTF-8.
[[nodiscard]] TINFER_API std::string gbnf_of_texts(std::span<const std::string> texts);

/// How a schema is compiled.
struct SchemaOptions {
    /// White space between the tokens of JSON: any, none, or one space behind each colon and comma.
    enum class Space : std::uint8_t { flexible, compact, spaced } space = Space::flexible;
    int max_space = 64;    ///< characters of white space in a row; a stop for models that write nothing else
    bool lenient = false;  ///< what cannot be enforced becomes a warning in place of bad_schema
    std::size_t max_alternatives = 2'000;  ///< of one value, once its anyOf, oneOf and allOf are multiplied out
    GrammarOptions grammar{};
    /// The text of another document that a reference names, by its URI without the fragment; nullopt where it is not
    /// known. Only parse() calls it, once for each document, on its own thread; what it throws leaves parse(). Without
    /// it a reference out of the document is bad_schema.
    std::function<std::optional<std::string>(std::string_view uri)> load{};
};

/// A JSON schema, enforced or refused: what a keyword asks is kept exactly, or parse() throws.
class TINFER_API Schema {
public:
    /// Throws bad_schema naming JSON Pointer, keyword and what is supported; limit_exceeded.
    [[nodiscard]] static Schema parse(std::string_view json, const SchemaOptions& options = {});
    [[nodiscard]] const Grammar& grammar() const& noexcept { return grammar_; }
    [[nodiscard]] Grammar grammar() && noexcept { return std::move(grammar_); }
    /// With `lenient`: what is not enforced, each with its place.
    [[nodiscard]] const std::vector<std::string>& warnings() const& noexcept { return warnings_; }
    const std::vector<std::string>& warnings() const&& = delete;

private:
    Schema(Grammar grammar, std::vector<std::string> warnings) noexcept
        : grammar_(std::move(grammar)), warnings_(std::move(warnings)) {}
    Grammar grammar_;
    std::vector<std::string> warnings_;
};
[[nodiscard]] TINFER_API std::string_view to_string(SchemaOptions::Space space) noexcept;

}  // namespace tinfer

// =========================================== where a text leaves a grammar ===========================================
// Where a text leaves a grammar, and what was expected there: for who writes a grammar and wonders why a text is none.
//
//     const auto list = tinfer::Grammar::parse(R"(root ::= "[" [0-9]+ "]")");
//     const auto match = tinfer::match(list, "[1x]");
//     std::cout << match.accepted << ' ' << match.n_bytes << ' ' << match.next[']'] << '\n';   // 0 2 1
namespace tinfer {

/// How far a text follows a grammar.
struct GrammarMatch {
    bool accepted = false;    ///< Grammar::matches()
    std::size_t n_bytes = 0;  ///< so many bytes of the text are the beginning of one that the grammar allows
    bool has_place = true;    ///< false: the grammar as text is too long, and what follows here is not known
    bool may_end = false;     ///< a text may end behind them
    std::bitset<256> next{};  ///< the bytes that may follow them
    /// Where few bytes may follow: each with what has to follow it, about 64 bytes at most.
    std::vector<std::string> words{};
    static constexpr std::size_t kMaxWords = 16;  ///< more bytes than these have no words
};

/// Of a schema the place is that in a text as constraints admit it: with its members in the order of the schema.
/// `vocab`: that which the grammar was parsed with, if it was. Throws what Grammar::parse() and matches() throw. Any
/// thread.
[[nodiscard]] TINFER_API GrammarMatch match(const Grammar& grammar, std::string_view text,
                                            const Vocab* vocab = nullptr);

}  // namespace tinfer
