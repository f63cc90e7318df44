// SPDX-License-Identifier: MIT
// What the sub-commands share: the options for model, context, text and sampler, reading and writing, interruption. A
// sub-command is a function that adds itself to the program and returns what to do when it is chosen.
#pragma once

#include <tinfer/tinfer.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace cli {

using json = nlohmann::ordered_json;

/// Runs the chosen sub-command and gives the exit code.
using Action = std::function<int()>;

Action add_run(CLI::App& app);
Action add_tokenize(CLI::App& app);
Action add_detokenize(CLI::App& app);
Action add_logits(CLI::App& app);
Action add_embed(CLI::App& app);
Action add_perplexity(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_graph(CLI::App& app);

inline constexpr int kInterrupted = 130;   ///< exit code after SIGINT

/// True once the user asked to stop; long work polls it.
[[nodiscard]] bool interrupted() noexcept;
void watch_interrupts();

// ---- Options --------------------------------------------------------------------------------------------------------

/// -m and everything that says how a file is loaded.
struct ModelArgs {
    std::vector<std::string> files;
    std::vector<std::string> overrides;
    std::string pretokenizer;
    std::string log_level = "warning";
    bool no_mmap = false, mlock = false, populate = false, check_tensors = false;
    bool allow_unused_tensors = false, allow_unknown_keys = false;

    void add_to(CLI::App& command, bool positional = false);
    [[nodiscard]] tinfer::LogSink log() const;
    [[nodiscard]] tinfer::ModelOptions options() const;
    [[nodiscard]] tinfer::Model load() const;
    [[nodiscard]] tinfer::ModelFile open() const;
};

/// -c, -b, -u, -t and the rest of a context.
struct ContextArgs {
    int n_ctx = -1;   ///< -1: not given
    int n_batch = 0, n_ubatch = 512, n_threads = 0, n_threads_batch = 0;
    std::string isa = "auto", type_k = "f16", type_v = "f16";
    bool no_fuse = false, swa_full = false;

    void add_to(CLI::App& command);
    void add_threads_to(CLI::App& command);
    /// Without -c: room for 4096 tokens, less if the model was trained on less, more if `needed` is more.
    [[nodiscard]] tinfer::ContextOptions options(const ModelArgs& model_args, const tinfer::ModelInfo& info, int needed) const;
};

/// -p or -f.
struct TextArgs {
    std::string prompt, file;
    CLI::Option* prompt_option = nullptr;
    CLI::Option* file_option = nullptr;

    void add_to(CLI::App& command, bool required);
    [[nodiscard]] bool given() const { return prompt_option->count() + file_option->count() > 0; }
    [[nodiscard]] std::string read() const { return file_option->count() > 0 ? read_input() : prompt; }

private:
    [[nodiscard]] std::string read_input() const;
};

/// The sampler's fields under their names with dashes.
struct SamplerArgs {
    tinfer::SamplerOptions options;
    std::vector<std::string> logit_bias;

    void add_to(CLI::App& command);
    [[nodiscard]] tinfer::SamplerOptions get() const;
};

/// How text becomes tokens.
struct EncodeArgs {
    bool no_add_special = false, parse_special = false, force_bos = false, close_turn = false;

    void add_to(CLI::App& command);
    [[nodiscard]] tinfer::EncodeOptions get() const {
        return {.add_special = !no_add_special, .parse_special = parse_special, .force_bos = force_bos, .close_turn = close_turn};
    }
};

/// Lets every option of the command be read from the environment as TINFER_<OPTION>.
void bind_environment(CLI::App& command);

// ---- Reading and writing --------------------------------------------------------------------------------------------

/// Bytes of a file, `-` for stdin. Throws tinfer::Error(io_error).
[[nodiscard]] std::string read_file(const std::string& path);
void write_file(const std::string& path, std::string_view bytes);

/// "1 2 3", "1,2,3" or "[1, 2, 3]". Throws bad_parameter naming what is no token id.
[[nodiscard]] std::vector<tinfer::Token> parse_tokens(std::string_view text);

/// "mean" and its like. Throws bad_parameter.
[[nodiscard]] tinfer::Pooling parse_pooling(std::string_view name);

/// To stdout, at once.
void print(std::string_view bytes);
/// One JSON document on one line. Text that is not UTF-8 is shown with U+FFFD.
void print_line(const json& document);
/// To stderr.
void note(std::string_view line);
[[nodiscard]] bool stderr_is_terminal() noexcept;

[[nodiscard]] std::string hex(std::span<const std::uint8_t> bytes);
[[nodiscard]] std::string hash_floats(std::span<const float> values);
/// "%.*f" without locale surprises.
[[nodiscard]] std::string fixed(double value, int digits);
/// "98.4 MiB"
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace cli
