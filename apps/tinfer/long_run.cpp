// SPDX-License-Identifier: MIT
#include "long_run.hpp"

#include <algorithm>
#include <charconv>

#include "common.hpp"
#include "model_names.hpp"

namespace tinfer::app {

std::shared_ptr<const tinfer::DraftHead> find_draft_head(const tinfer::Model& model, const std::string& file,
                                                         bool no_own, const tinfer::LogSink& log) {
    if (!file.empty()) return tinfer::DraftHead::load(model, file);
    if (no_own || !tinfer::DraftHead::is_in(model)) return nullptr;
    try {
        return tinfer::DraftHead::of(model);
    } catch (const tinfer::Error& error) {
        if (log) log(tinfer::LogLevel::warning, std::string("its draft blocks are not used: ") + error.what());
        return nullptr;
    }
}

bool is_draft_head(const std::string& file) {
    return !file.empty() && tinfer::DraftHead::is_head(tinfer::ModelFile::open(file));
}

void add_draft_options(CLI::App& command, const std::string& group, std::string& kind, std::string& draft_file,
                       int& draft_max, bool& no_own) {
    const std::string more = rare(group);
    command.add_option("--speculate", kind, "drafts: off, ngram, draft; auto: the model's own")
        ->check(one_of({"auto", "off", "ngram", "draft"}))
        ->type_name("HOW")
        ->group(group);
    takes_model(command.add_option("--draft", draft_file,
                                   "a draft head made for the model, or a smaller model of its vocabulary"),
                draft_file)
        ->type_name("FILE")
        ->group(more);
    command.add_option("--draft-max", draft_max, "most tokens of a draft")
        ->check(whole(1, 63))
        ->type_name("N")
        ->group(more);
    command.add_flag("--no-draft", no_own, "blocks of the model that draft are not used")->group(more);
}

void SpeculateArgs::add_to(CLI::App& command) {
    add_draft_options(command, "Speculation", kind, draft_file, draft_max, no_own);
}

void SpeculateArgs::check() const {
    if (kind == "draft" && draft_file.empty()) throw UsageError("--speculate draft needs --draft FILE");
    if ((kind == "off" || kind == "ngram") && !draft_file.empty()) throw UsageError("--draft needs --speculate draft");
}

void SpeculateArgs::apply_to(tinfer::ContextOptions& options, const tinfer::Model& target) const {
    if (kind != "off" && !target.info().has_encoder)
        options.draft_head = find_draft_head(target, is_draft_head(draft_file) ? draft_file : std::string(),
                                             no_own || !draft_file.empty(), options.log);
    if (is_on() || options.draft_head != nullptr) options.n_outputs = std::max(options.n_outputs, draft_max + 1);
}

tinfer::SpeculationOptions SpeculateArgs::get(const tinfer::Model& target,
                                              const tinfer::ContextOptions& context) const {
    tinfer::SpeculationOptions options;
    options.n_max = draft_max;
    if (kind == "ngram") options.drafter = tinfer::ngram_drafter();
    if (draft_file.empty() || context.draft_head != nullptr) return options;
    tinfer::ModelDrafterOptions draft;
    draft.context.n_ctx = context.n_ctx;
    draft.context.n_threads = context.n_threads;
    draft.context.n_threads_batch = context.n_threads_batch;
    draft.context.isa = context.isa;
    draft.context.cancel = context.cancel;
    draft.context.log = context.log;
    options.drafter = tinfer::model_drafter(target, tinfer::Model::load(draft_file), draft);
    return options;
}

void LongTextArgs::add_to(CLI::App& command) {
    const std::string group = "Long texts";
    command
        .add_flag("--context-shift", shifts,
                  "a full context drops half of what is behind the first --keep tokens and goes on, at a loss")
        ->group(group);
    command.add_option("--keep", keep, "first tokens that a shift keeps; -1 = the prompt")
        ->check(whole(-1))
        ->type_name("N")
        ->group(rare(group));
    command
        .add_option("--self-extend", extend,
                    "texts up to G times as long as trained: far positions in groups of G, W tokens at a time")
        ->type_name("G,W")
        ->group(rare(group));
}

void LongTextArgs::check() const {
    if (keep != 0 && !shifts) throw UsageError("--keep needs --context-shift");
    const auto groups = self_extend();
    if (groups && groups->group > 1 && shifts) throw UsageError("--self-extend and --context-shift do not go together");
}

std::optional<tinfer::ContextShift> LongTextArgs::shift() const {
    return shifts ? std::optional(tinfer::ContextShift{.keep = keep}) : std::nullopt;
}

std::optional<tinfer::SelfExtend> LongTextArgs::self_extend() const {
    if (extend.empty()) return std::nullopt;
    tinfer::SelfExtend groups;
    const char* const end = extend.data() + extend.size();
    const auto group = std::from_chars(extend.data(), end, groups.group);
    if (group.ec == std::errc() && group.ptr != end && *group.ptr == ',') {
        const auto width = std::from_chars(group.ptr + 1, end, groups.width);
        if (width.ec == std::errc() && width.ptr == end && groups.group > 0 && groups.width > 0 &&
            groups.width % groups.group == 0)
            return groups;
    }
    throw UsageError("--self-extend '" + extend + "': two numbers G,W are expected, W a multiple of G");
}

std::string drafts_text(const tinfer::Timings& timings) {
    if (timings.drafted_n == 0) return {};
    return std::to_string(timings.accepted_n) + " of " + std::to_string(timings.drafted_n) +
           " drafted tokens accepted, " + fixed(timings.gain(), 2) + " x as fast";
}

}  // namespace tinfer::app
