// SPDX-License-Identifier: MIT
// What every file of the extension uses: conversions that refuse what they do not understand, names of enumerators as
// text, and the way in which a computing call gives up the interpreter's lock and is interrupted.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tinfer/tinfer.hpp>

namespace tinfer_python {

namespace nb = nanobind;
using nanobind::literals::operator""_a;

// ---- Values ---------------------------------------------------------------------------------------------------------

/// Token ids from a list, a tuple or any array of integers with one dimension. Raises TypeError for what is none of
/// them, ValueError for other shapes, OverflowError for a number that fits no id.
std::vector<tinfer::Token> tokens_of(nb::handle value);
/// A list of int.
nb::list list_of(std::span<const tinfer::Token> tokens);
/// str with U+FFFD for what is no UTF-8.
nb::str text_of(std::string_view bytes);
inline nb::bytes bytes_of(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }
template <class T>
nb::bytes bytes_of(const std::vector<T>& records) {
    return nb::bytes(records.data(), records.size() * sizeof(T));
}
/// The bytes of a str (as UTF-8) or of a bytes object; raises TypeError for others. Valid as long as the object.
std::string_view text_bytes(nb::handle value);
/// A path from str, bytes or os.PathLike.
std::filesystem::path path_of(nb::handle value);

/// A value from outside; raises TypeError naming what it is for where it has another type.
template <class T>
T value_of(nb::handle value, const char* what) {
    T result{};
    if (!nb::try_cast(value, result)) {
        const std::string message = std::string(what) + " cannot be " + nb::cast<std::string>(nb::repr(value));
        throw nb::type_error(message.c_str());
    }
    return result;
}

/// The enumerator whose to_string() is `name`. Raises ValueError listing the names: those of the values 0, 1, … up to
/// `last`.
template <class Enum>
Enum enum_of(std::string_view name, Enum last, const char* what) {
    std::string names;
    for (int i = 0; i <= static_cast<int>(last); ++i) {
        const auto value = static_cast<Enum>(i);
        if (to_string(value) == name) return value;
        names += (names.empty() ? "" : ", ") + std::string(to_string(value));
    }
    const std::string message = std::string(what) + " is '" + std::string(name) + "', not one of: " + names;
    throw nb::value_error(message.c_str());
}
/// As nanobind wants text: owned.
template <class Enum>
std::string name_of(Enum value) {
    return std::string(to_string(value));
}

/// Sets tinfer.Error as the interpreter's current exception.
void raise(const tinfer::Error& error);

// ---- Calls that compute ---------------------------------------------------------------------------------------------

/// What interrupts a computing call from Python: a signal (Ctrl-C), or an exception of an observer. The library sees a
/// cancelled or failed decode, whose transaction leaves nothing; afterwards the Python exception is raised.
class Interrupt {
public:
    /// CancelFn of the context: looks for signals at most every 20 ms, on the thread that decodes.
    bool poll() noexcept;
    /// A call begins: a function of the user's is asked at once, signals when it is their time.
    void begin() noexcept {
        if (cancel.is_valid() && !cancel.is_none()) next_ = {};
    }
    /// Keeps the Python error that was just caught. The lock is held.
    void keep(std::exception_ptr error) noexcept { error_ = std::move(error); }
    [[nodiscard]] bool has_error() const noexcept { return error_ != nullptr; }
    /// Raises what was kept. The lock is held.
    void rethrow() {
        if (auto error = std::exchange(error_, nullptr)) std::rethrow_exception(error);
    }
    nb::object cancel;  ///< a callable of the user's, or nothing: true cancels

private:
    std::chrono::steady_clock::time_point next_{};
    std::exception_ptr error_;
};

/// Runs `work` without the interpreter's lock. Python exceptions that interrupted it win over the library's.
template <class Work>
auto without_lock(Interrupt& interrupt, Work&& work) {
    interrupt.begin();
    try {
        if constexpr (std::is_void_v<decltype(work())>) {
            {
                nb::gil_scoped_release released;
                work();
            }
            interrupt.rethrow();
        } else {
            auto result = [&] {
                nb::gil_scoped_release released;
                return work();
            }();
            interrupt.rethrow();
            return result;
        }
    } catch (const tinfer::Error&) {
        interrupt.rethrow();
        throw;
    }
}

/// Of an object that has no lock of its own and serves one thread at a time: throws busy where another thread, or a
/// call further up this one, is inside. Lives while the call does.
class InUse {
public:
    explicit InUse(const void* object);
    ~InUse();
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

private:
    const void* object_;
};

/// LogSink of a Python callable (level, line); empty for None. What the callable raises is printed by the interpreter
/// as unraisable: the library's sinks report and steer nothing.
tinfer::LogSink log_sink(nb::object callable);

// ---- The parts of the module ----------------------------------------------------------------------------------------

void bind_model(nb::module_& module);
void bind_batch(nb::module_& module);
void bind_context(nb::module_& module);
void bind_sampling(nb::module_& module);
void bind_generation(nb::module_& module);
void bind_chat(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_trace(nb::module_& module);
void bind_receipt(nb::module_& module);

}  // namespace tinfer_python
