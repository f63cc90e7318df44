// SPDX-License-Identifier: MIT
#include "download.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <optional>
#include <tinfer/base.hpp>
#include <vector>

#include "api.hpp"
#include "blob_hash.hpp"

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::milliseconds kReport{100};
constexpr std::uint64_t kLargest = 50'000'000'000;  // beyond which the hub's clients use its other protocol, Xet

/// "bytes 100-199/200"
struct ContentRange {
    std::uint64_t first = 0, last = 0, size = 0;
};

std::optional<ContentRange> parse_range(std::string_view text) {
    ContentRange out;
    if (!text.starts_with("bytes ")) return std::nullopt;
    text.remove_prefix(6);
    const auto number = [&](std::uint64_t& value, std::string_view end) {
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc()) return false;
        text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
        if (!text.starts_with(end)) return false;
        text.remove_prefix(end.size());
        return true;
    };
    if (!number(out.first, "-") || !number(out.last, "/") || !number(out.size, "") || !text.empty())
        return std::nullopt;
    return out;
}

class Download {
public:
    Download(const Client& client, const HubName& name, const std::string& commit, const RepoFile& file)
        : client_(client), settings_(client.settings()), repo_(settings_.cache, name), name_(name), commit_(commit),
          file_(file), hash_(file.hash, file.size) {}

    Downloaded run();

private:
    void open();
    void hash_what_is_there();
    void begin_again(const std::string& why);
    void attempt(Tries& tries);
    bool take_head(const Answer& answer);
    bool take_whole(const Answer& answer);
    bool take_part(const Answer& answer);
    bool take_body(std::string_view piece);
    void judge(const Followed& reply, Tries& tries);
    void check_link(const Answer& linked) const;
    void finish();
    void report(FileState state, bool always);
    [[noreturn]] void fail(ErrorCode code, const std::string& why) const {
        client_.fail(code, "'" + file_.path + "': " + why);
    }
    /// fail() for the functions that the connection calls, which return instead of throwing.
    bool give_up(ErrorCode code, const std::string& why);

    const Client& client_;
    const Settings& settings_;
    RepoCache repo_;
    const HubName& name_;
    const std::string& commit_;
    const RepoFile& file_;
    Descriptor out_;
    BlobHash hash_;
    std::uint64_t there_ = 0, most_ = 0, received_ = 0;  // bytes in the partial; most there ever were; of the network
    std::optional<Url> signed_;                          // where the hub sent us; it expires
    bool is_wanted_again_ = false;                       // what is there is wrong: from zero
    std::string why_again_;
    std::string begun_again_;  // why it was once; empty: it was not
    std::exception_ptr error_;
    std::string found_;  // the hash of what came
    std::chrono::steady_clock::time_point reported_at_{};
};

bool Download::give_up(ErrorCode code, const std::string& why) {
    try {
        fail(code, why);
    } catch (const Error&) {
        error_ = std::current_exception();
    }
    return false;
}

void Download::report(FileState state, bool always) {
    const auto now = std::chrono::steady_clock::now();
    if (!settings_.progress || (!always && now - reported_at_ < kReport)) return;
    reported_at_ = now;
    settings_.progress({file_.path, file_.size, there_, state, file_.hash});
}

void Download::open() {
    const fs::path path = repo_.partial(file_.hash);
    make_folders(path.parent_path());
    out_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
    if (out_.get() < 0) fail_at(path, "cannot be opened", errno);
    struct stat status {};
    if (::fstat(out_.get(), &status) != 0) fail_at(path, "cannot be read", errno);
    there_ = static_cast<std::uint64_t>(status.st_size);
    if (there_ > file_.size) {
        if (::ftruncate(out_.get(), 0) != 0) fail_at(path, "cannot be cut", errno);
        there_ = 0;
    }
}

void Download::hash_what_is_there() {
    const std::uint64_t end = there_;
    std::vector<char> piece(1u << 20);
    for (there_ = 0; there_ < end;) {
        const auto n = ::read(out_.get(), piece.data(), std::min<std::uint64_t>(piece.size(), end - there_));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail_at(repo_.partial(file_.hash), "cannot be read", n < 0 ? errno : EIO);
        hash_.update({piece.data(), static_cast<std::size_t>(n)});
        there_ += static_cast<std::uint64_t>(n);
        report(FileState::verifying, false);
        if (settings_.cancelled && settings_.cancelled()) throw Error(ErrorCode::cancelled, "interrupted");
    }
    most_ = there_;
}

/// Once; the second time it is an error.
void Download::begin_again(const std::string& why) {
    if (!begun_again_.empty()) {
        std::error_code none;
        if (there_ == file_.size) fs::remove(repo_.partial(file_.hash), none);  // whole, and wrong
        fail(ErrorCode::damaged, why + "; begun again once already");
    }
    begun_again_ = why;
    if (settings_.say) settings_.say("'" + file_.path + "': " + why + "; begun again");
    if (::ftruncate(out_.get(), 0) != 0 || ::lseek(out_.get(), 0, SEEK_SET) != 0)
        fail_at(repo_.partial(file_.hash), "cannot be cut", errno);
    there_ = 0;
    hash_ = BlobHash(file_.hash, file_.size);
    signed_.reset();
}

bool Download::take_head(const Answer& answer) {
    if (answer.status == 200) return take_whole(answer);
    if (answer.status == 206) return take_part(answer);
    return false;
}

bool Download::take_whole(const Answer& answer) {
    if (lower(answer.header("content-type")).starts_with("text/html"))
        return give_up(ErrorCode::not_gguf, "HTML came in place of a GGUF file, as from a page to log in at");
    const std::string length = answer.header("content-length");
    if (!length.empty() && length != std::to_string(file_.size))
        return give_up(ErrorCode::damaged,
                       "the server announces " + length + " bytes, the hub lists " + std::to_string(file_.size));
    if (there_ == 0) return true;
    // the server does not continue: from the first byte, which is no progress until more is there than was
    if (::ftruncate(out_.get(), 0) != 0 || ::lseek(out_.get(), 0, SEEK_SET) != 0)
        return give_up(ErrorCode::io_error, "the partial file cannot be cut");
    there_ = 0;
    hash_ = BlobHash(file_.hash, file_.size);
    return true;
}

bool Download::take_part(const Answer& answer) {
    const std::string text = answer.header("content-range");
    const auto range = parse_range(text);
    if (range && range->first == there_ && range->size == file_.size && range->last < range->size &&
        range->last >= range->first)
        return true;
    is_wanted_again_ = true;
    why_again_ = "asked for bytes from " + std::to_string(there_) + " of " + std::to_string(file_.size) +
                 ", the server answers Content-Range '" + text.substr(0, 100) + "'";
    return false;
}

bool Download::take_body(std::string_view piece) {
    if (piece.size() > file_.size - there_)
        return give_up(ErrorCode::damaged,
                       "more bytes came than the " + std::to_string(file_.size) + " that the hub lists");
    for (std::string_view rest = piece; !rest.empty();) {
        const auto n = ::write(out_.get(), rest.data(), rest.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            try {
                fail_at(repo_.partial(file_.hash), "cannot be written", errno);
            } catch (const Error&) {
                error_ = std::current_exception();
            }
            return false;
        }
        rest.remove_prefix(static_cast<std::size_t>(n));
    }
    hash_.update(piece);
    there_ += piece.size();
    received_ += piece.size();
    report(FileState::downloading, false);
    return !(settings_.cancelled && settings_.cancelled());
}

/// What the hub's redirect says about the file has to be what its list says.
void Download::check_link(const Answer& linked) const {
    if (linked.status == 0) return;
    std::string etag = linked.header("x-linked-etag");
    if (etag.starts_with("W/")) etag.erase(0, 2);
    std::erase(etag, '"');
    const std::string size = linked.header("x-linked-size"), commit = linked.header("x-repo-commit");
    if (etag != file_.hash)
        fail(ErrorCode::damaged, "the hub lists the hash " + file_.hash + " and links to " + etag.substr(0, 80));
    if (!size.empty() && size != std::to_string(file_.size))
        fail(ErrorCode::damaged,
             "the hub lists " + std::to_string(file_.size) + " bytes and links to " + size.substr(0, 30));
    if (!commit.empty() && commit != commit_)
        fail(ErrorCode::damaged, "commit " + commit_ + " was asked for and " + commit.substr(0, 60) + " came");
}

void Download::attempt(Tries& tries) {
    Request request;
    const bool was_signed = signed_.has_value();
    request.url = was_signed ? *signed_ : file_address(client_, name_, commit_, file_.path);
    if (there_ > 0) request.headers.emplace_back("Range", "bytes=" + std::to_string(there_) + "-");
    request.on_head = [&](const Answer& answer) { return take_head(answer); };
    request.on_body = [&](std::string_view piece) { return take_body(piece); };
    const Followed reply = client_.get(std::move(request));
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    check_link(reply.linked);
    if (!reply.is_of_hub && !was_signed) signed_ = reply.url;
    judge(reply, tries);
}

/// What follows from an answer that did not bring the rest of the file.
void Download::judge(const Followed& reply, Tries& tries) {
    const Answer& answer = reply.answer;
    if (std::exchange(is_wanted_again_, false)) return begin_again(why_again_);
    if (there_ > most_) tries.bytes_came();
    most_ = std::max(most_, there_);
    if (there_ == file_.size) return;
    if (answer.is_final) fail(ErrorCode::not_available, answer.failure);
    std::string why = answer.failure;
    if (answer.status == 416) {  // there is no more: so what is there would have to be all
        return begin_again("the server has no bytes from " + std::to_string(there_) + " on, of " +
                           std::to_string(file_.size));
    }
    if (answer.status == 200 || answer.status == 206) {
        if (why.empty()) why = reply.url.place() + " ended after " + std::to_string(there_) + " bytes";
    } else if (!reply.is_of_hub && (answer.status == 401 || answer.status == 403)) {
        signed_.reset();  // expired: the hub gives another one
        why = reply.url.place() + " answered " + std::to_string(answer.status);
    } else if (answer.status != 0 && !Client::is_passing(answer.status)) {
        if (file_.size > kLargest)
            fail(ErrorCode::not_available, "the server answered " + std::to_string(answer.status) +
                                               "; a file above 50 GB may need the hub's protocol Xet, which is not "
                                               "supported");
        client_.refuse(answer, file_.path);
    } else if (answer.status != 0) {
        why = reply.url.place() + " answered " + std::to_string(answer.status);
    }
    tries.wait("'" + file_.path + "': " + why, answer);
}

void Download::finish() {
    const fs::path from = repo_.partial(file_.hash), to = repo_.blob(file_.hash);
    if (::fsync(out_.get()) != 0) fail_at(from, "cannot be written", errno);
    if (::rename(from.c_str(), to.c_str()) != 0) fail_at(to, "cannot be made", errno);
}

Downloaded Download::run() {
    const BlobLock lock(repo_.lock(file_.hash), settings_, file_.path);
    if (is_cached(repo_, file_)) {
        there_ = file_.size;
        report(FileState::cached, true);
        link_file(repo_, commit_, file_.path, file_.hash);
        return {0, sha256_of(repo_, file_)};
    }
    open();
    hash_what_is_there();
    report(FileState::downloading, true);
    for (Tries tries(settings_);;) {
        while (there_ < file_.size) attempt(tries);
        report(FileState::verifying, true);
        found_ = hash_.finish();
        if (found_ == file_.hash) break;
        begin_again("the hash of what came is " + found_ + ", the hub lists " + file_.hash);
        if (file_.size == 0) fail(ErrorCode::damaged, begun_again_);
    }
    finish();
    link_file(repo_, commit_, file_.path, file_.hash);
    report(FileState::done, true);
    return {received_, hash_.sha256()};
}

}  // namespace

bool is_cached(const RepoCache& repo, const RepoFile& file) {
    std::error_code error;
    const fs::path blob = repo.blob(file.hash);
    return fs::is_regular_file(blob, error) && fs::file_size(blob, error) == file.size && !error;
}

std::string sha256_of(const RepoCache& repo, const RepoFile& file) {
    return is_hex(file.hash, 64) ? file.hash : to_hex(sha256_file(repo.blob(file.hash)));
}

Downloaded download(const Client& client, const HubName& name, const std::string& commit, const RepoFile& file) {
    return Download(client, name, commit, file).run();
}

}  // namespace tinfer::hub
