// SPDX-License-Identifier: MIT
// The chooser: all routes give the same bits, so nothing but this test would notice that one was lost. The whole tree
// is pinned by the table in src/kernels/README.md, which must be what the chooser says.
#include "kernels/matmul/route.hpp"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.hpp"

namespace tinfer::kernels {
namespace {

std::vector<Isa> all_tables() {
    std::vector<Isa> tables;
    for (auto isa = Isa::reference; to_string(isa) != "unknown"; isa = static_cast<Isa>(static_cast<int>(isa) + 1))
        tables.push_back(isa);
    return tables;
}

std::vector<DType> weight_types() {
    std::vector<DType> types;
    for (int id = 0; id < 256; ++id)
        if (const auto type = static_cast<DType>(id); family_of(type) != FormatFamily::none) types.push_back(type);
    return types;
}

// "1 kquant_avx512 · 2–16 skinny · 17– microkernel_q8".
std::string tree_of(Isa isa, DType type) {
    std::string text;
    for (std::int64_t first = 1, n = 1; first <= kRouteTokens; first = n) {
        const Route now = route(isa, type, first);
        while (n <= kRouteTokens && route(isa, type, n) == now) ++n;
        const std::string range = first == 1 && n > kRouteTokens ? ""
                                  : n > kRouteTokens             ? cat(first, "– ")
                                  : n - first == 1               ? cat(first, " ")
                                                                 : cat(first, "–", n - 1, " ");
        text += cat(text.empty() ? "" : " · ", range, to_string(now));
    }
    return text;
}

// One row for each table and tree: the types that share it.
std::string table_of_routes() {
    std::string text = "| table | types | tokens and route |\n|---|---|---|\n";
    for (const Isa isa : all_tables()) {
        std::vector<std::pair<std::string, std::string>> rows;  // tree, types
        for (const DType type : weight_types()) {
            const std::string tree = tree_of(isa, type);
            auto row = rows.begin();
            while (row != rows.end() && row->first != tree) ++row;
            if (row == rows.end()) rows.emplace_back(tree, tinfer::to_string(type));
            else row->second += cat(" ", tinfer::to_string(type));
        }
        for (const auto& [tree, types] : rows)
            text += cat("| ", tinfer::to_string(isa), " | ", rows.size() == 1 ? "all" : types, " | ", tree, " |\n");
    }
    return text;
}

}  // namespace

TEST_CASE("routes: the table in src/kernels/README.md is what the chooser says") {
    std::ifstream file(TINFER_SOURCE_DIR "/src/kernels/README.md", std::ios::binary);
    std::stringstream text;
    text << file.rdbuf();
    const std::string readme = text.str(), expected = table_of_routes();
    const bool same = readme.find("\n" + expected + "\n") != std::string::npos;
    CHECK_MESSAGE(same, "The table should be:\n", expected);
}

TEST_CASE("routes: one of each kind, by name") {
    CHECK(route(Isa::avx2, DType::q4_k, 1) == Route::row_dot_avx2);
    CHECK(route(Isa::avx2, DType::q4_k, 2) == Route::skinny);
    CHECK(route(Isa::avx2, DType::q4_k, 6) == Route::microkernel_q8);
    CHECK(route(Isa::avx2, DType::iq3_s, 8) == Route::codebook);
    CHECK(route(Isa::avx2, DType::tq2_0, 2) == Route::row_dot_avx2);
    CHECK(route(Isa::avx2, DType::nvfp4, 2) == Route::skinny);
    CHECK(route(Isa::avx2, DType::nvfp4, 3) == Route::microkernel_q8);
    CHECK(route(Isa::avx2, DType::q1_0, 1) == Route::skinny);
    CHECK(route(Isa::avx512vnni, DType::q6_k, 1) == Route::kquant_avx512);
    CHECK(route(Isa::avx512vnni, DType::iq4_xs, 1) == Route::skinny);
    CHECK(route(Isa::avx512vnni, DType::q8_0, 1) == Route::skinny);
    CHECK(route(Isa::avx512vnni, DType::q5_0, 2) == Route::b32_avx512);
    CHECK(route(Isa::avx512vnni, DType::q4_0, 12) == Route::skinny);
    CHECK(route(Isa::amx, DType::q8_0, 16) == Route::microkernel_amx);
    CHECK(route(Isa::amx, DType::q6_k, 16) == Route::skinny);
    CHECK(route(Isa::amx, DType::nvfp4, 64) == Route::microkernel_q8);
    CHECK(route(Isa::neon_dot, DType::q4_k, 8) == Route::skinny);
    CHECK(route(Isa::neon, DType::q8_0, 1) == Route::along);
    CHECK(route(Isa::avx512, DType::bf16, 30) == Route::float_outer);
    CHECK(route(Isa::avx512, DType::bf16, 30, true) == Route::float_rows);
    CHECK(route(Isa::avx2, DType::i32, 1) == Route::none);
}

// What kernels rely on: a run of rows that is cut for GEMV meets no panel when an expert has fewer tokens than the
// others.
TEST_CASE("routes: whatever has fewer tokens than a GEMV is one, too, and 128 tokens are as many as any") {
    for (const Isa isa : all_tables())
        for (const DType type : weight_types()) {
            CAPTURE(tinfer::to_string(isa));
            CAPTURE(tinfer::to_string(type));
            for (std::int64_t n = 2; n <= kRouteTokens; ++n)
                if (is_gemv(route(isa, type, n))) REQUIRE(is_gemv(route(isa, type, n - 1)));
            for (const bool single : {false, true})
                CHECK(route(isa, type, kRouteTokens, single) == route(isa, type, 1 << 20, single));
        }
}

}  // namespace tinfer::kernels
