// SPDX-License-Identifier: MIT
// Any bytes as an adapter and as a control vector of a small model: reading them either works, and then attaching and
// decoding do, or throws tinfer::Error. Values may be anything, so logits may be.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/access.hpp"
#include "gguf/file.hpp"
#include "model/model.hpp"
#include "runtime/context.hpp"
#include "support/tiny_model.hpp"

namespace {

using namespace tinfer;

struct Target {
    Target() {
        test::TinyModel tiny;
        tiny.n_embd = tiny.n_ff = 32;
        tiny.n_vocab = 16;
        bytes = tiny.writer().bytes();
        auto file = gguf::File::open_memory(bytes, "model.gguf", {});
        bound = model::bind_model(file, {});
        file->load_data({});
    }
    std::vector<std::byte> bytes;
    model::BoundModel bound;
};

void decode(const Target& target, runtime::AttachedAdapters attached) {
    Context::Impl context(detail::Access::make<Model>(nullptr), target.bound, {.n_ctx = 64, .n_threads = 1});
    context.set_adapters(std::move(attached));
    const std::vector tokens{Token{0}, Token{15}};
    (void)context.decode(std::span<const Token>(tokens));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Target target;
    const auto open = [&] { return gguf::File::open_memory(std::as_bytes(std::span(data, size)), "fuzz.gguf", {}); };
    try {
        auto state = std::make_shared<Adapter::Impl>(Adapter::Impl{model::read_lora(open(), target.bound, {})});
        runtime::AttachedAdapters attached;
        attached.loras.push_back({std::move(state), {1.0f}});
        decode(target, std::move(attached));
    } catch (const Error&) {
    }
    try {
        auto state =
            std::make_shared<ControlVector::Impl>(ControlVector::Impl{model::read_directions(open(), target.bound)});
        runtime::AttachedAdapters attached;
        attached.controls.push_back({std::move(state), 1.0f});
        attached.range = {1, target.bound.hp.n_layer - 1};
        decode(target, std::move(attached));
    } catch (const Error&) {
    }
    return 0;
}
