// SPDX-License-Identifier: MIT
#include "tokenizer/special.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

namespace tinfer::tokenizer {

namespace {

constexpr std::string_view kEotTexts[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>",         "<|endoftext|>",      "<|end_of_text|>",
    "<EOT>",      "_<EOT>",     "[EOT]",   "<｜end▁of▁sentence｜>", "<end_of_utterance>",
};
constexpr std::string_view kEomTexts[] = {"<|eom_id|>"};
constexpr std::string_view kFimPreTexts[] = {
    "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",    "<｜fim▁begin｜>",
    "<PRE>",          "▁<PRE>",       "<|code_prefix|>", "<|prefix|>",
};
constexpr std::string_view kFimSufTexts[] = {
    "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",    "<｜fim▁hole｜>",
    "<SUF>",          "▁<SUF>",       "<|code_suffix|>", "<|suffix|>",
};
constexpr std::string_view kFimMidTexts[] = {
    "<|fim_middle|>", "<fim-middle>", "<fim_middle>",    "<｜fim▁end｜>",
    "<MID>",          "▁<MID>",       "<|code_middle|>", "<|middle|>",
};
constexpr std::string_view kFimPadTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kFimRepTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"};
constexpr std::string_view kFimSepTexts[] = {"<|file_sep|>"};

struct WellKnown {
    std::int32_t SpecialIds::*id;
    std::span<const std::string_view> texts;  ///< the first that the vocabulary has wins
};
constexpr WellKnown kWellKnown[] = {
    {&SpecialIds::eot, kEotTexts},        {&SpecialIds::eom, kEomTexts},        {&SpecialIds::fim_pre, kFimPreTexts},
    {&SpecialIds::fim_suf, kFimSufTexts}, {&SpecialIds::fim_mid, kFimMidTexts}, {&SpecialIds::fim_pad, kFimPadTexts},
    {&SpecialIds::fim_rep, kFimRepTexts}, {&SpecialIds::fim_sep, kFimSepTexts},
};

constexpr std::string_view kEogTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "</s>",
};

// Channel marks of harmony-style templates. They are shown even if control tokens are not.
constexpr std::string_view kChannelTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// Texts that are also HTML tags: vocabularies trained on web pages have them as ordinary pieces.
constexpr std::string_view kTagTexts[] = {"</s>", "<PRE>", "▁<PRE>"};

// The token's type becomes CONTROL, whatever the file calls it.
void mark_control(std::uint16_t& attr) {
    if ((attr & TokenAttr::control) == 0) attr = TokenAttr::control;
}

// The texts, attributes and sets that the rules below read and write.
struct SpecialRules {
    const TextIndex& texts;
    std::vector<std::uint16_t>& attrs;
    SpecialIds& ids;
    bool has_types;  // the file has token types
    std::vector<std::int32_t> eog{};

    std::uint16_t& attr(std::int32_t id) { return attrs[static_cast<std::size_t>(id)]; }

    /// True if a well-known text makes this token special: it must be a control token, or user-defined with a text that
    /// has no other meaning. In a file without types the text alone decides.
    [[nodiscard]] bool may_be_special(std::int32_t id) const {
        const std::uint16_t attr = attrs[static_cast<std::size_t>(id)];
        if ((attr & TokenAttr::control) != 0) return true;
        if (has_types && (attr & TokenAttr::user_defined) == 0) return false;
        return std::ranges::find(kTagTexts, texts[static_cast<std::size_t>(id)]) == std::end(kTagTexts);
    }

    void detect_ids() {
        for (const WellKnown& row : kWellKnown)
            for (const std::string_view text : row.texts) {
                if (ids.*row.id != kNoToken) break;
                if (const std::int32_t id = texts.find(text); id != kNoToken && may_be_special(id)) {
                    ids.*row.id = id;
                    mark_control(attr(id));
                }
            }
    }

    void collect_eog() {
        for (std::size_t i = 0; i < texts.size(); ++i) {
            const std::string_view text = texts[i];
            if (text.size() > 32 || (text[0] != '<' && text[0] != '_' && text[0] != '[')) continue;
            if (!is_eog_text(text) || !may_be_special(static_cast<std::int32_t>(i))) continue;
            eog.push_back(static_cast<std::int32_t>(i));
            mark_control(attrs[i]);
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
            remove_eog("<|end|>", TokenAttr::user_defined);  // separates channels, does not end the turn
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

    // The format has no key for stripping around tokens, so these models are recognized by name.
    void apply_model_rules(const ModelNames& names) {
        std::string name(names.general_name);
        std::ranges::transform(name, name.begin(),
                               [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
        const auto named = [&](std::string_view part) { return name.find(part) != name.npos; };
        const auto pre = [&](std::string_view part) { return names.pretokenizer.find(part) != std::string_view::npos; };

        if (named("phi-3") || named("phi3")) {
            for (std::uint16_t& each : attrs)
                if ((each & (TokenAttr::control | TokenAttr::user_defined | TokenAttr::unknown)) != 0)
                    each |= TokenAttr::rstrip;
            set_by_text("</s>", TokenAttr::rstrip);
            for (const std::string_view text : {"<unk>", "<s>", "<|endoftext|>"})
                set_by_text(text, 0, TokenAttr::rstrip);
        }
        if (pre("jina-v2-de") || pre("jina-v2-es") || pre("jina-v2-code") || names.architecture == "nomic-bert-moe" ||
            names.architecture == "jina-bert-v3")
            set_by_text("<mask>", TokenAttr::lstrip);
        if (named("modern-bert")) set_by_text("[MASK]", TokenAttr::lstrip);
    }
};

constexpr bool is_strippable(char c) noexcept { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

bool is_eog_text(std::string_view text) noexcept { return std::ranges::find(kEogTexts, text) != std::end(kEogTexts); }

bool holds(const DefaultId& row, const TextIndex& texts, const std::vector<std::uint16_t>& attrs,
           bool has_types) noexcept {
    const auto i = static_cast<std::size_t>(row.id);
    if (i >= texts.size()) return false;
    if ((attrs[i] & (TokenAttr::control | TokenAttr::unknown)) != 0 || texts[i] == row.text) return true;
    return !has_types && row.role != &SpecialIds::bos && row.role != &SpecialIds::eos;
}

std::vector<std::int32_t> derive_special_tokens(const TextIndex& texts, std::vector<std::uint16_t>& attrs,
                                                SpecialIds& ids, const ModelNames& names, bool has_types) {
    SpecialRules rules{texts, attrs, ids, has_types};
    rules.detect_ids();
    rules.collect_eog();
    rules.correct_eog();
    rules.apply_model_rules(names);
    return std::move(rules.eog);
}

void SpecialMatcher::build(const TextIndex& texts, const std::vector<std::uint16_t>& attrs) {
    constexpr std::uint32_t kSpecial = TokenAttr::control | TokenAttr::user_defined | TokenAttr::unknown;
    for (std::size_t id = 0; id < texts.size(); ++id)
        if ((attrs[id] & kSpecial) != 0)
            entries_.push_back({texts[id], static_cast<std::int32_t>(id), attrs[id], kNone});
    std::ranges::stable_sort(entries_, [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });

    sorted_.resize(entries_.size());
    std::iota(sorted_.begin(), sorted_.end(), 0u);
    std::ranges::stable_sort(sorted_, {}, [&](std::uint32_t i) { return entries_[i].text; });
    for (const Entry& entry : entries_) {
        const auto first = static_cast<unsigned char>(entry.text[0]);
        ++first_[first + 1u];
        if ((entry.attr & TokenAttr::user_defined) != 0) begins_added_[first] = true;
        if ((entry.attr & (TokenAttr::lstrip | TokenAttr::rstrip)) != 0) strips_ = true;
    }
    std::partial_sum(first_.begin(), first_.end(), first_.begin());

    for (std::size_t i = sorted_.size(); i-- > 0;) {
        Entry& entry = entries_[sorted_[i]];
        const bool repeats = i + 1 < sorted_.size() && entries_[sorted_[i + 1]].text == entry.text;
        entry.shorter = repeats ? sorted_[i + 1] : longest(entry.text.substr(0, entry.text.size() - 1));
    }
}

// Searches the sorted entries like a trie: after k bytes [low, high) are the entries that begin with the first k bytes
// of `text`.
std::uint32_t SpecialMatcher::longest(std::string_view text) const noexcept {
    std::uint32_t found = kNone;
    if (text.empty()) return found;
    const auto first = static_cast<unsigned char>(text[0]);
    auto low = sorted_.begin() + first_[first], high = sorted_.begin() + first_[first + 1u];
    for (std::size_t k = 1; low != high; ++k) {
        if (entries_[*low].text.size() == k) found = *low;  // the first of equal texts
        while (low != high && entries_[*low].text.size() == k) ++low;
        if (k == text.size()) break;
        const auto byte = static_cast<unsigned char>(text[k]);
        const auto byte_of = [&](std::uint32_t i) { return static_cast<unsigned char>(entries_[i].text[k]); };
        low = std::lower_bound(low, high, byte, [&](std::uint32_t i, unsigned char b) { return byte_of(i) < b; });
        high = std::upper_bound(low, high, byte, [&](unsigned char b, std::uint32_t i) { return b < byte_of(i); });
    }
    return found;
}

// `entry`, or the next shorter one if it may not be cut out.
std::uint32_t SpecialMatcher::allowed(std::uint32_t entry, std::size_t room) const noexcept {
    while (entry != kNone && entries_[entry].text.size() > room &&
           (entries_[entry].attr & TokenAttr::user_defined) == 0)
        entry = entries_[entry].shorter;
    return entry;
}

// Finds the longest special token at every position where one begins. Tokens that do not occur cost nothing, even
// thousands of reserved ones.
void SpecialMatcher::find_all(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                              std::vector<SpecialMatch>& found) const {
    for (std::size_t at = 0; at < text.size(); ++at) {
        while (!foreign.empty() && foreign.front().end <= at) foreign = foreign.subspan(1);
        const std::size_t own_end = foreign.empty() ? text.size() : std::max(foreign.front().begin, at);
        const std::size_t room = parse_special ? own_end - at : 0;
        const auto first = static_cast<unsigned char>(text[at]);
        if (parse_special ? first_[first] == first_[first + 1u] : !begins_added_[first]) continue;
        const std::uint32_t entry = allowed(longest(text.substr(at)), room);
        if (entry != kNone) found.push_back({entry, at, room});
    }
}

// Cuts tokens out in the order of entries, the longest first. A token is no longer than those cut before, so checking
// its first and last byte is enough to detect an overlap. If it overlaps, the next shorter token at the same position
// is tried.
void SpecialMatcher::partition(std::string_view text, bool parse_special, std::span<const ByteRange> foreign,
                               Scratch& scratch) const {
    std::vector<Fragment>& fragments = scratch.fragments;
    std::vector<SpecialMatch>& found = scratch.special_found;
    std::vector<std::uint8_t>& taken = scratch.special_taken;
    fragments.clear();
    found.clear();
    find_all(text, parse_special, foreign, found);
    if (found.empty()) {
        if (!text.empty()) fragments.push_back({0, text.size()});
        return;
    }
    const auto goes_later = [](const SpecialMatch& a, const SpecialMatch& b) {
        return a.entry != b.entry ? a.entry > b.entry : a.begin > b.begin;
    };
    taken.assign(text.size(), 0);
    std::ranges::make_heap(found, goes_later);
    while (!found.empty()) {
        std::ranges::pop_heap(found, goes_later);
        const auto [number, begin, room] = found.back();
        found.pop_back();
        if (taken[begin] != 0) continue;
        const Entry& entry = entries_[number];
        const std::size_t end = begin + entry.text.size();
        if (taken[end - 1] != 0) {
            if (const std::uint32_t shorter = allowed(entry.shorter, room); shorter != kNone) {
                found.push_back({shorter, begin, room});
                std::ranges::push_heap(found, goes_later);
            }
            continue;
        }
        fragments.push_back({begin, end, entry.id});
        std::size_t first = begin, last = end;  // including stripped white space
        if ((entry.attr & TokenAttr::lstrip) != 0)
            while (first > 0 && taken[first - 1] == 0 && is_strippable(text[first - 1])) --first;
        if ((entry.attr & TokenAttr::rstrip) != 0)
            while (last < text.size() && taken[last] == 0 && is_strippable(text[last])) ++last;
        std::fill(taken.begin() + static_cast<std::ptrdiff_t>(first), taken.begin() + static_cast<std::ptrdiff_t>(last),
                  std::uint8_t{1});
    }

    // The text between the tokens, without stripped white space, becomes raw fragments.
    std::ranges::sort(fragments, {}, &Fragment::begin);
    const std::size_t n_special = fragments.size();
    std::size_t begin = 0;
    const auto keep = [&](std::size_t end) {
        while (begin < end && taken[begin] != 0) ++begin;
        while (begin < end && taken[end - 1] != 0) --end;
        if (begin < end) fragments.push_back({begin, end});
    };
    for (std::size_t i = 0; i < n_special; ++i) {
        const auto [special_begin, special_end, id] = fragments[i];
        keep(special_begin);
        begin = special_end;
    }
    keep(text.size());
    std::ranges::sort(fragments, {}, &Fragment::begin);
}

}  // namespace tinfer::tokenizer
