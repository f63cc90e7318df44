// SPDX-License-Identifier: MIT
// Pictures, text and the plan hash: accepted by Graphviz, one DOT node per graph node, safe with hostile names, and the
// same for the same work wherever the memory lies.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "graph/plan.hpp"
#include "graph/sample_graph.hpp"
#include "tinfer/trace.hpp"

using namespace tinfer;
using graph::Graph;
using graph::Plan;
using graph::Tensor;
using test::plan_of;
using test::SampleModel;

namespace {

// A parser of the part of the DOT language that is written here: enough to refuse what Graphviz would refuse.
class DotParser {
public:
    explicit DotParser(std::string_view text) : rest_(text) {}
    bool parse() { return word() == "digraph" && !word().empty() && block() && (skip(), rest_.empty()); }
    std::set<std::string> nodes;  ///< declared, by name
    std::set<std::string> used;   ///< by edges

private:
    void skip() {
        while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) rest_.remove_prefix(1);
    }
    bool take(std::string_view token) {
        skip();
        if (!rest_.starts_with(token)) return false;
        rest_.remove_prefix(token.size());
        return true;
    }
    std::string word() {
        skip();
        std::string out;
        while (!rest_.empty() &&
               (std::isalnum(static_cast<unsigned char>(rest_[0])) != 0 || rest_[0] == '_' || rest_[0] == '.'))
            out += rest_[0], rest_.remove_prefix(1);
        return out;
    }
    bool quoted() {
        if (!take("\"")) return false;
        while (!rest_.empty() && rest_[0] != '"') {
            if (static_cast<unsigned char>(rest_[0]) < 0x20) return false;
            rest_.remove_prefix(rest_[0] == '\\' && rest_.size() > 1 ? 2 : 1);
        }
        return take("\"");
    }
    bool attributes() {
        if (!take("[")) return true;
        do
            if (word().empty() || !take("=") || !(quoted() || !word().empty())) return false;
        while (take(","));
        return take("]");
    }
    bool statement() {
        const std::string name = word();
        if (name.empty()) return false;
        if (name == "subgraph") return !word().empty() && block();
        if (take("=")) return (quoted() || !word().empty()) && take(";");
        if (take("->")) {
            const std::string target = word();
            used.insert(name), used.insert(target);
            return !target.empty() && attributes() && take(";");
        }
        if (name != "node" && name != "edge" && !nodes.insert(name).second) return false;
        return attributes() && take(";");
    }
    bool block() {
        if (!take("{")) return false;
        while (!take("}"))
            if (!statement()) return false;
        return true;
    }
    std::string_view rest_;
};

bool accepted_by_graphviz(const std::string& dot) {
    if (std::system("command -v dot > /dev/null 2>&1") != 0) return true;  // not installed: the parser above has judged
    const std::filesystem::path file = std::filesystem::temp_directory_path() /
                                       ("tinfer_export_" + std::to_string(std::hash<std::string>{}(dot)) + ".dot");
    std::ofstream(file) << dot;
    const int status = std::system(("dot -Tcanon '" + file.string() + "' > /dev/null 2>&1").c_str());
    std::filesystem::remove(file);
    return status == 0;
}

// Parses, declares every node that edges use, and returns the number of nodes called n<number>.
std::size_t checked_nodes(const std::string& dot) {
    DotParser parser(dot);
    CHECK(parser.parse());
    CHECK(accepted_by_graphviz(dot));
    for (const std::string& name : parser.used) CHECK(parser.nodes.contains(name));
    return static_cast<std::size_t>(
        std::ranges::count_if(parser.nodes, [](const std::string& name) { return name[0] == 'n'; }));
}

}  // namespace

TEST_CASE("[G12][X15] export: Graphviz accepts graph and plan, with one node per graph node") {
    Graph g(512, 1024);
    for (const int n_expert : {0, 4}) {
        const SampleModel model({.n_expert = n_expert});
        model.build(g, 5, 2);
        const std::string dot = graph::to_dot(g);
        CHECK(checked_nodes(dot) == g.nodes().size());
        CHECK(dot == graph::to_dot(g));
        for (const bool fuse : {true, false}) {
            const Plan plan = plan_of(g, fuse);
            const std::string picture = graph::to_dot(g, plan, {});
            CHECK(checked_nodes(picture) == g.nodes().size());
            CHECK((picture.find("style=dashed;\n") != std::string::npos) == fuse);  // fused nodes share a cluster
        }
    }
}

TEST_CASE("export: names from a hostile file stay inside their quotes") {
    Graph g(16, 16);
    const std::string names[]{"\"];evil[label=\"", "back\\slash\\",        "new\nline\r\x01",
                              "<b>html</b>",       "caf\xc3\xa9 \xff\xfe", std::string(500, '"')};
    std::vector<TensorInfo> tensors(std::size(names));
    const Tensor x = g.input("x", DType::f32, {8, 2, 1, 1});
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
        tensors[i].id = i;
        tensors[i].name = names[i];
        tensors[i].tensor_class = TensorClass::weight;
        tensors[i].type = DType::f32;
        tensors[i].ne = {8, 1, 1, 1};
        g.rms_norm(x, g.weight(tensors[i]), 1e-5f);
    }
    const Plan plan = plan_of(g);
    const std::string kernels[]{"a\"b", "c\\"};
    const std::string_view kernel_names[]{kernels[0], kernels[1]};
    CHECK(checked_nodes(graph::to_dot(g)) == g.nodes().size());
    CHECK(checked_nodes(graph::to_dot(g, plan, kernel_names)) == g.nodes().size());
    for (const std::string& text : {graph::to_text(g), graph::to_text(g, plan, kernel_names)})
        for (const char c : text) CHECK((static_cast<unsigned char>(c) >= 0x20 || c == '\n'));
}

TEST_CASE("[G9] export: text lists every node, and every step with kernel, operands and places") {
    const SampleModel model;
    Graph g(512, 1024);
    model.build(g, 5, 2);
    const Plan plan = plan_of(g);
    const std::string nodes = graph::to_text(g);
    CHECK(nodes.find("n2    layer 0 attn_norm   rms_norm(n0:inp_embd, blk.0.attn_norm.weight) -> n2:attn_norm-0 f32 "
                     "{256,5}\n") != std::string::npos);
    CHECK(nodes.find("input positions i32 {5}\n") != std::string::npos);
    CHECK(nodes.find("n" + std::to_string(g.nodes().size() - 1) + "   none head") == std::string::npos);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) names.push_back("kernel." + std::to_string(i));
    const std::vector<std::string_view> kernels(names.begin(), names.end());
    const std::string steps = graph::to_text(g, plan, kernels);
    for (const std::string& name : names) CHECK(steps.find(" " + name + " ") != std::string::npos);
    CHECK(steps.find("nodes 2 3\n        0 write n3:attn_norm-0 x8_256 {256,5} @") != std::string::npos);
    CHECK(steps.find("3 none n2:attn_norm-0 f32 {256,5} elided\n") != std::string::npos);
    CHECK(std::ranges::count(nodes, '\n') ==
          static_cast<std::ptrdiff_t>(1 + g.values().size()));  // a header, then a line per leaf and node
}

TEST_CASE("plan hash: independent of addresses and of earlier plans, dependent on the work") {
    const SampleModel here({}, nullptr), there({}, &here);
    Graph g(512, 1024), other(512, 1024), wide(900, 2000);
    here.build(g, 5, 2);
    const Plan plan = plan_of(g);
    const auto hash = graph::plan_hash(g, plan, {});
    there.build(other, 9, 9);
    there.build(other, 5, 2);
    CHECK(graph::plan_hash(other, plan_of(other), {}) == hash);
    there.build(wide, 5, 2);
    CHECK(graph::plan_hash(wide, plan_of(wide), {}) == hash);
    Plan elsewhere = plan;
    for (auto& offset : elsewhere.offsets) offset += 4096;
    CHECK(graph::plan_hash(g, elsewhere, {}) == hash);

    std::set<std::array<std::uint8_t, 16>> different{hash};
    const std::vector<std::string_view> avx(plan.steps.size(), "avx2"), reference(plan.steps.size(), "reference");
    different.insert(graph::plan_hash(g, plan, avx));
    different.insert(graph::plan_hash(g, plan, reference));
    different.insert(graph::plan_hash(g, plan_of(g, false), {}));
    here.build(other, 6, 2);
    different.insert(graph::plan_hash(other, plan_of(other), {}));
    const Tensor logits = here.build(other, 5, 2);
    other.name(logits, "renamed");
    different.insert(graph::plan_hash(other, plan_of(other), {}));
    CHECK(different.size() == 6);
}

TEST_CASE("names: every enumerator of ops, classes, parts and phases has its own name") {
    std::set<std::string_view> names;
    for (int i = 0; i < static_cast<int>(Op::count_); ++i) CHECK(names.insert(to_string(static_cast<Op>(i))).second);
    CHECK(to_string(Op::count_) == "unknown");
    CHECK(to_string(Op::kv_copy_page) == "kv_copy_page");
    CHECK(to_string(Op::silu_mul_quantize) == "silu_mul_quantize");
    CHECK(to_string(TensorClass::scratch) == "scratch");
    CHECK(to_string(TensorClass::cache_v) == "cache_v");
    CHECK(to_string(Part::pool) == "pool");
    CHECK(to_string(Part::shared_expert) == "shared_expert");
    CHECK(to_string(Phase::maintenance) == "maintenance");
    CHECK(to_string(Phase::warm_up) == "warm_up");
    CHECK(to_string(static_cast<Part>(200)) == "unknown");
}
