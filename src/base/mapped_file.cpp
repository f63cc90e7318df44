// SPDX-License-Identifier: MIT
#include "base/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "base/error.hpp"

namespace tinfer {

namespace {

// The pages that hold at least one byte of the range, as [begin, end) addresses.
std::pair<std::uintptr_t, std::uintptr_t> covering_pages(std::span<const std::byte> range) noexcept {
    const std::uintptr_t page = page_size(), begin = reinterpret_cast<std::uintptr_t>(range.data());
    return {begin & ~(page - 1), (begin + range.size() + page - 1) & ~(page - 1)};
}

void touch_pages(std::uintptr_t begin, std::uintptr_t end) noexcept {
    for (std::uintptr_t page = begin; page < end; page += page_size())
        static_cast<void>(*reinterpret_cast<const volatile std::byte*>(page));
}

// Addresses of pages that are made when they are written; null and errno where the system does not give them.
std::byte* map_sparse(std::byte* at, std::size_t bytes, int flags) noexcept {
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
    flags |= MAP_NORESERVE;
#endif
    void* const address = ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (address == MAP_FAILED) return nullptr;
#if defined(MADV_NOHUGEPAGE)
    ::madvise(address, bytes, MADV_NOHUGEPAGE);  // a large page would keep what is beside the written part
#endif
    return static_cast<std::byte*>(address);
}

}  // namespace

std::string errno_text(int error) { return cat(std::generic_category().message(error), " (errno ", error, ")"); }

std::string display_name(const std::filesystem::path& path) {
    constexpr std::size_t longest = 480;
    const std::string text = path.string();
    if (text.empty()) return "\"\"";
    if (text.size() <= longest) return escaped(text, 2 * longest);
    return "…" + escaped(std::string_view(text).substr(text.size() - longest), 2 * longest);
}

std::size_t page_size() noexcept {
    const long size = ::sysconf(_SC_PAGESIZE);
    return size > 0 ? static_cast<std::size_t>(size) : 4096;
}

std::vector<std::byte> read_whole_file(const std::filesystem::path& path, std::uint64_t most) {
    const InputFile file(path);
    if (file.size() > most)
        fail(ErrorCode::limit_exceeded,
             cat(display_name(path), ": has ", file.size(), " bytes, at most ", most, " are read of such a file"));
    std::vector<std::byte> bytes(static_cast<std::size_t>(file.size()));
    file.read_at(0, bytes);
    return bytes;
}

// ---- MappedFile -----------------------------------------------------------------------------------------------------

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(data_, size_);
}

// ---- InputFile ------------------------------------------------------------------------------------------------------

InputFile::InputFile(const std::filesystem::path& path) : name_(display_name(path)) {
    // O_NONBLOCK, because opening a pipe by mistake would wait for a writer. It changes nothing for regular files.
    do descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (descriptor_ < 0 && errno == EINTR);
    if (descriptor_ < 0) fail(ErrorCode::io_error, cat(name_, ": cannot open: ", errno_text(errno)));

    struct ::stat status {};
    const int result = ::fstat(descriptor_, &status), error = errno;
    if (result != 0 || !S_ISREG(status.st_mode)) {
        ::close(std::exchange(descriptor_, -1));
        fail(ErrorCode::io_error,
             result != 0 ? cat(name_, ": cannot stat: ", errno_text(error)) : cat(name_, ": not a regular file"));
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_), name_(std::move(other.name_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    std::swap(name_, other.name_);
    return *this;
}

InputFile::~InputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t InputFile::size_now() const noexcept {
    const auto now = identity_now();
    return now ? now->size : size_;
}

std::optional<InputFile::Identity> InputFile::identity_now() const noexcept {
    struct ::stat status {};
    if (::fstat(descriptor_, &status) != 0) return std::nullopt;
    const auto nanoseconds = [](const ::timespec& time) {
        return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::int64_t>(time.tv_nsec);
    };
#if defined(__APPLE__)
    const ::timespec modified = status.st_mtimespec, changed = status.st_ctimespec;
#else
    const ::timespec modified = status.st_mtim, changed = status.st_ctim;
#endif
    return Identity{static_cast<std::uint64_t>(status.st_dev), static_cast<std::uint64_t>(status.st_ino),
                    static_cast<std::uint64_t>(status.st_size), nanoseconds(modified), nanoseconds(changed)};
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
    constexpr std::size_t chunk = std::size_t{64} << 20;  // one call is limited to about 2 GiB on Linux
    while (!out.empty()) {
        const ::ssize_t count =
            ::pread(descriptor_, out.data(), std::min(chunk, out.size()), static_cast<::off_t>(offset));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(ErrorCode::io_error, cat(name_, ": cannot read at byte ", offset, ": ", errno_text(errno)));
        if (count == 0)
            fail(ErrorCode::truncated,
                 cat(name_, ": file ends at byte ", offset, ", was ", size_, " bytes when opened"));
        offset += static_cast<std::uint64_t>(count);
        out = out.subspan(static_cast<std::size_t>(count));
    }
}

MappedFile InputFile::map(int& error) const noexcept {
    MappedFile result;
    error = EINVAL;
    if (size_ == 0 || size_ > SIZE_MAX) return result;
    void* address = ::mmap(nullptr, static_cast<std::size_t>(size_), PROT_READ, MAP_SHARED, descriptor_, 0);
    error = errno;
    if (address == MAP_FAILED) return result;
    result.data_ = static_cast<std::byte*>(address);
    result.size_ = static_cast<std::size_t>(size_);
    // Where the file system supports it, the file is read and mapped in pages of 2 MB: a tenth more bytes per second.
    prefer_large_pages(result.bytes());
    return result;
}

// ---- SparseMemory ---------------------------------------------------------------------------------------------------

SparseMemory::SparseMemory(std::size_t bytes, std::size_t alignment)
    : size_((bytes + page_size() - 1) / page_size() * page_size()) {
    const std::size_t more = alignment > page_size() ? alignment - page_size() : 0;
    std::byte* const all = map_sparse(nullptr, size_ + more, 0);
    if (all == nullptr)
        fail(ErrorCode::out_of_memory, cat("cannot reserve ", bytes, " bytes of addresses: ", errno_text(errno)));
    const std::size_t before = more > 0 ? -reinterpret_cast<std::uintptr_t>(all) & (alignment - 1) : 0;
    data_ = all + before;
    if (before > 0) ::munmap(all, before);
    if (more > before) ::munmap(data_ + size_, more - before);
}

SparseMemory& SparseMemory::operator=(SparseMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(lost_begin_, other.lost_begin_);
    std::swap(lost_end_, other.lost_end_);
    return *this;
}

SparseMemory::~SparseMemory() {
    if (lost_begin_ > 0) ::munmap(data_, lost_begin_);
    if (lost_end_ < size_) ::munmap(data_ + lost_end_, size_ - lost_end_);
}

void SparseMemory::drop(std::byte* begin, std::size_t bytes) noexcept {
    if (bytes > 0) ::madvise(begin, bytes, MADV_DONTNEED);
}

// The addresses that pages are taken from must stay this memory's: with MREMAP_DONTUNMAP nobody else can get them.
// A call that fails may have unmapped its target before: it is mapped again, where nobody else has come in between.
SparseMemory::Taken SparseMemory::take([[maybe_unused]] std::byte* from, [[maybe_unused]] std::size_t at,
                                       [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(__linux__) && defined(MREMAP_DONTUNMAP) && defined(MAP_FIXED_NOREPLACE)
    std::byte* const to = data_ + at;
    if (::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to) return Taken::yes;
    if (::msync(to, bytes, MS_ASYNC) == 0) return Taken::no;         // all of it is mapped
    for (std::size_t done = 0; done < bytes; done += page_size()) {  // the call may have ended anywhere
        std::byte* const page = map_sparse(to + done, page_size(), MAP_FIXED_NOREPLACE);
        if (page == to + done || (page == nullptr && errno == EEXIST)) continue;
        if (page != nullptr)
            ::munmap(page, page_size());  // a system that knows no such flag took the address for a wish
        lost_begin_ = at;
        lost_end_ = at + bytes;
        return Taken::lost;
    }
#endif
    return Taken::no;
}

// The range asks for large pages during this call only. Later the kernel could rebuild a large page from the part that
// is left, and so allocate again what has been moved away.
bool SparseMemory::populate([[maybe_unused]] std::size_t begin, [[maybe_unused]] std::size_t end) const noexcept {
#if defined(MADV_POPULATE_WRITE) && defined(MADV_NOHUGEPAGE)
    prefer_large_pages({data_ + begin, end - begin});
    int result;
    do result = ::madvise(data_ + begin, end - begin, MADV_POPULATE_WRITE);
    while (result != 0 && errno == EINTR);
    ::madvise(data_ + begin, end - begin, MADV_NOHUGEPAGE);
    return result == 0;
#else
    return false;
#endif
}

std::optional<std::size_t> SparseMemory::resident_pages() const {
#if defined(__linux__)
    std::vector<unsigned char> pages(size_ / page_size());
    if (::mincore(data_, size_, pages.data()) != 0) return std::nullopt;
    return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return (page & 1) != 0; }));
#else
    return std::nullopt;
#endif
}

// ---- pages ----------------------------------------------------------------------------------------------------------

std::optional<std::size_t> mappings_left() noexcept {
#if defined(__linux__)
    // Calls `visit` with all bytes of a file of the system's; returns whether it could be read.
    const auto read = [](const char* path, const auto& visit) noexcept {
        const int descriptor = ::open(path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0) return false;
        std::array<char, 4096> block;
        ::ssize_t n;
        do {
            n = ::read(descriptor, block.data(), block.size());
            for (::ssize_t i = 0; i < n; ++i) visit(block[static_cast<std::size_t>(i)]);
        } while (n > 0 || (n < 0 && errno == EINTR));
        ::close(descriptor);
        return n == 0;
    };
    std::size_t most = 0, n_mappings = 0;
    const bool is_known = read("/proc/sys/vm/max_map_count",
                               [&](char c) { most = c >= '0' && c <= '9' ? 10 * most + (c - '0') : most; }) &&
                          read("/proc/self/maps", [&](char c) { n_mappings += c == '\n' ? 1 : 0; });
    if (is_known) return most > n_mappings ? most - n_mappings : 0;
#endif
    return std::nullopt;
}

void prefer_large_pages([[maybe_unused]] std::span<const std::byte> range) noexcept {
#if defined(MADV_HUGEPAGE)
    ::madvise(const_cast<std::byte*>(range.data()), range.size(), MADV_HUGEPAGE);
#endif
}

int populate_pages(std::span<const std::byte> range) noexcept {
    if (range.empty()) return 0;
    const auto [begin, end] = covering_pages(range);
#if defined(MADV_POPULATE_READ)
    int result;
    do result = ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
    while (result != 0 && errno == EINTR);
    if (result == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;  // older kernels do not know the advice
#endif
    touch_pages(begin, end);
    return 0;
}

LockedPages& LockedPages::operator=(LockedPages&& other) noexcept {
    std::swap(ranges_, other.ranges_);
    return *this;
}

int LockedPages::add(std::span<const std::byte> range) {
    if (range.empty()) return 0;
    auto [begin, end] = covering_pages(range);
    if (!ranges_.empty() && begin >= ranges_.back().begin && begin <= ranges_.back().end) {
        begin = std::max(begin, ranges_.back().end);  // pages shared with the tensor before are locked already
        if (begin >= end) return 0;
        if (::mlock(reinterpret_cast<const void*>(begin), end - begin) != 0) return errno;
        ranges_.back().end = end;
        return 0;
    }
    ranges_.push_back({begin, begin});
    if (::mlock(reinterpret_cast<const void*>(begin), end - begin) != 0) return errno;
    ranges_.back().end = end;
    return 0;
}

void LockedPages::unlock() noexcept {
    for (const auto& [begin, end] : ranges_)
        if (begin != end) ::munlock(reinterpret_cast<const void*>(begin), end - begin);
    ranges_.clear();
}

}  // namespace tinfer
