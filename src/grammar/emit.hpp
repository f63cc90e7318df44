// SPDX-License-Identifier: MIT
// From shapes to the nodes of a program.
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
    /// Into a program that has other parts, too, or into one of its own.
    Emitter(Normalizer& normalizer, const SchemaOptions& options, std::shared_ptr<Program> program = nullptr);
    /// How the words of JSON are spelled.
    void spell(std::string_view null, std::string_view yes, std::string_view no) {
        words_ = {std::string(null), std::string(yes), std::string(no)};
    }
    /// The rule of a value; finish() makes what the rules that were asked for need.
    [[nodiscard]] std::uint32_t rule(const Conjunction& terms);
    void finish();
    /// A value of one shape, as nodes that return; kNone where there is none.
    [[nodiscard]] std::uint32_t shape(const Shape& shape, const Conjunction& from);
    /// The program of a whole document: a value with white space around it.
    [[nodiscard]] std::shared_ptr<Program> run(const Conjunction& root);

private:
    void fill(const Conjunction& terms);
    [[nodiscard]] std::uint32_t string(const StringSpec& spec, std::uint32_t next);
    [[nodiscard]] std::uint32_t number(const NumberSpec& spec, std::uint32_t next);
    [[nodiscard]] std::uint32_t array(const ArraySpec& spec, const Conjunction& from);
    [[nodiscard]] std::uint32_t counted_array(const ArraySpec& spec, const Conjunction& from);
    [[nodiscard]] std::uint32_t unique_array(const ArraySpec& spec, const Conjunction& from);
    /// Members between the braces, then `close` behind the last one's white space.
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
    void set_placeholder(std::uint32_t node, const std::vector<std::uint32_t>& to);
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
