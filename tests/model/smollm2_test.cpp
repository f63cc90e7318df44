// SPDX-License-Identifier: MIT
// A real model, the one that scripts/quickstart fetches: it speaks English, and its quantized products cost next to nothing
// against the same weights exactly dequantized to F32. Skipped, saying so, where models/ does not hold the file.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "gguf/file.hpp"
#include "kernels/quants/dequantize.hpp"
#include "support/temp_folder.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

namespace {

std::filesystem::path smollm2() { return std::filesystem::path(TINFER_SOURCE_DIR) / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"; }

bool skip_without_smollm2() {
    if (std::filesystem::exists(smollm2())) return false;
    MESSAGE("skipped: ", smollm2().string(), " is not there; scripts/quickstart fetches it");
    return true;
}

std::string read_text(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

template <class T>
void put(std::string& out, T value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }

// The same file with every tensor as F32: the metadata bytes as they are, a new directory, the dequantized rows.
void write_dequantized(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto file = gguf::File::open(std::span(&from, 1), {});
    file->load_data({});
    const std::string bytes = read_text(from);
    std::string first_info;
    put(first_info, static_cast<std::uint64_t>(file->tensors()[0].name.size()));
    first_info += file->tensors()[0].name;
    const std::size_t directory = bytes.find(first_info);
    REQUIRE(directory != std::string::npos);
    std::string out = bytes.substr(0, directory), data;
    for (const TensorInfo& tensor : file->tensors()) {
        put(out, static_cast<std::uint64_t>(tensor.name.size()));
        out += tensor.name;
        put(out, static_cast<std::uint32_t>(tensor.n_dims));
        std::int64_t n = 1;
        for (int d = 0; d < tensor.n_dims; ++d) {
            put(out, tensor.ne[static_cast<std::size_t>(d)]);
            n *= tensor.ne[static_cast<std::size_t>(d)];
        }
        put(out, static_cast<std::uint32_t>(DType::f32));
        put(out, static_cast<std::uint64_t>(data.size()));
        std::vector<float> values(static_cast<std::size_t>(n));
        kernels::dequantize_row(tensor.type, static_cast<const std::byte*>(tensor.address), n, values.data());
        data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
        data.resize((data.size() + 31) / 32 * 32);
    }
    out.resize((out.size() + 31) / 32 * 32);
    std::ofstream(to, std::ios::binary) << out << data;
}

// Perplexity in windows of n tokens, the second half scored (runtime page, §16).
double perplexity(const Model& model, const std::string& text, std::size_t n) {
    const auto tokens = model.vocab().encode(text);
    REQUIRE(tokens.size() >= 2 * n);
    Context context(model, {.n_ctx = static_cast<int>(n), .logits_all = true});
    double nll = 0;
    std::size_t count = 0;
    for (std::size_t c = 0; c + n <= tokens.size(); c += n) {
        context.clear();
        std::vector<Token> window(tokens.begin() + static_cast<std::ptrdiff_t>(c), tokens.begin() + static_cast<std::ptrdiff_t>(c + n));
        if (model.vocab().add_bos() && model.vocab().bos()) window[0] = *model.vocab().bos();
        REQUIRE(context.decode(window) == DecodeStatus::ok);
        for (std::size_t j = n / 2; j + 1 < n; ++j, ++count) {
            const auto row = context.logits(static_cast<int>(j));
            const double top = *std::ranges::max_element(row);
            double sum = 0;
            for (const float x : row) sum += std::exp(x - top);
            nll += top + std::log(sum) - row[static_cast<std::size_t>(tokens[c + j + 1])];
        }
    }
    return std::exp(nll / static_cast<double>(count));
}

}  // namespace

TEST_CASE("[A1][K2] smollm2: greedy text is English and answers the question") {
    if (skip_without_smollm2()) return;
    const auto model = Model::load(smollm2());
    Context context(model, {.n_ctx = 256});
    Sampler sampler(model.vocab(), {.temp = 0});
    auto tokens = model.vocab().encode("<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n", {.parse_special = true});
    std::string text;
    bool ended = false;
    for (int i = 0; i < 40 && !ended && context.decode(tokens) == DecodeStatus::ok; ++i) {
        const Token token = sampler.sample(context);
        ended = model.vocab().is_eog(token);
        if (!ended) text += model.vocab().piece(token);
        tokens = {token};
    }
    CAPTURE(text);
    CHECK(ended);
    CHECK(text.find("Paris") != std::string::npos);
}

TEST_CASE("[A1][slow] smollm2: perplexity within 0.5 % of the same file exactly dequantized to F32") {
    if (skip_without_smollm2()) return;
    const std::string text = read_text(std::filesystem::path(TINFER_SOURCE_DIR) / "tests" / "golden" / "prose.txt");
    test::TempFolder folder;
    const auto exact_path = folder / "dequantized.gguf";
    write_dequantized(smollm2(), exact_path);
    const double quantized = perplexity(Model::load(smollm2()), text, 256);
    const double exact = perplexity(Model::load(exact_path), text, 256);
    MESSAGE("perplexity ", quantized, ", exactly dequantized ", exact, ", ratio ", quantized / exact);
    CHECK(quantized / exact == doctest::Approx(1.0).epsilon(0.005));
    CHECK(quantized < 30);
}

}  // namespace tinfer
