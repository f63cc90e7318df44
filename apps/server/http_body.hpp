// SPDX-License-Identifier: MIT
// Bodies of requests: their memory, which all connections share, and the chunks that they may come in (RFC 9112 §7.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>

namespace tinfer::server {

/// The memory of all bodies that are being received, or not yet released. The first bytes of each body have a part of
/// their own, so that large bodies cannot keep small ones out. Any thread may call every member.
class BodyMemory {
public:
    static constexpr std::size_t kSmall = 64 << 10;  ///< bytes of a body that count in the part for small ones

    explicit BodyMemory(std::size_t limit) noexcept : small_limit_(limit / 8), large_limit_(limit - limit / 8) {}
    BodyMemory(const BodyMemory&) = delete;
    BodyMemory& operator=(const BodyMemory&) = delete;

    /// Changes the size of one body; false if there is no room, and nothing has changed.
    [[nodiscard]] bool resize(std::size_t from, std::size_t to) noexcept;

private:
    const std::size_t small_limit_, large_limit_;
    std::mutex mutex_;
    std::size_t small_ = 0, large_ = 0;  ///< bytes held
};

/// The bytes of one body. Counted in its BodyMemory, which must outlive it, until it is destroyed.
class Body {
public:
    Body() = default;  ///< empty, and stays so
    /// `limit`: maximum size.
    Body(BodyMemory& memory, std::size_t limit) noexcept : memory_(&memory), limit_(limit) {}
    Body(Body&& other) noexcept { *this = std::move(other); }
    Body& operator=(Body&& other) noexcept;
    ~Body() { clear(); }

    [[nodiscard]] std::string_view text() const noexcept { return {bytes_.get(), size_}; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    void clear() noexcept;
    /// Throws ApiError 413 beyond the limit, 503 if all bodies together take too much; std::bad_alloc.
    void append(std::string_view bytes);
    /// Room for at least one and at most `most` further bytes; throws as append() does.
    struct Room {
        char* data;
        std::size_t size;
    };
    [[nodiscard]] Room room(std::size_t most);
    /// Takes `size` bytes that were written to room().
    void add(std::size_t size) noexcept { size_ += size; }
    /// Throws ApiError 413 if a body of this size is beyond the limit.
    void check(std::uint64_t size) const;

private:
    struct Free {
        void operator()(char* bytes) const noexcept;
    };
    void grow(std::size_t size);

    BodyMemory* memory_ = nullptr;
    std::size_t limit_ = 0, size_ = 0, capacity_ = 0;
    std::unique_ptr<char, Free> bytes_;  ///< from malloc(), for realloc()
};

/// Decodes a chunked body while it arrives.
class ChunkedReader {
public:
    /// Reads from the front of `in`, and appends content to `body`. Returns the number of bytes read: all, unless the
    /// body ends before. Throws ApiError 400 for malformed chunks, 431 for too large extensions or trailers, and what
    /// Body::append() throws.
    std::size_t read(std::string_view in, Body& body);
    [[nodiscard]] bool is_done() const noexcept { return at_ == At::done; }

private:
    enum class At : std::uint8_t {
        size,          ///< first digit
        more_size,     ///< further digits
        before_ext,    ///< spaces before ';'
        ext,           ///< extensions, ignored
        size_lf,       ///< LF of the line of the size
        data,          ///< content
        data_cr,       ///< CR behind the content
        data_lf,       ///< and its LF
        trailer,       ///< first character of a line behind the last chunk
        trailer_name,  ///< further ones, up to the colon
        trailer_value,
        trailer_lf,
        last_lf,  ///< of the empty line that ends the body
        done,
    };
    void step(char c);
    void step_size(char c);
    void step_trailer(char c);

    At at_ = At::size;
    std::uint64_t left_ = 0;  ///< bytes of the chunk that are still to come
    int n_digits_ = 0;
    std::size_t n_ignored_ = 0;  ///< bytes of extensions and trailers
};

}  // namespace tinfer::server
