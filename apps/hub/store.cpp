// SPDX-License-Identifier: MIT
#include "store.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <system_error>
#include <thread>
#include <tinfer/base.hpp>

namespace tinfer::hub {

namespace fs = std::filesystem;

namespace {

Descriptor open_lock(const fs::path& path) {
    make_folders(path.parent_path());
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (file.get() < 0) fail_at(path, "cannot be opened", errno);
    return file;
}

/// Some clients remove the lock's file once they are done: then it has to be made anew.
bool is_still_at(const Descriptor& file, const fs::path& path) {
    struct stat opened {
    }, named{};
    return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
           opened.st_dev == named.st_dev;
}

}  // namespace

void fail_at(const fs::path& path, std::string_view what, int error) {
    throw Error(ErrorCode::io_error,
                path.string() + ": " + std::string(what) + ": " + std::generic_category().message(error));
}

void make_folders(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) fail_at(path, "cannot be made", error.value());
}

Descriptor::~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
}

BlobLock::BlobLock(const fs::path& path, const Settings& settings, std::string_view what) {
    for (bool is_told = false;;) {
        file_ = open_lock(path);
        while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
            if (errno != EWOULDBLOCK && errno != EINTR) fail_at(path, "cannot be locked", errno);
            if (settings.cancelled && settings.cancelled()) throw Error(ErrorCode::cancelled, "interrupted");
            if (!is_told && settings.say) settings.say("another process downloads " + std::string(what) + ": waiting");
            is_told = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (is_still_at(file_, path)) return;
    }
}

std::optional<BlobLock> BlobLock::try_take(const fs::path& path) {
    Descriptor file = open_lock(path);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
    return BlobLock(std::move(file));
}

void link_file(const RepoCache& repo, const std::string& commit, const std::string& path, const std::string& hash) {
    const fs::path link = repo.snapshot(commit) / path;
    make_folders(link.parent_path());
    fs::path target = fs::path("..") / ".." / "blobs" / hash;
    for (std::size_t at = path.find('/'); at != path.npos; at = path.find('/', at + 1)) target = ".." / target;
    std::error_code error;
    if (fs::is_symlink(link, error) && fs::read_symlink(link, error) == target) return;
    // made elsewhere and renamed, so that a link that was there is never missing
    const fs::path made = repo.lock("link." + std::to_string(::getpid()));
    make_folders(made.parent_path());
    fs::remove(made, error);
    if (::symlink(target.c_str(), made.c_str()) != 0) fail_at(made, "cannot be made", errno);
    if (::rename(made.c_str(), link.c_str()) != 0) {
        const int why = errno;
        fs::remove(made, error);
        fail_at(link, "cannot be made", why);
    }
}

void write_ref(const RepoCache& repo, const std::string& revision, const std::string& commit) {
    if (is_commit(revision)) return;
    const fs::path ref = repo.ref(revision);
    if (repo.commit_of(revision) == commit) return;
    make_folders(ref.parent_path());
    const fs::path made = repo.lock("refs." + std::to_string(::getpid()));
    make_folders(made.parent_path());
    {
        std::ofstream out(made, std::ios::binary | std::ios::trunc);
        out << commit;
        if (!out.flush()) fail_at(made, "cannot be written", errno);
    }
    if (::rename(made.c_str(), ref.c_str()) != 0) fail_at(ref, "cannot be written", errno);
}

}  // namespace tinfer::hub
