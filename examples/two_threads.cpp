// SPDX-License-Identifier: MIT
// Two texts in two threads on one model, and a way to stop them: the model is shared, each thread has a context of its
// own.
#include <tinfer/tinfer.hpp>

#include <atomic>
#include <iostream>
#include <thread>

int main(int argc, char** argv) try {
    if (argc != 4) return std::cerr << "usage: two_threads MODEL.gguf PROMPT PROMPT\n", 2;
    const auto model = tinfer::Model::load(argv[1]);  // a cheap handle: any thread may use it
    std::atomic<bool> stop = false;
    std::string texts[2];
    std::exception_ptr errors[2];

    const auto write = [&](int i) {
        try {
            tinfer::Context context(model, {.n_ctx = 1024, .n_threads = 1, .cancel = [&stop] {
                                                return stop.load();
                                            }});  // asked every few milliseconds
            tinfer::Sampler sampler(model.vocab(), {.seed = 1});
            tinfer::Generation story(model.vocab(), model.vocab().encode(argv[2 + i]), {.n_predict = 200});
            story.run(context, sampler);  // a cancelled decode ends it as `interrupt`
            texts[i] = story.text();
        } catch (...) {
            errors[i] = std::current_exception();
        }
    };
    std::jthread first(write, 0), second(write, 1);
    std::this_thread::sleep_for(std::chrono::seconds(2));
    stop = true;
    first.join();
    second.join();

    for (int i = 0; i < 2; ++i) {
        if (errors[i]) std::rethrow_exception(errors[i]);
        std::cout << argv[2 + i] << texts[i] << "\n---\n";
    }
} catch (const tinfer::Error& error) {
    std::cerr << "two_threads: " << error.what() << '\n';
    return 1;
}
