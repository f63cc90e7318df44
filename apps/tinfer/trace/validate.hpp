// SPDX-License-Identifier: MIT
// The validation rules of traces, V1 to V19, each a function that fills a verdict.
#pragma once

#include "trace.hpp"

namespace tinfer::app {

/// The result of one rule, with its first five cases.
struct Verdict {
    enum class State { ok, not_applicable, warn, fail };
    std::string rule, title;
    State state = State::ok;
    std::string reason;
    std::vector<std::string> cases;
    std::uint64_t n_cases = 0;

    void fail(std::string text) { add(State::fail, std::move(text)); }
    void warn(std::string text) { add(State::warn, std::move(text)); }
    void skip(std::string why) { state = State::not_applicable, reason = std::move(why); }

private:
    void add(State worse, std::string text) {
        if (state == State::ok || worse == State::fail) state = worse;
        if (++n_cases <= 5) cases.push_back(std::move(text));
    }
};

/// A trace with facts that several rules need.
struct Examined {
    explicit Examined(const tinfer::TraceReader& reader);
    const tinfer::TraceReader& trace;
    bool is_filtered = false, has_ids = false, starts_late = false, has_times = false;
    std::map<std::uint16_t, std::string> ops;

    [[nodiscard]] std::string name_of(std::uint32_t tensor) const;
    [[nodiscard]] bool is_complete(const tinfer::RecordedRun& run) const;  ///< ended normally, with no events missing
};

// validate_structure.cpp
void check_blocks(const Examined& x, Verdict& v);        // V1
void check_close(const Examined& x, Verdict& v);         // V2
void check_indices(const Examined& x, Verdict& v);       // V3
void check_steps(const Examined& x, Verdict& v);         // V4
void check_times(const Examined& x, Verdict& v);         // V5
void check_references(const Examined& x, Verdict& v);    // V6
void check_partition(const Examined& x, Verdict& v);     // V7
void check_ranges(const Examined& x, Verdict& v);        // V8
void check_names(const Examined& x, Verdict& v);         // V14
void check_static_parts(const Examined& x, Verdict& v);  // V16
void check_drops(const Examined& x, Verdict& v);         // V17
void check_filter(const Examined& x, Verdict& v);        // V18
void check_gaps(const Examined& x, Verdict& v);          // V19
// validate_accesses.cpp
void check_weights(const Examined& x, Verdict& v);                                   // V9
void check_embedding(const Examined& x, Verdict& v);                                 // V10
void check_experts(const Examined& x, Verdict& v);                                   // V11
void check_cache(const Examined& x, Verdict& v);                                     // V12
void check_totals(const Examined& x, Verdict& v);                                    // V15
void check_directory(const Examined& x, const tinfer::ModelFile& file, Verdict& v);  // V13

}  // namespace tinfer::app
