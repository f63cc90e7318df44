// SPDX-License-Identifier: MIT
#include "support/page_witness.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <utility>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "support/sanitizers.hpp"

#if defined(__linux__) && defined(__x86_64__)
#    include <csignal>
#    include <sys/mman.h>
#    include <ucontext.h>
#    include <unistd.h>
#    define TINFER_TEST_WITNESS 1
#else
#    define TINFER_TEST_WITNESS 0
#endif

namespace tinfer::test {

bool can_witness_pages() noexcept { return TINFER_TEST_WITNESS != 0 && !kSanitized && !kEmulated; }

#if TINFER_TEST_WITNESS

namespace {

std::atomic<PageWitness*> active{nullptr};
struct sigaction handler_before;

void on_fault(int number, siginfo_t* info, void* context) {
    constexpr greg_t kWriteBit = 2;  // of the processor's error code
    const bool is_write = (static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
    PageWitness* witness = active.load();
    if (witness != nullptr && witness->take(info->si_addr, is_write)) return;
    if ((handler_before.sa_flags & SA_SIGINFO) != 0) return handler_before.sa_sigaction(number, info, context);
    ::sigaction(SIGSEGV, &handler_before, nullptr);  // the fault repeats, and ends the process as usual
}

}  // namespace

std::size_t witness_page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

PageWitness::PageWitness(std::vector<WatchedPages>& memory, bool writable) : memory_(memory), writable_(writable) {
    if (active.exchange(this) != nullptr) throw std::logic_error("page witness: another one is active");
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGSEGV, &action, &handler_before);
    rearm();
}

PageWitness::~PageWitness() {
    open();
    ::sigaction(SIGSEGV, &handler_before, nullptr);
    active = nullptr;
}

void PageWitness::rearm() {
    for (WatchedPages& piece : memory_) {
        std::ranges::fill(piece.touched_, WatchedPages::none);
        ::mprotect(piece.begin_, piece.touched_.size() * witness_page_bytes(), PROT_NONE);
    }
}

void PageWitness::open() {
    for (const WatchedPages& piece : memory_)
        ::mprotect(piece.begin_, piece.touched_.size() * witness_page_bytes(),
                   writable_ ? PROT_READ | PROT_WRITE : PROT_READ);
}

bool PageWitness::take(const void* address, bool is_write) noexcept {
    const auto page_bytes = witness_page_bytes();
    for (WatchedPages& piece : memory_) {
        const auto* at = static_cast<const std::byte*>(address);
        if (at < piece.begin_ || at >= piece.begin_ + piece.touched_.size() * page_bytes) continue;
        const auto page = static_cast<std::size_t>(at - piece.begin_) / page_bytes;
        piece.touched_[page] =
            static_cast<std::uint8_t>(piece.touched_[page] | (is_write ? WatchedPages::written : WatchedPages::read));
        return ::mprotect(piece.begin_ + page * page_bytes, page_bytes,
                          is_write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
    }
    return false;
}

#else

std::size_t witness_page_bytes() noexcept { return 4096; }
PageWitness::PageWitness(std::vector<WatchedPages>& memory, bool writable) : memory_(memory), writable_(writable) {}
PageWitness::~PageWitness() = default;
void PageWitness::rearm() {}
void PageWitness::open() {}
bool PageWitness::take(const void*, bool) noexcept { return false; }

#endif

WatchedPages::WatchedPages(std::span<const std::byte> memory) {
    const std::size_t page = witness_page_bytes();
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
    offset_ = first % page;
    begin_ = const_cast<std::byte*>(memory.data()) - offset_;
    touched_.assign((offset_ + memory.size() + page - 1) / page, none);
}

std::pair<std::size_t, std::size_t> WatchedPages::pages_of(std::uint64_t first, std::uint64_t end) const noexcept {
    if (end <= first) return {0, 0};
    const std::size_t page = witness_page_bytes();
    return {(offset_ + first) / page, std::min((offset_ + end + page - 1) / page, touched_.size())};
}

namespace {

/// A kernel's declared and resolved accesses by operand.
class SaidAccesses final : public kernels::AccessSink {
public:
    struct Said {
        std::uint16_t slot;
        AccessMode mode;
        bool whole;
        AccessRange range;
    };
    std::vector<Said> list;
    void whole(std::uint16_t slot, AccessMode mode, std::uint16_t) override { list.push_back({slot, mode, true, {}}); }
    void range(std::uint16_t slot, AccessMode mode, const AccessRange& range) override {
        list.push_back({slot, mode, false, range});
    }
    void dynamic(std::uint16_t, AccessMode) override {}
};

/// Whether two operands are the same cache, which a test may pass twice; then their allowed reads are merged.
bool is_one_cache(Op op) { return op == Op::key_shift || op == Op::kv_copy_page || op == Op::kv_move; }

/// Cache rows are logical: the layout inside a page of KV slots is up to the kernels.
bool is_paged(Op op, std::uint16_t slot) {
    switch (op) {
        case Op::kv_write:
        case Op::rope_kv_write: return slot == 0;
        case Op::attention:
        case Op::sparse_attention: return slot == 2 || slot == 3;
        case Op::select_keys:
        case Op::compressed_attention: return slot == 2;
        case Op::key_shift:
        case Op::kv_copy_page:
        case Op::kv_move: return slot == 0 || slot == 1;
        default: return false;
    }
}

}  // namespace

namespace detail {

std::vector<WatchedPages> watch_operands(const kernels::KernelCall& call, std::vector<int>& piece_of_slot) {
    std::vector<WatchedPages> pieces;
    std::vector<const std::byte*> begins;
    piece_of_slot.assign(kernels::kMaxOperands, -1);
    for (std::size_t slot = 0; slot < kernels::kScratchSlot; ++slot) {
        const kernels::Operand& operand = call.operands[slot];
        if (!operand.present() || operand.data == nullptr || operand.bytes == 0) continue;
        const auto same = std::ranges::find(begins, operand.data);
        piece_of_slot[slot] = static_cast<int>(same - begins.begin());
        if (same != begins.end()) continue;
        begins.push_back(operand.data);
        pieces.emplace_back(std::span<const std::byte>(operand.data, operand.bytes));
    }
    return pieces;
}

std::string compare_pages(const kernels::KernelDescriptor& kernel, const kernels::KernelCall& call,
                          std::span<const WatchedPages> pieces, std::span<const int> piece_of_slot) {
    SaidAccesses said;
    kernel.declare(call, said);
    if (kernel.resolve != nullptr) kernel.resolve(call, said);
    struct Expected {
        std::vector<std::uint8_t> may;  // bits of Touch
        std::vector<bool> must;
    };
    std::vector<Expected> expected;
    for (const WatchedPages& piece : pieces)
        expected.push_back({std::vector<std::uint8_t>(piece.n_pages(), 0), std::vector<bool>(piece.n_pages(), false)});
    if (is_one_cache(kernel.op))
        for (std::size_t i = 0, n = said.list.size(); i < n; ++i)
            if (said.list[i].slot == 1) {
                said.list.push_back(said.list[i]);
                said.list.back().slot = 0;
            }
    for (const SaidAccesses::Said& access : said.list) {
        const int number = access.slot < piece_of_slot.size() ? piece_of_slot[access.slot] : -1;
        if (number < 0) continue;
        const WatchedPages& piece = pieces[static_cast<std::size_t>(number)];
        Expected& want = expected[static_cast<std::size_t>(number)];
        const kernels::Operand& operand = call.operands[access.slot];
        const auto bits = static_cast<std::uint8_t>(access.mode);
        const auto mark = [&](std::uint64_t first, std::uint64_t end, bool must) {
            const auto [from, to] = piece.pages_of(first, end);
            for (std::size_t page = from; page < to; ++page) {
                want.may[page] = static_cast<std::uint8_t>(want.may[page] | bits);
                if (must) want.must[page] = true;
            }
        };
        if (access.whole) {
            // Distance biases are declared as read whole, but short texts read only the near ones.
            mark(0, operand.bytes, !(kernel.op == Op::attention && access.slot == 9));
            continue;
        }
        for (std::uint32_t i = 0; i < access.range.count; ++i) {
            const std::uint64_t first = access.range.offset + i * access.range.stride,
                                end = first + access.range.length;
            if (!is_paged(kernel.op, access.slot)) {
                mark(first, end, !access.range.padding);
                continue;
            }
            const auto page = static_cast<std::uint64_t>(row_bytes(operand.type, operand.ne[0])) * kernels::kPageSlots;
            mark(first / page * page, std::min((end + page - 1) / page * page, operand.bytes), false);
        }
    }
    for (std::size_t p = 0; p < pieces.size(); ++p)
        for (std::size_t page = 0; page < pieces[p].n_pages(); ++page) {
            const std::uint8_t touched = pieces[p].touched(page), may = expected[p].may[page];
            const auto slot = std::ranges::find(piece_of_slot, static_cast<int>(p)) - piece_of_slot.begin();
            const auto describe = [&](std::string_view what) {
                return cat(kernel.name, ": page ", page, " of ", pieces[p].n_pages(), " of slot ", slot, " ", what);
            };
            // What a kernel wrote first, it may read afterwards.
            if ((touched & WatchedPages::read) != 0 && (may & WatchedPages::read) == 0)
                return describe("was read, which the kernel does not say");
            if ((touched & WatchedPages::written) != 0 && (may & WatchedPages::written) == 0)
                return describe("was written, which the kernel does not say");
            if (touched == 0 && expected[p].must[page]) return describe("was not touched, which the kernel says");
        }
    return {};
}

}  // namespace detail

}  // namespace tinfer::test
