// SPDX-License-Identifier: MIT
#include "trace/file/sinks.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#if defined(__unix__) || defined(__APPLE__)
#    include <unistd.h>
#endif

#include "base/error.hpp"
#include "base/threads.hpp"

namespace tinfer {

std::string_view to_string(TraceMode mode) noexcept {
    switch (mode) {
        case TraceMode::sync: return "sync";
        case TraceMode::async: return "async";
        case TraceMode::ring: return "ring";
    }
    return "unknown";
}

std::string_view to_string(WhenFull when_full) noexcept {
    switch (when_full) {
        case WhenFull::wait: return "wait";
        case WhenFull::drop: return "drop";
    }
    return "unknown";
}

}  // namespace tinfer

namespace tinfer::trace {

namespace {

class FileSink final : public TraceSink {
public:
    FileSink(const std::filesystem::path& path, bool overwrite) : name_(path.string()) {
        errno = 0;
        file_ = std::fopen(name_.c_str(), overwrite ? "wb" : "wbx");
        if (file_ == nullptr) refuse(errno == EEXIST ? "is there already (see overwrite)" : "cannot be made");
        std::setvbuf(file_, nullptr, _IONBF, 0);
    }
    ~FileSink() override {
        if (file_ != nullptr) std::fclose(file_);
    }
    void write(std::span<const std::byte> bytes) override {
        errno = 0;
        if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) refuse("cannot be written");
    }
    void rewrite_start(std::span<const std::byte> bytes) override {
        errno = 0;
        if (std::fseek(file_, 0, SEEK_SET) != 0) {
            if (errno == ESPIPE) return;  // a pipe: it ends as it is
            refuse("cannot be written at its beginning");
        }
        write(bytes);
        (void)std::fseek(file_, 0, SEEK_END);
    }
    void sync() override {
#if defined(__unix__) || defined(__APPLE__)
        errno = 0;
        if (::fsync(::fileno(file_)) != 0 && errno != EINVAL) refuse("cannot be written to its storage");
#endif
    }
    void close() override {
        errno = 0;
        if (std::fclose(std::exchange(file_, nullptr)) != 0) refuse("cannot be closed");
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        const int number = errno;
        fail(ErrorCode::io_error, cat(name_, ": ", what, number != 0 ? ": " : "",
                                      number != 0 ? std::generic_category().message(number) : ""));
    }
    std::string name_;
    std::FILE* file_ = nullptr;
};

}  // namespace

std::unique_ptr<TraceSink> open_file_sink(const std::filesystem::path& path, bool overwrite) {
    return std::make_unique<FileSink>(path, overwrite);
}

AsyncSink::AsyncSink(std::unique_ptr<TraceSink> sink) : sink_(std::move(sink)), buffers_(kBuffers) {
    for (Buffer& buffer : buffers_) buffer.bytes.resize(kBufferBytes);
    thread_ = make_thread("trace file", [this] { work(); });
}

AsyncSink::~AsyncSink() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    filled_.notify_one();
    thread_.reset();  // ends when all is written
}

void AsyncSink::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        filled_.wait(lock, [&] { return stop_ || n_filled_ > 0; });
        if (n_filled_ == 0) return;
        const Buffer& buffer = buffers_[first_];
        if (!error_) {
            lock.unlock();
            std::exception_ptr thrown;
            try {
                sink_->write(std::span(buffer.bytes).first(buffer.used));
            } catch (...) {
                thrown = std::current_exception();
            }
            lock.lock();
            error_ = thrown;
        }
        first_ = (first_ + 1) % kBuffers;
        --n_filled_;
        emptied_.notify_all();
    }
}

void AsyncSink::rethrow() {
    if (error_) std::rethrow_exception(error_);
}

std::size_t AsyncSink::room() {
    const std::lock_guard lock(mutex_);
    return (kBuffers - n_filled_) * kBufferBytes;
}

void AsyncSink::write(std::span<const std::byte> bytes) {
    std::unique_lock lock(mutex_);
    while (!bytes.empty()) {
        emptied_.wait(lock, [&] { return n_filled_ < kBuffers || error_; });
        rethrow();
        Buffer& buffer = buffers_[(first_ + n_filled_) % kBuffers];
        buffer.used = std::min(bytes.size(), kBufferBytes);
        std::ranges::copy(bytes.first(buffer.used), buffer.bytes.begin());
        bytes = bytes.subspan(buffer.used);
        ++n_filled_;
        filled_.notify_one();
    }
}

void AsyncSink::drain(std::unique_lock<std::mutex>& lock) {
    emptied_.wait(lock, [&] { return n_filled_ == 0; });
    rethrow();
}

void AsyncSink::rewrite_start(std::span<const std::byte> bytes) {
    std::unique_lock lock(mutex_);
    drain(lock);
    sink_->rewrite_start(bytes);
}

void AsyncSink::sync() {
    std::unique_lock lock(mutex_);
    drain(lock);
    sink_->sync();
}

void AsyncSink::close() {
    std::unique_lock lock(mutex_);
    emptied_.wait(lock, [&] { return n_filled_ == 0; });
    if (!error_) sink_->close();
    rethrow();
}

}  // namespace tinfer::trace
