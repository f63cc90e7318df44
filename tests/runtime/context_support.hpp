// SPDX-License-Identifier: MIT
// A tiny model with tokens for it, and how a test looks at rows of logits and at refusals.
#pragma once

#include <doctest/doctest.h>

#include <span>
#include <stdexcept>
#include <vector>

#include "support/code_of.hpp"
#include "support/differences.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

using test::bits_of;
using test::code_of;
using test::TinyModel;

struct Fixture {
    test::TempFolder folder;
    Model model = Model::load(TinyModel{}.save(folder.path()));
    std::vector<Token> tokens = test::random_tokens(48, 128, 7);
    std::vector<std::uint32_t> alone(std::span<const Token> list) const {
        return bits_of(test::logits_of(model, list));
    }
};

/// One layer with a window, one without, for contexts that are long enough to let the window's slots go.
inline Model windowed_model(int window) {
    const test::TempFolder folder;
    TinyModel tiny;
    tiny.n_ctx = 8192;
    test::GgufWriter w = tiny.writer();
    w.kv("llama.attention.sliding_window", static_cast<std::uint32_t>(window));
    w.array("llama.attention.sliding_window_pattern", std::vector<bool>{true, false});
    w.save(folder.path() / "windowed.gguf");
    return Model::load(folder.path() / "windowed.gguf");
}

inline std::vector<std::uint32_t> row_bits(const Context& context, int index) { return bits_of(context.logits(index)); }

inline std::vector<std::uint32_t> slice(const std::vector<std::uint32_t>& all, std::size_t row, std::size_t width) {
    return {all.begin() + static_cast<std::ptrdiff_t>(row * width),
            all.begin() + static_cast<std::ptrdiff_t>((row + 1) * width)};
}

/// Throws at its n-th callback inside a maintenance run.
struct MaintenanceThrower : Observer {
    int countdown = 0;
    bool in_maintenance = false;
    [[nodiscard]] TraceRequest request() const override { return {.delivery = Delivery::immediate}; }
    void on_run_begin(const RunInfo& run) override {
        in_maintenance = run.phase == Phase::maintenance;
        tick();
    }
    void on_step_begin(const StepView&) override { tick(); }
    void on_step_end(const KernelEvent&, const StepValues&) override { tick(); }
    void on_run_end(const RunResult&) override { tick(); }
    void tick() {
        if (in_maintenance && --countdown == 0) throw std::runtime_error("enough");
    }
};

}  // namespace tinfer
