// SPDX-License-Identifier: MIT
// A small model without a file: tensor descriptions with shapes and names, and builders that turn them into the graphs
// of a dense and of a mixture-of-experts transformer. Addresses are whatever the test says; nobody may read them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "graph/graph.hpp"
#include "graph/plan.hpp"

namespace tinfer::test {

/// Made and verified.
[[nodiscard]] graph::Plan plan_of(const graph::Graph& g, bool fuse = true);

/// Sizes of the model; all extents are multiples of 256 where K-quants need it.
struct SampleShape {
    int n_layer = 2, n_head = 4, n_head_kv = 2, head_dim = 64;
    int n_ff = 512, n_vocab = 300, n_ctx = 128;
    int n_expert = 0, n_expert_used = 2;
    DType weights = DType::q4_k;
    [[nodiscard]] int n_embd() const { return n_head * head_dim; }
};

class SampleModel {
public:
    explicit SampleModel(SampleShape shape = {}, const void* address = nullptr);

    /// One micro-batch of n_tokens with logits for n_outputs of them. Returns the logits.
    graph::Tensor build(graph::Graph& g, int n_tokens, int n_outputs) const;

    [[nodiscard]] const TensorInfo& tensor(const std::string& name) const { return *by_name_.at(name); }
    [[nodiscard]] const SampleShape& shape() const { return shape_; }

private:
    const TensorInfo& add(const std::string& name, TensorClass c, DType type, std::array<std::int64_t, 4> ne, int layer,
                          const void* address);
    graph::Tensor weight(graph::Graph& g, int layer, const char* role) const;
    graph::Tensor attention_block(graph::Graph& g, int layer, graph::Tensor x, graph::Tensor table, graph::Tensor slots,
                                  const graph::KvInputs& kv) const;
    graph::Tensor feed_forward(graph::Graph& g, int layer, graph::Tensor x) const;
    graph::Tensor experts(graph::Graph& g, int layer, graph::Tensor h) const;

    SampleShape shape_;
    std::deque<std::string> names_;  // TensorInfo::name points into these
    std::deque<TensorInfo> tensors_;
    std::map<std::string, const TensorInfo*> by_name_;
};

}  // namespace tinfer::test
