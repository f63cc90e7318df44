// SPDX-License-Identifier: MIT
// A trace file block by block: offsets, sequence numbers, checksums, the index and the header. The bytes collect in
// `pending`, from where the owner takes them to disk.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tinfer/trace.hpp"

#include <span>

namespace tinfer::trace {

/// Appends the bytes of a record: the layout in the file is that in memory.
template <class Record>
void put(std::vector<std::byte>& out, const Record& record) {
    const std::size_t at = out.size();
    out.resize(at + sizeof record);
    std::memcpy(out.data() + at, &record, sizeof record);
}
template <class Record>
void put_all(std::vector<std::byte>& out, std::span<Record> records) {
    if (records.empty()) return;
    const std::size_t at = out.size();
    out.resize(at + records.size_bytes());
    std::memcpy(out.data() + at, records.data(), records.size_bytes());
}
[[nodiscard]] inline std::span<const std::byte> bytes_of(const std::vector<std::byte>& bytes) { return bytes; }

class BlockWriter {
public:
    /// Begins with the header, as that of a file that is open.
    void start(const trace_format::Header& header);
    [[nodiscard]] bool started() const noexcept { return started_; }
    struct Block {
        trace_format::BlockType type{};
        std::uint32_t records = 0, record_bytes = 0;  ///< record_bytes 0: compound
        std::uint64_t earliest = 0, first = 0;        ///< time, run or event
    };
    void append(const Block& block, std::span<const std::byte> payload);
    /// Appends the index; returns the final header, to be written over the first bytes.
    trace_format::Header finish();

    trace_format::Header header{};  ///< totals are the owner's until finish()
    std::vector<std::byte> pending;
    [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }  ///< of the file so far

private:
    bool started_ = false;
    std::uint64_t bytes_ = 0, sequence_ = 0;
    std::vector<trace_format::Index> index_;
};

/// The header with its checksum.
[[nodiscard]] trace_format::Header sealed(trace_format::Header header);

/// Texts by number, from 1 on; 0 is the empty text. New ones wait until flush() writes them before their first use.
class StringTable {
public:
    std::uint32_t id(std::string_view text);
    void flush(BlockWriter& writer);

private:
    std::map<std::string, std::uint32_t, std::less<>> ids_;
    std::vector<std::pair<std::uint32_t, std::string_view>> new_;  // keys of ids_ stay where they are
};

}  // namespace tinfer::trace
