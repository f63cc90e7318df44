// SPDX-License-Identifier: MIT
// The constraint that bounds an answer's thoughts, around the constraint of the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "grammar/thoughts_count.hpp"
#include "tinfer/generation.hpp"
#include "tinfer/text.hpp"

namespace tinfer::serving {

class ThoughtsConstraint final : public grammar::SlicedConstraint {
public:
    /// `shown`: control tokens that are part of the text. `inner` may be null; `is_sliced`: it is a SlicedConstraint.
    ThoughtsConstraint(const Vocab& vocab, ThoughtsLimit limit, std::vector<Token> shown,
                       std::unique_ptr<TokenConstraint> inner, bool is_sliced);
    ThoughtsConstraint(const ThoughtsConstraint& other);
    ThoughtsConstraint& operator=(const ThoughtsConstraint&) = delete;
    ~ThoughtsConstraint() override = default;

    [[nodiscard]] bool allows(Token token) override;
    [[nodiscard]] std::span<const std::uint64_t> mask() override;
    void accept(Token token) override;
    void rewind(std::size_t n) override;
    void reset() override;
    [[nodiscard]] std::unique_ptr<TokenConstraint> clone() const override;
    [[nodiscard]] std::span<const Token> forced() override;
    [[nodiscard]] bool prepare(std::uint64_t n_steps) override;
    void pause_after(std::uint64_t n) noexcept override;
    [[nodiscard]] const std::shared_ptr<const Grammar::Impl>& grammar() const noexcept override;

private:
    static constexpr std::size_t kRemembered = 1024;  // tokens that rewind() can undo, at least
    struct Place {
        grammar::ThoughtsCount count{};
        std::optional<std::size_t> closing{};  // which of limit_.closings is being written
        std::size_t n_written = 0;             // tokens of it
    };
    struct Step {
        Token token;
        Place before;
    };

    [[nodiscard]] std::span<const Token> closing();
    [[nodiscard]] grammar::SlicedConstraint* sliced() const noexcept;
    void read_piece(ContentReader& reader, Token token) const;
    void read(Token token);

    Vocab vocab_;
    ThoughtsLimit limit_;
    std::vector<Token> shown_;
    std::unique_ptr<TokenConstraint> inner_;
    bool is_sliced_;
    std::shared_ptr<const Grammar::Impl> no_grammar_{};
    std::unique_ptr<ContentReader> base_, reader_;  // of the answer before `steps_`, and with them
    std::vector<Step> steps_;
    Place place_;
    bool is_decided_ = false;  // whether thoughts are closed here
    std::vector<std::uint64_t> mask_;
};

}  // namespace tinfer::serving
