// SPDX-License-Identifier: MIT
// Fuzz target for the container: on any bytes whatsoever the reader either returns or throws tinfer::Error, and what it
// returns can be asked everything. Nothing else is caught here: every other exception, signal or report is a finding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.hpp"
#include "gguf/file.hpp"

namespace {

using namespace tinfer;

/// Runs an accessor; the errors of the library are allowed.
template <class Action>
void attempt(const Action& action) {
    try {
        action();
    } catch (const Error&) {
    }
}

void read_array(const gguf::ArrayView& array) {
    for (std::uint64_t i = 0; i < array.size(); ++i) {
        attempt([&] { static_cast<void>(array.string(i).size()); });
        attempt([&] { static_cast<void>(array.integer(i)); });
        attempt([&] { static_cast<void>(array.number(i)); });
        attempt([&] { static_cast<void>(array.boolean(i)); });
        if (array.element_type() == gguf::ValueType::array) read_array(array.array(i));
        if (i == 64) i = array.size() - 2;  // the first elements and the last
    }
    attempt([&] { static_cast<void>(array.raw()); });
}

void ask_everything(const gguf::File& file) {
    for (std::size_t i = 0; i < file.n_keys(); ++i) {
        const auto key = file.key(i);
        if (!file.contains(key) || file.entry(i).key != key) std::abort();
        attempt([&] { static_cast<void>(file.find_int(key)); });
        attempt([&] { static_cast<void>(file.require_u32(key)); });
        attempt([&] { static_cast<void>(file.require_number(key)); });
        attempt([&] { static_cast<void>(file.find_bool(key)); });
        attempt([&] { static_cast<void>(file.require_string(key)); });
        attempt([&] { static_cast<void>(file.find_u32_or_array(key, 3)); });
        attempt([&] { static_cast<void>(file.value_text(key)); });
        attempt([&] {
            if (const auto array = file.find_array(key)) read_array(*array);
        });
    }
    unsigned sum = 0;
    for (const TensorInfo& tensor : file.tensors()) {
        if (file.find_tensor(tensor.name) != &tensor) std::abort();
        if (file.find_tensor(tensor.address) != &tensor) std::abort();
        const auto* bytes = static_cast<const unsigned char*>(tensor.address);
        sum += bytes[0] + bytes[tensor.bytes - 1];
    }
    if (sum == 1u << 31) std::abort();  // the reads above must happen
    attempt([&] { file.check_data(); });
    static_cast<void>(gguf::csv(file));
    static_cast<void>(gguf::json(file));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    attempt([&] {
        const auto file = gguf::File::open_memory(std::as_bytes(std::span(data, size)), "fuzz.gguf", {});
        file->load_data({});
        ask_everything(*file);
    });
    return 0;
}
