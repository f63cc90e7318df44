// SPDX-License-Identifier: MIT
#include "delivery.hpp"

#include <algorithm>
#include <atomic>

namespace tinfer::server {

namespace {

/// Smaller bodies are covered by connection_bytes().
constexpr std::size_t kSmallBody = 16 << 10;

struct CountedBody {
    CountedBody(AnswerMemory& memory, std::string given, std::function<void()> breaks)
        : text(std::move(given)), account(memory, [this, breaks = std::move(breaks)] {
              has_to_go = true;
              if (is_sent) breaks();
          }) {}
    bool send(const WriteBytes& write) {
        is_sent = true;
        if (has_to_go) return false;
        account.waits(true);
        const bool ok = write(text);
        account.waits(false);
        return ok;
    }
    const std::string text;
    std::atomic<bool> is_sent{false}, has_to_go{false};
    AnswerMemory::Account account;
};

}  // namespace

void set_body(AnswerMemory& memory, Response& response, std::string text, std::string_view type) {
    if (text.size() <= kSmallBody) return response.set_content(std::move(text), type);
    if (text.capacity() - text.size() > text.size() / 8)
        text.shrink_to_fit();  // what has grown has up to twice as much
    auto body = std::make_shared<CountedBody>(memory, std::move(text), response.client.breaker());
    if (!body->account.add(static_cast<std::int64_t>(body->text.capacity()))) throw body->account.reason();
    const auto size = body->text.size();
    response.set_source(size, type, [body = std::move(body)](const WriteBytes& write) { return body->send(write); });
}

void set_shared_body(Response& response, std::shared_ptr<const std::string> text, std::string_view type) {
    const auto size = text->size();
    response.set_source(size, type, [text = std::move(text)](const WriteBytes& write) { return write(*text); });
}

void set_fixed_body(Response& response, std::span<const std::string_view> parts, std::string_view type) {
    std::size_t size = 0;
    for (const auto part : parts) size += part.size();
    response.set_source(size, type,
                        [parts](const WriteBytes& write) { return std::ranges::all_of(parts, std::cref(write)); });
}

}  // namespace tinfer::server
