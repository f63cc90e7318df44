// SPDX-License-Identifier: MIT
#include "chat/origin_text.hpp"

#include <algorithm>

#include "tokenizer/utf8.hpp"

namespace tinfer::chat {

void OriginText::append(std::string_view bytes, Origin origin) {
    if (bytes.empty()) return;
    bytes_ += bytes;
    if (!runs_.empty() && runs_.back().origin == origin) runs_.back().end = bytes_.size();
    else runs_.push_back({bytes_.size(), origin});
}

void OriginText::append(const OriginText& other, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
    const std::string_view bytes = other.bytes_;
    if (&other == this) return append(OriginText(*this), begin, end);
    while (begin < end) {
        const std::size_t stop = std::min(end, run->end);
        append(bytes.substr(begin, stop - begin), run->origin);
        begin = stop;
        ++run;
    }
}

void OriginText::clear() noexcept {
    bytes_.clear();
    runs_.clear();
}

Origin OriginText::main_origin() const noexcept {
    for (const Run& run : runs_)
        if (run.origin != kFromTemplate) return run.origin;
    return kFromTemplate;
}

OriginText OriginText::slice(std::size_t begin, std::size_t end) const {
    OriginText out;
    out.append(*this, begin, std::min(end, size()));
    return out;
}

namespace {

/// Length of the first character; 1 for an invalid byte.
std::size_t character_length(std::string_view text) noexcept {
    if (static_cast<unsigned char>(text.front()) < 0x80) return 1;
    const auto front = tokenizer::utf8_front(text);
    return front.kind == tokenizer::Utf8Front::Kind::character ? front.length : 1;
}

}  // namespace

bool CharacterReader::next(Character& character) noexcept {
    if (at_ >= text_->size()) return false;
    const std::string_view rest = std::string_view(text_->bytes()).substr(at_);
    const std::size_t length = character_length(rest);
    while (text_->runs()[run_].end <= at_) ++run_;
    character.begin = at_;
    character.end = at_ += length;
    character.origin = text_->runs()[run_].origin;
    // Invalid bytes get values beyond Unicode, so that they have no character properties.
    character.value = length == 1 && static_cast<unsigned char>(rest[0]) >= 0x80
                          ? 0x110000 + static_cast<unsigned char>(rest[0])
                          : tokenizer::decode_structural(rest).value;
    return true;
}

std::size_t count_characters(std::string_view text) noexcept {
    std::size_t n = 0;
    for (std::size_t at = 0; at < text.size(); ++n) at += character_length(text.substr(at));
    return n;
}

std::size_t character_offset(std::string_view text, std::size_t n) noexcept {
    std::size_t at = 0;
    while (n-- > 0 && at < text.size()) at += character_length(text.substr(at));
    return at;
}

}  // namespace tinfer::chat
