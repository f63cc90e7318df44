// SPDX-License-Identifier: MIT
// What a chat template does beside formatting: the texts that it puts into prompts, and where it depends on what
// messages say. A template is a program from a stranger: it can add an instruction when a certain word occurs, or on a
// certain day.
//
//     const auto chat_template = tinfer::ChatTemplate::built_in("gemma").value();
//     const auto audit = tinfer::audit(chat_template);
//     for (const auto& finding : audit.findings)
//         std::cout << finding.line << ": " << finding.kind << ": " << finding.text << '\n';
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tinfer/chat.hpp"
#include "tinfer/export.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

/// literal: a text that is put into prompts. content: what is written depends on what a message says (a condition, a
/// lookup). changed: the text of a message is replaced in part. position: it depends on how many messages there are, or
/// on which one it is, other than the first or the last. clock: it asks for the time.
enum class AuditKind : std::uint8_t { literal, content, changed, position, clock };
[[nodiscard]] TINFER_API std::string_view to_string(AuditKind kind) noexcept;

struct AuditFinding {
    AuditKind kind;
    std::uint32_t line = 0;  ///< of the template, from 1
    std::string text;        ///< the literal, or the line of the source
};

struct TemplateAudit {
    std::string sha256;                  ///< of the source
    std::vector<AuditFinding> findings;  ///< in the order of the source
    /// With `expected`: the literals and other findings, by kind and text, that `expected` does not have.
    std::vector<AuditFinding> unexpected;
};

/// Throws what parsing a template does. `expected`: a template to compare with; null: none.
[[nodiscard]] TINFER_API TemplateAudit audit(const ChatTemplate& chat_template, const ChatTemplate* expected = nullptr);

}  // namespace tinfer
