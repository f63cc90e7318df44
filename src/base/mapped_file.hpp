// SPDX-License-Identifier: MIT
// Files to read from, mappings of whole files, and pages locked in RAM: the three things of the operating system that
// loading weights needs, each owned by one object.
//
// A file that another process cuts short while it is mapped raises SIGBUS at the next touch of a lost page
// (base/fault_guard.hpp), and one that is rewritten changes what is read. No library can prevent that; read instead of
// mapping where the storage is not trusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tinfer {

/// "No such file or directory (errno 2)".
[[nodiscard]] std::string errno_text(int error);

/// The path as one line for messages: control characters escaped, only the end of a very long one.
[[nodiscard]] std::string display_name(const std::filesystem::path& path);

[[nodiscard]] std::size_t page_size() noexcept;

/// All of a regular file. Throws io_error naming the path, truncated where it becomes shorter meanwhile, and
/// limit_exceeded for one of more than `most` bytes. What reads a whole file in the library comes here.
[[nodiscard]] std::vector<std::byte> read_whole_file(const std::filesystem::path& path, std::uint64_t most);

/// The pages of a whole file, read-only, shared with every process that maps it. Nothing is read before it is touched.
class MappedFile {
public:
    MappedFile() noexcept = default;
    MappedFile(MappedFile&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    [[nodiscard]] bool is_mapped() const noexcept { return data_ != nullptr; }
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }

private:
    friend class InputFile;
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A regular file open for reading; its size is fixed at open.
class InputFile {
public:
    /// What the system says of a file, which tells one that was changed or replaced from one that was not.
    struct Identity {
        std::uint64_t device = 0, inode = 0, size = 0;
        std::int64_t modified_ns = 0, changed_ns = 0;  ///< since 1970; the second cannot be set by programs
        bool operator==(const Identity&) const = default;
    };

    InputFile() noexcept = default;
    /// Throws io_error naming the path.
    explicit InputFile(const std::filesystem::path& path);
    InputFile(InputFile&& other) noexcept;
    InputFile& operator=(InputFile&& other) noexcept;
    ~InputFile();

    [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
    [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }  ///< for messages
    /// What the file has now; size() where the system does not say.
    [[nodiscard]] std::uint64_t size_now() const noexcept;
    [[nodiscard]] std::optional<Identity> identity_now() const noexcept;
    /// Fills `out` from `offset`; throws io_error, or truncated when the file has become shorter.
    void read_at(std::uint64_t offset, std::span<std::byte> out) const;
    /// Maps the whole file. On failure the result is not mapped and `error` is the errno.
    [[nodiscard]] MappedFile map(int& error) const noexcept;

private:
    int descriptor_ = -1;
    std::uint64_t size_ = 0;
    std::string name_;
};

/// Memory of which parts are there: addresses for all of it, pages where something was written, until they are dropped.
class SparseMemory {
public:
    SparseMemory() noexcept = default;
    /// `alignment`: a power of two, at least that of a page. Throws out_of_memory.
    explicit SparseMemory(std::size_t bytes, std::size_t alignment = 0);
    SparseMemory(SparseMemory&& other) noexcept { *this = std::move(other); }
    SparseMemory& operator=(SparseMemory&& other) noexcept;
    ~SparseMemory();

    [[nodiscard]] std::byte* data() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// Gives the pages of [begin, end) back; both are multiples of a page. They read as zeros until they are written.
    void drop(std::size_t begin, std::size_t end) const noexcept { drop(data_ + begin, end - begin); }
    static void drop(std::byte* begin, std::size_t bytes) noexcept;
    enum class Taken : std::uint8_t { no, yes, lost };
    /// Gives the pages of `bytes` bytes at `from`, of this or another such memory, to this one's at `at`, which loses
    /// its own: both begin at a page, and the bytes keep what was written. Much cheaper than new pages here. Both
    /// places may be mappings of their own from then on (mappings_left()). `no`: the system cannot; `from` is as it
    /// was, the place here may read as zeros. `lost`: it has taken the addresses of the place from the process and does
    /// not give them back (a limit has been lowered, say); nobody may read or write there again, and nothing is done to
    /// them.
    [[nodiscard]] Taken take(std::byte* from, std::size_t at, std::size_t bytes) noexcept;
    /// Brings the pages of [begin, end) in, as pages of 2 MB where the system has them: bytes that follow each other
    /// then do so in memory, too. Returns whether all of them came.
    [[nodiscard]] bool populate(std::size_t begin, std::size_t end) const noexcept;
    /// How many of its pages are in memory; nullopt where the system does not say.
    [[nodiscard]] std::optional<std::size_t> resident_pages() const;

private:
    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t lost_begin_ = 0, lost_end_ = 0;  // addresses that are not this memory's any more
};

/// How many more mappings the system lets this process have; nullopt where it does not say. Takes a millisecond or more
/// where there are many.
[[nodiscard]] std::optional<std::size_t> mappings_left() noexcept;

inline constexpr std::size_t kLargePage = 2 << 20;
/// Asks the system for pages of 2 MB, where it has them; it may refuse. `range` begins at a page.
void prefer_large_pages(std::span<const std::byte> range) noexcept;

/// Brings the pages of a mapping into memory and into the page table, so that later reads cause no page faults. Returns
/// 0 or an errno (a page that can no longer be read); never raises a signal where the system can report instead.
[[nodiscard]] int populate_pages(std::span<const std::byte> range) noexcept;

/// Pages locked in RAM until this object goes: destroy it before the memory itself.
class LockedPages {
public:
    LockedPages() noexcept = default;
    LockedPages(LockedPages&& other) noexcept : ranges_(std::move(other.ranges_)) { other.ranges_.clear(); }
    LockedPages& operator=(LockedPages&& other) noexcept;
    ~LockedPages() { unlock(); }

    /// Locks every page that holds a byte of `range`. Returns 0 or the errno.
    [[nodiscard]] int add(std::span<const std::byte> range);

private:
    void unlock() noexcept;
    struct Range {
        std::uintptr_t begin, end;
    };
    std::vector<Range> ranges_;
};

}  // namespace tinfer
