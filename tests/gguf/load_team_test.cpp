// SPDX-License-Identifier: MIT
// Loading with several threads gives the bytes, and the errors, of loading with one; where weights would lie is known
// before; a list of memory nodes.
#include <doctest/doctest.h>

#include <tinfer/placement.hpp>
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>

#include "base/numa.hpp"
#include "support/code_of.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

#if defined(__linux__)
#    include <sched.h>
#    include <unistd.h>
#endif

namespace tinfer {

namespace {

#if defined(__linux__)
/// The calling thread on one processor: loading takes no other then.
class OneProcessor {
public:
    OneProcessor() {
        REQUIRE(sched_getaffinity(0, sizeof before_, &before_) == 0);
        cpu_set_t one;
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &before_)) {
                CPU_SET(i, &one);
                break;
            }
        REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    }
    ~OneProcessor() { (void)sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_;
};
#endif

/// Large enough for several pieces of 16 MB.
test::TinyModel large_model() {
    test::TinyModel tiny;
    tiny.n_vocab = 40000;
    tiny.tied = true;
    tiny.n_embd = 256;
    tiny.head_dim = 64;
    return tiny;
}

void set_value(const std::filesystem::path& path, std::uint64_t at, float value) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string error_of_load(const std::filesystem::path& path, const ModelOptions& options) {
    try {
        (void)Model::load(path, options);
    } catch (const Error& error) {
        return std::string(to_string(error.code())) + " " + error.what();
    }
    return "";
}

}  // namespace

#if defined(__linux__)

TEST_CASE("[L22] gguf: several threads load the bytes that one loads, and meet the same errors") {
    const test::TempFolder folder;
    const auto path = large_model().save(folder.path());
    for (const bool use_mmap : {false, true}) {
        std::vector<double> fractions;
        ModelOptions options{.use_mmap = use_mmap, .populate = true, .check_tensors = true};
        options.progress = [&](double fraction) {
            fractions.push_back(fraction);
            return true;
        };
        const Model parallel = Model::load(path, options);
        CHECK(fractions.front() == 0);
        CHECK(fractions.back() == 1);
        CHECK(std::ranges::is_sorted(fractions));
        std::optional<Model> serial;
        {
            const OneProcessor pinned;
            serial = Model::load(path, options);
        }
        const auto a = parallel.file().tensors(), b = serial->file().tensors();
        REQUIRE(a.size() == b.size());
        std::uint64_t n_pieces = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            CHECK(std::memcmp(a[i].address, b[i].address, a[i].bytes) == 0);
            n_pieces += (a[i].bytes + (16u << 20) - 1) >> 24;
        }
        CHECK(n_pieces > a.size());

        // Two damaged tensors: the first of the directory is named, whoever meets his first.
        const auto damaged = folder / "damaged.gguf";
        std::filesystem::copy_file(path, damaged, std::filesystem::copy_options::overwrite_existing);
        const auto& first = a[1];
        const auto& last = a[a.size() - 1];
        set_value(damaged, last.file_offset, NAN);
        set_value(damaged, first.file_offset + first.bytes - 4, NAN);
        options.progress = {};
        for (int repeat = 0; repeat < 5; ++repeat) {
            const std::string error = error_of_load(damaged, options);
            CHECK(error.starts_with("bad_tensor_data"));
            CHECK(error.find("'" + std::string(first.name) + "'") != std::string::npos);
            const OneProcessor pinned;
            CHECK(error_of_load(damaged, options) == error);
        }
        // Stopped by the caller before the first piece, and behind the last one.
        for (const double stop : {0.0, 1.0}) {
            options.progress = [&](double fraction) { return fraction != stop; };
            CHECK(error_of_load(path, options).starts_with("cancelled"));
        }
    }
}

#endif

TEST_CASE("[L21] gguf: where each weight lies is told before loading, and is where it then lies") {
    const test::TempFolder folder;
    const auto path = test::TinyModel{}.save(folder.path());
    for (const bool use_mmap : {true, false}) {
        const auto plan = weight_placement(path, {.use_mmap = use_mmap});
        const auto model = Model::load(path, {.use_mmap = use_mmap});
        REQUIRE(plan.size() == model.file().tensors().size());
        const auto* origin = static_cast<const std::byte*>(model.file().find(plan[0].tensor)->address);
        for (const auto& weight : plan) {
            const TensorInfo* tensor = model.file().find(weight.tensor);
            REQUIRE(tensor != nullptr);
            CHECK(weight.place == (use_mmap ? WeightPlace::mapped : WeightPlace::read));
            CHECK(weight.bytes == tensor->bytes);
            CHECK(weight.type == tensor->type);
            CHECK(weight.file_offset == tensor->file_offset);
            CHECK(static_cast<const std::byte*>(tensor->address) - origin ==
                  static_cast<std::ptrdiff_t>(weight.offset - plan[0].offset));
        }
        const MemoryPlan memory = tinfer::plan(model);
        CHECK((use_mmap ? memory.weights_copied : memory.weights_mapped) == 0);
    }
    CHECK(test::code_of([&] { (void)weight_placement(folder / "none.gguf"); }) == ErrorCode::io_error);
}

TEST_CASE("[L16] base: lists of memory nodes are read, and nothing else is one") {
    CHECK(parse_node_list("0\n") == std::vector<int>{0});
    CHECK(parse_node_list("0-2,5,7-8") == std::vector<int>{0, 1, 2, 5, 7, 8});
    for (const char* text : {"", "\n", "a", "0-", "-1", "0,", ",0", "2-1", "1,1", "0-1,1", "0;1", "99999", "0x1"})
        CHECK(parse_node_list(text).empty());
}

TEST_CASE("[L16] base: interleaving memory changes no bit, and says what it did") {
    const test::TempFolder folder;
    const auto path = test::TinyModel{}.save(folder.path());
    const auto tokens = test::random_tokens(12, 128, 1);
    const auto plain = test::bits_of(test::logits_of(Model::load(path), tokens));
    const InterleavedMemory interleaved;
    REQUIRE(!interleaved.nodes().empty());
    const auto model = Model::load(path, {.use_mmap = false});
    CHECK(test::bits_of(test::logits_of(model, tokens)) == plain);
    if (interleaved.nodes().size() == 1) {
        CHECK(!interleaved.active());
        CHECK(interleaved.text() == "1 memory node: nothing to interleave");
    } else {
        CHECK(interleaved.text().find(interleaved.active() ? "is interleaved" : "cannot interleave") !=
              std::string::npos);
    }
}

}  // namespace tinfer
