// SPDX-License-Identifier: MIT
// tinfer trace io: the storage requests after a simulated page cache: when each is needed, their sizes, and how many
// are not sequential.
#include <algorithm>

#include "../storage.hpp"
#include "file_reads.hpp"

namespace tinfer::app {

namespace {

struct IoArgs : TraceArgs {
    std::string cache = "0", policy = "lru", page = "4096", order = "file", cost, disk;
    bool lead = false, sizes = false;
};

/// The lowest constant rate at which sequential read-ahead would deliver all requests in time.
double needed_rate(const std::vector<FileRead>& requests, std::uint64_t begin) {
    double rate = 0;
    std::uint64_t bytes = 0;
    for (const auto& request : requests) {
        bytes += request.length;
        if (request.time > begin) rate = std::max(rate, double(bytes) / double(request.time - begin));
    }
    return rate;  // bytes per ns = GB/s
}

std::uint64_t n_apart(const std::vector<FileRead>& requests) {
    std::uint64_t n = 0;
    for (std::size_t i = 1; i < requests.size(); ++i)
        n += requests[i].file != requests[i - 1].file ||
                     requests[i].offset != requests[i - 1].offset + requests[i - 1].length
                 ? 1
                 : 0;
    return n;
}

/// The same requests if tensors were stored in order of first use.
std::vector<FileRead> in_trace_order(const tinfer::TraceReader& trace, std::vector<FileRead> reads) {
    std::map<std::uint32_t, std::uint64_t> places;
    std::uint64_t end = 0;
    for (const auto& read : reads)
        if (places.emplace(read.tensor, end).second) end += trace.tensor(read.tensor)->bytes;
    for (auto& read : reads) {
        read.offset = places[read.tensor] + (read.offset - trace.tensor(read.tensor)->file_offset);
        read.file = 0;
    }
    return reads;
}

/// The storage's time for the requests: one by one, as by page faults, and all queued, as by read-ahead, with adjacent
/// ones merged.
Json storage_times(const std::vector<FileRead>& requests, const StorageCurve& curve) {
    double one_by_one = 0, at_once = 0;
    for (std::size_t i = 0; i < requests.size();) {
        std::uint64_t length = 0;
        std::size_t end = i;
        do {
            one_by_one += double(requests[end].length) / curve.idle_rate(requests[end].length);
            length += requests[end++].length;
        } while (end < requests.size() && requests[end].file == requests[end - 1].file &&
                 requests[end].offset == requests[end - 1].offset + requests[end - 1].length);
        at_once += double(length) / curve.saturated_rate(length);
        i = end;
    }
    return {{"one_by_one_s", one_by_one}, {"at_once_joined_s", at_once}};
}

int show_io(const IoArgs& args) {
    const auto trace = args.open();
    args.check_model(trace);
    const auto reads = file_reads(trace, args.selection());
    const std::uint64_t page = parse_size(args.page, "--page"), capacity = parse_size(args.cache, "--cache");
    if (page == 0) throw UsageError("--page: a page has at least a byte");
    const auto requests = page_misses(reads, page, capacity, args.policy);
    std::uint64_t bytes = 0;
    for (const auto& request : requests) bytes += request.length;
    const std::uint64_t begin = reads.empty() ? 0 : reads[0].time;
    const bool wants_order = args.order == "trace" || !args.cost.empty();
    Json summary = {{"requests", requests.size()},
                    {"bytes", bytes},
                    {"page", page},
                    {"cache", capacity},
                    {"not_adjacent", n_apart(requests)},
                    {"needed_gbps", needed_rate(requests, begin)}};
    if (!args.disk.empty()) summary["storage"] = storage_times(requests, read_storage_curve(args.disk));
    StorageReads measured;
    for (const auto& [run, of_run] : storage_reads(trace, args.selection())) measured += of_run;
    if (measured.n > 0)
        summary["read"] = {{"requests", measured.n},
                           {"bytes", measured.bytes},
                           {"ahead", measured.n_ahead},
                           {"bytes_ahead", measured.bytes_ahead},
                           {"waited_s", double(measured.waited) / 1e9}};
    if (wants_order) {
        const auto moved = page_misses(in_trace_order(trace, reads), page, capacity, args.policy);
        summary["not_adjacent_in_trace_order"] = n_apart(moved);
    }
    Table table({{"time", Unit::ms},
                 {"event", Unit::count},
                 {"run", Unit::count},
                 {"file", Unit::count},
                 {"offset", Unit::count},
                 {"length", Unit::bytes},
                 {"tensor"},
                 {"lead", Unit::ms},
                 {"cumulative", Unit::bytes}});
    std::uint64_t cumulative = 0;
    if (args.sizes) {
        std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> bins;
        for (const auto& request : requests) {
            auto& [n, sum] = bins[std::uint64_t{1} << (63 - __builtin_clzll(request.length))];
            ++n, sum += request.length;
        }
        table =
            Table({{"from", Unit::bytes}, {"below", Unit::bytes}, {"requests", Unit::count}, {"bytes", Unit::bytes}});
        for (const auto& [from, sums] : bins) table.add({from, 2 * from, sums.first, sums.second});
    } else {
        for (const auto& request : requests) {
            cumulative += request.length;
            if (args.is_full(table.size())) continue;
            table.add({double(request.time) / 1e6, request.event, request.run, std::uint64_t(request.file),
                       request.offset, request.length, std::string(trace.text(trace.tensor(request.tensor)->name)),
                       double(request.time - std::min(request.time, request.previous_end)) / 1e6, cumulative});
        }
    }
    print_result(args.style, summary, args.sizes ? "sizes" : "requests_list", table);
    if (!args.style.as_json && !args.style.as_csv) {
        print(std::to_string(requests.size()) + " requests of " + bytes_text(bytes, args.style.exact) + ", " +
              summary["not_adjacent"].dump() + " not behind the one before; read ahead at " +
              fixed(summary["needed_gbps"].get<double>(), 2) + " GB/s none would wait\n");
        if (measured.n > 0)
            print("under the memory limit " + std::to_string(measured.n) + " requests of " +
                  bytes_text(measured.bytes, args.style.exact) + " were made, " + std::to_string(measured.n_ahead) +
                  " of " + bytes_text(measured.bytes_ahead, args.style.exact) + " ahead; steps waited " +
                  fixed(double(measured.waited) / 1e9, 3) + " s\n");
        if (!args.disk.empty())
            print("this storage takes " + fixed(summary["storage"]["one_by_one_s"].get<double>(), 3) +
                  " s for them one by one, " + fixed(summary["storage"]["at_once_joined_s"].get<double>(), 3) +
                  " s read ahead, neighbours joined\n");
        if (wants_order)
            print("with tensors in the order of their use " + summary["not_adjacent_in_trace_order"].dump() +
                  " would not be\n");
    }
    return 0;
}

}  // namespace

Verb add_io(CLI::App& trace) {
    auto args = std::make_shared<IoArgs>();
    auto* verb =
        trace.add_subcommand("io", "Lists the requests that a storage would see, behind a simulated page cache.");
    args->add_file(*verb);
    args->add_model(*verb);
    args->add_selection(*verb);
    const std::string group = "Question";
    verb->add_option("--cache", args->cache, "size of the page cache, which starts empty; 0 keeps nothing")
        ->type_name("SIZE")
        ->group(group);
    verb->add_option("--page", args->page, "size of a page")->type_name("SIZE")->group(group);
    verb->add_option("--policy", args->policy, "lru, mru, fifo, lfu, aged, opt")->type_name("NAME")->group(group);
    verb->add_flag("--lead", args->lead, "with each request the time since the event before it (always shown)")
        ->group(group);
    verb->add_flag("--sizes", args->sizes, "a histogram of the requests' sizes instead")->group(group);
    verb->add_option("--order", args->order,
                     "trace: also how many requests would be apart if tensors lay in the order of use")
        ->check(one_of({"file", "trace"}))
        ->type_name("ORDER")
        ->group(group);
    verb->add_option("--cost", args->cost, "seek: the same; requests that are not behind the one before are counted")
        ->check(one_of({"seek"}))
        ->type_name("COST")
        ->group(group);
    verb->add_option("--disk", args->disk, "also how long a storage of this curve takes (see `tinfer trace disk`)")
        ->type_name("FILE")
        ->group(group);
    args->add_output(*verb);
    args->add_limit(*verb, 20);
    verb->footer(
        "\nExamples:\n  tinfer trace io t.tntrace --cache 4G --page 4096\n  tinfer trace io t.tntrace --sizes --json");
    return [args] { return show_io(*args); };
}

}  // namespace tinfer::app
