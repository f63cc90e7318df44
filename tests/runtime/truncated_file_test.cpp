// SPDX-License-Identifier: MIT
// A model file that is cut short while it is mapped: an error of the library where the library reads, and nobody else's
// signal changes. Each case has a process of its own.
#include <doctest/doctest.h>

#if defined(__linux__)
#    include <pthread.h>
#    include <sys/mman.h>

#    include <array>
#    include <atomic>
#    include <csignal>
#    include <cstring>
#    include <string>
#    include <thread>
#    include <vector>

#    include "base/access.hpp"
#    include "base/mapped_file.hpp"
#    include "runtime/context.hpp"
#    include "support/child_process.hpp"
#    include "support/sanitizers.hpp"
#    include "support/temp_folder.hpp"
#    include "support/tiny_model.hpp"

namespace tinfer {

namespace {

using test::in_child;
using test::TinyModel;

constexpr int kSeconds = 60;
const std::string kKilled = "signal " + std::to_string(SIGBUS);  // the sanitizers report instead

struct File {
    test::TempFolder folder;
    std::filesystem::path path = TinyModel{}.save(folder.path());
    std::vector<Token> tokens = test::random_tokens(12, 128, 1);
    std::uint64_t cut = 0;  ///< bytes that are left: all of the header and a page or so of the weights
    File() {
        const auto file = ModelFile::open(path);
        cut = (file.tensors()[0].file_offset + page_size()) / page_size() * page_size();
        REQUIRE(cut + 4 * page_size() < std::filesystem::file_size(path));
    }
    void truncate() const { std::filesystem::resize_file(path, cut); }
    /// The error names file and offset: 0, else what is wrong with it.
    template <class Fn>
    int io_error_of(Fn&& fn) const {
        try {
            fn();
        } catch (const Error& error) {
            const std::string text = error.what(), mark = "cannot read at byte ";
            if (error.code() != ErrorCode::io_error) return 10;
            if (text.find(path.filename().string()) == text.npos) return 11;
            const std::size_t place = text.find(mark);
            if (place == text.npos) return 12;
            const auto offset = std::stoull(text.substr(place + mark.size()));
            return offset >= cut && offset < (1u << 30) ? 0 : 13;
        }
        return 14;
    }
};

void decode_all(Context& context, std::span<const Token> tokens) { static_cast<void>(context.decode(tokens)); }

std::atomic<int> host_signals{0};

}  // namespace

TEST_CASE_FIXTURE(File, "truncated file: decode reports it, rolled back, and so does every later one on the model") {
    for (const int n_threads : {1, 2}) {
        if (std::filesystem::file_size(path) == cut) path = TinyModel{}.save(folder.path());
        CAPTURE(n_threads);
        CHECK(in_child(kSeconds, [&] {
                  const auto model = Model::load(path);
                  Context context(model, {.n_ctx = 64, .n_threads = n_threads}),
                      other(model, {.n_ctx = 64, .n_threads = 1});
                  detail::impl_of(context).runner.team_limit = 2;
                  if (context.decode(std::span(tokens).first(3)) != DecodeStatus::ok) return 1;
                  truncate();
                  if (const int code = io_error_of([&] { decode_all(context, tokens); })) return code;
                  if (context.count(SeqId{0}) != 3 || context.n_outputs() != 0) return 2;
                  if (const int code = io_error_of([&] { decode_all(context, tokens); })) return code;
                  if (const int code = io_error_of([&] { decode_all(other, tokens); })) return code;
                  Context later(model, {.n_ctx = 64});
                  return io_error_of([&] { decode_all(later, tokens); });
              }) == "exit 0");
    }
}

TEST_CASE_FIXTURE(File, "truncated file: in the middle of a decode, with every kind of team") {
    for (const bool openmp : {false, true})
        for (const bool in_slices : {false, true})
            for (const int at : {0, 3, 20}) {
                if (std::filesystem::file_size(path) == cut) path = TinyModel{}.save(folder.path());
                CAPTURE(openmp);
                CAPTURE(in_slices);
                CAPTURE(at);
                CHECK(in_child(kSeconds, [&] {
                          int code = 1;
                          std::thread([&] {  // which OpenMP knows nothing of yet
                              int n_polls = 0;
                              const auto model = Model::load(path);
                              Context context(model, {.n_ctx = 64, .n_threads = 2, .cancel = [&] {
                                                          if (n_polls++ == at) truncate();
                                                          return false;
                                                      }});
                              detail::impl_of(context).runner.team_limit = 2;
                              if (openmp) detail::impl_of(context).runner.team = run_team;
                              code = io_error_of([&] {
                                  if (!in_slices) return decode_all(context, tokens);
                                  context.begin(tokens);
                                  while (context.step(std::chrono::microseconds(50)) == StepStatus::pending) {
                                  }
                              });
                              if (code == 0 && context.count(SeqId{0}) != 0) code = 2;
                              if (code == 0) code = io_error_of([&] { decode_all(context, tokens); });
                          })
                              .join();
                          return code;
                      }) == "exit 0");
            }
}

TEST_CASE_FIXTURE(File, "truncated file: the checks of a load report it") {
    CHECK(in_child(kSeconds, [&] {
              return io_error_of([&] {
                  static_cast<void>(
                      Model::load(path, {.check_tensors = true, .progress = [&](double) { return truncate(), true; }}));
              });
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {
              const auto file = ModelFile::open(path);
              truncate();
              return io_error_of([&] { file.check_data(); });
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // not mapped: an ordinary error
              const auto file = ModelFile::open(path, {.use_mmap = false});
              truncate();
              try {
                  file.check_data();
              } catch (const Error& error) {
                  return error.code() == ErrorCode::truncated ? 0 : 1;
              }
              return 2;
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // the header too
              const auto file = ModelFile::open(path);
              std::filesystem::resize_file(path, 0);
              cut = 0;
              return io_error_of([&] { static_cast<void>(file.json()); });
          }) == "exit 0");
}

TEST_CASE_FIXTURE(File, "truncated file: what is not weights does not go with the file") {
    CHECK(in_child(kSeconds, [&] {
              const auto whole = ModelFile::open(path);
              const auto model = Model::load(path);
              Context context(model, {.n_ctx = 64, .n_threads = 1});
              if (context.decode(std::span(tokens).first(3)) != DecodeStatus::ok) return 1;
              std::filesystem::resize_file(path, 0);
              cut = 0;
              for (std::size_t i = 0; i < whole.tensors().size(); ++i)
                  if (model.file().tensors()[i].name != whole.tensors()[i].name) return 2;
              if (model.file().find("blk.1.ffn_up.weight") == nullptr || model.info().architecture != "llama") return 3;
              for (int n = 1; n <= 12; ++n)  // a plan for each length is new, and is known by the names of tensors
                  if (const int code = io_error_of([&] { decode_all(context, std::span(tokens).first(n)); }))
                      return code;
              Context later(model, {.n_ctx = 64, .n_threads = 1});
              if (const int code = io_error_of([&] { decode_all(later, tokens); })) return code;
              return io_error_of([&] { static_cast<void>(model.file().metadata()); });
          }) == "exit 0");
}

TEST_CASE_FIXTURE(File, "truncated file: bytes lost inside the last page are an error, not zeros") {
    const std::uint64_t size = std::filesystem::file_size(path);
    const auto lose_the_end = [&] { std::filesystem::resize_file(path, cut = size - 8); };
    REQUIRE((size - 8) / page_size() == (size - 1) / page_size());
    CHECK(in_child(kSeconds, [&] {
              const auto model = Model::load(path);
              Context context(model, {.n_ctx = 64, .n_threads = 1});
              lose_the_end();
              if (const int code = io_error_of([&] { decode_all(context, tokens); })) return code;
              if (context.count(SeqId{0}) != 0) return 1;
              std::filesystem::resize_file(path, size);  // what is lost stays lost
              return io_error_of([&] { decode_all(context, tokens); });
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // while it decodes
              const auto model = Model::load(path);
              Context context(model, {.n_ctx = 64, .n_threads = 1, .cancel = [&] { return lose_the_end(), false; }});
              return io_error_of([&] { decode_all(context, tokens); });
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // while it is loaded
              return io_error_of([&] {
                  static_cast<void>(Model::load(path, {.progress = [&](double) { return lose_the_end(), true; }}));
              });
          }) == "exit 0");
}

TEST_CASE_FIXTURE(File, "truncated file: a program's own reads are guarded on its threads, and checked") {
    CHECK(in_child(kSeconds, [&] {
              const auto model = Model::load(path);
              const auto file = ModelFile::open(path);  // mapped once more
              {
                  const ReadGuard guard(file);
                  guard.check();
                  if (guard.bytes().size() != std::filesystem::file_size(path) || !guard.bytes(1).empty()) return 1;
              }
              truncate();
              std::atomic<int> wrong{0};
              std::vector<std::thread> threads;
              for (int t = 0; t < 4; ++t)
                  threads.emplace_back([&] {
                      const ReadGuard guard(file);
                      for (std::size_t i = cut; i < guard.bytes().size(); i += 512)
                          wrong += static_cast<volatile const std::byte&>(guard.bytes()[i]) != std::byte{0};
                      wrong += io_error_of([&] { guard.check(); });
                  });
              for (std::thread& thread : threads) thread.join();
              if (wrong != 0) return 2;
              const ReadGuard guard(model.file());
              const TensorInfo& last = model.file().tensors().back();
              wrong += static_cast<const volatile char*>(last.address)[last.bytes - 1];
              return wrong != 0 ? 3 : io_error_of([&] { guard.check(); });
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    const auto read = ModelFile::open(path, {.use_mmap = false});
    CHECK(ReadGuard(read).bytes().empty());
}

TEST_CASE_FIXTURE(File, "truncated file: a thread that blocks all signals is guarded, and keeps its mask") {
    CHECK(in_child(kSeconds, [&] {
              const auto model = Model::load(path);
              Context context(model, {.n_ctx = 64, .n_threads = 1});
              truncate();
              sigset_t all, now;
              sigfillset(&all);
              pthread_sigmask(SIG_BLOCK, &all, nullptr);
              if (const int code = io_error_of([&] { decode_all(context, tokens); })) return code;
              pthread_sigmask(SIG_BLOCK, nullptr, &now);
              return sigismember(&now, SIGBUS) == 1 && sigismember(&now, SIGUSR1) == 1 ? 0 : 1;
          }) == "exit 0");
}

TEST_CASE_FIXTURE(File, "truncated file: signals that are not the library's go where they went before") {
    const auto count = [](int, siginfo_t*, void*) { ++host_signals; };
    struct sigaction host {};
    host.sa_sigaction = count;
    host.sa_flags = SA_SIGINFO;
    CHECK(in_child(kSeconds, [&] {  // to a handler of the host, and the handler comes back
              ::sigaction(SIGBUS, &host, nullptr);
              {
                  const auto model = Model::load(path);
                  { const auto second = Model::load(path); }
                  ::raise(SIGBUS);
                  Context context(model, {.n_ctx = 64, .n_threads = 1});
                  if (context.decode(tokens) != DecodeStatus::ok || host_signals != 1) return 1;
                  truncate();
                  if (const int code = io_error_of([&] { decode_all(context, tokens); })) return code;
                  if (host_signals != 1) return 2;
              }
              struct sigaction now {};
              ::sigaction(SIGBUS, nullptr, &now);
              return now.sa_sigaction == host.sa_sigaction && (now.sa_flags & SA_SIGINFO) != 0 ? 0 : 3;
          }) == "exit 0");
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // one that the host installs later stays
              struct sigaction now {};
              {
                  const auto model = Model::load(path);
                  ::sigaction(SIGBUS, &host, nullptr);
              }
              ::sigaction(SIGBUS, nullptr, &now);
              return now.sa_sigaction == host.sa_sigaction ? 0 : 1;
          }) == "exit 0");
    CHECK(in_child(kSeconds, [&] {  // ignored
              ::signal(SIGBUS, SIG_IGN);
              const auto model = Model::load(path);
              ::raise(SIGBUS);
              return 0;
          }) == "exit 0");
    CHECK(in_child(kSeconds, [&] {  // a plain handler
              ::signal(SIGBUS, [](int signal) { host_signals += signal; });
              const auto model = Model::load(path);
              ::raise(SIGBUS);
              return host_signals == SIGBUS ? 0 : 1;
          }) == "exit 0");
    if (test::kSanitized) return;
    CHECK(in_child(kSeconds, [&] {  // nobody: sent by a process
              const auto model = Model::load(path);
              ::raise(SIGBUS);
              return 0;
          }) == kKilled);
    const auto touch = [](const Model& model) {
        int sum = 0;
        for (const TensorInfo& tensor : model.file().tensors())
            sum += static_cast<const volatile char*>(tensor.address)[tensor.bytes - 1];
        return sum;
    };
    CHECK(in_child(kSeconds, [&] {  // a program that reads weights itself
              const auto model = Model::load(path);
              truncate();
              return touch(model), 0;
          }) == kKilled);
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // in a thread of its own, during a run
              const auto model = Model::load(path);
              Context context(model, {.n_ctx = 64, .n_threads = 1, .cancel = [&] {
                                          truncate();
                                          std::thread([&] { static_cast<void>(touch(model)); }).join();
                                          return false;
                                      }});
              decode_all(context, tokens);
              return 0;
          }) == kKilled);
    path = TinyModel{}.save(folder.path());
    CHECK(in_child(kSeconds, [&] {  // without a guard
              struct sigaction now {};
              const auto model = Model::load(path, {.guard_mapping = false});
              ::sigaction(SIGBUS, nullptr, &now);
              if (now.sa_handler != SIG_DFL) return 1;
              Context context(model, {.n_ctx = 64, .n_threads = 1});
              truncate();
              decode_all(context, tokens);
              return 0;
          }) == kKilled);
}

TEST_CASE_FIXTURE(File, "truncated file: many threads with contexts and models of their own") {
    CHECK(in_child(kSeconds, [&] {
              const auto whole_path = folder.path() / "whole.gguf";
              std::filesystem::copy_file(path, whole_path);
              const auto lost = Model::load(path), whole = Model::load(whole_path);
              std::atomic<int> wrong{0};
              std::vector<std::thread> threads;
              truncate();
              for (int t = 0; t < 8; ++t)
                  threads.emplace_back([&, t] {
                      for (int i = 0; i < 20; ++i) {
                          const auto own = t % 2 == 0 ? whole : lost;
                          Context context(own, {.n_ctx = 64, .n_threads = 1});
                          if (t % 2 == 0) wrong += context.decode(tokens) != DecodeStatus::ok;
                          else wrong += io_error_of([&] { decode_all(context, tokens); }) != 0;
                      }
                  });
              for (std::thread& thread : threads) thread.join();
              return wrong.load();
          }) == "exit 0");
}

TEST_CASE_FIXTURE(File, "check_data: a file that is open is not changed by it, from any number of threads") {
    for (const bool use_mmap : {true, false}) {
        const auto file = ModelFile::open(path, {.use_mmap = use_mmap});
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) threads.emplace_back([&] { file.check_data(); });
        for (std::thread& thread : threads) thread.join();
        for (const TensorInfo& tensor : file.tensors()) CHECK(tensor.address == nullptr);
    }
}

}  // namespace tinfer
#endif
