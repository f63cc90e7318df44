// SPDX-License-Identifier: MIT
// Every filter, method, test, function and operator of templates with large numbers as arguments: the first bytes
// choose the operation, its subject and the number of arguments, each further nine an argument. It gives a text or
// throws tinfer::Error, in limited time and memory.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "chat/template_table.hpp"
#include "tinfer/chat.hpp"

namespace {

constexpr std::array<const char*, 8> kSubjects{
    "'ab c\\n<d> \\u00df, ' * 200", "range(300)|list",        "dict(a=1, b='x', c=[1, 2])", "9223372036854775807",
    "-9223372036854775807 - 1",     "1.7976931348623157e308", "[['b', 2], ['a', 1]] * 50",  "'7'"};

std::string argument(std::uint8_t kind, std::int64_t number) {
    switch (kind % 8) {
        case 0: return "'x'";
        case 1: return "s";
        case 2: return "'\\u00df ' * 500";
        case 3: return "none";
        case 4: return std::to_string(number % 1000);
        case 5: return std::to_string(static_cast<double>(number));
        default: return number == INT64_MIN ? "(-9223372036854775807 - 1)" : std::to_string(number);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 4) return 0;
    static const auto operations = tinfer::test::operations();
    const auto& operation = operations[(data[0] | data[1] << 8) % operations.size()];
    std::string source = std::string("{% set s = ") + kSubjects[data[2] % kSubjects.size()] + " %}" + operation.before;
    std::size_t at = 4;
    for (int n = data[3] % 5; n > 0; --n) {
        std::uint64_t number = 0;
        const std::uint8_t kind = at < size ? data[at] : 7;
        if (at + 9 <= size) std::memcpy(&number, data + at + 1, sizeof number);
        at += 9;
        source += argument(kind, static_cast<std::int64_t>(number)) + (n > 1 ? ", " : "");
    }
    try {
        (void)tinfer::ChatTemplate(source + operation.after)
            .render("{}", {.now = tinfer::LocalTime{2026, 3, 9}, .max_steps = 20'000, .max_bytes = 1u << 20});
    } catch (const tinfer::Error&) {
    }
    return 0;
}
