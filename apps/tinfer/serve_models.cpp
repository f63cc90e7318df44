// SPDX-License-Identifier: MIT
// The models of a server that has several: where they come from, what differs between them, and what each takes.
#ifdef TINFER_SERVER

#    include "doctor_facts.hpp"
#    include "fingerprinting.hpp"
#    include "model_names.hpp"
#    include "serve_args.hpp"
#    include "server/model_cards.hpp"
#    include "trace/trace.hpp"

#    include <algorithm>
#    include <charconv>
#    include <map>
#    include <set>

namespace tinfer::app {

namespace {

namespace fs = std::filesystem;

/// One model as the command line and a table say it.
struct Named {
    std::string name;            ///< empty: that of --model, under its own name
    std::string source;          ///< a path, or a name such as hf:OWNER/REPO:QUANT
    Json table = Json::array();  ///< {"key", "values"} for each key of its table
};

/// Keys of a table that are no options of `tinfer serve`.
struct TableKeys {
    std::vector<std::string> aliases;
    std::string load = "request";
    bool pin = false;
    double keep_s = -1;
};

bool is_first_shard(const std::string& stem, std::string& base) {
    // NAME-00001-of-00003
    if (stem.size() < 15 || stem.compare(stem.size() - 9, 4, "-of-") != 0) return true;
    if (stem.compare(stem.size() - 15, 6, "-00001") != 0) return false;
    base = stem.substr(0, stem.size() - 15);
    return true;
}

std::vector<Named> models_in(const std::string& folder) {
    std::error_code error;
    std::vector<Named> found;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
        std::string name = entry.path().stem().string();
        if (entry.path().extension() != ".gguf" || name.find("mmproj") != name.npos || !entry.is_regular_file(error))
            continue;
        if (is_first_shard(entry.path().stem().string(), name)) found.push_back({name, entry.path().string()});
    }
    if (error) throw UsageError("--model-dir " + folder + ": " + error.message());
    if (found.empty()) throw UsageError("--model-dir " + folder + ": no *.gguf is in it");
    std::ranges::sort(found, {}, &Named::name);
    return found;
}

std::vector<Named> named_models(const ServeArgs& args) {
    std::vector<Named> all;
    if (!args.model.files.empty()) all.push_back({});
    for (const auto& text : args.models) {
        const auto equals = text.find('=');
        if (equals == 0 || equals == text.npos || equals + 1 == text.size())
            throw UsageError("--models '" + text + "': expected NAME=FILE or NAME=hf:…");
        all.push_back({text.substr(0, equals), text.substr(equals + 1)});
    }
    if (!args.model_folder.empty())
        for (auto& found : models_in(args.model_folder)) all.push_back(std::move(found));
    if (args.cached)
        for (auto& [name, path] : cached_names()) all.push_back({std::move(name), std::move(path)});
    for (const auto& text : args.tables) {
        Json key = Json::parse(text, "--model-tables");
        const std::string name = key["model"].get<std::string>();
        auto at = std::ranges::find(all, name, &Named::name);
        if (at == all.end()) at = all.insert(all.end(), Named{name, name, Json::array()});
        at->table.push_back(std::move(key));
    }
    std::set<std::string> names;
    for (const Named& one : all)
        if (!names.insert(one.name).second) throw UsageError("two models have the name '" + one.name + "'");
    return all;
}

double seconds_in(const std::string& text, const std::string& where) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        throw UsageError(where + ": '" + text + "' is no number");
    return value;
}

/// Puts a table's values in place of those of the command line.
TableKeys apply_table(ServeArgs& args, Named& model) {
    TableKeys keys;
    CLI::App table;
    table.name("table");
    args.model.add_to(table);
    args.add_model_options(table);
    args.add_engine_options(table);
    args.context.add_to(table);
    args.context.add_threads_to(table);
    args.sampler.add_to(table);
    const std::string place = "[model." + model.name + "] ";
    constexpr std::string_view kOfServer[]{"cache-folder", "log-level"};
    std::vector<std::string> given;
    for (const auto& item : model.table) {
        const std::string key = item.find("key")->get<std::string>();
        std::vector<std::string> values;
        for (const auto& one : *item.find("values")) values.push_back(one.get<std::string>());
        const auto one = [&] {
            if (values.size() != 1) throw UsageError(place + key + ": one value is expected");
            return values.front();
        };
        if (key == "model") model.source = one();
        else if (key == "alias") keys.aliases = values;
        else if (key == "load") keys.load = one();
        else if (key == "pin") keys.pin = one() == "true";
        else if (key == "keep") keys.keep_s = seconds_in(one(), place + key);
        else if (table.get_option_no_throw("--" + key) == nullptr || std::ranges::count(kOfServer, key) > 0)
            throw UsageError(place + key + ": is no key of a model");
        else
            for (const auto& value : values) given.push_back("--" + key + "=" + value);
    }
    if (keys.load != "start" && keys.load != "request")
        throw UsageError(place + "load: '" + keys.load + "' is neither start nor request");
    args.model.files.clear();
    std::ranges::reverse(given);  // as CLI11 expects it
    try {
        table.parse(given);
    } catch (const CLI::ParseError& error) {
        throw UsageError(place + error.what());
    }
    return keys;
}

int header_number(const tinfer::ModelFile& file, const std::string& key) {
    const auto text = file.metadata_value(key);
    int value = 0;
    if (text) std::from_chars(text->data(), text->data() + text->size(), value);
    return value;
}

/// Of what engine_options() reads.
tinfer::ModelInfo info_of(const tinfer::ModelFile& file) {
    using tinfer::Pooling;
    tinfer::ModelInfo info;
    const auto arch = file.metadata_value("general.architecture").value_or("");
    info.n_ctx_train = header_number(file, arch + ".context_length");
    constexpr Pooling kKinds[]{Pooling::none, Pooling::mean, Pooling::cls, Pooling::last, Pooling::rank};
    const int kind = header_number(file, arch + ".pooling_type");
    info.pooling = kind >= 0 && kind < 5 ? kKinds[kind] : Pooling::none;
    return info;
}

/// The context as an engine makes it of its options.
tinfer::ContextOptions context_of(const tinfer::EngineOptions& made) {
    auto context = made.context;
    context.log = {};
    if (context.pooling != tinfer::Pooling::none) {
        context.n_batch = context.n_outputs = 0;
        return context;
    }
    context.n_batch = made.max_batch_tokens;
    context.n_outputs = std::min(context.n_seq_max + made.n_score_rows, context.n_batch);
    context.n_seq_max += made.n_kept;
    return context;
}

std::uint64_t file_bytes(const std::string& path) {
    std::error_code none;
    const auto size = fs::file_size(path, none);
    return none ? 0 : size;
}

/// What the vocabulary and the tables of a loaded file take: a few times what they take in the file.
std::uint64_t vocab_bytes(const tinfer::ModelFile& file) {
    constexpr std::uint64_t kTimes = 8;
    std::uint64_t first = ~std::uint64_t{0};
    for (const auto& tensor : file.tensors())
        if (tensor.file_index == 0) first = std::min(first, tensor.file_offset);
    return first == ~std::uint64_t{0} ? 0 : kTimes * first;
}

/// Of what one model takes, all that does not depend on its being loaded.
std::uint64_t bytes_beside(const ServeArgs& args, const tinfer::ModelFile& file, std::size_t max_tokens) {
    return vocab_bytes(file) + server::request_bytes(max_tokens, args.n_parallel, args.max_queue) +
           server::grammar_bytes(args.n_parallel) +
           (args.has_store() ? static_cast<std::uint64_t>(args.store_memory) : 0);
}

/// Of --routed-experts, as an engine keeps them: whole pages of the cache, and one more for each sequence.
std::uint64_t routed_bytes(const tinfer::ModelFile& file, const tinfer::ContextOptions& context) {
    constexpr std::uint64_t kPage = 64, kIdBytes = 2;
    const auto arch = file.metadata_value("general.architecture").value_or("");
    const auto n_used = static_cast<std::uint64_t>(std::max(header_number(file, arch + ".expert_used_count"), 0));
    const std::uint64_t n_tokens = static_cast<std::uint64_t>(context.n_ctx) + kPage;
    return (n_tokens + kPage * static_cast<std::uint64_t>(context.n_seq_max)) * n_used * kIdBytes *
           static_cast<std::uint64_t>(server::moe_layers(file));
}

std::uint64_t planned_bytes(const ServeArgs& args) {
    const auto file = args.model.open();
    const auto made = args.engine_options(info_of(file));
    auto options = args.model.options();
    options.log = {};
    auto context = context_of(made);
    context.every_row = args.routed_experts;
    auto sum = tinfer::plan(args.model.paths().front(), options, context).total();
    if (args.routed_experts) sum += routed_bytes(file, context);
    for (const auto& lora : args.adapters.loras) sum += file_bytes(lora.substr(lora.find('=') + 1));
    if (!args.draft_file.empty()) sum += 2 * file_bytes(args.draft_file);
    return sum + bytes_beside(args, file, static_cast<std::size_t>(made.context.n_ctx));
}

std::uint64_t loaded_bytes(const ServeArgs& args, const tinfer::Engine& engine) {
    const Json parts = memory_of(engine, args);
    std::uint64_t sum = bytes_beside(args, engine.model().file(), engine.max_tokens());
    for (const char* name :
         {"weights_mapped", "weights_copied", "weights_paged", "cache", "compute", "adapters", "draft"})
        sum += parts[name].get<std::uint64_t>();
    return sum;
}

server::LoadedModel load(const ServeArgs& given, const std::string& name) {
    ServeArgs args = given;
    server::LoadedModel loaded;
    loaded.engine = args.make_engine();
    loaded.beside = std::make_shared<Fingerprinting>(loaded.engine->model().file(), args.model.fingerprint_folder());
    loaded.bytes = loaded_bytes(args, *loaded.engine);
    note("loaded " + name + ": " + size_text(loaded.bytes) + " at most");
    return loaded;
}

server::ModelSource source_of(const ServeArgs& given, Named model) {
    const auto args = std::make_shared<ServeArgs>(given);
    const auto files = given.model.files;
    if (!model.name.empty()) {  // what the command line says of one model is of that of --model
        args->adapters = {};
        args->draft_file.clear();
        args->store_folder.clear();
    }
    TableKeys keys;
    if (!model.table.empty()) keys = apply_table(*args, model);
    server::ModelSource source;
    source.is_default = model.name.empty();
    if (source.is_default) args->model.files = files;
    else args->model.files = {resolved_path(model.source)}, args->options.alias = model.name;
    source.id = args->options.alias;
    for (const auto& path : args->model.paths()) {
        std::error_code none;
        if (!fs::exists(path, none))
            throw tinfer::Error(tinfer::ErrorCode::io_error, path.string() + ": there is no such file");
        source.files.push_back(path);
    }
    if (source.id.empty()) {
        const std::string name = args->model.open().metadata_value("general.name").value_or("");
        source.id = server::default_id(name.empty() ? source.files.front().stem().string() : name);
        if (!name.empty() && name != source.id) keys.aliases.push_back(name);
    }
    source.aliases = keys.aliases;
    std::error_code none;
    for (const auto& lora : args->adapters.loras)
        if (const auto equals = lora.find('='); equals != lora.npos && !fs::is_regular_file(lora, none) &&
                                                fs::is_regular_file(lora.substr(equals + 1), none))
            source.adapters.push_back(lora.substr(0, equals));
    source.at_start = keys.load == "start";
    source.pin = keys.pin;
    source.keep_s = keys.keep_s;
    args->resolve();
    source.options = std::make_shared<server::ServeOptions>(args->options);
    source.bytes = [args] { return planned_bytes(*args); };
    source.n_ctx = [args] {
        return static_cast<std::size_t>(args->engine_options(info_of(args->model.open())).context.n_ctx);
    };
    source.open = [args] { return args->model.open(); };
    source.vocab = [args] { return args->model.load_vocab(); };
    source.load = [args, name = source.id] { return load(*args, name); };
    source.plain_name = plain_hub_name;
    return source;
}

}  // namespace

std::vector<server::ModelSource> model_sources(const ServeArgs& args) {
    std::vector<server::ModelSource> sources;
    for (auto& model : named_models(args)) sources.push_back(source_of(args, std::move(model)));
    return sources;
}

std::optional<server::Pulling> pulling(const ServeArgs& args) {
    if (!args.allow_pull) return std::nullopt;
    require_downloads("--allow-pull");
    server::Pulling how;
    how.plain_name = wanted_hub_name;
    how.fetch = [all = std::make_shared<const ServeArgs>(args)](const std::string& name, const auto& report,
                                                                const auto& stops) {
        const auto tell = [&](const FetchStep& step) {
            report({(step.hash.size() == 64 ? "sha256:" : "sha1:") + std::string(step.hash), step.size, step.completed,
                    step.is_checked});
        };
        note("pulling " + name + " for a client");
        const CachedName model = fetched_model(name, tell, stops);
        note("pulled " + model.name);
        return source_of(*all, Named{model.name, model.path});
    };
    return how;
}

std::uint64_t memory_for_models(const ServeArgs& args) {
    const std::uint64_t own = own_memory() + server::connection_bytes(args.options) + server::body_bytes(args.options) +
                              static_cast<std::uint64_t>(args.options.answer_memory);
    const std::uint64_t all = args.memory.empty() ? memory_limit("/") / 5 * 4 : parse_size(args.memory, "--memory");
    if (all <= own)
        throw UsageError("--memory " + size_text(all) + ": the server without a model takes " + size_text(own));
    return all - own;
}

}  // namespace tinfer::app

#endif
