// SPDX-License-Identifier: MIT
// What a schema costs a generation, and what tokens that it forces gain. The model writes under each schema, as it
// likes to, and without one; and the tokens of a given text go through it one by one and with the forced ones in one
// decode, by turns. The corpus is calls of tools, as JSON with one space behind each colon and comma.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "decoding.hpp"
#include "support.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_constrained --model FILE [--tokens 160] [--rounds 3] [--threads 1] [--smoke] [--json]\n"
    "Tokens per second of calls of tools under their schemas, without them, and with forced tokens in one decode.\n";

struct Call {
    std::string_view name, parameters, arguments;
};

/// Tools as people declare them, each with a call.
constexpr Call kCalls[] = {
    {"get_current_weather",
     R"({"type": "object", "properties": {"location": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
         "required": ["location", "unit"], "additionalProperties": false})",
     R"({"location": "San Francisco, CA", "unit": "celsius"})"},
    {"create_calendar_event",
     R"({"type": "object", "properties": {"title": {"type": "string"}, "start_time": {"type": "string"},
         "duration_minutes": {"type": "integer"}, "attendees": {"type": "array", "items": {"type": "string"}}},
         "required": ["title", "start_time", "duration_minutes", "attendees"], "additionalProperties": false})",
     R"({"title": "Review of the budget", "start_time": "2026-03-09T14:00", "duration_minutes": 45, )"
     R"("attendees": ["ann@example.org", "bob@example.org"]})"},
    {"search_products",
     R"({"type": "object", "properties": {"query": {"type": "string"}, "max_price": {"type": "number"}, "in_stock_only":
         {"type": "boolean"}, "sort_by": {"enum": ["price_ascending", "price_descending", "relevance"]}},
         "required": ["query", "max_price", "in_stock_only", "sort_by"], "additionalProperties": false})",
     R"({"query": "running shoes", "max_price": 120, "in_stock_only": true, "sort_by": "price_ascending"})"},
    {"convert_currency",
     R"({"type": "object", "properties": {"amount": {"type": "number"}, "from_currency": {"type": "string"},
         "to_currency": {"type": "string"}}, "required": ["amount", "from_currency", "to_currency"],
         "additionalProperties": false})",
     R"({"amount": 250, "from_currency": "EUR", "to_currency": "JPY"})"},
    {"send_email",
     R"({"type": "object", "properties": {"recipient": {"type": "string"}, "subject": {"type": "string"}, "body":
         {"type": "string"}}, "required": ["recipient", "subject", "body"], "additionalProperties": false})",
     R"({"recipient": "carol@example.org", "subject": "Tomorrow", "body": )"
     R"("Dear Carol, the meeting begins an hour later than planned. Best wishes, Dan"})"},
    {"book_flight",
     R"({"type": "object", "properties": {"departure_airport": {"type": "string"}, "arrival_airport": {"type":
         "string"}, "departure_date": {"type": "string"}, "number_of_passengers": {"type": "integer"}, "cabin_class":
         {"enum": ["economy", "business", "first"]}}, "required": ["departure_airport", "arrival_airport",
         "departure_date", "number_of_passengers", "cabin_class"], "additionalProperties": false})",
     R"({"departure_airport": "OSL", "arrival_airport": "LIS", "departure_date": "2026-05-17", )"
     R"("number_of_passengers": 2, "cabin_class": "economy"})"},
};

std::string schema_of(const Call& call) {
    return R"({"type": "object", "properties": {"name": {"const": ")" + std::string(call.name) +
           R"("}, "arguments": )" + std::string(call.parameters) +
           R"(}, "required": ["name", "arguments"], "additionalProperties": false})";
}
std::string text_of(const Call& call) {
    return R"({"name": ")" + std::string(call.name) + R"(", "arguments": )" + std::string(call.arguments) + "}";
}

/// Tokens that spell the text and nothing else: the vocabulary's own, or, where it puts a space in front or cannot
/// spell all, the longest pieces from left to right.
std::vector<Token> script_of(const Vocab& vocab, const std::string& text) {
    std::vector<Token> tokens = vocab.encode(text, {.add_special = false});
    const auto spelled = [&] {
        std::string out;
        for (const Token token : tokens) out += vocab.piece(token, true);
        return out;
    };
    if (!tokens.empty() && vocab.piece(tokens.front(), true) == " ") tokens.erase(tokens.begin());
    if (spelled() == text) return tokens;
    tokens.clear();
    for (std::size_t at = 0; at < text.size();) {
        std::size_t longest = 0;
        Token best{};
        for (std::size_t t = 0; t < vocab.size(); ++t) {
            const Token token{static_cast<std::int32_t>(t)};
            const std::string_view piece = vocab.piece(token, true);
            if (piece.size() <= longest || vocab.is_eog(token) || !std::string_view(text).substr(at).starts_with(piece))
                continue;
            longest = piece.size();
            best = token;
        }
        require(longest > 0, "the vocabulary has no token for a byte of a call");
        tokens.push_back(best);
        at += longest;
    }
    return tokens;
}

/// Draws the tokens of a list.
class Written final : public SamplerLink {
public:
    explicit Written(std::vector<Token> list) : list_(std::move(list)) {}
    [[nodiscard]] std::string_view name() const noexcept override { return "written"; }
    void apply(CandidateArray& candidates) override {
        const auto id = static_cast<std::int32_t>(list_[n_++ % list_.size()]);
        for (std::size_t i = 0; i < candidates.data.size(); ++i)
            if (candidates.data[i].id == id) candidates.selected = static_cast<std::ptrdiff_t>(i);
    }
    [[nodiscard]] std::unique_ptr<SamplerLink> clone() const override { return std::make_unique<Written>(*this); }

private:
    std::vector<Token> list_;
    std::size_t n_ = 0;
};

struct Took {
    double seconds = 0;
    std::vector<Token> tokens;
    std::uint64_t forced = 0;
};

class Bench {
public:
    /// Texts are of so many tokens at most.
    Bench(const Model& model, std::size_t n_tokens, int n_threads)
        : model_(model), prompt_(some_tokens(model, 32)),
          context_(model, {.n_ctx = static_cast<int>(n_tokens + prompt_.size() + 32),
                           .n_outputs = 16,
                           .n_threads = n_threads,
                           .n_threads_batch = n_threads}) {}

    /// Draws as the model likes to, or what `script` has.
    /// Without a grammar no text ends by itself: a shorter one would have less to attend to.
    Took run(const Grammar* grammar, bool forced, const std::vector<Token>* script, std::int64_t n_tokens) {
        context_.clear();
        SamplerOptions chain{.temp = 0.8f, .seed = 3};
        if (grammar == nullptr)
            for (std::size_t t = 0; t < model_.vocab().size(); ++t)
                if (const Token token{static_cast<std::int32_t>(t)}; model_.vocab().is_eog(token))
                    chain.logit_bias.emplace_back(token, -INFINITY);
        Sampler sampler(model_.vocab(), chain);
        if (script != nullptr) {
            while (!sampler.names().empty()) sampler.remove(0);
            sampler.insert(0, std::make_unique<Written>(*script));
        }
        if (grammar != nullptr) sampler.constrain(grammar->constraint(model_.vocab()));
        GenerationOptions options{.n_predict = n_tokens};
        options.speculation.forced = forced;
        Generation generation(model_.vocab(), prompt_, options);
        (void)generation.run(context_, sampler);
        Took took;
        took.tokens.assign(generation.tokens().begin(), generation.tokens().end());
        if (script != nullptr) require(took.tokens == *script, "other tokens were generated than the script has");
        took.seconds = generation.timings().generation_s;
        took.forced = static_cast<std::uint64_t>(generation.timings().accepted_n);
        return took;
    }

private:
    const Model& model_;
    std::vector<Token> prompt_;
    Context context_;
};

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string path = options.text("model", "");
    const int n_tokens = static_cast<int>(options.number("tokens", smoke ? 16 : 160));
    const int n_rounds = static_cast<int>(options.number("rounds", smoke ? 1 : 3));
    const int n_threads = static_cast<int>(options.number("threads", 1));
    Printer printer(options.flag("json"));
    options.finish();
    if (path.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    const Model model = Model::load(path);
    std::vector<std::vector<Token>> scripts;
    auto longest = static_cast<std::size_t>(n_tokens);
    for (const Call& call : kCalls) {
        scripts.push_back(script_of(model.vocab(), text_of(call)));
        longest = std::max(longest, scripts.back().size());
    }
    Bench bench(model, longest, n_threads);
    const auto begin = std::chrono::steady_clock::now();
    (void)Grammar::parse("root ::= \"a\"").constraint(model.vocab());
    const double tries_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();

    double with = 0, without = 0, plain = 0, at_once = 0;
    std::size_t n_with = 0, n_without = 0, n_written = 0, n_forced = 0;
    for (std::size_t i = 0; i < scripts.size(); ++i) {
        const Grammar grammar = Schema::parse(schema_of(kCalls[i]), {.space = SchemaOptions::Space::spaced}).grammar();
        const std::vector<Token>& tokens = scripts[i];
        std::array<double, 4> best{1e9, 1e9, 1e9, 1e9};
        for (int round = 0; round < n_rounds; ++round) {
            const auto n_script = static_cast<std::int64_t>(tokens.size());
            const Took drawn = bench.run(&grammar, false, nullptr, n_tokens);
            const Took free = bench.run(nullptr, false, nullptr, static_cast<std::int64_t>(drawn.tokens.size()));
            const Took one_by_one = bench.run(&grammar, false, &tokens, n_script);
            const Took together = bench.run(&grammar, true, &tokens, n_script);
            const Took took[] = {drawn, free, one_by_one, together};
            for (std::size_t k = 0; k < best.size(); ++k) best[k] = std::min(best[k], took[k].seconds);
            if (round > 0) continue;
            n_with += drawn.tokens.size();
            n_without += free.tokens.size();
            n_written += tokens.size();
            n_forced += together.forced;
        }
        with += best[0], without += best[1], plain += best[2], at_once += best[3];
        if (smoke) break;
    }
    Record cost("constrained");
    cost.add("what", "schema")
        .add("threads", n_threads)
        .add("tokens", n_with)
        .add("free_tokens", n_without)
        .add("tries_ms", tries_ms, 1);
    const double free_tps = static_cast<double>(n_without) / without, tps = static_cast<double>(n_with) / with;
    printer.print(cost.add("free_tps", free_tps).add("tps", tps).add("loss", 100 * (1 - tps / free_tps), 2));
    Record gain("constrained");
    gain.add("what", "forced").add("threads", n_threads).add("tokens", n_written).add("forced", n_forced);
    gain.add("plain_tps", static_cast<double>(n_written) / plain);
    gain.add("tps", static_cast<double>(n_written) / at_once);
    printer.print(gain.add("times", plain / at_once));
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_constrained", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
