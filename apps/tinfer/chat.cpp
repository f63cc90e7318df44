// SPDX-License-Identifier: MIT
// tinfer chat: a conversation through the chat template of a file.
#include "adapters.hpp"
#include "common.hpp"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "chat_help.hpp"
#include "chat_inputs.hpp"
#include "chat_settings.hpp"
#include "grammar_args.hpp"
#include "json_input.hpp"
#include "line_editor.hpp"
#include "long_run.hpp"
#include "model_list.hpp"
#include "output_file.hpp"
#include "prompt_cache.hpp"
#include "transcript.hpp"
#include "word_wrap.hpp"

namespace tinfer::app {

namespace {

struct ChatArgs {
    ModelArgs model;
    TextArgs text;
    ContextArgs context;
    AdapterArgs adapters;
    SamplerArgs sampler;
    GrammarArgs grammar;
    SpeculateArgs speculate;
    LongTextArgs long_text;
    PromptCacheArgs prompt_cache;
    std::int64_t n_predict = -1;
    std::vector<std::string> stops;
    std::string system, system_file, source_file, tools_file, messages_file, transcript_file, prefix, suffix;
    std::string tool_choice;
    std::int64_t reasoning_budget = -1;
    bool no_thinking = false, as_json = false, no_history = false;
};

class Talk {
public:
    Talk(const ChatArgs& args, const tinfer::Model& model, std::string tools, const std::string& messages)
        : args_(args), model_(model), tools_(std::move(tools)), context_(model, context_options()),
          chat_(model, chat_options()), sampler_(model.vocab(), args.sampler.get()), prompt_cache_(args.prompt_cache),
          options_(args.sampler.get()) {
        args.adapters.attach_to(context_, args.model);
        if (args_.prompt_cache.given()) chat_.set_cached(prompt_cache_.load(context_));
        if (!chat_.has_own_template())
            note("warning: the file has no chat template; the format chatml is used", Look::warning);
        constrains_calls_ = !args_.grammar.given() && !tools_.empty();
        if (!messages.empty()) chat_.set_messages(messages);
    }

    int once(const std::string& text) {
        answer(text);
        if (!args_.as_json) end_text(shown_, !is_quiet());
        note_full();
        if (!args_.as_json && !is_quiet()) statistics();
        keep_transcript();
        return chat_.stop() == tinfer::StopReason::interrupt ? kInterrupted : 0;
    }

    int loop() {
        LineEditor editor;
        editor_ = &editor;
        const bool is_person = LineEditor::is_interactive();
        if (is_person) note(greeting(model_, context_), Look::dim);
        if (is_person) note("/help tells what can be typed; Ctrl-D leaves", Look::dim);
        if (is_person && !args_.no_history) editor.keep_history(history_file());
        editor.complete({kCommands.begin(), kCommands.end()}, {"/save", "/load"});
        wraps_ = is_person && !args_.as_json && terminal_columns() > 0;
        int n_interrupts = 0;
        bool has_told_of_commands = false;
        while (true) {
            std::string text;
            const auto got = read_turn(editor, std::exchange(preset_, {}), text);
            if (got == LineEditor::Got::end) break;
            if (got == LineEditor::Got::interrupt) {
                if (!is_person) return keep_transcript(), kInterrupted;
                clear_interrupt();
                print("\n");
                if (editor.had_text()) {  // it takes back what was typed
                    n_interrupts = 0;
                    continue;
                }
                if (++n_interrupts > 1) return kInterrupted;
                note("Ctrl-D leaves, and so does Ctrl-C once more", Look::dim);
                continue;
            }
            n_interrupts = 0;
            if (text.find_first_not_of(" \t\r\n") == text.npos) continue;
            if (is_person) editor.remember(text);
            if (is_person && text[0] == '/' && text.find('\n') == text.npos) {
                if (!command(text)) break;
                continue;
            }
            if (text[0] == '/' && !std::exchange(has_told_of_commands, true))
                note("note: from a pipe every line is a turn, also one that begins with /", Look::dim);
            turn(text, is_person);
            while (is_person && answer_calls(editor)) turn({}, true);
        }
        if (is_person) print("\n");
        keep_transcript();
        return 0;
    }

private:
    tinfer::ContextOptions context_options() const {
        auto options = args_.context.options(args_.model, model_.info(), 0);
        if (args_.grammar.given()) options.n_outputs = 16;  // forced tokens of a grammar are decoded together
        args_.speculate.apply_to(options, model_);
        return options;
    }

    tinfer::ChatOptions chat_options() {
        tinfer::ChatOptions options;
        options.speculation = args_.speculate.get(model_, context_.options());
        options.shift = args_.long_text.shift();
        options.extend = args_.long_text.self_extend();
        options.system = args_.system_file.empty() ? args_.system : read_document(args_.system_file, "--system-file");
        if (!args_.source_file.empty()) {
            options.chat_template = tinfer::ChatTemplate::built_in(args_.source_file);
            if (!options.chat_template)
                options.chat_template = tinfer::ChatTemplate(read_document(args_.source_file, "--template"));
        }
        if (!args_.prefix.empty() || !args_.suffix.empty()) {
            options.chat_template = tinfer::ChatTemplate(kRawTurns);
            options.variables = Json{{"input_prefix", unescape(args_.prefix, "--input-prefix")},
                                     {"input_suffix", unescape(args_.suffix, "--input-suffix")}}
                                    .dump();
        }
        options.tools = tools_;
        options.reasoning_budget = args_.reasoning_budget;
        if (!options.chat_template && !tools_.empty())
            options.chat_template = tinfer::ChatTemplate::of(model_.file(), "tool_use");
        if (!options.chat_template) options.chat_template = tinfer::ChatTemplate::of(model_.file());
        format_ = options.chat_template ? options.chat_template : tinfer::ChatTemplate::built_in("chatml");
        options.thinking = !args_.no_thinking;
        options.n_predict = args_.n_predict;
        for (const auto& stop : args_.stops) options.stop.push_back(unescape(stop, "--stop"));
        options.prompt_piece = 64;  // bounds the delay of an interrupt
        return options;
    }

    /// Asks the user for the results of the last answer's calls. False: nothing to continue with.
    bool answer_calls(LineEditor& editor) {
        const auto calls = chat_.answer().tool_calls;
        if (calls.empty() || chat_.stop() == tinfer::StopReason::interrupt) return false;
        for (const auto& call : calls) {
            std::string result;
            if (editor.read(call.name + " gives> ", result) != LineEditor::Got::line) {
                clear_interrupt();
                print("\n");
                return false;
            }
            chat_.add_tool_result(call, result);
        }
        return true;
    }

    /// Sets the grammar that is given, or that of calls, for the next answer; after tool results it may always be text.
    void constrain_calls(bool is_question) {
        if (args_.grammar.given())
            return sampler_.constrain(
                args_.grammar.framed(*format_, model_.vocab(), {!args_.no_thinking, chat_.prompt().generation_prompt})
                    .constraint(model_.vocab()));
        if (!constrains_calls_) {
            if (sampler_.constraint() != nullptr) sampler_.constraint()->reset();
            return;
        }
        tinfer::ToolGrammarOptions options;
        const std::string& choice = args_.tool_choice;
        if (is_question && !choice.empty() && choice != "auto") {
            options.use = tinfer::ToolUse::required;
            if (choice != "required") options.function = choice;
        }
        try {
            options.generation_prompt = chat_.prompt().generation_prompt;
            const auto grammar = tinfer::tool_grammar(*format_, tools_, options);
            sampler_.constrain(grammar.constraint(model_.vocab()));
        } catch (const tinfer::Error& error) {
            if (!choice.empty()) throw;
            note("warning: calls are not checked: " + std::string(error.what()), Look::warning);
            constrains_calls_ = false;
        }
    }

    /// Shows two turns as the template renders them.
    void show_example() {
        tinfer::Chat example(chat_);
        example.set_messages(R"([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there"},)"
                             R"( {"role": "user", "content": "How are you?"}])");
        note(example.render(true).text);
    }

    /// Runs a /command. False: quit.
    bool command(const std::string& text) {
        const auto space = std::min(text.find(' '), text.size());
        std::string name = text.substr(0, space);
        const auto begin = std::min(text.find_first_not_of(' ', space), text.size());
        const std::string rest = text.substr(begin);
        try {
            if (name == "/exit" || name == "/quit" || name == "/bye") return false;
            if (name == "/help") note(kHelp);
            else if (name == "/reset") {
                chat_.reset();
                note("the conversation begins anew", Look::dim);
            } else if (name == "/system") {
                chat_.set_system(rest);
                note(rest.empty() ? "no system message from here on" : "this is the system message from here on",
                     Look::dim);
            } else if (name == "/stats") statistics();
            else if (name == "/example") show_example();
            else if (name == "/regenerate") regenerate();
            else if (name == "/undo") (void)undo();
            else if (name == "/edit") preset_ = undo();
            else if (name == "/set") set(rest);
            else if (name == "/drop") drop();
            else if (name == "/save") save(rest, true);
            else if (name == "/load") load(rest);
            else {
                const std::string meant = closest(name, {kCommands.begin(), kCommands.end()});
                note("there is no " + name + (meant.empty() ? "; see /help." : ": did you mean " + meant + "?") +
                         " A space in front sends it as text.",
                     Look::warning);
            }
        } catch (const tinfer::Error& error) {
            note_error(error.what());
        }
        return true;
    }

    void regenerate() {
        if (!chat_.take_back()) return note("there is no answer yet", Look::warning);
        turn({}, true);
    }

    /// Takes the last answer and the user's message before it back, with calls and results in between.
    std::string undo() {
        if (!chat_.take_back()) return note("there is no answer yet", Look::warning), std::string();
        auto [before, question] = without_last_turn(parse_json(chat_.messages(), "the conversation"));
        chat_.set_messages(before.dump());
        return question;
    }

    void set(const std::string& text) {
        if (change_setting(text, options_, sampler_.seed())) sampler_ = tinfer::Sampler(model_.vocab(), options_);
    }

    void drop() {
        if (const auto kept = without_older_turns(parse_json(chat_.messages(), "the conversation")))
            chat_.set_messages(kept->dump());
    }

    /// `asks`: before it writes over a file.
    void save(const std::string& path, bool asks) {
        if (path.empty()) return note("/save needs the name of a file", Look::warning);
        std::error_code none;
        if (asks && std::filesystem::exists(path, none) &&
            !editor_->confirms(path + " is there already; write over it?")) {
            clear_interrupt();
            return note("nothing was written", Look::dim);
        }
        const std::string messages = chat_.messages();
        write_file(path,
                   path.ends_with(".json") ? messages + "\n" : markdown_of(parse_json(messages, "the conversation")));
        note("saved " + counted(chat_.n_messages(), "message") + " to " + path, Look::dim);
    }

    void load(const std::string& path) {
        if (path.empty()) return note("/load needs the name of a file", Look::warning);
        const std::string messages = read_messages(path);
        chat_.set_messages(messages);
        note("loaded " + counted(chat_.n_messages(), "message"), Look::dim);
        note(markdown_of(parse_json(messages, path)), Look::dim);
    }

    void keep_transcript() {
        if (!args_.transcript_file.empty()) save(args_.transcript_file, false);
    }

    void note_full() const {
        if (chat_.stop() == tinfer::StopReason::context)
            note("(the context is full: " + std::string(LineEditor::is_interactive() ? kWhenFull : kWhenFullHere) + ")",
                 Look::warning);
    }

    /// One turn. In an interactive chat an error ends the turn, not the conversation.
    void turn(const std::string& text, bool is_person) {
        const std::string before = chat_.messages();
        try {
            answer(text);
            if (!args_.as_json && !shown_.ends_with('\n')) print("\n");
            note_full();
            if (chat_.stop() == tinfer::StopReason::interrupt) note("(stopped)", Look::dim);
            if (chat_.stop() == tinfer::StopReason::limit) note("(the limit of -n is reached)", Look::dim);
        } catch (const tinfer::Error& error) {
            if (chat_.is_answering()) (void)chat_.end();
            chat_.set_messages(before);
            if (!is_person) throw;
            note_error(error.what());
            preset_ = text;  // it is not lost: it stands in the line again
        }
        if (is_person) clear_interrupt();
    }

    /// Adds the text as a message, unless it is empty, and shows the answer.
    void answer(const std::string& text) {
        if (!text.empty()) chat_.add({"user", text});
        shown_.clear();
        wrap_.reset();
        if (wraps_) wrap_.emplace(terminal_columns);
        constrain_calls(!text.empty());
        bool is_thinking = false;
        bool is_kept = false;
        while (const auto more = chat_.next(context_, sampler_)) {
            if (chat_.answer_n() > 0 && !std::exchange(is_kept, true))
                prompt_cache_.save(context_, chat_.cached(), false);
            show(*more, is_thinking);
            if (!interrupted() || !chat_.is_answering()) continue;
            auto last = chat_.end();
            for (std::string* part : {&last.content, &last.reasoning})  // a character that was cut is none
                while (part->ends_with("\uFFFD")) part->resize(part->size() - 3);
            show(last, is_thinking);
        }
        if (chat_.stop() == tinfer::StopReason::context && chat_.answer_n() == 0)
            throw tinfer::Error(tinfer::ErrorCode::no_room,
                                "the conversation has " + counted(chat_.prompt_n(), "token") +
                                    ", the context room for " + std::to_string(context_.options().n_ctx) + ": " +
                                    std::string(LineEditor::is_interactive() ? kWhenFull : kWhenFullHere));
        if (is_kept) prompt_cache_.save(context_, chat_.cached(), true);
        if (args_.as_json) print_line(document());
    }

    void show(const tinfer::ChatAnswer& more, bool& is_thinking) {
        if (args_.as_json) return;
        if (!more.reasoning.empty() && show_aside(more.reasoning)) is_thinking = true;
        if (!more.content.empty()) {
            if (std::exchange(is_thinking, false)) show_aside("\n\n");
            shown_ += more.content;
            print(wrap_ ? wrap_->add(more.content) : more.content);
        }
        for (const auto& call : more.tool_calls) {
            const std::string line =
                (shown_.empty() || shown_.ends_with('\n') ? "" : "\n") + call.name + "(" + call.arguments + ")\n";
            shown_ += line;
            print(line);
        }
    }

    Json document() const {
        const auto t = chat_.timings();
        Json out{{"text", chat_.answer().content}, {"tokens", ids_of(chat_.answer_tokens())}};
        if (!chat_.answer().reasoning.empty()) out["reasoning"] = chat_.answer().reasoning;
        if (!chat_.answer().tool_calls.empty()) {
            out["tool_calls"] = Json::array();
            for (const auto& call : chat_.answer().tool_calls)
                out["tool_calls"].push_back({{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
        }
        out["stop"] = tinfer::to_string(*chat_.stop());
        out["seed"] = sampler_.seed();
        out["reused_n"] = chat_.reused_n();
        out["drafted_n"] = t.drafted_n;
        out["accepted_n"] = t.accepted_n;
        out["gain"] = t.gain();
        out["shifts_n"] = chat_.shifts().n;
        out["timings"] = {{"load_s", model_.load_seconds()},
                          {"prompt_n", t.prompt_n},
                          {"prompt_s", t.prompt_s},
                          {"prompt_tps", number_or_null(tokens_per_second(t.prompt_n, t.prompt_s))},
                          {"generation_n", chat_.answer_n()},
                          {"generation_s", t.generation_s},
                          {"generation_tps", number_or_null(tokens_per_second(t.generation_n, t.generation_s))}};
        return out;
    }

    void statistics() const {
        const auto t = chat_.timings();
        const auto line = [](std::string text, double seconds, std::optional<double> per_second) {
            if (per_second) text += ", " + fixed(seconds, 3) + " s, " + fixed(*per_second, 1) + " t/s";
            note(text, Look::dim);
        };
        line("prompt      " + std::to_string(t.prompt_n) + " of " + counted(chat_.prompt_n(), "token"), t.prompt_s,
             tokens_per_second(t.prompt_n, t.prompt_s));
        line("generation  " + counted(chat_.answer_n(), "token"), t.generation_s,
             tokens_per_second(t.generation_n, t.generation_s));
        if (t.drafted_n > 0) note("drafts      " + drafts_text(t), Look::dim);
        note(context_line(model_, context_, chat_), Look::dim);
        note("seed        " + std::to_string(sampler_.seed()), Look::dim);
        if (chat_.stop()) note("stop        " + std::string(tinfer::to_string(*chat_.stop())), Look::dim);
    }

    const ChatArgs& args_;
    const tinfer::Model& model_;
    std::string tools_;                           ///< JSON; empty: none
    std::optional<tinfer::ChatTemplate> format_;  ///< of the calls
    bool constrains_calls_ = false;
    tinfer::Context context_;
    tinfer::Chat chat_;
    tinfer::Sampler sampler_;
    PromptCache prompt_cache_;
    tinfer::SamplerOptions options_;
    LineEditor* editor_ = nullptr;  ///< of loop()
    std::string shown_;             ///< of the current answer, on stdout
    std::string preset_;            ///< stands in the next line that is asked for
    std::optional<WordWrap> wrap_;  ///< of the current answer
    bool wraps_ = false;
};

int chat(const ChatArgs& args) {
    if (args.model.files.empty()) throw UsageError(no_model_text("chat"));
    args.grammar.read_early();
    if (args.grammar.given() && !args.tool_choice.empty())
        throw UsageError("--tool-choice and a grammar: one of them at most");
    (void)args.sampler.get();  // report errors before loading a model
    args.speculate.check();
    args.long_text.check();
    const std::string tools = read_tools(args.tools_file, args.tool_choice);
    const std::string messages = args.messages_file.empty() ? "" : read_messages(args.messages_file, "--messages");
    check_output(args.transcript_file, "--transcript", args.model.files);
    args.prompt_cache.check(args.model.files);
    const auto text = args.text.given() ? std::optional(args.text.read()) : std::nullopt;
    const auto model = args.model.load();
    if (args.prompt_cache.given()) args.model.know_all_of(model.file());
    Talk talk(args, model, tools, messages);
    return text ? talk.once(*text) : talk.loop();
}

}  // namespace

Action add_chat(CLI::App& app) {
    auto args = std::make_shared<ChatArgs>();
    auto* command =
        app.add_subcommand("chat", "Talks through the chat template of the file. With -p one answer; from a "
                                   "pipe every line is a turn.");
    args->text.add_to(*command);
    args->model.add_to(*command);
    const std::string group = "Conversation", more = rare(group);
    const auto add_file = [&](const char* name, std::string& file, const char* help, const std::string& title) {
        command->add_option(name, file, help)->type_name("FILE")->group(title);
    };
    command->add_option("--system", args->system, "system message")->type_name("TEXT")->group(group);
    add_file("--system-file", args->system_file, "system message from a file", more);
    add_file("--template", args->source_file, "Jinja source, or the name of a built-in format (chatml, llama3)", group);
    add_file("--tools", args->tools_file, "JSON array of tools that the model may call; calls are shown", group);
    command
        ->add_option("--tool-choice", args->tool_choice,
                     "auto: the model decides; none; required; or the name of the tool that it has to call")
        ->type_name("NAME")
        ->group(more);
    command->add_option("--reasoning-budget", args->reasoning_budget, "most tokens of thoughts; -1 = no limit")
        ->check(whole(-1, std::int64_t{1} << 40))
        ->type_name("N")
        ->group(more);
    add_file("--messages", args->messages_file, "JSON array of messages to begin with", more);
    add_file("--transcript", args->transcript_file, "write the conversation at the end: Markdown, or .json", group);
    command->add_flag("--no-thinking", args->no_thinking, "ask the template not to let the model think")->group(more);
    command->add_option("--input-prefix", args->prefix, "in front of each text of the user, in place of a template")
        ->type_name("TEXT")
        ->group(more);
    command->add_option("--input-suffix", args->suffix, "behind each text of the user, in place of a template")
        ->type_name("TEXT")
        ->group(more);
    const std::string generation = "Generation";
    command->add_option("-n,--predict", args->n_predict, "most tokens of an answer; -1 = until the model ends it")
        ->check(whole(-1, std::int64_t{1} << 40))
        ->type_name("N")
        ->group(generation);
    command->add_option("--stop", args->stops, "end an answer before this text; repeatable")
        ->allow_extra_args(false)
        ->check(not_empty())
        ->type_name("TEXT")
        ->group(generation);
    command->add_flag("--no-history", args->no_history, "do not keep what is typed for other conversations")
        ->group(more);
    command->add_flag("--json", args->as_json, "one JSON document per answer instead of text")->group(generation);
    args->context.add_to(*command);
    args->adapters.add_to(*command);
    args->context.add_threads_to(*command);
    args->speculate.add_to(*command);
    args->long_text.add_to(*command);
    command->get_option("--context-shift")->group(rare("Long texts"));
    args->sampler.add_to(*command);
    args->grammar.add_to(*command);
    args->prompt_cache.add_to(*command);
    command->footer("\nExamples:\n  tinfer chat model.gguf\n"
                    "  tinfer chat model.gguf --system 'Answer in one sentence.' -p 'Why is the sky blue?'");
    return [args] { return chat(*args); };
}

}  // namespace tinfer::app
