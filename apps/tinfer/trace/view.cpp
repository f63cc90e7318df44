// SPDX-License-Identifier: MIT
#include "view.hpp"

#include <tinfer/json.hpp>

#include "view_page.hpp"

namespace tinfer::app {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// RFC 4648 §4, fed in pieces.
class Base64 {
public:
    explicit Base64(const std::function<void(std::string_view)>& write) : write_(write) {}
    void add(std::string_view bytes) {
        for (const char byte : bytes) {
            group_ = group_ << 8 | static_cast<unsigned char>(byte);
            if (++filled_ == 3) put();
        }
    }
    void end() {
        const int missing = (3 - filled_) % 3;
        if (missing != 0) {
            group_ <<= 8 * missing;
            put();
            text_.replace(text_.size() - static_cast<std::size_t>(missing), static_cast<std::size_t>(missing),
                          static_cast<std::size_t>(missing), '=');
        }
        write_(text_);
        text_.clear();
    }

private:
    void put() {
        if (text_.size() >= 1 << 16) {
            write_(text_);
            text_.clear();
        }
        for (int shift = 18; shift >= 0; shift -= 6) text_.push_back(kDigits[group_ >> shift & 63]);
        group_ = 0;
        filled_ = 0;
    }
    const std::function<void(std::string_view)>& write_;
    std::string text_;
    std::uint32_t group_ = 0;
    int filled_ = 0;
};

/// JSON that may stand inside a script element: no `<`, so neither a closing tag nor a comment.
std::string json_for_script(const Json& document) {
    std::string out;
    for (const char c : document.dump({.ascii = true})) {
        if (c == '<') out += "\\u003c";
        else out += c;
    }
    return out;
}

}  // namespace

void write_view(const PackedTrace* trace, std::string_view file_name,
                const std::function<void(std::string_view)>& write) {
    const ViewPage page = view_page();
    for (const auto part : page.before) write(part);
    if (trace != nullptr) {
        Json info{{"events", trace->n_events},          {"file", file_name},
                  {"problems", trace->problems},        {"ranges", trace->n_ranges},
                  {"skeleton", trace->skeleton.size()}, {"spans", trace->n_spans}};
        if (!trace->thinned.empty()) info["thinned"] = trace->thinned;
        info["view"] = 2;
        write(json_for_script(info));
    }
    for (const auto part : page.between) write(part);
    if (trace != nullptr) {
        Base64 base64(write);
        base64.add(trace->skeleton);
        base64.add(trace->events);
        base64.end();
    }
    for (const auto part : page.after) write(part);
}

}  // namespace tinfer::app
