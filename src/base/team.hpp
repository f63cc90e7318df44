// SPDX-License-Identifier: MIT
// A team of threads: one parallel region for a piece of work. A team never changes OpenMP's global state.
#pragma once

namespace tinfer {

/// What each thread of a team runs: (context, thread, number of threads). Must not throw.
using TeamFn = void (*)(void* context, int thread, int n_threads) noexcept;
/// Runs `fn` on a team of at most n threads (the caller is thread 0) and returns when all are done.
using TeamRunner = void (*)(int n_threads, TeamFn fn, void* context) noexcept;
/// The runner of this build: an OpenMP region, or (without OpenMP) the caller alone.
void run_team(int n_threads, TeamFn fn, void* context) noexcept;
/// The same with threads that are made for this call, in a build with OpenMP: some ten microseconds for each. They are
/// no more than OpenMP would give here: the caller alone inside a parallel region, unless nested ones are active.
void run_new_team(int n_threads, TeamFn fn, void* context) noexcept;

}  // namespace tinfer
