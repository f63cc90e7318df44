// SPDX-License-Identifier: MIT
#include "array_text.hpp"

#include <algorithm>

namespace tinfer::server {

std::string base64(std::string_view bytes) {
    static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t word = 0;
        const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t j = 0; j < 3; ++j) word = word << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
        for (std::size_t j = 0; j < 4; ++j) out += j <= n ? kDigits[(word >> (18 - 6 * j)) & 63] : '=';
    }
    return out;
}

std::string npy(std::string_view type, std::initializer_list<std::size_t> shape, std::string_view data) {
    constexpr std::size_t kPrefix = 10, kAlign = 64;  // magic, version and length; where the data begin
    std::string head = "{'descr': '" + std::string(type) + "', 'fortran_order': False, 'shape': (";
    for (const std::size_t n : shape) head += std::to_string(n) + ", ";
    head += "), }";
    head.append(kAlign - 1 - (kPrefix + head.size()) % kAlign, ' ');
    head += '\n';
    std::string out("\x93NUMPY\x01\x00", 8);
    add_bytes(out, static_cast<std::uint16_t>(head.size()));
    return (out += head).append(data);
}

}  // namespace tinfer::server
