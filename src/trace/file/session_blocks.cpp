// SPDX-License-Identifier: MIT
#include "trace/file/session_blocks.hpp"

#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/model.hpp"
#include "trace/file/residency.hpp"

namespace tinfer::trace {

namespace {

class Pairs {
public:
    Pairs(SessionBlocks& blocks, StringTable& strings) : blocks_(blocks), strings_(strings) {}
    void add(std::string_view key, std::string_view value) {
        if (value.empty() || !keys_.emplace(key).second) return;
        put(blocks_.session, strings_.id(key));
        put(blocks_.session, strings_.id(value));
        ++blocks_.n_pairs;
    }
    template <class Enum>
    void add_names(std::string_view prefix, int first, int last) {
        for (int i = first; i <= last; ++i)
            if (const std::string_view name = to_string(static_cast<Enum>(i)); name != "unknown")
                add(cat(prefix, '.', i), name);
    }

private:
    SessionBlocks& blocks_;
    StringTable& strings_;
    std::set<std::string, std::less<>> keys_;
};

/// The first 16 bytes of the SHA-256 of a file's first bytes, up to its tensor data; zeros where it cannot be read.
std::array<std::uint8_t, 16> hash_of_start(const std::filesystem::path& path, std::uint64_t bytes) {
    std::array<std::uint8_t, 16> first{};
    std::ifstream in(path, std::ios::binary);
    Sha256 hash;
    std::vector<char> buffer(64 * 1024);
    while (bytes > 0) {
        const std::uint64_t n = std::min<std::uint64_t>(bytes, buffer.size());
        if (!in.read(buffer.data(), static_cast<std::streamsize>(n))) return first;
        hash.update(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
        bytes -= n;
    }
    std::ranges::copy_n(hash.finish().begin(), 16, first.begin());
    return first;
}

// `first`: the number of its first shard.
void add_files(SessionBlocks& blocks, const ModelFile& file, std::uint32_t first, StringTable& strings) {
    const auto paths = file.paths();
    for (std::size_t i = 0; i < paths.size(); ++i) {
        trace_format::File record;
        record.name = strings.id(paths[i].filename().string());
        record.index = first + static_cast<std::uint32_t>(i);
        std::error_code error;
        const auto bytes = std::filesystem::file_size(paths[i], error);
        record.bytes = error ? 0 : bytes;
        for (const TensorInfo& tensor : file.tensors())
            if (tensor.file_index == static_cast<int>(i)) {
                record.data_start = tensor.file_offset - tensor.data_offset;
                break;
            }
        record.metadata_hash = hash_of_start(paths[i], record.data_start);
        put(blocks.files, record);
        ++blocks.n_files;
    }
}

}  // namespace

SessionBlocks encode_session(const SessionInfo& info, const TraceFileOptions& options, StringTable& strings,
                             RoleNumbers& roles) {
    SessionBlocks blocks;
    const bool has_head = std::ranges::any_of(info.weights, [](const TensorInfo& t) { return t.role == "output"; });
    for (const auto tensors : {info.weights, info.caches})
        for (const TensorInfo& tensor : tensors) {
            trace_format::Tensor record = encode_tensor(tensor, strings, roles, options.extras.addresses);
            if (tensor.role == "token_embd" && !has_head) record.flags |= trace_format::tied;
            put(blocks.tensors, record);
            ++blocks.n_tensors;
        }
    if (info.file != nullptr) add_files(blocks, *info.file, 0, strings);
    if (info.draft_file != nullptr) add_files(blocks, *info.draft_file, blocks.n_files, strings);

    Pairs pairs(blocks, strings);
    pairs.add("library", cat("tinfer ", info.library_version));
    pairs.add("isa", info.isa);
    pairs.add("architecture", info.architecture);
    if (info.file != nullptr) pairs.add("model", info.file->metadata_value("general.name").value_or(""));
    // Reading all of a file would bring its pages into memory, which is what a trace with pages looks at.
    if (const auto full = info.file != nullptr && !options.extras.pages ? info.file->full_fingerprint() : std::nullopt)
        pairs.add("full_fingerprint", to_hex(*full));
    pairs.add("threads", cat(info.n_threads));
    pairs.add("page_bytes", cat(system_page_bytes()));
    pairs.add_names<Op>("op", 0, static_cast<int>(Op::count_) - 1);
    pairs.add_names<Part>("part", 0, static_cast<int>(Part::pool));
    pairs.add_names<Phase>("phase", 0, static_cast<int>(kLastPhase));
    pairs.add_names<TensorClass>("class", 0, static_cast<int>(TensorClass::scratch));
    pairs.add_names<TraceLevel>("level", 0, static_cast<int>(TraceLevel::threads));
    pairs.add_names<DType>("type", 0, static_cast<int>(DType::x8_256));  // those of files, then those of activations
    pairs.add("layout.0", "as_in_file");
    for (std::size_t i = 0; i < roles.names().size(); ++i) pairs.add(cat("role.", i + 1), roles.names()[i]);
    for (const auto& [key, value] : options.notes) pairs.add(key, value);
    return blocks;
}

}  // namespace tinfer::trace
