// SPDX-License-Identifier: MIT
#include "trace/file/extras.hpp"

#include "trace/file/block_writer.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "tinfer/model.hpp"

namespace tinfer::trace {

std::uint64_t fnv1a(std::span<const std::byte> bytes, std::uint64_t before) noexcept {
    for (const std::byte byte : bytes) before = (before ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3ull;
    return before;
}

std::uint32_t PieceRecords::encode(std::span<const Token> tokens, const std::function<std::string(Token)>& text_of) {
    payload.clear();
    std::uint32_t n = 0;
    for (const Token token : tokens) {
        const auto id = static_cast<std::size_t>(token);
        if (static_cast<std::int32_t>(token) < 0 || (id < is_there_.size() && is_there_[id])) continue;
        if (id >= is_there_.size()) is_there_.resize(id + 1);
        is_there_[id] = true;
        const std::string text = text_of(token);
        put(payload, static_cast<std::int32_t>(token));
        put(payload, static_cast<std::uint32_t>(text.size()));
        put_all(payload, std::span<const char>(text));
        payload.resize((payload.size() + 3) / 4 * 4);
        ++n;
    }
    return n;
}

void ExtraRecords::begin_session(const SessionInfo& info, const TraceExtras& wanted) {
    wanted_ = wanted;
    if (!wanted.pages || info.file == nullptr) return;
    const auto paths = info.file->paths();
    knows_pages_ = !paths.empty() && std::ranges::all_of(paths, [](const std::filesystem::path& path) {
        return knows_residency(path.string().c_str());
    });
}

void ExtraRecords::clear() noexcept {
    pages.clear();
    routings.clear();
    picks.clear();
    hashes.clear();
}

void ExtraRecords::before(const StepView& step) {
    if (!wanted_.pages) return;
    step_pages_.clear();
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
        const Access& access = step.operands[i];
        if (access.kind == AccessKind::elided || access.tensor->tensor_class != TensorClass::weight) continue;
        trace_format::Pages record;
        record.operand = static_cast<std::uint16_t>(i);
        record.page_bytes = system_page_bytes();
        record.flags = trace_format::unknown_residency;
        if (access.kind == AccessKind::whole && access.tensor->address != nullptr) {
            const PageCount count = count_pages(access.tensor->address, access.tensor->bytes);
            record.n_pages = count.pages;
            if (knows_pages_ && count.resident) {
                record.resident_before = *count.resident;
                record.flags = 0;
            }
        }
        step_pages_.push_back(record);
    }
    faults_before_ = count_faults();
}

void ExtraRecords::after(const KernelEvent& event, const StepValues& values) {
    if (wanted_.pages && !step_pages_.empty()) {
        const FaultCount now = count_faults();
        // The process counts its faults as one, so the first weight of the step has them all.
        step_pages_[0].minor_faults = static_cast<std::uint32_t>(now.minor - faults_before_.minor);
        step_pages_[0].major_faults = static_cast<std::uint32_t>(now.major - faults_before_.major);
        for (trace_format::Pages& record : step_pages_) {
            record.event = event.index;
            pages.push_back(record);
        }
        step_pages_.clear();
    }
    if (wanted_.router && event.step->op == Op::moe_weights) add_routing(event, values);
    if (wanted_.value_hash) add_hashes(event, values);
}

void ExtraRecords::add_routing(const KernelEvent& event, const StepValues& values) {
    const auto weights = values.value(0), probabilities = values.value(1), ids = values.value(2);
    if (weights.data.empty() || ids.data.empty() || probabilities.tensor == nullptr) return;
    const auto k = static_cast<std::size_t>(ids.tensor->ne[0]);
    const std::size_t n = std::min(ids.data.size(), weights.data.size()) / 4;
    Routing routing;
    routing.header.event = event.index;
    routing.header.k = static_cast<std::uint16_t>(k);
    routing.header.n_tokens = static_cast<std::uint32_t>(n / std::max<std::size_t>(k, 1));
    routing.header.n_experts = static_cast<std::uint16_t>(probabilities.tensor->ne[0]);
    routing.first_pick = picks.size();
    routing.n_picks = routing.header.n_tokens * k;
    for (std::size_t i = 0; i < routing.n_picks; ++i)
        picks.push_back({static_cast<std::uint16_t>(load<std::int32_t>(ids.data.data() + 4 * i)),
                         static_cast<std::uint16_t>(i % k), load<float>(weights.data.data() + 4 * i)});
    routings.push_back(routing);
}

void ExtraRecords::add_hashes(const KernelEvent& event, const StepValues& values) {
    for (const Access& access : event.accesses) {
        if (access.scratch || access.mode == AccessMode::read || access.kind == AccessKind::elided) continue;
        // Ranges of K and V are logical: where their bytes lie inside a page is the kernels' affair.
        const TensorClass kind = access.tensor->tensor_class;
        if (kind == TensorClass::cache_k || kind == TensorClass::cache_v) continue;
        const auto value = values.value(access.slot);
        if (value.data.empty()) continue;
        std::uint64_t hash = fnv1a({});
        if (access.kind == AccessKind::whole) hash = fnv1a(value.data.first(access.tensor->bytes), hash);
        for (const AccessRange& range : access.ranges)
            for (std::uint32_t i = 0; i < range.count; ++i)
                if (const std::uint64_t at = range.offset + i * range.stride; at + range.length <= value.data.size())
                    hash = fnv1a(value.data.subspan(at, range.length), hash);
        const auto same = std::ranges::find_if(event.step->operands, [&](const Access& operand) {
            return operand.slot == access.slot && operand.mode == access.mode;
        });
        hashes.push_back(
            {event.index, static_cast<std::uint32_t>(same - event.step->operands.begin()), kHashFnv1a, hash});
    }
}

}  // namespace tinfer::trace
