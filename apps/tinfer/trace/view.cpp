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

std::string info_of(const ViewedTrace& trace) {
    const PackedTrace& packed = trace.packed;
    Json info{{"events", packed.n_events},          {"file", trace.file_name},
              {"problems", packed.problems},        {"ranges", packed.n_ranges},
              {"skeleton", packed.skeleton.size()}, {"spans", packed.n_spans}};
    if (!packed.thinned.empty()) info["thinned"] = packed.thinned;
    info["view"] = 2;
    return json_for_script(info);
}

void write_data(const PackedTrace& packed, const std::function<void(std::string_view)>& write) {
    Base64 base64(write);
    base64.add(packed.skeleton);
    base64.add(packed.events);
    base64.end();
}

}  // namespace

void write_view(std::span<const ViewedTrace> traces, const std::function<void(std::string_view)>& write) {
    const ViewPage page = view_page();
    for (const auto part : page.before) write(part);
    if (!traces.empty()) write(info_of(traces[0]));
    for (const auto part : page.between) write(part);
    if (!traces.empty()) write_data(traces[0].packed, write);
    if (traces.size() > 1) {
        write("</script>\n<script type=\"application/json\" id=\"view-info-2\">" + info_of(traces[1]));
        write("</script>\n<script type=\"application/octet-stream\" id=\"view-data-2\">");
        write_data(traces[1].packed, write);
    }
    for (const auto part : page.after) write(part);
}

}  // namespace tinfer::app
