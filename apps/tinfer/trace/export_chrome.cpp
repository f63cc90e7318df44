// SPDX-License-Identifier: MIT
// Exports of timelines: Chrome's trace JSON, and Perfetto's protocol buffers, encoded by hand. Both have nested slices
// for runs, parts and steps, and a track per thread.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "export.hpp"

namespace tinfer::app {

namespace {

constexpr std::uint64_t kMaxSlices = 2'000'000;

/// A slice of a track: 0 = runs, parts and steps; 1 + t = thread t.
struct Slice {
    std::uint32_t track = 0;
    std::uint64_t begin = 0, end = 0;
    std::string name;
    const tinfer::KernelEvent* event = nullptr;
};

/// Emits slices by begin time, outer ones first, properly nested.
class Slices : public Visitor {
public:
    Slices(const tinfer::TraceReader& of, const ExportArgs& args) : Visitor(of, args.selection()) {}
    virtual void slice(const Slice& slice) = 0;
    virtual void counter(std::string_view name, std::uint64_t time, double value) = 0;

    void begin(const tinfer::RunInfo& run) override {
        run_name_ = "run " + std::to_string(run.run) + " " + std::string(to_string(run.phase)) + " (" +
                    counted(run.tokens.size(), "token") + ")";
        steps_.clear();
        slots_ = run.slots_used;
    }
    void see(const tinfer::KernelEvent& event) override {
        Step step{event.begin,
                  event.end,
                  std::string(event.step->kernel),
                  std::string(to_string(event.step->part)),
                  event.bytes_read + event.bytes_written,
                  {},
                  {}};
        if (event.step->layer != tinfer::kNoLayer) step.part += " " + std::to_string(event.step->layer);
        for (const auto& access : event.accesses)
            if (is_weight(access)) step.tensors += (step.tensors.empty() ? "" : " ") + std::string(access.tensor->name);
        step.threads.assign(event.threads.begin(), event.threads.end());
        steps_.push_back(std::move(step));
    }
    void end(const tinfer::RunResult& result) override {
        slice({0, result.run->begin, result.end, run_name_, nullptr});
        counter("slots used", result.run->begin, double(slots_));
        for (std::size_t i = 0; i < steps_.size(); ++i) {
            if (i == 0 || steps_[i].part != steps_[i - 1].part) {
                std::size_t last = i;
                while (last + 1 < steps_.size() && steps_[last + 1].part == steps_[i].part) ++last;
                slice({0, steps_[i].begin, steps_[last].end, steps_[i].part, nullptr});
            }
            tensors = steps_[i].tensors;
            bytes = steps_[i].bytes;
            slice({0, steps_[i].begin, steps_[i].end, steps_[i].kernel, nullptr});
            tensors.clear();
            const std::uint64_t ns = steps_[i].end - steps_[i].begin;
            counter("GB/s", steps_[i].begin, ns > 0 ? double(steps_[i].bytes) / double(ns) : 0);
            for (std::size_t t = 0; t < steps_[i].threads.size(); ++t) {
                const auto& span = steps_[i].threads[t];
                slice({std::uint32_t(t + 1), steps_[i].begin + span.begin, steps_[i].begin + span.begin + span.busy,
                       steps_[i].kernel, nullptr});
            }
        }
    }
    std::string tensors;  ///< of the current step
    std::uint64_t bytes = 0;

private:
    struct Step {
        std::uint64_t begin, end;
        std::string kernel, part;
        std::uint64_t bytes;
        std::string tensors;
        std::vector<tinfer::ThreadSpan> threads;
    };
    std::string run_name_;
    std::vector<Step> steps_;
    std::uint64_t slots_ = 0;
};

std::uint32_t n_tracks(const tinfer::TraceReader& trace) {
    std::uint32_t n = 0;
    for (const auto& run : trace.runs())
        for (const auto& events : run.events) n = std::max(n, events.n_threads);
    return n + 1;
}

std::string track_name(std::uint32_t track) { return track == 0 ? "steps" : "thread " + std::to_string(track - 1); }

std::string json_text(std::string_view text) { return Json(std::string(text)).dump({.ascii = true}); }

class Chrome : public Slices {
public:
    Chrome(const tinfer::TraceReader& of, const ExportArgs& args, Out& out) : Slices(of, args), out_(out) {
        out.write("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\","
                  "\"args\":{\"name\":" +
                  json_text("tinfer " + std::string(trace.session_value("model"))) + "}}");
        for (std::uint32_t t = 0; t < n_tracks(trace); ++t)
            out.write(",\n{\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(t) +
                      ",\"name\":\"thread_name\",\"args\":{\"name\":\"" + track_name(t) + "\"}}");
    }
    void slice(const Slice& s) override {
        std::string line = ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(s.track) +
                           ",\"ts\":" + fixed(double(s.begin) / 1e3, 3) +
                           ",\"dur\":" + fixed(double(s.end - s.begin) / 1e3, 3) + ",\"name\":" + json_text(s.name);
        if (!tensors.empty())
            line += ",\"args\":{\"tensors\":" + json_text(tensors) + ",\"bytes\":" + std::to_string(bytes) + "}";
        out_.write(line + "}");
    }
    void counter(std::string_view name, std::uint64_t time, double value) override {
        out_.write(",\n{\"ph\":\"C\",\"pid\":1,\"ts\":" + fixed(double(time) / 1e3, 3) + ",\"name\":\"" +
                   std::string(name) + "\",\"args\":{\"value\":" + fixed(value, 3) + "}}");
    }
    void finish() { out_.write("\n]}\n"); }

private:
    Out& out_;
};

/// Fields of a protocol buffer message: a varint of number and kind, then the value.
class Message {
public:
    Message& number(std::uint32_t field, std::uint64_t value) {
        varint(field << 3);
        varint(value);
        return *this;
    }
    Message& real(std::uint32_t field, double value) {
        varint(field << 3 | 1);
        const auto bits = std::bit_cast<std::uint64_t>(value);
        for (int i = 0; i < 8; ++i) bytes_ += static_cast<char>(bits >> 8 * i);
        return *this;
    }
    Message& text(std::uint32_t field, std::string_view value) {
        varint(field << 3 | 2);
        varint(value.size());
        bytes_ += value;
        return *this;
    }
    Message& message(std::uint32_t field, const Message& value) { return text(field, value.bytes_); }
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
    void varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
        bytes_ += static_cast<char>(value);
    }
    std::string bytes_;
};

// Numbers of fields as perfetto's published protos have them (trace_packet, track_event, track_descriptor).
class Perfetto : public Slices {
public:
    Perfetto(const tinfer::TraceReader& of, const ExportArgs& args, Out& out) : Slices(of, args), out_(out) {
        packet(
            Message().message(60, Message().number(1, kProcess).message(3, Message().number(1, 1).text(6, "tinfer"))));
        for (std::uint32_t t = 0; t < n_tracks(trace); ++t)
            packet(
                Message().message(60, Message().number(1, kFirstTrack + t).text(2, track_name(t)).number(5, kProcess)));
        for (std::uint64_t c = 0; c < 2; ++c)
            packet(Message().message(60, Message()
                                             .number(1, kCounters + c)
                                             .text(2, c == 0 ? "slots used" : "GB/s")
                                             .number(5, kProcess)
                                             .message(8, Message())));
    }
    void slice(const Slice& s) override {
        Message begin;
        if (!tensors.empty())
            begin.message(4, Message().text(10, "tensors").text(6, tensors))
                .message(4, Message().text(10, "bytes").number(3, bytes));
        begin.number(9, 1).number(11, kFirstTrack + s.track).text(22, "tinfer").text(23, s.name);
        events_.push_back({s.begin, begin.bytes()});
        ends_.push_back(
            {s.end, s.end == s.begin ? 2 : 0, Message().number(9, 2).number(11, kFirstTrack + s.track).bytes()});
    }
    void counter(std::string_view name, std::uint64_t time, double value) override {
        events_.push_back(
            {time, Message().number(9, 4).number(11, kCounters + (name == "GB/s" ? 1 : 0)).real(44, value).bytes()});
    }
    // Packets of a run, sorted by time. At equal times ends come before begins, inner ends first, then ends of empty
    // slices.
    void end(const tinfer::RunResult& result) override {
        events_.clear(), ends_.clear();
        Slices::end(result);
        std::vector<Packet> all(ends_.rbegin(), ends_.rend());
        for (auto& [time, bytes_of_event] : events_) all.push_back({time, 1, std::move(bytes_of_event)});
        std::ranges::stable_sort(all, [](const Packet& a, const Packet& b) {
            return a.time != b.time ? a.time < b.time : a.order < b.order;
        });
        for (const auto& p : all) packet(Message().number(8, p.time).text(11, p.bytes));
    }

private:
    struct Packet {
        std::uint64_t time;
        int order;
        std::string bytes;
    };
    static constexpr std::uint64_t kProcess = 1, kFirstTrack = 1000, kCounters = 100;
    void packet(Message message) {
        message.number(10, 1);
        if (first_) message.number(13, 1);  // the incremental state of the sequence begins here
        first_ = false;
        out_.write(Message().text(1, message.bytes()).bytes());
    }
    Out& out_;
    bool first_ = true;
    std::vector<std::pair<std::uint64_t, std::string>> events_;
    std::vector<Packet> ends_;
};

}  // namespace

void export_chrome(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    std::uint64_t n = 0;
    for (const auto& run : trace.runs())
        for (const auto& events : run.events) n += events.events.size() * (2 + events.n_threads);
    if (n > kMaxSlices && !args.force)
        throw tinfer::Error(tinfer::ErrorCode::limit_exceeded,
                            args.file + ": about " + std::to_string(n) +
                                " slices, viewers take 2000000: cut the trace, use --format perfetto, or --force");
    Chrome chrome(trace, args, out);
    chrome.visit();
    chrome.finish();
}

void export_perfetto(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    Perfetto(trace, args, out).visit();
}

}  // namespace tinfer::app
