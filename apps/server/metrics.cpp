// SPDX-License-Identifier: MIT
#include "metrics.hpp"

#include <tinfer/placement.hpp>

#include <charconv>
#include <fstream>

#ifdef __unix__
#    include <sys/resource.h>
#endif

namespace tinfer::server {

namespace {

std::string number_text(double value) {
    std::array<char, 32> text;
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

void header(std::string& out, std::string_view name, std::string_view kind, std::string_view help) {
    out.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ");
    out.append(name).append(" ").append(kind).append("\n");
}

void sample(std::string& out, std::string_view name, std::string_view labels, const std::string& value) {
    out.append(name).append("{").append(labels).append("} ").append(value).append("\n");
}

/// Bytes that the model's steps have read and written, by kind of tensor.
void add_bytes(std::string& out, const tinfer::TouchedBytes& bytes, const std::string& labels) {
    const auto add = [&](std::string_view name, std::string_view help, const auto& sums) {
        header(out, name, "counter", help);
        for (std::size_t c = 0; c < sums.size(); ++c) {
            const auto kind = static_cast<tinfer::TensorClass>(c);
            if (kind == tinfer::TensorClass::scratch) continue;
            sample(out, name, labels + ",class=\"" + std::string(tinfer::to_string(kind)) + "\"",
                   std::to_string(sums[c]));
        }
    };
    add("tinfer_read_bytes_total", "Bytes read by the steps of the model, by class of tensor.", bytes.read);
    add("tinfer_written_bytes_total", "Bytes written by them.", bytes.written);
    header(out, "tinfer_computed_tokens_total", "counter", "Tokens that went through the model.");
    sample(out, "tinfer_computed_tokens_total", labels, std::to_string(bytes.tokens));
}

}  // namespace

void Histogram::add(double seconds) noexcept {
    for (std::size_t i = 0; i < kBounds.size(); ++i)
        if (seconds <= kBounds[i]) ++counts_[i];
    ++n_;
    sum_ += seconds;
}

void Histogram::write(std::string& out, std::string_view name, std::string_view help, std::string_view labels) const {
    header(out, name, "histogram", help);
    const std::string full(name), with(labels);
    for (std::size_t i = 0; i < kBounds.size(); ++i)
        sample(out, full + "_bucket", with + ",le=\"" + number_text(kBounds[i]) + "\"", std::to_string(counts_[i]));
    sample(out, full + "_bucket", with + ",le=\"+Inf\"", std::to_string(n_));
    sample(out, full + "_sum", with, number_text(sum_));
    sample(out, full + "_count", with, std::to_string(n_));
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

std::string Metrics::text(const tinfer::Engine& engine, const std::string& model) const {
    const auto stats = engine.stats();
    const std::string labels = "model=\"" + escape_label(model) + "\"";
    std::string out;
    const auto one = [&](std::string_view name, std::string_view kind, std::string_view help, auto value) {
        header(out, name, kind, help);
        if constexpr (std::is_floating_point_v<decltype(value)>) sample(out, name, labels, number_text(value));
        else sample(out, name, labels, std::to_string(value));
    };
    {
        const std::lock_guard lock(mutex_);
        header(out, "tinfer_http_requests_total", "counter", "Requests by route and status.");
        for (const auto& [key, count] : requests_)
            sample(out, "tinfer_http_requests_total",
                   labels + ",route=\"" + escape_label(key.first) + "\",status=\"" + std::to_string(key.second) + "\"",
                   std::to_string(count));
        first_.write(out, "tinfer_time_to_first_token_seconds", "From the request to the first token.", labels);
        between_.write(out, "tinfer_time_between_tokens_seconds", "Between two tokens of an answer.", labels);
        whole_.write(out, "tinfer_answer_seconds", "From the request to the end of the answer.", labels);
    }
    one("tinfer_requests_queued", "gauge", "Requests that wait.", stats.queued);
    one("tinfer_requests_running", "gauge", "Requests that run.", stats.running);
    one("tinfer_sequences_kept", "gauge", "Ended sequences whose prefixes can be shared.", stats.kept);
    one("tinfer_cache_tokens", "gauge", "Tokens the cache can hold.", stats.cache_slots);
    one("tinfer_cache_tokens_used", "gauge", "Tokens the cache holds.", stats.cache_slots_used);
    one("tinfer_requests_submitted_total", "counter", "Requests taken by the engine.", stats.submitted);
    one("tinfer_requests_refused_total", "counter", "Requests refused for a full queue.", stats.refused);
    one("tinfer_requests_ended_total", "counter", "Requests that ended by themselves.", stats.ended);
    one("tinfer_requests_interrupted_total", "counter", "Requests that were cancelled.", stats.interrupted);
    one("tinfer_requests_failed_total", "counter", "Requests that ended with an error.", stats.failed);
    one("tinfer_prompt_tokens_total", "counter", "Tokens of prompts that were computed.", stats.prompt_tokens);
    one("tinfer_cached_tokens_total", "counter", "Tokens of prompts that were shared.", stats.cached_tokens);
    one("tinfer_generated_tokens_total", "counter", "Tokens that were generated.", stats.generated_tokens);
    one("tinfer_recomputed_tokens_total", "counter", "Tokens computed once more after a push back.",
        stats.recomputed_tokens);
    one("tinfer_pushed_back_total", "counter", "Requests that went back into the queue.", stats.pushed_back);
    one("tinfer_drafted_tokens_total", "counter", "Guesses that were checked.", stats.drafted_tokens);
    one("tinfer_accepted_tokens_total", "counter", "Guesses that were right.", stats.accepted_tokens);
    if (engine.options().store) {
        one("tinfer_store_pages", "gauge", "Pages of prompts kept in memory.", stats.store.pages);
        one("tinfer_store_bytes", "gauge", "Bytes of these pages.", stats.store.bytes);
        one("tinfer_store_restored_tokens_total", "counter", "Tokens of prompts that the store had.",
            stats.store.restored_tokens);
        one("tinfer_store_read_pages_total", "counter", "Pages read from the folder.", stats.store.read_pages);
        one("tinfer_store_written_pages_total", "counter", "Pages written to the folder.", stats.store.written_pages);
        one("tinfer_store_refused_files_total", "counter", "Files that were damaged, and computed anew.",
            stats.store.refused_files);
        one("tinfer_store_dropped_pages_total", "counter", "Pages dropped for the limit of memory.",
            stats.store.dropped_pages);
        one("tinfer_store_errors_total", "counter", "Times that the store could not do its work.", stats.store_errors);
    }
    if (const auto paging = tinfer::paging_counts(engine.model())) {
        one("tinfer_expert_hits_total", "counter", "Experts that a step found in memory.", paging->hits);
        one("tinfer_expert_misses_total", "counter", "Experts that a step had to wait for.", paging->misses);
        one("tinfer_expert_read_bytes_total", "counter", "Bytes of experts read from storage.", paging->bytes_read);
        one("tinfer_expert_wait_seconds_total", "counter", "Time that steps waited for experts.", paging->waited_s);
        one("tinfer_expert_bytes", "gauge", "Room for experts.", paging->slot_bytes);
    }
    if (engine.options().count_bytes) add_bytes(out, stats.bytes, labels);
    one("tinfer_rounds_total", "counter", "Batches that were decoded.", stats.rounds);
    one("tinfer_busy_seconds_total", "counter", "Time inside of batches.", stats.busy_s);
    header(out, "tinfer_batch_tokens", "histogram", "Tokens of a batch.");
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < stats.batch_sizes.size(); ++i) {
        sum += stats.batch_sizes[i];
        sample(out, "tinfer_batch_tokens_bucket",
               labels + ",le=\"" + std::to_string((std::uint64_t{2} << i) - 1) + "\"", std::to_string(sum));
    }
    sample(out, "tinfer_batch_tokens_bucket", labels + ",le=\"+Inf\"", std::to_string(sum));
    sample(out, "tinfer_batch_tokens_sum", labels, std::to_string(stats.batch_tokens));
    sample(out, "tinfer_batch_tokens_count", labels, std::to_string(sum));
#ifdef __unix__
    rusage usage{};
    if (getrusage(RUSAGE_SELF, &usage) == 0) {
        one("tinfer_page_faults_major_total", "counter", "Pages that were read from storage.",
            static_cast<std::uint64_t>(usage.ru_majflt));
        one("tinfer_page_faults_minor_total", "counter", "Pages that were mapped.",
            static_cast<std::uint64_t>(usage.ru_minflt));
    }
#endif
    return out;
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
