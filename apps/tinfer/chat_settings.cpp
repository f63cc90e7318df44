// SPDX-License-Identifier: MIT
#include "chat_settings.hpp"

#include <tinfer/sampling.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "common.hpp"

namespace tinfer::app {

namespace {

std::string filled(std::string_view name) {
    return std::string(name) + std::string(name.size() < 20 ? 20 - name.size() : 1, ' ');
}

void list_settings(const tinfer::SamplerOptions& options, std::uint32_t seed) {
    for (const auto& field : tinfer::sampler_fields())
        if (field.is_common)
            std::visit(
                [&](auto member) {
                    note(filled(field.name) + fixed(double(options.*member), field.is_whole() ? 0 : 3) + "   " +
                         std::string(field.help));
                },
                field.member);
    note(filled("seed") + std::to_string(seed));
}

void refuse_name(const std::string& name) {
    std::vector<std::string> known{"seed"};
    for (const auto& field : tinfer::sampler_fields()) known.emplace_back(field.name);
    const std::string meant = closest(name, known);
    note("there is nothing named " + name + " to set" +
             (meant.empty() ? "; /set alone lists it" : ": did you mean " + meant + "?"),
         Look::warning);
}

void refuse_value(const std::string& name, bool is_whole, const tinfer::SamplerField::Bounds& bounds) {
    const int digits = is_whole ? 0 : 2;
    note(name + " takes a " + (is_whole ? "whole " : "") + "number" +
             (std::isfinite(bounds.least) ? " from " + fixed(bounds.least, digits) : "") +
             (bounds.most < 1e9 ? " to " + fixed(bounds.most, digits) : "") + ", as in /set temp 0.7",
         Look::warning);
}

}  // namespace

bool change_setting(const std::string& text, tinfer::SamplerOptions& options, std::uint32_t seed) {
    const auto space = std::min(text.find(' '), text.size());
    std::string name = text.substr(0, space);
    std::ranges::replace(name, '-', '_');
    if (name.empty()) return list_settings(options, seed), false;
    const std::string given = text.substr(std::min(text.find_first_not_of(' ', space), text.size()));
    char* rest = nullptr;
    const double value = std::strtod(given.c_str(), &rest);
    const bool is_number = !given.empty() && *rest == '\0' && std::isfinite(value);
    const auto fields = tinfer::sampler_fields();
    const auto field = std::ranges::find(fields, name, &tinfer::SamplerField::name);
    const bool is_seed = name == "seed";
    if (field == fields.end() && !is_seed) return refuse_name(name), false;
    const auto bounds = is_seed ? tinfer::SamplerField::Bounds{0, 4294967294.0} : field->bounds;
    const bool is_whole = is_seed || field->is_whole();
    if (!is_number || value < bounds.least || value > bounds.most || (is_whole && value != std::floor(value)) ||
        (is_whole && !is_seed && std::abs(value) > std::numeric_limits<int>::max()) ||
        (!is_seed && field->excludes_least && value == bounds.least))
        return refuse_value(name, is_whole, bounds), false;
    if (is_seed) options.seed = static_cast<std::uint32_t>(value);
    else
        std::visit([&](auto member) { options.*member = static_cast<std::decay_t<decltype(options.*member)>>(value); },
                   field->member);
    note(name + " is " + given + " from here on", Look::dim);
    return true;
}

std::optional<tinfer::Json> without_older_turns(const tinfer::Json& messages) {
    std::vector<std::size_t> turns;  // where each begins
    for (std::size_t i = 0; i < messages.size(); ++i)
        if (messages[i].text("role") == "user") turns.push_back(i);
    if (turns.size() < 2) {
        note("there is no turn to drop but the last one: /reset begins anew", Look::warning);
        return std::nullopt;
    }
    const std::size_t n = (turns.size() + 1) / 2, end = n < turns.size() ? turns[n] : messages.size();
    Json kept = Json::array();
    for (std::size_t i = 0; i < messages.size(); ++i)
        if (i < turns[0] || i >= end) kept.push_back(messages[i]);
    note("dropped the oldest " + counted(n, "turn") + "; " + counted(turns.size() - n, "turn") + " left", Look::dim);
    return kept;
}

std::pair<tinfer::Json, std::string> without_last_turn(const tinfer::Json& messages) {
    std::size_t n = messages.size();
    while (n > 0 && messages[n - 1].text("role") != "user") --n;
    std::string question(n > 0 ? messages[n - 1].text("content") : "");
    if (n > 0) note("took back: " + question, Look::dim);
    Json before = Json::array();
    for (std::size_t i = 0; i + 1 < n; ++i) before.push_back(messages[i]);
    return {std::move(before), std::move(question)};
}

std::string greeting(const tinfer::Model& model, const tinfer::Context& context) {
    const auto& info = model.info();
    return (info.name.empty() ? info.architecture : info.name) + ", a context of " +
           counted(static_cast<std::uint64_t>(context.options().n_ctx), "token");
}

std::string context_line(const tinfer::Model& model, const tinfer::Context& context, const tinfer::Chat& chat) {
    const std::size_t used = context.used();
    std::string line = "context     " + std::to_string(used) + " of " +
                       counted(static_cast<std::uint64_t>(context.options().n_ctx), "token");
    std::size_t now = used;
    try {
        now = chat.n_messages() > 0 ? tinfer::encode(model.vocab(), chat.render(false)).tokens.size() : 0;
    } catch (const tinfer::Error&) {  // the template refuses it as it is: the next turn says why
    }
    if (now < used) line += "; " + std::to_string(now) + " once the conversation goes on";
    return line;
}

LineEditor::Got read_turn(LineEditor& editor, const std::string& preset, std::string& text) {
    std::string line;
    auto got = editor.read("> ", line, preset);
    if (got != LineEditor::Got::line || !LineEditor::is_interactive()) {
        text = std::move(line);
        return got;
    }
    constexpr std::string_view kQuotes = "\"\"\"";
    if (line.starts_with(kQuotes)) {
        text = line.substr(kQuotes.size());
        while (!text.ends_with(kQuotes)) {
            got = editor.read(". ", line);
            if (got != LineEditor::Got::line) return got;
            text += (text.empty() ? "" : "\n") + line;
        }
        text.resize(text.size() - kQuotes.size());
        while (text.ends_with('\n')) text.pop_back();
        return got;
    }
    while (line.ends_with('\\') && line.find('\n') == line.npos) {
        line.pop_back();
        text += line + "\n";
        got = editor.read(". ", line);
        if (got != LineEditor::Got::line) return got;
    }
    text += line;
    return got;
}

std::filesystem::path history_file() {
    const auto variable = [](const char* name) {
        const char* const value = std::getenv(name);
        return std::filesystem::path(value != nullptr ? value : "");
    };
    if (const auto folder = variable("XDG_STATE_HOME"); folder.is_absolute()) return folder / "tinfer" / "history";
    if (const auto home = variable("HOME"); home.is_absolute()) return home / ".local" / "state" / "tinfer" / "history";
    return {};
}

}  // namespace tinfer::app
