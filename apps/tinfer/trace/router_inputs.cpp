// SPDX-License-Identifier: MIT
#include "router_inputs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>

namespace tinfer::app {

namespace {

using tinfer::DType;

[[noreturn]] void refuse(tinfer::ErrorCode code, const std::string& message) { throw tinfer::Error(code, message); }

bool is_plain(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

float half_value(std::uint16_t bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double magnitude = exponent == 31  ? (fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan(""))
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(fraction + 1024, exponent - 25);
    return static_cast<float>(bits >> 15 != 0 ? -magnitude : magnitude);
}

float number_at(const std::byte* at, DType type) {
    if (type == DType::f32) {
        float value = 0;
        std::memcpy(&value, at, sizeof(value));
        return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return type == DType::f16 ? half_value(bits) : std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::size_t size_of(DType type) { return type == DType::f32 ? 4 : 2; }

template <class T>
void put(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
}

/// Reads a tensor of unquantized numbers from its file.
std::vector<float> read_numbers(const tinfer::ModelFile& file, const tinfer::TensorInfo& tensor) {
    const std::string name(tensor.name);
    if (!is_plain(tensor.type))
        refuse(tinfer::ErrorCode::not_available,
               name + " is " + std::string(to_string(tensor.type)) + ": routers of f32, f16 and bf16 alone are known");
    const auto path = file.paths().at(static_cast<std::size_t>(tensor.file_index));
    std::vector<std::byte> bytes(tensor.bytes);
    std::ifstream in(path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(tensor.file_offset));
    in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!in) refuse(tinfer::ErrorCode::io_error, path.string() + ": tensor '" + name + "' cannot be read");
    std::vector<float> numbers(bytes.size() / size_of(tensor.type));
    for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = number_at(bytes.data() + i * size_of(tensor.type), tensor.type);
    return numbers;
}

double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

}  // namespace

namespace {

const std::filesystem::path& not_there(const std::filesystem::path& path, bool overwrite) {
    std::error_code ignored;
    if (!overwrite && std::filesystem::exists(path, ignored))
        refuse(tinfer::ErrorCode::io_error, path.string() + ": is there already");
    return path;
}

}  // namespace

RouterInputRecorder::RouterInputRecorder(const std::filesystem::path& path, bool overwrite)
    : out_(not_there(path, overwrite).string()) {
    out_.write("TNVALUE1");
}

void RouterInputRecorder::close() {
    out_.finish();
    if (!coded_.empty())
        refuse(tinfer::ErrorCode::not_available, coded_ + " multiplies quantized rows, which are not recorded");
}

tinfer::TraceRequest RouterInputRecorder::request() const {
    return {.level = tinfer::TraceLevel::counts,
            .delivery = tinfer::Delivery::immediate,
            .filter = {.parts = {tinfer::Part::router}}};
}

void RouterInputRecorder::on_step_end(const tinfer::KernelEvent& event, const tinfer::StepValues& values) {
    if (event.status != tinfer::EventStatus::ok) return;
    for (const tinfer::NodeView* node : event.step->nodes) {
        if (node->op != tinfer::Op::mul_mat || node->inputs.size() < 2 || node->inputs[0] == nullptr ||
            node->inputs[0]->role != "ffn_gate_inp")
            continue;
        const auto input = values.value(2);
        if (input.tensor == nullptr || input.data.empty()) continue;
        if (!is_plain(input.tensor->type)) coded_ = std::string(node->inputs[0]->name);
        else write(event, *node->inputs[0], input, node->shapes[1]);
    }
}

void RouterInputRecorder::write(const tinfer::KernelEvent& event, const tinfer::TensorInfo& weight,
                                const tinfer::StepValues::Value& input, const tinfer::ViewShape& shape) {
    const DType type = input.tensor->type;
    const auto n = static_cast<std::uint64_t>(weight.ne[0]), row_bytes = n * size_of(type);
    std::vector<std::uint64_t> rows;  // offset of each row
    if (shape.whole)
        for (std::uint64_t at = 0; at + row_bytes <= input.data.size(); at += row_bytes) rows.push_back(at);
    for (std::uint64_t i2 = 0; !shape.whole && i2 < shape.count[2]; ++i2)
        for (std::uint64_t i1 = 0; i1 < shape.count[1]; ++i1)
            for (std::uint64_t i0 = 0; i0 < shape.count[0]; ++i0)
                rows.push_back(shape.offset + i0 * shape.stride[0] + i1 * shape.stride[1] + i2 * shape.stride[2]);
    if (rows.empty() || rows.back() + row_bytes > input.data.size()) return;
    std::vector<std::byte> record;
    put(record, event.run->run);
    put(record, event.step->number);
    put(record, static_cast<std::int32_t>(event.step->layer));
    for (const std::int64_t size :
         {static_cast<std::int64_t>(n), static_cast<std::int64_t>(rows.size()), std::int64_t{1}, std::int64_t{1}})
        put(record, size);
    put(record, static_cast<std::uint32_t>(weight.name.size()));
    put(record, std::uint32_t{0});
    for (const char c : weight.name) put(record, c);
    record.resize((record.size() + 7) / 8 * 8);
    for (const std::uint64_t row : rows)
        for (std::uint64_t i = 0; i < n; ++i) put(record, number_at(input.data.data() + row + i * size_of(type), type));
    record.resize((record.size() + 7) / 8 * 8);
    out_.write({reinterpret_cast<const char*>(record.data()), record.size()});
    n_rows_ += rows.size();
}

Routers::Routers(const std::filesystem::path& model, const std::filesystem::path& inputs) {
    const auto file = tinfer::ModelFile::open(model);
    const std::string arch = file.metadata_value("general.architecture").value_or("");
    const auto number = [&](const char* key) { return std::stoi(file.metadata_value(arch + key).value_or("0")); };
    gating_ = number(".expert_gating_func");
    n_group_ = number(".expert_group_count");
    n_group_used_ = number(".expert_group_used_count");
    bool has_choice_bias = false;
    for (const auto& tensor : file.tensors()) {
        if (tensor.role != "ffn_gate_inp" || !tensor.name.ends_with(".weight")) continue;
        Router& router = routers_[tensor.layer];
        router.n_embd = tensor.ne[0];
        router.n_expert = tensor.ne[1];
        router.weights = read_numbers(file, tensor);
        const std::string block = "blk." + std::to_string(tensor.layer);
        const auto bias = [&](const char* name) {
            const tinfer::TensorInfo* of = file.find(block + name);
            return of == nullptr || of->ne[0] != router.n_expert ? std::vector<float>() : read_numbers(file, *of);
        };
        router.logit_bias = bias(".ffn_gate_inp.bias");
        router.choice_bias = bias(".exp_probs_b.bias");
        if (router.choice_bias.empty()) router.choice_bias = bias(".exp_probs_b");
        has_choice_bias = has_choice_bias || !router.choice_bias.empty();
    }
    if (gating_ == 0) gating_ = has_choice_bias ? 2 : 1;  // if only the order of logits matters, any will do
    for (auto& value : tinfer::ActivationCapture::read(inputs)) {
        const auto router = routers_.find(value.layer);
        if (router == routers_.end() || value.ne[0] != router->second.n_embd)
            refuse(tinfer::ErrorCode::damaged, inputs.string() + ": '" + value.name + "' of run " +
                                                   std::to_string(value.run) + " is no input of a router of " +
                                                   model.string());
        const std::pair place{value.run, value.layer};
        inputs_.insert_or_assign(place, std::move(value));
    }
}

/// The score of a group is the sum of its best two; ties go to the lower index (arXiv:2412.19437 §2.1.2).
void Routers::keep_groups(std::vector<double>& scores) const {
    if (n_group_ < 2 || scores.size() % static_cast<std::size_t>(n_group_) != 0) return;
    const auto size = static_cast<std::ptrdiff_t>(scores.size()) / n_group_;
    std::vector<std::pair<double, std::ptrdiff_t>> groups;
    for (std::ptrdiff_t g = 0; g < n_group_; ++g) {
        std::vector<double> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
        std::ranges::sort(own, std::greater<>());
        groups.emplace_back(-(own[0] + (size > 1 ? own[1] : 0)), g);
    }
    std::ranges::sort(groups);
    for (std::size_t i = static_cast<std::size_t>(std::max(n_group_used_, 0)); i < groups.size(); ++i)
        std::fill_n(scores.begin() + groups[i].second * size, size, -std::numeric_limits<double>::infinity());
}

std::vector<double> Routers::scores(const Router& router, std::span<const float> input) const {
    std::vector<double> scores(static_cast<std::size_t>(router.n_expert));
    for (std::size_t e = 0; e < scores.size(); ++e) {
        const auto row = std::span(router.weights).subspan(e * input.size(), input.size());
        scores[e] = std::inner_product(row.begin(), row.end(), input.begin(), 0.0, std::plus<>(),
                                       [](float w, float x) { return double(w) * double(x); });
        if (!router.logit_bias.empty()) scores[e] += double(router.logit_bias[e]);
    }
    const double top = *std::ranges::max_element(scores);
    double sum = 0;
    for (const double x : scores) sum += std::exp(x - top);
    for (std::size_t e = 0; e < scores.size(); ++e) {
        double& x = scores[e];
        if (gating_ == 1) x = std::exp(x - top) / sum;
        if (gating_ == 2) x = 1 / (1 + std::exp(-x));
        if (gating_ == 4) x = std::sqrt(softplus(x));
        if (!router.choice_bias.empty()) x += double(router.choice_bias[e]);
    }
    keep_groups(scores);
    return scores;
}

std::optional<std::vector<std::uint32_t>> Routers::choose(int layer, const Route& of, std::size_t n) const {
    const auto router = routers_.find(layer);
    const auto input = inputs_.find({of.run, of.layer});
    if (router == routers_.end() || input == inputs_.end() || input->second.ne[0] != router->second.n_embd ||
        of.row >= static_cast<std::uint64_t>(input->second.ne[1]))
        return std::nullopt;
    const auto width = static_cast<std::size_t>(input->second.ne[0]);
    const auto ranked = scores(router->second, std::span(input->second.data).subspan(of.row * width, width));
    std::vector<std::uint32_t> order(ranked.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) { return ranked[a] > ranked[b]; });
    order.resize(std::min(order.size(), n));
    return order;
}

}  // namespace tinfer::app
