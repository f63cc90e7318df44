// SPDX-License-Identifier: MIT
// What can go wrong, and how it shows: a bad file or a bad option is an exception with a code; a full context and a
// cancelled decode are values; after either the context is as it was before the call.
#include <tinfer/tinfer.hpp>

#include <iostream>

int main(int argc, char** argv) {
    if (argc != 2) return std::cerr << "usage: errors MODEL.gguf\n", 2;
    try {
        (void)tinfer::Model::load("no-such-file.gguf");
    } catch (const tinfer::Error& error) {
        std::cout << to_string(error.code()) << ": " << error.what() << '\n';  // "io_error: no-such-file.gguf: …"
    }
    try {
        const auto model = tinfer::Model::load(argv[1]);
        tinfer::Context context(model, {.n_ctx = 64});  // room for 64 tokens

        const std::vector<tinfer::Token> forty(40, tinfer::Token{5});
        for (int i = 0; i < 2; ++i) {
            switch (context.decode(forty)) {
                case tinfer::DecodeStatus::ok: std::cout << "ok, " << context.used() << " tokens in use\n"; break;
                case tinfer::DecodeStatus::no_room:
                    std::cout << "no room: " << context.room(tinfer::SeqId{0}) << " of 40 would fit\n";
                    break;
                case tinfer::DecodeStatus::cancelled: std::cout << "cancelled\n"; break;
            }
        }
        try {
            const tinfer::Token impossible[]{tinfer::Token{-7}};
            (void)context.decode(impossible);
        } catch (const tinfer::Error& error) {  // nothing has changed
            std::cout << to_string(error.code()) << ": " << error.what() << '\n';
        }
        std::cout << context.used() << " tokens in use\n";
    } catch (const tinfer::Error& error) {
        std::cerr << "errors: " << error.what() << '\n';
        return 1;
    }
}
