// SPDX-License-Identifier: MIT
// Microseconds from the state of a match to the mask of the allowed tokens, and from a schema to a grammar, over a file
// of schemas with texts (JSON lines: name, schema, tests of {valid, data}), one thread. Every step of every valid text,
// its members in the order that the constraint keeps, is masked, and every mask has to allow the token that comes next;
// so a wrong mask ends the run.
#include <time.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/json.hpp"
#include "grammar/emit.hpp"
#include "grammar/grammar_impl.hpp"
#include "grammar/machine.hpp"
#include "support.hpp"
#include "tinfer/grammar.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage = "usage: bench_grammar [--vocab FILE.gguf,…] [--tokens 131072] [--schemas "
                                    "FILE.jsonl] [--most N] [--rounds 3] [--slow N] [--smoke] [--json]\n"
                                    "Masks every step of the valid texts of every schema. Of several vocabularies the "
                                    "pieces are joined, up to --tokens.\n"
                                    "--slow prints the slowest steps, and texts that no constraint admits.\n";

using BenchJson = nlohmann::ordered_json;

/// Microseconds of this thread, so that what else runs on the machine does not count.
double now_us() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}
double us_since(double begin) { return now_us() - begin; }

struct Sample {
    double us;
    std::string what;
};

double quantile(const std::vector<Sample>& sorted, double q) {
    if (sorted.empty()) return 0;
    return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(q * static_cast<double>(sorted.size())))].us;
}

std::shared_ptr<const Grammar::Impl> compile(const std::string& schema) {
    const SchemaOptions options;
    const auto document = JsonDocument::parse(schema, "schema", {.max_depth = 200});
    std::vector<std::string> warnings;
    grammar::Normalizer normalizer(document.root(), options, warnings);
    auto program = grammar::Emitter(normalizer, options).run({normalizer.root()});
    return std::make_shared<const Grammar::Impl>(std::move(program), options.grammar);
}

void report(Printer& printer, const char* what, std::vector<Sample> samples, std::size_t n_slow) {
    std::ranges::sort(samples, {}, &Sample::us);
    double sum = 0;
    for (const Sample& sample : samples) sum += sample.us;
    Record record("grammar");
    record.add("what", what).add("n", samples.size());
    record.add("mean_us", samples.empty() ? 0 : sum / static_cast<double>(samples.size()), 1);
    record.add("median_us", quantile(samples, 0.5), 1).add("p99_us", quantile(samples, 0.99), 1);
    record.add("worst_us", quantile(samples, 1), 1);
    printer.print(record);
    for (std::size_t i = 0; i < std::min(n_slow, samples.size()); ++i) {
        const Sample& slow = samples[samples.size() - 1 - i];
        Record line("grammar slow");
        printer.print(line.add("us", slow.us, 1).add("at", slow.what));
    }
}

struct Pieces {
    std::vector<std::string> pieces;
    std::vector<bool> is_eog;
};

/// A vocabulary for a run without files: bytes, and words of JSON.
Pieces small_pieces() {
    Pieces out;
    auto& [pieces, is_eog] = out;
    for (int b = 0; b < 256; ++b) pieces.emplace_back(1, static_cast<char>(b));
    for (const char* more : {"\":", "\",", "{\"", "\"}", "name", "true", "10", "tru", "na", "</s>"})
        pieces.emplace_back(more);
    is_eog.resize(pieces.size());
    is_eog.back() = true;
    return out;
}

/// The pieces of vocabularies, each once.
Pieces joined_pieces(const std::vector<std::string>& files, std::size_t most) {
    Pieces out;
    auto& [pieces, is_eog] = out;
    std::set<std::string> known;
    for (const std::string& file : files) {
        const Vocab vocab = Vocab::load(file);
        for (std::size_t t = 0; t < vocab.size() && pieces.size() < most; ++t) {
            const Token token{static_cast<std::int32_t>(t)};
            std::string piece(vocab.piece(token, true));
            if (!vocab.is_eog(token) && !known.insert(piece).second) continue;
            is_eog.push_back(vocab.is_eog(token));
            pieces.push_back(std::move(piece));
        }
    }
    return out;
}

/// The longest piece of the vocabulary that the rest begins with.
std::uint32_t longest_piece(const grammar::TokenTrie& trie, std::string_view rest) {
    const auto nodes = trie.all();
    std::uint32_t best = 0, end = static_cast<std::uint32_t>(nodes.size());
    bool is_found = false;
    std::size_t depth = 0;
    for (std::uint32_t i = 0; i < end && depth < rest.size();) {
        if (nodes[i].byte != static_cast<std::uint8_t>(rest[depth])) {
            i = nodes[i].end;
            continue;
        }
        if (nodes[i].count > 0) best = trie.tokens()[nodes[i].first], is_found = true;
        end = nodes[i].end;
        ++depth;
        ++i;
    }
    if (!is_found) throw std::runtime_error("no piece for a text");
    return best;
}

/// Prints a value as the constraint of its schema admits it: without white space, members in the order that it keeps,
/// numbers without a fraction that is 0 where it takes no other.
class Arranged {
public:
    Arranged(const std::shared_ptr<const grammar::Program>& program, const BenchJson& schema) : machine_(program, 1) {
        find_names(schema);
    }

    /// Empty where there is no such text.
    std::string print(const BenchJson& value) {
        for (const bool as_declared : {true, false}) {  // which order is tried first
            is_as_declared_ = as_declared;
            out_.clear();
            n_tried_ = 0;
            grammar::Machine::State state = machine_.start();
            if (put(value, state) && machine_.accepts(state)) return out_;
        }
        return {};
    }

private:
    static constexpr int kMaxTried = 20'000;

    bool put_text(std::string_view text, grammar::Machine::State& state) {
        for (const char byte : text) state = machine_.step(state, static_cast<std::uint8_t>(byte));
        out_ += text;
        return state != grammar::Machine::kDead && ++n_tried_ < kMaxTried;
    }
    /// Goes on at `state` where it can, else leaves it and the text as they were.
    bool put(const BenchJson& value, grammar::Machine::State& state) {
        const auto before = state;
        const std::size_t size = out_.size();
        const auto with = [&](const auto& action) {
            state = before;
            out_.resize(size);
            return action();
        };
        if (value.is_object()) {
            std::vector<std::pair<std::string, const BenchJson*>> members;
            for (const auto& [name, item] : value.items()) members.emplace_back(BenchJson(name).dump(), &item);
            if (is_as_declared_)
                std::ranges::stable_sort(members, {}, [&](const auto& member) {
                    const auto known = places_.find(member.first);
                    return known == places_.end() ? places_.size() : known->second;
                });
            if (with([&] { return put_text("{", state) && put_members(members, true, state); })) return true;
        } else if (value.is_array()) {
            const auto put_items = [&] {
                bool is_right = put_text("[", state), is_first = true;
                for (const auto& item : value) {
                    is_right = is_right && (std::exchange(is_first, false) || put_text(",", state)) && put(item, state);
                    if (!is_right) return false;
                }
                return is_right && put_text("]", state);
            };
            if (with(put_items)) return true;
        } else {
            const std::string text = value.dump();
            if (with([&] { return put_text(text, state); })) return true;
            if (value.is_number_float() && text.ends_with(".0") &&
                with([&] { return put_text(std::string_view(text).substr(0, text.size() - 2), state); }))
                return true;
        }
        return with([] { return false; });
    }
    /// The names that the schema declares, in its order: which is tried first.
    void find_names(const BenchJson& schema) {
        if (!schema.is_structured()) return;
        if (schema.is_object() && schema.contains("properties") && schema["properties"].is_object())
            for (const auto& [name, item] : schema["properties"].items())
                places_.try_emplace(BenchJson(name).dump(), places_.size());
        for (const auto& item : schema) find_names(item);
    }
    /// The members that are left, each in front of the others as far as the grammar takes it there.
    bool put_members(std::vector<std::pair<std::string, const BenchJson*>>& left, bool is_first,
                     grammar::Machine::State& state) {
        const auto before = state;
        const std::size_t size = out_.size();
        if (left.empty()) return put_text("}", state);
        for (std::size_t i = 0; i < left.size() && n_tried_ < kMaxTried; ++i) {
            const auto member = left[i];
            state = before;
            out_.resize(size);
            if (!put_text((is_first ? "" : ",") + member.first + ":", state) || !put(*member.second, state)) continue;
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(i));
            if (put_members(left, false, state)) return true;
            left.insert(left.begin() + static_cast<std::ptrdiff_t>(i), member);
        }
        state = before;
        out_.resize(size);
        return false;
    }

    grammar::Machine machine_;
    std::map<std::string, std::size_t> places_;
    std::string out_;
    int n_tried_ = 0;
    bool is_as_declared_ = false;
};

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const auto vocab_files = options.list("vocab", "");
    const std::string schema_file = options.text("schemas", "");
    const auto n_tokens = static_cast<std::size_t>(options.number("tokens", 131072));
    const auto most = static_cast<std::size_t>(options.number("most", 1e9));
    const auto n_slow = static_cast<std::size_t>(options.number("slow", 0));
    const int n_rounds = static_cast<int>(options.number("rounds", 3));
    Printer printer(options.flag("json"));
    options.finish();
    if (!smoke && (vocab_files.empty() || schema_file.empty()))
        throw std::runtime_error("--vocab and --schemas are needed");

    Pieces pieces = vocab_files.empty() ? small_pieces() : joined_pieces(vocab_files, n_tokens);
    const auto begin_trie = now_us();
    const auto trie = std::make_shared<const grammar::TokenTrie>(std::move(pieces.pieces), std::move(pieces.is_eog));
    Record record("grammar");
    printer.print(record.add("what", "vocabulary")
                      .add("tokens", trie->size())
                      .add("ms", us_since(begin_trie) / 1e3, 1)
                      .add("mb", static_cast<double>(trie->memory()) / 1e6, 1));

    std::vector<std::string> lines;
    if (schema_file.empty()) {
        lines.push_back(
            R"({"name": "small", "schema": {"type": "object", "properties": {"name": {"type": "string"}, "ok": )"
            R"({"type": "boolean"}}, "required": ["name"]}, "tests": )"
            R"([{"valid": true, "data": {"name": "a b", "ok": true}}]})");
    } else {
        std::ifstream file(schema_file);
        if (!file) throw std::runtime_error("cannot read " + schema_file);
        for (std::string line; std::getline(file, line) && lines.size() < most;) lines.push_back(line);
    }
    std::vector<Sample> compiles, masks, steps;
    std::size_t n_texts = 0, n_refused = 0, n_rejected = 0, n_limited = 0;
    std::vector<std::uint64_t> bits(trie->n_words());
    for (const std::string& line : lines) {
        const auto entry = BenchJson::parse(line);
        const std::string name = entry.at("name"), schema = entry.at("schema").dump();
        std::shared_ptr<const Grammar::Impl> compiled;
        const auto begin = now_us();
        try {
            compiled = compile(schema);
        } catch (const Error&) {
            ++n_refused;
            continue;
        }
        compiles.push_back({us_since(begin), name});
        for (const auto& test : entry.at("tests")) {
            if (!test.at("valid").get<bool>()) continue;
            const std::string text = Arranged(compiled->program, entry.at("schema")).print(test.at("data"));
            if (text.empty()) {
                ++n_rejected;
                if (n_slow > 0) {
                    Record rejected("grammar rejected");
                    printer.print(rejected.add("schema", name).add("text", test.at("data").dump()));
                }
                continue;
            }
            ++n_texts;
            // Each round begins with nothing known; of a step the quickest counts, as others may use the machine.
            const std::size_t first = masks.size();
            bool is_limited = false;
            for (int round = 0; round < n_rounds && !is_limited; ++round) {
                const auto constraint = grammar::make_constraint(compiled, trie, nullptr);
                std::size_t i = first;
                const auto note = [&](std::vector<Sample>& samples, double us, std::size_t at) {
                    if (round > 0) samples[i].us = std::min(samples[i].us, us);
                    else samples.push_back({us, name + " byte " + std::to_string(at)});
                };
                for (std::size_t at = 0; at < text.size(); ++i) try {
                        const std::uint32_t token = longest_piece(*trie, std::string_view(text).substr(at));
                        const auto begin_mask = now_us();
                        const auto mask = constraint->mask();
                        note(masks, us_since(begin_mask), at);
                        if ((mask[token / 64] >> (token % 64) & 1) == 0)
                            throw std::runtime_error(name + ": the mask has not the token at byte " +
                                                     std::to_string(at));
                        const auto begin_step = now_us();
                        constraint->accept(Token{static_cast<std::int32_t>(token)});
                        note(steps, us_since(begin_step), at);
                        at += trie->piece(token).size();
                    } catch (const Error& error) {
                        if (error.code() != ErrorCode::grammar_too_ambiguous &&
                            error.code() != ErrorCode::limit_exceeded)
                            throw;
                        ++n_limited;  // the rest of the text is left
                        is_limited = true;
                        masks.resize(std::min(masks.size(), steps.size()));
                        Record limited("grammar limit");
                        printer.print(
                            limited.add("schema", name).add("byte", at).add("limit", to_string(error.code())));
                        break;
                    }
            }
        }
    }
    report(printer, "compile", std::move(compiles), n_slow);
    report(printer, "mask", std::move(masks), n_slow);
    report(printer, "accept", std::move(steps), 0);
    Record counts("grammar");
    printer.print(counts.add("what", "texts")
                      .add("n", n_texts)
                      .add("refused_schemas", n_refused)
                      .add("rejected_texts", n_rejected)
                      .add("limited_texts", n_limited));
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_grammar", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
