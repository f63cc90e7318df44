// SPDX-License-Identifier: MIT
// Exports of reads: file requests, a fio log, object traces for cache simulators, experts.
#include "export.hpp"
#include "file_reads.hpp"
#include "ranges.hpp"
#include "routes.hpp"

namespace tinfer::app {

namespace {

std::string name_of_file(const tinfer::TraceReader& trace, int file) {
    const auto files = trace.files();
    return file >= 0 && std::size_t(file) < files.size() ? std::string(trace.text(files[std::size_t(file)].name))
                                                         : "file" + std::to_string(file);
}

class Objects : public Visitor {
public:
    Objects(const tinfer::TraceReader& of, const ExportArgs& args, Out& out)
        : Visitor(of, args.selection()), page_(args.unit == "page" ? parse_size(args.page, "--page") : 0), out_(out) {
        out.write("time,object,size\n");
    }
    void see(const tinfer::KernelEvent& event) override {
        for (const auto& access : event.accesses) {
            if (!is_weight(access) || !selection.keeps(*access.tensor)) continue;
            for (const auto& range : ranges_of(access))
                for (std::uint32_t i = 0; i < range.count; ++i)
                    add(event.begin, *access.tensor, range.offset + i * range.stride, range.length);
        }
    }

private:
    void add(std::uint64_t time, const tinfer::TensorInfo& tensor, std::uint64_t offset, std::uint64_t length) {
        const std::string start = std::to_string(time) + ",";
        if (page_ == 0)
            return out_.write(start + csv_field(std::string(tensor.name) + "@" + std::to_string(offset)) + "," +
                              std::to_string(length) + "\n");
        if (length == 0) return;
        check_touches(length / page_);
        for (std::uint64_t page = (tensor.file_offset + offset) / page_;
             page <= (tensor.file_offset + offset + length - 1) / page_; ++page)
            out_.write(start + "page" + std::to_string(page) + "," + std::to_string(page_) + "\n");
    }
    std::uint64_t page_;
    Out& out_;
};

}  // namespace

void export_io(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    out.write("time_ns,file,offset,length\n");
    for (const auto& read : file_reads(trace, args.selection()))
        out.write(std::to_string(read.time) + "," + csv_field(name_of_file(trace, read.file)) + "," +
                  std::to_string(read.offset) + "," + std::to_string(read.length) + "\n");
}

void export_fio(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    const auto reads = file_reads(trace, args.selection());
    std::set<int> files;
    for (const auto& read : reads) files.insert(read.file);
    out.write("fio version 2 iolog\n");
    for (const int file : files)
        out.write(name_of_file(trace, file) + " add\n" + name_of_file(trace, file) + " open\n");
    for (const auto& read : reads)
        out.write(name_of_file(trace, read.file) + " read " + std::to_string(read.offset) + " " +
                  std::to_string(read.length) + "\n");
    for (const int file : files) out.write(name_of_file(trace, file) + " close\n");
}

void export_cachesim(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    Objects(trace, args, out).visit();
}

void export_matrix(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    std::map<std::tuple<std::uint32_t, int, std::uint32_t>, std::uint64_t> counts;
    for (const auto& route : read_routes(trace, args.selection()).list)
        for (const auto e : route.experts) ++counts[{route.sequence, route.layer, e}];
    out.write("sequence,layer,expert,tokens\n");
    for (const auto& [place, n] : counts)
        out.write(std::to_string(std::get<0>(place)) + "," + std::to_string(std::get<1>(place)) + "," +
                  std::to_string(std::get<2>(place)) + "," + std::to_string(n) + "\n");
}

void export_experts(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    out.write("layer,expert\n");
    for (const auto& route : read_routes(trace, args.selection()).list)
        for (const auto e : route.experts) out.write(std::to_string(route.layer) + "," + std::to_string(e) + "\n");
}

// resident: whether an earlier token of the trace had read the expert.
void export_routes(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    const Routes routes = read_routes(trace, args.selection());
    std::set<std::pair<int, std::uint32_t>> seen;
    out.write("token,layer,slot,expert,weight,bytes,resident\n");
    for (const auto& route : routes.list)
        for (std::size_t k = 0; k < route.experts.size(); ++k) {
            const bool resident = !seen.emplace(route.layer, route.experts[k]).second;
            out.write(std::to_string(route.token) + "," + std::to_string(route.layer) + "," + std::to_string(k) + "," +
                      std::to_string(route.experts[k]) + "," +
                      (k < route.weights.size() ? plain_number(double(route.weights[k])) : "") + "," +
                      std::to_string(routes.expert_bytes.at(route.layer)) + "," + (resident ? "1" : "0") + "\n");
        }
}

}  // namespace tinfer::app
