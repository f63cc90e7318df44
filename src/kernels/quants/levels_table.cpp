// SPDX-License-Identifier: MIT
// The 16-entry codebooks: constants of the formats, as published with ggml (MIT) and in OCP Microscaling Formats v1.0.
#include "kernels/quants/codebook.hpp"

namespace tinfer::kernels {

const std::int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
const std::int8_t kFp4Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace tinfer::kernels
