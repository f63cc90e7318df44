// SPDX-License-Identifier: MIT
// tinfer trace reuse: reuse distances, and misses of caches of given sizes.
#include "reuse.hpp"

#include <algorithm>
#include <limits>

#include "ranges.hpp"
#include "trace.hpp"

namespace tinfer::app {

CachePolicy policy_of(const std::string& name) {
    if (name == "lru") return CachePolicy::lru;
    if (name == "mru") return CachePolicy::mru;
    if (name == "fifo") return CachePolicy::fifo;
    if (name == "lfu") return CachePolicy::lfu;
    if (name == "aged") return CachePolicy::aged;
    if (name == "opt") return CachePolicy::opt;
    throw UsageError("--policy: '" + name + "' is none of lru, mru, fifo, lfu, aged, opt");
}

namespace {

struct ReuseArgs : TraceArgs {
    std::string unit = "slice", classes = "weight,kv", caches, policies = "lru,opt";
};

/// Sequence of touched objects of a trace: slices (a tensor, row or expert, as it is read), or pages of tensors.
class Touches : public Visitor {
public:
    Touches(const tinfer::TraceReader& of, const ReuseArgs& args) : Visitor(of, args.selection()) {
        for (const auto& word : parse_words(args.classes)) {
            if (word != "weight" && word != "kv" && word != "state")
                throw UsageError("--class: '" + word + "' is none of weight, kv, state");
            classes_.insert(word);
        }
        if (args.unit == "slice") return;
        const std::string size = args.unit.starts_with("page=") ? args.unit.substr(5)
                                 : args.unit == "page"          ? "4096"
                                                                : args.unit;
        page_ = parse_size(size, "--unit");
        if (page_ == 0) throw UsageError("--unit: pages have at least a byte");
    }
    void see(const tinfer::KernelEvent& event) override {
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided || !wanted(*access.tensor)) continue;
            for (const auto& range : ranges_of(access)) {
                check_touches(touches.size() + range.count);
                for (std::uint32_t i = 0; i < range.count; ++i)
                    add(*access.tensor, range.offset + i * range.stride, range.length);
            }
        }
    }
    std::vector<Touch> touches;

private:
    [[nodiscard]] bool wanted(const tinfer::TensorInfo& tensor) const {
        using enum tinfer::TensorClass;
        const auto c = tensor.tensor_class;
        return selection.keeps(tensor) && ((c == weight && classes_.contains("weight")) ||
                                           ((c == cache_k || c == cache_v) && classes_.contains("kv")) ||
                                           (c == recurrent && classes_.contains("state")));
    }
    void add(const tinfer::TensorInfo& tensor, std::uint64_t offset, std::uint64_t length) {
        if (page_ == 0) {
            // KV cache ranges have any number of rows; reuse is per row.
            const bool by_row = tensor.tensor_class != tinfer::TensorClass::weight && tensor.row_bytes > 0;
            const std::uint64_t unit = by_row ? tensor.row_bytes : length;
            check_touches(touches.size() + (unit > 0 ? length / unit : 0));
            for (std::uint64_t at = offset; at < offset + length; at += unit)
                touch(tensor.id, at, std::min(unit, offset + length - at));
            return;
        }
        // Pages of the file, if the tensor has a file offset: adjacent tensors may share a page.
        const bool in_file = tensor.file_offset != tinfer::kNoOffset;
        const std::uint64_t base = in_file ? tensor.file_offset : 0;
        check_touches(touches.size() + length / page_);
        for (std::uint64_t page = (base + offset) / page_; page <= (base + offset + length - 1) / page_ && length > 0;
             ++page)
            touch(in_file ? 0xFFFFFF00ull + std::uint64_t(tensor.file_index) : tensor.id, page * page_, page_);
    }
    void touch(std::uint64_t space, std::uint64_t at, std::uint64_t bytes) {
        const auto [found, is_new] = objects_.try_emplace({space, at}, objects_.size());
        touches.push_back({found->second, bytes});
    }
    std::set<std::string> classes_;
    std::uint64_t page_ = 0;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> objects_;
};

int show_reuse(const ReuseArgs& args) {
    const auto trace = args.open();
    Touches stream(trace, args);
    stream.visit();
    constexpr std::uint64_t kCold = std::numeric_limits<std::uint64_t>::max();
    auto distances = reuse_distances(stream.touches);
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> bins;  // lower bound → touches, bytes
    std::uint64_t n_cold = 0, cold_bytes = 0, bytes = 0;
    for (std::size_t i = 0; i < distances.size(); ++i) {
        bytes += stream.touches[i].bytes;
        if (distances[i] == kCold) {
            ++n_cold, cold_bytes += stream.touches[i].bytes;
            continue;
        }
        auto& [n, sum] = bins[distances[i] == 0 ? 0 : std::uint64_t{1} << (63 - __builtin_clzll(distances[i]))];
        ++n, sum += stream.touches[i].bytes;
    }
    Table histogram({{"from", Unit::bytes}, {"below", Unit::bytes}, {"touches", Unit::count}, {"bytes", Unit::bytes}});
    for (const auto& [from, sums] : bins)
        histogram.add({from, from == 0 ? std::uint64_t{1} : 2 * from, sums.first, sums.second});
    std::erase(distances, kCold);
    std::ranges::sort(distances);
    const auto quantile = [&](double q) -> Json {
        if (distances.empty()) return nullptr;
        return distances[std::min(distances.size() - 1, std::size_t(q * double(distances.size())))];
    };
    Table misses({{"cache", Unit::bytes},
                  {"policy"},
                  {"misses", Unit::count},
                  {"missed", Unit::bytes},
                  {"miss_ratio", Unit::percent}});
    for (const auto& cache : parse_words(args.caches))
        for (const auto& policy : parse_words(args.policies)) {
            const std::uint64_t capacity = parse_size(cache, "--cache");
            const auto result = simulate_cache(stream.touches, capacity, policy_of(policy));
            misses.add({capacity, policy, result.misses, result.bytes_missed,
                        result.bytes > 0 ? double(result.bytes_missed) / double(result.bytes) : 0});
        }
    const Json summary = {
        {"unit", args.unit},
        {"touches", stream.touches.size()},
        {"bytes", bytes},
        {"cold_touches", n_cold},
        {"cold_bytes", cold_bytes},
        {"quantiles",
         {{"p10", quantile(0.1)}, {"p50", quantile(0.5)}, {"p90", quantile(0.9)}, {"p99", quantile(0.99)}}},
        {"caches", misses.to_json()}};
    if (args.style.as_csv) {
        print(args.caches.empty() ? histogram.csv() : misses.csv());
    } else if (args.style.as_json) {
        print_result(args.style, summary, "histogram", histogram);
    } else {
        print(std::to_string(stream.touches.size()) + " touches of " + bytes_text(bytes, args.style.exact) +
              ", first ones " + std::to_string(n_cold) + " of " + bytes_text(cold_bytes, args.style.exact) +
              "\n\nbytes touched between two touches\n" + histogram.text(args.style.exact));
        if (!misses.empty()) print("\n" + misses.text(args.style.exact));
    }
    return 0;
}

}  // namespace

Verb add_reuse(CLI::App& trace) {
    auto args = std::make_shared<ReuseArgs>();
    auto* verb =
        trace.add_subcommand("reuse", "Shows how much is touched between two touches, and what caches would miss.");
    args->add_file(*verb);
    args->add_selection(*verb);
    verb->add_option("--unit", args->unit, "slice (as it is read: tensor, row, expert) or page=SIZE of the file")
        ->type_name("UNIT")
        ->group("Question");
    verb->add_option("--class", args->classes, "weight, kv, state")->type_name("LIST")->group("Question");
    verb->add_option("--cache", args->caches, "sizes of caches, as 256M,1G")->type_name("LIST")->group("Question");
    verb->add_option("--policy", args->policies,
                     "lru, mru, fifo, lfu, aged, opt (evicts what is needed last, or does not keep it)")
        ->type_name("LIST")
        ->group("Question");
    args->add_output(*verb);
    verb->footer("\nThe distance of a touch is the unique bytes of others since the same was touched last; the first "
                 "is cold.\n\nExamples:\n"
                 "  tinfer trace reuse t.tntrace --cache 64M,256M --policy lru,opt\n  tinfer trace reuse t.tntrace "
                 "--unit page=4096 --class weight --json");
    return [args] { return show_reuse(*args); };
}

}  // namespace tinfer::app
