// SPDX-License-Identifier: MIT
// /api/pull: a download as the lines that clients of Ollama's interface read.
#include "job.hpp"
#include "ollama.hpp"
#include "pulls.hpp"
#include "routes.hpp"

namespace tinfer::server {

namespace {

constexpr std::chrono::milliseconds kLookAtClient{50};

std::string status_line(std::string_view status) { return to_line({{"status", status}}) + "\n"; }

/// "pulling 0123456789ab": how far a file is.
std::string step_line(const PullStep& step) {
    const std::string hex = step.digest.substr(step.digest.find(':') + 1);
    return to_line({{"status", "pulling " + hex.substr(0, 12)},
                    {"digest", step.digest},
                    {"total", step.total},
                    {"completed", step.completed}}) +
           "\n";
}

/// Lines for what `view` tells beyond `told`.
std::string news(const Pull::View& told, const Pull::View& view) {
    std::string lines;
    for (std::size_t i = 0; i < view.steps.size(); ++i) {
        const PullStep& now = view.steps[i];
        const bool is_new = i >= told.steps.size();
        if (is_new || now.completed != told.steps[i].completed) lines += step_line(now);
        if (now.is_checked && (is_new || !told.steps[i].is_checked)) lines += status_line("verifying sha256 digest");
    }
    if (view.is_fetched && !told.is_fetched) lines += status_line("writing manifest");
    return lines;
}

Json success(const std::vector<std::string>& warnings) {
    Json document{{"status", "success"}};
    if (!warnings.empty()) document["warnings"] = warnings;
    return document;
}

/// Whether the stream has its end.
bool stream_pull(const Pull& pull, const Json& last, Client& client, const WriteBytes& write) {
    ClientWatch watch(client, [&] { return write(" "); });  // white space in front of the next object
    Pull::View told;
    if (!write(status_line("pulling manifest"))) return false;
    while (true) {
        Pull::View view = pull.wait(told, kLookAtClient);
        if (const auto lines = news(told, view); !lines.empty() && !write(lines)) return false;
        if (view.has_ended) return write(to_line(view.error ? view.error->to_text_json() : last) + "\n");
        if (watch.gone()) return false;
        told = std::move(view);
    }
}

/// Waits for the end of a download. Throws why it failed; false: the client has gone.
bool wait_for_pull(const Pull& pull, Client& client) {
    ClientWatch watch(client);
    Pull::View view;
    while (!view.has_ended) {
        if (watch.gone()) return false;
        view = pull.wait(view, kLookAtClient);
    }
    if (view.error) throw *view.error;
    return true;
}

void pull_model(Broker& broker, const Request&, const Body& text, Response& response) {
    bool is_stream = true;
    std::string name;
    Json last;
    {
        const Reading reading(broker, response.client, text.size());
        const Json body = parse_body(text.text());
        Fields fields(body);
        fields.take({"insecure", "username", "password"});
        is_stream = fields.boolean("stream").value_or(true);
        name = ollama::read_name(fields);
        last = success(check_unknown(fields, broker.options.strict));
    }
    const HostedModel* const known = broker.models()->look_up(name);
    if (known != nullptr && known->has_files()) {
        if (is_stream) response.set_content(to_line(last) + "\n", "application/x-ndjson");
        else set_json(response, last);
        return;
    }
    if (broker.pulls() == nullptr) throw ApiError(403, "pulling is off; start with --allow-pull", "not_supported");
    auto pull = broker.pulls()->begin(name);
    response.may_last = true;
    if (!is_stream) {
        if (wait_for_pull(*pull, response.client)) set_json(response, last);
        else response.status = 499;
        return;
    }
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Accel-Buffering", "no");
    response.set_stream("application/x-ndjson",
                        [pull = std::move(pull), last = std::move(last), &client = response.client](
                            const WriteBytes& write) { return stream_pull(*pull, last, client, write); });
}

}  // namespace

void add_pull_route(Router& router) { router.of_server("/api/pull", pull_model); }

}  // namespace tinfer::server
