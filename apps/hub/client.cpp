// SPDX-License-Identifier: MIT
#include "client.hpp"

#include <algorithm>
#include <charconv>
#include <thread>
#include <tinfer/base.hpp>

#include "plain_text.hpp"

namespace tinfer::hub {

namespace {

constexpr int kMaxRedirects = 5;
constexpr std::size_t kMaxDocument = 32u << 20;

bool is_redirect(int status) noexcept {
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

std::optional<long> seconds_of(const std::string& text) {
    long seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc() || end != text.data() + text.size() || seconds < 0) return std::nullopt;
    return seconds;
}

}  // namespace

void Tries::wait(const std::string& why, const Answer& answer) {
    using std::chrono::milliseconds;
    const Patience& patience = settings_.patience;
    if (++failed_ >= patience.tries)
        throw Error(ErrorCode::not_available, why + ", " + std::to_string(failed_) + " times in a row");
    milliseconds pause = patience.first_pause * (1 << std::min(failed_ - 1, 16));
    if (const auto asked = seconds_of(answer.header("retry-after")))
        pause = std::min(milliseconds(std::min(*asked, 86'400L) * 1000), patience.longest_pause);
    if (settings_.say) settings_.say(why + "; tried again in " + std::to_string((pause.count() + 999) / 1000) + " s");
    const auto end = std::chrono::steady_clock::now() + pause;
    while (std::chrono::steady_clock::now() < end) {
        if (settings_.cancelled && settings_.cancelled()) throw Error(ErrorCode::cancelled, "interrupted");
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(milliseconds(50), pause));
    }
}

Client::Client(const Settings& settings, const HubName& name) : settings_(settings), name_(name) {
    const auto url = parse_url(settings.endpoint);
    if (!url)
        throw Error(ErrorCode::bad_parameter,
                    "HF_ENDPOINT '" + settings.endpoint.substr(0, 200) + "' is no address of http or https");
    hub_ = *url;
    prefix_ = hub_.target == "/" ? "" : hub_.target;
    if (std::ranges::any_of(settings.token, [](char c) { return c <= 0x20 || c >= 0x7F; }))
        throw Error(ErrorCode::bad_parameter, "HF_TOKEN holds characters that no token has");
}

Url Client::address(const std::string& path) const {
    Url url = hub_;
    url.target = prefix_ + path;
    return url;
}

bool Client::may_have_token(const Url& url) const {
    return !settings_.token.empty() && url.has_origin_of(hub_) && (url.is_tls || url.is_loopback());
}

Followed Client::get(Request request) const {
    Followed out;
    const Headers given = request.headers;
    const auto on_head = request.on_head;
    request.on_head = [&](const Answer& answer) {
        return !is_redirect(answer.status) && (!on_head || on_head(answer));
    };
    for (int redirects = 0;; ++redirects) {
        request.headers = given;
        if (may_have_token(request.url)) request.headers.emplace_back("Authorization", "Bearer " + settings_.token);
        out.answer = send(request, settings_);
        out.url = request.url;
        out.is_of_hub = request.url.has_origin_of(hub_);
        if (!is_redirect(out.answer.status)) return out;
        if (out.is_of_hub && !out.answer.header("x-linked-etag").empty()) out.linked = out.answer;
        if (redirects == kMaxRedirects)
            fail(ErrorCode::not_available,
                 request.url.place() + " redirects more than " + std::to_string(kMaxRedirects) + " times");
        const std::string location = out.answer.header("location");
        const auto next = parse_reference(request.url, location);
        if (!next)
            fail(ErrorCode::not_available,
                 request.url.place() + " redirects to '" + location.substr(0, 200) + "', which is no address");
        if (request.url.is_tls && !next->is_tls)
            fail(ErrorCode::not_available,
                 request.url.place() + " redirects from https to http://" + next->place() + ", which is not followed");
        request.url = *next;
    }
}

Followed Client::document(const Url& url, std::string& body, std::string_view what) const {
    Tries tries(settings_);
    for (;;) {
        body.clear();
        bool is_long = false;
        Followed out = get({url, {}, {}, [&](std::string_view piece) {
                                is_long = body.size() + piece.size() > kMaxDocument;
                                if (!is_long) body += piece;
                                return !is_long;
                            }});
        if (is_long)
            fail(ErrorCode::limit_exceeded, std::string(what) + " of " + out.url.place() + " is longer than " +
                                                std::to_string(kMaxDocument >> 20) + " MiB");
        const Answer& answer = out.answer;
        if (answer.failure.empty() && answer.status == 200) return out;
        if (answer.is_final || (answer.status == 0 && answer.failure.starts_with("cannot connect")))
            fail(ErrorCode::not_available, answer.failure);
        if (answer.failure.empty() && !is_passing(answer.status)) refuse(answer, {});
        tries.wait(name_.text() + ": " +
                       (answer.failure.empty() ? out.url.place() + " answered " + std::to_string(answer.status)
                                               : answer.failure),
                   answer);
    }
}

bool Client::is_passing(int status) noexcept { return status == 408 || status == 429 || status >= 500; }

void Client::refuse(const Answer& answer, std::string_view path) const {
    const std::string code = answer.header("x-error-code"), repo = name_.repository();
    const auto is = [&](std::string_view name) { return code == name; };
    if (is("GatedRepo"))
        fail(ErrorCode::not_available, "its authors ask for consent: accept their terms at " + settings_.endpoint +
                                           "/" + repo + ", and set HF_TOKEN to a token of your account");
    if (is("RevisionNotFound"))
        fail(ErrorCode::not_available, "there is no revision '" + name_.revision_or_main() + "' in " + repo);
    if (is("EntryNotFound")) fail(ErrorCode::not_available, "there is no file '" + std::string(path) + "' in " + repo);
    if (is("RepoNotFound") || (answer.status == 401 && code.empty())) {
        const std::string token = settings_.token.empty() ? "HF_TOKEN is not set"
                                  : !may_have_token(hub_) ? "HF_TOKEN is not sent over http"
                                                          : "the token of HF_TOKEN may not read it";
        fail(ErrorCode::not_available,
             "there is no repository " + repo + " at " + settings_.endpoint + ", or it is private: " + token);
    }
    fail(ErrorCode::not_available, settings_.endpoint + " answered " + std::to_string(answer.status) +
                                       (code.empty() ? "" : " (" + code.substr(0, 60) + ")") +
                                       (path.empty() ? "" : " for '" + std::string(path) + "'"));
}

void Client::fail(ErrorCode code, const std::string& why) const {
    throw Error(code, spell_controls(name_.text() + ": " + why));  // one line, whatever an answer contained
}

}  // namespace tinfer::hub
