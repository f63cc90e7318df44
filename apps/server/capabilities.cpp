// SPDX-License-Identifier: MIT
#include "capabilities.hpp"

#include <algorithm>

namespace tinfer::server {

namespace {

constexpr std::size_t kMaxLoras = 16, kMaxTraces = 16;
constexpr double kMaxScale = 1e6;

tinfer::AdapterUse adapter_of(Fields& outer, const Json& item, const std::string& path, const Service& service) {
    tinfer::AdapterUse use;
    if (item.is_string()) {
        use.name = item.get<std::string>();
    } else {
        if (!item.is_object()) throw bad_request(path, "a name, or an object with name and scale, is expected");
        Fields fields(outer, item, path);
        const auto name = fields.text("name");
        if (!name) fields.refuse("name", "is missing");
        use.name = *name;
        use.scale = static_cast<float>(fields.number("scale", -kMaxScale, kMaxScale).value_or(1));
    }
    const auto& known = service.engine.options().adapters;
    if (std::ranges::find(known, use.name, &tinfer::EngineAdapter::name) == known.end())
        throw bad_request(path, "there is no adapter '" + use.name.substr(0, 64) + "' here (GET /v1/models lists them)",
                          "adapter_not_found");
    return use;
}

void read_lora(Fields& fields, const Service& service, Job& job) {
    const Json* given = fields.find("lora");
    auto& uses = job.request.adapters;
    // An adapter's name in `model` means the model with it.
    const auto& known = service.engine.options().adapters;
    const auto model = fields.text("model");
    if (given == nullptr && model && std::ranges::find(known, *model, &tinfer::EngineAdapter::name) != known.end())
        uses.push_back({.name = *model});
    if (given == nullptr) return;
    if (!given->is_array()) {
        uses.push_back(adapter_of(fields, *given, "lora", service));
        return;
    }
    if (given->size() > kMaxLoras)
        fields.refuse("lora", "a list of at most " + std::to_string(kMaxLoras) + " is expected");
    for (std::size_t i = 0; i < given->size(); ++i) {
        const std::string path = "lora[" + std::to_string(i) + "]";
        auto use = adapter_of(fields, (*given)[i], path, service);
        if (std::ranges::find(uses, use.name, &tinfer::AdapterUse::name) != uses.end())
            throw bad_request(path, "'" + use.name + "' is named twice");
        uses.push_back(std::move(use));
    }
}

}  // namespace

void read_capabilities(Fields& fields, const Service& service, Job& job, bool gives_text) {
    read_lora(fields, service, job);
    job.trace = fields.boolean("trace").value_or(false);
    if (job.trace && service.traces == nullptr)
        fields.refuse("trace", "this server writes no traces (--trace-dir allows them)");
    if (!gives_text) return;
    using Speculate = tinfer::EngineRequest::Speculate;
    const auto speculate = fields.word("speculate", {"off", "ngram", "draft"});
    if (!speculate) job.request.speculate = service.options.speculate;
    else
        job.request.speculate = *speculate == "ngram"   ? Speculate::ngram
                                : *speculate == "draft" ? Speculate::draft
                                                        : Speculate::none;
    if (speculate && *speculate == "off") job.request.generation.speculation.head = false;
    if (speculate && job.request.speculate == Speculate::draft && !service.engine.options().draft)
        fields.refuse("speculate", "this server has no draft model (--draft)");
    job.request.generation.speculation.n_max = service.options.draft_max;
    job.request.receipt = fields.boolean("receipt").value_or(false);
    if (!job.request.receipt) return;
    if (!service.options.receipts) fields.refuse("receipt", "this server gives no receipts (--receipts allows them)");
    if (!job.request.adapters.empty()) fields.refuse("receipt", "a receipt knows no adapters; 'lora' is given, too");
    const auto& engine = service.engine.options();
    if (!engine.attached.empty() || !engine.controls.empty())
        fields.refuse("receipt", "a receipt knows no adapters, and this server has attached some to every answer");
}

Traces::Traces(Service& service, const Job& job, std::vector<tinfer::EngineRequest>& requests) {
    if (!job.trace) return;
    if (requests.size() > kMaxTraces)
        throw bad_request("trace", std::to_string(requests.size()) + " answers at once; the limit with a trace is " +
                                       std::to_string(kMaxTraces));
    for (auto& request : requests) {
        files_.push_back(service.traces->open());
        request.observers.push_back(files_.back().observer());
    }
}

Json Traces::close(std::size_t i) { return files_.empty() ? Json() : files_[i].close(); }

std::string receipt_text(const tinfer::Receipt& receipt, const Service& service, const Job& job) {
    tinfer::Receipt whole = receipt;
    whole.files.clear();
    for (const auto& path : service.model.file().paths()) whole.files.push_back(path.filename().string());
    whole.overrides = service.options.overrides;
    whole.constrained = whole.constrained || job.request.grammar.has_value() || job.request.thoughts.has_value();
    return whole.json();
}

}  // namespace tinfer::server
