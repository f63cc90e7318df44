// SPDX-License-Identifier: MIT
#include "support/real_model.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "gguf/file.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "support/temp_folder.hpp"

namespace tinfer::test {

namespace {

std::string read_bytes(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream out;
    out << file.rdbuf();
    return out.str();
}

template <class T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::uint64_t n_elements(const TensorInfo& tensor) {
    std::uint64_t n = 1;
    for (std::size_t d = 0; d < static_cast<std::size_t>(tensor.n_dims); ++d)
        n *= static_cast<std::uint64_t>(tensor.ne[d]);
    return n;
}

// −log p of a token under the softmax of a row.
double surprise(std::span<const float> row, Token token) {
    const double top = *std::ranges::max_element(row);
    double sum = 0;
    for (const float x : row) sum += std::exp(x - top);
    return top + std::log(sum) - row[static_cast<std::size_t>(token)];
}

}  // namespace

std::filesystem::path RealModel::path() const { return std::filesystem::path(TINFER_SOURCE_DIR) / "models" / file; }

bool RealModel::skip() const {
    if (std::filesystem::exists(path())) return false;
    MESSAGE("skipped: ", path().string(), " is not there; scripts/get_model.py ", std::string(name), " fetches it");
    return true;
}

Continuation greedy(const Model& model, std::vector<Token> prompt, int n_predict) {
    Context context(model, {.n_ctx = static_cast<int>(prompt.size()) + n_predict});
    Sampler sampler(model.vocab(), {.temp = 0});
    Continuation out;
    for (int i = 0; i < n_predict && !out.ended && context.decode(prompt) == DecodeStatus::ok; ++i) {
        const Token token = sampler.sample(context);
        out.ended = model.vocab().is_eog(token);
        if (!out.ended) out.text += model.vocab().piece(token);
        prompt = {token};
    }
    return out;
}

std::string prose() { return read_bytes(std::filesystem::path(TINFER_SOURCE_DIR) / "tests" / "golden" / "prose.txt"); }

double perplexity(const Model& model, std::string_view text, std::size_t n) {
    const auto tokens = model.vocab().encode(text);
    REQUIRE(tokens.size() >= 2 * n);
    Context context(model, {.n_ctx = static_cast<int>(n), .logits_all = true});
    double sum = 0;
    std::size_t count = 0;
    for (auto begin = tokens.begin(); tokens.end() - begin >= static_cast<std::ptrdiff_t>(n);
         begin += static_cast<std::ptrdiff_t>(n)) {
        context.clear();
        std::vector<Token> window(begin, begin + static_cast<std::ptrdiff_t>(n));
        if (model.vocab().add_bos() && model.vocab().bos()) window[0] = *model.vocab().bos();
        REQUIRE(context.decode(window) == DecodeStatus::ok);
        for (std::size_t j = n / 2; j + 1 < n; ++j, ++count)
            sum += surprise(context.logits(static_cast<int>(j)), window[j + 1]);
    }
    return std::exp(sum / static_cast<double>(count));
}

void write_dequantized(const std::filesystem::path& from, const std::filesystem::path& to) {
    const auto file = gguf::File::open(std::span(&from, 1), {});
    file->load_data({});
    const std::string bytes = read_bytes(from);
    std::string first_info;
    put(first_info, static_cast<std::uint64_t>(file->tensors()[0].name.size()));
    first_info += file->tensors()[0].name;
    const std::size_t directory = bytes.find(first_info);
    REQUIRE(directory != std::string::npos);

    const auto aligned = [&](std::uint64_t n) {
        return (n + file->alignment() - 1) / file->alignment() * file->alignment();
    };
    std::string head = bytes.substr(0, directory);
    std::uint64_t offset = 0;
    for (const TensorInfo& tensor : file->tensors()) {
        put(head, static_cast<std::uint64_t>(tensor.name.size()));
        head += tensor.name;
        put(head, static_cast<std::uint32_t>(tensor.n_dims));
        for (std::size_t d = 0; d < static_cast<std::size_t>(tensor.n_dims); ++d) put(head, tensor.ne[d]);
        put(head, static_cast<std::uint32_t>(DType::f32));
        put(head, offset);
        offset = aligned(offset + n_elements(tensor) * sizeof(float));
    }
    head.resize(aligned(head.size()));

    std::ofstream out(to, std::ios::binary);
    out << head;
    for (const TensorInfo& tensor : file->tensors()) {  // one at a time, to save memory
        std::vector<float> values(n_elements(tensor));
        kernels::dequantize_row(tensor.type, static_cast<const std::byte*>(tensor.address),
                                static_cast<std::int64_t>(values.size()), values.data());
        values.resize(aligned(values.size() * sizeof(float)) / sizeof(float));
        out.write(reinterpret_cast<const char*>(values.data()),
                  static_cast<std::streamsize>(values.size() * sizeof(float)));
    }
    REQUIRE(out.good());
}

PerplexityPair perplexity_against_dequantized(const std::filesystem::path& path) {
    TempFolder folder;
    const auto exact = folder / "dequantized.gguf";
    write_dequantized(path, exact);
    const PerplexityPair pair{perplexity(Model::load(path), prose(), 256),
                              perplexity(Model::load(exact), prose(), 256)};
    MESSAGE(path.filename().string(), ": perplexity ", pair.quantized, ", exactly dequantized ", pair.exact, ", ratio ",
            pair.quantized / pair.exact);
    return pair;
}

}  // namespace tinfer::test
