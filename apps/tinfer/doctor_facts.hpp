// SPDX-License-Identifier: MIT
// What a machine and a model say of what limits speed, as numbers; tinfer doctor draws its conclusions from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "options.hpp"

namespace tinfer::app {

struct MachineFacts {
    int n_processors = 1;           ///< hardware threads that are online
    int n_allowed = 1;              ///< of them, those that this process may use (affinity)
    int n_cores = 1;                ///< of those, physical cores
    double quota = 0;               ///< processors that the control group allows; 0: no limit
    double busy_by_others = 0;      ///< processors that other programs used while it was looked
    double clock_share = 1;         ///< highest clock that is allowed, of the highest there is
    std::uint64_t memory = 0;       ///< bytes that programs can have now: of the system, or of the group
    std::uint64_t swap_used = 0;    ///< bytes
    double swapped_per_second = 0;  ///< bytes that came back from swap while it was looked
    /// Of memory modules, by the firmware's tables, which only root may read: channels of which at least one slot is
    /// known, those that have a module, and the slowest module's transfers a second and how many it could have. 0: not
    /// known.
    int n_channels = 0, n_channels_used = 0, memory_speed = 0, memory_possible = 0;
    [[nodiscard]] int usable() const noexcept;  ///< threads that compute at once
};
/// Looks for `seconds`. `root` has the folders proc and sys; affinity is that of this process only where it is "/".
[[nodiscard]] MachineFacts machine_facts(const std::filesystem::path& root, double seconds);

/// Bytes of memory that this process may ever have: the least of the machine's, its control groups' and RLIMIT_AS.
[[nodiscard]] std::uint64_t memory_limit(const std::filesystem::path& root);

struct ModelFacts {
    std::uint64_t weight_bytes = 0;
    std::uint64_t cached_bytes = 0;  ///< of the files, in the page cache
    std::uint64_t file_bytes = 0;
    int n_expert = 0;
    bool unbuffered = true;  ///< the file system has reads past the page cache
};
[[nodiscard]] ModelFacts model_facts(const ModelArgs& model);

}  // namespace tinfer::app
