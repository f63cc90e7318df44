// SPDX-License-Identifier: MIT
// What the C interface's handles hold, and the wall that no exception passes.
#pragma once

#include <tinfer.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tinfer/tinfer.hpp>

struct tinfer_model {
    tinfer::Model model;
};

struct tinfer_context {
    tinfer::Context context;
};

struct tinfer_batch {
    tinfer::Batch batch;
};

struct tinfer_sampler {
    tinfer::Sampler sampler;
};

struct tinfer_chat {
    tinfer::Chat chat;
    std::string content, reasoning, tool_calls;  // of the last piece
};

struct tinfer_engine {
    tinfer::Engine engine;
};

struct tinfer_attachment {
    tinfer::Attachment attachment;
};

namespace tinfer_c {

/// Keeps the text for tinfer_last_error() and gives the status.
tinfer_status failed(tinfer_status status, std::string_view text) noexcept;
constexpr tinfer_status status_of(tinfer::ErrorCode code) noexcept { return static_cast<tinfer_status>(code) + 1; }

/// Runs the body of a call. It returns nothing, or a status after failed().
template <class Body>
tinfer_status guarded(Body&& body) noexcept {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return TINFER_OK;
        } else {
            return body();
        }
    } catch (const tinfer::Error& error) {
        return failed(status_of(error.code()), error.what());
    } catch (const std::bad_alloc&) {
        return failed(TINFER_OUT_OF_MEMORY, "out of memory");
    } catch (const std::exception& error) {
        return failed(TINFER_INTERNAL, error.what());
    } catch (...) {
        return failed(TINFER_INTERNAL, "an exception of unknown type");
    }
}

/// Throws bad_parameter where a pointer is null.
template <class T>
T& needed(T* pointer, const char* what) {
    if (pointer == nullptr) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, std::string(what) + " is NULL");
    return *pointer;
}

/// The caller's options with defaults for what its struct does not have. A size that is no size is bad_parameter.
template <class Options>
Options complete(const Options* given, const char* what, Options defaults = {}) {
    if (given != nullptr) {
        std::size_t size = 0;
        std::memcpy(&size, given, sizeof size);
        if (size < sizeof size || size > 4096)
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                                std::string(what) + ": size is " + std::to_string(size) + ": set it to sizeof");
        std::memcpy(static_cast<void*>(&defaults), given, std::min(size, sizeof defaults));
    }
    defaults.size = sizeof defaults;
    return defaults;
}

/// Gives a struct back: as much of it as the caller's has room for, whose size stays as it is.
template <class Result>
void give(Result* out, const char* what, Result result) {
    (void)complete(out, what);  // refuses a size that is none
    std::size_t theirs = 0;
    std::memcpy(&theirs, &needed(out, what), sizeof theirs);
    result.size = theirs;
    std::memcpy(static_cast<void*>(out), &result, std::min(theirs, sizeof result));
}

/// Values into memory of the caller's; `*n` is how many there are.
template <class T>
tinfer_status give_all(std::span<const T> values, T* out, std::size_t capacity, std::size_t* n, bool ends_with_zero) {
    needed(n, "n") = values.size();
    const std::size_t wanted = values.size() + (ends_with_zero ? 1 : 0);
    if (wanted > capacity)
        return failed(TINFER_LIMIT_EXCEEDED, "capacity " + std::to_string(capacity) + " is less than the " +
                                                 std::to_string(wanted) + " that are needed");
    if (wanted > 0) needed(out, "the memory for the result");
    std::copy(values.begin(), values.end(), out);
    if (ends_with_zero) out[values.size()] = T{};
    return TINFER_OK;
}
inline tinfer_status give_text(std::string_view text, char* out, std::size_t capacity, std::size_t* n) {
    return give_all(std::span(text.data(), text.size()), out, capacity, n, true);
}

inline std::string text_of(const char* text) { return text == nullptr ? std::string() : std::string(text); }
/// Token ids as the library has them: the types have the same bytes.
inline std::vector<tinfer::Token> tokens_of(const std::int32_t* tokens, std::size_t n) {
    if (n > 0) needed(tokens, "tokens");
    std::vector<tinfer::Token> list;
    list.reserve(n);
    for (std::size_t i = 0; i < n; ++i) list.push_back(tinfer::Token{tokens[i]});
    return list;
}
template <class Enum>
Enum enum_of(const char* name, Enum last, Enum absent, const char* what) {
    if (name == nullptr) return absent;
    for (int i = 0; i <= static_cast<int>(last); ++i)
        if (to_string(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
    throw tinfer::Error(tinfer::ErrorCode::bad_parameter, std::string(what) + ": '" + name + "' is not known");
}

tinfer::ContextOptions context_options(const tinfer_context_options* options);
tinfer::SamplerOptions sampler_options(const tinfer_sampler_options& options);
/// The grammar or schema of the options, or nothing.
std::optional<tinfer::Grammar> grammar_of(const tinfer_sampler_options& options, const tinfer::Vocab& vocab);

}  // namespace tinfer_c
