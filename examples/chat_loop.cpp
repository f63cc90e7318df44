// SPDX-License-Identifier: MIT
// A conversation in the terminal: every line is a turn. The whole conversation is rendered for each turn; only what the
// context has not seen yet is computed.
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: chat_loop MODEL.gguf\n", 2;
    const auto model = tinfer::Model::load(argv[1]);
    const auto& vocab = model.vocab();
    const auto chat = tinfer::ChatTemplate::of(model.file()).value_or(*tinfer::ChatTemplate::built_in("chatml"));
    tinfer::Context context(model, {.n_ctx = 4096});
    tinfer::Sampler sampler(vocab, {.temp = 0.7f});

    std::vector<tinfer::ChatMessage> messages;
    std::vector<tinfer::Token> cached;  // tokens in the context
    for (std::string line; std::cout << "> " << std::flush && std::getline(std::cin, line);) {
        messages.push_back({"user", line});
        const auto prompt = tinfer::encode(vocab, chat.render(vocab, messages)).tokens;  // users form no control tokens

        auto [old_end, new_begin] = std::ranges::mismatch(cached, prompt);
        if (new_begin == prompt.end()) --old_end, --new_begin;  // the last token is computed again: it gives the logits
        const auto n_kept = static_cast<std::int32_t>(new_begin - prompt.begin());
        if (context.seq_rm(tinfer::SeqId{0}, {tinfer::Pos{n_kept}}) != tinfer::RemoveStatus::ok) {
            context.clear();  // recurrent states cannot be truncated
            new_begin = prompt.begin();
        }

        tinfer::Generation answer(vocab, {new_begin, prompt.end()}, {.n_predict = 512});
        answer.run(context, sampler, [](std::string_view text) { return bool(std::cout << text << std::flush); });
        std::cout << '\n';
        if (answer.stop() == tinfer::StopReason::context) std::cout << "(the context is full)\n";

        messages.push_back({"assistant", answer.text()});
        cached = prompt;
        cached.insert(cached.end(), answer.tokens().begin(), answer.tokens().end());
        cached.resize(
            static_cast<std::size_t>(context.count(tinfer::SeqId{0})));  // the last one may not be decoded yet
    }
} catch (const tinfer::Error& error) {
    std::cerr << "chat: " << error.what() << '\n';
    return 1;
}
