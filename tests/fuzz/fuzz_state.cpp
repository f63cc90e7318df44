// SPDX-License-Identifier: MIT
// Any bytes as a state: refused with an Error and nothing changed, or taken over by a context that then goes on and can
// be saved again. The same bytes as the block of a prefix store.
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "base/byte_io.hpp"
#include "runtime/state/block.hpp"
#include "state_model.hpp"
#include "tinfer/state.hpp"

namespace {

void expect(bool condition) {
    if (!condition) std::abort();
}

/// Checksums made right, so that what lies behind them is met, too.
void repair(std::vector<std::byte>& bytes) {
    const auto put = [&](std::size_t at, std::uint32_t crc) { std::memcpy(bytes.data() + at, &crc, 4); };
    if (bytes.size() < 28) return;
    const std::uint64_t size = bytes.size();
    std::memcpy(bytes.data() + 16, &size, 8);
    put(24, tinfer::crc32c(std::span(bytes).first(24)));
    for (std::size_t at = 28; at + 16 <= bytes.size();) {
        const auto n = tinfer::load<std::uint64_t>(bytes.data() + at + 4);
        if (n > bytes.size() - at - 16) return;
        const auto covered = std::span(bytes).subspan(at, static_cast<std::size_t>(n) + 12);
        put(at + covered.size(), tinfer::crc32c(covered));
        at += covered.size() + 4;
    }
}

void as_block(std::span<const std::byte> bytes) {
    using namespace tinfer::runtime::state;
    BlockKey key;
    FullFingerprint full{};
    constexpr std::size_t kTokens = 24 + 32, kFull = kTokens + 4 * kPageTokens;
    if (bytes.size() >= kFull + full.size()) {
        std::memcpy(key.parent.data(), bytes.data() + 24, key.parent.size());
        std::memcpy(key.tokens.data(), bytes.data() + kTokens, 4 * kPageTokens);
        std::memcpy(full.data(), bytes.data() + kFull, full.size());
    }
    const auto model = full == FullFingerprint{} ? std::nullopt : std::optional(full);
    std::vector<std::byte> whole(bytes.begin(), bytes.end());
    if (whole.size() >= 4) {
        const std::uint32_t crc = tinfer::crc32c(std::span(whole).first(whole.size() - 4));
        std::memcpy(whole.data() + whole.size() - 4, &crc, 4);
    }
    for (const auto& block : {std::vector<std::byte>(bytes.begin(), bytes.end()), whole}) try {
            const auto data = read_block(block, BlockKind::rows, key, model, "input");
            expect(write_block(BlockKind::rows, key, model, data) == block);
        } catch (const tinfer::Error& error) {
            expect(std::string_view(error.what()).starts_with("input: "));
        }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tinfer;
    static const Model model = test::state_model();
    static Context context(model, test::kStateOptions);
    const auto* bytes = reinterpret_cast<const std::byte*>(data);
    as_block({bytes, size});
    std::vector<std::byte> input(bytes, bytes + size);
    if (size % 4 != 0) repair(input);
    const int used = context.used();
    try {
        (void)load_state(context, input, size % 3 == 0 ? std::optional(SeqId{1}) : std::nullopt);
    } catch (const Error& error) {
        expect(context.used() == used);
        expect(std::string_view(error.what()).starts_with("state: "));
        return 0;
    }
    expect(context.used() <= context.options().n_ctx);
    const auto again = save_state(context);
    Context other(model, test::kStateOptions);
    (void)load_state(other, again);
    expect(save_state(other) == again);
    try {
        (void)context.decode({Token{1}});
    } catch (const Error& error) {
        expect(error.code() == ErrorCode::invalid_batch);  // the last position of all
    }
    return 0;
}
