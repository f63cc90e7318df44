// SPDX-License-Identifier: MIT
#include "common.hpp"

#include <algorithm>
#include <limits>
#include <mutex>

namespace tinfer_python {

namespace {

tinfer::Token token_of(std::int64_t id) {
    if (id < std::numeric_limits<std::int32_t>::min() || id > std::numeric_limits<std::int32_t>::max()) {
        PyErr_Format(PyExc_OverflowError, "token id %lld does not fit 32 bits", static_cast<long long>(id));
        throw nb::python_error();
    }
    return tinfer::Token{static_cast<std::int32_t>(id)};
}

template <class T>
std::vector<tinfer::Token> read_array(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
    std::vector<tinfer::Token> tokens(array.shape(0));
    const auto* values = static_cast<const T*>(array.data());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const T value = values[static_cast<std::int64_t>(i) * array.stride(0)];
        if constexpr (std::is_same_v<T, std::uint64_t>)
            if (value > std::numeric_limits<std::int32_t>::max())
                return token_of(std::numeric_limits<std::int64_t>::max()), tokens;
        tokens[i] = token_of(static_cast<std::int64_t>(value));
    }
    return tokens;
}

std::vector<tinfer::Token> tokens_of_array(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
    if (array.ndim() != 1) {
        const std::string message = "token ids have one dimension, this array has " + std::to_string(array.ndim());
        throw nb::value_error(message.c_str());
    }
    const auto type = array.dtype();
    const bool is_signed = type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Int);
    const bool is_unsigned = type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::UInt);
    if (is_signed && type.bits == 32) return read_array<std::int32_t>(array);
    if (is_signed && type.bits == 64) return read_array<std::int64_t>(array);
    if (is_signed && type.bits == 16) return read_array<std::int16_t>(array);
    if (is_unsigned && type.bits == 16) return read_array<std::uint16_t>(array);
    if (is_unsigned && type.bits == 32) return read_array<std::uint32_t>(array);
    if (is_unsigned && type.bits == 64) return read_array<std::uint64_t>(array);
    throw nb::type_error("token ids are integers of 16, 32 or 64 bits");
}

}  // namespace

std::vector<tinfer::Token> tokens_of(nb::handle value) {
    if (nb::isinstance<nb::str>(value) || nb::isinstance<nb::bytes>(value) || nb::isinstance<nb::bytearray>(value))
        throw nb::type_error("token ids are wanted, not a text: Vocab.encode() gives them");
    if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) {
        nb::ndarray<nb::ro, nb::device::cpu> array;
        if (nb::try_cast(value, array, false)) return tokens_of_array(array);
        if (nb::isinstance<nb::dict>(value)) throw nb::type_error("token ids are a sequence of int, not a dict");
    }
    std::vector<tinfer::Token> tokens;
    for (const nb::handle item : nb::iter(value)) {
        const auto number = nb::steal(PyNumber_Index(item.ptr()));  // TypeError for floats and texts
        if (!number.is_valid()) throw nb::python_error();
        const long long id = PyLong_AsLongLong(number.ptr());
        if (id == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
        tokens.push_back(token_of(id));
    }
    return tokens;
}

nb::list list_of(std::span<const tinfer::Token> tokens) {
    nb::list list;
    for (const auto token : tokens) list.append(static_cast<std::int32_t>(token));
    return list;
}

nb::str text_of(std::string_view bytes) {
    PyObject* text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
    if (text == nullptr) throw nb::python_error();
    return nb::steal<nb::str>(text);
}

std::string_view text_bytes(nb::handle value) {
    Py_ssize_t size = 0;
    if (nb::isinstance<nb::str>(value)) {
        const char* data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
        if (data == nullptr) throw nb::python_error();  // UnicodeEncodeError: lone surrogates
        return {data, static_cast<std::size_t>(size)};
    }
    char* data = nullptr;
    if (!nb::isinstance<nb::bytes>(value)) throw nb::type_error("a text is str or bytes");
    if (PyBytes_AsStringAndSize(value.ptr(), &data, &size) != 0) throw nb::python_error();
    return {data, static_cast<std::size_t>(size)};
}

std::filesystem::path path_of(nb::handle value) {
    PyObject* bytes = nullptr;
    if (PyUnicode_FSConverter(value.ptr(), &bytes) == 0) throw nb::python_error();
    const auto owner = nb::steal<nb::bytes>(bytes);
    return {std::string(owner.c_str(), owner.size())};
}

void raise(const tinfer::Error& error) {
    const nb::object type = nb::module_::import_("tinfer._error").attr("Error");
    const nb::object made = type(name_of(error.code()), text_of(error.what()));
    PyErr_SetObject(type.ptr(), made.ptr());
}

bool Interrupt::poll() noexcept {
    if (error_) return true;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return false;
    next_ = now + std::chrono::milliseconds(20);
    nb::gil_scoped_acquire acquired;
    try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (cancel.is_valid() && !cancel.is_none()) {
            const int truth = PyObject_IsTrue(nb::object(cancel()).ptr());
            if (truth < 0) throw nb::python_error();
            return truth == 1;
        }
    } catch (...) {
        error_ = std::current_exception();
        return true;
    }
    return false;
}

namespace {

struct Busy {
    std::mutex mutex;
    std::vector<const void*> objects;
};
/// As long as the process: objects are used while the interpreter goes down, too.
Busy& busy() {
    static auto* const all = new Busy;
    return *all;
}

}  // namespace

InUse::InUse(const void* object) : object_(object) {
    auto& [mutex, objects] = busy();
    const std::lock_guard lock(mutex);
    if (std::find(objects.begin(), objects.end(), object) != objects.end())
        throw tinfer::Error(tinfer::ErrorCode::busy, "the object is in use: one thread at a time, and no callback");
    objects.push_back(object);
}

InUse::~InUse() {
    auto& [mutex, objects] = busy();
    const std::lock_guard lock(mutex);
    std::erase(objects, object_);
}

tinfer::LogSink log_sink(nb::object callable) {
    if (!callable.is_valid() || callable.is_none()) return {};
    if (PyCallable_Check(callable.ptr()) == 0) throw nb::type_error("log is a callable (level, line)");
    // Deleted with the lock held, whichever thread lets go of the last copy.
    const std::shared_ptr<nb::object> shared(new nb::object(std::move(callable)), [](nb::object* object) {
        nb::gil_scoped_acquire acquired;
        delete object;
    });
    return [shared](tinfer::LogLevel level, std::string_view line) {
        nb::gil_scoped_acquire acquired;
        try {
            (*shared)(name_of(level), text_of(line));
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("tinfer log");
        }
    };
}

}  // namespace tinfer_python
