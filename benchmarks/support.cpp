// SPDX-License-Identifier: MIT
#include "support.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <stdexcept>

#if defined(__unix__) || defined(__APPLE__)
#    include <unistd.h>
#endif

namespace tinfer::bench {

// ---- Options --------------------------------------------------------------------------------------------------------

Options::Options(int argc, char** argv, std::string_view usage) : usage_(usage) {
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        if (!word.starts_with("--")) throw std::runtime_error("not an option: " + std::string(word));
        const bool has_value = i + 1 < argc && !std::string_view(argv[i + 1]).starts_with("--");
        given_[std::string(word.substr(2))] = has_value ? argv[++i] : "";
    }
    asked_["help"] = true;
}

bool Options::flag(std::string_view name) {
    asked_[std::string(name)] = true;
    return given_.find(name) != given_.end();
}

std::string Options::text(std::string_view name, std::string_view otherwise) {
    asked_[std::string(name)] = true;
    const auto found = given_.find(name);
    return found == given_.end() ? std::string(otherwise) : found->second;
}

double Options::number(std::string_view name, double otherwise) {
    const std::string value = text(name, "");
    if (value.empty()) return otherwise;
    char* end = nullptr;
    const double parsed = std::strtod(value.c_str(), &end);
    if (*end != '\0') throw std::runtime_error("--" + std::string(name) + ": not a number: " + value);
    return parsed;
}

std::vector<std::string> Options::list(std::string_view name, std::string_view otherwise) {
    std::vector<std::string> items;
    const std::string value = text(name, otherwise);
    for (std::size_t begin = 0; begin < value.size();) {
        const std::size_t end = std::min(value.find(',', begin), value.size());
        if (end > begin) items.push_back(value.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

std::vector<int> Options::numbers(std::string_view name, std::string_view otherwise) {
    std::vector<int> values;
    for (const std::string& item : list(name, otherwise)) {
        int value = 0;
        const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), value);
        if (error != std::errc() || end != item.data() + item.size() || value < 1)
            throw std::runtime_error("--" + std::string(name) + ": not a positive number: " + item);
        values.push_back(value);
    }
    return values;
}

void Options::finish() const {
    if (given_.contains("help")) {
        std::fputs(usage_.c_str(), stdout);
        std::exit(0);
    }
    for (const auto& [name, value] : given_)
        if (!asked_.contains(name)) throw std::runtime_error("unknown option --" + name + "; see --help");
}

// ---- Records --------------------------------------------------------------------------------------------------------

Record& Record::put(std::string_view name, std::string value) {
    fields_.push_back({std::string(name), std::move(value), false});
    return *this;
}

Record& Record::add(std::string_view name, std::string_view value) {
    fields_.push_back({std::string(name), std::string(value), true});
    return *this;
}

Record& Record::add(std::string_view name, double value, int digits) {
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", digits, value);
    return put(name, text);
}

namespace {

std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) >= 0x20) out += c;
    }
    return out + '"';
}

std::string padded(std::string_view text, std::size_t width, bool left) {
    const std::string space(width > text.size() ? width - text.size() : 0, ' ');
    return left ? std::string(text) + space : space + std::string(text);
}

}  // namespace

void Printer::print(const Record& record) {
    std::string line, names;
    std::vector<std::string> heading;
    for (const auto& [name, value, is_text] : record.fields()) {
        if (as_json_) {
            line += (line.empty() ? "{" : ",") + json_text(name) + ":" + (is_text ? json_text(value) : value);
            continue;
        }
        const std::size_t width = std::max<std::size_t>(name.size(), is_text ? 10 : 8);
        line += padded(value, width, is_text) + "  ";
        names += padded(name, width, is_text) + "  ";
        heading.push_back(name);
    }
    if (as_json_) line += "}";
    else if (heading != heading_) std::printf("%s\n", names.c_str());
    heading_ = std::move(heading);
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
}

// ---- The machine ----------------------------------------------------------------------------------------------------

std::string cpu_name() {
    const std::string name = roof::cpu_name();
    return name.empty() ? "unknown processor" : name;
}

std::size_t l2_bytes() noexcept {
#if defined(_SC_LEVEL2_CACHE_SIZE)
    if (const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE); bytes > 0) return static_cast<std::size_t>(bytes);
#endif
    return std::size_t{1} << 20;
}

int run_main(std::string_view name, const std::function<void()>& benchmark) {
    try {
        benchmark();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", std::string(name).c_str(), error.what());
        return 1;
    }
}

}  // namespace tinfer::bench
