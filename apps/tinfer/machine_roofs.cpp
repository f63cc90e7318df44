// SPDX-License-Identifier: MIT
#include "machine_roofs.hpp"

#include <tinfer/hash.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include "common.hpp"
#include "json_input.hpp"
#include "output_file.hpp"
#include "roof.hpp"

namespace tinfer::app {

namespace {

constexpr std::size_t kStreamBytes = std::size_t{256} << 20;  // more than caches hold, and soon read
constexpr double kStreamSeconds = 0.4;

std::optional<tinfer::RooflinePeaks> kept_roofs(const std::filesystem::path& file, const std::string& cpu) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;
    try {
        const tinfer::RooflinePeaks roofs = parse_roofs(file.string(), "--cache-folder", 0);
        const Json document = parse_json(read_file(file.string()), file.string());
        const Json* const of = document.find("cpu");
        if (of == nullptr || !of->is_string() || of->get<std::string>() != cpu) return std::nullopt;
        if (roofs.bytes > 0 && roofs.int8_macs > 0 && roofs.f32_macs > 0) return roofs;
    } catch (const std::exception&) {  // damaged: measured anew
    }
    return std::nullopt;
}

/// A folder that takes no file costs a second each time, and nothing else.
void keep_roofs(const std::filesystem::path& file, const std::string& cpu, const tinfer::RooflinePeaks& roofs) {
    try {
        std::error_code error;
        std::filesystem::create_directories(file.parent_path(), error);
        OutputFile out(file.string());
        const Json document{{"cpu", cpu},
                            {"gbps", roofs.bytes / 1e9},
                            {"int8_gmacs", roofs.int8_macs / 1e9},
                            {"f32_gmacs", roofs.f32_macs / 1e9}};
        out.write(document.dump() + "\n");
        out.finish();
    } catch (const tinfer::Error& error) {
        note("note: what this machine can do is not kept: " + std::string(error.what()), Look::dim);
    }
}

double rate_of(const Json& object, std::string_view key, const std::string& where) {
    const Json* const given = object.find(key);
    if (given == nullptr) return 0;
    const double rate = given->is_number() ? given->get<double>() : -1;
    if (!(rate >= 0) || !std::isfinite(rate))
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                            where + ": " + std::string(key) + " is no number of at least 0");
    return rate * 1e9;
}

tinfer::RooflinePeaks roofs_of(const Json& object, const std::string& where) {
    if (object.is_object() && object.find("stream_gbps") != nullptr)  // a line of `tinfer bench --json`
        return {rate_of(object, "stream_gbps", where), rate_of(object, "dot_gmacs", where),
                rate_of(object, "fma_gmacs", where)};
    if (!object.is_object() || (object.find("gbps") == nullptr && object.find("gmacs") == nullptr &&
                                object.find("int8_gmacs") == nullptr && object.find("f32_gmacs") == nullptr))
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                            where + ": no JSON object with gbps and gmacs, and no lines of `tinfer bench --json`");
    const double all = rate_of(object, "gmacs", where), int8 = rate_of(object, "int8_gmacs", where),
                 f32 = rate_of(object, "f32_gmacs", where);
    return {rate_of(object, "gbps", where), int8 > 0 ? int8 : all, f32 > 0 ? f32 : all};
}

/// The documents of a file: one, or one a line.
std::vector<Json> documents_of(const std::string& text, const std::string& where) {
    const auto end_of_first = text.find('\n');
    const bool has_lines = end_of_first != text.npos && text.find_first_not_of(" \t\r\n", end_of_first) != text.npos;
    if (!has_lines || text.find_first_of("}") > end_of_first) return {parse_json(text, where)};
    std::vector<Json> documents;
    for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        if (text.find_first_not_of(" \t\r", at) < end)
            documents.push_back(parse_json(text.substr(at, end - at), where + ", line " + std::to_string(line)));
        at = end + 1;
    }
    return documents;
}

tinfer::RooflinePeaks read_roofs(const std::string& file, int n_threads) {
    const auto documents = documents_of(read_file(file), file);
    const auto is_of_threads = [&](const Json& document) {
        const Json* const threads = document.is_object() ? document.find("threads") : nullptr;
        return threads != nullptr && threads->is_number() && threads->get<double>() == n_threads;
    };
    const bool some = std::ranges::any_of(documents, is_of_threads);
    tinfer::RooflinePeaks best;
    for (const Json& document : documents) {
        const Json* const role = document.is_object() ? document.find("role") : nullptr;
        if (role != nullptr || (some && !is_of_threads(document))) continue;  // of `bench --roofline`: a part of a test
        const tinfer::RooflinePeaks roofs = roofs_of(document, file);
        best = {std::max(best.bytes, roofs.bytes), std::max(best.int8_macs, roofs.int8_macs),
                std::max(best.f32_macs, roofs.f32_macs)};
    }
    return best;
}

}  // namespace

tinfer::RooflinePeaks machine_roofs(int n_threads, std::string_view isa, const std::filesystem::path& folder) {
    const std::string cpu = roof::cpu_name();
    const auto digest = tinfer::sha256(std::as_bytes(std::span(cpu)));
    const auto file = folder / ("roofs-" + std::string(isa) + "-" + std::to_string(n_threads) + "-" +
                                tinfer::to_hex(std::span(digest).first(4)) + ".json");
    if (!folder.empty())
        if (const auto kept = kept_roofs(file, cpu)) return *kept;
    roof::Team team(n_threads);
    const auto roofs = roof::peaks(team, roof::level_of(isa), kStreamBytes, kStreamSeconds);
    note("roofs       measured for this machine: " + roofs_text(roofs), Look::dim);
    if (!folder.empty()) keep_roofs(file, cpu, roofs);
    return roofs;
}

tinfer::RooflinePeaks parse_roofs(const std::string& text, std::string_view option, int n_threads) {
    if (text.find('=') == text.npos || std::filesystem::exists(text)) return read_roofs(text, n_threads);
    Json object{};
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t end = std::min(text.find(',', at), text.size()), equal = text.find('=', at);
        const std::string key = text.substr(at, std::min(equal, end) - at);
        const std::string value = equal < end ? text.substr(equal + 1, end - equal - 1) : "";
        char* rest = nullptr;
        const double number = std::strtod(value.c_str(), &rest);
        if (value.empty() || *rest != '\0' ||
            (key != "gbps" && key != "gmacs" && key != "int8_gmacs" && key != "f32_gmacs"))
            throw UsageError(std::string(option) + ": '" + text.substr(at, end - at) +
                             "' is none of gbps=N, gmacs=N, int8_gmacs=N, f32_gmacs=N");
        object[key] = number;
        at = end + 1;
    }
    return roofs_of(object, std::string(option));
}

std::string roofs_text(const tinfer::RooflinePeaks& roofs) {
    const auto giga = [](double rate) { return fixed(rate / 1e9, 1); };
    return "reads " + giga(roofs.bytes) + " GB/s, " + giga(roofs.int8_macs) + " (int8) and " + giga(roofs.f32_macs) +
           " (f32) GMAC/s";
}

}  // namespace tinfer::app
