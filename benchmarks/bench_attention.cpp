// SPDX-License-Identifier: MIT
// Attention against a cache of a given depth: one token, which is limited by the bytes of K and V, and a batch of
// queries at the end of the sequence, which is limited by multiply-accumulates. Layers beyond every cache take turns,
// as in a model. Each figure stands beside the roof measured in the same second; results are first compared with
// `reference`.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "kernel_run.hpp"
#include "support/random_blocks.hpp"

namespace tinfer::bench {

namespace {

constexpr std::string_view kUsage =
    "usage: bench_attention [--type f16,q8_0,…] [--table auto,avx2,…] [--work decode,prefill] [--depth 512,4096,…]\n"
    "                       [--dim 64,128] [--group 1,4,8] [--kv-heads 4] [--tokens 128] [--threads 1,2]\n"
    "                       [--seconds 0.2] [--ring MIB] [--smoke] [--json]\n"
    "One layer of attention over `depth` tokens. decode: one query; GB/s counts the bytes of its K and V; roof: the "
    "share\n"
    "of the stream read of all layers. prefill: the last `tokens` queries; GFMA/s counts the products with visible "
    "KV slots;\n"
    "peak: the share of the f32 multiply-accumulates of the table's instructions. group: heads per KV head.\n";

struct Plan {
    std::vector<DType> types;
    std::vector<std::string> tables, works;
    std::vector<int> depths, dims, groups, threads;
    int kv_heads, tokens;
    double seconds;
    std::size_t ring_bytes;
};

struct Shape {
    int dim, group, kv_heads, depth, tokens;
};

test::TestTensor integers(test::TestTensor::Shape ne, const std::vector<std::int32_t>& values) {
    test::TestTensor tensor(DType::i32, ne);
    std::copy(values.begin(), values.end(), tensor.as<std::int32_t>().begin());
    return tensor;
}

/// Layers of K and V of one sequence without holes, the queries of its last tokens, and their attention.
class Layers {
public:
    Layers(DType type, const Shape& shape, std::size_t ring_bytes)
        : shape_(shape), row_(type, {shape.dim * shape.kv_heads, n_pages() * 64, 1, 1}),
          n_(std::max<int>(1, static_cast<int>(ring_bytes / (2 * row_.bytes().size())))),
          memory_(2 * static_cast<std::size_t>(n_) * row_.bytes().size()),
          q_(DType::f32, {shape.dim, n_head(), shape.tokens, 1}), table_(entries(shape)),
          seqs_(integers({2, 1, 1, 1}, {0, n_pages()})), spans_(visible(shape)),
          out_(DType::f32, {shape.dim * n_head(), shape.tokens, 1, 1}) {
        fill_cache(type);
        std::memcpy(q_.bytes().data(),
                    test::random_floats(shape.dim * n_head() * shape.tokens, 3, test::Extremes::none).data(),
                    q_.bytes().size());
        params_.attention = {.n_head = n_head(),
                             .n_head_kv = shape.kv_heads,
                             .head_dim_k = shape.dim,
                             .head_dim_v = shape.dim,
                             .scale = 1.0f / std::sqrt(static_cast<float>(shape.dim))};
    }

    [[nodiscard]] int size() const noexcept { return n_; }
    [[nodiscard]] std::span<const std::byte> memory() const noexcept { return memory_.bytes(); }
    /// Bytes of K and V that the queries of one layer see, and their products with them.
    [[nodiscard]] double bytes() const noexcept {
        return 2.0 * static_cast<double>(row_bytes(row_.operand().type, row_.operand().ne[0])) * shape_.depth;
    }
    [[nodiscard]] double products() const noexcept {
        const double visible = shape_.depth - (shape_.tokens - 1) / 2.0;
        return visible * shape_.tokens * 2.0 * shape_.dim * n_head();
    }
    [[nodiscard]] KernelRun run(const kernels::KernelTable& table, int n_threads, int first, int n) {
        kernels::Operand out = out_.operand(), q = q_.operand(), spans = spans_.operand();
        out.data += first * out.nb[1];
        q.data += first * q.nb[2];
        spans.data += first * spans.nb[1];
        out.ne[1] = q.ne[2] = spans.ne[1] = n;
        return KernelRun(table, Op::attention, DType::none,
                         {out, q, cache(0), cache(1), table_.operand(), seqs_.operand(), spans}, n_threads, params_);
    }
    void place(int layer, kernels::KernelCall& call) {
        call.operands[2].data = cache(2 * (layer % n_)).data;
        call.operands[3].data = cache(2 * (layer % n_) + 1).data;
    }
    /// Compares the last query, and the first of a batch, with the reference table.
    void check(const kernels::KernelTable& table, roof::Team& team) {
        run(table, team.size(), 0, shape_.tokens).seconds(team, 1);
        const test::TestTensor actual(out_);
        roof::Team one(1);
        for (const int t : {0, shape_.tokens - 1}) run(*kernels::find_table(Isa::reference), 1, t, 1).seconds(one, 1);
        require_equal(out_, actual, cat(table.name, ", depth ", shape_.depth, ", head size ", shape_.dim));
    }

private:
    [[nodiscard]] int n_pages() const noexcept { return (shape_.depth + 63) / 64; }
    [[nodiscard]] int n_head() const noexcept { return shape_.group * shape_.kv_heads; }
    static test::TestTensor entries(const Shape& shape) {
        std::vector<std::int32_t> table;
        for (int at = 0; at < shape.depth; at += 64) {
            const std::uint64_t live =
                shape.depth - at >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shape.depth - at)) - 1;
            table.insert(table.end(),
                         {at / 64, at, static_cast<std::int32_t>(live), static_cast<std::int32_t>(live >> 32)});
        }
        return integers({4, static_cast<std::int64_t>(table.size() / 4), 1, 1}, table);
    }
    static test::TestTensor visible(const Shape& shape) {
        std::vector<std::int32_t> spans;
        for (int end = shape.depth - shape.tokens + 1; end <= shape.depth; ++end)
            spans.insert(spans.end(), {0, 0, end, end - 1});
        return integers({4, shape.tokens, 1, 1}, spans);
    }
    [[nodiscard]] kernels::Operand cache(int i) {
        kernels::Operand out = row_.operand();
        out.data = memory_.data() + static_cast<std::size_t>(i) * row_.bytes().size();
        return out;
    }
    /// Random rows through the kernel that writes them, a page at a time: scales and codes as in a model.
    void fill_cache(DType type) {
        const std::int64_t n_kv_slots = n_pages() * 64, row = shape_.dim * shape_.kv_heads;
        const auto& reference = *kernels::find_table(Isa::reference);
        OpParams params;
        params.attention = {
            .n_head = n_head(), .n_head_kv = shape_.kv_heads, .head_dim_k = shape_.dim, .head_dim_v = shape_.dim};
        test::TestTensor rows(DType::f32, {shape_.dim, shape_.kv_heads, 64, 1});
        std::memcpy(rows.bytes().data(), test::random_floats(row * 64, 5, test::Extremes::none).data(),
                    rows.bytes().size());
        for (const int is_v : {0, 1}) {
            params.is_v = is_v;
            std::byte* data = cache(is_v).data;
            std::vector<std::int32_t> kv_slots(64);
            for (int i = 0; i < 64; ++i) kv_slots[static_cast<std::size_t>(i)] = i;
            const test::TestTensor first = integers({64, 1, 1, 1}, kv_slots);
            roof::Team one(1);
            KernelRun(reference, Op::kv_write, type, {cache(is_v), rows.operand(), first.operand()}, 1, params)
                .seconds(one, 1);
            const std::size_t page = static_cast<std::size_t>(64 * row_bytes(type, row));
            for (std::int64_t p = 1; p < n_kv_slots / 64; ++p)
                std::memcpy(data + static_cast<std::size_t>(p) * page, data, page);
        }
        for (int i = 1; i < n_; ++i) std::memcpy(cache(2 * i).data, cache(0).data, 2 * row_.bytes().size());
    }

    Shape shape_;
    test::TestTensor row_;  // one cache, to size the others
    int n_;
    AlignedBuffer memory_;  // as a cache: in large pages
    test::TestTensor q_, table_, seqs_, spans_, out_;
    OpParams params_;
};

double best_call(KernelRun& run, roof::Team& team, Layers& layers, bool every_layer, double budget) {
    int n = layers.size();
    const auto place = [&](int i, kernels::KernelCall& call) { layers.place(i, call); };
    if (!every_layer) n = std::max(1, std::min(n, static_cast<int>(0.05 / run.seconds(team, 1, place))));
    double best = 1e30, spent = 0;
    for (int runs = 0; runs < 3 || spent < budget; ++runs) {
        const double seconds = run.seconds(team, n, place);
        best = std::min(best, seconds);
        spent += seconds;
    }
    return best / n;
}

void measure_shape(const Plan& plan, DType type, const Shape& shape, Printer& printer) {
    Layers layers(type, shape, plan.ring_bytes);
    const bool decode = shape.tokens == 1;
    for (const int n_threads : plan.threads) {
        roof::Team team(n_threads);
        for (const std::string& name : plan.tables) {
            const auto& table = table_named(name);
            layers.check(table, team);
            KernelRun run = layers.run(table, n_threads, 0, shape.tokens);
            const double seconds = best_call(run, team, layers, decode, plan.seconds);
            Record record("attention");
            record.add("table", table.name).add("type", to_string(type)).add("work", decode ? "decode" : "prefill");
            record.add("depth", shape.depth)
                .add("tokens", shape.tokens)
                .add("dim", shape.dim)
                .add("group", shape.group);
            record.add("threads", n_threads).add("us", 1e6 * seconds, 1);
            if (decode) {
                const double read = roof::read_rate(team, layers.memory(), plan.seconds),
                             rate = layers.bytes() / seconds;
                record.add("gbps", rate / 1e9, 1).percent("roof", rate, read).add("read_gbps", read / 1e9, 1);
            } else {
                const double peak = roof::f32_fma_rate(team, roof::level_of(table.name), plan.seconds / 10);
                const double rate = layers.products() / seconds;
                record.add("gfmas", rate / 1e9, 1).percent("peak", rate, peak).add("peak_gfmas", peak / 1e9, 0);
            }
            printer.print(record);
        }
    }
}

void run(Options& options) {
    const bool smoke = options.flag("smoke");
    Plan plan;
    for (const auto& name : options.list("type", "f16,q8_0,q4_0")) plan.types.push_back(dtype_named(name));
    plan.tables = options.list("table", "auto");
    plan.works = options.list("work", "decode,prefill");
    plan.depths = options.numbers("depth", smoke ? "70,300" : "512,4096,32768");
    plan.dims = options.numbers("dim", smoke ? "64" : "64,128");
    plan.groups = options.numbers("group", smoke ? "1,5" : "1,4,8");
    plan.threads = options.numbers("threads", "1,2");
    plan.kv_heads = static_cast<int>(options.number("kv-heads", smoke ? 2 : 4));
    plan.tokens = static_cast<int>(options.number("tokens", smoke ? 33 : 128));
    plan.seconds = options.number("seconds", smoke ? 0 : 0.2);
    plan.ring_bytes = static_cast<std::size_t>(options.number("ring", smoke ? 1 : 1024)) << 20;
    Printer printer(options.flag("json"));
    options.finish();
    for (const DType type : plan.types)
        for (const std::string& work : plan.works)
            for (const int dim : plan.dims)
                for (const int group : plan.groups)
                    for (const int depth : plan.depths) {
                        if (work != "decode" && work != "prefill")
                            throw std::runtime_error("--work: decode or prefill");
                        const int tokens = work == "decode" ? 1 : std::min(plan.tokens, depth);
                        measure_shape(plan, type, {dim, group, plan.kv_heads, depth, tokens}, printer);
                    }
}

}  // namespace

}  // namespace tinfer::bench

int main(int argc, char** argv) {
    return tinfer::bench::run_main("bench_attention", [&] {
        tinfer::bench::Options options(argc, argv, tinfer::bench::kUsage);
        tinfer::bench::run(options);
    });
}
