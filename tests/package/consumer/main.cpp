// SPDX-License-Identifier: MIT
// The program of a consumer, the same for every way of consuming the library: the hash of some logits.
#if __has_include(<tinfer/tinfer.hpp>)
#  include <tinfer/tinfer.hpp>
#else
#  include "tinfer.hpp"
#endif

#include <iomanip>
#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) return 2;
    const auto model = tinfer::Model::load(argv[1]);
    tinfer::Context context(model, {.n_ctx = 64, .logits_all = true});
#ifdef CONSUMER_REFERENCE_ONLY   // the only table that TINFER_ISAS named, whatever the machine has
    if (tinfer::available_isas() != std::vector{tinfer::Isa::reference}) return 1;
    if (context.isa() != "reference") return 1;
#endif
#ifdef CONSUMER_UNTRACED   // built without tracing: asking for it is refused, and nothing else is different
    try {
        (void)context.attach(std::make_shared<tinfer::Roofline>());
        return 1;
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::not_available) throw;
        std::cerr << error.what() << '\n';
    }
#endif
    const auto tokens = model.vocab().encode("once on a time");
    if (context.decode(tokens) != tinfer::DecodeStatus::ok) return 1;
    std::cout << tinfer::version() << ' ' << tokens.size() << " tokens, logits ";
    for (int row = 0; row < context.n_outputs(); ++row)
        for (const auto byte : tinfer::sha256(std::as_bytes(context.logits(row))))
            std::cout << std::hex << std::setw(2) << std::setfill('0') << int(byte);
    std::cout << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
