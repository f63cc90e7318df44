// SPDX-License-Identifier: MIT
// The options that several sub-commands share, and the program's way of reading and writing.
#include "common.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>

#if defined(_WIN32)
#  include <io.h>
#else
#  include <unistd.h>
#endif

namespace cli {

namespace {

volatile std::sig_atomic_t g_interrupts = 0;

extern "C" void count_interrupt(int) {
    if (g_interrupts > 0) std::_Exit(kInterrupted);   // asked twice: do not wait for anything
    g_interrupts = 1;
}

[[noreturn]] void refuse(const std::string& message) { throw tinfer::Error(tinfer::ErrorCode::bad_parameter, message); }

/// KEY=TYPE:VALUE with the types int, float, bool, str.
tinfer::MetadataOverride parse_override(const std::string& text) {
    const auto equals = text.find('=');
    const auto colon = text.find(':', equals == std::string::npos ? 0 : equals);
    if (equals == std::string::npos || colon == std::string::npos) refuse("--override '" + text + "': expected KEY=TYPE:VALUE");
    const std::string type = text.substr(equals + 1, colon - equals - 1), value = text.substr(colon + 1);
    tinfer::MetadataOverride result{text.substr(0, equals), value};
    const char* end = value.data() + value.size();
    if (type == "str") return result;
    if (type == "bool" && (value == "true" || value == "false")) {
        result.value = value == "true";
        return result;
    }
    if (std::int64_t number = 0; type == "int") {
        if (const auto [at, error] = std::from_chars(value.data(), end, number); error == std::errc() && at == end) {
            result.value = number;
            return result;
        }
    }
    if (double number = 0; type == "float") {
        if (const auto [at, error] = std::from_chars(value.data(), end, number); error == std::errc() && at == end) {
            result.value = number;
            return result;
        }
    }
    refuse("--override '" + text + "': type is int, float, bool or str, and the value must be one");
}

tinfer::KvType parse_kv_type(const std::string& name) {
    for (const auto type : {tinfer::KvType::f32, tinfer::KvType::f16, tinfer::KvType::bf16, tinfer::KvType::q8_0, tinfer::KvType::q4_0})
        if (tinfer::to_string(type) == name) return type;
    refuse("cache type '" + name + "': f32, f16, bf16, q8_0 or q4_0");
}

tinfer::Isa parse_isa(const std::string& name) {
    if (name == "auto") return tinfer::Isa::automatic;
    for (const auto isa : {tinfer::Isa::reference, tinfer::Isa::avx2, tinfer::Isa::avxvnni, tinfer::Isa::avx512, tinfer::Isa::avx512vnni,
                           tinfer::Isa::amx, tinfer::Isa::neon, tinfer::Isa::neon_dot})
        if (tinfer::to_string(isa) == name) return isa;
    refuse("--isa '" + name + "': auto, reference, avx2, avxvnni, avx512, avx512vnni, amx, neon or neon_dot");
}

}  // namespace

bool interrupted() noexcept { return g_interrupts != 0; }
void watch_interrupts() { std::signal(SIGINT, count_interrupt); }

// ---- Options --------------------------------------------------------------------------------------------------------

void ModelArgs::add_to(CLI::App& command, bool positional) {
    const std::string group = "Model";
    command.add_option(positional ? "-m,--model,model" : "-m,--model", files, "GGUF file; a further -m adds a shard of an explicit list")
        ->required()->allow_extra_args(false)->type_name("FILE")->group(group);
    command.add_option("--override", overrides, "metadata value instead of the file's; TYPE is int, float, bool or str")
        ->allow_extra_args(false)->type_name("KEY=TYPE:VALUE")->group(group);
    command.add_option("--pretokenizer", pretokenizer, "pre-tokenizer instead of the file's")->type_name("NAME")->group(group);
    command.add_flag("--no-mmap", no_mmap, "read the file instead of mapping it")->group(group);
    command.add_flag("--mlock", mlock, "lock the weights in memory")->group(group);
    command.add_flag("--populate", populate, "touch all of the mapping at load")->group(group);
    command.add_flag("--check-tensors", check_tensors, "scan every block for values that are not finite")->group(group);
    command.add_flag("--allow-unused-tensors", allow_unused_tensors, "accept tensors that the architecture does not use")->group(group);
    command.add_flag("--allow-unknown-keys", allow_unknown_keys, "accept keys that would change the computation")->group(group);
    command.add_option("--log-level", log_level, "messages of the library on stderr")
        ->check(CLI::IsMember({"none", "warning", "info", "debug"}))->capture_default_str()->group(group);
}

tinfer::LogSink ModelArgs::log() const {
    if (log_level == "none") return {};
    const auto least = log_level == "debug"  ? tinfer::LogLevel::debug
                       : log_level == "info" ? tinfer::LogLevel::info
                                             : tinfer::LogLevel::warning;
    return [least](tinfer::LogLevel level, std::string_view message) {
        if (level < least) return;
        const char* word = level == tinfer::LogLevel::warning ? "warning: " : "";
        note("tinfer: " + std::string(word) + std::string(message));
    };
}

tinfer::ModelOptions ModelArgs::options() const {
    tinfer::ModelOptions options;
    options.use_mmap = !no_mmap;
    options.mlock = mlock;
    options.populate = populate;
    options.check_tensors = check_tensors;
    options.allow_unused_tensors = allow_unused_tensors;
    options.allow_unknown_keys = allow_unknown_keys;
    options.pretokenizer_override = pretokenizer;
    options.log = log();
    options.progress = [](double) { return !interrupted(); };
    for (const auto& text : overrides) options.overrides.push_back(parse_override(text));
    return options;
}

tinfer::Model ModelArgs::load() const {
    if (files.size() == 1) return tinfer::Model::load(files[0], options());
    return tinfer::Model::load(std::vector<std::filesystem::path>(files.begin(), files.end()), options());
}

tinfer::ModelFile ModelArgs::open() const {
    if (files.size() == 1) return tinfer::ModelFile::open(files[0], options());
    return tinfer::ModelFile::open(std::vector<std::filesystem::path>(files.begin(), files.end()), options());
}

void ContextArgs::add_to(CLI::App& command) {
    const std::string group = "Context";
    command.add_option("-c,--ctx", n_ctx, "tokens the cache holds; 0 = as trained")->check(CLI::NonNegativeNumber)->type_name("N")->group(group);
    command.add_option("-b,--batch", n_batch, "most tokens of one decode; 0 = the cache's")->type_name("N")->group(group);
    command.add_option("-u,--ubatch", n_ubatch, "most tokens computed at once")->capture_default_str()->type_name("N")->group(group);
    command.add_option("--isa", isa, "kernel table: auto, reference, avx2, avxvnni, avx512, avx512vnni, amx, neon or neon_dot")->capture_default_str()->group(group);
    command.add_option("--kv-type-k", type_k, "cache type of keys: f32, f16, bf16, q8_0 or q4_0")->capture_default_str()->group(group);
    command.add_option("--kv-type-v", type_v, "cache type of values")->capture_default_str()->group(group);
    command.add_flag("--swa-full", swa_full, "layers with a window keep every cell")->group(group);
    command.add_flag("--no-fuse", no_fuse, "one step per node; the same bits")->group(group);
}

void ContextArgs::add_threads_to(CLI::App& command) {
    const std::string group = "Context";
    command.add_option("-t,--threads", n_threads, "threads for one token; 0 = one per core")->type_name("N")->group(group);
    command.add_option("--threads-batch", n_threads_batch, "threads for more; 0 = as --threads")->type_name("N")->group(group);
}

tinfer::ContextOptions ContextArgs::options(const ModelArgs& model_args, const tinfer::ModelInfo& info, int needed) const {
    tinfer::ContextOptions options;
    options.n_ctx = n_ctx;
    if (n_ctx < 0) {
        options.n_ctx = info.n_ctx_train > 0 ? std::min(info.n_ctx_train, 4096) : 4096;
        options.n_ctx = std::max(options.n_ctx, needed);
    }
    options.n_batch = n_batch;
    options.n_ubatch = n_ubatch;
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch;
    options.isa = parse_isa(isa);
    options.type_k = parse_kv_type(type_k);
    options.type_v = parse_kv_type(type_v);
    options.fuse = !no_fuse;
    options.swa_full = swa_full;
    options.log = model_args.log();
    options.cancel = [] { return interrupted(); };
    return options;
}

void TextArgs::add_to(CLI::App& command, bool required) {
    auto* group = command.add_option_group("Text");
    prompt_option = group->add_option("-p,--prompt", prompt, "the text")->type_name("TEXT");
    file_option = group->add_option("-f,--file", file, "the text is in this file, - is stdin")->type_name("FILE");
    group->require_option(required ? 1 : 0, 1);
}

std::string TextArgs::read_input() const { return read_file(file); }

void SamplerArgs::add_to(CLI::App& command) {
    const std::string group = "Sampler";
    command.add_option("--seed", options.seed, "of the random draw; the default takes one from the hardware")->type_name("N")->group(group);
    command.add_option("--temp", options.temp, "temperature; 0 = always the most probable token")->capture_default_str()->group(group);
    command.add_option("--top-k", options.top_k, "keep the k best; 0 = all")->capture_default_str()->group(group);
    command.add_option("--top-p", options.top_p, "keep the best that sum to p; 1 = all")->capture_default_str()->group(group);
    command.add_option("--min-p", options.min_p, "keep those with at least this share of the best; 0 = all")->capture_default_str()->group(group);
    command.add_option("--min-keep", options.min_keep, "never keep fewer")->group(group);
    command.add_option("--penalty-last-n", options.penalty_last_n, "tokens that penalties look at; 0 = off")->capture_default_str()->group(group);
    command.add_option("--penalty-repeat", options.penalty_repeat, "1 = off")->capture_default_str()->group(group);
    command.add_option("--penalty-freq", options.penalty_freq, "0 = off")->group(group);
    command.add_option("--penalty-present", options.penalty_present, "0 = off")->group(group);
    command.add_option("--logit-bias", logit_bias, "added to the logit of a token")->allow_extra_args(false)->type_name("ID=BIAS")->group(group);
    command.add_option("--order", options.order, "links of the chain: e penalties, k, p, m, t temperature")->capture_default_str()->group(group);
}

tinfer::SamplerOptions SamplerArgs::get() const {
    tinfer::SamplerOptions result = options;
    for (const auto& text : logit_bias) {
        const auto equals = text.find('=');
        std::int32_t id = -1;
        float bias = 0;
        const char* end = text.data() + text.size();
        if (equals == std::string::npos || std::from_chars(text.data(), text.data() + equals, id).ptr != text.data() + equals ||
            std::from_chars(text.data() + equals + 1, end, bias).ptr != end || equals + 1 == text.size())
            refuse("--logit-bias '" + text + "': expected ID=BIAS");
        result.logit_bias.emplace_back(tinfer::Token{id}, bias);
    }
    result.validate();
    return result;
}

void EncodeArgs::add_to(CLI::App& command) {
    command.add_flag("--no-add-special", no_add_special, "do not add the tokens that begin or end a text")->group("Text");
    command.add_flag("--parse-special", parse_special, "the text of control tokens becomes their ids")->group("Text");
    command.add_flag("--force-bos", force_bos, "exactly one BOS in front of the text, whatever the vocabulary adds")->group("Text");
    command.add_flag("--close-turn", close_turn, "EOT, or EOS where there is none, in front of everything: ends an interrupted turn")->group("Text");
}

void bind_environment(CLI::App& command) {
    for (CLI::Option* option : command.get_options()) {
        if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
        std::string name = "TINFER_" + option->get_lnames()[0];
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return c == '-' ? '_' : char(std::toupper(c)); });
        option->envname(name);
    }
    for (CLI::App* group : command.get_subcommands([](CLI::App*) { return true; })) bind_environment(*group);
}

// ---- Reading and writing --------------------------------------------------------------------------------------------

std::string read_file(const std::string& path) {
    std::ifstream file;
    if (path != "-") {
        file.open(path, std::ios::binary);
        if (!file) throw tinfer::Error(tinfer::ErrorCode::io_error, path + ": cannot be opened");
    }
    std::istream& in = path == "-" ? std::cin : file;
    std::string bytes(std::istreambuf_iterator<char>(in), {});
    if (in.bad() || (path != "-" && bytes.empty() && !file.eof()))
        throw tinfer::Error(tinfer::ErrorCode::io_error, path + ": cannot be read");
    return bytes;
}

void write_file(const std::string& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) throw tinfer::Error(tinfer::ErrorCode::io_error, path + ": cannot be written");
}

std::vector<tinfer::Token> parse_tokens(std::string_view text) {
    std::vector<tinfer::Token> tokens;
    const std::string_view separators = " \t\r\n,[]";
    for (auto at = text.find_first_not_of(separators); at != text.npos; at = text.find_first_not_of(separators, at)) {
        const auto stop = std::min(text.find_first_of(separators, at), text.size());
        const auto word = text.substr(at, stop - at);
        std::int32_t id = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
        if (error != std::errc() || end != word.data() + word.size())
            refuse("'" + std::string(word.substr(0, 32)) + "' is no token id");
        tokens.push_back(tinfer::Token{id});
        at = stop;
    }
    return tokens;
}

tinfer::Pooling parse_pooling(std::string_view name) {
    using tinfer::Pooling;
    for (const Pooling kind : {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank})
        if (tinfer::to_string(kind) == name) return kind;
    refuse("'" + std::string(name.substr(0, 32)) + "' is no kind of pooling");
}

void print(std::string_view bytes) {
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size() || std::fflush(stdout) != 0)
        throw tinfer::Error(tinfer::ErrorCode::io_error, "stdout cannot be written");
}

void print_line(const json& document) { print(document.dump(-1, ' ', false, json::error_handler_t::replace) + "\n"); }

void note(std::string_view line) {
    std::fwrite(line.data(), 1, line.size(), stderr);
    std::fputc('\n', stderr);
}

bool stderr_is_terminal() noexcept {
#if defined(_WIN32)
    return _isatty(2) != 0;
#else
    return isatty(2) != 0;
#endif
}

std::string hex(std::span<const std::uint8_t> bytes) {
    std::string text;
    for (const auto byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

std::string hash_floats(std::span<const float> values) { return hex(tinfer::sha256(std::as_bytes(values))); }

std::string fixed(double value, int digits) {
    if (!std::isfinite(value)) return "-";
    std::array<char, 400> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits).ptr};
}

std::string size_text(std::uint64_t bytes) {
    static constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB"};
    std::size_t unit = 0;
    double value = static_cast<double>(bytes);
    for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
    return fixed(value, unit == 0 ? 0 : 1) + kUnits[unit];
}

}  // namespace cli
