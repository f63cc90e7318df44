// SPDX-License-Identifier: MIT
// The rotation of the keys of moved tokens, without a decode behind it: rows that are saved stand at their positions.
#include "base/error.hpp"
#include "runtime/context.hpp"

namespace tinfer {

void Context::Impl::settle_keys() {
    if (!layout.rotates_keys() || !sequences.has_shifts()) return;
    layout.model().file->check_intact();
    memory_ = &sequences;
    number_ = 0;
    if (n_decodes_ == 0) n_decodes_ = 1;  // what observers count runs by
    struct Ended {
        Stage& stage;
        ~Ended() { stage = Stage::none; }
    } const ended{stage_};
    while (sequences.has_shifts()) {
        stage_ = Stage::shift_keys;
        start_key_shift();
        const runtime::RunStatus status = continue_run(runtime::Executor::kNoDeadline);
        if (status == runtime::RunStatus::damaged) layout.model().file->check_intact();
        if (status == runtime::RunStatus::failed) std::rethrow_exception(executor.take_error());
    }
}

}  // namespace tinfer
