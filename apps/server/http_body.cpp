// SPDX-License-Identifier: MIT
#include "http_body.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "api_error.hpp"
#include "http_head.hpp"

namespace tinfer::server {

namespace {

constexpr std::size_t kFirstRoom = 4 << 10;
constexpr std::size_t kMaxIgnored = 8 << 10;  ///< bytes of extensions and trailers of one body
constexpr int kMaxDigits = 15;                ///< of the size of a chunk

ApiError bad_chunk(const char* what) { return {400, what, "bad_request"}; }

bool is_control(char c) noexcept { return (static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f; }

}  // namespace

bool BodyMemory::resize(std::size_t from, std::size_t to) noexcept {
    const std::lock_guard lock(mutex_);
    const auto small = small_ - std::min(from, kSmall) + std::min(to, kSmall);
    const auto large = large_ - (from - std::min(from, kSmall)) + (to - std::min(to, kSmall));
    if (to > from && (small > small_limit_ || large > large_limit_)) return false;
    small_ = small;
    large_ = large;
    return true;
}

void Body::Free::operator()(char* bytes) const noexcept { std::free(bytes); }

Body& Body::operator=(Body&& other) noexcept {
    if (this == &other) return *this;
    clear();
    memory_ = other.memory_;
    limit_ = other.limit_;
    size_ = std::exchange(other.size_, 0);
    capacity_ = std::exchange(other.capacity_, 0);
    bytes_ = std::move(other.bytes_);
    return *this;
}

void Body::clear() noexcept {
    bytes_.reset();
    if (memory_ != nullptr) (void)memory_->resize(capacity_, 0);
    size_ = capacity_ = 0;
}

void Body::check(std::uint64_t size) const {
    if (size > limit_)
        throw ApiError(413, "the body is larger than the limit of " + std::to_string(limit_) + " bytes",
                       "body_too_large");
}

/// By factors, so that bytes are rarely copied: blocks of this size move by their page table.
void Body::grow(std::size_t size) {
    check(size);
    if (size <= capacity_) return;
    const auto next = capacity_ < BodyMemory::kSmall ? std::max(kFirstRoom, 2 * capacity_) : capacity_ + capacity_ / 4;
    const auto capacity = std::min(limit_, std::max(size, next));
    if (!memory_->resize(capacity_, capacity))
        throw ApiError(503, "the requests of all clients together are too large now", "overloaded");
    auto* const bytes = static_cast<char*>(std::realloc(bytes_.get(), capacity));
    if (bytes == nullptr) {
        (void)memory_->resize(capacity, capacity_);
        throw std::bad_alloc();
    }
    (void)bytes_.release();
    bytes_.reset(bytes);
    capacity_ = capacity;
}

void Body::append(std::string_view bytes) {
    if (bytes.empty()) return;
    grow(size_ + bytes.size());
    std::memcpy(bytes_.get() + size_, bytes.data(), bytes.size());
    size_ += bytes.size();
}

Body::Room Body::room(std::size_t most) {
    grow(size_ + 1);
    return {bytes_.get() + size_, std::min(most, capacity_ - size_)};
}

std::size_t ChunkedReader::read(std::string_view in, Body& body) {
    std::size_t i = 0;
    while (i < in.size() && !is_done()) {
        if (at_ != At::data) {
            step(in[i++]);
            if (at_ == At::data) body.check(body.size() + left_);
            continue;
        }
        const auto n = std::min<std::uint64_t>(left_, in.size() - i);
        body.append(in.substr(i, n));
        i += n;
        left_ -= n;
        if (left_ == 0) at_ = At::data_cr;
    }
    return i;
}

void ChunkedReader::step(char c) {
    switch (at_) {
        case At::size:
        case At::more_size:
        case At::before_ext:
        case At::ext: return step_size(c);
        case At::size_lf:
            if (c != '\n') throw bad_chunk("the size of a chunk does not end with CR LF");
            at_ = left_ == 0 ? At::trailer : At::data;
            return;
        case At::data_cr:
            if (c != '\r') throw bad_chunk("a chunk is longer than its size, or does not end with CR LF");
            at_ = At::data_lf;
            return;
        case At::data_lf:
            if (c != '\n') throw bad_chunk("a chunk does not end with CR LF");
            at_ = At::size;
            return;
        case At::trailer:
        case At::trailer_name:
        case At::trailer_value: return step_trailer(c);
        case At::trailer_lf:
        case At::last_lf:
            if (c != '\n') throw bad_chunk("a line behind the last chunk does not end with CR LF");
            at_ = at_ == At::last_lf ? At::done : At::trailer;
            return;
        case At::data:
        case At::done: return;
    }
}

void ChunkedReader::step_size(char c) {
    const char small = c >= 'A' && c <= 'F' ? static_cast<char>(c | 0x20) : c;
    const int digit = small >= '0' && small <= '9' ? small - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
    if (at_ == At::size || (at_ == At::more_size && digit >= 0)) {
        if (digit < 0) throw bad_chunk("a chunk begins with no size");
        if (at_ == At::size) left_ = 0, n_digits_ = 0;
        if (++n_digits_ > kMaxDigits) throw bad_chunk("the size of a chunk has too many digits");
        left_ = left_ * 16 + static_cast<std::uint64_t>(digit);
        at_ = At::more_size;
        return;
    }
    if (c == '\r' && at_ != At::before_ext) {
        at_ = At::size_lf;
        return;
    }
    if (++n_ignored_ > kMaxIgnored) throw ApiError(431, "the extensions of chunks are too long", "header_too_large");
    if (at_ == At::ext) {
        if (is_control(c)) throw bad_chunk("an extension of a chunk has a control character");
        return;
    }
    if (c != ';' && c != ' ' && c != '\t') throw bad_chunk("the size of a chunk is no hexadecimal number");
    at_ = c == ';' ? At::ext : At::before_ext;
}

void ChunkedReader::step_trailer(char c) {
    if (at_ == At::trailer && c == '\r') {
        at_ = At::last_lf;
        return;
    }
    if (++n_ignored_ > kMaxIgnored) throw ApiError(431, "the trailers are too long", "header_too_large");
    if (at_ == At::trailer_value) {
        if (c == '\r') at_ = At::trailer_lf;
        else if (is_control(c)) throw bad_chunk("a trailer has a control character");
        return;
    }
    const bool is_colon = c == ':' && at_ == At::trailer_name;
    if (!is_colon && !is_token_char(c)) throw bad_chunk("a line behind the last chunk is no header field");
    at_ = is_colon ? At::trailer_value : At::trailer_name;
}

}  // namespace tinfer::server
