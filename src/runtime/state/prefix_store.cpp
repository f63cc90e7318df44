// SPDX-License-Identifier: MIT
// Which pages a text begins with, and which are still to be kept. What pages consist of says page_form.hpp; where they
// are, page_memory.hpp and page_folder.hpp.
#include "tinfer/state.hpp"

#include <algorithm>

#include "base/access.hpp"
#include "base/error.hpp"
#include "runtime/state/head_state.hpp"
#include "runtime/state/page_folder.hpp"
#include "runtime/state/page_form.hpp"
#include "runtime/state/page_memory.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

namespace runtime::state {

namespace {

PrefixStoreOptions checked(PrefixStoreOptions options) {
    if (options.checkpoint_every < 1 || options.checkpoint_every % static_cast<int>(kPageTokens) != 0)
        fail(ErrorCode::bad_parameter,
             cat("checkpoint_every = ", options.checkpoint_every, ": must be a multiple of ", kPageTokens, " above 0"));
    return options;
}

/// Pages that end before the last token, which is left to be computed.
std::span<const Token> without_last(std::span<const Token> tokens) noexcept {
    return tokens.empty() ? tokens : tokens.first(tokens.size() - 1);
}

void check_positions(const Context::Impl& context, const Outline& outline, SeqId seq, std::size_t n) {
    bool fits = context.sequences.count(seq) >= static_cast<std::int32_t>(n);
    for (std::size_t i = 0; i < std::min(n, outline.tokens.size()); ++i)
        fits = fits && outline.tokens[i].pos == static_cast<std::int32_t>(i);
    if (!fits)
        fail(ErrorCode::bad_parameter,
             cat(kStore, ": sequence ", static_cast<std::int32_t>(seq), " has not ", n, " tokens at positions from 0"));
}

}  // namespace

struct PrefixPages {
    PrefixPages(const Model& given, PrefixStoreOptions given_options)
        : model(given), options(checked(std::move(given_options))), fingerprint(model.file().fingerprint()),
          memory(options.memory_limit, stats), folder(options.folder, model, stats) {}

    /// The pages that a text begins with, as far as they are here.
    struct Found {
        std::vector<Bytes> rows;  ///< page by page
        Bytes checkpoint;         ///< after the last of them
        [[nodiscard]] std::size_t n_tokens() const noexcept { return rows.size() * kPageTokens; }
    };

    PageForm form_of(const Context::Impl& context, SeqId seq) const {
        if (&context.owner.file() != &model.file() &&
            (context.owner.file().fingerprint() != fingerprint ||
             differs(context.owner.file().full_fingerprint(), model.file().full_fingerprint())))
            fail(ErrorCode::bad_parameter, "prefix store: the context has another model");
        return PageForm(context, fingerprint, seq);
    }

    /// A page from memory, or else from the folder: from now on it is in memory, too. `n_checkpoint`: bytes of the
    /// checkpoint behind it; 0: none is looked for. Without rows there is no page.
    PageMemory::Page look_up(const PageLink& link, std::size_t n_rows, std::size_t n_checkpoint) {
        const PageMemory::Page* here = memory.find(link);
        PageMemory::Page page;
        if (here != nullptr) page = *here;
        const bool had_rows = page.rows != nullptr, had_checkpoint = page.checkpoint != nullptr;
        if (!had_rows) page.rows = folder.read(link, BlockKind::rows, n_rows);
        if (page.rows == nullptr) return {};
        if (!had_checkpoint && n_checkpoint > 0)
            page.checkpoint = folder.read(link, BlockKind::checkpoint, n_checkpoint);
        if (!had_rows || (!had_checkpoint && page.checkpoint != nullptr)) memory.add(link, page.rows, page.checkpoint);
        return page;
    }

    /// Whether a page's rows or its checkpoint are missing in memory, where they should be, or in the folder.
    bool is_missing(const PageLink& link, BlockKind kind) {
        const PageMemory::Page* page = memory.find(link);
        const bool is_here = page != nullptr && (kind == BlockKind::rows ? page->rows : page->checkpoint) != nullptr;
        return (!is_here && memory.is_on()) || folder.lacks(link, kind);
    }

    void store(const PageLink& link, BlockKind kind, const Bytes& data) {
        if (folder.lacks(link, kind)) folder.write(link, kind, *data);
        kind == BlockKind::rows ? memory.add(link, data, nullptr) : memory.add(link, nullptr, data);
    }

    Found find(const PageForm& form, std::span<const Token> tokens) {
        memory.begin_use();
        Found found, usable;
        PageChain chain(form.root(), without_last(tokens));
        while (const auto link = chain.next()) {
            const std::size_t n = found.n_tokens() + kPageTokens;
            const auto n_checkpoint = form.needs_checkpoints() ? form.checkpoint_bytes(n) : 0;
            auto page = look_up(*link, form.page_bytes(), n_checkpoint);
            if (page.rows == nullptr) {
                check_later_pages(form, chain, n);
                break;
            }
            found.rows.push_back(std::move(page.rows));
            found.checkpoint = std::move(page.checkpoint);
            if (form.can_go_on(n, found.checkpoint)) usable = found;
        }
        return usable;
    }

    /// Pages after the first missing one cannot be used, but damaged files among them have to be found, so that keep()
    /// writes them anew. `n`: tokens up to where the chain is.
    void check_later_pages(const PageForm& form, PageChain chain, std::size_t n) {
        if (!folder.is_on()) return;
        while (const auto link = chain.next()) {
            n += kPageTokens;
            (void)folder.read(*link, BlockKind::rows, form.page_bytes());
            if (form.needs_checkpoints()) (void)folder.read(*link, BlockKind::checkpoint, form.checkpoint_bytes(n));
        }
    }

    std::size_t restore(Context::Impl& context, SeqId seq, std::span<const Token> tokens) {
        const PageForm form = form_of(context, seq);
        const Found found = find(form, tokens);
        const std::size_t n = found.n_tokens();
        form.adopt(context, seq, found.rows, found.checkpoint);
        if (context.head && n > 0) restore_head_pages(*context.head, form, seq, tokens.first(n));
        stats.restored_tokens += n;
        return n;
    }

    /// Proposals are no reason to compute a prefix again: what is missing of a head's pages stays so.
    void restore_head_pages(Head& head, const PageForm& form, SeqId seq, std::span<const Token> tokens) noexcept {
        try {
            HeadPages own(head, form.root());
            std::vector<Bytes> found;
            PageChain chain(own.root(), tokens);
            while (const auto link = chain.next()) {
                auto page = look_up(*link, own.page_bytes(), 0);
                if (page.rows == nullptr) return;
                found.push_back(std::move(page.rows));
            }
            own.adopt(seq, found);
        } catch (...) {
            head.replaced(seq, Pos{static_cast<std::int32_t>(tokens.size())});
        }
    }

    void keep(Context::Impl& context, SeqId seq, std::span<const Token> tokens) {
        const PageForm form = form_of(context, seq);
        const std::size_t n_pages = tokens.size() / kPageTokens;
        if (n_pages == 0) return;
        context.apply_key_shifts();
        const memory::Memory& sequences = context.sequences;
        const Outline outline = outline_of(sequences, Scope::one, seq);
        check_positions(context, outline, seq, tokens.size());
        const bool at_end =
            tokens.size() % kPageTokens == 0 && sequences.count(seq) == static_cast<std::int32_t>(tokens.size());
        memory.begin_use();
        PageChain chain(form.root(), tokens);
        for (std::size_t i = 0; i < n_pages; ++i) {
            const PageLink link = *chain.next();
            if (is_missing(link, BlockKind::rows))
                store(link, BlockKind::rows, form.capture_page(sequences, outline, i));
            if (form.needs_checkpoints() && at_end && i + 1 == n_pages && is_missing(link, BlockKind::checkpoint))
                store(link, BlockKind::checkpoint, form.capture_checkpoint(sequences, outline, seq, tokens.size()));
        }
        if (context.head) keep_head_pages(*context.head, form, seq, tokens);
    }

    void keep_head_pages(Head& head, const PageForm& form, SeqId seq, std::span<const Token> tokens) {
        HeadPages own(head, form.root());
        own.find_rows(seq);
        PageChain chain(own.root(), tokens);
        for (std::size_t i = 0; const auto link = chain.next(); ++i) {
            if (!is_missing(*link, BlockKind::rows)) continue;
            auto bytes = own.write(seq, i);
            if (bytes.empty()) return;  // a later page is of no use without this one
            store(*link, BlockKind::rows, std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
        }
    }

    Model model;
    PrefixStoreOptions options;
    std::array<std::uint8_t, 16> fingerprint{};
    PrefixStoreStats stats;
    PageMemory memory;
    PageFolder folder;
};

}  // namespace runtime::state

struct PrefixStore::Impl : runtime::state::PrefixPages {
    using PrefixPages::PrefixPages;
};

namespace {
constexpr std::string_view kInStore = "prefix store: an allocation failed";
}  // namespace

PrefixStore::PrefixStore(const Model& model, PrefixStoreOptions options)
    : impl_(reporting_memory(kInStore, [&] { return std::make_unique<Impl>(model, std::move(options)); })) {}
PrefixStore::PrefixStore(PrefixStore&&) noexcept = default;
PrefixStore& PrefixStore::operator=(PrefixStore&&) noexcept = default;
PrefixStore::~PrefixStore() = default;

std::size_t PrefixStore::match(const Context& context, std::span<const Token> tokens, SeqId seq) {
    return reporting_memory(kInStore, [&] {
        const Context::Impl& impl = detail::impl_of(context);
        return impl_->find(impl_->form_of(impl, seq), tokens).n_tokens();
    });
}

std::size_t PrefixStore::restore(Context& context, SeqId seq, std::span<const Token> tokens) {
    return reporting_memory(kInStore, [&] {
        Context::Impl& impl = detail::impl_of(context);
        const Context::Impl::Busy busy(impl.session->busy);
        return impl_->restore(impl, seq, tokens);
    });
}

void PrefixStore::keep(Context& context, SeqId seq, std::span<const Token> tokens) {
    reporting_memory(kInStore, [&] {
        Context::Impl& impl = detail::impl_of(context);
        const Context::Impl::Busy busy(impl.session->busy);
        impl_->keep(impl, seq, tokens);
    });
}

std::size_t PrefixStore::piece(const Context& context, std::size_t n, std::size_t n_all) const {
    const Context::Impl& impl = detail::impl_of(context);
    const auto most = std::min(n_all - std::min(n, n_all), static_cast<std::size_t>(impl.options.n_batch));
    if ((!runtime::state::drops_slots(impl) && !impl.layout.memory_limits().has_states) || most == 0) return most;
    const auto every = static_cast<std::size_t>(impl_->options.checkpoint_every);
    // The last page end that the same text could continue from.
    const std::size_t last = (n_all - 1) / runtime::state::kPageTokens * runtime::state::kPageTokens;
    std::size_t end = (n / every + 1) * every;
    if (n < last) end = std::min(end, last);
    return std::min(most, end - n);
}

PrefixStoreStats PrefixStore::stats() const noexcept { return impl_->stats; }

}  // namespace tinfer
