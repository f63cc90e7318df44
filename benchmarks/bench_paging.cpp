// SPDX-License-Identifier: MIT
// One run of a model that may be larger than memory: the tokens of a text one after the other, then a prompt. How
// fast, which bits, what was read, and what an optimal cache would have read. benchmarks/paging.py starts it, mapped
// and under memory limits in turn, inside a control group, and makes the ratios.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/access.hpp"
#include "base/error.hpp"
#include "base/pager.hpp"
#include "decoding.hpp"
#include "expert_choices.hpp"
#include "gguf/model_file.hpp"
#include "support.hpp"
#include "support/random_blocks.hpp"
#include "tinfer/hash.hpp"
#include "tinfer/placement.hpp"
#include "trace/reuse.hpp"

namespace tinfer::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kUsage =
    "usage: bench_paging --model FILE [--ram BYTES] [--text random|following] [--tokens 64] [--warm 32] [--prompt "
    "512]\n"
    "                    [--threads 2] [--no-ahead] [--disk-seconds 0.5] [--write-profile FILE] [--smoke] [--json]\n"
    "Without --ram the file is mapped. following: each token is the next one of the vocabulary. --prompt 0: none.\n";

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// Of this process at most, by the system's count; 0 where it does not say. Pages of a mapping are among them.
std::uint64_t most_resident_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "VmHWM:") {
            std::uint64_t kilobytes = 0;
            status >> kilobytes;
            return kilobytes << 10;
        }
    return 0;
}

/// Which experts steps have chosen, as units of all layers.
struct Choice final : Observer {
    std::vector<app::Touch> touches;
    std::vector<int> layers;  // of this run
    [[nodiscard]] TraceRequest request() const override { return {.level = TraceLevel::counts}; }
    void on_run_begin(const RunInfo&) override { layers.clear(); }
    void on_events(std::span<const KernelEvent> events) override {
        for (const KernelEvent& event : events) {
            const int layer = event.step->layer;
            if (event.step->op != Op::mul_mat_id || std::ranges::find(layers, layer) != layers.end()) continue;
            layers.push_back(layer);
            for (const Access& access : event.accesses)
                if (access.tensor->slice_bytes > 0 && access.kind == AccessKind::ranges) {
                    for (const AccessRange& range : access.ranges)
                        touches.push_back({(static_cast<std::uint64_t>(layer) << 32) | range.tag, 1});
                    break;
                }
        }
    }
};

std::vector<Token> tokens_of(const Model& model, std::string_view text, int n) {
    if (text == "random") return some_tokens(model, n);
    if (text != "following") throw std::runtime_error(cat("--text is random or following, not ", text));
    std::vector<Token> tokens;
    for (int i = 0; i < n; ++i) tokens.push_back(Token{300 + i % (model.info().n_vocab - 300)});
    return tokens;
}

/// Bytes a second of random reads past the page cache, as many at once as the pager has.
double storage_rate(const std::filesystem::path& path, double seconds) {
    constexpr std::size_t kThreads = 4, kPlaces = 8, kBytes = Pager::kPieceBytes;
    const InputFile file(path);
    const UnbufferedFile reader(file);
    if (file.size() < 4 * kBytes || seconds <= 0) return 0;
    std::atomic<std::uint64_t> n_bytes = 0;
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            AlignedBuffer memory(kPlaces * kBytes, UnbufferedFile::kAlignment);  // in large pages, as the pager's
            std::array<std::byte, 2 * UnbufferedFile::kAlignment> none;
            test::Random random(t);
            for (std::size_t i = 0; seconds_since(begin) < seconds; ++i) {
                reader.read_in_place(random.below(file.size() / kBytes) * kBytes,
                                     memory.bytes().subspan(i % kPlaces * kBytes, kBytes), none);
                n_bytes += kBytes;
            }
        });
    for (std::thread& thread : threads) thread.join();
    return static_cast<double>(n_bytes) / seconds_since(begin);
}

void write_profile(const std::filesystem::path& path, const Model& model) {
    std::ofstream out(path);
    out << "{\"experts\":[";
    const char* between = "";
    for (const ExpertPicks& layer : expert_picks(model)) {
        out << std::exchange(between, ",") << "{\"layer\":" << layer.layer << ",\"picks\":[";
        for (std::size_t e = 0; e < layer.picks.size(); ++e) out << (e > 0 ? "," : "") << layer.picks[e];
        out << "],\"compared\":" << layer.n_compared << ",\"repeated\":" << layer.n_repeated << "}";
    }
    out << "]}\n";
}

struct Setting {
    std::filesystem::path model{}, profile{};
    std::uint64_t ram = 0;
    std::string text;
    int n_tokens = 0, n_warm = 0, n_prompt = 0, n_threads = 0;
    bool no_ahead = false;
    double disk_seconds = 0;
};

Record measure(const Setting& set) {
    const double disk = storage_rate(set.model, set.disk_seconds);
    const Model model = Model::load(set.model, {.memory_limit = set.ram});
    if (Pager* pager = detail::impl_of(model.file()).file->pager(); pager != nullptr && set.no_ahead)
        pager->set_ahead(false);
    const int n_ctx = std::max(set.n_tokens + set.n_warm, set.n_prompt) + 8;
    Context context(model, {.n_ctx = n_ctx, .n_batch = n_ctx, .n_threads = set.n_threads});
    const auto choice = std::make_shared<Choice>();
    Attachment watched = context.attach(choice);
    const auto tokens = tokens_of(model, set.text, set.n_warm + set.n_tokens);
    Sha256 hash;
    const auto hash_row = [&] { hash.update(std::as_bytes(context.logits())); };

    decode_tokens(context, std::span(tokens).first(static_cast<std::size_t>(set.n_warm)));
    const std::size_t first_touch = choice->touches.size();
    const PagingCounts before = paging_counts(model).value_or(PagingCounts{});
    const auto begin = Clock::now();
    for (const Token& token : std::span(tokens).subspan(static_cast<std::size_t>(set.n_warm))) {
        decode_tokens(context, std::span(&token, 1));
        hash_row();
    }
    const double seconds = seconds_since(begin);
    const PagingCounts after = paging_counts(model).value_or(PagingCounts{});

    Record out("paging");
    const double n = set.n_tokens;
    out.add("tps", n / seconds, 3).add("disk_bytes_per_s", disk, 0);
    out.add("hits", after.hits - before.hits).add("misses", after.misses - before.misses);
    out.add("bytes_per_token", static_cast<double>(after.bytes_read - before.bytes_read) / n, 0);
    out.add("waited_share", (after.waited_s - before.waited_s) / seconds, 4);
    out.add("ahead_used", after.ahead_used - before.ahead_used);
    out.add("ahead_wasted", after.ahead_wasted - before.ahead_wasted);
    double best = 0;
    if (after.is_streamed) {
        for (const TensorInfo& tensor : model.file().tensors())
            best += tensor.address == nullptr ? static_cast<double>(tensor.bytes) : 0;
        best = std::max(0.0, best - static_cast<double>(after.slot_bytes));
    } else if (after.expert_bytes > 0) {
        const auto cache =
            app::simulate_cache(choice->touches, after.slot_bytes / after.expert_bytes, app::CachePolicy::opt);
        for (std::size_t i = first_touch; i < cache.missed.size(); ++i) best += cache.missed[i] ? 1 : 0;
        best *= static_cast<double>(after.expert_bytes) / n;
    }
    out.add("best_bytes_per_token", best, 0).add("expert_bytes", after.expert_bytes);

    watched = {};
    if (set.n_prompt > 0) {
        const auto prompt = tokens_of(model, set.text, set.n_prompt);
        const auto start = Clock::now();
        decode_prompt(context, prompt);
        const double prompt_s = seconds_since(start);
        const PagingCounts then = paging_counts(model).value_or(PagingCounts{});
        out.add("prompt_tps", set.n_prompt / prompt_s, 2).add("prompt_bytes", then.bytes_read - after.bytes_read);
        out.add("prompt_waited_share", (then.waited_s - after.waited_s) / prompt_s, 4);
        hash_row();
    }
    if (!set.profile.empty()) write_profile(set.profile, model);
    out.add("resident_bytes", most_resident_bytes()).add("context_bytes", context.memory().context_total());
    out.add("weight_bytes", model.info().weight_bytes).add("slot_bytes", after.slot_bytes);
    out.add("sha256", to_hex(hash.finish()));
    return out;
}

void check_small() {
    const std::filesystem::path path = "bench_paging.smoke.gguf";
    for (const Choices choices : {Choices::uniform, Choices::skewed, Choices::drifting}) {
        write_random_model(path, shape_named("tiny-moe"), "q8_0", 1, choices);
        Setting set{.model = path, .text = "following", .n_tokens = 12, .n_warm = 4, .n_prompt = 40, .n_threads = 2};
        const auto hash_of = [](const Record& record) { return record.fields().back().value; };
        const std::string mapped = hash_of(measure(set));
        set.ram = std::filesystem::file_size(path) * 7 / 8;
        for (const bool no_ahead : {false, true}) {
            set.no_ahead = no_ahead;
            require(hash_of(measure(set)) == mapped, "a model under a memory limit gave other bits");
        }
    }
    std::filesystem::remove(path);
}

void run(Options& options) {
    Setting set;
    const bool smoke = options.flag("smoke"), as_json = options.flag("json");
    set.model = options.text("model", "");
    set.ram = static_cast<std::uint64_t>(options.number("ram", 0));
    set.text = options.text("text", "random");
    set.n_tokens = static_cast<int>(options.number("tokens", 64));
    set.n_warm = static_cast<int>(options.number("warm", 32));
    set.n_prompt = static_cast<int>(options.number("prompt", 512));
    set.n_threads = static_cast<int>(options.number("threads", 2));
    set.no_ahead = options.flag("no-ahead");
    set.disk_seconds = options.number("disk-seconds", 0.5);
    set.profile = options.text("write-profile", "");
    options.finish();
    if (smoke) return check_small();
    if (set.model.empty()) throw std::runtime_error("--model FILE is missing; see --help");
    Printer(as_json).print(measure(set));
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_paging", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
