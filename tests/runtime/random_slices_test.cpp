// SPDX-License-Identifier: MIT
// Decodes in slices of any length, by teams of any size and with every kind of interruption, against decodes in one go
// by one thread.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/access.hpp"
#include "runtime/context.hpp"
#include "runtime/context_support.hpp"
#include "support/random_blocks.hpp"

namespace tinfer {

namespace {

using namespace std::chrono_literals;
enum class Team { of_build, made_anew, of_any_size, late };
constexpr std::array kTeams{Team::of_build, Team::made_anew, Team::of_any_size, Team::late};
std::atomic<Team> kind{Team::of_build};
std::atomic<unsigned> n_random_runs{0};

void random_team(int n_threads, TeamFn fn, void* context) noexcept {
    const Team team = kind;
    const unsigned random = ++n_random_runs * 2654435761u;
    if (team == Team::of_build) return run_team(n_threads, fn, context);
    if (team == Team::made_anew) return run_new_team(n_threads, fn, context);
    if (team == Team::of_any_size) n_threads = 1 + static_cast<int>((random >> 8) % static_cast<unsigned>(n_threads));
    std::vector<std::jthread> helpers;
    for (int t = 1; t < n_threads; ++t)
        helpers.emplace_back([=] {
            if (team == Team::late) std::this_thread::sleep_for(std::chrono::microseconds((random >> (4 + t)) % 1000));
            fn(context, t, n_threads);
        });
    fn(context, 0, n_threads);
}

std::chrono::nanoseconds random_budget(test::Random& random) {
    switch (random.below(6)) {
        case 0: return 0ns;
        case 1: return std::chrono::nanoseconds(random.below(20'000));
        case 2: return std::chrono::nanoseconds(random.below(2'000'000));
        case 3: return 5h;
        case 4: return std::chrono::nanoseconds::max();
        default: return std::chrono::nanoseconds::min();
    }
}

struct Thrower final : Observer {
    int steps_left = 0;
    [[nodiscard]] TraceRequest request() const override {
        return {.level = TraceLevel::steps, .delivery = Delivery::immediate};
    }
    void on_step_begin(const StepView&) override {
        if (--steps_left == 0) throw std::runtime_error("enough");
    }
};

/// Decodes the batch in slices; false where it was cancelled, abandoned or stopped by an observer.
bool decode_in_slices(Context& context, std::span<const Token> tokens, test::Random& random,
                      std::uint64_t interruption) {
    enum : std::uint64_t { cancel, abandon, observer };
    std::uint64_t left = 1 + random.below(80);
    Attachment attached;
    if (interruption == observer) {
        const auto thrower = std::make_shared<Thrower>();
        thrower->steps_left = static_cast<int>(left);
        attached = context.attach(thrower);
    }
    if (interruption == cancel) context.set_cancel([&left] { return --left == 0; });
    else context.set_cancel({});
    const bool same_budgets = random.below(2) == 0;
    const auto first = random_budget(random);
    StepStatus status = StepStatus::pending;
    try {
        context.begin(tokens);
        while (status == StepStatus::pending) {
            if (interruption == abandon && --left == 0) {
                context.abandon();
                return false;
            }
            status = context.step(same_budgets ? first : random_budget(random));
        }
    } catch (const Error& error) {
        REQUIRE(interruption == observer);
        CHECK(error.code() == ErrorCode::compute_failed);
        return false;
    }
    return status == StepStatus::ok;
}

}  // namespace

TEST_CASE("random slices: any lengths, teams and interruptions give the bits of one thread in one go") {
    test::TempFolder folder;
    test::Random random(7);
    int n_whole = 0, n_stopped = 0;
    for (const std::string arch : {"llama", "qwen3moe", "qwen2"}) {
        CAPTURE(arch);
        const auto model = Model::load(TinyModel::of(arch).save(folder.path()));
        const auto n_ubatch = static_cast<int>(4 + random.below(40));
        Context expected(model, {.n_ctx = 128, .n_ubatch = n_ubatch, .n_threads = 1, .logits_all = true});
        Context context(model, {.n_ctx = 128, .n_ubatch = n_ubatch, .n_threads = 4, .logits_all = true});
        auto& runner = detail::impl_of(context).runner;
        runner.team = random_team;
        for (int round = 0; round < 40; ++round) {
            CAPTURE(round);
            const auto n = static_cast<std::size_t>(1 + random.below(random.below(3) == 0 ? 60 : 8));
            if (expected.room(SeqId{0}) < static_cast<int>(n)) {
                expected.clear();
                context.clear();
            }
            const auto tokens = test::random_tokens(static_cast<int>(n), 128, random.below(1000));
            REQUIRE(expected.decode(tokens) == DecodeStatus::ok);
            for (int attempt = 0;; ++attempt) {
                runner.team_limit = static_cast<int>(1 + random.below(4));
                kind = kTeams[random.below(kTeams.size())];
                const int used = context.used();
                if (decode_in_slices(context, tokens, random, attempt < 2 ? random.below(6) : 6)) break;
                ++n_stopped;
                CHECK(context.used() == used);
            }
            ++n_whole;
            CHECK(all_bits(context) == all_bits(expected));
        }
    }
    CHECK(n_whole == 120);
    CHECK(n_stopped > 20);
}

}  // namespace tinfer
