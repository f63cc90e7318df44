// SPDX-License-Identifier: MIT
// Microseconds from a conversation to its prompt: templates that are part of the library, or those of a folder (.json
// files with "template", "bos_token", "eos_token"; others are Jinja source). Each prompt is first searched for every
// text of the conversation.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "support.hpp"
#include "tinfer/chat.hpp"
#include "tinfer/text.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_chat [--templates FOLDER] [--vocab FILE.gguf] [--turns 20] [--characters 400] [--runs 50] [--smoke] "
    "[--json]\n"
    "Renders a conversation of so many turns, a question and an answer each, with every template; with --vocab the "
    "prompt becomes tokens, too.\n";

using ChatJson = nlohmann::ordered_json;

struct Subject {
    std::string name, source, bos, eos;
};

std::vector<Subject> subjects(const std::string& folder) {
    std::vector<Subject> out;
    if (folder.empty()) {
        for (const std::string_view name : ChatTemplate::built_in_names()) {
            const auto built_in = ChatTemplate::built_in(name);
            out.push_back({std::string(name), std::string(built_in.value().source()), "<s>", "</s>"});
        }
        return out;
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (!entry.is_regular_file() || entry.path().extension() == ".md") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        Subject subject{entry.path().stem().string(), text, "<s>", "</s>"};
        if (entry.path().extension() == ".json") {
            const auto data = ChatJson::parse(text);
            subject.source = data.at("template").get<std::string>();
            subject.bos = data.value("bos_token", "");
            subject.eos = data.value("eos_token", "");
        }
        out.push_back(std::move(subject));
    }
    std::ranges::sort(out, {}, &Subject::name);
    return out;
}

/// Sentences with a number each, so that none is part of another.
std::string sentence(int number, int n_characters) {
    std::string out = "This is text " + std::to_string(number) + ", which";
    while (static_cast<int>(out.size()) < n_characters) out += " goes on, \"quoted\" & <marked>,";
    return out + " and ends.";
}

std::string conversation(int n_turns, int n_characters, const Subject& subject) {
    ChatJson messages = ChatJson::array();
    for (int i = 0; i < n_turns; ++i) {
        messages.push_back({{"role", "user"}, {"content", sentence(2 * i, n_characters)}});
        if (i + 1 < n_turns)
            messages.push_back({{"role", "assistant"}, {"content", sentence(2 * i + 1, n_characters)}});
    }
    return ChatJson{{"messages", messages},
                    {"add_generation_prompt", true},
                    {"enable_thinking", true},
                    {"bos_token", subject.bos},
                    {"eos_token", subject.eos}}
        .dump();
}

/// Microseconds of so many runs, the best and the median.
template <class Fn>
std::pair<double, double> time_us(int n_runs, const Fn& fn) {
    std::vector<double> times;
    for (int i = 0; i < n_runs; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        fn();
        times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
    std::ranges::sort(times);
    return {times.front(), times[times.size() / 2]};
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const std::string folder = options.text("templates", ""), vocab_file = options.text("vocab", "");
    const int n_turns = static_cast<int>(options.number("turns", 20));
    const int n_characters = static_cast<int>(options.number("characters", 400));
    const int n_runs = static_cast<int>(options.number("runs", smoke ? 2 : 50));
    Printer printer(options.flag("json"));
    options.finish();
    std::optional<Vocab> vocab;
    if (!vocab_file.empty()) vocab = Vocab::load(vocab_file);
    for (const Subject& subject : subjects(folder)) {
        const std::string inputs = conversation(n_turns, n_characters, subject);
        Record record("chat");
        record.add("template", subject.name);
        RenderedPrompt prompt;
        try {
            prompt = ChatTemplate(subject.source).render(inputs);
        } catch (const Error& error) {
            if (error.code() != ErrorCode::template_error && error.code() != ErrorCode::template_runtime) throw;
            printer.print(record.add("refuses", error.what()));
            continue;
        }
        for (int i = 0; i < 2 * n_turns - 1; ++i)
            if (prompt.text.find(sentence(i, n_characters)) == std::string::npos)
                throw std::runtime_error(subject.name + ": text " + std::to_string(i) + " is not in the prompt");
        const auto [parse, parse_median] = time_us(n_runs, [&] { (void)ChatTemplate(subject.source); });
        const ChatTemplate chat_template(subject.source);
        const auto [best, median] = time_us(n_runs, [&] { (void)chat_template.render(inputs); });
        record.add("bytes", prompt.text.size()).add("parse_us", parse_median, 1);
        record.add("render_best_us", best, 1).add("render_median_us", median, 1);
        if (vocab) {
            std::size_t n_tokens = 0;
            const auto encoded = time_us(n_runs, [&] { n_tokens = encode(*vocab, prompt).tokens.size(); });
            record.add("tokens", n_tokens).add("encode_median_us", encoded.second, 1);
        }
        printer.print(record);
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_chat", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
