// SPDX-License-Identifier: MIT
// Shared by the sub-commands. A sub-command is a function that adds itself to the program and returns the action to run
// if it is chosen.
#pragma once

#include <tinfer/tinfer.hpp>

#include <functional>
#include <istream>
#include <span>
#include <string>
#include <string_view>

#include "options.hpp"
#include "output.hpp"
#include "usage.hpp"

namespace tinfer::app {

/// Runs the chosen sub-command and returns the exit code.
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
Action add_convert(CLI::App& app);
Action add_forecast(CLI::App& app);
Action add_doctor(CLI::App& app);
Action add_inspect(CLI::App& app);
Action add_graph(CLI::App& app);
Action add_grammar(CLI::App& app);
Action add_imatrix(CLI::App& app);
Action add_kl(CLI::App& app);
Action add_quantize(CLI::App& app);
Action add_split(CLI::App& app);
Action add_merge(CLI::App& app);
Action add_serve(CLI::App& app);
Action add_trace(CLI::App& app);
Action add_completion(CLI::App& app);
Action add_man(CLI::App& app);

inline constexpr int kInterrupted = 130;  ///< exit code after SIGINT

/// True once the user asked to stop; long work polls it.
[[nodiscard]] bool interrupted() noexcept;
/// With `and_terminate` also SIGTERM.
void watch_interrupts(bool and_terminate = false);
void clear_interrupt() noexcept;  ///< after handling it, to continue

/// Size limits of inputs: of a text, and of a grammar, schema, template or other document. Devices and pipes may be
/// endless.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30, kMaxDocumentBytes = std::size_t{64} << 20;

/// Reads a file or a pipe, `-` for stdin. Throws tinfer::Error: io_error, or limit_exceeded, naming the option of the
/// file.
[[nodiscard]] std::string read_file(const std::string& path, std::string_view option = {},
                                    std::size_t most = kMaxTextBytes);
/// The same for text: a leading U+FEFF is skipped.
[[nodiscard]] std::string read_text(const std::string& path, std::string_view option = {},
                                    std::size_t most = kMaxTextBytes);
inline std::string read_document(const std::string& path, std::string_view option = {}) {
    return read_text(path, option, kMaxDocumentBytes);
}
/// The same for a stream that is open already; a pipe cannot be opened twice.
[[nodiscard]] std::string read_stream(std::istream& in, const std::string& path, std::string_view option,
                                      std::size_t most);
/// Throws limit_exceeded for an input longer than `most` bytes.
[[noreturn]] void refuse_length(const std::string& path, std::string_view option, std::size_t most);
void write_file(const std::string& path, std::string_view bytes);

[[nodiscard]] bool all_finite(std::span<const float> values) noexcept;
/// Throws an error about non-finite values that names the damaged tensor, if the file has one, or else `what`.
[[noreturn]] void refuse_not_finite(const tinfer::Model& model, const std::string& what);

}  // namespace tinfer::app
