// SPDX-License-Identifier: MIT
// The file of a receipt (docs/receipts.md): JSON whose last member is a SHA-256 of everything before it, so that no
// byte can change unnoticed.
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/receipt.hpp"
#include "tinfer/text.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kReceiptFormat = "tinfer receipt";
constexpr std::int64_t kReceiptVersion = 1;
constexpr std::string_view kSealKey = ",\n  \"sha256\": \"", kSealEnd = "\"\n}\n";
constexpr std::size_t kSealBytes = kSealKey.size() + 64 + kSealEnd.size();

std::string hex_of(std::uint64_t value) {
    std::array<std::uint8_t, 8> bytes{};
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(value >> (56 - 8 * i));
    return to_hex(bytes);
}

// ---- writing --------------------------------------------------------------------------------------------------------

void write_tokens(JsonWriter& json, std::string_view name, std::span<const Token> tokens) {
    json.line(2).key(name).begin_array();
    for (const Token token : tokens) json.value(static_cast<std::int32_t>(token));
    json.end_array();
}

void write_hashes(JsonWriter& json, std::string_view name, std::span<const NamedHash> hashes) {
    json.line(2).key(name).begin_array();
    for (const NamedHash& item : hashes)
        json.line(4).begin_array().value(item.name).value(hex_of(item.hash)).end_array();
    json.end_array();
}

void write_override(JsonWriter& json, const MetadataOverride& item) {
    json.begin_array().value(item.key);
    std::visit([&](const auto& value) { json.value(value); }, item.value);
    // 1 and 1.0 are written alike, but mean an integer and a float.
    constexpr std::array<std::string_view, 4> types{"bool", "int", "float", "str"};
    json.value(types[item.value.index()]).end_array();
}

void write_model(JsonWriter& json, const Receipt& r) {
    json.line(2).key("model").begin_object();
    json.key("files").begin_array();
    for (const auto& file : r.files) json.value(file);
    json.end_array();
    json.member("fingerprint", to_hex(r.fingerprint));
    if (r.full_fingerprint) json.member("full_fingerprint", to_hex(*r.full_fingerprint));
    json.member("architecture", r.architecture);
    json.member("n_vocab", r.n_vocab).key("overrides").begin_array();
    for (const MetadataOverride& item : r.overrides) write_override(json, item);
    json.end_array().end_object();
}

void write_options(JsonWriter& json, const ContextOptions& o) {
    json.line(2).key("options").begin_object();
    json.member("n_ctx", o.n_ctx).member("type_k", to_string(o.type_k)).member("type_v", to_string(o.type_v));
    if (o.kv_rotation != KvRotation::off) json.member("kv_rotation", to_string(o.kv_rotation));
    json.member("swa_full", o.swa_full).member("attention", to_string(o.attention));
    const auto given = [&](std::string_view name, const auto& value) {
        if (value) json.member(name, *value);
    };
    given("rope_freq_base", o.rope_freq_base);
    given("rope_freq_scale", o.rope_freq_scale);
    if (o.rope_scaling != RopeScaling::from_model) json.member("rope_scaling", to_string(o.rope_scaling));
    given("yarn_ext_factor", o.yarn_ext_factor);
    given("yarn_attn_factor", o.yarn_attn_factor);
    given("yarn_beta_fast", o.yarn_beta_fast);
    given("yarn_beta_slow", o.yarn_beta_slow);
    given("yarn_orig_ctx", o.yarn_orig_ctx);
    json.end_object();
}

void write_generation(JsonWriter& json, const Receipt& r) {
    json.line(2).key("made_with").begin_object().member("isa", r.isa).member("n_threads", r.n_threads).end_object();
    json.line(2).member("sampler", r.sampler).member("constrained", r.constrained);
    json.line(2).member("n_predict", r.n_predict).key("stops").begin_array();
    for (const auto& stop : r.stops) json.value(stop);
    json.end_array().member("stop", r.stop);
    write_tokens(json, "encoded", r.encoded);
    write_tokens(json, "prompt", r.prompt);
    write_tokens(json, "tokens", r.tokens);
    json.line(2).key("steps").begin_array();
    for (const std::uint64_t step : r.steps) json.value(hex_of(step));
    json.end_array();
    json.line(2).member("logits_sha256", to_hex(r.logits));
}

// ---- reading --------------------------------------------------------------------------------------------------------

class ReceiptReader {
public:
    ReceiptReader(JsonValue root, std::string_view name) : root_(root), name_(name) {}

    Receipt read() const {
        check_format();
        Receipt r;
        r.library = text(root_, "tinfer");
        read_model(member(root_, "model"), r);
        r.options = read_options(member(root_, "options"));
        const JsonValue made = member(root_, "made_with");
        r.isa = text(made, "isa");
        r.n_threads = integer<int>(made, "n_threads");
        r.sampler = text(root_, "sampler");
        r.constrained = truth(root_, "constrained");
        r.n_predict = integer<std::int64_t>(root_, "n_predict");
        r.stops = texts(root_, "stops");
        r.stop = stop_reason();
        r.encoded = tokens("encoded", r.n_vocab);
        r.prompt = tokens("prompt", r.n_vocab);
        r.tokens = tokens("tokens", r.n_vocab);
        for (const auto& [key, value] : array(root_, "steps").items()) r.steps.push_back(hash(value, "steps"));
        if (r.steps.size() != r.tokens.size())
            refuse(root_, cat(r.steps.size(), " hashes of steps for ", r.tokens.size(), " tokens"));
        bytes(member(root_, "logits_sha256"), "logits_sha256", r.logits);
        r.nodes = hashes("nodes");
        r.weights = hashes("weights");
        return r;
    }

private:
    /// The name of a StopReason, or empty where nobody filled it in.
    [[nodiscard]] std::string stop_reason() const {
        std::string name = text(root_, "stop"), known;
        for (const auto reason :
             {StopReason::eog, StopReason::limit, StopReason::string, StopReason::interrupt, StopReason::context}) {
            if (name == to_string(reason)) return name;
            known += cat(known.empty() ? "" : ", ", to_string(reason));
        }
        if (!name.empty()) refuse(member(root_, "stop"), cat("\"stop\" is '", escaped(name), "', known are ", known));
        return name;
    }
    [[noreturn]] void refuse(JsonValue at, std::string_view what) const {
        fail(ErrorCode::damaged, cat(name_, ": byte ", at.offset(), ": ", what));
    }
    [[nodiscard]] JsonValue member(JsonValue object, std::string_view key) const {
        if (const auto value = object.find(key)) return *value;
        refuse(object, cat("no \"", key, "\""));
    }
    [[nodiscard]] std::string string(JsonValue value, std::string_view key) const {
        if (!value.is(JsonKind::string)) refuse(value, cat("\"", key, "\" is no text"));
        return std::string(value.string());
    }
    [[nodiscard]] std::string text(JsonValue object, std::string_view key) const {
        return string(member(object, key), key);
    }
    [[nodiscard]] bool truth(JsonValue object, std::string_view key) const {
        const JsonValue value = member(object, key);
        if (!value.is(JsonKind::boolean)) refuse(value, cat("\"", key, "\" is neither true nor false"));
        return value.boolean();
    }
    [[nodiscard]] JsonValue array(JsonValue object, std::string_view key) const {
        const JsonValue value = member(object, key);
        if (!value.is(JsonKind::array)) refuse(value, cat("\"", key, "\" is no array"));
        return value;
    }
    template <class T>
    [[nodiscard]] T number(JsonValue value, std::string_view key, std::int64_t least = std::numeric_limits<T>::min(),
                           std::int64_t most = std::numeric_limits<T>::max()) const {
        const auto n = value.integer();
        if (!n || *n < least || *n > most)
            refuse(value, cat("\"", key, "\" is no whole number from ", least, " to ", most));
        return static_cast<T>(*n);
    }
    template <class T>
    [[nodiscard]] T integer(JsonValue object, std::string_view key) const {
        return number<T>(member(object, key), key);
    }
    [[nodiscard]] std::vector<std::string> texts(JsonValue object, std::string_view key) const {
        std::vector<std::string> result;
        for (const auto& [unused, value] : array(object, key).items()) result.push_back(string(value, key));
        return result;
    }
    [[nodiscard]] std::vector<Token> tokens(std::string_view key, int n_vocab) const {
        std::vector<Token> result;
        for (const auto& [unused, value] : array(root_, key).items())
            result.push_back(Token{number<std::int32_t>(value, key, 0, n_vocab - 1)});
        return result;
    }
    template <std::size_t N>
    void bytes(JsonValue value, std::string_view key, std::array<std::uint8_t, N>& out) const {
        const std::string hex = string(value, key);
        if (hex.size() != 2 * N) refuse(value, cat("\"", key, "\" has ", hex.size(), " digits, not ", 2 * N));
        for (std::size_t i = 0; i < N; ++i) {
            const char* begin = hex.data() + 2 * i;
            const auto [end, error] = std::from_chars(begin, begin + 2, out[i], 16);
            if (error != std::errc() || end != begin + 2) refuse(value, cat("\"", key, "\" is not hexadecimal"));
        }
    }
    [[nodiscard]] std::uint64_t hash(JsonValue value, std::string_view key) const {
        std::array<std::uint8_t, 8> digits{};
        bytes(value, key, digits);
        std::uint64_t result = 0;
        for (const std::uint8_t byte : digits) result = result << 8 | byte;
        return result;
    }
    [[nodiscard]] std::vector<NamedHash> hashes(std::string_view key) const {
        std::vector<NamedHash> result;
        for (const auto& [unused, item] : array(root_, key).items()) {
            if (!item.is(JsonKind::array) || item.size() != 2)
                refuse(item, cat("\"", key, "\" holds pairs of name and hash"));
            auto part = item.items().begin();
            const JsonValue name = (*part).value, value = (*++part).value;
            result.push_back({string(name, key), hash(value, key)});
        }
        return result;
    }

    void check_format() const {
        if (!root_.is(JsonKind::object) || text(root_, "format") != kReceiptFormat)
            refuse(root_, "no receipt of tinfer");
        const auto version = integer<std::int64_t>(root_, "version");
        if (version != kReceiptVersion)
            fail(ErrorCode::unsupported_version,
                 cat(name_, ": receipt of version ", version, ", this library reads version ", kReceiptVersion));
    }

    void read_model(JsonValue model, Receipt& r) const {
        r.files = texts(model, "files");
        bytes(member(model, "fingerprint"), "fingerprint", r.fingerprint);
        if (const auto full = model.find("full_fingerprint"))
            bytes(*full, "full_fingerprint", r.full_fingerprint.emplace());
        r.architecture = text(model, "architecture");
        r.n_vocab = number<int>(member(model, "n_vocab"), "n_vocab", 0);
        for (const auto& [unused, item] : array(model, "overrides").items()) r.overrides.push_back(read_override(item));
    }

    [[nodiscard]] MetadataOverride read_override(JsonValue item) const {
        if (!item.is(JsonKind::array) || item.size() != 3) refuse(item, "an override has key, value and type");
        auto part = item.items().begin();
        const JsonValue key = (*part).value, value = (*++part).value, type = (*++part).value;
        MetadataOverride result{string(key, "overrides"), false};
        const std::string kind = string(type, "overrides");
        if (kind == "bool" && value.is(JsonKind::boolean)) result.value = value.boolean();
        else if (kind == "int" && value.integer()) result.value = *value.integer();
        else if (kind == "float" && value.is(JsonKind::number)) result.value = value.number();
        else if (kind == "str" && value.is(JsonKind::string)) result.value = std::string(value.string());
        else refuse(item, "an override whose value is not of its type");
        return result;
    }

    template <class Enum, std::size_t N>
    [[nodiscard]] Enum one_of(JsonValue object, std::string_view key, const std::array<Enum, N>& values) const {
        const std::string name = text(object, key);
        for (const Enum value : values)
            if (to_string(value) == name) return value;
        refuse(member(object, key), cat("\"", key, "\" is '", escaped(name), "'"));
    }

    [[nodiscard]] std::optional<float> given(JsonValue object, std::string_view key) const {
        const auto value = object.find(key);
        if (!value) return std::nullopt;
        if (!value->is(JsonKind::number)) refuse(*value, cat("\"", key, "\" is no number"));
        const auto number = static_cast<float>(value->number());
        if (!std::isfinite(number)) refuse(*value, cat("\"", key, "\" is beyond what a float holds"));
        return number;
    }

    [[nodiscard]] ContextOptions read_options(JsonValue o) const {
        constexpr std::array kTypes{KvType::f32, KvType::f16, KvType::bf16, KvType::q8_0, KvType::q4_0};
        ContextOptions options;
        options.n_ctx = number<int>(member(o, "n_ctx"), "n_ctx", 1);
        options.type_k = one_of(o, "type_k", kTypes);
        options.type_v = one_of(o, "type_v", kTypes);
        // Receipts without it are of a time or of caches that knew no rotation.
        options.kv_rotation = o.find("kv_rotation")
                                  ? one_of(o, "kv_rotation", std::array{KvRotation::on, KvRotation::off})
                                  : KvRotation::off;
        options.swa_full = truth(o, "swa_full");
        options.attention = one_of(
            o, "attention", std::array{AttentionKind::from_model, AttentionKind::causal, AttentionKind::bidirectional});
        options.rope_freq_base = given(o, "rope_freq_base");
        options.rope_freq_scale = given(o, "rope_freq_scale");
        if (o.find("rope_scaling"))
            options.rope_scaling = one_of(o, "rope_scaling",
                                          std::array{RopeScaling::from_model, RopeScaling::none, RopeScaling::linear,
                                                     RopeScaling::yarn, RopeScaling::longrope});
        options.yarn_ext_factor = given(o, "yarn_ext_factor");
        options.yarn_attn_factor = given(o, "yarn_attn_factor");
        options.yarn_beta_fast = given(o, "yarn_beta_fast");
        options.yarn_beta_slow = given(o, "yarn_beta_slow");
        if (const auto value = o.find("yarn_orig_ctx")) options.yarn_orig_ctx = number<int>(*value, "yarn_orig_ctx");
        return options;
    }

    JsonValue root_;
    std::string_view name_;
};

std::string seal_of(std::string_view body) { return to_hex(sha256(std::as_bytes(std::span(body)))); }

}  // namespace

std::string Receipt::json() const {
    return reporting_memory("writing a receipt: an allocation failed", [&] {
        std::string out;
        JsonWriter json(out);
        json.begin_object().line(2).member("format", kReceiptFormat).member("version", kReceiptVersion);
        json.member("tinfer", library);
        write_model(json, *this);
        write_options(json, options);
        write_generation(json, *this);
        write_hashes(json, "nodes", nodes);
        write_hashes(json, "weights", weights);
        return cat(out, kSealKey, seal_of(out), kSealEnd);
    });
}

Receipt Receipt::parse(std::string_view json, std::string_view name) {
    return reporting_memory("reading a receipt: an allocation failed", [&] {
        const auto document =
            JsonDocument::parse(json, name, {.max_depth = 8, .refuse_duplicates = true, .code = ErrorCode::damaged});
        Receipt receipt = ReceiptReader(document.root(), name).read();
        const std::string_view body = json.substr(0, json.size() - std::min(json.size(), kSealBytes));
        if (json.substr(body.size()) != cat(kSealKey, seal_of(body), kSealEnd))
            fail(ErrorCode::damaged,
                 cat(name, ": the receipt was changed: its last member is not the SHA-256 of all before it"));
        return receipt;
    });
}

}  // namespace tinfer
