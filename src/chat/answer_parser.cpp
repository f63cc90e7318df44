// SPDX-License-Identifier: MIT
// The public AnswerParser, thin over its state.
#include "base/number_text.hpp"
#include "chat/answer_parser_impl.hpp"
#include "chat/channel_grammar.hpp"

namespace tinfer {
namespace {

using chat::ToolFormat;

constexpr std::string_view kParsing = "answer: an allocation failed";

}  // namespace

AnswerParser::AnswerParser(const ChatTemplate& chat_template, AnswerOptions options)
    : impl_(reporting_memory(kParsing, [&] { return std::make_unique<Impl>(chat_template, std::move(options)); })) {}
AnswerParser::AnswerParser(const AnswerParser& other)
    : impl_(reporting_memory(kParsing, [&] { return std::make_unique<Impl>(*other.impl_); })) {}
AnswerParser& AnswerParser::operator=(const AnswerParser& other) {
    if (this != &other) *this = AnswerParser(other);
    return *this;
}
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;
AnswerParser::~AnswerParser() = default;

ChatAnswer AnswerParser::push(std::string_view text) {
    return reporting_memory(kParsing, [&] {
        const RoundToNearest guard;  // numbers of arguments that are written anew
        impl_->buffer += text;
        return impl_->run(false);
    });
}

ChatAnswer AnswerParser::finish(bool is_cut) {
    return reporting_memory(kParsing, [&] {
        const RoundToNearest guard;
        impl_->is_cut = is_cut;
        return impl_->run(true);
    });
}

const ChatAnswer& AnswerParser::whole() const& noexcept { return impl_->whole; }
bool AnswerParser::is_reasoning() const noexcept { return impl_->mode == Impl::Mode::reasoning; }
std::string_view AnswerParser::reasoning_end() const noexcept {
    return impl_->thinks == nullptr ? std::string_view() : impl_->thinks->close;
}

std::vector<Token> AnswerParser::mark_tokens(const Vocab& vocab) const {
    return reporting_memory(kParsing, [&] {
        std::string marks;
        const auto add = [&](std::string_view mark) { (marks += mark) += '\n'; };
        if (impl_->thinks != nullptr) add(impl_->thinks->open), add(impl_->thinks->close);
        for (const ToolFormat* f : impl_->rows)
            for (const auto mark : {f->open, f->close, f->call_open, f->call_close, f->name_open, f->name_close,
                                    f->id_open, f->arguments_open, f->arguments_close, f->parameter_open,
                                    f->parameter_name_close, f->parameter_value_open, f->parameter_close,
                                    f->parameter_close_end, f->code_open, f->list_open, f->list_close, f->quote})
                add(mark);
        if (impl_->has_channels()) {
            for (const auto mark : {chat::kChannelMark, chat::kMessageMark, chat::kConstrainMark}) add(mark);
            for (const auto mark : chat::kMessageEnds) add(mark);
        }
        for (const ToolFormat* f : impl_->rows.empty() ? std::vector<const ToolFormat*>{impl_->row} : impl_->rows)
            for (const auto mark : f->dropped) add(mark);
        std::vector<Token> out;
        for (std::size_t id = 0; id < vocab.size(); ++id) {
            const Token token{static_cast<std::int32_t>(id)};
            if (!vocab.is_control(token)) continue;
            const auto text = vocab.piece(token, true);
            if (text.size() > 1 && marks.find(text) != marks.npos) out.push_back(token);
        }
        return out;
    });
}

std::shared_ptr<const ContentReader> AnswerParser::content_reader() const {
    struct Reader final : ContentReader {
        explicit Reader(const Impl& impl) : parser(impl) { update(); }
        [[nodiscard]] std::unique_ptr<ContentReader> clone() const override { return std::make_unique<Reader>(*this); }
        void read(std::string_view more) override {
            parser.buffer += more;
            (void)parser.run(false);
            update();
        }
        void finish() override {
            (void)parser.run(true);
            update();
        }
        [[nodiscard]] std::string_view content() const override { return text; }
        [[nodiscard]] std::size_t n_undecided() const override { return parser.buffer.size() - parser.n_given; }
        [[nodiscard]] bool is_content() const override {
            if (parser.mode == Impl::Mode::response) return true;
            return parser.mode == Impl::Mode::content && chat::first_visible(parser.buffer) == parser.buffer.size();
        }
        [[nodiscard]] bool is_thinking() const override { return parser.mode == Impl::Mode::reasoning; }

        /// The parser's content, and white space behind it that it still holds back.
        void update() {
            text.resize(n_certain);
            text += std::string_view(parser.whole.content).substr(n_certain);
            n_certain = text.size();
            if (parser.text_is_content() && !parser.skips_space) text += parser.space;
        }
        Impl parser;
        std::string text;
        std::size_t n_certain = 0;
    };
    return reporting_memory(kParsing, [&] { return std::make_shared<const Reader>(*impl_); });
}

std::optional<ThoughtsLimit> AnswerParser::thoughts_limit(const Vocab& vocab, std::int64_t max_tokens,
                                                          std::string_view message) const {
    if (reasoning_end().empty()) return std::nullopt;
    return reporting_memory(kParsing, [&] {
        ThoughtsLimit limit{.max_tokens = max_tokens, .reader = content_reader()};
        const auto add = [&](std::string_view behind) {
            const std::string mark = cat(message, reasoning_end(), behind);
            auto tokens = vocab.encode(mark, {.add_special = false, .parse_special = true});
            // Some vocabularies put a space before a text.
            if (!tokens.empty() && mark[0] != ' ' && vocab.piece(tokens[0], true) == " ") tokens.erase(tokens.begin());
            limit.closings.push_back(std::move(tokens));
        };
        if (impl_->has_channels()) {
            add(cat(chat::kOwnMessage, chat::kChannelMark, "final", chat::kMessageMark));
            add(chat::kOwnMessage);  // a call has to follow
        } else {
            add({});
        }
        return std::optional(std::move(limit));
    });
}

std::string_view AnswerParser::family() const noexcept { return impl_->row->name; }

}  // namespace tinfer
