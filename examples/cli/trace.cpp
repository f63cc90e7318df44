// SPDX-License-Identifier: MIT
// tinfer trace: what can be done with recorded traces.
#include <fstream>

#include "common.hpp"
#include "view.hpp"

namespace cli {

namespace {

struct ViewArgs {
    std::string in, out;
    std::string detail;
};

int view(const ViewArgs& args) {
    std::ofstream file(args.out, std::ios::binary | std::ios::trunc);
    const auto write = [&](std::string_view text) {
        if (!file.write(text.data(), static_cast<std::streamsize>(text.size())))
            throw tinfer::Error(tinfer::ErrorCode::io_error, args.out + ": cannot write");
    };
    if (args.in.empty()) {
        write_view(nullptr, {}, write);
        return 0;
    }
    const auto name = args.in.substr(args.in.find_last_of('/') + 1);
    const auto bytes = read_file(args.in);
    ViewOptions options;
    options.file_name = name;
    const auto packed = pack_trace(std::as_bytes(std::span(bytes)), options);
    write_view(&packed, name, write);
    if (!file.flush()) throw tinfer::Error(tinfer::ErrorCode::io_error, args.out + ": cannot write");
    return 0;
}

}  // namespace

Action add_trace(CLI::App& app) {
    auto args = std::make_shared<ViewArgs>();
    auto* trace = app.add_subcommand("trace", "Works with recorded traces.");
    auto* command =
        trace->add_subcommand("view", "Writes one page that shows a trace, for any browser, without network.");
    command->add_option("trace", args->in, "a .tntrace file; without one, a page to drop files on")->type_name("FILE");
    command->add_option("-o,--output", args->out, "the page")->type_name("FILE")->required();
    trace->require_subcommand(1);
    return [args] { return view(*args); };
}

}  // namespace cli
