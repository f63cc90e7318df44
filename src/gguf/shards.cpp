// SPDX-License-Identifier: MIT
// From paths to one directory: opens files, finds the shards of a split set by name, merges their tensors. Of the rules
// in docs/gguf.md, V17 (names across shards) and V26 to V31 (placement in the file) are checked here.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/checked.hpp"
#include "base/error.hpp"
#include "gguf/contents.hpp"

namespace tinfer::gguf {

namespace {

constexpr std::uint64_t kMaxMergedTensors = 1048576;
constexpr std::string_view kInDirectory = "no memory for the directory of a model file";

void log_note(const ModelOptions& options, LogLevel level, const std::string& text) {
    if (options.log) options.log(level, text);
}

/// Names, keys and texts are views of bytes that are read, never of a mapping: they live as long as the model, are
/// looked at by whoever asks, and another process may cut the file short. The end of the header is known only once it
/// is parsed, so the front that is read grows until it holds it.
void read_and_parse(Shard& shard) {
    constexpr std::uint64_t least = std::uint64_t{1} << 18, spare = std::uint64_t{1} << 20;
    for (std::uint64_t front = least;; front *= 4) {
        const std::uint64_t bytes = std::min(front, shard.file_bytes);
        shard.header = AlignedBuffer();
        shard.header = AlignedBuffer(static_cast<std::size_t>(bytes));
        shard.file.read_at(0, shard.header.bytes());
        if (parse(shard, shard.header.bytes())) break;
    }
    if (shard.header.size() - shard.header_end <= spare) return;
    AlignedBuffer header(static_cast<std::size_t>(shard.header_end));  // without what was read beyond its end
    std::ranges::copy(shard.header.bytes().first(header.size()), header.data());
    shard.header = std::move(header);
    static_cast<void>(parse(shard, shard.header.bytes()));
}

void open_shard(File::Impl& impl, Shard& shard, const std::filesystem::path& path, const ModelOptions& options) {
    shard.path = path;
    shard.name = display_name(path);
    shard.file = InputFile(path);
    shard.file_bytes = shard.file.size();
    read_and_parse(shard);
    if (options.use_mmap) impl.map(shard, options);
}

// ---- split sets

/// A reserved integer key of any integer type, or nothing when absent.
std::optional<std::int64_t> split_key(const Shard& shard, std::string_view key) {
    const Entry* entry = shard.find(key);
    if (entry == nullptr) return std::nullopt;
    if (!is_integer(entry->type))
        fail(ErrorCode::bad_metadata,
             cat(shard.name, ": key '", key, "' has type ", to_string(entry->type), ", must be an integer"));
    const auto value = load_integer(entry->type, entry->value);
    if (!value || *value < 0)
        fail(ErrorCode::bad_split, cat(shard.name, ": key '", key, "' is negative or exceeds 2^63-1"));
    return value;
}

/// "-00002-of-00005.gguf", numbered from one.
std::string split_suffix(std::int64_t number, std::int64_t count) {
    const auto padded = [](std::int64_t value) {
        const std::string digits = std::to_string(value);
        return digits.size() < 5 ? std::string(5 - digits.size(), '0') + digits : digits;
    };
    return cat("-", padded(number), "-of-", padded(count), ".gguf");
}

/// Path of shard `k` (from zero), from the path of the first alone: names never come from metadata.
std::filesystem::path sibling_path(const Shard& first, std::int64_t k, std::int64_t count) {
    const std::string own = split_suffix(1, count);
    std::string file = first.path.filename().string();
    if (!file.ends_with(own))
        fail(ErrorCode::bad_split, cat(first.name, ": first of ", count, " shards, but its name does not end in '", own,
                                       "'; give the list of shards instead"));
    file.replace(file.size() - own.size(), own.size(), split_suffix(k + 1, count));
    return first.path.parent_path() / file;
}

void check_shard_number(const Shard& shard, std::int64_t k, std::int64_t count) {
    const auto number = split_key(shard, "split.no"), own_count = split_key(shard, "split.count");
    if (!number || *number != k)
        fail(ErrorCode::bad_split,
             cat(shard.name, ": split.no is ", number ? std::to_string(*number) : "absent", ", expected ", k));
    if (!own_count || *own_count != count)
        fail(ErrorCode::bad_split,
             cat(shard.name, ": split.count is ", own_count ? std::to_string(*own_count) : "absent",
                 ", the first shard says ", count));
}

/// Number of shards the first one announces: 1 for a file of its own.
std::int64_t announced_shards(const Shard& first) {
    const std::int64_t count = split_key(first, "split.count").value_or(1);
    if (count <= 1) return 1;
    if (count > 65535) fail(ErrorCode::bad_split, cat(first.name, ": split.count is ", count, ", limit 65535"));
    if (const std::int64_t number = split_key(first, "split.no").value_or(0); number != 0)
        fail(ErrorCode::bad_split,
             cat(first.name, ": this is shard ", number, " of ", count,
                 " (from zero); give the first, whose name ends in '", split_suffix(1, count), "'"));
    return count;
}

void open_set(File::Impl& impl, std::span<const std::filesystem::path> paths, const ModelOptions& options) {
    if (paths.empty()) fail(ErrorCode::bad_parameter, "no path of a model file given");
    std::deque<Shard>& shards = impl.shards;
    open_shard(impl, shards.emplace_back(), paths[0], options);
    const Shard& first = shards.back();
    const std::int64_t count = announced_shards(first);
    if (paths.size() > 1 && static_cast<std::int64_t>(paths.size()) != count)
        fail(ErrorCode::bad_split, cat(first.name, ": ", paths.size(), " shards given, split.count is ", count));
    for (std::int64_t k = 1; k < count; ++k) {
        const bool listed = paths.size() > 1;
        open_shard(impl, shards.emplace_back(),
                   listed ? paths[static_cast<std::size_t>(k)] : sibling_path(first, k, count), options);
        check_shard_number(shards.back(), k, count);
    }
}

// ---- one directory

void check_overrides(std::span<const MetadataOverride> overrides) {
    for (const MetadataOverride& item : overrides) {
        if (item.key.empty()) fail(ErrorCode::bad_override, "override of an empty key");
        const auto* text = std::get_if<std::string>(&item.value);
        if (text != nullptr && text->size() > 127)
            fail(ErrorCode::bad_override,
                 cat("override of '", escaped(item.key), "': string of ", text->size(), " bytes, limit 127"));
    }
}

void warn_trailing_bytes(const Shard& shard, std::span<const std::uint32_t> order, const ModelOptions& options) {
    if (order.empty()) return;
    const TensorInfo& last = shard.tensors[order.back()];
    const std::uint64_t end = shard.data_start + last.data_offset + last.bytes;
    if (shard.file_bytes - end > shard.alignment)
        log_note(options, LogLevel::warning,
                 cat(shard.name, ": ", shard.file_bytes - end, " bytes after the last tensor are ignored"));
}

}  // namespace

std::vector<std::uint32_t> check_placement(const Shard& shard) {
    const std::span<const TensorInfo> tensors = shard.tensors;
    if (tensors.empty()) return {};
    if (shard.data_start > shard.file_bytes)
        fail(ErrorCode::truncated, cat(shard.name, ": tensor data would start at byte ", shard.data_start,
                                       ", the file ends at ", shard.file_bytes));
    const std::uint64_t available = shard.file_bytes - shard.data_start;
    for (const TensorInfo& t : tensors) {
        // Subtractions only: offset + bytes could wrap and point back inside.
        if (t.data_offset > available || t.bytes > available - t.data_offset)
            fail(ErrorCode::tensor_out_of_file,
                 cat(shard.name, ": tensor '", escaped(t.name), "': offset ", t.data_offset, " + size ", t.bytes,
                     " exceeds data section ", available, " (which starts at byte ", shard.data_start, ")"));
    }
    std::vector<std::uint32_t> order(tensors.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto before = [&](std::uint32_t a, std::uint32_t b) {
        return tensors[a].data_offset != tensors[b].data_offset ? tensors[a].data_offset < tensors[b].data_offset
                                                                : a < b;
    };
    if (!std::is_sorted(order.begin(), order.end(), before)) std::sort(order.begin(), order.end(), before);
    for (std::size_t i = 1; i < order.size(); ++i) {
        const TensorInfo &a = tensors[order[i - 1]], &b = tensors[order[i]];
        if (a.data_offset + a.bytes > b.data_offset)
            fail(ErrorCode::tensor_overlap,
                 cat(shard.name, ": tensor '", escaped(b.name), "' at offset ", b.data_offset, " overlaps tensor '",
                     escaped(a.name), "', which ends at ", a.data_offset + a.bytes));
    }
    return order;
}

/// Merges the tensors of all shards, in order.
static void merge_shards(File::Impl& impl, const ModelOptions& options) {
    for (std::size_t s = 0; s < impl.shards.size(); ++s) {
        Shard& shard = impl.shards[s];
        const std::vector<std::uint32_t> order = check_placement(shard);
        warn_trailing_bytes(shard, order, options);
        shard.first_tensor = impl.tensors.size();
        shard.n_tensors = shard.tensors.size();
        if (shard.first_tensor + shard.n_tensors > kMaxMergedTensors)
            fail(ErrorCode::limit_exceeded,
                 cat(shard.name, ": more than ", kMaxMergedTensors, " tensors in all shards"));
        if (s == 0) impl.tensors = std::move(shard.tensors);
        else impl.tensors.insert(impl.tensors.end(), shard.tensors.begin(), shard.tensors.end());
        shard.tensors = {};
        impl.paths.push_back(shard.path);
        for (std::size_t i = shard.first_tensor; i < impl.tensors.size(); ++i) {
            TensorInfo& tensor = impl.tensors[i];
            tensor.id = static_cast<std::uint32_t>(i);
            tensor.file_index = static_cast<int>(s);
            tensor.file_offset = shard.data_start + tensor.data_offset;
            const auto padded = checked_round_up(tensor.bytes, 64);
            const auto sum = padded ? checked_add(impl.read_buffer_bytes, *padded) : padded;
            if (!sum) fail(ErrorCode::size_overflow, cat(shard.name, ": the sizes of all tensors together overflow"));
            impl.read_buffer_bytes = *sum;
        }
        for (const std::uint32_t i : order) impl.by_place.push_back(static_cast<std::uint32_t>(shard.first_tensor + i));
    }
}

/// Refuses repeated names across shards.
static void index_names(File::Impl& impl) {
    const auto name_of = [&impl](std::size_t i) { return impl.tensor_name(i); };
    impl.names = NameIndex(impl.tensors.size(), name_of);
    if (const auto repeated = impl.names.first_repeated(name_of)) {
        const TensorInfo &a = impl.tensors[repeated->first], &b = impl.tensors[repeated->second];
        const auto file_of = [&](const TensorInfo& t) -> const std::string& {
            return impl.shards[static_cast<std::size_t>(t.file_index)].name;
        };
        fail(ErrorCode::bad_tensor_info,
             cat(file_of(b), ": tensor '", escaped(b.name), "' repeats a name of ", file_of(a)));
    }
}

/// Repeated names, and the announced number of tensors.
static void check_directory(File::Impl& impl) {
    index_names(impl);
    const Shard& first = impl.shards.front();
    if (impl.shards.size() == 1) return;
    const auto announced = split_key(first, "split.tensors.count");
    if (announced && static_cast<std::uint64_t>(*announced) != impl.tensors.size())
        fail(ErrorCode::bad_split,
             cat(first.name, ": split.tensors.count is ", *announced, ", the shards hold ", impl.tensors.size()));
}

static void set_overrides(File::Impl& impl, const ModelOptions& options) {
    check_overrides(options.overrides);
    impl.overrides = options.overrides;
    impl.asked = std::make_unique<std::atomic<bool>[]>(impl.overrides.size());
}

namespace {

/// Of the first `n_own` shards the tensors that are not chosen, of the others those that are.
void swap_chosen(File::Impl& impl, std::size_t n_own, const std::function<bool(std::string_view)>& chosen) {
    std::map<std::string, TensorInfo, std::less<>> swapped;
    for (std::size_t s = 0; s < impl.shards.size(); ++s) {
        Shard& shard = impl.shards[s];
        static_cast<void>(check_placement(shard));  // of all tensors, as long as they are there
        std::erase_if(shard.tensors, [&](const TensorInfo& tensor) {
            if (s < n_own) return chosen(tensor.name) && swapped.emplace(tensor.name, tensor).second;
            const auto own = swapped.find(tensor.name);
            if (own == swapped.end()) return true;
            if (own->second.ne != tensor.ne)
                fail(ErrorCode::bad_tensor_shape, cat(shard.name, ": tensor '", escaped(tensor.name),
                                                      "' has another shape than in ", impl.shards.front().name));
            swapped.erase(own);
            return false;
        });
    }
    if (!swapped.empty())
        fail(ErrorCode::missing_tensor,
             cat(impl.shards[n_own].name, ": tensor '", escaped(swapped.begin()->first), "' is missing"));
}

}  // namespace

std::shared_ptr<File> File::open_swapped(const std::filesystem::path& path, const std::filesystem::path& other,
                                         const std::function<bool(std::string_view)>& chosen,
                                         const ModelOptions& options) {
    return reporting_memory(kInDirectory, [&] {
        std::shared_ptr<File> file(new File);
        set_overrides(*file->impl_, options);
        if (options.use_mmap && options.guard_mapping) file->impl_->fault_handler.emplace();
        file->reading([&] {
            open_set(*file->impl_, std::span(&path, 1), options);
            const std::size_t n_own = file->impl_->shards.size();
            open_set(*file->impl_, std::span(&other, 1), options);
            swap_chosen(*file->impl_, n_own, chosen);
            merge_shards(*file->impl_, options);
            index_names(*file->impl_);
        });
        return file;
    });
}

std::shared_ptr<File> File::open(std::span<const std::filesystem::path> paths, const ModelOptions& options) {
    return reporting_memory(kInDirectory, [&] {
        std::shared_ptr<File> file(new File);
        set_overrides(*file->impl_, options);
        if (options.use_mmap && options.guard_mapping) file->impl_->fault_handler.emplace();
        file->reading([&] {
            open_set(*file->impl_, paths, options);
            merge_shards(*file->impl_, options);
            check_directory(*file->impl_);
        });
        return file;
    });
}

std::shared_ptr<File> File::open_memory(std::span<const std::byte> bytes, std::string name,
                                        const ModelOptions& options) {
    return reporting_memory(kInDirectory, [&] {
        std::shared_ptr<File> file(new File);
        set_overrides(*file->impl_, options);
        Shard& shard = file->impl_->shards.emplace_back();
        shard.path = name;
        shard.name = display_name(shard.path);
        shard.in_place = bytes.data();
        shard.file_bytes = bytes.size();
        static_cast<void>(parse(shard, bytes));
        if (const auto count = announced_shards(shard); count != 1)
            fail(ErrorCode::bad_split,
                 cat(shard.name, ": one of ", count, " shards, and bytes in memory have no siblings"));
        merge_shards(*file->impl_, options);
        check_directory(*file->impl_);
        return file;
    });
}

}  // namespace tinfer::gguf
