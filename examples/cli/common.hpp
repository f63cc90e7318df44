// SPDX-License-Identifier: MIT
// What the sub-commands share. A sub-command is a function that adds itself to the program and returns what to do when
// it is chosen.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "options.hpp"
#include "output.hpp"
#include "usage.hpp"

namespace cli {

/// Runs the chosen sub-command and gives the exit code.
using Action = std::function<int()>;

Action add_run(CLI::App& app);
Action add_chat(CLI::App& app);
Action add_tokenize(CLI::App& app);
Action add_template(CLI::App& app);
Action add_detokenize(CLI::App& app);
Action add_logits(CLI::App& app);
Action add_embed(CLI::App& app);
Action add_perplexity(CLI::App& app);
Action add_bench(CLI::App& app);
Action add_forecast(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_grammar(CLI::App& app);
Action add_serve(CLI::App& app);
Action add_trace(CLI::App& app);
Action add_completion(CLI::App& app);
Action add_man(CLI::App& app);

inline constexpr int kInterrupted = 130;  ///< exit code after SIGINT

/// True once the user asked to stop; long work polls it.
[[nodiscard]] bool interrupted() noexcept;
/// With `and_terminate` SIGTERM asks the same.
void watch_interrupts(bool and_terminate = false);
void clear_interrupt() noexcept;  ///< what it stopped is stopped; the program goes on

/// What is read of one input at most: of a text, and of a grammar, a schema, a template or another document. Devices
/// and pipes may have no end.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30, kMaxDocumentBytes = std::size_t{64} << 20;

/// Bytes of a file or a pipe, `-` for stdin. Throws tinfer::Error: io_error; limit_exceeded, naming the option that the
/// file was given with.
[[nodiscard]] std::string read_file(const std::string& path, std::string_view option = {},
                                    std::size_t most = kMaxTextBytes);
/// The same as text: one U+FEFF in front is left out.
[[nodiscard]] std::string read_text(const std::string& path, std::string_view option = {},
                                    std::size_t most = kMaxTextBytes);
inline std::string read_document(const std::string& path, std::string_view option = {}) {
    return read_text(path, option, kMaxDocumentBytes);
}
/// limit_exceeded for an input that is longer than `most` bytes.
[[noreturn]] void refuse_length(const std::string& path, std::string_view option, std::size_t most);
void write_file(const std::string& path, std::string_view bytes);

[[nodiscard]] bool all_finite(std::span<const float> values) noexcept;
/// For values that are not finite: an error that names the damaged tensor, where the file has one, or else `what`.
[[noreturn]] void refuse_not_finite(const tinfer::Model& model, const std::string& what);

}  // namespace cli
