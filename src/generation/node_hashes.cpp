// SPDX-License-Identifier: MIT
#include "generation/node_hashes.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/xxhash.hpp"
#include "tinfer/trace.hpp"

namespace tinfer::generation {

namespace {

/// Part of what a receipt means: shapes of the nodes' values depend on it.
constexpr int kNodeBatch = 64;

/// Where bytes lie inside a cache or a state is the memory's affair.
bool is_memory(TensorClass kind) noexcept {
    return kind == TensorClass::cache_k || kind == TensorClass::cache_v || kind == TensorClass::recurrent;
}

/// Blocks of quantized activations have bytes that nobody writes, and say no more than the numbers they are made of.
bool has_only_numbers(DType type) noexcept { return type == DType::f32 || type == DType::i32; }

class NodeHasher : public Observer {
public:
    [[nodiscard]] TraceRequest request() const override {
        return {.level = TraceLevel::counts, .delivery = Delivery::immediate};
    }

    void on_step_end(const KernelEvent& event, const StepValues& values) override {
        const Phase phase = event.run->phase;  // drafts change no answer
        if (phase == Phase::maintenance || phase == Phase::draft || event.step->nodes.empty()) return;
        const NodeView& node = *event.step->nodes.back();
        for (const Access& access : event.accesses) {
            if (access.slot != 0 || access.mode == AccessMode::read || access.scratch) continue;
            if (access.kind == AccessKind::elided || is_memory(access.tensor->tensor_class) ||
                !has_only_numbers(access.tensor->type))
                continue;
            const auto value = values.value(0);
            if (!value.data.empty()) add(node, access, value.data);
        }
    }

    [[nodiscard]] std::vector<NodeHash> take() {
        for (std::size_t i = 0; i < nodes_.size(); ++i) nodes_[i].hash = hashes_[i].value();
        return std::move(nodes_);
    }

private:
    void add(const NodeView& node, const Access& access, std::span<const std::byte> data) {
        const auto [at, is_new] = index_.try_emplace(std::string(node.name), nodes_.size());
        if (is_new) {
            hashes_.emplace_back();
            NodeHash& entry = nodes_.emplace_back();
            entry.name = node.name;
            for (const TensorInfo* input : node.inputs)
                if (input != nullptr && input->tensor_class == TensorClass::weight)
                    entry.weights.emplace_back(input->name);
        }
        Xxh64& hash = hashes_[at->second];
        if (access.kind == AccessKind::whole)
            return hash.update(data.first(std::min<std::size_t>(data.size(), access.tensor->bytes)));
        for (const AccessRange& range : access.ranges)
            for (std::uint32_t i = 0; i < range.count; ++i)
                if (const std::uint64_t begin = range.offset + i * range.stride; begin + range.length <= data.size())
                    hash.update(data.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(range.length)));
    }

    std::map<std::string, std::size_t, std::less<>> index_;
    std::vector<NodeHash> nodes_;
    std::vector<Xxh64> hashes_;
};

}  // namespace

std::vector<NodeHash> hash_nodes(const Model& model, const ContextOptions& given, std::span<const Token> encoded,
                                 std::span<const Token> tokens) {
    ContextOptions options = given;
    options.n_ctx = std::max(static_cast<int>(tokens.size()), 1);
    options.n_batch = 0;
    options.n_ubatch = std::max(kNodeBatch, static_cast<int>(encoded.size()));
    options.n_outputs = 1;
    options.n_seq_max = 1;
    options.fuse = false;
    options.logits_all = false;
    options.keep.clear();
    Context context(model, options);
    const auto hasher = std::make_shared<NodeHasher>();
    Attachment attached;
    try {
        attached = context.attach(hasher);
    } catch (const Error& error) {
        if (error.code() == ErrorCode::not_available) return {};
        throw;
    }
    const auto check = [](DecodeStatus status) {
        if (status == DecodeStatus::cancelled) fail(ErrorCode::cancelled, "hashing nodes: cancelled");
        if (status != DecodeStatus::ok) fail(ErrorCode::no_room, "hashing nodes: the context has no room");
    };
    if (!encoded.empty()) check(context.encode(encoded));
    for (std::size_t at = 0; at < tokens.size(); at += kNodeBatch)
        check(context.decode(tokens.subspan(at, std::min<std::size_t>(kNodeBatch, tokens.size() - at))));
    attached.detach();
    return hasher->take();
}

std::vector<Token> decoded_tokens(const Receipt& receipt) {
    std::vector<Token> tokens = receipt.prompt;
    if (!receipt.tokens.empty()) tokens.insert(tokens.end(), receipt.tokens.begin(), receipt.tokens.end() - 1);
    return tokens;
}

}  // namespace tinfer::generation
