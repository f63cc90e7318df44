// SPDX-License-Identifier: MIT
// Texts generated and scored. Chapters: long texts, generation, scores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/base.hpp"
#include "tinfer/context.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/text.hpp"

// ==================================================== long texts =====================================================
// Texts that are longer than the context, or than what a model was trained for. Both ways lose something, so both are
// options of a generation that somebody has to ask for.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 64});
//     tinfer::Sampler sampler(model.vocab(), {.temp = 0});
//     tinfer::GenerationOptions options{.n_predict = 100};
//     options.shift = tinfer::ContextShift{.keep = 4};
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), options);
//     std::cout << story.run(context, sampler) << ": " << story.shifts().n << " shifts\n";
namespace tinfer {

/// When the context is full, tokens after the first `keep` are dropped, and the later ones move up. The keys and values
/// that stay were computed while the dropped tokens were visible, so this is not the same as a shorter text.
struct ContextShift {
    int keep = 0;     ///< first tokens of the sequence that always stay, at least one; −1: the whole first prompt
    int discard = 0;  ///< how many are dropped at once; 0: half of the others
};

/// Shifts so far: how often, how many tokens at the front of the sequence were kept, how many were dropped after them.
struct Shifts {
    std::size_t n = 0, keep = 0, dropped = 0;
};

/// Positions are divided by `group` except for the last `width` to 2 · width tokens: the model sees a text up to that
/// many times as long as it was trained for, with far tokens in groups of equal position (arXiv:2401.01325).
struct SelfExtend {
    int group = 1;    ///< tokens that share a position; 1 = off
    int width = 512;  ///< tokens that are grouped at once; a multiple of group
};

}  // namespace tinfer

// ==================================================== generation =====================================================
// The loop of generation: prompt in, text out, until something ends it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 2048});
//     tinfer::Sampler sampler(model.vocab(), {.seed = 42});
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), {.n_predict = 20});
//     while (const auto text = story.next(context, sampler)) std::cout << *text << std::flush;
//     std::cout << "\nended by: " << *story.stop() << '\n';
namespace tinfer {

/// What ended a generation: a token that ends one (Vocab::is_eog), n_predict, a stop string, the user (a cancelled
/// decode or end()), or a context without room for one token more.
enum class StopReason : std::uint8_t { eog, limit, string, interrupt, context };
[[nodiscard]] TINFER_API std::string_view to_string(StopReason reason) noexcept;

/// Reads an answer while it is generated and tells what of it is for the user, so that stop strings act on that alone
/// (AnswerParser::content_reader). A value behind an interface.
class ContentReader {
public:
    virtual ~ContentReader() = default;
    [[nodiscard]] virtual std::unique_ptr<ContentReader> clone() const = 0;
    /// Reads on.
    virtual void read(std::string_view text) = 0;
    /// The answer is over: what was undecided is content, or is not.
    virtual void finish() = 0;
    /// The content so far, as the text spells it, with white space at its end that may turn out to belong to a mark.
    /// Valid until the next call.
    [[nodiscard]] virtual std::string_view content() const = 0;
    /// Bytes at the end of what was read that may still be a mark, a call, or content.
    [[nodiscard]] virtual std::size_t n_undecided() const = 0;
    /// Whether text that follows now would be content.
    [[nodiscard]] virtual bool is_content() const = 0;
    /// Whether the text so far ends inside thoughts.
    [[nodiscard]] virtual bool is_thinking() const { return false; }
};

/// Most tokens of an answer's thoughts (AnswerParser::thoughts_limit). Once there are so many, the tokens of the mark
/// that closes thoughts are the only ones that may be drawn, and the answer goes on behind them. Where a grammar does
/// not allow the mark yet, it is written as soon as the grammar does.
struct TINFER_API ThoughtsLimit {
    static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
    std::int64_t max_tokens = kNone;  ///< of thoughts; at least 0; 0: they are closed where they begin
    std::int64_t until = kNone;       ///< tokens of the answer, marks and all, before they are closed
    /// Marks that close thoughts, each of at least one token; the first that the grammar allows is written.
    std::vector<std::vector<Token>> closings{};
    std::shared_ptr<const ContentReader> reader{};  ///< of the answer, from its first token on; a clone is used

    /// Lowers `until` so that in an answer of at most so many tokens half of them, but never more than 256, are left
    /// for the content behind the thoughts.
    void leave_room(std::int64_t n_tokens) noexcept;
};

struct GenerationOptions {
    std::int64_t n_predict = -1;  ///< most tokens; -1 = until something else ends it
    /// The text ends before the first of these to be complete, over the borders of tokens too. One that is the text of
    /// a control token also ends it at that token. Empty ones are ignored.
    std::vector<std::string> stop{};
    /// For answers with a frame: stop strings neither match in thoughts, calls and marks, nor end there. A clone is
    /// used. Null: all text counts.
    std::shared_ptr<const ContentReader> content{};
    SeqId seq = SeqId{0};                 ///< the sequence of the context that it fills
    int prompt_piece = 0;                 ///< most prompt tokens of one next(); 0 = the context's n_batch
    std::vector<Token> shown{};           ///< control tokens that are part of the text, by their names
    SpeculationOptions speculation{};     ///< drafts that make it faster
    std::optional<ContextShift> shift{};  ///< a full context does not end it; without, it does (StopReason::context)
    std::optional<SelfExtend> extend{};   ///< longer than the model was trained for; not together with `shift`
};

/// One text in the making, as a value: copies go on independently, on contexts of their own. It holds neither context
/// nor sampler, only what they have to do next and what came of it. So an exception loses nothing: tokens() and text()
/// stay, and next() may be called again, because a decode that threw has changed nothing. One thread at a time.
class TINFER_API Generation {
public:
    /// An empty prompt goes on from the last output of the context. Throws bad_parameter for n_predict below -1,
    /// prompt_piece below 0, and options of speculation, shift and extend that mean nothing.
    Generation(const Vocab& vocab, std::vector<Token> prompt, GenerationOptions options = {});
    Generation(const Generation& other);
    Generation& operator=(const Generation& other);
    Generation(Generation&&) noexcept;
    Generation& operator=(Generation&&) noexcept;
    ~Generation();

    /// Decodes pending(), at most one piece of a prompt, and, when all of it is decoded, samples a token, or several
    /// where drafts were accepted. Gives the text that can be shown now, in whole UTF-8 characters: empty after a piece
    /// of a prompt, inside a character, and while it may become a stop string. nullopt once the generation has ended
    /// and all text was given. The view is valid until the next call of a member that is not const. The sampler accepts
    /// the tokens of the prompt. Throws what decode and sample throw.
    std::optional<std::string_view> next(Context& context, Sampler& sampler);
    /// next() until the end; `show` gets every text that is not empty, and ends the generation by returning false.
    StopReason run(Context& context, Sampler& sampler, const std::function<bool(std::string_view)>& show = {});

    /// For programs that decode several generations in one batch: pending() went through the context, and `token` was
    /// drawn from its last row. Returns text as next() does. Nothing happens once the generation has ended. Samplers
    /// that look back (penalties, DRY) must have seen the prompt, as with next(): Sampler::accept(token) for each of
    /// its tokens, before the first is drawn.
    std::string_view accept(Token token);
    /// Ends it from outside and returns the text that was held back.
    std::string_view end(StopReason reason = StopReason::interrupt);
    /// Continues, ended or not, with more tokens after pending(): the next turn of a conversation. tokens(), text(),
    /// the budget and timings() start over.
    void prompt(std::span<const Token> tokens);

    /// nullopt while it goes on.
    [[nodiscard]] std::optional<StopReason> stop() const noexcept;
    /// With StopReason::string: which of GenerationOptions::stop ended it; else nullopt.
    [[nodiscard]] std::optional<std::size_t> stop_string() const noexcept;
    /// What was generated, without a token that ended it.
    [[nodiscard]] std::span<const Token> tokens() const& noexcept;
    /// The text given so far: that of tokens() up to a stop string.
    [[nodiscard]] const std::string& text() const& noexcept;
    /// What the context has not decoded yet: the rest of the prompt, or the token drawn last, also one that ended it.
    [[nodiscard]] std::span<const Token> pending() const& noexcept;
    /// Of the calls of next(): prompt tokens decoded, with the time up to the first token; tokens decoded after they
    /// were drawn, with the time that these and their successors took. load_s is 0.
    [[nodiscard]] const Timings& timings() const& noexcept;
    /// Of the sequence, since the generation was made.
    [[nodiscard]] Shifts shifts() const noexcept;

    // Deleted for temporaries: the views would dangle.
    std::span<const Token> tokens() const&& = delete;
    const std::string& text() const&& = delete;
    std::span<const Token> pending() const&& = delete;
    const Timings& timings() const&& = delete;

    struct Impl;  ///< the library's own

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer

// ====================================================== scores =======================================================
// Scores: how probable a model finds tokens that are given, of many texts in one call.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 256, .n_seq_max = 4, .n_outputs = 32});
//     const auto prompt = model.vocab().encode("The capital of France is");
//     const auto paris = model.vocab().encode(" Paris", {.add_special = false});
//     const auto rome = model.vocab().encode(" Rome", {.add_special = false});
//     const std::vector<tinfer::ScoreText> texts{{prompt, paris}, {prompt, rome}};
//     for (const tinfer::Score& score : tinfer::score(context, texts)) std::cout << score.sum << '\n';
namespace tinfer {

/// Tokens to score, and what stands before them. Views that last for the call.
struct ScoreText {
    std::span<const Token> prompt;
    std::span<const Token> text;
};

/// Of one token.
struct TokenScore {
    struct Alternative {
        Token token;
        double logprob;
    };
    double logprob = 0;              ///< log_prob of the row before it; NaN where nothing stands before it
    int rank = 0;                    ///< 1: the most probable, ties by ascending id; 0 where nothing stands before it
    std::vector<Alternative> top{};  ///< the ScoreOptions::n_top most probable, descending
};

struct Score {
    std::vector<TokenScore> tokens;  ///< one for each token of ScoreText::text
    double sum = 0;                  ///< of the logprobs that there are
};

struct ScoreOptions {
    SeqId first_seq = SeqId{0};  ///< sequences from this one on are used; they are empty before and after
    int n_seqs = 0;              ///< texts that are in the context at the same time; 0 = all from first_seq on
    int n_top = 0;
};

/// Log-probabilities of all tokens of all texts, equal to those of one text alone. Texts share batches; no more rows of
/// logits are kept than ContextOptions::n_outputs, so more outputs are a little faster and take more memory. Throws
/// bad_parameter, no_room naming a text that the context is too small for, non_finite_logits, cancelled,
/// unsupported_operation for models without causal attention or with an encoder; the sequences are empty then.
[[nodiscard]] TINFER_API std::vector<Score> score(Context& context, std::span<const ScoreText> texts,
                                                  const ScoreOptions& options = {});

}  // namespace tinfer
