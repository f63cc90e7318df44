// SPDX-License-Identifier: MIT
// Storage that is full after so many bytes, for every number of them: what is written is whole or as before, the error
// is io_error, a decode never fails, and what the writer works on goes on. Each case has a process of its own, which
// may write no file beyond a length.
#include <doctest/doctest.h>

#if defined(__linux__)
#    include <sys/resource.h>

#    include <csignal>
#    include <fstream>
#    include <iterator>

#    include "support/child_process.hpp"
#    include "support/temp_folder.hpp"
#    include "support/tiny_model.hpp"

namespace tinfer::test {

namespace {

constexpr int kSeconds = 300;

/// From here on a write beyond this length of a file fails (EFBIG).
void limit_files_to(std::uint64_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
}
void lift_limit() {
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_FSIZE, &limit);
}

std::vector<char> contents(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::ptrdiff_t n_files(const std::filesystem::path& folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

struct Small {
    TempFolder folder;
    Model model = Model::load(model_path());
    std::vector<Token> tokens = random_tokens(70, 128, 4);
    std::vector<std::uint32_t> expected = bits_of(logits_of(model, tokens, {.n_ctx = 128, .n_threads = 1}));

    [[nodiscard]] std::filesystem::path model_path() const {
        TinyModel tiny;
        tiny.n_layer = 1;
        return tiny.save(folder.path());
    }
    [[nodiscard]] bool decodes(Context& context) const {
        context.clear();
        return context.decode(tokens) == DecodeStatus::ok &&
               std::ranges::equal(bits_of(context.logits()), std::span(expected).last(128));
    }
};

/// Which lengths of a file are tried: at most so many, or a part of all.
struct Choice {
    std::uint64_t most = 0;
    std::uint64_t part = 0, n_parts = 1;

    /// With few lengths in all both ends are among them.
    [[nodiscard]] std::vector<std::uint64_t> below(std::uint64_t size) const {
        std::vector<std::uint64_t> lengths;
        const std::uint64_t step = most == 0 ? n_parts : size / most + 1;
        for (std::uint64_t at = part; at < size; at += step) lengths.push_back(at);
        if (part + 1 == n_parts) lengths.push_back(size - 1);
        return lengths;
    }
};

int state_over_an_old_one(const Small& s, const Choice& choice) {
    Context context(s.model, {.n_ctx = 128, .n_threads = 1});
    if (context.decode(std::span(s.tokens).first(9)) != DecodeStatus::ok) return 1;
    const auto path = s.folder / "a.state";
    save_state_file(context, path, {.seq = SeqId{0}});
    const auto before = contents(path);
    if (!s.decodes(context)) return 2;
    const auto files = n_files(s.folder.path());
    for (const std::uint64_t length : choice.below(state_size(context))) {
        limit_files_to(length);
        ErrorCode code{};
        try {
            save_state_file(context, path);
        } catch (const Error& error) {
            code = error.code();
        }
        lift_limit();
        if (code != ErrorCode::io_error) return 3;
        if (contents(path) != before || n_files(s.folder.path()) != files) return 4;
    }
    save_state_file(context, path);
    return read_state_file(path).n_tokens == 70 && s.decodes(context) ? 0 : 5;
}

int trace_of_a_decode(const Small& s, const Choice& choice) {
    Context context(s.model, {.n_ctx = 128, .n_threads = 1});
    const auto path = s.folder / "a.tntrace";
    const auto record = [&] {
        std::string error;
        const auto file = std::make_shared<TraceFile>(path, TraceFileOptions{.overwrite = true});
        {
            const auto attached = context.attach(file);
            if (!s.decodes(context)) throw std::runtime_error("a decode failed");
        }
        try {
            file->close();
        } catch (const Error& refusal) {
            if (refusal.code() != ErrorCode::io_error) throw;
            error = refusal.what();
        }
        return error;
    };
    if (!record().empty()) return 1;
    const std::uint64_t size = std::filesystem::file_size(path);
    for (const std::uint64_t length : choice.below(size)) {
        limit_files_to(length);
        const std::string error = record();
        lift_limit();
        if (error.find("a.tntrace") == error.npos) return 2;
        try {
            const auto trace = TraceReader::open(path);  // what is there is said to be a part
            if (trace.damage().empty() && trace.is_closed() && trace.header().n_dropped == 0 &&
                trace.file_bytes() == trace.header().file_bytes)
                return 3;
        } catch (const Error& error_of_reader) {
            if (error_of_reader.code() != ErrorCode::damaged) return 4;
        }
    }
    return record().empty() ? 0 : 5;
}

int pages_of_a_store(const Small& s, const Choice& choice) {
    Context context(s.model, {.n_ctx = 128, .n_threads = 1});
    const auto pages = s.folder / "pages";
    const auto keep = [&] {
        PrefixStore store(s.model, {.memory_limit = 0, .folder = pages});
        if (!s.decodes(context)) return false;
        store.keep(context, SeqId{0}, std::span(s.tokens).first(64));
        return store.match(context, s.tokens) == 64;
    };
    if (!keep()) return 1;
    const std::uint64_t size = std::filesystem::file_size(std::filesystem::directory_iterator(pages)->path());
    for (const std::uint64_t length : choice.below(size)) {
        std::filesystem::remove_all(pages);
        limit_files_to(length);
        const bool kept = keep();
        lift_limit();
        if (kept || n_files(pages) != 0) return 2;  // nothing is left of it
    }
    return keep() ? 0 : 3;
}

}  // namespace

TEST_CASE("[N3] storage that is full somewhere in a state, a trace or a page leaves whole files and what made them") {
    const Small s;
    CHECK(in_child(kSeconds, [&] { return state_over_an_old_one(s, {.most = 40}); }) == "exit 0");
    CHECK(in_child(kSeconds, [&] { return trace_of_a_decode(s, {.most = 40}); }) == "exit 0");
    CHECK(in_child(kSeconds, [&] { return pages_of_a_store(s, {.most = 40}); }) == "exit 0");
}

TEST_CASE("[N3][slow] storage that is full at every byte of a state, a trace or a page") {
    const Small s;
    constexpr std::uint64_t kParts = 64;  // each in a child of its own, so that none takes long
    for (std::uint64_t part = 0; part < kParts; ++part) {
        CAPTURE(part);
        const Choice choice{.part = part, .n_parts = kParts};
        CHECK(in_child(kSeconds, [&] { return state_over_an_old_one(s, choice); }) == "exit 0");
        CHECK(in_child(kSeconds, [&] { return trace_of_a_decode(s, choice); }) == "exit 0");
        CHECK(in_child(kSeconds, [&] { return pages_of_a_store(s, choice); }) == "exit 0");
    }
}

}  // namespace tinfer::test
#endif
