// SPDX-License-Identifier: MIT
// From logits to tokens. Chapters: samplers, fields of the options.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/text.hpp"

// ===================================================== samplers ======================================================
// From a row of logits to a token.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256});
//     tinfer::Sampler sampler(model.vocab(), {.top_k = 40, .temp = 0.8f, .seed = 42});
//     auto tokens = model.vocab().encode("Once upon a time");
//     for (int i = 0; i < 8 && context.decode(tokens) == tinfer::DecodeStatus::ok; ++i) {
//         const tinfer::Token token = sampler.sample(context);   // the last row; observers see it
//         std::cout << model.vocab().piece(token) << ": " << tinfer::log_prob(context.logits(), token) << '\n';
//         tokens = {token};
//     }
namespace tinfer {

/// A token that may still be chosen; `p` is set where a link computes probabilities.
struct Candidate {
    std::int32_t id;
    float logit;
    float p;
};

/// Candidates while a chain runs. Links read and shrink `data`; those that sort set `sorted`; the last one sets
/// `selected`.
struct CandidateArray {
    std::span<Candidate> data;
    std::ptrdiff_t selected = -1;  ///< index into data, or -1
    bool sorted = false;           ///< logits do not increase, ties by ascending id
};

/// One link of a chain. Subclass it to put code of your own into a Sampler.
class TINFER_API SamplerLink {
public:
    virtual ~SamplerLink() = default;
    [[nodiscard]] virtual std::string_view name() const noexcept = 0;  ///< as long as the link
    /// Changes, sorts or drops candidates; what it throws leaves Sampler::sample, and no token is accepted then. No
    /// logit may become NaN.
    virtual void apply(CandidateArray& candidates) = 0;
    virtual void accept(Token) {}  ///< a token that was chosen, or that the caller accepts
    virtual void reset() {}        ///< as after construction
    [[nodiscard]] virtual std::unique_ptr<SamplerLink> clone() const = 0;  ///< with its state
};

/// SamplerOptions::seed: one from the hardware.
inline constexpr std::uint32_t kRandomSeed = 0xFFFFFFFF;

/// Fields in the order of the chain. Every link has values with which it does nothing; those are the defaults of most.
struct SamplerOptions {
    std::vector<std::pair<Token, float>> logit_bias{};  ///< added to raw logits
    int penalty_last_n = 64;                            ///< tokens of the window; 0 = off, -1 = all
    float penalty_repeat = 1.0f;                        ///< 1 = off
    float penalty_freq = 0.0f;                          ///< 0 = off
    float penalty_present = 0.0f;                       ///< 0 = off
    float dry_multiplier = 0.0f;                        ///< 0 = off: what extending a repetition costs at least
    float dry_base = 1.75f;                             ///< the cost grows by it with each token of the repetition
    int dry_allowed_length = 2;                         ///< tokens that may be repeated for nothing
    int dry_penalty_last_n = -1;  ///< tokens that are looked at; 0 = off, -1 = all, at most 65,536
    /// Texts after which a repetition starts over; absent: a line break, ":", "\"" and "*".
    std::optional<std::vector<std::string>> dry_breakers{};
    float top_n_sigma = -1.0f;          ///< standard deviations below the best; <= 0 = off
    int top_k = 40;                     ///< <= 0: all
    float typical_p = 1.0f;             ///< 1 = off
    float top_p = 0.95f;                ///< 1 = off
    float min_p = 0.05f;                ///< 0 = off
    float xtc_probability = 0.0f;       ///< 0 = off: how often the best are left out
    float xtc_threshold = 0.1f;         ///< p from which on a candidate is one of the best
    int min_keep = 0;                   ///< candidates that top_p, typical_p, min_p and xtc leave at least
    float temp = 0.8f;                  ///< <= 0: greedy
    float dynatemp_range = 0.0f;        ///< 0 = off: the temperature lies between temp − range and temp + range
    float dynatemp_exponent = 1.0f;     ///< of the entropy, which says where between
    int mirostat = 0;                   ///< 1, 2: that version instead of all links but logit_bias and temperature
    float mirostat_tau = 5.0f;          ///< mean surprise that is aimed at, bits
    float mirostat_eta = 0.1f;          ///< learning rate of the threshold
    float adaptive_target = -1.0f;      ///< from 0 to 1: adaptive_p selects in place of dist; below 0 = off
    float adaptive_decay = 0.9f;        ///< of older tokens in its mean; at most 0.99
    bool adaptive_use_current = false;  ///< its mean is of probabilities after the other links, not of the raw ones
    /// Letters, or names with ';' between them (penalties, dry, top_n_sigma, top_k, typical_p, top_p, min_p, xtc,
    /// temperature, infill, adaptive_p). e penalties, d dry, s top_n_sigma, k top_k, y typical_p, p top_p, m min_p,
    /// x xtc, t temperature, i infill, a adaptive_p, which comes last wherever it is named, if adaptive_target asks for
    /// it.
    std::string order = "edskypmxt";
    std::uint32_t seed = kRandomSeed;  ///< kRandomSeed: from the hardware, reported by Sampler::seed()
    /// Throws bad_parameter naming field and value.
    TINFER_API void validate() const;
};

/// A chain written as text: "top_k(40) | top_p(0.95) | temperature(0.8)", or with ';' in place of '|'. A link's values
/// stand in the order of its fields, or with their names; those that are left out are taken from `base`, as is all that
/// no link is about. The order is that of the text. Also: logit_bias(7:-1.5, 9:2), dry(0.8, breakers: "\n" ":"),
/// mirostat(5, 0.1), mirostat_v2(5, 0.1), adaptive_p(0.5), greedy, dist(42). Throws bad_parameter with the place.
[[nodiscard]] TINFER_API SamplerOptions parse_samplers(std::string_view text, const SamplerOptions& base = {});
/// The text of options: parse_samplers gives a chain that does the same. It ends with the seed, if one is given.
[[nodiscard]] TINFER_API std::string describe(const SamplerOptions& options);

/// ln softmax(logits)[token], in double precision with the largest logit subtracted. Throws index_out_of_range, and
/// non_finite_logits naming the token where the result would not be finite: a logit is NaN or +inf, or the token's is
/// -inf.
[[nodiscard]] TINFER_API double log_prob(std::span<const float> logits, Token token);

/// How a token was drawn: what every link left, and the most probable of what was left in the end.
struct DrawReport {
    struct Link {
        std::string name;
        std::size_t n_left;  ///< candidates with a logit above -infinity
    };
    std::vector<Link> links;
    Candidate chosen;
    std::vector<Candidate> others;  ///< the next five, descending; none at temperature 0
};

/// A chain of links as a value: copying clones every link with its state. One thread at a time; keeps its vocabulary
/// alive.
class TINFER_API Sampler {
public:
    /// Throws bad_parameter (SamplerOptions::validate), not_available where a seed is asked of hardware that has none.
    explicit Sampler(const Vocab& vocab, SamplerOptions options = {});
    Sampler(const Sampler& other);
    Sampler& operator=(const Sampler& other);
    Sampler(Sampler&&) noexcept;
    Sampler& operator=(Sampler&&) noexcept;
    ~Sampler();

    /// Runs the chain over a row of logits and accepts the token. Logits beyond the size of the vocabulary, which
    /// models with padded embeddings have, are no candidates. Throws non_finite_logits, no_candidates; then no token is
    /// accepted.
    Token sample(std::span<const float> logits);
    /// The same on an output row of a context, seen by its observers before it is accepted. Throws what Context::logits
    /// does, busy, and compute_failed where an observer threw: no token is accepted then, and the next sample draws
    /// with the same random number, so that nothing is lost (a link of your own that changes in apply() has changed).
    Token sample(Context& context, int index = -1);
    /// A token of the prompt, or one that was chosen elsewhere. A constraint does not see it: call its accept()
    /// yourself.
    void accept(Token token);
    /// From here on only tokens that the constraint allows are drawn, and it accepts each; copies have clones of it. A
    /// token is first drawn as without it; only where that one is not allowed, all tokens that are not are masked and
    /// another is drawn. Where none is left, sample() throws no_candidates. nullptr takes the constraint away.
    void constrain(std::unique_ptr<TokenConstraint> constraint);
    [[nodiscard]] TokenConstraint* constraint() noexcept;  ///< nullptr where there is none
    void reset();                                          ///< windows empty, generators as after construction
    /// Links are numbered from 0 as names() lists them. Throws index_out_of_range, bad_parameter for no link.
    void insert(std::size_t index, std::unique_ptr<SamplerLink> link);
    void remove(std::size_t index);
    [[nodiscard]] std::vector<std::string> names() const;
    /// The options it was made with, as text with the seed in use; links of your own are not in it.
    [[nodiscard]] std::string describe() const;
    /// Of the last sample, after the chain, descending; at temperature 0 that is the chosen token alone.
    [[nodiscard]] std::vector<Candidate> probs(std::size_t k) const;
    /// From the next sample on, report() tells how it was drawn. Counting takes about as long as sampling.
    void explain(bool on);
    [[nodiscard]] DrawReport report() const;            ///< empty before a sample that was explained
    [[nodiscard]] std::uint32_t seed() const noexcept;  ///< in use: given, or from the hardware
    /// The last n accepted tokens (at most 64 are kept), oldest first.
    [[nodiscard]] std::vector<Token> recent(std::size_t n) const;
    [[nodiscard]] std::string recent_text(std::size_t n) const;  ///< their text
    [[nodiscard]] double seconds() const noexcept;               ///< spent in sample() so far
    [[nodiscard]] std::uint64_t samples() const noexcept;

    struct Impl;  ///< the library's own

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer

// =============================================== fields of the options ===============================================
// The numbers of SamplerOptions as a table, for whoever reads them from people: command lines, configuration files and
// requests have their names, bounds and explanations from here.
//
//     for (const auto& field : tinfer::sampler_fields()) std::cout << field.name << ": " << field.help << '\n';
namespace tinfer {

struct SamplerField {
    struct Bounds {
        double least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
    };

    std::string_view name;  ///< of the member; on a command line with '-' in place of '_'
    std::variant<int SamplerOptions::*, float SamplerOptions::*> member;
    std::string_view help;
    Bounds bounds{};              ///< of a program's own user
    bool excludes_least = false;  ///< the least is not allowed itself
    Bounds asked{};               ///< of a request
    /// Names in requests, where they are not `name` alone; unused ones are empty.
    std::array<std::string_view, 2> request_names{};
    bool is_common = false;  ///< what most people need

    [[nodiscard]] bool is_whole() const noexcept { return std::holds_alternative<int SamplerOptions::*>(member); }
};

/// In the order in which they are shown.
[[nodiscard]] TINFER_API std::span<const SamplerField> sampler_fields() noexcept;
/// The letters of SamplerOptions::order with their names: "e penalties, d dry, …".
[[nodiscard]] TINFER_API std::string sampler_letters();

}  // namespace tinfer
