// SPDX-License-Identifier: MIT
// Chains as text. One row per link: its names, its letter in an order, and its values, which are read and printed
// alike.
#include "sampling/chain_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <type_traits>
#include <variant>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "tinfer/sampling.hpp"

namespace tinfer {

namespace sampling {
namespace {

struct Value {
    std::string_view name;
    std::variant<int SamplerOptions::*, float SamplerOptions::*, bool SamplerOptions::*> field;
};
struct LinkRow {
    char letter;  ///< in an order; 0: has no place there
    std::string_view name, other_name;
    std::size_t n_values;
    std::array<Value, 4> values;
};

using O = SamplerOptions;
constexpr LinkRow kRows[] = {
    {'e',
     "penalties",
     "",
     4,
     {{{"last_n", &O::penalty_last_n},
       {"repeat", &O::penalty_repeat},
       {"frequency", &O::penalty_freq},
       {"presence", &O::penalty_present}}}},
    {'d',
     "dry",
     "",
     4,
     {{{"multiplier", &O::dry_multiplier},
       {"base", &O::dry_base},
       {"allowed_length", &O::dry_allowed_length},
       {"last_n", &O::dry_penalty_last_n}}}},
    {'s', "top_n_sigma", "", 1, {{{"n", &O::top_n_sigma}}}},
    {'k', "top_k", "", 1, {{{"k", &O::top_k}}}},
    {'y', "typical_p", "typ_p", 2, {{{"p", &O::typical_p}, {"min_keep", &O::min_keep}}}},
    {'p', "top_p", "", 2, {{{"p", &O::top_p}, {"min_keep", &O::min_keep}}}},
    {'m', "min_p", "", 2, {{{"p", &O::min_p}, {"min_keep", &O::min_keep}}}},
    {'x',
     "xtc",
     "",
     3,
     {{{"probability", &O::xtc_probability}, {"threshold", &O::xtc_threshold}, {"min_keep", &O::min_keep}}}},
    {'t',
     "temperature",
     "temp",
     3,
     {{{"t", &O::temp}, {"range", &O::dynatemp_range}, {"exponent", &O::dynatemp_exponent}}}},
    {'i', "infill", "", 0, {}},
    {'a',
     "adaptive_p",
     "",
     3,
     {{{"target", &O::adaptive_target}, {"decay", &O::adaptive_decay}, {"use_current", &O::adaptive_use_current}}}},
    {0, "mirostat", "", 2, {{{"tau", &O::mirostat_tau}, {"eta", &O::mirostat_eta}}}},
    {0, "mirostat_v2", "", 2, {{{"tau", &O::mirostat_tau}, {"eta", &O::mirostat_eta}}}},
    {0, "greedy", "", 0, {}},
    {0, "dist", "", 0, {}},
    {0, "logit_bias", "", 0, {}},
};

/// The row of a name, in which '-' is as good as '_'; null where there is none.
const LinkRow* find_row(std::string_view name) {
    std::string plain(name);
    std::ranges::replace(plain, '-', '_');
    for (const LinkRow& row : kRows)
        if (plain == row.name || (plain == row.other_name && !plain.empty())) return &row;
    return nullptr;
}
const LinkRow* find_row(char letter) {
    const auto row = std::ranges::find(kRows, letter, &LinkRow::letter);
    return letter == 0 || row == std::end(kRows) ? nullptr : row;
}

// ---- reading --------------------------------------------------------------------------------------------------------

class ChainReader {
public:
    ChainReader(std::string_view text, const SamplerOptions& base) : text_(text), out_(base) {
        out_.order.clear();
        out_.adaptive_target = -1.0f;
        out_.mirostat = 0;
    }

    SamplerOptions read() {
        do link();
        while (take('|') || take(';'));
        if (skip() != text_.size()) refuse("expected '|' between links");
        if (out_.mirostat != 0) {
            if (out_.order.find_first_not_of('t') != std::string::npos)
                refuse("mirostat takes temperature and logit_bias beside it, no other link");
            if (out_.order.empty()) out_.temp = 1.0f;
        }
        out_.validate();
        return std::move(out_);
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        fail(ErrorCode::bad_parameter,
             cat("samplers: ", what, " at character ", at_ + 1, " of '", escaped(text_), "'"));
    }
    std::size_t skip() noexcept {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
        return at_;
    }
    bool take(char c) noexcept {
        if (skip() == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void need(char c) {
        if (!take(c)) refuse(cat("expected '", c, "'"));
    }
    std::string_view word() {
        const std::size_t begin = skip();
        const auto belongs = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
        };
        while (at_ < text_.size() && belongs(text_[at_])) ++at_;
        return text_.substr(begin, at_ - begin);
    }
    template <class T>
    T number() {
        T value{};
        const std::string_view rest = text_.substr(skip());
        std::from_chars_result read{};
        if constexpr (std::is_floating_point_v<T>) read = read_number(rest, value);
        else read = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        const auto [end, error] = read;
        if (error != std::errc()) refuse("expected a number");
        at_ = static_cast<std::size_t>(end - text_.data());
        return value;
    }
    bool boolean() {
        const std::string_view name = word();
        if (name != "true" && name != "false") refuse("expected true or false");
        return name == "true";
    }
    std::string in_quotes() {
        need('"');
        std::string out;
        for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
            if (text_[at_] != '\\') {
                out += text_[at_];
                continue;
            }
            if (++at_ == text_.size()) break;
            switch (text_[at_]) {
                case 'n': out += '\n'; break;
                case 't': out += '\t'; break;
                case 'r': out += '\r'; break;
                case '\\':
                case '"': out += text_[at_]; break;
                default: refuse("unknown escape");
            }
        }
        need('"');
        return out;
    }

    void link() {
        const std::size_t begin = skip();
        const std::string_view name = word();
        const LinkRow* row = find_row(name);
        if (row == nullptr) {
            at_ = begin;
            refuse(cat("no sampler is named '", escaped(name), "'"));
        }
        if (row->letter != 0 && row->letter != 'a') out_.order += row->letter;
        if (row->name == "greedy") out_.temp = 0.0f;
        if (row->name == "mirostat") out_.mirostat = 1;
        if (row->name == "mirostat_v2") out_.mirostat = 2;
        if (!take('(')) return;
        if (row->name == "logit_bias") out_.logit_bias.clear();
        for (std::size_t place = 0; !take(')'); ++place) {
            if (place > 0) need(',');
            if (row->name == "logit_bias") bias();
            else if (row->name == "dist") out_.seed = number<std::uint32_t>();
            else value(*row, place);
        }
    }

    void bias() {
        const auto id = number<std::int32_t>();
        if (!take('=')) need(':');
        out_.logit_bias.emplace_back(Token{id}, number<float>());
    }

    void value(const LinkRow& row, std::size_t place) {
        const std::size_t begin = skip();
        const std::string_view name = word();
        const bool is_named = !name.empty() && (take(':') || take('='));
        if (is_named && row.letter == 'd' && name == "breakers") {
            auto& breakers = out_.dry_breakers.emplace();
            while (skip() < text_.size() && text_[at_] == '"') breakers.push_back(in_quotes());
            return;
        }
        if (!is_named) at_ = begin;
        const auto values = std::span(row.values).first(row.n_values);
        const auto found = is_named ? std::ranges::find(values, name, &Value::name)
                                    : values.begin() + static_cast<std::ptrdiff_t>(std::min(place, values.size()));
        if (found == values.end()) {
            at_ = begin;
            refuse(is_named ? cat(row.name, " has no value '", escaped(name), "'")
                            : cat("too many values of ", row.name));
        }
        if (const auto* field = std::get_if<int SamplerOptions::*>(&found->field)) out_.*(*field) = number<int>();
        else if (const auto* real = std::get_if<float SamplerOptions::*>(&found->field))
            out_.*(*real) = number<float>();
        else out_.*std::get<bool SamplerOptions::*>(found->field) = boolean();
    }

    std::string_view text_;
    std::size_t at_ = 0;
    SamplerOptions out_;
};

// ---- printing -------------------------------------------------------------------------------------------------------

std::string in_quotes(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '\n') out += "\\n";
        else if (c == '\t') out += "\\t";
        else if (c == '\r') out += "\\r";
        else {
            if (c == '"' || c == '\\') out += '\\';
            out += c;
        }
    }
    return out + '"';
}

std::string text_of(const LinkRow& row, const SamplerOptions& options) {
    std::string out(row.name);
    for (std::size_t i = 0; i < row.n_values; ++i) {
        out += i == 0 ? "(" : ", ";
        if (const auto* field = std::get_if<int SamplerOptions::*>(&row.values[i].field))
            text::append(out, options.*(*field));
        else if (const auto* real = std::get_if<float SamplerOptions::*>(&row.values[i].field))
            text::append(out, options.*(*real));
        else out += options.*std::get<bool SamplerOptions::*>(row.values[i].field) ? "true" : "false";
    }
    if (row.letter == 'd' && options.dry_breakers) {
        out += ", breakers:";
        for (const std::string& breaker : *options.dry_breakers) out += ' ' + in_quotes(breaker);
    }
    return row.n_values == 0 ? out : out + ')';
}

}  // namespace

std::string letters_of(std::string_view order) {
    const bool is_letters = order.find(';') == std::string_view::npos && find_row(order) == nullptr;
    std::string letters;
    const auto refuse = [&](std::string_view name) {
        fail(ErrorCode::bad_parameter, cat("order: no sampler has the ", is_letters ? "letter" : "name", " '",
                                           escaped(name), "' (", sampler_letters(), ")"));
    };
    if (is_letters) {
        for (const char& letter : order) {
            if (find_row(letter) == nullptr) refuse({&letter, 1});
            letters += letter;
        }
        return letters;
    }
    while (!order.empty()) {
        const std::string_view name = order.substr(0, order.find(';'));
        order.remove_prefix(std::min(name.size() + 1, order.size()));
        const LinkRow* row = find_row(name);
        if (row == nullptr || row->letter == 0) refuse(name);
        letters += row->letter;
    }
    return letters;
}

}  // namespace sampling

std::string sampler_letters() {
    std::string out;
    for (const sampling::LinkRow& row : sampling::kRows)
        if (row.letter != 0) out += cat(out.empty() ? "" : ", ", row.letter, ' ', row.name);
    return out;
}

SamplerOptions parse_samplers(std::string_view text, const SamplerOptions& base) {
    return sampling::ChainReader(text, base).read();
}

std::string describe(const SamplerOptions& options) {
    options.validate();
    std::string out;
    const auto add = [&](std::string link) { out += (out.empty() ? "" : " | ") + std::move(link); };
    if (!options.logit_bias.empty()) {
        std::string list;
        for (const auto& [token, bias] : options.logit_bias)
            list += cat(list.empty() ? "" : ", ", static_cast<std::int32_t>(token), ":", bias);
        add("logit_bias(" + list + ")");
    }
    const bool is_mirostat = options.mirostat != 0 && options.temp > 0.0f;
    const std::string letters = is_mirostat ? "t" : sampling::letters_of(options.order);
    for (const char letter : letters)
        if (letter != 'a') add(sampling::text_of(*sampling::find_row(letter), options));
    if (is_mirostat)
        add(sampling::text_of(*sampling::find_row(options.mirostat == 1 ? "mirostat" : "mirostat_v2"), options));
    else if (options.adaptive_target >= 0.0f) add(sampling::text_of(*sampling::find_row('a'), options));
    if (options.temp <= 0.0f && letters.find('t') == std::string::npos) add("greedy");
    if (options.seed != kRandomSeed) add(cat("dist(", options.seed, ")"));
    return out.empty() ? "dist" : out;
}

}  // namespace tinfer
