// SPDX-License-Identifier: MIT
#include "tinfer/chat.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "chat/tool_program.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/schema_work.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kCaching = "grammar: an allocation failed";
constexpr std::chrono::milliseconds kAsk{20};  ///< between two questions to the caller who waits

using Compiled = std::shared_ptr<const Grammar::Impl>;

void add_field(std::string& key, std::string_view value) {
    key += std::to_string(value.size());
    (key += ':') += value;
}

/// Every field is part of the key: a new one does not compile until it is named here.
void add_options(std::string& key, const SchemaOptions& options) {
    const auto& [space, max_space, lenient, max_alternatives, grammar, load] = options;
    const auto& [max_nodes, max_cache_bytes, max_steps] = grammar;
    if (load) fail(ErrorCode::bad_parameter, "grammar: a cache does not know what a loader of documents gives");
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(space), static_cast<std::uint64_t>(max_space), std::uint64_t{lenient},
          std::uint64_t{max_alternatives}, std::uint64_t{max_nodes}, std::uint64_t{max_cache_bytes}, max_steps})
        add_field(key, std::to_string(number));
}

/// Token items mean a vocabulary's tokens; a vocabulary is known by the trie that is kept with it.
std::shared_ptr<const grammar::TokenTrie> add_vocab(std::string& key, const Vocab& vocab) {
    auto trie = reporting_memory(kCaching, [&] { return grammar::trie_of(vocab); });
    add_field(key, std::to_string(reinterpret_cast<std::uintptr_t>(trie.get())));
    return trie;
}

void add_calls(std::string& key, const ToolGrammarOptions& options) {
    const auto& [use, function, parallel, reasoning, generation_prompt, schema] = options;
    add_field(key, function);
    add_field(key, generation_prompt);
    for (const bool value : {parallel, reasoning}) add_field(key, value ? "1" : "0");
    add_field(key, to_string(use));
    add_options(key, schema);
}

void add_frame(std::string& key, const ChatTemplate& chat_template, const AnswerGrammarOptions& options) {
    const auto& [thoughts, generation_prompt, schema, tools, calls] = options;
    add_field(key, chat_template.source());
    add_field(key, thoughts ? "1" : "0");
    add_field(key, generation_prompt);
    add_options(key, schema);
    add_field(key, tools);
    if (!tools.empty()) add_calls(key, calls);
}

}  // namespace

struct GrammarCache::Impl {
    struct Entry {
        Compiled compiled;  ///< null while it is being compiled
        std::size_t bytes = 0;
        std::uint64_t last_use = 0;
        std::shared_ptr<const void> owner;  ///< whose address is part of the key
        /// Whoever got the grammar holds the entry's shared pointer, too.
        [[nodiscard]] bool is_idle() const noexcept { return compiled != nullptr && compiled.use_count() == 1; }
    };
    using Compile = std::function<Compiled(grammar::SchemaWork&)>;

    Impl(std::size_t bytes, SchemaOptions given) : max_bytes(bytes), options(std::move(given)) {
        options.load = nullptr;
    }

    [[nodiscard]] Grammar get(const std::string& key, const CancelFn& cancel, const Compile& compile,
                              std::shared_ptr<const void> owner = {});
    [[nodiscard]] Compiled make(const std::string& key, const CancelFn& cancel, const Compile& compile);
    void take_room(std::size_t n_bytes);

    const std::size_t max_bytes;
    SchemaOptions options;
    mutable std::mutex mutex;
    std::condition_variable ended;  ///< a compilation has
    std::map<std::string, Entry, std::less<>> entries;
    std::size_t n_bytes = 0;
    std::uint64_t n_uses = 0, n_compiled = 0, n_found = 0;
};

/// Counts more bytes. The lock is held.
void GrammarCache::Impl::take_room(std::size_t n_more) {
    while (n_bytes + n_more > max_bytes) {
        auto oldest = entries.end();
        for (auto entry = entries.begin(); entry != entries.end(); ++entry)
            if (entry->second.is_idle() &&
                (oldest == entries.end() || entry->second.last_use < oldest->second.last_use))
                oldest = entry;
        if (oldest == entries.end())
            fail(ErrorCode::busy, cat("grammar: the grammars in use take ", n_bytes, " bytes, and this one ", n_more,
                                      " more; the limit of all together is ", max_bytes));
        n_bytes -= oldest->second.bytes;
        entries.erase(oldest);
    }
    n_bytes += n_more;
}

Compiled GrammarCache::Impl::make(const std::string& key, const CancelFn& cancel, const Compile& compile) {
    std::size_t held = 0;
    const auto hold = [&](std::size_t n_more) {
        if (held + n_more > max_bytes)
            fail(ErrorCode::limit_exceeded, cat("grammar: compiling it takes more than ", max_bytes,
                                                " bytes, the limit of all grammars together"));
        const std::scoped_lock lock(mutex);
        take_room(n_more);
        held += n_more;
    };
    try {
        hold(2 * key.size());
        grammar::SchemaWork work(cancel, hold);
        Compiled compiled = compile(work);
        const std::size_t bytes = sizeof(Entry) + 2 * key.size() + compiled->n_bytes;
        if (bytes > held) hold(bytes - held);
        const std::scoped_lock lock(mutex);
        n_bytes -= held - bytes;
        Entry& entry = entries.at(key);
        entry.bytes = bytes;
        entry.compiled = compiled;
        ++n_compiled;
        ended.notify_all();
        return compiled;
    } catch (...) {
        const std::scoped_lock lock(mutex);
        n_bytes -= held;
        entries.erase(key);
        ended.notify_all();
        throw;
    }
}

Grammar GrammarCache::Impl::get(const std::string& key, const CancelFn& cancel, const Compile& compile,
                                std::shared_ptr<const void> owner) {
    return reporting_memory(kCaching, [&] {
        std::unique_lock lock(mutex);
        for (;;) {
            const auto [at, is_new] = entries.try_emplace(key);
            Entry& entry = at->second;
            entry.last_use = ++n_uses;
            if (is_new) {
                entry.owner = std::move(owner);
                lock.unlock();
                return Grammar(make(key, cancel, compile));
            }
            if (entry.compiled != nullptr) {
                ++n_found;
                return Grammar(entry.compiled);
            }
            // Another caller compiles it. Where that fails, this one tries, as the reason may be the other's own.
            ended.wait_for(lock, kAsk);
            if (!cancel) continue;
            lock.unlock();
            if (cancel()) fail(ErrorCode::cancelled, "grammar: compiling it was cancelled");
            lock.lock();
        }
    });
}

GrammarCache::GrammarCache(std::size_t max_bytes, SchemaOptions options)
    : impl_(reporting_memory(kCaching, [&] { return std::make_unique<Impl>(max_bytes, std::move(options)); })) {}
GrammarCache::~GrammarCache() = default;

Grammar GrammarCache::grammar(std::string_view gbnf, const Vocab& vocab, const CancelFn& cancel) {
    std::string key = "gbnf ";
    const auto trie = add_vocab(key, vocab);
    add_field(key, gbnf);
    const auto compile = [&](grammar::SchemaWork& work) {
        return grammar::compile_gbnf(gbnf, &vocab, impl_->options.grammar, work);
    };
    return impl_->get(key, cancel, compile, trie);
}

Grammar GrammarCache::schema(std::string_view json, const CancelFn& cancel) {
    std::string key = "schema ";
    add_field(key, json);
    return impl_->get(key, cancel, [&](grammar::SchemaWork& work) {
        std::vector<std::string> warnings;
        return grammar::compile_schema(json, impl_->options, work, warnings);
    });
}

Grammar GrammarCache::calls(const ChatTemplate& chat_template, std::string_view tools,
                            const ToolGrammarOptions& options, const CancelFn& cancel) {
    std::string key = "calls ";
    add_field(key, chat_template.source());
    add_field(key, tools);
    add_calls(key, options);
    return impl_->get(key, cancel, [&](grammar::SchemaWork& work) -> Compiled {
        return std::make_shared<const Grammar::Impl>(chat::tool_program(chat_template, tools, options, &work),
                                                     options.schema.grammar);
    });
}

Grammar GrammarCache::answer(const ChatTemplate& chat_template, std::string_view json,
                             const AnswerGrammarOptions& options, const CancelFn& cancel) {
    std::string key = "answer ";
    add_frame(key, chat_template, options);
    add_field(key, json);
    return impl_->get(key, cancel, [&](grammar::SchemaWork& work) {
        return chat::compile_answer(chat_template, json, options, work);
    });
}

Grammar GrammarCache::framed(const ChatTemplate& chat_template, std::string_view gbnf, const Vocab& vocab,
                             const AnswerGrammarOptions& options, const CancelFn& cancel) {
    std::string key = "framed ";
    const auto trie = add_vocab(key, vocab);
    add_frame(key, chat_template, options);
    add_field(key, gbnf);
    const auto compile = [&](grammar::SchemaWork& work) {
        return chat::compile_framed(chat_template, gbnf, vocab, options, work);
    };
    return impl_->get(key, cancel, compile, trie);
}

GrammarCache::Stats GrammarCache::stats() const {
    const std::scoped_lock lock(impl_->mutex);
    Stats out{.bytes = impl_->n_bytes, .kept = 0, .compiled = impl_->n_compiled, .found = impl_->n_found};
    for (const auto& [key, entry] : impl_->entries) out.kept += entry.compiled != nullptr ? 1 : 0;
    return out;
}

}  // namespace tinfer
