// SPDX-License-Identifier: MIT
// Compiled grammars, kept by what they were compiled from: a server whose clients send the same schema again and again
// compiles it once, and knows how much memory all grammars take together.
//
//     tinfer::GrammarCache cache(64 << 20);
//     const auto first = cache.schema(R"({"type": "object"})");
//     const auto again = cache.schema(R"({"type": "object"})");                     // not compiled again
//     std::cout << again.matches("{}") << ' ' << cache.stats().compiled << '\n';    // 1 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tinfer/chat_grammar.hpp"
#include "tinfer/export.hpp"
#include "tinfer/grammar.hpp"
#include "tinfer/text.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// All members may be called from any thread; different texts are compiled beside each other, and the same text once.
/// Grammars stay valid without the cache.
class TINFER_API GrammarCache {
public:
    /// `max_bytes`: about, of all grammars together: kept, in use by others, or being compiled. Those that no one uses
    /// make room, the one that was not used for longest first. `options` are those of all schemas; without `load`.
    explicit GrammarCache(std::size_t max_bytes, SchemaOptions options = {});
    GrammarCache(const GrammarCache&) = delete;
    GrammarCache& operator=(const GrammarCache&) = delete;
    ~GrammarCache();

    /// As Grammar::parse(), Schema::parse(), tool_grammar(), answer_grammar() and framed_grammar(), and what these
    /// throw; busy naming the bytes where the grammars in use leave no room. `cancel` is asked now and then while a
    /// grammar is compiled or waited for, on the thread of the caller; true ends that with ErrorCode::cancelled.
    [[nodiscard]] Grammar grammar(std::string_view gbnf, const Vocab& vocab, const CancelFn& cancel = {});
    [[nodiscard]] Grammar schema(std::string_view json, const CancelFn& cancel = {});
    [[nodiscard]] Grammar calls(const ChatTemplate& chat_template, std::string_view tools,
                                const ToolGrammarOptions& options = {}, const CancelFn& cancel = {});
    [[nodiscard]] Grammar answer(const ChatTemplate& chat_template, std::string_view schema,
                                 const AnswerGrammarOptions& options = {}, const CancelFn& cancel = {});
    [[nodiscard]] Grammar framed(const ChatTemplate& chat_template, std::string_view gbnf, const Vocab& vocab,
                                 const AnswerGrammarOptions& options = {}, const CancelFn& cancel = {});

    struct Stats {
        std::size_t bytes = 0;                  ///< of all, at present
        std::size_t kept = 0;                   ///< grammars
        std::uint64_t compiled = 0, found = 0;  ///< calls since the start
    };
    [[nodiscard]] Stats stats() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tinfer
