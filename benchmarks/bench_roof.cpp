// SPDX-License-Identifier: MIT
// The roofs of this machine, which every other figure is a share of: multiply-accumulates without memory (checked
// against the clock: a loop that does not issue one or two instructions in every cycle is no roof), and reading memory
// without arithmetic.
#include "matrix_unit.hpp"
#include "support.hpp"

#include <cstdio>
#include <vector>

#include "tinfer/tinfer.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_roof [--threads 1,2] [--seconds 0.1] [--smoke] [--json]\n"
    "Measures peaks of dot products and of the matrix unit, last-level cache and stream read.\n";

void print_products(Printer& printer, roof::Team& team, Isa isa, double seconds) {
    const roof::Level level = roof::level_of(to_string(isa));
    const auto print = [&](const char* unit, double rate, double per_cycle) {
        Record record("roof");
        record.add("roof", unit).add("table", to_string(isa)).add("threads", team.size()).add("gmacs", rate / 1e9, 1);
        printer.print(record.add("per_cycle", per_cycle));
    };
    print("int8", roof::int8_dot_rate(team, level, seconds), roof::int8_issue_rate(team, level, seconds));
    print("f32", roof::f32_fma_rate(team, level, seconds), roof::f32_issue_rate(team, level, seconds));
}

/// Where there is a matrix unit: its own roof, and what is left of it where factors come from L2.
void print_matrix_unit(Printer& printer, roof::Team& team, std::span<const std::byte> memory, double seconds) {
    const MatrixUnitRates rates = matrix_unit_rates(team, memory, seconds);
    const auto print = [&](const char* name, double rate) {
        Record record("roof");
        record.add("roof", name).add("table", "amx").add("threads", team.size());
        if (rate > 0) printer.print(record.add("gmacs", rate / 1e9, 1));
    };
    print("int8 tiles", rates.registers);
    print("int8 tiles from l2", rates.memory);
}

void measure(Options& options) {
    const bool smoke = options.flag("smoke");
    const double seconds = options.number("seconds", smoke ? 0.001 : 0.1);
    Printer printer(options.flag("json"));
    const auto thread_counts = options.numbers("threads", "1,2");
    options.finish();

    std::fprintf(stderr, "%s\n", cpu_name().c_str());
    const roof::LargePages pages(std::size_t{1} << (smoke ? 24 : 30));
    const std::span memory = pages.bytes();
    for (const int n : thread_counts) {
        roof::Team team(n);
        for (const Isa isa : available_isas()) print_products(printer, team, isa, seconds);
        const auto print_read = [&](const char* name, std::size_t bytes, double budget) {
            const double rate = roof::read_rate(team, memory.first(bytes), budget);
            Record record("roof");
            record.add("roof", name).add("threads", n).add("mib", bytes >> 20).add("gbps", rate / 1e9, 1);
            printer.print(record);
        };
        const std::size_t l2 = std::min(l2_bytes() / 2 * static_cast<std::size_t>(n), memory.size());
        print_matrix_unit(printer, team, memory.first(l2), seconds);
        print_read("l2", l2, seconds);
        print_read("last cache", std::min(4 * l2_bytes() * static_cast<std::size_t>(n), memory.size()), seconds);
        print_read("stream", memory.size(), 10 * seconds);
    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_roof", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::measure(options);
    });
}
