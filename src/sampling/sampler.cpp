// SPDX-License-Identifier: MIT
// Sampler: the public face of a chain. What needs another layer is in tinfer.cpp: the constructor, which chooses an
// instruction set, and sample(Context&, int), which tells observers.
#include <chrono>

#include "base/error.hpp"
#include "sampling/chain.hpp"

namespace tinfer {

namespace {
constexpr std::string_view kSampling = "sampler: an allocation failed";
}

Sampler::Sampler(const Sampler& other)
    : impl_(reporting_memory(kSampling, [&] { return std::make_unique<Impl>(*other.impl_); })) {}
Sampler& Sampler::operator=(const Sampler& other) {
    if (this != &other) *this = Sampler(other);
    return *this;
}
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

Token Sampler::sample(std::span<const float> logits) {
    const auto begin = std::chrono::steady_clock::now();
    const Token token = reporting_memory(kSampling, [&] { return impl_->chain.sample(impl_->of_vocabulary(logits)); });
    impl_->seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ++impl_->samples;
    return token;
}

void Sampler::accept(Token token) {
    reporting_memory(kSampling, [&] { impl_->chain.accept(token); });
}
void Sampler::constrain(std::unique_ptr<TokenConstraint> constraint) { impl_->chain.constrain(std::move(constraint)); }
TokenConstraint* Sampler::constraint() noexcept { return impl_->chain.constraint(); }

void Sampler::reset() {
    reporting_memory(kSampling, [&] { impl_->chain.reset(); });
}

void Sampler::insert(std::size_t index, std::unique_ptr<SamplerLink> link) {
    reporting_memory(kSampling, [&] { impl_->chain.insert(index, std::move(link)); });
}
void Sampler::remove(std::size_t index) {
    reporting_memory(kSampling, [&] { impl_->chain.remove(index); });
}
std::vector<std::string> Sampler::names() const {
    return reporting_memory(kSampling, [&] { return impl_->chain.names(); });
}

std::string Sampler::describe() const {
    return reporting_memory(kSampling, [&] { return tinfer::describe(impl_->options); });
}

std::vector<Candidate> Sampler::probs(std::size_t k) const {
    return reporting_memory(kSampling, [&] { return impl_->chain.probs(k); });
}
void Sampler::explain(bool on) { impl_->chain.explain(on); }
DrawReport Sampler::report() const {
    return reporting_memory(kSampling, [&] { return impl_->chain.report(); });
}
std::uint32_t Sampler::seed() const noexcept { return impl_->chain.seed(); }
std::vector<Token> Sampler::recent(std::size_t n) const {
    return reporting_memory(kSampling, [&] { return impl_->chain.recent(n); });
}
std::string Sampler::recent_text(std::size_t n) const { return impl_->vocab.decode(recent(n)); }
double Sampler::seconds() const noexcept { return impl_->seconds; }
std::uint64_t Sampler::samples() const noexcept { return impl_->samples; }

}  // namespace tinfer
