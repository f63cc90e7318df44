// SPDX-License-Identifier: MIT
// What an exercised context reads of its adapters, as observers see it.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <set>
#include <string>

#include "trace/trace_support.hpp"

namespace tinfer::test {

/// Names of the adapters' tensors that were read; coverage is checked on the way.
[[nodiscard]] inline std::set<std::string> adapter_reads(Context& context) {
    const auto check = std::make_shared<CoverageCheck>();
    const auto recorder = std::make_shared<Recorder>();
    const auto attached = context.attach(check), recording = context.attach(recorder);
    exercise(context);
    CHECK(differences_of(*check) == "");
    std::set<std::string> read;
    for (const SeenEvent& event : recorder->events)
        for (const SeenAccess& access : event.accesses)
            if (access.tensor.tensor_class == TensorClass::adapter) read.insert(access.name);
    return read;
}

}  // namespace tinfer::test
