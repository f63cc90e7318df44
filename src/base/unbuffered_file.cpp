// SPDX-License-Identifier: MIT
#include "base/unbuffered_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

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
    const std::size_t whole = (needed + kAlignment - 1) / kAlignment * kAlignment;
    if (is_direct() && read_direct(begin, needed, buffer.first(whole))) return buffer.subspan(before, n);
    file_.read_at(offset, buffer.first(n));
#if defined(POSIX_FADV_DONTNEED)
    ::posix_fadvise(file_.descriptor(), static_cast<::off_t>(begin), static_cast<::off_t>(whole), POSIX_FADV_DONTNEED);
#endif
    return buffer.first(n);
}

bool UnbufferedFile::read_direct(std::uint64_t offset, std::size_t needed, std::span<std::byte> out) const {
    std::size_t done = 0;
    while (done < needed) {
        const ::ssize_t count =
            ::pread(descriptor_, out.data() + done, out.size() - done, static_cast<::off_t>(offset + done));
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
        if (next == done) {  // less than one unit, and not at the end: let the cache do it, which knows the error
            file_.read_at(offset + done, out.subspan(done, needed - done));
            return true;
        }
        done = next;
    }
    return true;
}

}  // namespace tinfer
