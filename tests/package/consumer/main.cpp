// SPDX-License-Identifier: MIT
// The program of a consumer, the same for every way of consuming the library: the hash of some logits and the tokens
// that follow, or those of every kernel table there is: consumer MODEL [tables]
#if __has_include(<tinfer/tinfer.hpp>)
#    include <tinfer/tinfer.hpp>
#else
#    include "tinfer.hpp"
#endif

#include <iomanip>
#include <iostream>

namespace {

bool answer(const tinfer::Model& model, tinfer::Isa isa) {
    tinfer::Context context(model, {.n_ctx = 64, .isa = isa, .logits_all = true});
#ifdef CONSUMER_REFERENCE_ONLY  // the only table that TINFER_ISAS named, whatever the machine has
    if (tinfer::available_isas() != std::vector{tinfer::Isa::reference} || context.isa() != "reference") return false;
#endif
#ifdef CONSUMER_UNTRACED  // built without tracing: asking for it is refused, and nothing else is different
    try {
        (void)context.attach(std::make_shared<tinfer::Roofline>());
        return false;
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::not_available) throw;
        std::cerr << error.what() << '\n';
    }
#endif
    auto tokens = model.vocab().encode("once on a time");
    if (context.decode(tokens) != tinfer::DecodeStatus::ok) return false;
    std::cout << tinfer::version() << ' ' << tokens.size() << " tokens, logits ";
    for (int row = 0; row < context.n_outputs(); ++row)
        for (const auto byte : tinfer::sha256(std::as_bytes(context.logits(row))))
            std::cout << std::hex << std::setw(2) << std::setfill('0') << int(byte);
    std::cout << std::dec << ", then";
    tinfer::Sampler sampler(model.vocab(), {.temp = 0.0f});
    for (int i = 0; i < 8; ++i) {
        tokens = {sampler.sample(context.logits(-1))};
        std::cout << ' ' << static_cast<int>(tokens.front());
        if (context.decode(tokens) != tinfer::DecodeStatus::ok) return false;
    }
    std::cout << '\n';
    return true;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc < 2) return 2;
    const auto model = tinfer::Model::load(argv[1]);
    if (argc == 2) return answer(model, tinfer::Isa::automatic) ? 0 : 1;
    for (const auto isa : tinfer::available_isas()) {
        std::cout << to_string(isa) << ": ";
        if (!answer(model, isa)) return 1;
    }
} catch (const tinfer::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
