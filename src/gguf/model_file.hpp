// SPDX-License-Identifier: MIT
// What is behind a ModelFile: a parsed container.
#pragma once

#include <memory>

#include "gguf/file.hpp"

namespace tinfer {

struct ModelFile::Impl {
    std::shared_ptr<gguf::File> file;
};

}  // namespace tinfer
