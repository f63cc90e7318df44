// SPDX-License-Identifier: MIT
// Option groups shared by sub-commands: structs that add themselves to a sub-command and convert to the library's
// options.
#pragma once

#include <tinfer/tinfer.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace tinfer::app {

/// Wrong usage detected after parsing: exit code 2.
class UsageError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// ---- Values ---------------------------------------------------------------------------------------------------------

/// A whole number from `least` to `most`, with readable error messages.
[[nodiscard]] CLI::Validator whole(std::int64_t least = 0,
                                   std::int64_t most = std::numeric_limits<std::int32_t>::max());
/// Any finite number from `least` to `most`.
[[nodiscard]] CLI::Validator number(double least = -std::numeric_limits<double>::infinity(),
                                    double most = std::numeric_limits<double>::infinity());
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);
[[nodiscard]] CLI::Validator not_empty();

/// Parses "1 2 3", "1,2,3" or "[1, 2, 3]". Throws bad_parameter naming the invalid token id.
[[nodiscard]] std::vector<tinfer::Token> parse_tokens(std::string_view text);
/// Parses "mean" etc. Throws bad_parameter.
[[nodiscard]] tinfer::Pooling parse_pooling(std::string_view name);
/// Replaces \n, \t, \r, \\, \xHH and \uHHHH. Throws UsageError naming `option` for other escapes.
[[nodiscard]] std::string unescape(std::string_view text, std::string_view option);

// ---- Options --------------------------------------------------------------------------------------------------------

/// The model, with or without -m, and the options of loading.
struct ModelArgs {
    std::vector<std::string> files;
    std::vector<std::string> overrides;
    std::string pretokenizer;
    std::string log_level = "warning";
    std::string cache_folder = "auto";
    std::string ram;        ///< a size; empty: no limit
    bool takes_ram = true;  ///< --ram is this; false: the command has one of its own
    bool no_mmap = false, mlock = false, populate = false, check_tensors = false;
    bool allow_unused_tensors = false, allow_unknown_keys = false;

    void add_to(CLI::App& command);
    [[nodiscard]] tinfer::LogSink log() const;
    [[nodiscard]] tinfer::ModelOptions options() const;
    [[nodiscard]] tinfer::Model load() const;
    [[nodiscard]] tinfer::ModelFile open() const;
    [[nodiscard]] tinfer::Vocab load_vocab() const;
    /// Throws UsageError if no file is named.
    void require() const;
    [[nodiscard]] std::vector<std::filesystem::path> paths() const;
    /// Where fingerprints of files are kept; empty: nowhere.
    [[nodiscard]] std::filesystem::path fingerprint_folder() const;
    /// Computes the fingerprint of every byte of the files, unless it is kept: for what is refused where it differs.
    void know_all_of(const tinfer::ModelFile& file) const;
};

/// Help text of -c for commands whose context grows with the number of tokens.
inline constexpr std::string_view kDefaultContextOrMore = "what is trained, 4096 at most, or what is needed";

/// -c, -b, -u, -t and other options of a context.
struct ContextArgs {
    int n_ctx = -1;  ///< -1: not given
    int n_batch = 0, n_ubatch = 512, n_threads = 0, n_threads_batch = 0;
    std::string isa = "auto", type_k = "f16", type_v = "f16", kv_rotation = "auto";
    bool no_fuse = false, swa_full = false;

    void add_to(CLI::App& command, std::string_view default_ctx = "what is trained, 4096 at most");
    void add_threads_to(CLI::App& command);
    /// Without -c: room for 4096 tokens, less if the model was trained on less, more if `needed` is more.
    [[nodiscard]] tinfer::ContextOptions options(const ModelArgs& model_args, const tinfer::ModelInfo& info,
                                                 int needed) const;
};

/// -p or -f.
struct TextArgs {
    std::string prompt, file;
    CLI::Option* prompt_option = nullptr;
    CLI::Option* file_option = nullptr;

    void add_to(CLI::App& command);
    [[nodiscard]] bool given() const { return prompt_option->count() + file_option->count() > 0; }
    /// Throws UsageError unless exactly one is given.
    void require() const;
    [[nodiscard]] std::string read() const;
};

/// The sampler's fields under their names with dashes.
struct SamplerArgs {
    tinfer::SamplerOptions options;
    std::int64_t seed = -1;
    std::vector<std::string> logit_bias, dry_breakers;
    std::string samplers;

    void add_to(CLI::App& command);
    [[nodiscard]] tinfer::SamplerOptions get() const;
};

/// Options of tokenization.
struct EncodeArgs {
    bool no_add_special = false, parse_special = false, force_bos = false, close_turn = false;

    void add_to(CLI::App& command);
    [[nodiscard]] tinfer::EncodeOptions get() const {
        return {.add_special = !no_add_special,
                .parse_special = parse_special,
                .force_bos = force_bos,
                .close_turn = close_turn};
    }
};

}  // namespace tinfer::app
