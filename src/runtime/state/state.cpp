// SPDX-License-Identifier: MIT
#include "tinfer/state.hpp"

#include "base/access.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "base/replace_file.hpp"
#include "runtime/state/format.hpp"

namespace tinfer {

namespace {

using StateWriter = runtime::state::Writer;
constexpr std::string_view kInState = "state: an allocation failed";

/// Calls fn with what is to be written, while nobody else changes the context.
template <class Fn>
decltype(auto) with_writer(Context& context, const StateOptions& options, Fn&& fn) {
    return reporting_memory(kInState, [&] {
        Context::Impl& impl = detail::impl_of(context);
        const Context::Impl::Busy busy(impl.session->busy);
        return fn(StateWriter(impl, options));
    });
}

constexpr std::uint64_t kMaxStateBytes = std::uint64_t{1} << 40;  // beyond any context

std::vector<std::byte> read_state_bytes(const std::filesystem::path& path) {
    return read_whole_file(path, kMaxStateBytes);
}

StateInfo load_parsed(Context& context, std::span<const std::byte> bytes, std::optional<SeqId> seq,
                      std::string_view name) {
    Context::Impl& impl = detail::impl_of(context);
    const Context::Impl::Busy busy(impl.session->busy);
    auto parsed = runtime::state::parse(bytes, name);
    runtime::state::restore(impl, parsed, seq, name);
    return std::move(parsed.info);
}

}  // namespace

std::uint64_t state_size(Context& context, const StateOptions& options) {
    return with_writer(context, options, [](const StateWriter& writer) { return writer.bytes(); });
}

std::uint64_t save_state(Context& context, std::span<std::byte> out, const StateOptions& options) {
    return with_writer(context, options, [&](const StateWriter& writer) {
        if (writer.bytes() > out.size())
            fail(ErrorCode::limit_exceeded, cat("state: needs ", writer.bytes(), " bytes, there are ", out.size()));
        ByteWriter to(out, "state");
        writer.write([&](std::span<const std::byte> bytes) { to.bytes(bytes); });
        return writer.bytes();
    });
}

std::vector<std::byte> save_state(Context& context, const StateOptions& options) {
    return with_writer(context, options, [](const StateWriter& writer) {
        std::vector<std::byte> state;
        state.reserve(static_cast<std::size_t>(writer.bytes()));
        writer.write([&](std::span<const std::byte> bytes) { state.insert(state.end(), bytes.begin(), bytes.end()); });
        return state;
    });
}

void save_state_file(Context& context, const std::filesystem::path& path, const StateOptions& options) {
    with_writer(context, options, [&](const StateWriter& writer) {
        ReplacingFile file(path);
        writer.write([&](std::span<const std::byte> bytes) { file.write(bytes); });
        file.finish();
    });
}

StateInfo load_state(Context& context, std::span<const std::byte> state, std::optional<SeqId> seq) {
    return reporting_memory(kInState, [&] { return load_parsed(context, state, seq, "state"); });
}

StateInfo load_state_file(Context& context, const std::filesystem::path& path, std::optional<SeqId> seq) {
    return reporting_memory(kInState,
                            [&] { return load_parsed(context, read_state_bytes(path), seq, display_name(path)); });
}

StateInfo read_state(std::span<const std::byte> state) {
    return reporting_memory(kInState, [&] { return runtime::state::parse(state, "state").info; });
}

StateInfo read_state_file(const std::filesystem::path& path) {
    return reporting_memory(kInState, [&] {
        const auto bytes = read_state_bytes(path);
        return runtime::state::parse(bytes, display_name(path)).info;
    });
}

}  // namespace tinfer
