// SPDX-License-Identifier: MIT
// What this engine can do for a request beyond the interfaces of others: adapters, guesses, traces, receipts.
#pragma once

#include <string>
#include <vector>

#include "job.hpp"
#include "trace_folder.hpp"

namespace server {

/// The fields lora and trace, and where a text is generated speculate and receipt.
void read_features(Fields& fields, const Service& service, Job& job, bool gives_text = true);

/// The traces of a job's requests, in the order in which they are submitted; empty where none was asked for.
class Traces {
public:
    /// Gives each request its observer. Throws ApiError 400 for too many at once, and what TraceFolder::open() throws.
    Traces(Service& service, const Job& job, std::vector<tinfer::EngineRequest>& requests);
    /// What was written of request i, behind the event that ended it; null without traces.
    [[nodiscard]] json close(std::size_t i);

private:
    std::vector<TraceFolder::File> files_;
};

/// A receipt as text: a file that `tinfer replay` reads. Of the model's files the names alone.
[[nodiscard]] std::string receipt_text(const tinfer::Receipt& receipt, const Service& service, const Job& job);

}  // namespace server
