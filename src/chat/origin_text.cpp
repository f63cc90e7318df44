// SPDX-License-Identifier: MIT
#include "chat/origin_text.hpp"

#include <algorithm>

#include "tokenizer/utf8.hpp"

namespace tinfer::chat {

void OriginText::append(std::string_view bytes, Origin origin) {
    heap().touch(bytes.size());
    if (bytes.empty()) return;
    heap().check_text(bytes_.size() + bytes.size());
    const std::size_t needed = bytes_.size() + bytes.size();
    if (needed > bytes_.capacity()) bytes_.reserve(std::max(needed, std::min(2 * bytes_.capacity(), kMaxText)));
    if (runs_.empty() || runs_.back().origin != origin) runs_.push_back({bytes_.size(), origin});
    bytes_ += bytes;
    runs_.back().end = bytes_.size();
}

void OriginText::append(const OriginText& other, std::size_t begin, std::size_t end) {
    if (begin >= end) return;
    if (&other == this) return append(OriginText(*this), begin, end);
    auto run = std::ranges::upper_bound(other.runs_, begin, {}, &Run::end);
    const std::string_view bytes = other.bytes_;
    while (begin < end) {
        const std::size_t stop = std::min(end, run->end);
        append(bytes.substr(begin, stop - begin), run->origin);
        begin = stop;
        ++run;
    }
}

Origin OriginText::main_origin() const noexcept {
    for (const Run& run : runs_)
        if (run.origin != kFromTemplate) return run.origin;
    return kFromTemplate;
}

OriginText OriginText::slice(std::size_t begin, std::size_t end) const {
    OriginText out(heap());
    out.append(*this, begin, std::min(end, size()));
    return out;
}

FirstCharacter first_character(std::string_view text) noexcept {
    const auto byte = static_cast<unsigned char>(text.front());
    if (byte < 0x80) return {byte, 1};
    const auto front = tokenizer::utf8_front(text);
    if (front.kind != tokenizer::Utf8Front::Kind::character || front.length == 1) return {0x110000u + byte, 1};
    return {tokenizer::decode_structural(text).value, front.length};
}

bool CharacterReader::next(Character& character) {
    if (at_ >= text_->size()) return false;
    text_->heap().touch(0);
    const auto [value, length] = first_character(text_->bytes().substr(at_));
    while (text_->runs()[run_].end <= at_) ++run_;
    character = {value, at_, at_ + length, text_->runs()[run_].origin};
    at_ += length;
    return true;
}

std::size_t count_characters(Heap& heap, std::string_view text) {
    heap.work(text.size() / 16);
    std::size_t n = 0;
    for (std::size_t at = 0; at < text.size(); ++n) at += first_character(text.substr(at)).length;
    return n;
}

std::size_t character_offset(Heap& heap, std::string_view text, std::size_t n) {
    heap.work(std::min(n, text.size()) / 16);
    std::size_t at = 0;
    while (n-- > 0 && at < text.size()) at += first_character(text.substr(at)).length;
    return at;
}

namespace {

constexpr std::size_t kShortText = 16;  // bytes of a text whose comparison costs nothing worth counting

}  // namespace

std::size_t find_text(Heap& heap, std::string_view text, std::string_view wanted, std::size_t from) {
    if (from > text.size()) return text.npos;
    if (wanted.size() <= kShortText) {
        const std::size_t hit = text.find(wanted, from);
        heap.touch(std::min(hit, text.size()) - from);
        return hit;
    }
    for (std::size_t at = from;; ++at) {
        const std::size_t before = at;
        at = text.find(wanted.substr(0, kShortText), at);
        heap.touch(std::min(at, text.size()) - before);
        if (at == text.npos || text.size() - at < wanted.size()) return text.npos;
        const auto end = std::mismatch(wanted.begin(), wanted.end(), text.begin() + static_cast<std::ptrdiff_t>(at));
        heap.touch(static_cast<std::size_t>(end.first - wanted.begin()));
        if (end.first == wanted.end()) return at;
    }
}

std::size_t find_last_text(Heap& heap, std::string_view text, std::string_view wanted) {
    if (wanted.size() > text.size()) return text.npos;
    const std::string_view begin = wanted.substr(0, kShortText);
    for (std::size_t at = text.size() - wanted.size();; --at) {
        const std::size_t before = at;
        at = text.rfind(begin, at);
        heap.touch(before - (at == text.npos ? 0 : at));
        if (at == text.npos) return at;
        const auto end = std::mismatch(wanted.begin(), wanted.end(), text.begin() + static_cast<std::ptrdiff_t>(at));
        heap.touch(static_cast<std::size_t>(end.first - wanted.begin()));
        if (end.first == wanted.end()) return at;
        if (at == 0) return text.npos;
    }
}

}  // namespace tinfer::chat
