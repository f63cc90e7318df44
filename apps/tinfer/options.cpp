// SPDX-License-Identifier: MIT
// Shared options: names, bounds, and conversion to the library's options.
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "common.hpp"
#include "expert_profile.hpp"
#include "model_names.hpp"
#include "trace/trace.hpp"

namespace tinfer::app {

namespace {

constexpr int kMaxContext = 1 << 28, kMaxThreads = 512;  // limits of ContextOptions

[[noreturn]] void refuse(const std::string& message) { throw tinfer::Error(tinfer::ErrorCode::bad_parameter, message); }

/// The whole text as a number.
template <class T>
std::optional<T> parse(std::string_view text) {
    T value{};
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool is_whole(std::string_view text) {
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    return !text.empty() && text.find_first_not_of("0123456789") == text.npos;
}

/// KEY=TYPE:VALUE with the types int, float, bool, str.
tinfer::MetadataOverride parse_override(const std::string& text) {
    const auto equals = text.find('=');
    const auto colon = text.find(':', equals == std::string::npos ? 0 : equals);
    if (equals == std::string::npos || colon == std::string::npos)
        refuse("--override '" + text + "': expected KEY=TYPE:VALUE");
    const std::string type = text.substr(equals + 1, colon - equals - 1), value = text.substr(colon + 1);
    tinfer::MetadataOverride result{text.substr(0, equals), value};
    if (type == "str") return result;
    if (type == "bool" && (value == "true" || value == "false")) return result.value = value == "true", result;
    if (const auto n = parse<std::int64_t>(value); type == "int" && n) return result.value = *n, result;
    if (const auto x = parse<double>(value); type == "float" && x) return result.value = *x, result;
    refuse("--override '" + text + "': type is int, float, bool or str, and the value must be one");
}

tinfer::KvType parse_kv_type(const std::string& name) {
    for (const auto type :
         {tinfer::KvType::f32, tinfer::KvType::f16, tinfer::KvType::bf16, tinfer::KvType::q8_0, tinfer::KvType::q4_0})
        if (tinfer::to_string(type) == name) return type;
    throw UsageError("'" + name + "' is no type of a cache: f32, f16, bf16, q8_0 or q4_0");
}

tinfer::KvRotation parse_kv_rotation(const std::string& name) {
    for (const auto rotation : {tinfer::KvRotation::automatic, tinfer::KvRotation::off, tinfer::KvRotation::on})
        if (tinfer::to_string(rotation) == name) return rotation;
    throw UsageError("--kv-rotation: '" + name + "' is none of auto, off, on");
}

/// All kernel tables except `auto`, including those of other machines.
std::vector<tinfer::Isa> all_isas() {
    std::vector<tinfer::Isa> isas;
    for (auto isa = tinfer::Isa::reference; tinfer::to_string(isa) != "unknown"; isa = tinfer::Isa(int(isa) + 1))
        isas.push_back(isa);
    return isas;
}

std::vector<std::string> isa_list() {
    std::vector<std::string> names{"auto"};
    for (const auto isa : all_isas()) names.emplace_back(tinfer::to_string(isa));
    return names;
}

bool is_of_a_gpu(const std::string& name) {
    constexpr std::string_view kDevices[]{"cuda", "rocm",   "hip", "metal", "vulkan",
                                          "sycl", "opencl", "rpc", "gpu",   "cann"};
    return std::ranges::any_of(kDevices, [&](std::string_view device) {
        return name == device || name.starts_with(std::string(device) + ":");
    });
}

/// The name was already validated.
tinfer::Isa parse_isa(const std::string& name) {
    if (is_of_a_gpu(name))
        throw tinfer::Error(tinfer::ErrorCode::not_available,
                            "--isa '" + name + "': not available: tinfer computes on the CPU alone");
    for (const auto isa : all_isas())
        if (tinfer::to_string(isa) == name) return isa;
    return tinfer::Isa::automatic;
}

template <class T>
std::string check_bounds(const std::string& text, T value, T least, T most, const std::string& least_text,
                         const std::string& most_text) {
    if (value < least) return "must be at least " + least_text + ", not " + text;
    if (value > most) return "must be at most " + most_text + ", not " + text;
    return {};
}

CLI::Validator above_0() {
    return {[](std::string& text) {
                const auto value = parse<double>(text);
                if (!value || !std::isfinite(*value)) return "'" + text + "' is no number";
                return *value > 0 ? std::string() : "must be above 0, not " + text;
            },
            ""};
}

}  // namespace

// ---- Values ---------------------------------------------------------------------------------------------------------

CLI::Validator whole(std::int64_t least, std::int64_t most) {
    return {[=](std::string& text) {
                const auto value = parse<std::int64_t>(text);
                if (!value && is_whole(text)) return text + " has too many digits";
                if (!value) return "'" + text + "' is no whole number";
                return check_bounds(text, *value, least, most, std::to_string(least), std::to_string(most));
            },
            ""};
}

CLI::Validator number(double least, double most) {
    return {[=](std::string& text) {
                const auto value = parse<double>(text);
                if (!value || !std::isfinite(*value)) return "'" + text + "' is no number";
                return check_bounds(text, *value, least, most, plain_number(least), plain_number(most));
            },
            ""};
}

CLI::Validator one_of(std::vector<std::string> words) {
    return {[words = std::move(words)](std::string& text) {
                if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
                return "'" + text + "' is none of " + CLI::detail::join(words, ", ");
            },
            ""};
}

CLI::Validator not_empty() {
    return {[](std::string& text) { return text.empty() ? std::string("the text is empty") : std::string(); }, ""};
}

std::vector<tinfer::Token> parse_tokens(std::string_view text) {
    std::vector<tinfer::Token> tokens;
    const std::string_view separators = " \t\r\n,[]";
    for (auto at = text.find_first_not_of(separators); at != text.npos; at = text.find_first_not_of(separators, at)) {
        const auto stop = std::min(text.find_first_of(separators, at), text.size());
        const auto word = text.substr(at, stop - at);
        const auto id = parse<std::int32_t>(word);
        if (!id) refuse("'" + std::string(word.substr(0, 32)) + "' is no token id");
        tokens.push_back(tinfer::Token{*id});
        at = stop;
    }
    return tokens;
}

tinfer::Pooling parse_pooling(std::string_view name) {
    using tinfer::Pooling;
    for (const Pooling kind : {Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank})
        if (tinfer::to_string(kind) == name) return kind;
    refuse("'" + std::string(name.substr(0, 32)) + "' is no kind of pooling: mean, cls, last or rank");
}

// ---- Model ----------------------------------------------------------------------------------------------------------

void ModelArgs::add_to(CLI::App& command) {
    const std::string group = "Model", more = rare(group);
    takes_model(command.add_option("-m,--model,model", files,
                                   "GGUF file or hf:OWNER/REPO:QUANT, -m or not; a further -m adds a shard"),
                files)
        ->allow_extra_args(false)
        ->type_name("FILE")
        ->group(group);
    command
        .add_option("--override", overrides, "metadata value instead of the file's; TYPE is int, float, bool or str")
        ->allow_extra_args(false)
        ->type_name("KEY=TYPE:VALUE")
        ->group(more);
    command.add_option("--pretokenizer", pretokenizer, "pre-tokenizer instead of the file's")
        ->type_name("NAME")
        ->group(more);
    if (takes_ram)
        command.add_option("--ram", ram, "memory for weights: of a larger model the rest is read when it is needed")
            ->type_name("SIZE")
            ->group(more);
    if (takes_ram)
        command
            .add_option("--expert-profile", expert_profile,
                        "with --ram, begin with the experts that were chosen most often (run --write-expert-profile)")
            ->type_name("FILE")
            ->group(more);
    command.add_flag("--no-mmap", no_mmap, "read the file instead of mapping it")->group(more);
    command.add_flag("--mlock", mlock, "lock the weights in memory")->group(more);
    command.add_flag("--populate", populate, "touch all of the mapping at load")->group(more);
    command.add_flag("--check-tensors", check_tensors, "scan every block for values that are not finite")->group(more);
    command
        .add_flag("--allow-unused-tensors", allow_unused_tensors, "accept tensors that the architecture does not use")
        ->group(more);
    command.add_flag("--allow-unknown-keys", allow_unknown_keys, "accept keys that would change the computation")
        ->group(more);
    command
        .add_option(
            "--cache-folder", cache_folder,
            "where fingerprints of model files are kept; auto: tinfer in $XDG_CACHE_HOME or ~/.cache; off: nowhere")
        ->type_name("FOLDER")
        ->group(more);
    command.add_option("--log-level", log_level, "messages of the library: none, warning, info or debug")
        ->check(one_of({"none", "warning", "info", "debug"}))
        ->type_name("LEVEL")
        ->group(more);
}

tinfer::LogSink ModelArgs::log() const {
    if (log_level == "none" || is_quiet()) return {};
    const auto least = log_level == "debug"  ? tinfer::LogLevel::debug
                       : log_level == "info" ? tinfer::LogLevel::info
                                             : tinfer::LogLevel::warning;
    return [least](tinfer::LogLevel level, std::string_view message) {
        if (level < least) return;
        const bool warns = level == tinfer::LogLevel::warning;
        note("tinfer: " + std::string(warns ? "warning: " : "") + std::string(message),
             warns ? Look::warning : Look::plain);
    };
}

tinfer::ModelOptions ModelArgs::options() const {
    tinfer::ModelOptions options;
    options.use_mmap = !no_mmap;
    options.mlock = mlock;
    if (!ram.empty()) options.memory_limit = parse_size(ram, "--ram");
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

void ModelArgs::require() const {
    if (files.empty()) throw UsageError("a model is needed: MODEL.gguf, or --model MODEL.gguf");
}

std::vector<std::filesystem::path> ModelArgs::paths() const {
    namespace fs = std::filesystem;
    require();
    std::error_code ignored;
    for (const auto& file : files) {
        const auto status = fs::status(file, ignored);
        const auto refuse_kind = [&](const char* what) {
            throw tinfer::Error(tinfer::ErrorCode::io_error, file + ": is " + what);
        };
        if (fs::is_directory(status)) refuse_kind("a directory, a GGUF file is needed");
        if (fs::is_fifo(status)) refuse_kind("a pipe: a model is read in any order, so it must be a file");
        if (fs::is_socket(status) || fs::is_character_file(status))
            refuse_kind("a device or socket, a GGUF file is needed");
    }
    return {files.begin(), files.end()};
}

// With a single path the other shards are found beside it.
tinfer::Model ModelArgs::load() const {
    const auto list = paths();
    const auto profile =
        expert_profile.empty() ? std::vector<tinfer::ExpertPicks>() : read_expert_profile(expert_profile);
    auto model = list.size() == 1 ? tinfer::Model::load(list[0], options()) : tinfer::Model::load(list, options());
    tinfer::warm_experts(model, profile);
    return model;
}

tinfer::ModelFile ModelArgs::open() const {
    const auto list = paths();
    return list.size() == 1 ? tinfer::ModelFile::open(list[0], options()) : tinfer::ModelFile::open(list, options());
}

tinfer::Vocab ModelArgs::load_vocab() const {
    const auto list = paths();
    return list.size() == 1 ? tinfer::Vocab::load(list[0], options()) : tinfer::Vocab::load(list, options());
}

// ---- Context --------------------------------------------------------------------------------------------------------

void ContextArgs::add_to(CLI::App& command, std::string_view default_ctx) {
    const std::string group = "Context", more = rare(group);
    command.add_option("-c,--ctx", n_ctx, "tokens the context holds; 0 = as trained; whole pages of 64")
        ->default_str(std::string(default_ctx))
        ->check(whole(0, kMaxContext))
        ->type_name("N")
        ->group(group);
    command.add_option("-b,--batch", n_batch, "most tokens of one decode; 0 = the context's")
        ->check(whole(0, kMaxContext))
        ->type_name("N")
        ->group(more);
    command.add_option("-u,--ubatch", n_ubatch, "most tokens computed at once; 0 = those of a decode")
        ->check(whole(0, kMaxContext))
        ->type_name("N")
        ->group(more);
    command.add_option("--isa", isa, "kernels: " + CLI::detail::join(isa_list(), ", "))
        ->check([](const std::string& name) { return is_of_a_gpu(name) ? std::string() : one_of(isa_list())(name); })
        ->type_name("NAME")
        ->group(more);
    const auto is_kv_type = one_of({"f32", "f16", "bf16", "q8_0", "q4_0"});
    command.add_option("--kv-type-k", type_k, "cache type of keys: f32, f16, bf16, q8_0 or q4_0")
        ->check(is_kv_type)
        ->type_name("TYPE")
        ->group(more);
    command.add_option("--kv-type-v", type_v, "cache type of values")
        ->check(is_kv_type)
        ->type_name("TYPE")
        ->group(more);
    command.add_option("--kv-rotation", kv_rotation, "rotate heads before a q8_0 or q4_0 cache: auto, off or on")
        ->check(one_of({"auto", "off", "on"}))
        ->type_name("WHEN")
        ->group(more);
    command.add_flag("--swa-full", swa_full, "layers with a window keep every slot")->group(more);
    command.add_flag("--no-fuse", no_fuse, "one step per node; the same bits")->group(more);
}

void ContextArgs::add_threads_to(CLI::App& command) {
    command.add_option("-t,--threads", n_threads, "threads for one token; 0 = one per core")
        ->check(whole(0, kMaxThreads))
        ->type_name("N")
        ->group("Context");
    command.add_option("--threads-batch", n_threads_batch, "threads for more tokens; 0 = as --threads")
        ->check(whole(0, kMaxThreads))
        ->type_name("N")
        ->group(rare("Context"));
}

tinfer::ContextOptions ContextArgs::options(const ModelArgs& model_args, const tinfer::ModelInfo& info,
                                            int needed) const {
    tinfer::ContextOptions options;
    options.n_ctx = n_ctx;
    if (n_ctx < 0) {
        options.n_ctx = info.n_ctx_train > 0 ? std::min(info.n_ctx_train, 4096) : 4096;
        options.n_ctx = std::max(options.n_ctx, needed);
    }
    constexpr int kPage = 64;
    if (n_ctx > 0 && n_ctx % kPage != 0 && n_ctx < (1 << 28))
        note("note: --ctx " + std::to_string(n_ctx) + " becomes " + std::to_string((n_ctx / kPage + 1) * kPage) +
                 ": the context holds whole pages of " + std::to_string(kPage) + " tokens",
             Look::dim);
    options.n_batch = n_batch;
    options.n_ubatch = n_ubatch;
    options.n_threads = n_threads;
    options.n_threads_batch = n_threads_batch;
    options.isa = parse_isa(isa);
    options.type_k = parse_kv_type(type_k);
    options.type_v = parse_kv_type(type_v);
    options.kv_rotation = parse_kv_rotation(kv_rotation);
    options.fuse = !no_fuse;
    options.swa_full = swa_full;
    options.log = model_args.log();
    options.cancel = [] { return interrupted(); };
    return options;
}

// ---- Text -----------------------------------------------------------------------------------------------------------

void TextArgs::add_to(CLI::App& command) {
    prompt_option = command.add_option("-p,--prompt", prompt, "the text")->type_name("TEXT")->group("Text");
    file_option =
        command.add_option("-f,--file", file, "the text is in this file; - is stdin")->type_name("FILE")->group("Text");
}

void TextArgs::require() const {
    const auto n = prompt_option->count() + file_option->count();
    if (n == 0) throw UsageError("a text is needed: --prompt TEXT or --file FILE");
    if (n > 1) throw UsageError("--prompt and --file are both given: the text is one of them");
}

std::string TextArgs::read() const {
    require();
    return file_option->count() > 0 ? read_text(file, "--file") : prompt;
}

void EncodeArgs::add_to(CLI::App& command) {
    const std::string more = rare("Text");
    command.add_flag("--no-add-special", no_add_special, "do not add the tokens that begin or end a text")->group(more);
    command.add_flag("--parse-special", parse_special, "the text of control tokens becomes their ids")->group(more);
    command.add_flag("--force-bos", force_bos, "exactly one BOS in front of the text, whatever the vocabulary adds")
        ->group(more);
    command
        .add_flag("--close-turn", close_turn,
                  "EOT, or EOS where there is none, in front of everything: ends an interrupted turn")
        ->group(more);
}

// ---- Sampler --------------------------------------------------------------------------------------------------------

void SamplerArgs::add_to(CLI::App& command) {
    const std::string group = "Sampler", more = rare(group);
    command.add_option("--seed", seed, "of the random draw; -1 = another one each time")
        ->check(whole(-1, 0xFFFFFFFF))
        ->type_name("N")
        ->group(group);
    for (const auto& field : tinfer::sampler_fields()) {
        std::string name = "--" + std::string(field.name);
        std::ranges::replace(name, '_', '-');
        const double least = std::max(field.bounds.least, double(std::numeric_limits<int>::min()));
        const double most = field.bounds.most;
        const std::string help(field.help);
        const std::string& where = field.is_common ? group : more;
        if (const auto* member = std::get_if<int tinfer::SamplerOptions::*>(&field.member))
            command.add_option(name, options.*(*member), help)
                ->check(std::isinf(most) ? whole(std::int64_t(least)) : whole(std::int64_t(least), std::int64_t(most)))
                ->type_name("N")
                ->group(where);
        else
            command.add_option(name, options.*std::get<float tinfer::SamplerOptions::*>(field.member), help)
                ->check(field.excludes_least ? above_0() : number(field.bounds.least, most))
                ->type_name("X")
                ->group(where);
    }
    command.add_option("--logit-bias", logit_bias, "added to the logit of a token; repeatable")
        ->allow_extra_args(false)
        ->type_name("ID=BIAS")
        ->group(more);
    command
        .add_option("--dry-breaker", dry_breakers, "text that ends a repetition; repeatable, replaces the usual ones")
        ->allow_extra_args(false)
        ->type_name("TEXT")
        ->group(more);
    command
        .add_option("--order", options.order,
                    "letters of the chain: " + tinfer::sampler_letters() +
                        " (always last); or names with ';' between them")
        ->type_name("LETTERS")
        ->group(more);
    command
        .add_option("--samplers", samplers, "the whole chain as text: \"top_k(40) | top_p(0.95) | temperature(0.8)\"")
        ->type_name("CHAIN")
        ->group(more);
}

tinfer::SamplerOptions SamplerArgs::get() const {
    tinfer::SamplerOptions result = options;
    if (!dry_breakers.empty()) {
        auto& breakers = result.dry_breakers.emplace();
        for (const auto& text : dry_breakers) breakers.push_back(unescape(text, "--dry-breaker"));
    }
    result.seed = seed < 0 ? tinfer::kRandomSeed : static_cast<std::uint32_t>(seed);
    for (const auto& text : logit_bias) {
        const auto equals = std::min(text.find('='), text.size());
        const auto id = parse<std::int32_t>(std::string_view(text).substr(0, equals));
        const auto bias = parse<float>(std::string_view(text).substr(std::min(equals + 1, text.size())));
        if (!id || !bias) refuse("--logit-bias '" + text + "': expected ID=BIAS");
        result.logit_bias.emplace_back(tinfer::Token{*id}, *bias);
    }
    try {
        if (!samplers.empty()) result = tinfer::parse_samplers(samplers, result);
    } catch (const tinfer::Error& error) {
        throw tinfer::Error(error.code(), "--" + std::string(error.what()));  // "--samplers: no sampler is named …"
    }
    result.validate();
    return result;
}

}  // namespace tinfer::app
