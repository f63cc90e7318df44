// SPDX-License-Identifier: MIT
// Every golden model of an architecture in the registry: float cases within the tolerance of their case, quantized ones
// as near to the exactly dequantized model as the numerics page asks. Nothing here knows a case by name.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/differences.hpp"
#include "support/golden.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    return json::parse(file);
}

std::vector<float> read_floats(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<float> out(bytes.size() / 4);
    std::copy_n(bytes.data(), out.size() * 4, reinterpret_cast<char*>(out.data()));
    return out;
}

// The positions [p0, p1) of a cache operation; -1 is an open end.
PosRange range_of(const json& operation) {
    const int p0 = operation["p0"], p1 = operation["p1"];
    return {Pos{std::max(p0, 0)}, p1 < 0 ? kPosEnd : Pos{p1}};
}

bool supported(const std::string& arch) {
    return std::ranges::any_of(architectures(), [&](const ArchitectureInfo& row) { return row.name == arch; });
}

std::vector<float> run_case(const std::filesystem::path& folder, const json& info) {
    ModelOptions options;
    // Without flash attention the reference attends to every block: so do we where no block is left out.
    if (info["architecture"] == "minimax-m3" && !info.value("flash_attention", false))
        options.overrides = {{"minimax-m3.attention.indexer.top_k", info["n_ctx"].get<std::int64_t>()}};
    const auto model = Model::load(folder / "model.gguf", options);
    Context context(model, {.n_ctx = info["n_ctx"], .type_k = KvType::f32, .type_v = KvType::f32, .logits_all = true});
    Batch batch;
    const int first = info.value("first_position", 0);
    int i = 0;
    for (const int token : info["tokens"]) batch.add(Token{token}, Pos{first + i++}, SeqId{0}, true);
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    const auto logits = context.result("result_output");
    return {logits.begin(), logits.end()};
}

// Hidden states of every token, or the vector of the whole sequence as the file pools it.
std::vector<float> run_encoder_case(const std::filesystem::path& folder, const json& info, Pooling pooling) {
    const auto model = Model::load(folder / "model.gguf");
    Context context(
        model,
        {.n_ctx = info["n_ctx"], .type_k = KvType::f32, .type_v = KvType::f32, .embeddings = true, .pooling = pooling});
    std::vector<Token> tokens;
    for (const int token : info["tokens"]) tokens.push_back(Token{token});
    REQUIRE(context.encode(tokens) == DecodeStatus::ok);
    CHECK(context.used() == 0);
    if (pooling == Pooling::none) return {context.result("result_norm").begin(), context.result("result_norm").end()};
    CHECK(to_string(context.options().pooling) == info["pooling"].get<std::string>());
    return {context.pooled().begin(), context.pooled().end()};
}

void check_encoder_case(const std::filesystem::path& folder, const json& info) {
    const json& tolerance = info["suggested_tolerance"];
    std::string file = tolerance["file"];
    const double rows =
        test::largest_difference(run_encoder_case(folder, info, Pooling::none), read_floats(folder / file));
    file.replace(file.find("embd"), 4, "pooled");
    const double pooled =
        test::largest_difference(run_encoder_case(folder, info, Pooling::from_model), read_floats(folder / file));
    MESSAGE(folder.filename().string(), ": ", rows, ", pooled ", pooled, " of ", tolerance["max_abs"].get<double>());
    CHECK(rows <= static_cast<double>(tolerance["max_abs"]));
    CHECK(pooled <= static_cast<double>(tolerance["max_abs"]));
}

double log_sum(std::span<const float> row) {
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    return top + std::log(sum);
}

// Of the tokens of a case, given the logits after each of them.
double perplexity(std::span<const float> logits, const json& tokens, std::size_t n_vocab) {
    double sum = 0;
    for (std::size_t i = 1; i < tokens.size(); ++i) {
        const auto row = logits.subspan((i - 1) * n_vocab, n_vocab);
        sum += log_sum(row) - row[tokens[i].get<std::size_t>()];
    }
    return std::exp(sum / static_cast<double>(tokens.size() - 1));
}

struct Distance {
    double mean_kl = 0, rms = 0, max = 0, top1 = 0;
};

Distance distance(std::span<const float> ours, std::span<const float> exact, std::size_t n_vocab) {
    Distance d;
    const std::size_t rows = exact.size() / n_vocab;
    for (std::size_t r = 0; r < rows; ++r) {
        const auto a = exact.subspan(r * n_vocab, n_vocab), b = ours.subspan(r * n_vocab, n_vocab);
        const double za = log_sum(a), zb = log_sum(b);
        for (std::size_t i = 0; i < n_vocab; ++i) {
            d.mean_kl += std::exp(a[i] - za) * ((a[i] - za) - (b[i] - zb));
            d.rms += (a[i] - b[i]) * static_cast<double>(a[i] - b[i]);
        }
        d.max = std::max(d.max, test::largest_difference(a, b));
        d.top1 += std::ranges::max_element(a) - a.begin() == std::ranges::max_element(b) - b.begin();
    }
    d.mean_kl /= static_cast<double>(rows);
    d.rms = std::sqrt(d.rms / static_cast<double>(exact.size()));
    d.top1 /= static_cast<double>(rows);
    return d;
}

/// What was compared.
struct Tally {
    std::size_t n_float = 0, n_quantized = 0;
    std::map<std::string, std::size_t> perplexities;  ///< by architecture
    std::size_t n_shared_and_routed = 0;              ///< of DeepSeek: perplexities of files with both kinds of experts
    std::set<std::string> weight_types;               ///< of quantized cases

    /// Perplexities of the architectures whose name begins so.
    [[nodiscard]] std::size_t of(std::string_view family) const {
        std::size_t n = 0;
        for (const auto& [name, count] : perplexities)
            if (name.starts_with(family)) n += count;
        return n;
    }
};

void count_perplexity(const std::filesystem::path& folder, const std::string& architecture, Tally& tally) {
    ++tally.perplexities[architecture];
    const auto experts = [&](const char* key) { return test::golden_key(folder / "model.gguf", key, 0); };
    if (architecture.starts_with("deepseek") && experts("expert_shared_count") > 0 && experts("expert_used_count") > 0)
        ++tally.n_shared_and_routed;
}

void check_case(const std::filesystem::path& folder, Tally& tally) {
    const json info = read_json(folder / "case.json");
    if (!supported(info["architecture"])) {
        MESSAGE("skipped: ", folder.filename().string(), " has the architecture ",
                info["architecture"].get<std::string>());
        CHECK_FALSE(test::golden_is_whole());
        return;
    }
    CAPTURE(folder.filename().string());
    if (info["output"] == "embeddings") {
        ++tally.n_float;
        return check_encoder_case(folder, info);
    }
    const std::vector<float> ours = run_case(folder, info);
    if (info.contains("suggested_tolerance")) {
        const json& tolerance = info["suggested_tolerance"];
        const auto expected = read_floats(folder / std::string(tolerance["file"]));
        const std::size_t width = info["n_vocab"];
        const auto compared = [&](const std::vector<float>& rows) {  // the reference leaves some rows open
            if (!info.contains("compare_rows")) return rows;
            std::vector<float> out;
            for (const std::size_t row : info["compare_rows"]) {
                const auto first = rows.begin() + static_cast<std::ptrdiff_t>(row * width);
                out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(width));
            }
            return out;
        };
        const double worst = test::largest_difference(compared(ours), compared(expected));
        CHECK(worst <= static_cast<double>(tolerance["max_abs"]));
        if (info["tokens"].size() > 1) {
            const double theirs = perplexity(expected, info["tokens"], info["n_vocab"]);
            CHECK(std::abs(perplexity(ours, info["tokens"], info["n_vocab"]) - theirs) <= 0.005 * theirs);
            count_perplexity(folder, info["architecture"], tally);
        }
        MESSAGE(folder.filename().string(), ": ", worst, " of ", tolerance["max_abs"].get<double>());
        ++tally.n_float;
    } else {
        const auto exact = read_floats(folder / "logits_dequant.f32");
        REQUIRE(exact.size() == ours.size());
        const Distance d = distance(ours, exact, info["n_vocab"]);
        const json& theirs = info["reference_error"];
        MESSAGE(folder.filename().string(), ": mean_kl ", d.mean_kl, " (", theirs["mean_kl"].get<double>(), "), rms ",
                d.rms, " (", theirs["rms_logit"].get<double>(), "), max ", d.max, ", top1 ", d.top1);
        CHECK(d.mean_kl <= 1.25 * static_cast<double>(theirs["mean_kl"]));
        if (info["architecture"] != "gpt-oss") CHECK(d.rms <= 1.1 * static_cast<double>(theirs["rms_logit"]));
        ++tally.n_quantized;
        tally.weight_types.insert(info["weight_type"]);
    }
}

}  // namespace

TEST_CASE("[A1][A2][A3][A9][A19][K2][A4][E2][E3][golden] model: every golden case of a supported architecture is met") {
    if (skip_without_golden()) return;
    Tally tally;
    for (const auto& folder : golden_entries("models"))
        if (std::filesystem::exists(folder / "case.json")) check_case(folder, tally);
    expect_cases(tally.n_float, 144, "float cases");
    expect_cases(tally.n_quantized, 19, "quantized cases");
    expect_cases(tally.of("llama"), 12, "perplexities of the family of llama");        // [A1]
    expect_cases(tally.of("mistral"), 3, "perplexities of the family of mistral");     // [A2]
    expect_cases(tally.of("qwen"), 12, "perplexities of the family of qwen");          // [A3]
    expect_cases(tally.of("deepseek"), 11, "perplexities of the family of deepseek");  // [A4]
    expect_cases(tally.n_shared_and_routed, 11, "of them with shared and routed experts");
    expect_cases(tally.weight_types.count("Q4_K_M") + tally.weight_types.count("Q8_0"), 2,
                 "of Q4_K_M and Q8_0");  // [K2]
    if (!test::golden_is_whole()) return;
    CHECK(tally.n_float + tally.n_quantized == read_json(*golden_folder() / "models" / "index.json").size());
}

TEST_CASE("[M4][M5][M7][golden] model: cache operations of the golden runtime cases") {
    if (skip_without_golden()) return;
    std::size_t n_cases = 0;
    for (const auto& entry : golden_entries("runtime")) {
        if (entry.extension() != ".json" || entry.filename() == "greedy.json") continue;
        const json info = read_json(entry);
        const auto path = golden_file(info["model"]);
        if (!path) continue;
        const json model_case = read_json(path->parent_path() / "case.json");
        if (!supported(model_case["architecture"])) continue;
        CAPTURE(entry.filename().string());
        const auto model = Model::load(*path);
        Context context(
            model, {.n_ctx = 1024, .n_seq_max = 4, .n_outputs = 256, .type_k = KvType::f32, .type_v = KvType::f32});
        std::vector<float> rows;
        for (const json& operation : info["operations"]) {
            const std::string op = operation["op"];
            if (op == "decode") {
                Batch batch;
                bool any = false;
                for (const json& t : operation["tokens"]) {
                    batch.add(Token{t[0].get<int>()}, Pos{t[1].get<int>()}, SeqId{t[2].get<int>()},
                              t[3].get<int>() != 0);
                    any = any || t[3].get<int>() != 0;
                }
                REQUIRE(context.decode(batch) == DecodeStatus::ok);
                if (any)
                    rows.insert(rows.end(), context.result("result_output").begin(),
                                context.result("result_output").end());
            } else if (op == "seq_rm") {
                CHECK(context.seq_rm(SeqId{operation["seq"].get<int>()}, range_of(operation)) == RemoveStatus::ok);
            } else if (op == "seq_add") {
                context.seq_add(SeqId{operation["seq"].get<int>()}, range_of(operation), operation["delta"]);
            } else if (op == "seq_cp") {
                context.seq_cp(SeqId{operation["src"].get<int>()}, SeqId{operation["dst"].get<int>()},
                               range_of(operation));
            } else if (op == "seq_keep") {
                context.seq_keep(SeqId{operation["seq"].get<int>()});
            } else {
                FAIL("unknown operation " << op);
            }
        }
        // The reference scales keys by YaRN's magnitude again at a shift; the pure file holds the rotation alone.
        const std::string file = info.contains("logits_pure_file") ? info["logits_pure_file"] : info["logits_file"];
        const auto expected = read_floats(*golden_folder() / "runtime" / file);
        CHECK(test::largest_difference(rows, expected) <=
              (model_case.contains("gelu_table") ? 5e-3 : 1e-3));  // the reference looks that function up in a table
        ++n_cases;
    }
    expect_cases(n_cases, 19, "runtime cases");
}

TEST_CASE("[golden] model: greedy decoding gives the golden tokens") {
    if (skip_without_golden()) return;
    const auto file = golden_file("runtime/greedy.json");
    if (!file) return;
    const json info = read_json(*file);
    const auto path = golden_file(info["model"]);
    if (!path) return;
    const auto model = Model::load(*path);
    for (const json& run : info["prompts"]) {
        Context context(model, {.n_ctx = 256, .type_k = KvType::f32, .type_v = KvType::f32});
        Sampler sampler(model.vocab(), {.temp = 0});
        std::vector<Token> tokens;
        for (const int id : run["prompt"]) tokens.push_back(Token{id});
        std::vector<int> generated;
        const json& expected = run["continuation"];
        while (generated.size() < expected.size() && context.decode(tokens) == DecodeStatus::ok) {
            tokens = {sampler.sample(context.logits())};
            generated.push_back(static_cast<int>(tokens[0]));
        }
        CHECK(generated == expected.get<std::vector<int>>());
    }
}

}  // namespace tinfer
