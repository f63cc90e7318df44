// SPDX-License-Identifier: MIT
#include "api.hpp"

#include <algorithm>
#include <tinfer/base.hpp>
#include <tinfer/json.hpp>

namespace tinfer::hub {

namespace {

constexpr int kMaxPages = 1000;
constexpr std::size_t kMaxFiles = 200'000;

std::string api_path(const HubName& name) { return "/api/models/" + name.repository(); }

Json parse_answer(const Client& client, const Followed& reply, const std::string& body, JsonKind kind) {
    auto document = Json::try_parse(body);
    if (document && document->kind() == kind) return *std::move(document);
    const bool is_html = lower(reply.answer.header("content-type")).starts_with("text/html");
    client.fail(ErrorCode::damaged,
                reply.url.place() + " answered " + (is_html ? "HTML" : "something else") + " where the hub's " +
                    (kind == JsonKind::array ? "list of files" : "description of a revision") + " is expected");
}

/// The address in `Link: <…>; rel="next"`; nullopt on the last page.
std::optional<Url> next_page(const Client& client, const Followed& reply) {
    const std::string link = reply.answer.header("link");
    const std::size_t end = link.find('>');
    if (!link.starts_with('<') || end == link.npos || link.find("rel=\"next\"", end) == link.npos) return std::nullopt;
    const auto url = parse_reference(reply.url, link.substr(1, end - 1));
    if (!url || (reply.url.is_tls && !url->is_tls))
        client.fail(ErrorCode::damaged, "the hub's list of files goes on at '" +
                                            link.substr(1, end - 1).substr(0, 200) + "', which is no address");
    return url;
}

/// An entry of the tree that is a file.
RepoFile read_file(const Client& client, const Json& entry) {
    RepoFile file;
    file.path = entry.text("path");
    const auto refuse = [&](const std::string& why) {
        client.fail(ErrorCode::damaged, "the hub lists the file '" + file.path.substr(0, 200) + "', " + why);
    };
    if (!is_inside(file.path)) refuse("whose path leads out of the repository");
    const Json& size = entry["size"];
    if (!size.is_natural()) refuse("whose size is no number");
    file.size = size.get<std::uint64_t>();
    const Json& lfs = entry["lfs"];
    file.hash = lfs.is_object() ? lfs.text("oid") : entry.text("oid");
    if (!is_hex(file.hash, lfs.is_object() ? 64 : 40)) refuse("whose hash is none");
    if (lfs.is_object() && lfs["size"].is_natural() && lfs["size"].get<std::uint64_t>() != file.size)
        refuse("with two sizes: " + std::to_string(file.size) + " and " + lfs["size"].dump());
    return file;
}

}  // namespace

Revision ask_revision(const Client& client, const HubName& name) {
    const Url url = client.address(api_path(name) + "/revision/" + percent_encode(name.revision_or_main(), false));
    std::string body;
    const Followed reply = client.document(url, body, "the description of a revision");
    const Json document = parse_answer(client, reply, body, JsonKind::object);
    Revision out;
    out.commit = document.text("sha");
    if (!is_commit(out.commit)) client.fail(ErrorCode::damaged, reply.url.place() + " names no commit of 40 digits");
    out.license = document["cardData"].text("license");
    const Json& gated = document["gated"];
    out.is_gated = gated.is_string() || (gated.is_boolean() && gated.boolean());
    return out;
}

std::vector<RepoFile> ask_tree(const Client& client, const HubName& name, const std::string& commit) {
    std::vector<RepoFile> out;
    Url url = client.address(api_path(name) + "/tree/" + commit + "?recursive=true");
    for (int page = 0;; ++page) {
        if (page == kMaxPages)
            client.fail(ErrorCode::limit_exceeded,
                        "the hub's list of files has more than " + std::to_string(kMaxPages) + " pages");
        std::string body;
        const Followed reply = client.document(url, body, "the list of files");
        for (const Json& entry : parse_answer(client, reply, body, JsonKind::array)) {
            if (entry.text("type") != "file") continue;
            if (out.size() == kMaxFiles)
                client.fail(ErrorCode::limit_exceeded,
                            "the repository has more than " + std::to_string(kMaxFiles) + " files");
            out.push_back(read_file(client, entry));
        }
        const auto next = next_page(client, reply);
        if (!next) break;
        url = *next;
    }
    std::ranges::sort(out, {}, &RepoFile::path);
    if (const auto twice = std::ranges::adjacent_find(out, {}, &RepoFile::path); twice != out.end())
        client.fail(ErrorCode::damaged, "the hub lists the file '" + twice->path.substr(0, 200) + "' twice");
    return out;
}

Url file_address(const Client& client, const HubName& name, const std::string& commit, const std::string& path) {
    return client.address("/" + name.repository() + "/resolve/" + commit + "/" + percent_encode(path, true));
}

}  // namespace tinfer::hub
