// SPDX-License-Identifier: MIT
#include "kl_svg.hpp"

#include <algorithm>
#include <cmath>

#include "output.hpp"

namespace tinfer::app {

namespace {

constexpr double kWidth = 800, kHeight = 500, kLeft = 90, kRight = 20, kTop = 20, kBottom = 50;

std::string escaped_xml(std::string_view text) {
    std::string out;
    for (const char c : text)
        if (c == '<') out += "&lt;";
        else if (c == '>') out += "&gt;";
        else if (c == '&') out += "&amp;";
        else if (c == '"') out += "&quot;";
        else out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    return out;
}

/// From values to places along an axis.
struct Axis {
    double low, high, begin, end;
    [[nodiscard]] double at(double value) const { return begin + (value - low) / (high - low) * (end - begin); }
};

Axis axis_of(double low, double high, double begin, double end) {
    const double margin = high > low ? 0.05 * (high - low) : std::max(1e-9, 0.5 * std::fabs(high));
    return {low - margin, high + margin, begin, end};
}

std::string line(double x1, double y1, double x2, double y2) {
    return "<line x1=\"" + fixed(x1, 1) + "\" y1=\"" + fixed(y1, 1) + "\" x2=\"" + fixed(x2, 1) + "\" y2=\"" +
           fixed(y2, 1) + "\" stroke=\"#ccc\"/>\n";
}

std::string label(double x, double y, std::string_view anchor, const std::string& text) {
    return "<text x=\"" + fixed(x, 1) + "\" y=\"" + fixed(y, 1) + "\" text-anchor=\"" + std::string(anchor) + "\">" +
           escaped_xml(text) + "</text>\n";
}

}  // namespace

std::string kl_svg(std::span<const KlPoint> points) {
    const bool is_log = std::ranges::all_of(points, [](const KlPoint& point) { return point.kl > 0; });
    const auto height_of = [&](const KlPoint& point) { return is_log ? std::log10(point.kl) : point.kl; };
    double low_x = 0, high_x = 0, low_y = 1e300, high_y = -1e300;
    for (const KlPoint& point : points) {
        low_x = std::min(low_x, point.saved_mib), high_x = std::max(high_x, point.saved_mib);
        low_y = std::min(low_y, height_of(point)), high_y = std::max(high_y, height_of(point));
    }
    const Axis x = axis_of(low_x, high_x, kLeft, kWidth - kRight);
    const Axis y = axis_of(low_y, high_y, kHeight - kBottom, kTop);
    std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 800 500\" font-family=\"sans-serif\" "
                      "font-size=\"12\">\n<rect width=\"800\" height=\"500\" fill=\"#fff\"/>\n";
    constexpr int kTicks = 5;
    for (int t = 0; t <= kTicks; ++t) {
        const double fraction = double(t) / kTicks;
        const double vx = x.low + fraction * (x.high - x.low), vy = y.low + fraction * (y.high - y.low);
        out += line(x.at(vx), kTop, x.at(vx), kHeight - kBottom) + line(kLeft, y.at(vy), kWidth - kRight, y.at(vy));
        out += label(x.at(vx), kHeight - kBottom + 18, "middle", fixed(vx, 2));
        out += label(kLeft - 6, y.at(vy) + 4, "end", is_log ? fixed(std::pow(10.0, vy), 6) : fixed(vy, 6));
    }
    out += label((kLeft + kWidth) / 2, kHeight - 12, "middle", "MiB saved");
    out += label(kLeft, kTop - 6, "middle", "mean KL");
    for (const KlPoint& point : points)
        out += "<circle cx=\"" + fixed(x.at(point.saved_mib), 1) + "\" cy=\"" + fixed(y.at(height_of(point)), 1) +
               "\" r=\"4\" fill=\"#36c\" fill-opacity=\"0.7\"><title>" + escaped_xml(point.name) + ": " +
               fixed(point.kl, 6) + ", " + fixed(point.saved_mib, 2) + " MiB</title></circle>\n";
    return out + "</svg>\n";
}

}  // namespace tinfer::app
