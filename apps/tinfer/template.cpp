// SPDX-License-Identifier: MIT
// tinfer template: renders messages through the chat template of a file, or another one, and shows where each token of
// the prompt came from.
#include "common.hpp"
#include "json_input.hpp"

#include <cstdio>
#include <optional>

namespace tinfer::app {

namespace {

struct TemplateArgs {
    ModelArgs model;
    std::string messages, source_file, name, now, expected;
    bool ids = false, unprotected = false, audit = false, as_json = false;
};

tinfer::LocalTime parse_time(const std::string& text) {
    tinfer::LocalTime t;
    char rest = 0;
    if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%c", &t.year, &t.month, &t.day, &t.hour, &t.minute, &t.second,
                    &rest) != 6)
        throw UsageError("--now '" + text + "' is no time: write 2026-03-09T14:05:07");
    return t;
}

/// The template: a source file, a built-in format by name, or the template of the model.
tinfer::ChatTemplate find_template(const TemplateArgs& args) {
    if (!args.source_file.empty()) {
        if (auto built_in = tinfer::ChatTemplate::built_in(args.source_file)) return *std::move(built_in);
        return tinfer::ChatTemplate(read_document(args.source_file, "--template"));
    }
    args.model.require();
    if (auto found = tinfer::ChatTemplate::of(args.model.open(), args.name)) return *std::move(found);
    if (!args.name.empty())
        throw tinfer::Error(tinfer::ErrorCode::missing_key,
                            args.model.files[0] + ": there is no chat template named '" + args.name + "'");
    note("warning: the file has no chat template; the format chatml is used", Look::warning);
    return *tinfer::ChatTemplate::built_in("chatml");
}

/// Reads the inputs; a plain list of messages becomes an object with `messages`. If there is a model, bos_token and
/// eos_token default to its tokens.
Json read_inputs(const TemplateArgs& args, const tinfer::Vocab* vocab) {
    Json inputs = parse_json(read_document(args.messages, "--messages"), "--messages " + args.messages);
    if (inputs.is_array()) inputs = Json{{"messages", std::move(inputs)}};
    if (!inputs.is_object() || !inputs.contains("messages"))
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, args.messages + " is no JSON object with messages");
    if (vocab == nullptr) return inputs;
    const auto add = [&](const char* name, std::optional<tinfer::Token> token) {
        if (!inputs.contains(name)) inputs[name] = token ? std::string(vocab->piece(*token, true)) : std::string();
    };
    add("bos_token", vocab->bos());
    add("eos_token", vocab->eos());
    return inputs;
}

Json to_json(const std::vector<tinfer::AuditFinding>& findings) {
    Json out = Json::array();
    for (const auto& finding : findings)
        out.push_back({{"kind", tinfer::to_string(finding.kind)}, {"line", finding.line}, {"text", finding.text}});
    return out;
}

/// Reports what the template does beyond formatting. Compared with a known template, differences are findings: exit 1.
int audit(const TemplateArgs& args) {
    const auto chat_template = find_template(args);
    std::optional<tinfer::ChatTemplate> expected;
    if (!args.expected.empty()) {
        expected = tinfer::ChatTemplate::built_in(args.expected);
        if (!expected) expected = tinfer::ChatTemplate(read_document(args.expected, "--expect"));
    }
    const auto result = tinfer::audit(chat_template, expected ? &*expected : nullptr);
    const int code = result.unexpected.empty() ? 0 : 1;
    if (args.as_json) {
        Json out{{"sha256", result.sha256}, {"findings", to_json(result.findings)}};
        if (expected) out["unexpected"] = to_json(result.unexpected);
        print_line(out);
        return code;
    }
    print("sha256 " + result.sha256 + "\n");
    for (const auto& finding : expected ? result.unexpected : result.findings)
        print("line " + std::to_string(finding.line) + "  " + std::string(tinfer::to_string(finding.kind)) + "  " +
              Json(finding.text).dump() + "\n");
    if (expected && result.unexpected.empty()) print("nothing that the expected template does not have\n");
    return code;
}

int render(const TemplateArgs& args) {
    if (args.audit || !args.expected.empty()) return audit(args);
    if (args.messages.empty()) throw UsageError("messages are needed: --messages FILE (or --audit)");
    std::optional<tinfer::Vocab> vocab;
    if (!args.model.files.empty()) vocab = args.model.load_vocab();
    if (args.ids && !vocab) throw UsageError("--ids needs the vocabulary of a model: -m FILE");
    const auto chat_template = find_template(args);
    tinfer::RenderOptions options;
    if (!args.now.empty()) options.now = parse_time(args.now);
    const auto prompt = chat_template.render_inputs(read_inputs(args, vocab ? &*vocab : nullptr), options);
    if (!args.ids) {
        print(prompt.text);
        return 0;
    }
    const auto encoded = tinfer::encode(*vocab, prompt, !args.unprotected);
    Json result = Json::array();
    for (std::size_t i = 0; i < encoded.tokens.size(); ++i)
        result.push_back({{"id", static_cast<std::int32_t>(encoded.tokens[i])},
                          {"text", vocab->piece(encoded.tokens[i], true)},
                          {"origin", prompt.origins[encoded.origins[i]]}});
    print_line(result);
    return 0;
}

}  // namespace

Action add_template(CLI::App& app) {
    auto args = std::make_shared<TemplateArgs>();
    auto* command = app.add_subcommand("template", "Renders messages through a chat template: the prompt, exactly.");
    command
        ->add_option("--messages", args->messages,
                     "JSON: an object with messages and what else the template reads (tools, add_generation_prompt), "
                     "or the messages alone; - is stdin")
        ->type_name("FILE")
        ->group("Input");
    command
        ->add_option("--template", args->source_file,
                     "Jinja source instead of the model's, or the name of a built-in format (chatml, llama3)")
        ->type_name("FILE")
        ->group("Input");
    command->add_option("--template-name", args->name, "another template of the model: tool_use")
        ->type_name("NAME")
        ->group("Input");
    command->add_option("--now", args->now, "what the template takes for the time; default: now, in UTC")
        ->type_name("2026-03-09T14:05:07")
        ->group("Input");
    args->model.add_to(*command);
    const std::string group = "Output";
    command->add_flag("--ids", args->ids, "a JSON array of the tokens, each with its text and where that came from")
        ->group(group);
    command->add_flag("--unprotected", args->unprotected, "with --ids: text of messages may form control tokens")
        ->group(group);
    const std::string check = "Audit";
    command
        ->add_flag("--audit", args->audit,
                   "in place of a prompt: texts that the template puts in, where it looks at what is said or at how "
                   "much, calls of the clock, its hash")
        ->group(check);
    command
        ->add_option("--expect", args->expected,
                     "audit, and show only what this known template does not have; exit 1 where there is any")
        ->type_name("FILE")
        ->group(check);
    command->add_flag("--json", args->as_json, "the audit as one JSON document")->group(check);
    command->footer("\nExamples:\n  tinfer template model.gguf --messages talk.json\n"
                    "  tinfer template --template llama3 --messages talk.json --now 2026-03-09T14:05:07");
    return [args] { return render(*args); };
}

}  // namespace tinfer::app
