// SPDX-License-Identifier: MIT
#include "delivery.hpp"

#include <algorithm>
#include <atomic>

#include "listener.hpp"

namespace server {

namespace {

/// Smaller bodies are covered by connection_bytes().
constexpr std::size_t kSmallBody = 16 << 10;

struct CountedBody {
    CountedBody(AnswerMemory& memory, std::string given)
        : text(std::move(given)), share(memory, [this, breaks = break_connection()] {
              has_to_go = true;
              if (is_sent) breaks();
          }) {}
    bool send(std::size_t offset, std::size_t size, httplib::DataSink& sink) {
        is_sent = true;
        if (has_to_go) return false;
        share.waits(true);
        const bool ok = sink.write(text.data() + offset, size);
        share.waits(false);
        return ok;
    }
    const std::string text;
    std::atomic<bool> is_sent{false}, has_to_go{false};
    AnswerMemory::Share share;
};

}  // namespace

void set_body(AnswerMemory& memory, httplib::Response& response, std::string text, const char* type) {
    if (text.size() <= kSmallBody) return response.set_content(text, type);
    auto body = std::make_shared<CountedBody>(memory, std::move(text));
    if (!body->share.add(static_cast<std::int64_t>(body->text.capacity()))) throw body->share.reason();
    response.set_content_provider(body->text.size(), type,
                                  [body](std::size_t offset, std::size_t size, httplib::DataSink& sink) {
                                      return body->send(offset, size, sink);
                                  });
}

void set_shared_body(httplib::Response& response, std::shared_ptr<const std::string> text, const char* type) {
    const auto size = text->size();
    response.set_content_provider(size, type,
                                  [text = std::move(text)](std::size_t offset, std::size_t n, httplib::DataSink& sink) {
                                      return sink.write(text->data() + offset, n);
                                  });
}

void set_fixed_body(httplib::Response& response, std::span<const std::string_view> parts, const char* type) {
    std::size_t size = 0;
    for (const auto part : parts) size += part.size();
    response.set_content_provider(size, type, [parts](std::size_t offset, std::size_t, httplib::DataSink& sink) {
        for (const auto part : parts) {
            if (offset < part.size() && !sink.write(part.data() + offset, part.size() - offset)) return false;
            offset -= std::min(offset, part.size());
        }
        return true;
    });
}

}  // namespace server
