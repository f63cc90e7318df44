// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>

#include "tinfer/trace.hpp"

namespace tinfer::test {

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

}  // namespace tinfer::test
