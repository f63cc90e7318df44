// SPDX-License-Identifier: MIT
// tinfer score: log-probabilities of given texts, many in one call.
#include "score.hpp"
#include "adapters.hpp"
#include "json_input.hpp"

#include <tinfer/generation.hpp>

#include <algorithm>
#include <cmath>

namespace tinfer::app {

namespace {

struct ScoreArgs {
    ModelArgs model;
    ContextArgs context;
    AdapterArgs adapters;
    std::string file, prompt;
    int n_parallel = 8, n_top = 0;
};

/// The tokens of one line.
struct ScoreLine {
    std::vector<tinfer::Token> prompt, text;
};

[[noreturn]] void refuse_line(const std::string& file, std::size_t line, const std::string& what) {
    throw tinfer::Error(tinfer::ErrorCode::bad_parameter, file + ": line " + std::to_string(line) + ": " + what);
}

/// A member of a line: a text, token ids, or absent.
struct Part {
    std::optional<std::string> text;
    std::vector<tinfer::Token> ids;
};

Part read_part(const Json& line, const char* key, const std::string& where, std::size_t number, std::size_t n_vocab) {
    if (!line.contains(key)) return {};
    const Json& value = line[key];
    Part part;
    if (value.is_string()) {
        part.text = value.get<std::string>();
        return part;
    }
    if (!value.is_array()) refuse_line(where, number, "\"" + std::string(key) + "\" is neither a text nor token ids");
    for (const Json& id : value) {
        if (!id.is_natural() || id.get<std::uint64_t>() >= n_vocab)
            refuse_line(where, number,
                        "\"" + std::string(key) + "\": " + id.dump() + " is no token: the vocabulary has " +
                            std::to_string(n_vocab));
        part.ids.push_back(tinfer::Token{id.get<std::int32_t>()});
    }
    return part;
}

/// Prompt and text are encoded together; a token across the boundary belongs to the text.
ScoreLine encode_line(const tinfer::Vocab& vocab, const Part& prompt, const Part& text) {
    ScoreLine line;
    if (prompt.text && text.text) {
        const auto before = vocab.encode(*prompt.text);
        line.text = vocab.encode(*prompt.text + *text.text);
        const auto border = std::mismatch(before.begin(), before.end(), line.text.begin(), line.text.end()).second;
        line.prompt.assign(line.text.begin(), border);
        line.text.erase(line.text.begin(), border);
        return line;
    }
    const bool alone = !prompt.text && prompt.ids.empty();
    line.prompt = prompt.text ? vocab.encode(*prompt.text) : prompt.ids;
    line.text = text.text ? vocab.encode(*text.text, {.add_special = alone}) : text.ids;
    // Without a prompt, BOS is given, not scored.
    if (alone && text.text && vocab.add_bos() && !line.text.empty() && vocab.bos() == line.text.front()) {
        line.prompt.push_back(line.text.front());
        line.text.erase(line.text.begin());
    }
    return line;
}

/// JSON lines begin with a brace, or with what a table of them would have by mistake; anything else is one plain text.
bool is_plain_text(std::string_view all) {
    const auto first = all.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
    return first != all.npos && all[first] != '{' && all[first] != '[' && all[first] != '"';
}

std::vector<ScoreLine> read_lines(const ScoreArgs& args, const tinfer::Vocab& vocab) {
    const std::string all = args.prompt.empty() ? read_text(args.file, "--file") : std::string();
    std::vector<ScoreLine> lines;
    if (!args.prompt.empty() || is_plain_text(all)) {
        Part text;
        text.text = args.prompt.empty() ? all : args.prompt;
        lines.push_back(encode_line(vocab, {}, text));
        return lines;
    }
    std::size_t number = 0;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        const std::string_view line = std::string_view(all).substr(at, end - at);
        at = end + 1;
        ++number;
        if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        const Json parsed = parse_json(line, args.file + ": line " + std::to_string(number));
        if (!parsed.is_object() || !parsed.contains("text"))
            refuse_line(args.file, number, "an object with \"text\", and \"prompt\" if there is one, is needed");
        const Part prompt = read_part(parsed, "prompt", args.file, number, vocab.size());
        const Part text = read_part(parsed, "text", args.file, number, vocab.size());
        lines.push_back(encode_line(vocab, prompt, text));
    }
    return lines;
}

Json line_json(const ScoreLine& line, const tinfer::Score& score, int n_top) {
    Json logprobs = Json::array(), ids = Json::array(), top = Json::array();
    for (std::size_t i = 0; i < line.text.size(); ++i) {
        const auto& token = score.tokens[i];
        ids.push_back(static_cast<std::int32_t>(line.text[i]));
        logprobs.push_back(std::isnan(token.logprob) ? Json(nullptr) : Json(token.logprob));
        Json others = Json::array();
        for (const auto& other : token.top) others.push_back({static_cast<std::int32_t>(other.token), other.logprob});
        top.push_back(std::move(others));
    }
    Json document{{"logprobs", std::move(logprobs)}, {"sum", score.sum}, {"tokens", std::move(ids)}};
    if (n_top > 0) document["top"] = std::move(top);
    return document;
}

int score(const ScoreArgs& args) {
    args.model.require();
    if (args.file.empty() && args.prompt.empty())
        throw UsageError("texts are needed: --prompt TEXT, or --file FILE of JSON lines or a plain text");
    if (!args.file.empty() && !args.prompt.empty())
        throw UsageError("--prompt and --file are both given: the text is one of them");
    const auto model = args.model.load();
    const auto lines = read_lines(args, model.vocab());
    std::vector<tinfer::ScoreText> texts;
    std::size_t longest = 1, all = 1;
    for (const auto& line : lines) {
        texts.push_back({line.prompt, line.text});
        longest = std::max(longest, line.prompt.size() + line.text.size());
        all += line.prompt.size() + line.text.size();
    }
    if (texts.empty()) return 0;

    const auto n_parallel = std::min(static_cast<std::size_t>(args.n_parallel), texts.size());
    auto options = args.context.options(args.model, model.info(), 0);
    if (args.context.n_ctx < 0)
        options.n_ctx = static_cast<int>(std::min<std::size_t>(std::min(all, longest * n_parallel), 1 << 28));
    options.n_seq_max = static_cast<int>(n_parallel);
    options.n_outputs = 64;
    tinfer::Context context(model, options);
    args.adapters.attach_to(context, args.model);
    tinfer::ScoreOptions how;
    how.n_top = args.n_top;
    const auto scores = tinfer::score(context, texts, how);
    for (std::size_t i = 0; i < scores.size(); ++i) print_line(line_json(lines[i], scores[i], args.n_top));
    return 0;
}

}  // namespace

Action add_score(CLI::App& app) {
    auto args = std::make_shared<ScoreArgs>();
    auto* command = app.add_subcommand(
        "score",
        "Tells how probable given texts are: a JSON line for each, {\"logprobs\":[...],\"sum\":...,\"tokens\":[...]}.");
    command->add_option("-p,--prompt", args->prompt, "a text, all of it scored")->type_name("TEXT")->group("Text");
    command
        ->add_option(
            "-f,--file", args->file,
            "JSON lines {\"prompt\":..., \"text\":...}, each a text or an array of token ids, or one plain text; "
            "- is stdin")
        ->type_name("FILE")
        ->group("Text");
    args->model.add_to(*command);
    command->add_option("--parallel", args->n_parallel, "texts in the context at the same time")
        ->check(whole(1, 256))
        ->type_name("N")
        ->group("Output");
    command->add_option("--top", args->n_top, "also the N most probable tokens of each place")
        ->check(whole(0, 1000))
        ->type_name("N")
        ->group("Output");
    args->context.add_to(*command, "what the texts need");
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer score model.gguf -f texts.jsonl --top 3\n  echo '{\"prompt\":\"The capital "
                    "of France is\",\"text\":\" Paris\"}' | tinfer score "
                    "model.gguf -f -");
    return [args] { return score(*args); };
}

}  // namespace tinfer::app
