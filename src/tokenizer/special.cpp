// SPDX-License-Identifier: MIT
#include "tokenizer/special.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

namespace tinfer::tokenizer {

namespace {

constexpr std::string_view kEotTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
    "<｜end▁of▁sentence｜>", "<end_of_utterance>",
};
constexpr std::string_view kEomTexts[] = {"<|eom_id|>"};
constexpr std::string_view kFimPreTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>",
};
constexpr std::string_view kFimSufTexts[] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>",
};
constexpr std::string_view kFimMidTexts[] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>",
};
constexpr std::string_view kFimPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSepTexts[] = {"<|file_sep|>"};

struct WellKnown {
    std::int32_t SpecialIds::*id;
    std::span<const std::string_view> texts;   ///< the first that the vocabulary has wins
};
constexpr WellKnown kWellKnown[] = {
    {&SpecialIds::eot, kEotTexts},         {&SpecialIds::eom, kEomTexts},         {&SpecialIds::fim_pre, kFimPreTexts},
    {&SpecialIds::fim_suf, kFimSufTexts},  {&SpecialIds::fim_mid, kFimMidTexts},  {&SpecialIds::fim_pad, kFimPadTexts},
    {&SpecialIds::fim_rep, kFimRepTexts},  {&SpecialIds::fim_sep, kFimSepTexts},
};

constexpr std::string_view kEogTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>",
    "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "<|return|>", "<|call|>", "<|flush|>",
    "<|calls|>", "<eos>", "<turn|>", "<|tool_response>", "</s>",
};

// Channel marks of harmony-style templates: they must show even where control tokens do not.
constexpr std::string_view kChannelTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// The token's type becomes CONTROL, whatever the file calls it.
void mark_control(std::uint16_t& attr) {
    if ((attr & TokenAttr::control) == 0) attr = TokenAttr::control;
}

// The texts, attributes and sets that the rules below read and write.
struct SpecialRules {
    const TextIndex& texts;
    std::vector<std::uint16_t>& attrs;
    SpecialIds& ids;
    std::vector<std::int32_t> eog{};

    std::uint16_t& attr(std::int32_t id) { return attrs[static_cast<std::size_t>(id)]; }

    void detect_ids() {
        for (const WellKnown& row : kWellKnown)
            for (const std::string_view text : row.texts) {
                if (ids.*row.id != kNoToken) break;
                if (const std::int32_t id = texts.find(text); id != kNoToken) {
                    ids.*row.id = id;
                    mark_control(attr(id));
                }
            }
    }

    void collect_eog() {
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const std::string_view text = texts[i];
            if (text.size() > 32 || (text[0] != '<' && text[0] != '_' && text[0] != '[')) continue;
            if (std::ranges::find(kEogTexts, text) == std::end(kEogTexts)) continue;
            eog.push_back(static_cast<std::int32_t>(i));
            // Models that list </s> as USER_DEFINED (phi-3) want it cut out of every input and shown.
            if (text != "</s>" || (attrs[i] & TokenAttr::user_defined) == 0) mark_control(attrs[i]);
        }
        for (const std::int32_t id : {ids.fim_pad, ids.fim_rep, ids.fim_sep, ids.eos, ids.eot, ids.eom})
            if (id != kNoToken) eog.push_back(id);
        std::ranges::sort(eog);
        eog.erase(std::unique(eog.begin(), eog.end()), eog.end());
    }

    [[nodiscard]] bool ends_with_text(std::string_view text) const {
        return std::ranges::any_of(eog, [&](std::int32_t id) { return texts[static_cast<std::size_t>(id)] == text; });
    }
    void remove_eog(std::string_view text, std::uint32_t new_attr) {
        std::erase_if(eog, [&](std::int32_t id) {
            if (texts[static_cast<std::size_t>(id)] != text) return false;
            attr(id) = static_cast<std::uint16_t>(new_attr);
            return true;
        });
    }

    void correct_eog() {
        const bool calls = ends_with_text("<|call|>") || ends_with_text("<|calls|>");
        if (calls && (ends_with_text("<|return|>") || ends_with_text("<|flush|>")))
            remove_eog("<|end|>", TokenAttr::user_defined);   // separates channels, does not end the turn
        for (const std::string_view text : kChannelTexts)
            if (const std::int32_t id = texts.find(text); id != kNoToken) attr(id) = TokenAttr::user_defined;
        if (ends_with_text("<|tool_response>") && ends_with_text("</s>")) remove_eog("</s>", TokenAttr::normal);
        for (std::size_t i = 0; i < texts.size(); ++i)
            if ((attrs[i] & TokenAttr::control) != 0 && texts[i].find("unused") != std::string_view::npos)
                attrs[i] |= TokenAttr::unused;
    }

    void set_by_text(std::string_view text, std::uint32_t on, std::uint32_t off = 0) {
        if (const std::int32_t id = texts.find(text); id != kNoToken)
            attr(id) = static_cast<std::uint16_t>((attr(id) | on) & ~off);
    }

    // Stripping around tokens has no key in the format; these models are known by name.
    void apply_model_rules(const ModelNames& names) {
        std::string name(names.general_name);
        std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        const auto named = [&](std::string_view part) { return name.find(part) != name.npos; };
        const auto pre = [&](std::string_view part) { return names.pretokenizer.find(part) != std::string_view::npos; };

        if (named("phi-3") || named("phi3")) {
            for (std::uint16_t& each : attrs)
                if ((each & (TokenAttr::control | TokenAttr::user_defined | TokenAttr::unknown)) != 0) each |= TokenAttr::rstrip;
            set_by_text("</s>", TokenAttr::rstrip);
            for (const std::string_view text : {"<unk>", "<s>", "<|endoftext|>"}) set_by_text(text, 0, TokenAttr::rstrip);
        }
        if (pre("jina-v2-de") || pre("jina-v2-es") || pre("jina-v2-code") || names.architecture == "nomic-bert-moe" ||
            names.architecture == "jina-bert-v3")
            set_by_text("<mask>", TokenAttr::lstrip);
        if (named("modern-bert")) set_by_text("[MASK]", TokenAttr::lstrip);
    }
};

constexpr bool is_strippable(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::vector<std::int32_t> derive_special_tokens(const TextIndex& texts, std::vector<std::uint16_t>& attrs, SpecialIds& ids,
                                                const ModelNames& names) {
    SpecialRules rules{texts, attrs, ids};
    rules.detect_ids();
    rules.collect_eog();
    rules.correct_eog();
    rules.apply_model_rules(names);
    return std::move(rules.eog);
}

void SpecialMatcher::build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs) {
    constexpr std::uint32_t kSpecial = TokenAttr::control | TokenAttr::user_defined | TokenAttr::unknown;
    for (std::size_t id = 0; id < texts.size(); ++id)
        if ((attrs[id] & kSpecial) != 0) entries_.push_back({texts[id], static_cast<std::int32_t>(id), attrs[id]});
    std::ranges::stable_sort(entries_, [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });

    sorted_.resize(entries_.size());
    std::iota(sorted_.begin(), sorted_.end(), 0u);
    std::ranges::sort(sorted_, {}, [&](std::uint32_t i) { return entries_[i].text; });
    for (const Entry& entry : entries_) ++first_[static_cast<unsigned char>(entry.text[0]) + 1u];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

// Which entries occur anywhere. Only those are searched for one by one, so thousands of reserved tokens cost nothing.
void SpecialMatcher::find_present(std::string_view text, Scratch& scratch) const {
    scratch.special_present.assign(entries_.size(), 0);
    scratch.special_hits.clear();
    std::array<std::uint32_t, 256> unseen{};   // entries of each first byte that have not been met yet
    for (std::size_t byte = 0; byte < 256; ++byte) unseen[byte] = first_[byte + 1] - first_[byte];
    for (std::size_t i = 0; i < text.size(); ++i)
        if (unseen[static_cast<unsigned char>(text[i])] != 0) mark_matches(text.substr(i), unseen, scratch);
    std::ranges::sort(scratch.special_hits);
}

// Walks the sorted entries like a trie: after k bytes [low, high) holds those that begin with the first k bytes of `rest`.
void SpecialMatcher::mark_matches(std::string_view rest, std::array<std::uint32_t, 256>& unseen, Scratch& scratch) const {
    const auto first = static_cast<unsigned char>(rest[0]);
    auto low = sorted_.begin() + first_[first], high = sorted_.begin() + first_[first + 1u];
    for (std::size_t k = 1; low != high; ++k) {
        for (; low != high && entries_[*low].text.size() == k; ++low) {
            if (scratch.special_present[*low] != 0) continue;
            scratch.special_present[*low] = 1;
            scratch.special_hits.push_back(*low);
            --unseen[first];
        }
        if (k == rest.size()) return;
        const auto byte = static_cast<unsigned char>(rest[k]);
        const auto byte_of = [&](std::uint32_t i) { return static_cast<unsigned char>(entries_[i].text[k]); };
        low = std::lower_bound(low, high, byte, [&](std::uint32_t i, unsigned char b) { return byte_of(i) < b; });
        high = std::upper_bound(low, high, byte, [&](unsigned char b, std::uint32_t i) { return b < byte_of(i); });
    }
}

void SpecialMatcher::partition(std::string_view text, bool parse_special, Scratch& scratch) const {
    std::vector<Fragment>& fragments = scratch.fragments;
    fragments.clear();
    if (text.empty()) return;
    fragments.push_back({0, text.size()});
    find_present(text, scratch);

    for (const std::uint32_t hit : scratch.special_hits) {
        const Entry& entry = entries_[hit];
        if (!parse_special && (entry.attr & TokenAttr::user_defined) == 0) continue;
        scratch.fragments_next.clear();
        const auto keep = [&](std::size_t begin, std::size_t end) {
            if (begin < end) scratch.fragments_next.push_back({begin, end});
        };
        for (const Fragment& fragment : fragments) {
            if (fragment.special != kNoToken) {
                scratch.fragments_next.push_back(fragment);
                continue;
            }
            std::size_t begin = fragment.begin;
            const std::string_view within = text.substr(0, fragment.end);
            for (std::size_t at; (at = within.find(entry.text, begin)) != within.npos;) {
                std::size_t left_end = at;
                if ((entry.attr & TokenAttr::lstrip) != 0)
                    while (left_end > begin && is_strippable(text[left_end - 1])) --left_end;
                keep(begin, left_end);
                begin = at + entry.text.size();
                scratch.fragments_next.push_back({at, begin, entry.id});
                if ((entry.attr & TokenAttr::rstrip) != 0)
                    while (begin < fragment.end && is_strippable(text[begin])) ++begin;
            }
            keep(begin, fragment.end);
        }
        fragments.swap(scratch.fragments_next);
    }
}

}  // namespace tinfer::tokenizer
