// SPDX-License-Identifier: MIT
// Draft heads against golden rounds: what each proposes, as the rows of logits that it proposes from.
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "runtime/head.hpp"
#include "support/differences.hpp"
#include "support/golden.hpp"
#include "tinfer/tinfer.hpp"

namespace tinfer {

namespace {

using nlohmann::json;

std::vector<float> read_floats(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    std::vector<float> out(bytes.size() / 4);
    std::copy_n(bytes.data(), out.size() * 4, reinterpret_cast<char*>(out.data()));
    return out;
}

std::vector<Token> tokens_of(const json& ids) {
    std::vector<Token> out;
    for (const int id : ids) out.push_back(Token{id});
    return out;
}

std::shared_ptr<const DraftHead> head_of(const std::filesystem::path& folder, const Model& model) {
    const auto file = folder / "draft.gguf";
    return std::filesystem::exists(file) ? DraftHead::load(model, file) : DraftHead::of(model);
}

// The tokens of all rounds, and the rows that they were drafted from. What is checked and refused goes through the
// context as in a generation: [drawn, drafted…] in one transaction, of which a part stays.
struct Rounds {
    std::vector<std::vector<Token>> drafted;
    std::vector<float> rows, confidences, lattice;
};
Rounds run_rounds(Context& context, const json& info, std::size_t piece) {
    Rounds out;
    Context::Impl& state = detail::impl_of(context);
    state.head->record = &out.rows;
    state.head->confidences = &out.confidences;
    state.head->lattice = &out.lattice;
    const auto prompt = tokens_of(info["tokens"]);
    for (std::size_t i = 0; i < prompt.size(); i += piece)
        REQUIRE(context.decode(std::span(prompt).subspan(i, std::min(piece, prompt.size() - i))) == DecodeStatus::ok);
    for (const json& round : info["rounds"]) {
        std::vector<Token> drafted(round["n_draft"].get<std::size_t>());
        const Token drawn{round["drawn"].get<int>()};
        const auto proposal = state.head->draft(SeqId{0}, drawn, *context.seq_pos_max(SeqId{0}) + 1, drafted);
        drafted.resize(proposal.n);
        out.drafted.push_back(drafted);
        Batch batch;
        for (const Token token : tokens_of(round["checked"])) batch.add(token, SeqId{0}, true);
        state.open(batch, runtime::Purpose::verify);
        REQUIRE(state.advance(runtime::Executor::kNoDeadline) == StepStatus::ok);
        const runtime::Keep keep{SeqId{0}, 1 + round["accepted"].get<int>()};
        REQUIRE(state.commit(std::span(&keep, 1)) == DecodeStatus::ok);
    }
    return out;
}

// A lattice has its tokens in any order: what counts is the score of each behind each.
using Lattice = std::map<std::array<int, 3>, float>;
Lattice scores_of(std::span<const float> rows, const json& info) {
    constexpr std::size_t kChoice = 4;
    Lattice out;
    std::size_t place = 0;
    for (const json& round : info["rounds"])
        for (std::size_t i = 0; i < round["n_draft"].get<std::size_t>(); ++i, ++place) {
            const auto row = rows.subspan(place * kChoice * (1 + kChoice), kChoice * (1 + kChoice));
            for (std::size_t a = 0; a < kChoice; ++a)
                for (std::size_t b = 0; b < kChoice; ++b) {
                    const auto before = i == 0 ? std::size_t{0} : (place - 1) * kChoice * (1 + kChoice) + a;
                    const int of = i == 0 ? -1 : static_cast<int>(rows[before]);
                    out[{static_cast<int>(place), of, static_cast<int>(row[b])}] = row[kChoice * (1 + a) + b];
                }
        }
    return out;
}

void check_lattice(const Rounds& ours, const std::filesystem::path& folder, const json& info) {
    const Lattice expected = scores_of(read_floats(folder / "lattice.f32"), info),
                  found = scores_of(ours.lattice, info);
    REQUIRE(found.size() == expected.size());
    for (const auto& [key, score] : expected) {
        REQUIRE(found.contains(key));
        CHECK(std::abs(found.at(key) - score) <= info["suggested_tolerance"]["max_abs"].get<double>());
    }
}

void check_case(const std::filesystem::path& folder, const json& info, const Model& model,
                const ContextOptions& options, std::size_t piece) {
    Context context(model, options);
    const Rounds ours = run_rounds(context, info, piece);
    std::size_t i = 0;
    for (const json& round : info["rounds"]) CHECK(ours.drafted.at(i++) == tokens_of(round["draft_tokens"]));
    const json& tolerance = info["suggested_tolerance"];
    const std::string file = tolerance["file"];
    if (file == "lattice.f32") return check_lattice(ours, folder, info);
    if (info["files"].contains("confidences.f32")) {
        const auto sure = read_floats(folder / "confidences.f32");
        REQUIRE(ours.confidences.size() == sure.size());
        CHECK(test::largest_difference(ours.confidences, sure) <= tolerance["max_abs"].get<double>());
    }
    REQUIRE(file.starts_with("draft_logits"));
    const auto expected = read_floats(folder / file);
    REQUIRE(ours.rows.size() == expected.size());
    // Tokens that a smaller head does not know are −∞ in both, and in the same places.
    std::vector<float> rows, wanted;
    std::size_t n_elsewhere = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
        if (std::isinf(expected[k]) || std::isinf(ours.rows[k])) {
            n_elsewhere += expected[k] == ours.rows[k] ? 0 : 1;
            continue;
        }
        rows.push_back(ours.rows[k]);
        wanted.push_back(expected[k]);
    }
    CHECK(n_elsewhere == 0);
    REQUIRE(!rows.empty());
    const double difference = test::largest_difference(rows, wanted);
    MESSAGE(folder.filename().string(), ": ", difference, " of ", tolerance["max_abs"].get<double>());
    CHECK(difference <= tolerance["max_abs"].get<double>());
}

}  // namespace

TEST_CASE("[J4] every golden draft head proposes the tokens of its rounds [golden]") {
    std::size_t n = 0;
    for (const auto& folder : golden_entries("drafts")) {
        if (!std::filesystem::exists(folder / "case.json")) continue;
        CAPTURE(folder.filename().string());
        const json info = json::parse(std::ifstream(folder / "case.json"));
        const auto model = Model::load(folder / "model.gguf");
        std::shared_ptr<const DraftHead> head;
        try {
            head = head_of(folder, model);
        } catch (const Error& error) {
            FAIL_CHECK(std::string(error.what()));
            continue;
        }
        ContextOptions options{
            .n_ctx = 256, .n_outputs = 8, .type_k = KvType::f32, .type_v = KvType::f32, .draft_head = head};
        check_case(folder, info, model, options, 256);
        // The prompt in pieces, longer than a micro-batch, and as rows that wait for the first draft.
        options.n_ubatch = 4;
        check_case(folder, info, model, options, 9);
        ++n;
    }
    expect_cases(n, 24, "draft heads");
}

}  // namespace tinfer
