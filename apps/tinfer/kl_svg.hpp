// SPDX-License-Identifier: MIT
// Divergence over bytes saved, as a picture: what is cheap lies low and to the right.
#pragma once

#include <span>
#include <string>

namespace tinfer::app {

struct KlPoint {
    std::string name;
    double saved_mib = 0, kl = 0;
};

/// A whole SVG document; its vertical axis is logarithmic where all divergences are positive.
[[nodiscard]] std::string kl_svg(std::span<const KlPoint> points);

}  // namespace tinfer::app
