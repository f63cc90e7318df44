// SPDX-License-Identifier: MIT
// The hardware as a witness of traces: pages of weights are inaccessible before each step of a decode, and what the
// step touched is what its event says, page by page. (Kernels by themselves, with all of their operands: run_kernel.)
#include <doctest/doctest.h>

#include <algorithm>

#include "support/page_witness.hpp"
#include "support/temp_folder.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// Watches the pages of every weight; the file has each tensor on pages of its own.
class WeightWitness : public Observer {
public:
    [[nodiscard]] TraceRequest request() const override { return {.delivery = Delivery::immediate}; }
    void on_session(const SessionInfo& session) override {
        for (const TensorInfo& tensor : session.weights) {
            REQUIRE(reinterpret_cast<std::uintptr_t>(tensor.address) % witness_page_bytes() == 0);
            place_.push_back(pieces_.size());
            pieces_.emplace_back(std::span(static_cast<const std::byte*>(tensor.address), tensor.bytes));
        }
    }
    void on_run_begin(const RunInfo&) override { witness_ = std::make_unique<PageWitness>(pieces_, false); }
    void on_step_begin(const StepView&) override { witness_->rearm(); }
    void on_step_end(const KernelEvent& event, const StepValues&) override {
        witness_->open();
        std::vector<std::vector<bool>> said;
        for (const WatchedPages& piece : pieces_) said.emplace_back(piece.n_pages(), false);
        for (const Access& access : event.accesses) {
            if (access.tensor->tensor_class != TensorClass::weight || access.kind == AccessKind::elided) continue;
            const std::size_t place = place_[access.tensor->id];
            const auto mark = [&](std::uint64_t first, std::uint64_t end) {
                const auto [from, to] = pieces_[place].pages_of(first, end);
                std::fill(said[place].begin() + static_cast<std::ptrdiff_t>(from),
                          said[place].begin() + static_cast<std::ptrdiff_t>(to), true);
            };
            if (access.kind == AccessKind::whole) mark(0, access.tensor->bytes);
            for (const AccessRange& range : access.ranges)
                for (std::uint32_t i = 0; i < range.count; ++i)
                    mark(range.offset + i * range.stride, range.offset + i * range.stride + range.length);
        }
        ++n_steps;
        for (std::size_t p = 0; p < pieces_.size(); ++p)
            for (std::size_t page = 0; page < pieces_[p].n_pages(); ++page) {
                const bool touched = pieces_[p].touched(page) != 0;
                n_pages += touched ? 1 : 0;
                if (touched != said[p][page] && differences.size() < 10)
                    differences.push_back(std::string(event.step->kernel) + ": page " + std::to_string(page) +
                                          " of weight " + std::to_string(p) +
                                          (touched ? " was touched, not said" : " is said, was not touched"));
            }
    }
    void on_run_end(const RunResult&) override { witness_.reset(); }

    std::vector<std::string> differences;
    std::uint64_t n_steps = 0, n_pages = 0;

private:
    std::vector<WatchedPages> pieces_;
    std::vector<std::size_t> place_;
    std::unique_ptr<PageWitness> witness_;
};

Model load_on_pages(const TempFolder& folder, const char* arch, DType type) {
    GgufWriter writer({.alignment = static_cast<std::uint32_t>(witness_page_bytes())});
    writer.take(TinyModel::wide(arch, type).writer()).save(folder / "model.gguf");
    return Model::load(folder / "model.gguf");
}

}  // namespace

TEST_CASE("[N1] witness: the pages of weights that a decode touches are those of its events") {
    if (!can_witness_pages()) {
        MESSAGE("skipped: faults of pages are not seen here");
        return;
    }
    for (const char* arch : kTracedModels)
        for (const DType type : {DType::f32, DType::q4_k, DType::q8_0}) {
            CAPTURE(arch);
            CAPTURE(std::string(to_string(type)));
            const TempFolder folder;
            const Model model = load_on_pages(folder, arch, type);
            for (const Isa isa : available_isas())
                for (const bool fuse : {true, false}) {
                    CAPTURE(std::string(to_string(isa)));
                    CAPTURE(fuse);
                    ContextOptions options = exercise_options();
                    options.isa = isa;
                    options.fuse = fuse;
                    options.n_threads = 2;
                    Context context(model, options);
                    const auto witness = std::make_shared<WeightWitness>();
                    const auto attached = context.attach(witness);
                    exercise(context);
                    for (const std::string& difference : witness->differences) FAIL_CHECK(difference);
                    CHECK(witness->n_steps > 100);
                    CHECK(witness->n_pages > witness->n_steps);
                }
        }
}

TEST_CASE("witness: sees what an event does not say") {
    if (!can_witness_pages()) return;
    std::vector<std::byte> memory(5 * witness_page_bytes());
    std::byte* const begin =
        memory.data() + (witness_page_bytes() - reinterpret_cast<std::uintptr_t>(memory.data()) % witness_page_bytes());
    std::vector<WatchedPages> pieces;
    pieces.emplace_back(std::span<const std::byte>(begin, 3 * witness_page_bytes()));
    volatile std::byte* const first = begin;
    {
        PageWitness witness(pieces, true);
        static_cast<void>(first[10]);
        first[witness_page_bytes() + 5] = std::byte{1};
    }
    CHECK(pieces[0].touched(0) == WatchedPages::read);
    CHECK(pieces[0].touched(1) == WatchedPages::written);
    CHECK(pieces[0].touched(2) == WatchedPages::none);
    {
        PageWitness witness(pieces, true);
        static_cast<void>(first[0]);
        first[0] = std::byte{2};
    }
    CHECK(pieces[0].touched(0) == (WatchedPages::read | WatchedPages::written));
}
