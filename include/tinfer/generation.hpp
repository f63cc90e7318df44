// SPDX-License-Identifier: MIT
// The loop of generation: prompt in, text out, until something ends it.
//
//     const auto model = tinfer::Model::load("model.gguf");
//     tinfer::Context context(model, {.n_ctx = 2048});
//     tinfer::Sampler sampler(model.vocab(), {.seed = 42});
//     tinfer::Generation story(model.vocab(), model.vocab().encode("Once upon a time"), {.n_predict = 20});
//     while (const auto text = story.next(context, sampler)) std::cout << *text << std::flush;
//     std::cout << "\nended by: " << *story.stop() << '\n';
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

#include "tinfer/context.hpp"
#include "tinfer/export.hpp"
#include "tinfer/long_text.hpp"
#include "tinfer/sampling.hpp"
#include "tinfer/speculation.hpp"
#include "tinfer/text.hpp"
#include "tinfer/types.hpp"

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
