// SPDX-License-Identifier: MIT
// Compiles shapes to the nodes of a program.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/normalize.hpp"
#include "grammar/program.hpp"

namespace tinfer::grammar {

class Emitter {
public:
    /// Emits into the given program, which may have other parts, or else into a new one.
    Emitter(Normalizer& normalizer, const SchemaOptions& options, std::shared_ptr<Program> program = nullptr);
    /// Sets the spelling of null, true and false.
    void spell(std::string_view null, std::string_view yes, std::string_view no) {
        words_ = {std::string(null), std::string(yes), std::string(no)};
    }
    /// The rule of a value, created on first use; finish() fills in all rules that were requested.
    [[nodiscard]] std::uint32_t rule(const Conjunction& terms);
    void finish();
    /// Nodes for a value of one shape, ending in a `ret`; kNone if there is no such value.
    [[nodiscard]] std::uint32_t shape(const Shape& shape, const Conjunction& from);
    /// The program of a whole document: white space, then a value.
    [[nodiscard]] std::shared_ptr<Program> run(const Conjunction& root);

private:
    void fill(const Conjunction& terms);
    [[nodiscard]] std::uint32_t string(const StringSpec& spec, std::uint32_t next);
    [[nodiscard]] std::uint32_t number(const NumberSpec& spec, std::uint32_t next);
    [[nodiscard]] std::uint32_t array(const ArraySpec& spec, const Conjunction& from);
    [[nodiscard]] std::uint32_t counted_array(const ArraySpec& spec, const Conjunction& from);
    [[nodiscard]] std::uint32_t unique_array(const ArraySpec& spec, const Conjunction& from);
    /// The members between the braces; after the last one's white space follows `close`.
    [[nodiscard]] std::uint32_t members(const ObjectSpec& spec, std::uint32_t close);
    [[nodiscard]] std::uint32_t object(const ObjectSpec& spec);
    void witnesses(ObjectSpec spec, std::size_t next, std::vector<ObjectSpec::Some> last,
                   std::vector<std::uint32_t>& to);
    [[nodiscard]] std::uint32_t witness(const ObjectSpec& spec, const ObjectSpec::Some& some, std::uint32_t next);
    void other_members(const ObjectSpec& spec, ObjectTerminal& out);
    [[nodiscard]] std::uint32_t space(std::uint32_t next);
    [[nodiscard]] std::uint32_t gap(std::uint32_t next);
    [[nodiscard]] std::uint32_t member_value(const Conjunction& terms);
    [[nodiscard]] std::uint32_t placeholder();
    [[nodiscard]] std::string where(const Conjunction& from) const;

    Normalizer& normalizer_;
    const SchemaOptions& options_;
    std::shared_ptr<Program> program_;
    std::uint32_t ret_ = 0, space_dfa_ = 0, any_number_[2] = {kNone, kNone};
    std::map<Conjunction, std::uint32_t> rules_;
    std::map<Conjunction, std::uint32_t> members_;
    std::vector<Conjunction> pending_;
    std::array<std::string, 3> words_{"null", "true", "false"};
};

}  // namespace tinfer::grammar
