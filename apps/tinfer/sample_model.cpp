// SPDX-License-Identifier: MIT
#include "sample_model.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace tinfer::app {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kTokens = 64;             // number of different tokens decoded
constexpr std::uint64_t kMaxLayer = 512u << 20;  // maximum bytes of a layer; larger ones get fewer experts

[[noreturn]] void refuse(const fs::path& path) {
    throw tinfer::Error(tinfer::ErrorCode::io_error,
                        path.string() + ": cannot be written; speed is measured with a sample of the model there, "
                                        "unless --stream-gbps, --int8-gmacs and --f32-gmacs are given");
}

// ---- The directory ---------------------------------------------------------------------------------------

struct SampleMatrix {
    std::string name;
    tinfer::DType type = tinfer::DType::f32;
    std::vector<std::int64_t> ne;
    std::uint64_t row_bytes = 0;

    [[nodiscard]] std::uint64_t bytes() const {
        std::uint64_t n = row_bytes;
        for (std::size_t i = 1; i < ne.size(); ++i) n *= std::uint64_t(ne[i]);
        return n;
    }
};

struct Sizes {
    std::int64_t n_layer = 1, n_embd = 0, n_head = 1, n_head_kv = 1, head_dim = 64, n_ff = 0, n_expert = 0, n_used = 0;
};

class Directory {
public:
    explicit Directory(const tinfer::ModelFile& file) : file_(file), arch_(text("general.architecture")) {
        sizes_.n_layer = std::max<std::int64_t>(number("block_count"), 1);
        const auto* down = find_role("ffn_down", -1);
        sizes_.n_embd = number("embedding_length");
        if (sizes_.n_embd <= 0 && down != nullptr) sizes_.n_embd = down->ne[1];
        sizes_.n_ff = down != nullptr ? down->ne[0] : number("feed_forward_length");
        if (sizes_.n_ff <= 0) sizes_.n_ff = 4 * sizes_.n_embd;
        if (down != nullptr && down->slice_bytes > 0) {
            sizes_.n_expert = number("expert_count");
            sizes_.n_used =
                std::clamp<std::int64_t>(number("expert_used_count"), 1, std::max<std::int64_t>(sizes_.n_expert, 1));
        }
        const std::int64_t heads = number("attention.head_count");
        sizes_.head_dim = number("attention.key_length");
        if (sizes_.head_dim <= 0) sizes_.head_dim = heads > 0 ? sizes_.n_embd / heads : 64;
        sizes_.head_dim = std::max<std::int64_t>(sizes_.head_dim / 2 * 2, 2);
        const auto rows_of = [&](std::string_view role, std::int64_t otherwise) {
            const auto* tensor = find_role(role, -1);
            return std::max<std::int64_t>(tensor != nullptr ? tensor->ne[1] / sizes_.head_dim : otherwise, 1);
        };
        sizes_.n_head = rows_of("attn_q", heads > 0 ? heads : sizes_.n_embd / sizes_.head_dim);
        sizes_.n_head_kv = std::min(rows_of("attn_k", number("attention.head_count_kv")), sizes_.n_head);
        while (sizes_.n_head % sizes_.n_head_kv != 0) --sizes_.n_head_kv;
    }

    [[nodiscard]] const Sizes& sizes() const noexcept { return sizes_; }

    /// The matrices of a layer of the sample; those that the file's layer lacks get the type of another one.
    [[nodiscard]] std::vector<SampleMatrix> layer(std::int64_t from, std::int64_t to, std::int64_t n_expert) const {
        const auto& s = sizes_;
        const std::int64_t n_q = s.n_head * s.head_dim, n_kv = s.n_head_kv * s.head_dim;
        std::vector<SampleMatrix> out;
        const auto add = [&](const std::string& role, std::int64_t k, std::int64_t n, bool is_ffn) {
            SampleMatrix matrix = like(find_role(role, from), from, k);
            const bool stacked = is_ffn && n_expert > 0;
            matrix.name = "blk." + std::to_string(to) + "." + role + (stacked ? "_exps" : "") + ".weight";
            matrix.ne = stacked ? std::vector{k, n, n_expert} : std::vector{k, n};
            out.push_back(std::move(matrix));
        };
        add("attn_q", s.n_embd, n_q, false);
        add("attn_k", s.n_embd, n_kv, false);
        add("attn_v", s.n_embd, n_kv, false);
        add("attn_output", n_q, s.n_embd, false);
        add("ffn_gate", s.n_embd, s.n_ff, true);
        add("ffn_up", s.n_embd, s.n_ff, true);
        add("ffn_down", s.n_ff, s.n_embd, true);
        return out;
    }

    /// The embedding, and the head if it is a separate matrix.
    [[nodiscard]] std::vector<SampleMatrix> ends() const {
        std::vector<SampleMatrix> out;
        for (const char* name : {"token_embd.weight", "output.weight"})
            if (const auto* tensor = file_.find(name); tensor != nullptr && tensor->ne[0] == sizes_.n_embd)
                out.push_back({name, tensor->type, {tensor->ne[0], tensor->ne[1]}, tensor->row_bytes});
        return out;
    }

private:
    [[nodiscard]] std::string text(const std::string& key) const { return file_.metadata_value(key).value_or(""); }
    [[nodiscard]] std::int64_t number(const std::string& key) const {
        const std::string value = text(arch_ + "." + key);
        std::int64_t out = 0;
        std::from_chars(value.data(), value.data() + value.size(), out);
        return out;
    }
    /// Layer −1: any layer.
    [[nodiscard]] const tinfer::TensorInfo* find_role(std::string_view role, std::int64_t layer) const {
        const tinfer::TensorInfo* stacked = nullptr;
        for (const auto& tensor : file_.tensors()) {
            if (tensor.n_dims < 2 || tensor.layer < 0 || (layer >= 0 && tensor.layer != layer)) continue;
            if (!std::string_view(tensor.name).ends_with(".weight")) continue;
            if (tensor.role == std::string(role) + "_exps" && stacked == nullptr) stacked = &tensor;
            if (tensor.role == role && number("expert_count") <= 0) return &tensor;
            if (tensor.role == role && !role.starts_with("ffn")) return &tensor;
        }
        return stacked;
    }
    /// The type of `best`, or of the layer's largest matrix whose block size divides k; else f16.
    [[nodiscard]] SampleMatrix like(const tinfer::TensorInfo* best, std::int64_t layer, std::int64_t k) const {
        const auto fits = [&](const tinfer::TensorInfo& tensor) {
            return tensor.ne[0] == k || (k % 256 == 0 && tensor.ne[0] % 256 == 0);
        };
        if (best == nullptr || !fits(*best)) {
            best = nullptr;
            for (const auto& tensor : file_.tensors())
                if (tensor.n_dims >= 2 && (tensor.layer == layer || (best == nullptr && tensor.layer >= 0)) &&
                    fits(tensor) && (best == nullptr || best->layer != layer || tensor.bytes > best->bytes))
                    best = &tensor;
        }
        SampleMatrix out;
        if (best == nullptr) {
            out.type = tinfer::DType::f16;
            out.row_bytes = 2 * std::uint64_t(k);
        } else {
            out.type = best->type;
            out.row_bytes = best->row_bytes * std::uint64_t(k) / std::uint64_t(best->ne[0]);
        }
        return out;
    }

    const tinfer::ModelFile& file_;
    std::string arch_;
    Sizes sizes_;
};

// ---- The file -------------------------------------------------------------------------------------------------------

/// Writes a GGUF file of metadata and matrices, which are zero unless given.
class SampleWriter {
public:
    void value(const std::string& key, std::uint32_t number) {
        put_text(keys_, key);
        put(keys_, std::uint32_t{4});
        put(keys_, number);
        ++n_keys_;
    }
    void value(const std::string& key, float number) {
        put_text(keys_, key);
        put(keys_, std::uint32_t{6});
        put(keys_, number);
        ++n_keys_;
    }
    void value(const std::string& key, const std::string& words) {
        put_text(keys_, key);
        put(keys_, std::uint32_t{8});
        put_text(keys_, words);
        ++n_keys_;
    }
    /// `first`: initial bytes.
    void matrix(const SampleMatrix& matrix, std::string first = {}) {
        put_text(tensors_, matrix.name);
        put(tensors_, std::uint32_t(matrix.ne.size()));
        for (const std::int64_t n : matrix.ne) put(tensors_, std::uint64_t(n));
        put(tensors_, std::uint32_t(matrix.type));
        put(tensors_, end_);
        if (!first.empty()) contents_.emplace_back(end_, std::move(first));
        end_ = (end_ + matrix.bytes() + 31) / 32 * 32;
        ++n_tensors_;
    }
    void write(const fs::path& path) const {
        std::string front = "GGUF";
        put(front, std::uint32_t{3});
        put(front, n_tensors_);
        put(front, n_keys_);
        front += keys_ + tensors_;
        front.resize((front.size() + 31) / 32 * 32);
        std::ofstream file(path, std::ios::binary | std::ios::trunc);
        file.write(front.data(), std::streamsize(front.size()));
        for (const auto& [at, first] : contents_) {
            file.seekp(std::streamoff(front.size() + at));
            file.write(first.data(), std::streamsize(first.size()));
        }
        file.close();
        std::error_code error;
        if (file) fs::resize_file(path, front.size() + end_, error);
        if (!file || error) refuse(path);
    }

private:
    static void put(std::string& to, auto number) {
        char bytes[sizeof(number)];
        std::memcpy(bytes, &number, sizeof(number));
        to.append(bytes, sizeof(number));
    }
    static void put_text(std::string& to, const std::string& words) {
        put(to, std::uint64_t{words.size()});
        to += words;
    }
    std::string keys_, tensors_;
    std::vector<std::pair<std::uint64_t, std::string>> contents_;
    std::uint64_t n_keys_ = 0, n_tensors_ = 0, end_ = 0;
};

std::string bytes_of(const std::vector<float>& floats) {
    return {reinterpret_cast<const char*>(floats.data()), floats.size() * sizeof(float)};
}
/// Pseudo-random numbers from −1 to 1, so that the router chooses different experts.
std::string sample_floats(std::int64_t n, std::uint32_t seed) {
    std::minstd_rand random(seed);
    std::vector<float> out(static_cast<std::size_t>(n));
    for (float& x : out) x = static_cast<float>(static_cast<std::int32_t>(random() % 20001) - 10000) / 10000;
    return bytes_of(out);
}
/// Rows of any type that differ between tokens. No byte is above 0x3B, so any float16 or float32 is below 1.
std::string sample_rows(std::uint64_t n_bytes) {
    std::minstd_rand random(1);
    std::string out(n_bytes, '\0');
    for (char& byte : out) byte = static_cast<char>((random() >> 8) & 0x3B);
    return out;
}

std::uint64_t total(const std::vector<SampleMatrix>& matrices) {
    std::uint64_t n = 0;
    for (const SampleMatrix& matrix : matrices) n += matrix.bytes();
    return n;
}

std::int64_t experts_of(const Directory& directory) {
    const Sizes& sizes = directory.sizes();
    std::int64_t n_expert = sizes.n_expert;
    while (n_expert > sizes.n_used && total(directory.layer(0, 0, n_expert)) > kMaxLayer) --n_expert;
    return n_expert;
}

/// Writes the sample to the folder for temporary files: zeros, except for what makes tokens differ.
fs::path write_sample(const tinfer::ModelFile& file, std::int64_t n_layer) {
    const Directory directory(file);
    const Sizes& sizes = directory.sizes();
    const std::int64_t n_expert = experts_of(directory);
    const std::vector<SampleMatrix> ends = directory.ends();
    if (ends.empty())
        throw tinfer::Error(tinfer::ErrorCode::missing_tensor,
                            file.paths().front().string() + ": no token_embd.weight");
    SampleWriter writer;
    writer.value("general.architecture", "llama");
    writer.value("tokenizer.ggml.model", "none");
    const auto number = [&](const std::string& key, std::int64_t n) { writer.value("llama." + key, std::uint32_t(n)); };
    number("block_count", n_layer);
    number("context_length", 1 << 20);
    number("embedding_length", sizes.n_embd);
    number("feed_forward_length", sizes.n_ff);
    number("attention.head_count", sizes.n_head);
    number("attention.head_count_kv", sizes.n_head_kv);
    number("attention.key_length", sizes.head_dim);
    number("attention.value_length", sizes.head_dim);
    number("rope.dimension_count", sizes.head_dim);
    number("vocab_size", ends.front().ne[1]);
    writer.value("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    if (n_expert > 0) {
        number("expert_count", n_expert);
        number("expert_used_count", sizes.n_used);
    }
    const auto norm = [&](const std::string& name) {
        writer.matrix({name, tinfer::DType::f32, {sizes.n_embd}, 4 * std::uint64_t(sizes.n_embd)},
                      bytes_of(std::vector<float>(std::size_t(sizes.n_embd), 1.0f)));
    };
    const std::int64_t n_rows = std::min(kTokens, ends.front().ne[1]);
    for (const SampleMatrix& matrix : ends)
        writer.matrix(matrix, &matrix == &ends.front() ? sample_rows(matrix.row_bytes * std::uint64_t(n_rows)) : "");
    norm("output_norm.weight");
    for (std::int64_t i = 0; i < n_layer; ++i) {
        const std::string block = "blk." + std::to_string(i) + ".";
        norm(block + "attn_norm.weight");
        norm(block + "ffn_norm.weight");
        if (n_expert > 0)
            writer.matrix({block + "ffn_gate_inp.weight",
                           tinfer::DType::f32,
                           {sizes.n_embd, n_expert},
                           4 * std::uint64_t(sizes.n_embd)},
                          sample_floats(sizes.n_embd * n_expert, std::uint32_t(i) + 2));
        // Layers of the file at even distances, because types vary between layers.
        for (const SampleMatrix& matrix : directory.layer((2 * i + 1) * sizes.n_layer / (2 * n_layer), i, n_expert))
            writer.matrix(matrix);
    }
    std::error_code missing;
    const fs::path folder = fs::temp_directory_path(missing);
    if (missing) refuse("the folder for temporary files (TMPDIR)");
    std::random_device device;
    const fs::path path = folder / ("tinfer-sample-" + std::to_string(device()) + ".gguf");
    try {
        writer.write(path);
    } catch (...) {
        std::error_code ignored;
        fs::remove(path, ignored);
        throw;
    }
    return path;
}

/// The file is read, not mapped, and then removed.
tinfer::Model load_sample(const tinfer::ModelFile& file, std::int64_t n_layer) {
    struct Temporary {
        fs::path path;
        ~Temporary() {
            std::error_code ignored;
            fs::remove(path, ignored);
        }
    } const temporary{write_sample(file, n_layer)};
    return tinfer::Model::load(temporary.path, {.use_mmap = false});
}

tinfer::ContextOptions of_sample(tinfer::ContextOptions options, int n_prompt) {
    options.n_ctx = std::max(n_prompt, int(kTokens)) + 64;
    options.n_batch = 0;
    return options;
}

double seconds_of(tinfer::Context& context, std::span<const tinfer::Token> tokens) {
    const auto begin = std::chrono::steady_clock::now();
    const auto status = context.decode(tokens);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (status == tinfer::DecodeStatus::cancelled) throw tinfer::Error(tinfer::ErrorCode::cancelled, "interrupted");
    if (status != tinfer::DecodeStatus::ok)
        throw tinfer::Error(tinfer::ErrorCode::no_room, "the sample of the model does not fit its cache");
    return seconds;
}

std::vector<tinfer::Token> sample_tokens(int n, std::size_t n_vocab) {
    std::vector<tinfer::Token> out;
    for (int i = 0; i < n; ++i)
        out.push_back(tinfer::Token{int((i * 37 + i / 64) % std::min<std::int64_t>(kTokens, std::int64_t(n_vocab)))});
    return out;
}

}  // namespace

LayerSizes layer_sizes(const tinfer::ModelFile& file) {
    const Directory directory(file);
    const std::int64_t n_layer = directory.sizes().n_layer;
    return {n_layer, std::max<std::uint64_t>(total(directory.layer(n_layer / 2, 0, experts_of(directory))), 1)};
}

SampleModel::SampleModel(const tinfer::ModelFile& file, std::int64_t n_layer, const tinfer::ContextOptions& options,
                         int n_prompt)
    : model_(load_sample(file, n_layer)), context_(model_, of_sample(options, n_prompt)) {}

double SampleModel::prompt_seconds(int n) {
    const auto tokens = sample_tokens(n, model_.vocab().size());
    context_.clear();
    return seconds_of(context_, tokens) / n;
}

double SampleModel::token_seconds(int n) {
    context_.clear();
    double sum = 0;
    for (const tinfer::Token token : sample_tokens(n, model_.vocab().size()))
        sum += seconds_of(context_, std::span(&token, 1));
    return sum / n;
}

}  // namespace tinfer::app
