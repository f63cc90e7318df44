// SPDX-License-Identifier: MIT
// Extensions of the APIs: adapters, speculation, traces, receipts.
#pragma once

#include <string>
#include <vector>

#include "job.hpp"
#include "trace_folder.hpp"

namespace tinfer::server {

/// Reads the fields lora and trace, and for generated text speculate and receipt.
void read_capabilities(Fields& fields, const Service& service, Job& job, bool gives_text = true);

/// The traces of a job's requests, in order of submission; empty if none was asked for.
class Traces {
public:
    /// Attaches an observer to each request. Throws ApiError 400 for too many at once, and what TraceFolder::open()
    /// throws.
    Traces(Service& service, const Job& job, std::vector<tinfer::EngineRequest>& requests);
    /// What was written for request i; call it after the last event. null without traces.
    [[nodiscard]] Json close(std::size_t i);

private:
    std::vector<TraceFolder::File> files_;
};

/// A receipt as text, in the format of `tinfer replay`. Model files appear by name only, without folders.
[[nodiscard]] std::string receipt_text(const tinfer::Receipt& receipt, const Service& service, const Job& job);

}  // namespace tinfer::server
