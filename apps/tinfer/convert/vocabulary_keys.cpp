// SPDX-License-Identifier: MIT
// Keys of a vocabulary: special ids by the texts and numbers of several files, flags by the post-processor, templates.
#include <tinfer/text.hpp>

#include <algorithm>
#include <unordered_map>

#include "convert/checkpoint_json.hpp"
#include "convert/config.hpp"
#include "convert/vocabulary.hpp"

namespace tinfer::convert {

namespace fs = std::filesystem;

namespace {

struct Role {
    std::string_view name, written;  ///< "unk", "unknown"
};
constexpr Role kRoles[] = {{"bos", "bos"},     {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"},  // sic
                           {"pad", "padding"}, {"cls", "cls"}, {"mask", "mask"}};
/// Of tokenizers whose files do not say them.
constexpr std::pair<std::string_view, std::string_view> kBertTexts[] = {
    {"unk", "[UNK]"}, {"sep", "[SEP]"}, {"pad", "[PAD]"}, {"cls", "[CLS]"}, {"mask", "[MASK]"}};

class KeyWriter {
public:
    KeyWriter(const Vocabulary& vocabulary, const TokenizerFiles& files, const Json& config, Metadata& metadata,
              std::vector<std::string>& notes)
        : vocabulary_(vocabulary), files_(files), config_(config), metadata_(metadata), notes_(notes) {
        // Added tokens count first, then the one that comes first.
        for (const bool added : {true, false})
            for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
                const std::int32_t type = vocabulary.tokens[id].type;
                if ((type == kControl || type == kUserDefined || type == kUnknown) == added)
                    ids_.emplace(vocabulary.tokens[id].text, static_cast<std::uint32_t>(id));
            }
    }

    void write() {
        set("model", vocabulary_.model);
        if (!vocabulary_.pretokenizer.empty()) set("pre", vocabulary_.pretokenizer);
        write_tokens();
        write_special_ids();
        write_more_ends();
        write_flags();
        if (vocabulary_.has_scores()) set("add_space_prefix", vocabulary_.add_space_prefix.value_or(true));
        if (vocabulary_.model == "t5") {
            set("remove_extra_whitespaces", vocabulary_.remove_extra_whitespaces.value_or(false));
            if (!vocabulary_.character_map.empty())
                set("precompiled_charsmap",
                    std::vector<std::uint8_t>(vocabulary_.character_map.begin(), vocabulary_.character_map.end()));
        }
        write_templates();
    }

private:
    void set(std::string_view key, Value value) {
        metadata_.emplace_back(cat("tokenizer.ggml.", key), std::move(value));
    }

    [[nodiscard]] const Json& tokenizer_config(std::string_view key) const {
        static const Json kNothing;
        return files_.tokenizer_config ? std::as_const(*files_.tokenizer_config)[key] : kNothing;
    }

    void write_tokens() {
        std::vector<std::string> texts;
        std::vector<float> scores;
        std::vector<std::int32_t> types;
        for (const TokenText& token : vocabulary_.tokens) {
            texts.push_back(token.text);
            scores.push_back(token.score);
            types.push_back(token.type);
        }
        set("tokens", std::move(texts));
        if (vocabulary_.has_scores()) set("scores", std::move(scores));
        set("token_type", std::move(types));
        if (vocabulary_.model == "gpt2") set("merges", vocabulary_.merges);
    }

    [[nodiscard]] std::optional<std::uint32_t> id_of_text(std::string_view text) const {
        const auto found = ids_.find(text);
        return found == ids_.end() ? std::nullopt : std::optional(found->second);
    }

    /// nullopt, with a note, for an id that no token has.
    [[nodiscard]] std::optional<std::uint32_t> checked(std::uint64_t id, std::string_view what) {
        if (id < vocabulary_.tokens.size()) return static_cast<std::uint32_t>(id);
        notes_.push_back(cat(what, " is ", id, " of ", vocabulary_.tokens.size(), " tokens and is left out"));
        return std::nullopt;
    }

    [[nodiscard]] std::optional<std::uint32_t> find_id(std::string_view role) {
        const Json& token = tokenizer_config(cat(role, "_token"));
        const std::string_view text = token.is_string() ? std::string_view(token.string()) : token.text("content");
        if (!text.empty())
            if (const auto id = id_of_text(text)) return id;
        const std::string key = cat(role, "_token_id");
        const Json* number = config_.find(key);
        if (number != nullptr && number->is_array() && !number->empty()) number = &(*number)[0];
        if (number != nullptr && !number->is_null() && !number->is_array()) {
            if (const auto id = whole_number(*number)) return checked(*id, cat("config.json: '", key, "'"));
            notes_.push_back(cat("config.json: '", key, "' is ", shown(number->dump()), " and is left out"));
        }
        if (const auto found = vocabulary_.trainer_ids.find(role); found != vocabulary_.trainer_ids.end())
            return checked(static_cast<std::uint64_t>(found->second), cat("the tokenizer's ", role));
        if (vocabulary_.model == "bert")
            for (const auto& [name, usual] : kBertTexts)
                if (name == role) return id_of_text(usual);
        return std::nullopt;
    }

    void write_special_ids() {
        for (const Role& role : kRoles)
            if (const auto id = find_id(role.name)) special_[role.name] = *id;
        if (vocabulary_.model == "bert") {
            if (special_.contains("cls")) special_.emplace("bos", special_["cls"]);
            if (special_.contains("sep")) special_.emplace("eos", special_["sep"]);
        }
        for (const Role& role : kRoles)
            if (special_.contains(role.name)) set(cat(role.written, "_token_id"), special_[role.name]);
    }

    /// Ends of an answer that generation_config.json has beside eos, and that are not known by their texts.
    void write_more_ends() {
        if (!files_.generation_config) return;
        const Json& ends = std::as_const(*files_.generation_config)["eos_token_id"];
        std::vector<std::uint32_t> more;
        for (const Json& end : ends) {
            const auto number = whole_number(end);
            const auto id = number ? checked(*number, "generation_config.json: 'eos_token_id'") : std::nullopt;
            if (!id || (special_.contains("eos") && special_["eos"] == *id)) continue;
            if (!ends_answers(vocabulary_.tokens[*id].text) && std::ranges::find(more, *id) == more.end())
                more.push_back(*id);
        }
        if (!more.empty()) set("eot_token_id", more[0]);
        if (more.size() > 1) set("eom_token_id", more[1]);
        if (more.size() > 2)
            notes_.push_back(
                cat("generation_config.json: ", more.size() - 2, " of the ends in 'eos_token_id' are left out"));
    }

    struct Flags {
        bool bos = false, eos = false, sep = false;
    };

    [[nodiscard]] bool is_role(const Json& item, std::initializer_list<std::string_view> roles) const {
        const Json& token = item["SpecialToken"];
        const auto id = id_of_text(token.text("id"));
        return id && std::ranges::any_of(roles, [&](std::string_view role) {
                   const auto found = special_.find(role);
                   return found != special_.end() && found->second == *id;
               });
    }

    void read_processor(const Json& processor, Flags& flags) const {
        const std::string_view type = processor.text("type");
        if (type == "Sequence") {
            for (const Json& inner : processor["processors"]) read_processor(inner, flags);
        } else if (type == "TemplateProcessing") {
            const Json& single = processor["single"];
            if (!single.is_array() || single.empty()) return;
            flags.bos = flags.bos || is_role(single[0], {"bos", "cls"});
            flags.eos = flags.eos || (single.size() > 1 && is_role(single[single.size() - 1], {"eos", "sep"}));
        } else if (type == "RobertaProcessing") {
            flags.bos = flags.eos = flags.sep = true;
        } else if (type == "BertProcessing") {
            flags.bos = flags.eos = true;
        }
    }

    void write_flags() {
        if (vocabulary_.model == "bert") return;
        Flags flags{.bos = vocabulary_.model == "llama", .eos = vocabulary_.model == "t5"};
        const Json* processor = files_.tokenizer ? files_.tokenizer->find("post_processor") : nullptr;
        if (processor != nullptr && processor->is_object()) {
            flags = {};
            read_processor(*processor, flags);
        } else {
            const auto given = [&](std::string_view key, bool& flag) {
                if (const Json& value = tokenizer_config(key); value.is_boolean()) flag = value.boolean();
            };
            given("add_bos_token", flags.bos);
            given("add_eos_token", flags.eos);
        }
        if (flags.bos && !special_.contains("bos") && special_.contains("cls")) set("bos_token_id", special_["cls"]);
        else if (flags.bos && !special_.contains("bos")) flags.bos = false, note_no("bos");
        if (flags.eos && !special_.contains("eos") && special_.contains("sep")) set("eos_token_id", special_["sep"]);
        else if (flags.eos && !special_.contains("eos")) flags.eos = false, note_no("eos");
        set("add_bos_token", flags.bos);
        set("add_eos_token", flags.eos);
        if (flags.sep) set("add_sep_token", true);
    }

    void note_no(std::string_view role) {
        notes_.push_back(cat("no ", role, " token is added to texts: there is none"));
    }

    void write_template(std::string_view name, std::string text, std::vector<std::string>& names) {
        if (name == "default") {
            metadata_.emplace_back("tokenizer.chat_template", std::move(text));
            return;
        }
        names.emplace_back(name);
        metadata_.emplace_back(cat("tokenizer.chat_template.", name), std::move(text));
    }

    void write_template_value(const Json& value, std::vector<std::string>& names) {
        if (value.is_string()) write_template("default", value.string(), names);
        for (const Json& entry : value)
            if (entry["name"].is_string() && entry["template"].is_string())
                write_template(entry.text("name"), entry["template"].string(), names);
    }

    void write_templates() {
        std::vector<std::string> names;
        std::error_code error;
        const fs::path main = files_.folder / "chat_template.jinja", more = files_.folder / "additional_chat_templates";
        if (fs::exists(main, error)) {
            write_template("default", read_bytes(main, kMaxConfigBytes), names);
            write_more_templates(more, names);
        } else if (!tokenizer_config("chat_template").is_null()) {
            write_template_value(tokenizer_config("chat_template"), names);
        } else if (const auto json = find_json(files_.folder, "chat_template.json")) {
            write_template_value(std::as_const(*json)["chat_template"], names);
        }
        if (!names.empty()) metadata_.emplace_back("tokenizer.chat_templates", std::move(names));
    }

    void write_more_templates(const fs::path& folder, std::vector<std::string>& names) {
        std::error_code error;
        std::vector<fs::path> paths;
        for (const auto& entry : fs::directory_iterator(folder, error))
            if (entry.path().extension() == ".jinja") paths.push_back(entry.path());
        std::ranges::sort(paths);
        for (const fs::path& path : paths)
            write_template(path.stem().string(), read_bytes(path, kMaxConfigBytes), names);
    }

    const Vocabulary& vocabulary_;
    const TokenizerFiles& files_;
    const Json& config_;
    Metadata& metadata_;
    std::vector<std::string>& notes_;
    std::unordered_map<std::string_view, std::uint32_t> ids_;
    std::map<std::string_view, std::uint32_t> special_;
};

}  // namespace

void write_vocabulary(const Vocabulary& vocabulary, const TokenizerFiles& files, const Json& config, Metadata& metadata,
                      std::vector<std::string>& notes) {
    KeyWriter(vocabulary, files, config, metadata, notes).write();
    notes.insert(notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
}

}  // namespace tinfer::convert
