// SPDX-License-Identifier: MIT
// Files fail at every place where they can: each system call on a file in each public operation fails once, or does a
// part of what it was asked for. The operation says io_error or does without, what it was called on works as before,
// and files are whole or as they were.
#include <doctest/doctest.h>

#if defined(__linux__)
#    include <algorithm>
#    include <filesystem>
#    include <fstream>
#    include <functional>
#    include <iterator>
#    include <string>
#    include <vector>

#    include "support/child_process.hpp"
#    include "support/failing_calls.hpp"
#    include "support/sanitizers.hpp"
#    include "support/temp_folder.hpp"
#    include "support/tiny_model.hpp"
#    include "tinfer/tinfer.hpp"

namespace tinfer::test {

namespace {

constexpr int kSeconds = 600;
constexpr std::uint64_t kMaxCalls = 100'000;

/// An operation on files, and what it may have done when one of its calls has failed.
struct Operation {
    std::string name;
    std::function<void()> act{};
    /// What is wrong afterwards; "" where all is well. It is told whether the operation threw.
    std::function<std::string(bool has_thrown)> check{};
    std::uint64_t least_calls = 4;  ///< so many at least have to be failed
};

std::vector<char> contents(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

std::ptrdiff_t n_files(const std::filesystem::path& folder) {
    return std::distance(std::filesystem::directory_iterator(folder), {});
}

/// Fails each `step`-th call of the operation once, and counts them. What should not happen, the first of it.
std::string fail_each_call(const Operation& operation, Fault fault, std::uint64_t step, std::uint64_t& n_failed) {
    for (std::uint64_t n = 1; n < kMaxCalls; n += step) {
        bool has_thrown = false;
        std::string wrong;
        fail_call_at(n, fault);
        try {
            operation.act();
        } catch (const Error& error) {
            has_thrown = true;
            if (error.code() != ErrorCode::io_error) wrong = "threw " + std::string(error.what());
        } catch (const std::exception& error) {
            wrong = "another exception left a public call: " + std::string(error.what());
        }
        const bool has_failed = call_failed();
        fail_call_at(0, fault);
        if (fault == Fault::part && has_thrown) wrong = "a part of what was asked for is no error";
        if (!has_failed && has_thrown) wrong = "it fails by itself";
        if (wrong.empty()) wrong = operation.check(has_thrown);
        if (!wrong.empty()) return "call " + std::to_string(n) + ": " + wrong;
        if (!has_failed)
            return n_failed * step >= operation.least_calls || fault != Fault::error ? "" : "hardly a call was failed";
        ++n_failed;
    }
    return "never came to an end";
}

const ContextOptions kOneThread{.n_ctx = 128, .n_threads = 1};

struct Files {
    TempFolder folder;
    Model model = Model::load(model_path());
    std::vector<Token> tokens = random_tokens(70, 128, 4);
    std::vector<std::uint32_t> expected = bits_of(logits_of(model, tokens, kOneThread));

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

Operation loading(const Files& f, bool use_mmap) {
    const auto path = f.folder / "loaded.gguf", kept = f.folder / (use_mmap ? "kept" : "kept-too");
    std::filesystem::copy_file(f.model_path(), path, std::filesystem::copy_options::overwrite_existing);
    const auto full = ModelFile::open(path).compute_full_fingerprint();
    const auto load = [&f, path, kept, use_mmap, full] {
        const auto model = Model::load(path, {.use_mmap = use_mmap});
        if (bits_of(logits_of(model, f.tokens, kOneThread)) != f.expected) throw std::runtime_error("other bits");
        if (model.file().compute_full_fingerprint({.folder = kept}) != full) throw std::runtime_error("other file");
        if (model.file().full_fingerprint(kept).value_or(full) != full) throw std::runtime_error("other file is kept");
        (void)plan(path, {.use_mmap = use_mmap}, kOneThread);
    };
    const auto check = [load, kept](bool) -> std::string {
        try {
            load();
        } catch (const std::exception& error) {
            return "cannot be loaded afterwards: " + std::string(error.what());
        }
        std::filesystem::remove_all(kept);
        return "";
    };
    return {use_mmap ? "load a mapped model" : "load a model", load, check, 12};
}

Operation saving(const Files& f, Context& context) {
    const auto path = f.folder / "a.state", whole = f.folder / "whole.state";
    save_state_file(context, whole);
    const auto fresh = contents(whole);
    context.clear();
    if (context.decode(std::span(f.tokens).first(9)) != DecodeStatus::ok) throw std::runtime_error("decode");
    save_state_file(context, path, {.seq = SeqId{0}});
    const auto before = contents(path);
    const auto files = n_files(f.folder.path());
    if (!f.decodes(context)) throw std::runtime_error("other bits");
    const auto check = [&f, &context, path, fresh, before, files](bool has_thrown) -> std::string {
        const auto now = contents(path);
        if (now != fresh && now != before) return "the file is neither whole nor as before";
        if (!has_thrown && now != fresh) return "not written, and nobody was told";
        if (n_files(f.folder.path()) != files) return "another file is left";
        {
            std::ofstream out(path, std::ios::binary);
            out.write(before.data(), static_cast<std::streamsize>(before.size()));
        }
        return f.decodes(context) ? "" : "the context has other bits";
    };
    return {"save a state", [&context, path] { save_state_file(context, path); }, check};
}

Operation reading(const Files& f, Context& context) {
    const auto path = f.folder / "b.state";
    if (!f.decodes(context)) throw std::runtime_error("other bits");
    save_state_file(context, path);
    const auto size = state_size(context);
    const auto read = [&context, path] {
        (void)read_state_file(path);
        (void)load_state_file(context, path);
    };
    const auto check = [&f, &context, size](bool) -> std::string {
        if (state_size(context) != size) return "the context has changed";
        return f.decodes(context) ? "" : "the context has other bits";
    };
    return {"load a state", read, check};
}

Operation tracing(const Files& f, Context& context, TraceMode mode) {
    const auto path = f.folder / "a.tntrace";
    const auto record = [&f, &context, path, mode] {
        const auto file = std::make_shared<TraceFile>(
            path, TraceFileOptions{.mode = mode, .overwrite = true, .flush_every_run = true});
        {
            const auto attached = context.attach(file);
            if (!f.decodes(context)) throw std::runtime_error("a decode failed");
        }
        if (mode == TraceMode::ring) file->dump();
        file->close();
    };
    const auto check = [path](bool has_thrown) -> std::string {
        try {
            const auto trace = TraceReader::open(path);
            const bool is_whole = trace.damage().empty() && trace.is_closed() && trace.header().n_dropped == 0;
            if (!has_thrown && !is_whole) return "a trace is not whole, and nobody was told";
        } catch (const Error& error) {
            if (!has_thrown) return "a trace cannot be read: " + std::string(error.what());
        }
        return "";
    };
    return {"write a trace, mode " + std::to_string(static_cast<int>(mode)), record, check};
}

Operation reading_a_trace(const Files& f, Context& context) {
    const auto path = f.folder / "b.tntrace";
    {
        const auto file = std::make_shared<TraceFile>(path, TraceFileOptions{.overwrite = true});
        const auto attached = context.attach(file);
        if (!f.decodes(context)) throw std::runtime_error("other bits");
        file->close();
    }
    const auto whole = TraceReader::open(path);
    const auto n_blocks = whole.blocks().size();
    const auto read = [path, n_blocks] {
        const auto trace = TraceReader::open(path);
        if (!trace.damage().empty() || trace.blocks().size() != n_blocks) throw std::runtime_error("less was read");
    };
    return {"read a trace", read, [](bool) { return std::string(); }, 3};
}

Operation capturing(const Files& f, Context& context) {
    const auto path = f.folder / "values";
    const auto capture = [&f, &context, path] {
        const auto file =
            std::make_shared<ActivationCapture>(path, CaptureOptions{.names = {"l_out-*"}, .overwrite = true});
        {
            const auto attached = context.attach(file);
            if (!f.decodes(context)) throw std::runtime_error("a decode failed");
        }
        file->close();
        if (ActivationCapture::read(path).empty()) throw std::runtime_error("nothing was read");
    };
    return {"capture activations", capture, [](bool) { return std::string(); }};
}

Operation keeping(const Files& f, Context& context) {
    const auto pages = f.folder / "pages";
    const auto keep = [&f, &context, pages] {
        if (!f.decodes(context)) throw std::runtime_error("a decode failed");
        PrefixStore store(f.model, {.memory_limit = 0, .folder = pages});
        store.keep(context, SeqId{0}, std::span(f.tokens).first(64));
    };
    const auto check = [&f, &context, pages, keep](bool) -> std::string {
        const auto n = n_files(pages);
        PrefixStore store(f.model, {.memory_limit = 0, .folder = pages});
        if (store.match(context, f.tokens) != (n == 0 ? 0u : 64u)) return "a page is not whole";
        keep();
        PrefixStore after(f.model, {.memory_limit = 0, .folder = pages});
        if (after.match(context, f.tokens) != 64) return "nothing is kept afterwards";
        if (n_files(pages) != 1) return "another file is left";
        std::filesystem::remove_all(pages);
        std::filesystem::create_directory(pages);
        return "";
    };
    std::filesystem::create_directory(pages);
    return {"keep a prefix", keep, check};
}

Operation restoring(const Files& f, Context& context) {
    const auto pages = f.folder / "more-pages";
    if (!f.decodes(context)) throw std::runtime_error("other bits");
    PrefixStore(f.model, {.memory_limit = 0, .folder = pages}).keep(context, SeqId{0}, std::span(f.tokens).first(64));
    const auto restore = [&f, &context, pages] {
        PrefixStore store(f.model, {.memory_limit = 0, .folder = pages});
        context.clear();
        const std::size_t n = store.restore(context, SeqId{0}, f.tokens);
        if (n != 0 && n != 64) throw std::runtime_error("another number of tokens");
        if (context.decode(std::span(f.tokens).subspan(n)) != DecodeStatus::ok ||
            !std::ranges::equal(bits_of(context.logits()), std::span(f.expected).last(128)))
            throw std::runtime_error("other bits");
    };
    const auto check = [&f, &context, restore, pages](bool) -> std::string {
        restore();
        return n_files(pages) == 1 && f.decodes(context) ? "" : "other bits";
    };
    return {"restore a prefix", restore, check};
}

/// Each operation in a process of its own.
void fail_files(std::uint64_t step) {
    const Files f;
    if (in_child(kSeconds, [] { return begin_failing_calls() ? 0 : 1; }) != "exit 0") {
        MESSAGE("no filter of system calls here");
        return;
    }
    std::uint64_t n_failed = 0;
    using Make = std::function<Operation(Context&)>;
    const std::vector<Make> all{[&](Context&) { return loading(f, true); },
                                [&](Context&) { return loading(f, false); },
                                [&](Context& context) { return saving(f, context); },
                                [&](Context& context) { return reading(f, context); },
                                [&](Context& context) { return tracing(f, context, TraceMode::sync); },
                                [&](Context& context) { return tracing(f, context, TraceMode::ring); },
                                [&](Context& context) { return reading_a_trace(f, context); },
                                [&](Context& context) { return capturing(f, context); },
                                [&](Context& context) { return keeping(f, context); },
                                [&](Context& context) { return restoring(f, context); }};
    for (const Make& make : all)
        for (const Fault fault : {Fault::error, Fault::interrupt, Fault::part}) {
            const auto said = f.folder / "said", counted = f.folder / "counted";
            const auto run = [&] {
                Context context(f.model, kOneThread);
                if (!f.decodes(context)) return 2;
                const Operation operation = make(context);
                if (!begin_failing_calls()) return 3;
                std::uint64_t n = 0;
                const std::string wrong = fail_each_call(operation, fault, step, n);
                std::ofstream(said) << operation.name << ", fault " << static_cast<int>(fault) << ": " << wrong;
                std::ofstream(counted) << n;
                return wrong.empty() ? 0 : 1;
            };
            const std::string ended = in_child(kSeconds, run);
            const auto text = contents(said);
            INFO(std::string(text.begin(), text.end()));
            CHECK(ended == "exit 0");
            std::uint64_t n = 0;
            std::ifstream(counted) >> n;
            n_failed += n;
        }
    MESSAGE(n_failed << " calls failed");
    CHECK(n_failed * step > 150);
}

}  // namespace

TEST_CASE("[N3] files that fail now and then leave whole files and what was made of them") { fail_files(5); }
TEST_CASE("[N3][slow] files that fail at each system call") { fail_files(1); }

}  // namespace tinfer::test
#endif
