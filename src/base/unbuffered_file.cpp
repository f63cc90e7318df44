// SPDX-License-Identifier: MIT
#include "base/unbuffered_file.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"

namespace tinfer {

UnbufferedFile::UnbufferedFile(const InputFile& file) noexcept : file_(file) {
#if defined(__linux__) && defined(O_DIRECT)
    std::array<char, 40> path{};  // the open file itself, not what its path names now
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", file.descriptor());
    do descriptor_ = ::open(path.data(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    while (descriptor_ < 0 && errno == EINTR);
    direct_.store(descriptor_ >= 0, std::memory_order_relaxed);
#endif
}

UnbufferedFile::~UnbufferedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

std::span<const std::byte> UnbufferedFile::read(std::uint64_t offset, std::size_t n,
                                                std::span<std::byte> buffer) const {
    const std::uint64_t begin = offset / kAlignment * kAlignment;
    const std::size_t before = static_cast<std::size_t>(offset - begin), needed = before + n;
    const std::array parts{buffer.first((needed + kAlignment - 1) / kAlignment * kAlignment)};
    if (is_direct() && read_direct(begin, needed, parts)) return buffer.subspan(before, n);
    read_cached(offset, buffer.first(n));
    return buffer.first(n);
}

void UnbufferedFile::read_in_place(std::uint64_t offset, std::span<std::byte> out, std::span<std::byte> ends) const {
    const auto before = static_cast<std::size_t>(offset % kAlignment);
    const std::size_t n_first = before == 0 ? 0 : std::min(out.size(), kAlignment - before);
    const std::size_t n_whole = (out.size() - n_first) / kAlignment * kAlignment,
                      n_last = out.size() - n_first - n_whole;
    const std::span<std::byte> first = ends.first(kAlignment), last = ends.subspan(kAlignment, kAlignment);
    std::array<std::span<std::byte>, kMostParts> parts;
    std::size_t n = 0;
    if (n_first > 0) parts[n++] = first;
    if (n_whole > 0) parts[n++] = out.subspan(n_first, n_whole);
    if (n_last > 0) parts[n++] = last;
    if (!is_direct() || !read_direct(offset - before, before + out.size(), std::span(parts).first(n)))
        return read_cached(offset, out);
    if (n_first > 0) std::memcpy(out.data(), first.data() + before, n_first);
    if (n_last > 0) std::memcpy(out.data() + n_first + n_whole, last.data(), n_last);
}

void UnbufferedFile::read_cached(std::uint64_t offset, std::span<std::byte> out) const {
    file_.read_at(offset, out);
#if defined(POSIX_FADV_DONTNEED)
    const std::uint64_t begin = offset / kAlignment * kAlignment;
    ::posix_fadvise(file_.descriptor(), static_cast<::off_t>(begin), static_cast<::off_t>(offset - begin + out.size()),
                    POSIX_FADV_DONTNEED);
#endif
}

bool UnbufferedFile::read_direct([[maybe_unused]] std::uint64_t offset, [[maybe_unused]] std::size_t needed,
                                 [[maybe_unused]] Parts out) const {
#if !defined(__linux__)
    return false;
#else
    std::size_t done = 0;
    while (done < needed) {
        std::array<::iovec, kMostParts> left;
        int n = 0;
        std::size_t skipped = done;
        for (const std::span<std::byte> part : out) {
            const std::size_t n_past = std::min(skipped, part.size());
            skipped -= n_past;
            if (n_past == part.size()) continue;
            left[static_cast<std::size_t>(n++)] = {part.data() + n_past, part.size() - n_past};
        }
        const ::ssize_t count = ::preadv(descriptor_, left.data(), n, static_cast<::off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EINVAL) {  // a file system that wants another alignment, or none of this
            direct_.store(false, std::memory_order_relaxed);
            return false;
        }
        if (count < 0)
            fail(ErrorCode::io_error,
                 cat(file_.name(), ": cannot read at byte ", offset + done, ": ", errno_text(errno)));
        if (count == 0)
            fail(ErrorCode::truncated, cat(file_.name(), ": file ends at byte ", offset + done, ", was ", file_.size(),
                                           " bytes when opened"));
        // What comes next begins at a multiple of the alignment again. Of the file's end that is never needed.
        const std::size_t end = done + static_cast<std::size_t>(count);
        if (end >= needed) return true;
        const std::size_t next = end / kAlignment * kAlignment;
        if (next == done) return false;  // less than one unit, and not at the end: the cache knows the error
        done = next;
    }
    return true;
#endif
}

}  // namespace tinfer
