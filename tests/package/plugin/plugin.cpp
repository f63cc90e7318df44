// SPDX-License-Identifier: MIT
#include <tinfer/tinfer.hpp>

extern "C" __attribute__((visibility("default"))) int plugin_tokens(const char* path) try {
    const auto model = tinfer::Model::load(path);
    tinfer::Context context(model, {.n_ctx = 64});
    tinfer::Sampler sampler(model.vocab(), {.temp = 0.0f});
    auto tokens = model.vocab().encode("once on a time");
    int n = 0;
    for (; n < 8 && context.decode(tokens) == tinfer::DecodeStatus::ok; ++n)
        tokens = {sampler.sample(context.logits(-1))};
    return n;
} catch (const tinfer::Error&) {
    return -1;
}
