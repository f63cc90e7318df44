// SPDX-License-Identifier: MIT
// SHA-256 of the rows of logits that tokens were sampled from, in order, as float32: `logits_sha256` of tinfer run
// --hash.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <tinfer/hash.hpp>
#include <tinfer/tinfer.hpp>

namespace tinfer::app {

/// Attach it before the prompt is decoded; the context must not move while attached.
class RowHash : public tinfer::Observer {
public:
    explicit RowHash(const tinfer::Context& context) : context_(&context) {}

    [[nodiscard]] tinfer::TraceRequest request() const override {
        tinfer::TraceRequest request{.level = tinfer::TraceLevel::counts};
        request.filter.ops = {tinfer::Op::none};  // only samples
        return request;
    }
    void on_sample(const tinfer::SampleEvent& event) override {
        if (last_ == std::pair(event.outputs, event.output_index)) hash_ = before_;  // the row is sampled again
        last_ = {event.outputs, event.output_index};
        before_ = hash_;
        hash_.update(std::as_bytes(context_->logits(event.output_index)));
    }
    [[nodiscard]] std::string text() const {
        tinfer::Sha256 copy = hash_;
        return tinfer::to_hex(copy.finish());
    }

private:
    const tinfer::Context* context_;
    tinfer::Sha256 hash_, before_;
    std::optional<std::pair<std::uint64_t, int>> last_;
};

}  // namespace tinfer::app
