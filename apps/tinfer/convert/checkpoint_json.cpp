// SPDX-License-Identifier: MIT
#include "convert/checkpoint_json.hpp"

#include <cmath>
#include <fstream>

#include "convert/text.hpp"

namespace tinfer::convert {

namespace fs = std::filesystem;

namespace {

/// Replaces the literals that Python writes for numbers that are not finite, outside of texts, by "" of equal length.
void replace_not_finite(std::string& text) {
    bool in_text = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (in_text) {
            if (text[i] == '\\') ++i;
            else if (text[i] == '"') in_text = false;
            continue;
        }
        if (text[i] == '"') {
            in_text = true;
            continue;
        }
        for (const std::string_view literal : {"NaN", "-Infinity", "Infinity"}) {
            if (std::string_view(text).substr(i, literal.size()) != literal) continue;
            text.replace(i, literal.size(), literal.size(), ' ');
            text[i] = text[i + 1] = '"';
            i += literal.size() - 1;
            break;
        }
    }
}

}  // namespace

std::string read_bytes(const fs::path& path, std::size_t max_bytes) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) fail(ErrorCode::io_error, path.string(), ": is no regular file");
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    const auto size = file ? static_cast<std::streamoff>(file.tellg()) : -1;
    if (size < 0) fail(ErrorCode::io_error, path.string(), ": cannot be read");
    if (static_cast<std::uint64_t>(size) > max_bytes)
        fail(ErrorCode::limit_exceeded, path.string(), ": has ", size, " bytes, at most ", max_bytes, " are read");
    std::string bytes(static_cast<std::size_t>(size), '\0');
    file.seekg(0);
    if (!file.read(bytes.data(), size)) fail(ErrorCode::io_error, path.string(), ": cannot be read to its end");
    return bytes;
}

Json parse_checkpoint_json(std::string text, std::string_view name, ErrorCode code, std::size_t max_bytes) {
    if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
    replace_not_finite(text);
    return Json::parse(text, name,
                       {.max_depth = 64,
                        .max_bytes = max_bytes,
                        .max_values = std::size_t{1} << 26,
                        .refuse_duplicates = true,
                        .code = code});
}

std::optional<Json> find_json(const fs::path& folder, std::string_view name, ErrorCode code, std::size_t max_bytes) {
    const fs::path path = folder / name;
    std::error_code error;
    if (!fs::exists(path, error)) return std::nullopt;
    Json json = parse_checkpoint_json(read_bytes(path, max_bytes), path.string(), code, max_bytes);
    if (!json.is_object()) fail(code, path.string(), ": is ", to_string(json.kind()), ", an object is expected");
    return json;
}

std::optional<std::uint64_t> whole_number(const Json& value) {
    if (value.is_natural()) return value.get<std::uint64_t>();
    if (!value.is_number() || value.is_integer()) return std::nullopt;
    const double number = value.get<double>();
    if (!(number >= 0 && number < 0x1p53) || number != std::floor(number)) return std::nullopt;
    return static_cast<std::uint64_t>(number);
}

}  // namespace tinfer::convert
