// SPDX-License-Identifier: MIT
#include "random_model.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <vector>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/half.hpp"
#include "expert_choices.hpp"
#include "kernel_run.hpp"
#include "kernels/dequantize/dequantize.hpp"
#include "support/gguf_writer.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr ModelShape kShapes[] = {
    {"1.1b", 22, 2048, 32, 4, 5632, 32000},
    {"135m", 30, 576, 9, 3, 1536, 49152, 65536, 0, 0, true},
    {"110m", 12, 768, 12, 4, 2048, 32000},
    {"moe", 8, 2048, 32, 4, 2816, 8192, 65536, 8, 2},
    {"moe64", 16, 1024, 16, 4, 512, 8192, 65536, 64, 4},
    {"moe64-small", 8, 512, 8, 4, 256, 2048, 65536, 64, 4},
    {"moe-dense", 8, 2048, 32, 4, 5632, 8192},
    {"tiny", 2, 256, 4, 2, 512, 600, 4096},
    {"tiny-moe", 2, 256, 4, 2, 256, 600, 4096, 8, 2},
};

// ---- Types ----------------------------------------------------------------------------------------------------------

/// The half of the layers whose attn_v and ffn_down get more bits: the first and last eighth, and every third between.
bool more_bits(int layer, int n_layer) {
    return layer < n_layer / 8 || layer >= 7 * n_layer / 8 || (layer - n_layer / 8) % 3 == 2;
}

DType matrix_type(std::string_view mix, std::string_view role, int layer, int n_layer) {
    if (mix != "q4_k_m") return dtype_named(mix);
    const bool wide =
        role == "output" || ((role == "attn_v" || role.starts_with("ffn_down")) && more_bits(layer, n_layer));
    return wide ? DType::q6_k : DType::q4_k;
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

void fill_random(std::span<std::byte> bytes, test::Random& random) {
    std::size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
        const std::uint64_t bits = random.bits();
        std::memcpy(bytes.data() + i, &bits, 8);
    }
    for (; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random.bits());
}

void put_scales(std::span<std::byte> blocks, DType type, float d, float min) {
    const auto size = static_cast<std::size_t>(find_dtype(type)->block_bytes);
    const test::ScaleOffsets at = test::scale_offsets(type);
    const std::uint16_t halves[] = {f32_to_f16(d), f32_to_f16(min)};
    for (std::size_t block = 0; block < blocks.size(); block += size) {
        std::memcpy(blocks.data() + block + at.d, &halves[0], 2);
        if (at.min >= 0) std::memcpy(blocks.data() + block + at.min, &halves[1], 2);
    }
}

struct Moments {
    double mean, rms;
};

Moments moments(std::span<std::byte> blocks, DType type, float d, float min) {
    put_scales(blocks, type, d, min);
    const DTypeInfo& info = *find_dtype(type);
    std::vector<float> values(blocks.size() / static_cast<std::size_t>(info.block_bytes) *
                              static_cast<std::size_t>(info.block_elems));
    kernels::dequantize_row(type, blocks.data(), static_cast<std::int64_t>(values.size()), values.data());
    double sum = 0, squares = 0;
    for (const double value : values) {
        sum += value;
        squares += value * value;
    }
    return {sum / static_cast<double>(values.size()), std::sqrt(squares / static_cast<double>(values.size()))};
}

/// Scales that give random codes the wanted root mean square and, where the type has minima, a mean of zero.
struct Scales {
    float d, min;
};

Scales scales_for(DType type, double rms) {
    const DTypeInfo& info = *find_dtype(type);
    const test::ScaleOffsets at = test::scale_offsets(type);
    if (at.d < 0) throw std::runtime_error(cat("no random blocks of type ", info.name));
    std::vector<std::byte> sample(static_cast<std::size_t>(info.block_bytes) * 4096);
    test::Random random(7);
    fill_random(sample, random);
    double min = 0;
    if (at.min >= 0) min = -moments(sample, type, 1, 0).mean / moments(sample, type, 0, 1).mean;
    const double d = rms / moments(sample, type, 1, static_cast<float>(min)).rms;
    return {static_cast<float>(d), static_cast<float>(d * min)};
}

/// Floats of one power of two with random signs and mantissas: rms 1.53 times that power, and no conversion.
void fill_floats(std::span<std::byte> bytes, DType type, double rms, test::Random& random) {
    fill_random(bytes, random);
    const int exponent = static_cast<int>(std::lround(std::log2(rms / 1.53)));
    const auto patch = [&]<class Word>(Word mantissa_and_sign, int exponent_bias, int mantissa_bits) {
        const Word bits = static_cast<Word>(static_cast<Word>(exponent + exponent_bias) << mantissa_bits);
        for (std::size_t i = 0; i < bytes.size(); i += sizeof(Word)) {
            Word word;
            std::memcpy(&word, bytes.data() + i, sizeof word);
            word = static_cast<Word>((word & mantissa_and_sign) | bits);
            std::memcpy(bytes.data() + i, &word, sizeof word);
        }
    };
    if (type == DType::f32) patch(std::uint32_t{0x807FFFFF}, 127, 23);
    else if (type == DType::f16) patch(std::uint16_t{0x83FF}, 15, 10);
    else patch(std::uint16_t{0x807F}, 127, 7);
}

// ---- Vocabulary -----------------------------------------------------------------------------------------------------

/// A SentencePiece vocabulary: control tokens, bytes, then letters, pairs, triples, without and with a space before.
/// Words of three letters become one token or two.
void add_vocabulary(test::GgufWriter& writer, int n_vocab) {
    std::vector<std::string> texts{"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types{2, 3, 3};  // unknown, control
    for (int byte = 0; byte < 256; ++byte) {
        constexpr char kDigits[] = "0123456789ABCDEF";
        texts.push_back(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">");
        types.push_back(6);
    }
    const auto size = static_cast<std::size_t>(n_vocab);
    const auto add = [&](const std::string& text) {
        if (texts.size() < size) texts.push_back(text);
    };
    const std::string space = "\xE2\x96\x81";
    add(space);
    std::vector<std::string> shorter{""};
    for (int length = 1; length <= 4; ++length) {
        std::vector<std::string> words;
        for (const std::string& word : shorter)
            for (char letter = 'a'; letter <= 'z' && words.size() < size; ++letter) words.push_back(word + letter);
        for (const std::string& word : words) {
            add(word);
            add(space + word);
        }
        shorter = std::move(words);
    }
    types.resize(texts.size(), 1);
    std::vector<float> scores(texts.size());
    for (std::size_t i = 259; i < scores.size(); ++i) scores[i] = -static_cast<float>(i - 259);
    writer.kv("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", texts)
        .array("tokenizer.ggml.scores", scores);
    writer.array("tokenizer.ggml.token_type", types).kv("tokenizer.ggml.unknown_token_id", 0u);
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
}

/// The keys that a model and its head have, each for its architecture. Returns what writes a number of that one.
auto add_shape(test::GgufWriter& writer, const ModelShape& shape, const std::string& arch, int n_layer) {
    const auto number = [&writer, arch](const char* key, int value) {
        writer.kv(arch + "." + key, static_cast<std::uint32_t>(value));
    };
    number("block_count", n_layer);
    number("context_length", shape.n_ctx);
    number("embedding_length", shape.n_embd);
    number("feed_forward_length", shape.n_ff);
    number("attention.head_count", shape.n_head);
    number("attention.head_count_kv", shape.n_head_kv);
    number("rope.dimension_count", shape.n_embd / shape.n_head);
    number("vocab_size", shape.n_vocab);
    writer.kv(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
    return number;
}

void add_keys(test::GgufWriter& writer, const ModelShape& shape) {
    writer.kv("general.architecture", "llama").kv("general.name", shape.name).kv("general.quantization_version", 2u);
    const auto number = add_shape(writer, shape, "llama", shape.n_layer);
    if (shape.n_expert == 0) return;
    number("expert_count", shape.n_expert);
    number("expert_used_count", shape.n_expert_used);
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

void reserve_tensors(test::GgufWriter& writer, const ModelShape& shape, std::string_view mix, Choices choices) {
    const auto add = [&](const std::string& name, DType type, std::vector<std::int64_t> ne) {
        if (ne[0] % find_dtype(type)->block_elems != 0)
            throw std::runtime_error(
                cat(name, ": rows of ", ne[0], " weights are no whole blocks of ", to_string(type)));
        std::int64_t size = row_bytes(type, ne[0]);
        for (std::size_t i = 1; i < ne.size(); ++i) size *= ne[i];
        writer.reserve(name + ".weight", type, std::move(ne), static_cast<std::uint64_t>(size));
    };
    const std::int64_t n_embd = shape.n_embd, n_kv = n_embd / shape.n_head * shape.n_head_kv, n_ff = shape.n_ff;
    add("token_embd", choices == Choices::plain ? matrix_type(mix, "token_embd", 0, shape.n_layer) : DType::f32,
        {n_embd, shape.n_vocab});
    add("output_norm", DType::f32, {n_embd});
    if (!shape.tied) add("output", matrix_type(mix, "output", 0, shape.n_layer), {n_embd, shape.n_vocab});
    for (int layer = 0; layer < shape.n_layer; ++layer) {
        const std::string block = cat("blk.", layer, ".");
        const auto matrix = [&](const std::string& role, std::int64_t k, std::int64_t n, bool experts = false) {
            const DType type = matrix_type(mix, role, layer, shape.n_layer);
            if (experts && shape.n_expert > 0) add(block + role + "_exps", type, {k, n, shape.n_expert});
            else add(block + role, type, {k, n});
        };
        add(block + "attn_norm", DType::f32, {n_embd});
        matrix("attn_q", n_embd, n_embd);
        matrix("attn_k", n_embd, n_kv);
        matrix("attn_v", n_embd, n_kv);
        matrix("attn_output", n_embd, n_embd);
        add(block + "ffn_norm", DType::f32, {n_embd});
        if (shape.n_expert > 0) add(block + "ffn_gate_inp", DType::f32, {n_embd, shape.n_expert});
        matrix("ffn_gate", n_embd, n_ff, true);
        matrix("ffn_up", n_embd, n_ff, true);
        matrix("ffn_down", n_ff, n_embd, true);
    }
}

/// Keys and tensors of a head.
void describe_head(test::GgufWriter& writer, const ModelShape& shape, std::string_view mix) {
    const std::int64_t e = shape.n_embd, n_kv = e / shape.n_head * shape.n_head_kv, n_ff = shape.n_ff,
                       n_rows = shape.n_vocab / 4;
    writer.kv("general.architecture", "eagle3").kv("general.name", "random head");
    add_shape(writer, shape, "eagle3", 1)("target_hidden_size", shape.n_embd);
    writer.array("eagle3.target_layers", std::vector<std::int32_t>{std::min(2, shape.n_layer), shape.n_layer / 2,
                                                                   std::max(0, shape.n_layer - 3)});
    const auto add = [&](const std::string& name, std::string_view role, std::vector<std::int64_t> ne) {
        const DType type = ne.size() == 1 ? DType::f32 : matrix_type(mix, role, 0, 8);
        const auto size = row_bytes(type, ne[0]) * (ne.size() == 1 ? 1 : ne[1]);
        writer.reserve(name + ".weight", type, std::move(ne), static_cast<std::uint64_t>(size));
    };
    add("fc", "fc", {3 * e, e});
    add("output_norm", "", {e});
    add("output", "output", {e, n_rows});
    writer.reserve("d2t", DType::i64, {n_rows}, static_cast<std::uint64_t>(8 * n_rows));
    for (const char* norm : {"attn_norm", "attn_norm_2", "ffn_norm"}) add(cat("blk.0.", norm), "", {e});
    add("blk.0.attn_q", "attn_q", {2 * e, e});
    add("blk.0.attn_k", "attn_k", {2 * e, n_kv});
    add("blk.0.attn_v", "attn_v", {2 * e, n_kv});
    add("blk.0.attn_output", "attn_output", {e, e});
    add("blk.0.ffn_gate", "ffn_gate", {e, n_ff});
    add("blk.0.ffn_up", "ffn_up", {e, n_ff});
    add("blk.0.ffn_down", "ffn_down", {n_ff, e});
}

/// The bytes of one tensor; norms are one, and ids count.
void fill_tensor(std::vector<std::byte>& bytes, const test::GgufWriter::Tensor& tensor, std::uint64_t seed) {
    bytes.resize(tensor.size());
    if (tensor.type == DType::i64) {
        for (std::int64_t id = 0; id < tensor.ne[0]; ++id) std::memcpy(bytes.data() + 8 * id, &id, sizeof id);
        return;
    }
    if (tensor.ne.size() > 1) return fill_matrix(bytes, tensor.type, tensor.ne[0], seed);
    const float one = 1.0f;
    for (std::size_t i = 0; i < bytes.size(); i += sizeof one) std::memcpy(bytes.data() + i, &one, sizeof one);
}

}  // namespace

void fill_matrix(std::span<std::byte> bytes, DType type, std::int64_t k, std::uint64_t seed, double gain) {
    test::Random random(seed);
    const double rms = gain / std::sqrt(static_cast<double>(k));
    if (is_float(type)) return fill_floats(bytes, type, rms, random);
    const Scales scales = scales_for(type, rms);
    fill_random(bytes, random);
    put_scales(bytes, type, scales.d, scales.min);
}

const ModelShape& shape_named(std::string_view name) {
    for (const ModelShape& shape : kShapes)
        if (shape.name == name) return shape;
    throw std::runtime_error(cat("no model shape ", name));
}

namespace {

// What was just written lies in the page cache in small pieces. Read again it comes in large ones, which are mapped as
// large pages: as the file of anybody who did not write it himself a moment ago.
void forget_pages(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    ::close(descriptor);
}

}  // namespace

namespace {

/// `fill` (empty: none) fills a tensor and returns true, or leaves it.
using FillFn = std::function<bool(std::vector<std::byte>&, const test::GgufWriter::Tensor&, std::uint64_t)>;

void write_filled(const test::GgufWriter& writer, const std::filesystem::path& path, std::uint64_t seed,
                  const FillFn& fill = {}) {
    auto temporary = path;
    temporary += ".part";
    std::ofstream file(temporary, std::ios::binary);
    const auto write = [&](const std::vector<std::byte>& bytes, std::uint64_t at) {
        file.seekp(static_cast<std::streamoff>(at));
        file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    write(writer.front(), 0);
    const auto start = writer.data_start();
    const auto offsets = writer.offsets();
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        const test::GgufWriter::Tensor& tensor = writer.tensors()[i];
        if (!fill || !fill(bytes, tensor, seed * 1'000'003 + i)) fill_tensor(bytes, tensor, seed * 1'000'003 + i);
        write(bytes, start + offsets[i]);
    }
    file.close();
    if (!file) throw std::runtime_error(cat("cannot write ", temporary.string()));
    forget_pages(temporary);
    std::filesystem::rename(temporary, path);
}

}  // namespace

void write_random_model(const std::filesystem::path& path, const ModelShape& shape, std::string_view mix,
                        std::uint64_t seed, Choices choices) {
    if (choices != Choices::plain && shape.n_expert == 0)
        throw std::runtime_error(cat("shape ", shape.name, " has no experts to choose"));
    test::GgufWriter writer;
    add_keys(writer, shape);
    add_vocabulary(writer, shape.n_vocab);
    reserve_tensors(writer, shape, mix, choices);
    write_filled(writer, path, seed,
                 [&](std::vector<std::byte>& bytes, const test::GgufWriter::Tensor& tensor, std::uint64_t of_tensor) {
                     if (choices == Choices::plain || !makes_choices(tensor)) return false;
                     bytes.resize(tensor.size());
                     fill_for_choices(bytes, tensor, shape, choices, of_tensor);
                     return true;
                 });
}

void write_random_head(const std::filesystem::path& path, const ModelShape& shape, std::string_view mix,
                       std::uint64_t seed) {
    test::GgufWriter writer;
    describe_head(writer, shape, mix);
    write_filled(writer, path, seed);
}

double check_model(const std::filesystem::path& path) {
    const Model model = Model::load(path);
    Context context(model, {.n_ctx = 64});
    std::vector<Token> tokens;
    for (int i = 0; i < 16; ++i) tokens.push_back(Token{3 + 17 * i});
    if (context.decode(tokens) != DecodeStatus::ok)
        throw std::runtime_error(cat(path.string(), ": decode did not succeed"));
    double sum = 0, squares = 0;
    const auto logits = context.logits();
    for (const double logit : logits) {
        sum += logit;
        squares += logit * logit;
    }
    const double n = static_cast<double>(logits.size()), deviation = std::sqrt(squares / n - sum / n * (sum / n));
    if (!std::isfinite(deviation) || deviation < 1e-3 || deviation > 1e3)
        throw std::runtime_error(cat(path.string(), ": logits deviate by ", deviation));
    return deviation;
}

}  // namespace tinfer::bench
