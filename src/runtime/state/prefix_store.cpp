// SPDX-License-Identifier: MIT
#include "tinfer/prefix_store.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/access.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "base/replace_file.hpp"
#include "runtime/state/block.hpp"
#include "runtime/state/format.hpp"
#include "runtime/state/head_state.hpp"
#include "tinfer/hash.hpp"

namespace tinfer {

namespace runtime::state {

namespace {

using Bytes = std::shared_ptr<const std::vector<std::byte>>;

constexpr std::string_view kStore = "prefix store";
constexpr std::uint64_t kPageOverhead = 512;  // bytes that a page costs beside its data, about

/// What a context's pages and checkpoints consist of: which rows go into which.
struct Form {
    Form(const Context::Impl& context, std::span<const std::uint8_t, 16> model, SeqId seq) {
        check_has_states(context);
        const model::HParams& hp = context.layout.model().hp;
        const bool drops = hp.has_windowed_layers() && !hp.windows.keeps_all_slots && !context.options.swa_full;
        for (const CacheRows& rows : cache_rows(context)) (drops && rows.windowed ? windowed : paged).push_back(rows);
        states = state_rows(context);
        window = context.layout.window();
        may_lack_windows = context.sequences.may_lack_windows();
        Sha256 hash;
        const auto add = [&](std::string_view text) {
            hash.update(cat(text.size(), ":"));
            hash.update(text);
        };
        hash.update(std::as_bytes(model));
        for (const auto& [name, value] : compute_parameters(context, seq)) add(name), add(value);
        for (const TensorInfo& cache : context.layout.caches())
            add(cache.name), add(to_string(cache.type)), add(cat(cache.row_bytes));
        root = hash.finish();
    }

    [[nodiscard]] bool needs_checkpoints() const noexcept { return !windowed.empty() || !states.empty(); }
    [[nodiscard]] std::size_t page_bytes() const noexcept { return kPageTokens * row_bytes(paged); }
    /// The first token that the window of token n sees, and the bytes of a checkpoint after n tokens.
    [[nodiscard]] std::size_t first_seen(std::size_t n) const noexcept {
        if (windowed.empty()) return 0;
        const auto next = static_cast<std::int64_t>(n);
        return static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(window.begin(next), next - 1)));
    }
    [[nodiscard]] std::size_t checkpoint_bytes(std::size_t n) const noexcept {
        std::size_t bytes = (n - first_seen(n)) * row_bytes(windowed);
        for (const TensorInfo* state : states) bytes += static_cast<std::size_t>(state->row_bytes);
        return bytes;
    }
    [[nodiscard]] static std::size_t row_bytes(std::span<const CacheRows> list) noexcept {
        std::uint64_t bytes = 0;
        for (const CacheRows& rows : list) bytes += rows.row_bytes;
        return static_cast<std::size_t>(bytes);
    }

    std::vector<CacheRows> paged, windowed;
    std::vector<const TensorInfo*> states;
    Window window;
    bool may_lack_windows = false;
    Digest root{};
};

}  // namespace

struct PrefixPages {
    PrefixPages(const Model& given, PrefixStoreOptions given_options)
        : model(given), options(std::move(given_options)) {
        if (options.checkpoint_every < 1 || options.checkpoint_every % static_cast<int>(kPageTokens) != 0)
            fail(ErrorCode::bad_parameter, cat("checkpoint_every = ", options.checkpoint_every,
                                               ": must be a multiple of ", kPageTokens, " above 0"));
        fingerprint = model.file().fingerprint();
        if (options.folder.empty()) return;
        std::error_code error;
        std::filesystem::create_directories(options.folder, error);
        if (!std::filesystem::is_directory(options.folder, error))
            fail(ErrorCode::io_error,
                 cat(display_name(options.folder), ": the folder of a prefix store cannot be made"));
    }

    struct Page {
        BlockKey key;
        Bytes rows, checkpoint;
        std::size_t n_children = 0;
        std::uint64_t last_used = 0;
    };
    /// The pages that a text begins with, as far as they are here.
    struct Found {
        std::vector<Bytes> rows;  ///< page by page
        Bytes checkpoint;         ///< after the last of them
        [[nodiscard]] std::size_t n_tokens() const noexcept { return rows.size() * kPageTokens; }
    };

    Form form_of(const Context::Impl& context, SeqId seq) const {
        if (&context.owner.file() != &model.file() &&
            (context.owner.file().fingerprint() != fingerprint ||
             differs(context.owner.file().full_fingerprint(), model.file().full_fingerprint())))
            fail(ErrorCode::bad_parameter, "prefix store: the context has another model");
        return Form(context, fingerprint, seq);
    }

    static BlockKey key_of(const Digest& parent, std::span<const Token> tokens, std::size_t page) {
        BlockKey key;
        key.parent = parent;
        std::ranges::copy(tokens.subspan(page * kPageTokens, kPageTokens), key.tokens.begin());
        return key;
    }

    // ---- memory

    Page* in_memory(const Digest& digest, const BlockKey& key) {
        const auto found = pages.find(digest);
        return found == pages.end() || found->second.key != key ? nullptr : &found->second;
    }

    /// Stores the rows, the checkpoint or both of a page. Does nothing where there is no room for them.
    void remember(const Digest& digest, const BlockKey& key, const Bytes& rows, const Bytes& checkpoint) {
        const auto size = [](const Bytes& part) { return part == nullptr ? 0 : part->size(); };
        Page* page = in_memory(digest, key);
        const std::uint64_t more = (page == nullptr ? kPageOverhead : 0) +
                                   (page == nullptr || page->rows == nullptr ? size(rows) : 0) +
                                   (page == nullptr || page->checkpoint == nullptr ? size(checkpoint) : 0);
        if (more > options.memory_limit) return;
        if (page == nullptr) {
            if (pages.contains(digest)) return;  // another page has the same digest: it stays
            const auto children =
                std::ranges::count_if(pages, [&](const auto& other) { return other.second.key.parent == digest; });
            page = &pages[digest];
            page->key = key;
            page->n_children = static_cast<std::size_t>(children);
            if (const auto parent = pages.find(key.parent); parent != pages.end()) ++parent->second.n_children;
        }
        page->last_used = tick;
        if (page->rows == nullptr) page->rows = rows;
        if (page->checkpoint == nullptr) page->checkpoint = checkpoint;
        stats.bytes += more;
        while (stats.bytes > options.memory_limit) drop_oldest_leaf();
        stats.pages = pages.size();
    }

    void drop_oldest_leaf() {
        auto oldest = pages.end();
        for (auto page = pages.begin(); page != pages.end(); ++page)
            if (page->second.n_children == 0 &&
                (oldest == pages.end() || page->second.last_used < oldest->second.last_used))
                oldest = page;
        if (const auto parent = pages.find(oldest->second.key.parent); parent != pages.end())
            --parent->second.n_children;
        for (const Bytes* part : {&oldest->second.rows, &oldest->second.checkpoint})
            stats.bytes -= *part == nullptr ? 0 : (*part)->size();
        stats.bytes -= kPageOverhead;
        pages.erase(oldest);
        ++stats.dropped_pages;
    }

    // ---- folder

    [[nodiscard]] std::filesystem::path file_of(const Digest& digest, BlockKind kind) const {
        return options.folder / (to_hex(digest) + (kind == BlockKind::rows ? ".rows" : ".checkpoint"));
    }

    /// The data of a file, if it is what is looked for.
    Bytes read_file(const Digest& digest, const BlockKey& key, BlockKind kind, std::size_t n_bytes) {
        if (options.folder.empty()) return nullptr;
        const auto path = file_of(digest, kind);
        std::error_code error;
        if (!std::filesystem::exists(path, error)) return nullptr;
        try {
            const auto bytes = read_whole_file(path, n_bytes + 4096);
            const auto data = read_block(bytes, kind, key, model.file().full_fingerprint(), kStore);
            if (data.size() != n_bytes) fail(ErrorCode::damaged, "block of another size");
            ++stats.read_pages;
            return std::make_shared<const std::vector<std::byte>>(data.begin(), data.end());
        } catch (const Error& refusal) {
            if (refusal.code() == ErrorCode::out_of_memory) throw;
            refused.insert(path);
            ++stats.refused_files;
            return nullptr;
        }
    }

    [[nodiscard]] bool lacks_file(const Digest& digest, BlockKind kind) const {
        if (options.folder.empty()) return false;
        std::error_code error;
        const auto path = file_of(digest, kind);
        return refused.contains(path) || !std::filesystem::exists(path, error);
    }

    void write_file(const Digest& digest, const BlockKey& key, BlockKind kind, std::span<const std::byte> data) {
        const auto path = file_of(digest, kind);
        std::error_code is_there;  // the folder may have been removed
        std::filesystem::create_directories(options.folder, is_there);
        try {
            ReplacingFile file(path);
            file.write(write_block(kind, key, model.file().full_fingerprint(), data));
            file.finish(false);  // what a crash leaves of it is refused by its checksum
            refused.erase(path);
            ++stats.written_pages;
        } catch (const Error& refusal) {
            if (refusal.code() != ErrorCode::io_error) throw;  // a full disk costs time, nothing else
        }
    }

    // ---- texts

    Found find(const Form& form, std::span<const Token> tokens) {
        ++tick;
        Found found, usable;
        Digest parent = form.root;
        const std::size_t n_pages = tokens.empty() ? 0 : (tokens.size() - 1) / kPageTokens;
        for (std::size_t i = 0; i < n_pages; ++i) {
            const BlockKey key = key_of(parent, tokens, i);
            const Digest digest = key.digest();
            const std::size_t n = (i + 1) * kPageTokens;
            Page* page = in_memory(digest, key);
            if (page != nullptr) page->last_used = tick;
            Bytes rows = page != nullptr ? page->rows : nullptr,
                  checkpoint = page != nullptr ? page->checkpoint : nullptr;
            const bool had_rows = rows != nullptr, had_checkpoint = checkpoint != nullptr;
            if (rows == nullptr) rows = read_file(digest, key, BlockKind::rows, form.page_bytes());
            if (rows == nullptr) {
                check_later_pages(form, tokens, i, digest);
                break;
            }
            if (form.needs_checkpoints() && checkpoint == nullptr)
                checkpoint = read_file(digest, key, BlockKind::checkpoint, form.checkpoint_bytes(n));
            if (!had_rows || (!had_checkpoint && checkpoint != nullptr)) remember(digest, key, rows, checkpoint);
            found.rows.push_back(std::move(rows));
            found.checkpoint = std::move(checkpoint);
            const bool is_end = !form.needs_checkpoints() ||
                                (found.checkpoint != nullptr && (form.may_lack_windows || form.first_seen(n) == 0));
            if (is_end) usable = found;
            parent = digest;
        }
        return usable;
    }

    /// Pages after the first missing one cannot be used, but damaged files among them have to be found, so that keep()
    /// writes them anew.
    void check_later_pages(const Form& form, std::span<const Token> tokens, std::size_t missing, Digest parent) {
        if (options.folder.empty()) return;
        const std::size_t n_pages = (tokens.size() - 1) / kPageTokens;
        for (std::size_t i = missing + 1; i < n_pages; ++i) {
            const BlockKey key = key_of(parent, tokens, i);
            parent = key.digest();
            (void)read_file(parent, key, BlockKind::rows, form.page_bytes());
            if (form.needs_checkpoints())
                (void)read_file(parent, key, BlockKind::checkpoint, form.checkpoint_bytes((i + 1) * kPageTokens));
        }
    }

    std::size_t restore(Context::Impl& context, SeqId seq, std::span<const Token> tokens) {
        const Form form = form_of(context, seq);
        const Found found = find(form, tokens);
        const std::size_t n = found.n_tokens();
        Parsed parsed;
        const std::size_t first_seen = form.first_seen(n);
        if (context.sequences.kv() != nullptr)
            for (std::size_t i = 0; i < n; ++i) {
                parsed.tokens.push_back({.pos = static_cast<std::int32_t>(i),
                                         .window_slot = i >= first_seen ? 0 : -1,
                                         .first_seq = static_cast<std::uint32_t>(i),
                                         .n_seqs = 1});
                parsed.seqs.push_back(seq);
            }
        std::vector<std::vector<std::byte>> joined;  // the rows of each cache, page after page
        std::size_t at = 0;
        for (const CacheRows& rows : form.paged) {
            const auto bytes = kPageTokens * static_cast<std::size_t>(rows.row_bytes);
            auto& all = joined.emplace_back();
            all.reserve(n / kPageTokens * bytes);
            for (const Bytes& page : found.rows)
                all.insert(all.end(), page->begin() + static_cast<std::ptrdiff_t>(at),
                           page->begin() + static_cast<std::ptrdiff_t>(at + bytes));
            at += bytes;
        }
        std::size_t n_paged = 0, in_checkpoint = 0;
        const auto from_checkpoint = [&](std::uint64_t bytes) {
            if (n == 0) return std::span<const std::byte>{};
            const auto part = std::span(*found.checkpoint).subspan(in_checkpoint, static_cast<std::size_t>(bytes));
            in_checkpoint += part.size();
            return part;
        };
        for (const CacheRows& rows : cache_rows(context)) {  // windowed ones lie in checkpoints in this order
            const bool is_paged = n_paged < form.paged.size() && form.paged[n_paged].cache == rows.cache;
            Parsed::Rows source;
            source.bytes = is_paged ? std::span<const std::byte>(joined[n_paged])
                                    : from_checkpoint((n - first_seen) * rows.row_bytes);
            n_paged += is_paged ? 1 : 0;
            parsed.rows.push_back(source);
        }
        if (!form.states.empty() && n > 0) {
            parsed.recurrent.push_back({seq, static_cast<std::int32_t>(n) - 1, static_cast<std::int32_t>(n), 0});
            parsed.n_states = 1;
        }
        for (const TensorInfo* state : form.states)
            parsed.states.emplace_back().bytes = from_checkpoint(state->row_bytes);
        adopt(context, parsed, seq, kStore);
        if (context.head && n > 0) restore_head_pages(*context.head, form, seq, tokens.first(n));
        stats.restored_tokens += n;
        return n;
    }

    /// Proposals are no reason to compute a prefix again: what is missing of a head's pages stays so.
    void restore_head_pages(Head& head, const Form& form, SeqId seq, std::span<const Token> tokens) noexcept {
        try {
            HeadPages own(head, form.root);
            std::vector<Bytes> found;
            Digest parent = own.root();
            for (std::size_t i = 0; i < tokens.size() / kPageTokens; ++i) {
                const BlockKey key = key_of(parent, tokens, i);
                parent = key.digest();
                Page* page = in_memory(parent, key);
                if (page != nullptr) page->last_used = tick;
                Bytes bytes = page != nullptr ? page->rows : read_file(parent, key, BlockKind::rows, own.page_bytes());
                if (bytes == nullptr) return;
                if (page == nullptr) remember(parent, key, bytes, nullptr);
                found.push_back(std::move(bytes));
            }
            own.adopt(seq, found);
        } catch (...) {
            head.replaced(seq, Pos{static_cast<std::int32_t>(tokens.size())});
        }
    }

    void keep_head_pages(Head& head, const Form& form, SeqId seq, std::span<const Token> tokens) {
        HeadPages own(head, form.root);
        own.find_rows(seq);
        Digest parent = own.root();
        for (std::size_t i = 0; i < tokens.size() / kPageTokens; ++i) {
            const BlockKey key = key_of(parent, tokens, i);
            parent = key.digest();
            Page* page = in_memory(parent, key);
            if (page != nullptr) page->last_used = tick;
            if ((page != nullptr || options.memory_limit == 0) && !lacks_file(parent, BlockKind::rows)) continue;
            auto bytes = own.write(seq, i);
            if (bytes.empty()) return;  // a later page is of no use without this one
            if (lacks_file(parent, BlockKind::rows)) write_file(parent, key, BlockKind::rows, bytes);
            remember(parent, key, std::make_shared<const std::vector<std::byte>>(std::move(bytes)), nullptr);
        }
    }

    // ---- what a sequence has

    static void check_positions(const Context::Impl& context, const Outline& outline, SeqId seq, std::size_t n) {
        bool fits = context.sequences.count(seq) >= static_cast<std::int32_t>(n);
        for (std::size_t i = 0; i < std::min(n, outline.tokens.size()); ++i)
            fits = fits && outline.tokens[i].pos == static_cast<std::int32_t>(i);
        if (!fits)
            fail(ErrorCode::bad_parameter, cat("prefix store: sequence ", static_cast<std::int32_t>(seq), " has not ",
                                               n, " tokens at positions from 0"));
    }

    static void append_row(const memory::Memory& memory, const CacheRows& rows, const OutlineToken& token,
                           std::vector<std::byte>& out) {
        const std::size_t at = out.size();
        out.resize(at + static_cast<std::size_t>(rows.row_bytes));
        const bool pooled = rows.windowed && memory.has_window_pool();
        rows.read(pooled ? memory.window_slot(token.window_slot) : token.slot, out.data() + at);
    }

    void keep(Context::Impl& context, SeqId seq, std::span<const Token> tokens) {
        const Form form = form_of(context, seq);
        const std::size_t n_pages = tokens.size() / kPageTokens;
        if (n_pages == 0) return;
        context.apply_key_shifts();
        const Outline outline = outline_of(context.sequences, Scope::one, seq);
        check_positions(context, outline, seq, tokens.size());
        const bool at_end = tokens.size() % kPageTokens == 0 &&
                            context.sequences.count(seq) == static_cast<std::int32_t>(tokens.size());
        ++tick;
        Digest parent = form.root;
        for (std::size_t i = 0; i < n_pages; ++i) {
            const BlockKey key = key_of(parent, tokens, i);
            const Digest digest = key.digest();
            Page* page = in_memory(digest, key);
            if (page != nullptr) page->last_used = tick;
            const bool wants_rows = page == nullptr || page->rows == nullptr;
            if ((wants_rows && options.memory_limit > 0) || lacks_file(digest, BlockKind::rows)) {
                auto rows = std::make_shared<std::vector<std::byte>>();
                rows->reserve(form.page_bytes());
                for (const CacheRows& cache : form.paged)
                    for (std::size_t k = 0; k < kPageTokens; ++k)
                        append_row(context.sequences, cache, outline.tokens[i * kPageTokens + k], *rows);
                if (lacks_file(digest, BlockKind::rows)) write_file(digest, key, BlockKind::rows, *rows);
                remember(digest, key, rows, nullptr);
            }
            if (form.needs_checkpoints() && at_end && i + 1 == n_pages)
                keep_checkpoint(context, form, seq, outline, digest, key);
            parent = digest;
        }
        if (context.head) keep_head_pages(*context.head, form, seq, tokens.first(n_pages * kPageTokens));
    }

    void keep_checkpoint(const Context::Impl& context, const Form& form, SeqId seq, const Outline& outline,
                         const Digest& digest, const BlockKey& key) {
        const Page* page = in_memory(digest, key);
        const bool is_here = page == nullptr ? options.memory_limit == 0 : page->checkpoint != nullptr;
        if (is_here && !lacks_file(digest, BlockKind::checkpoint)) return;
        const auto n = static_cast<std::size_t>(context.sequences.count(seq));
        auto data = std::make_shared<std::vector<std::byte>>();
        data->reserve(form.checkpoint_bytes(n));
        for (const CacheRows& rows : form.windowed)
            for (std::size_t i = form.first_seen(n); i < n; ++i)
                append_row(context.sequences, rows, outline.tokens[i], *data);
        for (const TensorInfo* state : form.states) {
            const auto* row = static_cast<const std::byte*>(state->address) +
                              static_cast<std::uint64_t>(context.sequences.states()->row(seq)) * state->row_bytes;
            data->insert(data->end(), row, row + state->row_bytes);
        }
        if (lacks_file(digest, BlockKind::checkpoint)) write_file(digest, key, BlockKind::checkpoint, *data);
        remember(digest, key, nullptr, data);
    }

    Model model;
    PrefixStoreOptions options;
    std::array<std::uint8_t, 16> fingerprint{};
    std::map<Digest, Page> pages;
    std::set<std::filesystem::path> refused;  // files that were looked at and are not what their names say
    std::uint64_t tick = 0;
    PrefixStoreStats stats;
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
    const model::HParams& hp = impl.layout.model().hp;
    const bool drops = hp.has_windowed_layers() && !hp.windows.keeps_all_slots && !impl.options.swa_full;
    if ((!drops && !impl.layout.memory_limits().has_states) || most == 0) return most;
    const auto every = static_cast<std::size_t>(impl_->options.checkpoint_every);
    // The last page end that the same text could continue from.
    const std::size_t last = (n_all - 1) / runtime::state::kPageTokens * runtime::state::kPageTokens;
    std::size_t end = (n / every + 1) * every;
    if (n < last) end = std::min(end, last);
    return std::min(most, end - n);
}

PrefixStoreStats PrefixStore::stats() const noexcept { return impl_->stats; }

}  // namespace tinfer
