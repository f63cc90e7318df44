// SPDX-License-Identifier: MIT
#include "metrics.hpp"

#include <charconv>
#include <tuple>

#ifdef __unix__
#    include <sys/resource.h>
#endif

namespace tinfer::server {

namespace {

std::string number_text(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

void sample(std::string& out, std::string_view name, std::string_view labels, const std::string& value) {
    out.append(name);
    if (!labels.empty()) out.append("{").append(labels).append("}");
    out.append(" ").append(value).append("\n");
}

/// Bytes that the model's steps have read and written, by kind of tensor.
void add_bytes(MetricFamilies& to, const tinfer::TouchedBytes& bytes, const std::string& labels) {
    const auto add = [&](std::string_view name, std::string_view help, const auto& sums) {
        for (std::size_t c = 0; c < sums.size(); ++c) {
            const auto kind = static_cast<tinfer::TensorClass>(c);
            if (kind == tinfer::TensorClass::scratch) continue;
            to.add(name, "counter", help, labels + ",class=\"" + std::string(tinfer::to_string(kind)) + "\"", sums[c]);
        }
    };
    add("tinfer_read_bytes_total", "Bytes read by the steps of the model, by class of tensor.", bytes.read);
    add("tinfer_written_bytes_total", "Bytes written by them.", bytes.written);
    to.add("tinfer_computed_tokens_total", "counter", "Tokens that went through the model.", labels, bytes.tokens);
}

}  // namespace

MetricFamilies::Family& MetricFamilies::family(std::string_view name, std::string_view kind, std::string_view help) {
    for (Family& known : all_)
        if (known.name == name) return known;
    Family& added = all_.emplace_back(Family{std::string(name), {}, {}});
    added.head.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    added.head.append(name).append(" ").append(kind).append("\n");
    return added;
}

void MetricFamilies::add(std::string_view name, std::string_view kind, std::string_view help, const std::string& labels,
                         std::uint64_t value) {
    sample(family(name, kind, help).samples, name, labels, std::to_string(value));
}

void MetricFamilies::add(std::string_view name, std::string_view kind, std::string_view help, const std::string& labels,
                         double value) {
    sample(family(name, kind, help).samples, name, labels, number_text(value));
}

void MetricFamilies::add_histogram(std::string_view name, std::string_view help, const std::string& labels,
                                   std::span<const double> bounds, std::span<const std::uint64_t> counts,
                                   std::uint64_t n, double sum) {
    std::string& out = family(name, "histogram", help).samples;
    const std::string full(name);
    for (std::size_t i = 0; i < bounds.size(); ++i)
        sample(out, full + "_bucket", labels + ",le=\"" + number_text(bounds[i]) + "\"", std::to_string(counts[i]));
    sample(out, full + "_bucket", labels + ",le=\"+Inf\"", std::to_string(n));
    sample(out, full + "_sum", labels, number_text(sum));
    sample(out, full + "_count", labels, std::to_string(n));
}

std::string MetricFamilies::text() const {
    std::string out;
    for (const Family& family : all_) out.append(family.head).append(family.samples);
    return out;
}

void Histogram::add(double seconds) noexcept {
    for (std::size_t i = 0; i < kBounds.size(); ++i)
        if (seconds <= kBounds[i]) ++counts_[i];
    ++n_;
    sum_ += seconds;
}

void Metrics::request(std::string_view route, int status) {
    const std::lock_guard lock(mutex_);
    ++requests_[{std::string(route), status}];
}

void Metrics::first_token(double seconds) {
    const std::lock_guard lock(mutex_);
    first_.add(seconds);
}

void Metrics::between_tokens(double seconds) {
    const std::lock_guard lock(mutex_);
    between_.add(seconds);
}

void Metrics::whole(double seconds) {
    const std::lock_guard lock(mutex_);
    whole_.add(seconds);
}

void Metrics::add_series(MetricFamilies& to, const std::string& labels) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, count] : requests_)
        to.add("tinfer_http_requests_total", "counter", "Requests by route and status.",
               labels + ",route=\"" + escape_label(key.first) + "\",status=\"" + std::to_string(key.second) + "\"",
               count);
    const auto add = [&](std::string_view name, std::string_view help, const Histogram& one) {
        to.add_histogram(name, help, labels, Histogram::kBounds, one.counts(), one.n(), one.sum());
    };
    add("tinfer_time_to_first_token_seconds", "From the request to the first token.", first_);
    add("tinfer_time_between_tokens_seconds", "Between two tokens of an answer.", between_);
    add("tinfer_answer_seconds", "From the request to the end of the answer.", whole_);
}

void Metrics::take(Metrics& other) {
    const std::scoped_lock lock(mutex_, other.mutex_);
    for (const auto& [key, count] : other.requests_) requests_[key] += count;
    other.requests_.clear();
}

EngineTotals totals_of(const tinfer::Engine& engine) {
    return {.stats = engine.stats(),
            .paging = tinfer::paging_counts(engine.model()),
            .has_store = engine.options().store.has_value(),
            .counts_bytes = engine.options().count_bytes};
}

void EngineTotals::add(const EngineTotals& more) {
    const tinfer::EngineStats& from = more.stats;
    using Stats = tinfer::EngineStats;
    for (const auto counter :
         {&Stats::submitted, &Stats::refused, &Stats::ended, &Stats::interrupted, &Stats::failed, &Stats::prompt_tokens,
          &Stats::cached_tokens, &Stats::generated_tokens, &Stats::recomputed_tokens, &Stats::drafted_tokens,
          &Stats::accepted_tokens, &Stats::rounds, &Stats::abandoned_rounds, &Stats::pushed_back,
          &Stats::dropped_sequences, &Stats::failed_rounds, &Stats::store_errors, &Stats::batch_tokens})
        stats.*counter += from.*counter;
    stats.busy_s += from.busy_s;
    for (std::size_t i = 0; i < stats.batch_sizes.size(); ++i) stats.batch_sizes[i] += from.batch_sizes[i];
    for (std::size_t i = 0; i < stats.bytes.read.size(); ++i) stats.bytes.read[i] += from.bytes.read[i];
    for (std::size_t i = 0; i < stats.bytes.written.size(); ++i) stats.bytes.written[i] += from.bytes.written[i];
    stats.bytes.tokens += from.bytes.tokens;
    stats.store.restored_tokens += from.store.restored_tokens;
    stats.store.read_pages += from.store.read_pages;
    stats.store.written_pages += from.store.written_pages;
    stats.store.refused_files += from.store.refused_files;
    stats.store.dropped_pages += from.store.dropped_pages;
    if (more.paging) {
        if (!paging) paging.emplace();
        paging->hits += more.paging->hits;
        paging->misses += more.paging->misses;
        paging->bytes_read += more.paging->bytes_read;
        paging->waited_s += more.paging->waited_s;
        paging->slot_bytes += more.paging->slot_bytes;
        paging->used_bytes += more.paging->used_bytes;
        paging->ahead_used += more.paging->ahead_used;
        paging->ahead_wasted += more.paging->ahead_wasted;
    }
    has_store = has_store || more.has_store;
    counts_bytes = counts_bytes || more.counts_bytes;
}

void add_series(MetricFamilies& to, const EngineTotals& totals, const std::string& labels) {
    const auto& stats = totals.stats;
    const auto count = [&](std::string_view name, std::string_view help, std::uint64_t value) {
        to.add(name, "counter", help, labels, value);
    };
    const auto gauge = [&](std::string_view name, std::string_view help, std::uint64_t value) {
        to.add(name, "gauge", help, labels, value);
    };
    gauge("tinfer_requests_queued", "Requests that wait.", stats.queued);
    gauge("tinfer_requests_running", "Requests that run.", stats.running);
    gauge("tinfer_sequences_kept", "Ended sequences whose prefixes can be shared.", stats.kept);
    gauge("tinfer_cache_tokens", "Tokens the cache can hold.", stats.cache_slots);
    gauge("tinfer_cache_tokens_used", "Tokens the cache holds.", stats.cache_slots_used);
    count("tinfer_requests_submitted_total", "Requests taken by the engine.", stats.submitted);
    count("tinfer_requests_refused_total", "Requests refused for a full queue.", stats.refused);
    count("tinfer_requests_ended_total", "Requests that ended by themselves.", stats.ended);
    count("tinfer_requests_interrupted_total", "Requests that were cancelled.", stats.interrupted);
    count("tinfer_requests_failed_total", "Requests that ended with an error.", stats.failed);
    count("tinfer_prompt_tokens_total", "Tokens of prompts that were computed.", stats.prompt_tokens);
    count("tinfer_cached_tokens_total", "Tokens of prompts that were shared.", stats.cached_tokens);
    count("tinfer_generated_tokens_total", "Tokens that were generated.", stats.generated_tokens);
    count("tinfer_recomputed_tokens_total", "Tokens computed once more after a push back.", stats.recomputed_tokens);
    count("tinfer_pushed_back_total", "Requests that went back into the queue.", stats.pushed_back);
    count("tinfer_drafted_tokens_total", "Drafted tokens that were verified.", stats.drafted_tokens);
    count("tinfer_accepted_tokens_total", "Drafted tokens that were accepted.", stats.accepted_tokens);
    if (totals.has_store) {
        gauge("tinfer_store_pages", "Pages of prompts kept in memory.", stats.store.pages);
        gauge("tinfer_store_bytes", "Bytes of these pages.", stats.store.bytes);
        count("tinfer_store_restored_tokens_total", "Tokens of prompts that the store had.",
              stats.store.restored_tokens);
        count("tinfer_store_read_pages_total", "Pages read from the folder.", stats.store.read_pages);
        count("tinfer_store_written_pages_total", "Pages written to the folder.", stats.store.written_pages);
        count("tinfer_store_refused_files_total", "Files that were damaged, and computed anew.",
              stats.store.refused_files);
        count("tinfer_store_dropped_pages_total", "Pages dropped for the limit of memory.", stats.store.dropped_pages);
        count("tinfer_store_errors_total", "Times that the store could not do its work.", stats.store_errors);
    }
    if (const auto& paging = totals.paging) {
        count("tinfer_expert_hits_total", "Experts that a step found in memory.", paging->hits);
        count("tinfer_expert_misses_total", "Experts that a step had to wait for.", paging->misses);
        count("tinfer_expert_read_bytes_total", "Bytes of experts read from storage.", paging->bytes_read);
        to.add("tinfer_expert_wait_seconds_total", "counter", "Time that steps waited for experts.", labels,
               paging->waited_s);
        count("tinfer_expert_ahead_used_total", "Experts that were read ahead and needed.", paging->ahead_used);
        count("tinfer_expert_ahead_wasted_total", "Experts that were read ahead and dropped unused.",
              paging->ahead_wasted);
        gauge("tinfer_expert_bytes", "Room for experts.", paging->slot_bytes);
    }
    if (totals.counts_bytes) add_bytes(to, stats.bytes, labels);
    count("tinfer_rounds_total", "Batches that were decoded.", stats.rounds);
    to.add("tinfer_busy_seconds_total", "counter", "Time inside of batches.", labels, stats.busy_s);
    std::array<std::uint64_t, std::tuple_size_v<decltype(stats.batch_sizes)>> sums{};
    std::array<double, sums.size()> bounds{};
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] = sum += stats.batch_sizes[i];
        bounds[i] = static_cast<double>((std::uint64_t{2} << i) - 1);
    }
    to.add_histogram("tinfer_batch_tokens", "Tokens of a batch.", labels, bounds, sums, sum,
                     static_cast<double>(stats.batch_tokens));
}

void add_process_series(MetricFamilies& to, const std::string& labels) {
#ifdef __unix__
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) != 0) return;
    to.add("tinfer_page_faults_major_total", "counter", "Pages that were read from storage.", labels,
           static_cast<std::uint64_t>(usage.ru_majflt));
    to.add("tinfer_page_faults_minor_total", "counter", "Pages that were mapped.", labels,
           static_cast<std::uint64_t>(usage.ru_minflt));
#endif
}

std::string escape_label(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || c == '"') out += '\\';
        if (c == '\n') out += "\\n";
        else out += c;
    }
    return out;
}

}  // namespace tinfer::server
