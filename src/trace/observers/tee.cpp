// SPDX-License-Identifier: MIT
// Tee: several observers attached as one; each keeps its own filters, deliveries and errors.
#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "tinfer/observers.hpp"
#include "trace/filter.hpp"

namespace tinfer {

namespace trace {

/// Events that outlive their callback, for observers that are to have them at the end of the run.
class KeptEvents {
public:
    void clear() {
        events_.clear();
        accesses_.clear();
        ranges_.clear();
        spans_.clear();
        places_.clear();
    }
    void add(const KernelEvent& event) {
        places_.push_back({accesses_.size(), spans_.size()});
        events_.push_back(event);
        for (const Access& access : event.accesses) {
            accesses_.push_back(access);
            ranges_.insert(ranges_.end(), access.ranges.begin(), access.ranges.end());
        }
        spans_.insert(spans_.end(), event.threads.begin(), event.threads.end());
    }
    /// Valid until the next add or clear. Vectors have moved while they grew: what points into them is set now.
    [[nodiscard]] std::span<const KernelEvent> events() {
        std::size_t range = 0;
        for (Access& access : accesses_) {
            const std::size_t n = access.ranges.size();
            access.ranges = std::span(ranges_).subspan(range, n);
            range += n;
        }
        for (std::size_t i = 0; i < events_.size(); ++i) {
            events_[i].accesses = std::span(accesses_).subspan(places_[i].access, events_[i].accesses.size());
            events_[i].threads = std::span(spans_).subspan(places_[i].span, events_[i].threads.size());
        }
        return events_;
    }

private:
    struct Place {
        std::size_t access, span;
    };
    std::vector<KernelEvent> events_;
    std::vector<Access> accesses_;
    std::vector<AccessRange> ranges_;
    std::vector<ThreadSpan> spans_;
    std::vector<Place> places_;
};

}  // namespace trace

struct Tee::Impl {
    struct Branch {
        std::shared_ptr<Observer> observer;
        TraceRequest request;
        std::vector<bool> passes;  // by step of the running plan
        std::vector<KernelEvent> passed;
        std::uint64_t n_passed = 0;  // of the running run
        SessionSummary summary;
        bool gone = false;  // it threw, and asked to be detached then
    };
    std::vector<Branch> branches;
    trace::KeptEvents kept;
    bool immediate = false;    // some branch is
    std::uint64_t n_seen = 0;  // events of the running run

    template <class Fn>
    void for_each(Fn&& fn) {
        for (Branch& branch : branches) {
            if (branch.gone) continue;
            if (branch.request.on_throw == OnThrow::fail_decode) {
                fn(branch);
                continue;
            }
            try {
                fn(branch);
            } catch (const std::exception& error) {
                branch.gone = true;
                branch.summary.error = error.what();
            }
        }
    }
    static void deliver(Branch& branch, std::span<const KernelEvent> events) {
        branch.passed.clear();
        for (const KernelEvent& event : events)
            if (branch.passes[event.step->number]) branch.passed.push_back(event);
        branch.n_passed += branch.passed.size();
        if (!branch.passed.empty()) branch.observer->on_events(branch.passed);
    }
};

Tee::Tee(std::vector<std::shared_ptr<Observer>> observers) : impl_(std::make_unique<Impl>()) {
    for (std::size_t i = 0; i < observers.size(); ++i) {
        if (observers[i] == nullptr) fail(ErrorCode::bad_parameter, cat("tee: observer ", i, " is null"));
        Impl::Branch& branch = impl_->branches.emplace_back();
        branch.request = observers[i]->request();
        branch.observer = std::move(observers[i]);
        impl_->immediate = impl_->immediate || branch.request.delivery == Delivery::immediate;
    }
}
Tee::~Tee() = default;

// The union: the highest level, no filter. Every branch's own is applied here.
TraceRequest Tee::request() const {
    TraceRequest all{.level = TraceLevel::counts};
    for (const Impl::Branch& branch : impl_->branches) all.level = std::max(all.level, branch.request.level);
    all.delivery = impl_->immediate ? Delivery::immediate : Delivery::batched;
    return all;
}

void Tee::on_session(const SessionInfo& session) {
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_session(session); });
}
void Tee::on_plan(const PlanView& plan) {
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_plan(plan); });
}

void Tee::on_run_begin(const RunInfo& run) {
    impl_->kept.clear();
    impl_->n_seen = 0;
    for (Impl::Branch& branch : impl_->branches) {
        trace::compile_filter(branch.request.filter, run, branch.passes);
        branch.n_passed = 0;
    }
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_run_begin(run); });
}

void Tee::on_step_begin(const StepView& step) {
    impl_->for_each([&](Impl::Branch& b) {
        if (b.request.delivery == Delivery::immediate && b.passes[step.number]) b.observer->on_step_begin(step);
    });
}

void Tee::on_step_end(const KernelEvent& event, const StepValues& values) {
    ++impl_->n_seen;
    const auto waits = [&](const Impl::Branch& b) {
        return !b.gone && b.request.delivery == Delivery::batched && b.passes[event.step->number];
    };
    if (std::ranges::any_of(impl_->branches, waits)) impl_->kept.add(event);
    impl_->for_each([&](Impl::Branch& b) {
        if (b.request.delivery != Delivery::immediate || !b.passes[event.step->number]) return;
        ++b.n_passed;
        b.observer->on_step_end(event, values);
    });
}

// A recorded trace is delivered in batches whatever was asked for: then everyone gets them.
void Tee::on_events(std::span<const KernelEvent> events) {
    impl_->n_seen += events.size();
    impl_->for_each([&](Impl::Branch& b) { Impl::deliver(b, events); });
}

void Tee::on_run_end(const RunResult& result) {
    if (impl_->immediate)
        if (const auto events = impl_->kept.events(); !events.empty())
            impl_->for_each([&](Impl::Branch& b) {
                if (b.request.delivery == Delivery::batched) Impl::deliver(b, events);
            });
    impl_->kept.clear();
    for (Impl::Branch& branch : impl_->branches) {
        if (branch.gone) continue;
        ++branch.summary.runs;
        branch.summary.events += branch.n_passed;
        branch.summary.filtered += impl_->n_seen - branch.n_passed;
    }
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_run_end(result); });
}

void Tee::on_sample(const SampleEvent& sample) {
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_sample(sample); });
}
void Tee::on_mark(std::uint64_t time, std::string_view text) {
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_mark(time, text); });
}
void Tee::on_reads(std::span<const ReadEvent> reads) {
    impl_->for_each([&](Impl::Branch& b) { b.observer->on_reads(reads); });
}
void Tee::on_detach(const SessionSummary& summary) noexcept {
    for (Impl::Branch& branch : impl_->branches) {
        if (branch.summary.error.empty()) branch.summary.error = summary.error;
        branch.observer->on_detach(branch.summary);
        branch.summary = {};
        branch.gone = false;
    }
}

}  // namespace tinfer
