// SPDX-License-Identifier: MIT
// Fixed texts of `tinfer chat`: what /help says, and the template of --input-prefix.
#pragma once

#include <array>
#include <string_view>

namespace tinfer::app {

inline constexpr std::string_view kHelp =
    R"(Type and press Enter. A line that ends with \ goes on; """ begins and ends a text of several lines.
What is pasted is one text, whatever its line breaks. Tab completes commands and files.
Ctrl-C stops an answer or takes a line back, Ctrl-D leaves, and so does Ctrl-C twice where nothing is typed.
A text that begins with / needs a space in front.
  /help             this text
  /regenerate       the last answer anew
  /undo             takes the last answer and its question back
  /edit             the same, and the question stands in the line again
  /drop             takes the older half of the turns out, where the context is full
  /set NAME VALUE   another setting of the sampler, as in /set temp 0.7; alone: all that can be set
  /reset            forgets the conversation
  /system TEXT      another system message; without text: none
  /save FILE        writes the conversation: Markdown, or JSON where the name ends in .json; asks before it overwrites
  /load FILE        goes on with a conversation that was saved as JSON, and shows it
  /stats            speed and use of the context
  /example          two turns in the format of the model
  /exit             leaves
Where the model calls a tool (--tools), you type what the tool gives; an empty line gives nothing.)";

inline constexpr std::array<std::string_view, 14> kCommands{"/help",  "/reset",   "/system",     "/save", "/load",
                                                            "/stats", "/example", "/regenerate", "/undo", "/edit",
                                                            "/set",   "/drop",    "/quit",       "/exit"};

inline constexpr std::string_view kWhenFull =
                                      "/drop takes the older turns out, /reset begins anew; started with "
                                      "--context-shift it drops by itself, with a larger --ctx there is more room",
                                  kWhenFullHere = "see --ctx, or --context-shift, which drops the oldest";

/// User texts between prefix and suffix, nothing else added: for models that are not chat models.
inline constexpr std::string_view kRawTurns =
    "{% for m in messages %}{% if m.role == 'user' %}{{ input_prefix }}{{ m.content }}{{ input_suffix }}{% else %}"
    "{{ m.content }}{% endif %}{% endfor %}";

}  // namespace tinfer::app
