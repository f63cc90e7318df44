// SPDX-License-Identifier: MIT
// The public header is its own manual: the example of each of its parts runs as it stands there, on a small model.
#include <doctest/doctest.h>

#include <iostream>
#include <sstream>

#include "api/header_examples.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

using namespace tinfer;
using namespace tinfer::test;

namespace {

/// What is written to a stream meanwhile.
class Captured {
public:
    explicit Captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
    ~Captured() { stream_.rdbuf(before_); }
    Captured(const Captured&) = delete;
    Captured& operator=(const Captured&) = delete;
    [[nodiscard]] std::string text() const { return text_.str(); }

private:
    std::ostringstream text_;
    std::ostream& stream_;
    std::streambuf* before_;
};

}  // namespace

TEST_CASE("[O4] api: the example of each chapter of the header runs") {
    const TempFolder folder;
    const GgufWriter vocab = small_spm();
    auto tiny = TinyModel::of("llama");
    tiny.n_vocab = static_cast<int>(load_vocab(vocab).size());
    GgufWriter writer = tiny.writer();
    writer.take(vocab).set("general.architecture", GgufValue{std::string("llama")});
    writer.save(folder / "model.gguf");
    const auto examples = header_examples();
    CHECK(examples.size() >= 45);
    for (const HeaderExample& example : examples) {
        CAPTURE(example.header);
        const Captured out(std::cout), err(std::cerr);
        CHECK_NOTHROW(example.run(folder / "model.gguf"));
        // All of them print something, but those that move memory about.
        const bool is_silent = example.header == "model: adapters" || example.header.starts_with("state: ");
        CHECK(out.text().empty() == is_silent);
        if (example.header != "model: files and models") CHECK(err.text() == "");
        if (example.header == "hash") CHECK(out.text().starts_with("ba7816bf8f01cfea"));
    }
}
