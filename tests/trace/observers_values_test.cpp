// SPDX-License-Identifier: MIT
// Observers of values, against what is computed anew from captured values, and on golden models.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <set>

#include "support/golden.hpp"
#include "support/temp_folder.hpp"
#include "trace/trace_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// The names of the activations that each weight multiplies.
struct InputNames : Observer {
    std::map<std::string, std::string> of_weight;
    void on_plan(const PlanView& plan) override {
        for (const NodeView& node : plan.nodes)
            if ((node.op == Op::mul_mat || node.op == Op::mul_mat_id) && node.inputs.size() > 1 &&
                node.inputs[0]->tensor_class == TensorClass::weight)
                of_weight[std::string(node.inputs[0]->name)] = node.inputs[1]->name;
    }
};

struct Captured {
    std::vector<CapturedValue> values;
    InputNames names;
    /// All rows of what the weight multiplied, run by run.
    [[nodiscard]] std::vector<std::vector<float>> rows(const std::string& weight) const {
        std::vector<std::vector<float>> out;
        const auto name = names.of_weight.find(weight);
        if (name == names.of_weight.end()) throw std::runtime_error("no input of " + weight);
        for (const CapturedValue& value : values)
            for (std::size_t at = 0, n = static_cast<std::size_t>(value.ne[0]);
                 value.name == name->second && at < value.data.size(); at += n)
                out.emplace_back(value.data.begin() + static_cast<std::ptrdiff_t>(at),
                                 value.data.begin() + static_cast<std::ptrdiff_t>(at + n));
        return out;
    }
};

/// Prompt and single tokens on a fresh context, with all values captured beside another observer.
Captured run_captured(const Model& model, const std::shared_ptr<Observer>& observer, ContextOptions options = {}) {
    const TempFolder folder;
    const auto path = folder / "values.bin";
    Captured out;
    const auto names = std::make_shared<InputNames>();
    const auto capture = std::make_shared<ActivationCapture>(path);
    {
        options.n_ctx = 64;
        Context context(model, options);
        const auto first = context.attach(observer), second = context.attach(capture), third = context.attach(names);
        const auto tokens = random_tokens(20, model.info().n_vocab, 11);
        REQUIRE(context.decode(std::span(tokens).first(8)) == DecodeStatus::ok);
        for (std::size_t i = 8; i < tokens.size(); ++i)
            REQUIRE(context.decode(std::span(tokens).subspan(i, 1)) == DecodeStatus::ok);
    }
    capture->close();
    CHECK(capture->dropped() == 0);
    out.values = ActivationCapture::read(path);
    CHECK(out.values.size() == capture->captured());
    out.names = *names;
    return out;
}

/// A copy of the model with one float32 of a tensor replaced.
std::filesystem::path with_value(const std::filesystem::path& model, std::string_view tensor, std::size_t index,
                                 float value) {
    const auto opened = ModelFile::open(model);
    const auto at = opened.find(tensor)->file_offset + 4 * index;
    auto copy = model;
    copy.replace_filename("changed.gguf");
    std::filesystem::copy_file(model, copy, std::filesystem::copy_options::overwrite_existing);
    std::fstream file(copy, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
    return copy;
}

}  // namespace

TEST_CASE("finite check: names step, tensor and element of the first value that is not finite") {
    const TempFolder folder;
    const auto path = TinyModel::of("llama").save(folder.path());
    const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
    for (const float value : {nan, infinity, -infinity}) {
        const Model model = Model::load(with_value(path, "blk.1.ffn_norm.weight", 5, value));
        for (const bool fuse : {true, false}) {
            Context context(model, {.n_ctx = 32, .fuse = fuse});
            const auto check = std::make_shared<FiniteCheck>();
            const auto attached = context.attach(check);
            CHECK(context.decode(std::array{Token{3}, Token{4}}) == DecodeStatus::ok);
            REQUIRE(check->first().has_value());
            CHECK(check->first()->layer == 1);
            CHECK(check->first()->node == "ffn_norm-1");
            CHECK(check->first()->index == 5);
            CHECK(check->first()->what.find("element 5 of 'ffn_norm-1' is ") != std::string::npos);
        }
        Context context(model, {.n_ctx = 32});
        const auto attached = context.attach(std::make_shared<FiniteCheck>(true));
        CHECK_THROWS_WITH_AS(static_cast<void>(context.decode(std::array{Token{3}})), doctest::Contains("ffn_norm-1"),
                             Error);
    }
    Context context(Model::load(path), {.n_ctx = 32});
    const auto check = std::make_shared<FiniteCheck>();
    const auto attached = context.attach(check);
    CHECK(context.decode(std::array{Token{3}, Token{4}}) == DecodeStatus::ok);
    CHECK_FALSE(check->first().has_value());
    CHECK(check->values() > 1000);
}

TEST_CASE("finite check: the scale of quantized activations says it where the value itself is not stored") {
    const TempFolder folder;
    const auto path = TinyModel::of("llama", DType::q4_k).save(folder.path());
    const Model model =
        Model::load(with_value(path, "blk.0.attn_norm.weight", 130, std::numeric_limits<float>::infinity()));
    Context context(model, {.n_ctx = 32});
    const auto check = std::make_shared<FiniteCheck>();
    const auto attached = context.attach(check);
    CHECK(context.decode(std::array{Token{3}}) == DecodeStatus::ok);
    REQUIRE(check->first().has_value());
    CHECK(check->first()->layer == 0);
    CHECK(check->first()->kernel.starts_with("rms_norm_quantize"));
}

TEST_CASE("[golden] finite check: golden models compute finite values only") {
    if (skip_without_golden()) return;
    for (const GoldenModel& golden : golden_models()) {
        if (golden.encoder) continue;
        CAPTURE(golden.name);
        const Model model = Model::load(golden.file);
        Context context(model, {.n_ctx = 64});
        const auto check = std::make_shared<FiniteCheck>();
        const auto attached = context.attach(check);
        REQUIRE(context.decode(random_tokens(9, model.info().n_vocab, 3)) == DecodeStatus::ok);
        if (check->first()) FAIL_CHECK(check->first()->what);
        CHECK(check->values() > 0);
    }
}

TEST_CASE("activation capture: what is read back are the values, by name") {
    const TempFolder folder;
    const Model model = load_tiny("llama");
    Context context(model, {.n_ctx = 32});
    const auto path = folder / "values.bin";
    const auto capture =
        std::make_shared<ActivationCapture>(path, CaptureOptions{.names = {"l_out-?", "result_output"}});
    {
        const auto attached = context.attach(capture);
        REQUIRE(context.decode(std::array{Token{3}, Token{4}, Token{5}}) == DecodeStatus::ok);
    }
    capture->close();
    const auto values = ActivationCapture::read(path);
    CHECK(values.size() == capture->captured());
    const auto logits = std::ranges::find(values, "result_output", &CapturedValue::name);
    REQUIRE(logits != values.end());
    CHECK(std::ranges::equal(logits->data, context.logits(-1)));
    const auto layer = std::ranges::find(values, "l_out-0", &CapturedValue::name);
    REQUIRE(layer != values.end());
    CHECK(layer->layer == 0);
    CHECK(layer->ne == std::array<std::int64_t, 4>{64, 3, 1, 1});
    CHECK_THROWS_WITH_AS(ActivationCapture(path, {}), doctest::Contains("is there already"), Error);

    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 8);
    CHECK_THROWS_WITH_AS(static_cast<void>(ActivationCapture::read(path)), doctest::Contains("beyond the end"), Error);
    CHECK_THROWS_AS(static_cast<void>(ActivationCapture::read(folder / "none")), Error);
}

TEST_CASE("activation capture: fused values are counted, and a limit of bytes drops the rest") {
    const TempFolder folder;
    const Model model = load_tiny("llama", DType::q4_k);
    for (const bool fuse : {true, false}) {
        Context context(model, {.n_ctx = 32, .fuse = fuse});
        const auto capture = std::make_shared<ActivationCapture>(folder / "values.bin",
                                                                 CaptureOptions{.max_bytes = 4000, .overwrite = true});
        const auto attached = context.attach(capture);
        REQUIRE(context.decode(std::array{Token{3}}) == DecodeStatus::ok);
        CHECK((capture->elided() > 0) == fuse);
        CHECK(capture->dropped() > 0);
        capture->close();
        CHECK(std::filesystem::file_size(folder / "values.bin") <= 4000);
    }
}

TEST_CASE("importance matrix: sums of squares of what every weight's columns meet") {
    for (const DType type : {DType::f32, DType::q8_0, DType::q4_k}) {
        CAPTURE(std::string(to_string(type)));
        const Model model = load_tiny("llama", type);
        const auto matrix = std::make_shared<ImportanceMatrix>();
        const Captured captured = run_captured(model, matrix);
        const auto weights = matrix->weights();
        std::size_t n_matrices = 0;
        for (const TensorInfo& tensor : model.file().tensors())
            n_matrices += tensor.n_dims > 1 && tensor.role != "token_embd" ? 1 : 0;
        CHECK(weights.size() == n_matrices);
        for (const ImportanceColumns& columns : weights) {
            CAPTURE(columns.name);
            const auto rows = captured.rows(columns.name);
            REQUIRE(rows.size() >= columns.rows[0]);  // of the head: outputs alone
            CHECK(columns.rows[0] > 0);
            if (rows.size() != columns.rows[0]) continue;
            for (std::size_t k = 0; k < columns.sum_squares.size(); ++k) {
                double sum = 0;
                for (const auto& row : rows) sum += double{row[k]} * double{row[k]};
                CHECK(columns.sum_squares[k] == doctest::Approx(sum));
            }
        }
        CHECK(std::ranges::find(weights, "blk.1.ffn_down.weight", &ImportanceColumns::name)->rows[0] > 0);
    }
}

TEST_CASE("importance matrix: every expert has its own sums, of the tokens that it got") {
    const Model model = load_tiny("qwen3moe");
    const auto matrix = std::make_shared<ImportanceMatrix>();
    const auto experts = std::make_shared<ExpertStats>();
    const auto both = std::make_shared<Tee>(std::vector<std::shared_ptr<Observer>>{matrix, experts});
    static_cast<void>(run_captured(model, both));
    std::map<std::string, ImportanceColumns> by_name;
    for (const ImportanceColumns& columns : matrix->weights()) by_name[columns.name] = columns;
    for (const ExpertLayer& layer : experts->layers())
        for (const char* role : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
            const auto& columns = by_name.at("blk." + std::to_string(layer.layer) + "." + role + ".weight");
            CHECK(columns.n_matrices == 5);
            CHECK(columns.rows == layer.tokens);
            for (std::size_t e = 0; e < 5; ++e) {
                double sum = 0;
                for (std::int64_t k = 0; k < columns.n_columns; ++k)
                    sum +=
                        columns
                            .sum_squares[e * static_cast<std::size_t>(columns.n_columns) + static_cast<std::size_t>(k)];
                CHECK((sum > 0) == (columns.rows[e] > 0));
            }
        }
}

TEST_CASE("importance matrix: parts add up to the whole, and a saved one is a file that opens") {
    const TempFolder folder;
    const Model model = load_tiny("llama-moe");
    const auto tokens = random_tokens(16, model.info().n_vocab, 9);
    ImportanceMatrix all, part;
    const auto decode = [&](std::span<const Token> some, ImportanceMatrix& into) {
        Context context(model, {.n_ctx = 32});
        const auto matrix = std::make_shared<ImportanceMatrix>();
        const auto attached = context.attach(matrix);
        for (const Token token : some) {
            context.clear();
            REQUIRE(context.decode(std::array{token}) == DecodeStatus::ok);
        }
        into.merge(*matrix);
    };
    decode(tokens, all);
    decode(std::span(tokens).first(5), part);
    decode(std::span(tokens).subspan(5), part);
    const auto a = all.weights(), b = part.weights();
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
        CHECK(a[i].name == b[i].name);
        CHECK(a[i].rows == b[i].rows);
        for (std::size_t k = 0; k < a[i].sum_squares.size(); ++k)
            CHECK(a[i].sum_squares[k] == doctest::Approx(b[i].sum_squares[k]));
    }
    const std::vector<std::string> datasets{"words.txt"};
    std::ofstream(folder / "m.imatrix.part") << "somebody else's";
    all.save(folder / "m.imatrix", datasets);
    CHECK(std::filesystem::file_size(folder / "m.imatrix.part") == 15);
    CHECK_THROWS_WITH_AS(all.save(folder / "none" / "m.imatrix", datasets), doctest::Contains("none/m.imatrix: cannot"),
                         Error);
    const auto file = ModelFile::open(folder / "m.imatrix");
    CHECK(file.tensors().size() == 2 * a.size());
    const TensorInfo* sums = file.find("blk.0.ffn_up_exps.weight.in_sum2");
    const TensorInfo* counts = file.find("blk.0.ffn_up_exps.weight.counts");
    REQUIRE(sums != nullptr);
    REQUIRE(counts != nullptr);
    CHECK(sums->ne == std::array<std::int64_t, 4>{64, 5, 1, 1});
    CHECK(counts->ne == std::array<std::int64_t, 4>{1, 5, 1, 1});
    const auto& columns = *std::ranges::find(a, "blk.0.ffn_up_exps.weight", &ImportanceColumns::name);
    std::ifstream in(folder / "m.imatrix", std::ios::binary);
    in.seekg(static_cast<std::streamoff>(sums->file_offset));
    std::vector<float> read(columns.sum_squares.size());
    in.read(reinterpret_cast<char*>(read.data()), static_cast<std::streamsize>(4 * read.size()));
    for (std::size_t k = 0; k < read.size(); ++k) CHECK(read[k] == static_cast<float>(columns.sum_squares[k]));
    CHECK_THROWS_AS(Model::load(folder / "m.imatrix"), Error);

    Context other(load_tiny("llama", DType::q8_0), {.n_ctx = 32});
    const auto wide = std::make_shared<ImportanceMatrix>();
    {
        const auto attached = other.attach(wide);
        REQUIRE(other.decode(std::array{Token{1}}) == DecodeStatus::ok);
    }
    CHECK_THROWS_WITH_AS(all.merge(*wide), doctest::Contains("other shapes"), Error);
    CHECK_THROWS_AS(all.save(folder / "none" / "m.imatrix"), Error);
}

TEST_CASE("activation sparsity: active neurons, pairs and windows are those of the captured activations") {
    constexpr std::size_t kWindow = 3;
    for (const DType type : {DType::f32, DType::q4_k}) {
        CAPTURE(std::string(to_string(type)));
        const Model model = load_tiny("llama", type);
        const auto sparsity = std::make_shared<ActivationSparsity>(
            SparsityOptions{.threshold = 0.2f, .window = kWindow, .together = {0}, .max_active_sets = 1000});
        const Captured captured = run_captured(model, sparsity);
        const auto layers = sparsity->layers();
        REQUIRE(layers.size() == 2);
        for (const SparsityLayer& layer : layers) {
            CAPTURE(layer.layer);
            const auto rows = captured.rows("blk." + std::to_string(layer.layer) + ".ffn_down.weight");
            const std::size_t n = layer.active.size();
            REQUIRE(layer.tokens == rows.size());
            std::vector<std::set<std::uint32_t>> sets;
            for (const auto& row : rows) {
                auto& set = sets.emplace_back();
                for (std::uint32_t k = 0; k < n; ++k)
                    if (std::fabs(row[k]) > 0.2f) set.insert(k);
            }
            std::vector<std::uint64_t> active(n, 0);
            std::size_t total = 0;
            for (const auto& set : sets)
                for (const std::uint32_t k : set) ++active[k], ++total;
            CHECK(layer.active == active);
            CHECK(total > 0);
            CHECK(total < n * rows.size());
            CHECK(layer.mean_active() == doctest::Approx(double(total) / double(n * rows.size())));
            double overlap = 0, working = 0;
            std::uint64_t windows = 0;
            for (std::size_t t = kWindow; t < sets.size(); ++t) {
                std::set<std::uint32_t> before, need = sets[t];
                for (std::size_t b = t - kWindow; b < t; ++b) {
                    before.insert(sets[b].begin(), sets[b].end());
                    if (b > t - kWindow) need.insert(sets[b].begin(), sets[b].end());
                }
                const auto again = std::ranges::count_if(sets[t], [&](std::uint32_t k) { return before.contains(k); });
                overlap += sets[t].empty() ? 0 : double(again) / double(sets[t].size());
                working += double(need.size()) / double(n);
                ++windows;
            }
            REQUIRE(layer.windows == windows);
            CHECK(layer.overlap == doctest::Approx(overlap / double(windows)));
            CHECK(layer.working_set == doctest::Approx(working / double(windows)));
            if (layer.layer == 0) {
                REQUIRE(layer.together.size() == n * n);
                for (std::uint32_t a = 0; a < n; a += 7)
                    for (std::uint32_t b = 0; b < n; b += 5)
                        CHECK(layer.together[a * n + b] == std::ranges::count_if(sets, [&](const auto& s) {
                                  return s.contains(a) && s.contains(b);
                              }));
            } else {
                CHECK(layer.together.empty());
            }
            std::size_t t = 0;
            for (const ActiveSet& set : sparsity->active_sets())
                if (set.layer == layer.layer) {
                    REQUIRE(t < sets.size());
                    CHECK(std::ranges::equal(set.neurons, sets[t++]));
                }
            CHECK(t == sets.size());
        }
        CHECK(std::ranges::count(sparsity->report(), '\n') == 3);
    }
    CHECK_THROWS_AS(ActivationSparsity({.window = 0}), Error);
    CHECK_THROWS_AS(ActivationSparsity({.threshold = -1}), Error);
}

TEST_CASE("activation sparsity: experts are told apart") {
    const Model model = load_tiny("qwen2moe");
    const auto sparsity = std::make_shared<ActivationSparsity>();
    const auto experts = std::make_shared<ExpertStats>();
    static_cast<void>(
        run_captured(model, std::make_shared<Tee>(std::vector<std::shared_ptr<Observer>>{sparsity, experts})));
    std::map<std::pair<int, int>, std::uint64_t> tokens;
    for (const SparsityLayer& layer : sparsity->layers()) tokens[{layer.layer, layer.expert}] = layer.tokens;
    for (const ExpertLayer& layer : experts->layers()) {
        CHECK(tokens.at({layer.layer, -1}) > 0);  // the shared one
        for (int e = 0; e < 5; ++e) {
            const std::uint64_t n = layer.tokens[static_cast<std::size_t>(e)];
            if (n > 0) CHECK(tokens.at({layer.layer, e}) == n);
        }
    }
}
