// SPDX-License-Identifier: MIT
// The parser goes through the text once, without recursion, and leaves one node per value in the order of the text: a
// container's node says where the next value after it is. Strings are decoded where they lie in the copy of the text,
// since no escape is shorter than what it stands for.
#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/number_text.hpp"
#include "base/utf8.hpp"

namespace tinfer {

class JsonTape {
public:
    struct Node {
        std::uint32_t offset;  ///< of the value's first byte in the text
        std::uint32_t size;    ///< bytes of a number or of a decoded string, elements, members, or the truth
        std::uint32_t next;    ///< the node after the value and all in it
        JsonKind kind;
    };

    std::string text;  ///< strings decoded in place, after their opening quotes
    std::vector<Node> nodes;

    [[nodiscard]] std::string_view text_of(const Node& node) const noexcept {
        return std::string_view(text).substr(node.offset + (node.kind == JsonKind::string ? 1 : 0), node.size);
    }
};

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 31;

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// The nearest double; nullopt where that would be infinite.
std::optional<double> to_double(std::string_view number) {
    double value = 0;
    if (read_number(number, value).ec == std::errc()) return value;
    if (is_large(number)) return std::nullopt;
    return number.front() == '-' ? -0.0 : 0.0;
}

class JsonParser {
public:
    JsonParser(std::string_view text, std::string_view name, const JsonOptions& options, JsonTape& tape)
        : text_(text), name_(name), options_(options), tape_(tape) {}

    void parse() {
        if (text_.size() > std::min(options_.max_bytes, kMaxBytes))
            fail(ErrorCode::limit_exceeded,
                 cat(name_, ": JSON of ", text_.size(), " bytes, limit ", std::min(options_.max_bytes, kMaxBytes)));
        tape_.text.assign(text_);
        skip_space();
        value();
        while (!open_.empty()) {
            skip_space();
            object(open_.back()) ? member() : element();
        }
        skip_space();
        if (at_ < text_.size()) refuse(at_, cat("expected the end of the text, found ", found()));
    }

private:
    [[nodiscard]] bool object(std::uint32_t node) const { return tape_.nodes[node].kind == JsonKind::object; }

    [[noreturn]] void refuse(std::size_t offset, std::string_view what, ErrorCode code) const {
        const std::string_view before = text_.substr(0, offset);
        const std::size_t line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1,
                          newline = before.rfind('\n');
        const std::string_view row = newline == before.npos ? before : before.substr(newline + 1);
        const auto column =
            std::ranges::count_if(row, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }) + 1;
        fail(code, cat(name_, ": line ", line, ", column ", column, " (byte ", offset, "): ", what));
    }
    [[noreturn]] void refuse(std::size_t offset, std::string_view what) const { refuse(offset, what, options_.code); }

    // What stands at the cursor, for messages.
    [[nodiscard]] std::string found() const {
        if (at_ == text_.size()) return "the end of the text";
        const std::size_t length = std::max<std::size_t>(utf8_length(text_.substr(at_)), 1);
        return cat('\'', escaped(text_.substr(at_, length)), '\'');
    }

    void skip_space() noexcept {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
            ++at_;
    }
    [[nodiscard]] bool accept(char c) noexcept {
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    std::uint32_t add(JsonKind kind, std::size_t offset, std::size_t size) {
        if (tape_.nodes.size() >= std::min<std::size_t>(options_.max_values, kMaxBytes))
            refuse(offset, cat("more than ", tape_.nodes.size(), " values"), ErrorCode::limit_exceeded);
        const auto node = static_cast<std::uint32_t>(tape_.nodes.size());
        tape_.nodes.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size), node + 1, kind});
        return node;
    }

    // ---- containers: each call goes on inside the innermost open one

    void open(JsonKind kind) {
        if (open_.size() >= options_.max_depth)
            refuse(at_, cat("nested deeper than ", options_.max_depth), ErrorCode::limit_exceeded);
        open_.push_back(add(kind, at_, 0));
        ++at_;
        skip_space();
    }

    void close() {
        const std::uint32_t node = open_.back();
        if (options_.refuse_duplicates && object(node)) refuse_duplicates(node);
        tape_.nodes[node].next = static_cast<std::uint32_t>(tape_.nodes.size());
        open_.pop_back();
    }

    // True where the container has another item; reads the comma before all but the first.
    bool goes_on(char bracket) {
        JsonTape::Node& node = tape_.nodes[open_.back()];
        if (accept(bracket)) {
            close();
            return false;
        }
        if (node.size++ == 0) return true;
        if (!accept(',')) refuse(at_, cat("expected ',' or '", bracket, "', found ", found()));
        skip_space();
        return true;
    }

    void element() {
        if (goes_on(']')) value();
    }

    void member() {
        if (!goes_on('}')) return;
        if (at_ == text_.size() || text_[at_] != '"') refuse(at_, cat("expected a key in quotes, found ", found()));
        string();
        skip_space();
        if (!accept(':')) refuse(at_, cat("expected ':' behind a key, found ", found()));
        skip_space();
        value();
    }

    void refuse_duplicates(std::uint32_t node) {
        keys_.clear();
        const std::uint32_t end = static_cast<std::uint32_t>(tape_.nodes.size());
        for (std::uint32_t key = node + 1; key < end; key = tape_.nodes[key + 1].next) keys_.push_back(key);
        const auto text_of = [&](std::uint32_t key) { return tape_.text_of(tape_.nodes[key]); };
        std::ranges::sort(keys_, [&](std::uint32_t a, std::uint32_t b) {
            return std::pair(text_of(a), a) < std::pair(text_of(b), b);
        });
        const auto repeated = std::ranges::adjacent_find(keys_, {}, text_of);
        if (repeated != keys_.end())
            refuse(tape_.nodes[*(repeated + 1)].offset,
                   cat("the key '", escaped(text_of(*repeated)), "' for the second time"));
    }

    // ---- values

    void value() {
        switch (at_ < text_.size() ? text_[at_] : '\0') {
            case '{': return open(JsonKind::object);
            case '[': return open(JsonKind::array);
            case '"': return string();
            case 't': return word("true", JsonKind::boolean, 1);
            case 'f': return word("false", JsonKind::boolean, 0);
            case 'n': return word("null", JsonKind::null, 0);
            default:
                if (at_ < text_.size() && (text_[at_] == '-' || is_digit(text_[at_]))) return number();
                refuse(at_, cat("expected a value, found ", found()));
        }
    }

    void word(std::string_view word, JsonKind kind, std::size_t size) {
        if (!text_.substr(at_).starts_with(word)) refuse(at_, cat("expected a value, found ", found()));
        add(kind, at_, size);
        at_ += word.size();
    }

    void digits(std::string_view where) {
        if (at_ == text_.size() || !is_digit(text_[at_]))
            refuse(at_, cat("expected a digit ", where, ", found ", found()));
        while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    }

    void number() {
        const std::size_t begin = at_;
        const bool negative = accept('-');
        if (!accept('0')) digits("of a number");
        else if (at_ < text_.size() && is_digit(text_[at_])) refuse(begin + negative, "a number that begins with 0");
        if (accept('.')) digits("behind the point");
        if (accept('e') || accept('E')) {
            if (!accept('+')) (void)accept('-');
            digits("of an exponent");
        }
        const std::string_view number = text_.substr(begin, at_ - begin);
        if (!to_double(number)) refuse(begin, cat("the number ", escaped(number), " is larger than a double holds"));
        add(JsonKind::number, begin, number.size());
    }

    void string() {
        const std::size_t begin = at_++;
        char* const decoded = tape_.text.data() + at_;
        char* out = decoded;
        while (true) {
            if (at_ == text_.size()) refuse(begin, "a string without its closing quote");
            const char c = text_[at_];
            if (c == '"') break;
            if (c == '\\') {
                out = escape(out);
                continue;
            }
            const std::size_t length = utf8_length(text_.substr(at_));
            if (length == 0) refuse(at_, cat("a byte that is not UTF-8: ", found()));
            if (static_cast<unsigned char>(c) < 0x20)
                refuse(at_, cat("a control character in a string, ", found(), ": write it as \\u00…"));
            out = std::copy_n(text_.data() + at_, length, out);
            at_ += length;
        }
        ++at_;
        add(JsonKind::string, begin, static_cast<std::size_t>(out - decoded));
    }

    // Writes what the escape at the cursor stands for, and moves past it.
    char* escape(char* out) {
        const std::size_t begin = at_++;
        constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
        if (at_ < text_.size() && text_[at_] != 'u') {
            const std::size_t i = kNames.find(text_[at_]);
            if (i == kNames.npos) refuse(begin, cat("an unknown escape, \\ before ", found()));
            ++at_;
            *out = kMeanings[i];
            return out + 1;
        }
        char32_t value = unit(begin);
        if (value >= 0xDC00 && value <= 0xDFFF) refuse(begin, "a low surrogate without a high one");
        if (value >= 0xD800 && value <= 0xDBFF) {
            if (!text_.substr(at_).starts_with("\\u")) refuse(begin, "a high surrogate without a low one");
            const std::size_t second = at_++;
            const char32_t low = unit(second);
            if (low < 0xDC00 || low > 0xDFFF) refuse(begin, "a high surrogate without a low one");
            value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        }
        utf8_.clear();
        append_code_point(utf8_, value);
        return std::ranges::copy(utf8_, out).out;
    }

    // The four digits after a u, which the cursor is at.
    char32_t unit(std::size_t begin) {
        std::uint32_t value = 0;
        const std::string_view four = text_.substr(std::min(at_ + 1, text_.size()), 4);
        const auto result = std::from_chars(four.data(), four.data() + four.size(), value, 16);
        if (four.size() < 4 || result.ptr != four.data() + 4 || four[0] == '-')
            refuse(begin, "\\u without four hexadecimal digits");
        at_ += 5;
        return static_cast<char32_t>(value);
    }

    std::string_view text_, name_;
    const JsonOptions& options_;
    JsonTape& tape_;
    std::size_t at_ = 0;
    std::vector<std::uint32_t> open_;  // containers around the cursor
    std::vector<std::uint32_t> keys_;  // of the object that is being closed
    std::string utf8_;
};

const JsonTape::Node& checked(const JsonTape& tape, std::uint32_t node, [[maybe_unused]] JsonKind kind) {
    TINFER_ASSERT(tape.nodes[node].kind == kind);
    return tape.nodes[node];
}

}  // namespace

std::string_view to_string(JsonKind kind) noexcept {
    constexpr std::string_view kNames[] = {"null", "boolean", "number", "string", "array", "object"};
    return kNames[static_cast<std::size_t>(kind)];
}

JsonKind JsonValue::kind() const noexcept { return tape_->nodes[node_].kind; }
std::size_t JsonValue::offset() const noexcept { return tape_->nodes[node_].offset; }
bool JsonValue::boolean() const { return checked(*tape_, node_, JsonKind::boolean).size != 0; }
double JsonValue::number() const { return *to_double(number_text()); }
std::string_view JsonValue::number_text() const { return tape_->text_of(checked(*tape_, node_, JsonKind::number)); }
std::string_view JsonValue::string() const { return tape_->text_of(checked(*tape_, node_, JsonKind::string)); }

namespace {
template <class T>
std::optional<T> whole(const JsonTape& tape, std::uint32_t node) noexcept {
    if (tape.nodes[node].kind != JsonKind::number) return std::nullopt;
    const std::string_view text = tape.text_of(tape.nodes[node]);
    T value{};
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size() ? std::optional(value) : std::nullopt;
}
}  // namespace

std::optional<std::int64_t> JsonValue::integer() const noexcept { return whole<std::int64_t>(*tape_, node_); }
std::optional<std::uint64_t> JsonValue::unsigned_integer() const noexcept {
    return whole<std::uint64_t>(*tape_, node_);
}

std::size_t JsonValue::size() const noexcept {
    return is(JsonKind::array) || is(JsonKind::object) ? tape_->nodes[node_].size : 0;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const noexcept {
    std::optional<JsonValue> found;
    if (!is(JsonKind::object)) return found;
    const std::uint32_t end = tape_->nodes[node_].next;
    for (std::uint32_t at = node_ + 1; at < end; at = tape_->nodes[at + 1].next)
        if (tape_->text_of(tape_->nodes[at]) == key) found = JsonValue(*tape_, at + 1);
    return found;
}

JsonValue::Range JsonValue::items() const {
    const std::uint32_t end = checked(*tape_, node_, JsonKind::array).next;
    return {Iterator(tape_, node_ + 1, false), Iterator(tape_, end, false)};
}

JsonValue::Range JsonValue::members() const {
    const std::uint32_t end = checked(*tape_, node_, JsonKind::object).next;
    return {Iterator(tape_, node_ + 1, true), Iterator(tape_, end, true)};
}

JsonValue::Member JsonValue::Iterator::operator*() const noexcept {
    if (!keyed_) return {{}, JsonValue(*tape_, node_)};
    return {tape_->text_of(tape_->nodes[node_]), JsonValue(*tape_, node_ + 1)};
}

JsonValue::Iterator& JsonValue::Iterator::operator++() noexcept {
    node_ = tape_->nodes[node_ + (keyed_ ? 1 : 0)].next;
    return *this;
}

JsonDocument::JsonDocument(std::unique_ptr<const JsonTape> tape) noexcept : tape_(std::move(tape)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

JsonDocument JsonDocument::parse(std::string_view text, std::string_view name, const JsonOptions& options) {
    auto tape = std::make_unique<JsonTape>();
    JsonParser(text, name, options, *tape).parse();
    // What is made of the nodes takes memory beside them: no slack. (shrink_to_fit would hide a failed allocation.)
    std::vector<JsonTape::Node>(tape->nodes).swap(tape->nodes);
    return JsonDocument(std::move(tape));
}

JsonValue JsonDocument::root() const noexcept { return {*tape_, 0}; }

}  // namespace tinfer
