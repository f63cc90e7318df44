// SPDX-License-Identifier: MIT
// Exports of traces to other formats.
#pragma once

#include "../output_file.hpp"
#include "trace.hpp"

namespace tinfer::app {

struct ExportArgs : TraceArgs {
    std::string format, output, page = "4096", dot_dir, unit = "slice";
    bool events = false, force = false, full = false, no_weights = false, steps = false;
};

/// Buffered output to a file or stdout.
class Out {
public:
    explicit Out(const std::string& path);  ///< empty: stdout
    void write(std::string_view bytes);
    void finish();  ///< throws if the rest cannot be written

private:
    void flush();
    std::string pending_;
    std::optional<OutputFile> file_;
};

void export_csv(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_flat128(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_chrome(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_perfetto(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_dot(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_io(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_fio(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_cachesim(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_npz(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_matrix(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_experts(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);
void export_routes(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out);

}  // namespace tinfer::app
