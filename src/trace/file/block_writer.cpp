// SPDX-License-Identifier: MIT
#include "trace/file/block_writer.hpp"

#include <array>

#include "base/byte_io.hpp"

namespace tinfer {

namespace {

constexpr std::array<std::string_view, 18> kBlockNames{
    "strings", "session", "files",  "tensors", "plan",  "run",   "events",   "run_end", "sample",
    "mark",    "pages",   "router", "hashes",  "drops", "index", "samplers", "pieces",  "reads",
};

}  // namespace

std::string_view trace_format::to_string(trace_format::BlockType type) noexcept {
    const auto i = static_cast<std::size_t>(type) - 1;
    return i < kBlockNames.size() ? kBlockNames[i] : "unknown";
}
std::string_view trace_format::to_string(trace_format::OperandKind kind) noexcept {
    switch (kind) {
        case OperandKind::whole: return "whole";
        case OperandKind::range: return "range";
        case OperandKind::dynamic: return "dynamic";
        case OperandKind::elided: return "elided";
    }
    return "unknown";
}

namespace trace {

namespace {

constexpr std::size_t kIndexReserve = 1 << 14;  // half a megabyte: no growth while a model decodes
constexpr std::size_t kMaxIndex = trace_format::kMaxPayload / sizeof(trace_format::Index);
constexpr std::size_t kStringsPerBlock = 1u << 20;  // bytes

template <class Record>
std::span<const std::byte> record_bytes_of(const Record& record) {
    return std::as_bytes(std::span(&record, 1));
}

}  // namespace

trace_format::Header sealed(trace_format::Header header) {
    header.crc = crc32c(record_bytes_of(header).first(offsetof(trace_format::Header, crc)));
    return header;
}

void BlockWriter::start(const trace_format::Header& first) {
    header = first;
    trace_format::Header open = first;
    open.flags &= ~std::uint32_t{trace_format::closed};
    open.index_offset = open.n_events = open.n_dropped = open.n_filtered = open.file_bytes = 0;
    put(pending, sealed(open));
    bytes_ = sizeof(trace_format::Header);
    index_.reserve(kIndexReserve);
    started_ = true;
}

void BlockWriter::append(const Block& block, std::span<const std::byte> payload) {
    trace_format::BlockHeader head;
    head.type = block.type;
    head.payload_bytes = static_cast<std::uint32_t>(payload.size());
    head.records = block.records;
    head.sequence = sequence_++;
    head.earliest = block.earliest;
    head.dropped = header.n_dropped;
    head.record_bytes = block.record_bytes;
    head.payload_crc = crc32c(payload);
    head.crc = crc32c(record_bytes_of(head).first(offsetof(trace_format::BlockHeader, crc)));
    put(pending, head);
    put_all(pending, payload);
    const std::size_t padding = (8 - payload.size() % 8) % 8;
    pending.resize(pending.size() + padding);
    if (block.type != trace_format::BlockType::index && index_.size() < kMaxIndex)
        index_.push_back({bytes_, block.earliest, block.first, block.records, block.type, 0});
    bytes_ += sizeof head + payload.size() + padding;
}

trace_format::Header BlockWriter::finish() {
    header.index_offset = bytes_;
    std::vector<std::byte> payload;
    put_all(payload, std::span<const trace_format::Index>(index_));
    append(
        {trace_format::BlockType::index, static_cast<std::uint32_t>(index_.size()), sizeof(trace_format::Index), 0, 0},
        payload);
    header.file_bytes = bytes_;
    header.flags |= trace_format::closed;
    return sealed(header);
}

std::uint32_t StringTable::id(std::string_view text) {
    if (text.empty()) return 0;
    const auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    const auto number = static_cast<std::uint32_t>(ids_.size() + 1);
    const auto [place, inserted] = ids_.emplace(std::string(text), number);
    new_.emplace_back(number, place->first);
    return number;
}

void StringTable::flush(BlockWriter& writer) {
    std::vector<std::byte> payload;
    std::uint32_t records = 0;
    const auto write = [&] {
        if (records > 0) writer.append({trace_format::BlockType::strings, records, 0, 0, 0}, payload);
        payload.clear();
        records = 0;
    };
    for (const auto& [number, text] : new_) {
        put(payload, number);
        put(payload, static_cast<std::uint32_t>(text.size()));
        put_all(payload, std::as_bytes(std::span(text)));
        payload.resize((payload.size() + 3) / 4 * 4);
        ++records;
        if (payload.size() >= kStringsPerBlock) write();
    }
    write();
    new_.clear();
}

}  // namespace trace

}  // namespace tinfer
