// SPDX-License-Identifier: MIT
// A trace in memory: the bytes of the file, and views into them where records lie aligned; copies where they do not, or
// where records of a later version are longer than ours.
#pragma once

#include <deque>
#include <unordered_map>

#include "tinfer/trace.hpp"

namespace tinfer {

struct TraceReader::Impl {
    std::string name;
    std::vector<std::byte> bytes;
    trace_format::Header header;
    std::vector<TraceBlock> blocks;
    std::vector<TraceDamage> damage;

    struct Text {
        std::uint32_t id = 0;
        std::string_view text;
    };
    std::vector<Text> texts, pieces;  // sorted by id when the scan is done
    std::vector<std::pair<std::string_view, std::string_view>> session;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> session_ids;
    std::vector<trace_format::File> files;
    std::vector<trace_format::Tensor> tensors;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> tensor_places;  // id, place; sorted
    std::vector<RecordedPlan> plans;
    std::unordered_map<std::uint32_t, std::size_t> plan_places;
    std::vector<RecordedRun> runs;
    std::unordered_map<std::uint64_t, std::size_t> run_places;
    std::vector<trace_format::Sample> samples;
    std::vector<trace_format::Mark> marks;
    std::vector<trace_format::Read> reads;
    std::vector<trace_format::Pages> pages;
    std::vector<RecordedRouting> routings;
    std::vector<trace_format::Hash> hashes;
    std::vector<trace_format::Drop> drops;
    std::vector<trace_format::Index> index;
    std::vector<TensorInfo> infos;  // of tensors, weights first
    std::size_t n_weights = 0;

    void read_header();
    void scan();
    void resolve();
    [[nodiscard]] std::string_view text(std::uint32_t id) const noexcept;
    [[nodiscard]] std::string_view session_value(std::string_view key) const noexcept;
    [[nodiscard]] const TensorInfo* info(std::uint32_t id) const noexcept;  ///< null where the tensor is lost

private:
    using Bytes = std::span<const std::byte>;
    [[nodiscard]] bool header_at(std::uint64_t at, trace_format::BlockHeader& head) const;
    [[nodiscard]] std::uint64_t next_header(std::uint64_t from) const;
    void read_block(const TraceBlock& block);
    void read_strings(Bytes payload, std::uint32_t n);
    void read_pieces(Bytes payload, std::uint32_t n);
    void read_plan(Bytes payload, std::uint64_t offset);
    void read_run(Bytes payload, std::uint64_t offset);
    void read_events(Bytes payload, std::uint64_t offset);
    void read_router(Bytes payload, std::uint32_t n);
    RecordedRun& run_of(std::uint64_t run, std::uint64_t offset);
    template <class Record>
    std::span<const Record> view(Bytes data, std::uint64_t n, std::uint64_t stride);
    template <class Record>
    void append_records(const TraceBlock& block, Bytes payload, std::vector<Record>& to);

    std::deque<std::vector<std::byte>> copies_;
};

}  // namespace tinfer
