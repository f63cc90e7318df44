// SPDX-License-Identifier: MIT
// Exports of one record per access: CSV and flat records of 128 bytes.
#include <cstring>

#include "export.hpp"

namespace tinfer::app {

namespace {

std::string mode_word(tinfer::AccessMode mode) {
    return mode == tinfer::AccessMode::read ? "read" : mode == tinfer::AccessMode::write ? "write" : "read_write";
}

class CsvWriter : public Visitor {
public:
    CsvWriter(const tinfer::TraceReader& of, const ExportArgs& args, Out& out)
        : Visitor(of, args.selection()), by_event_(args.events), out_(out) {
        out.write(by_event_
                      ? "event,run,decode,token_first,token_count,phase,t_begin_ns,t_end_ns,layer,part,op,kernel,"
                        "status,bytes_read,bytes_written,macs\n"
                      : "event,run,decode,token_first,token_count,phase,t_begin_ns,t_end_ns,layer,part,op,kernel,slot,"
                        "mode,tensor,tensor_id,type,file,offset,file_offset,length,stride,count,tag,weight,passes\n");
    }
    void begin(const tinfer::RunInfo& run) override {
        first_token_ = run.tokens.empty() ? 0 : static_cast<std::int64_t>(run.tokens[0].pos);
    }
    void see(const tinfer::KernelEvent& event) override {
        const auto& step = *event.step;
        std::string row;
        const auto add = [&](const auto& value) {
            if (!row.empty()) row += ',';
            if constexpr (std::is_integral_v<std::decay_t<decltype(value)>>) row += std::to_string(value);
            else row += csv_field(value);
        };
        add(event.index), add(event.run->run), add(event.run->decode), add(first_token_), add(event.run->tokens.size());
        add(to_string(event.run->phase)), add(event.begin), add(event.end),
            add(step.layer == tinfer::kNoLayer ? 65535 : step.layer);
        add(to_string(step.part)), add(to_string(step.op)), add(step.kernel);
        if (by_event_) {
            add(to_string(event.status)), add(event.bytes_read), add(event.bytes_written), add(event.macs);
            return out_.write(row + "\n");
        }
        const std::string start = row;
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided || !selection.keeps(*access.tensor))
                continue;
            const auto& tensor = *access.tensor;
            for (const auto& range : ranges_of(access)) {
                row = start;
                add(access.slot), add(mode_word(access.mode)), add(tensor.name), add(tensor.id);
                add(trace.session_value("type." + std::to_string(std::uint32_t(tensor.type))));
                add(tensor.file_index < 0 ? std::string() : std::to_string(tensor.file_index));
                add(range.offset);
                add(tensor.file_offset == tinfer::kNoOffset ? std::string()
                                                            : std::to_string(tensor.file_offset + range.offset));
                add(range.length), add(range.stride), add(range.count), add(range.tag), add(range.weight),
                    add(access.passes);
                out_.write(row + "\n");
            }
        }
    }

private:
    bool by_event_;
    Out& out_;
    std::int64_t first_token_ = 0;
};

struct Flat {
    std::uint64_t time, file_offset, bytes, offset;
    std::uint32_t token, event, tensor;
    std::uint16_t layer, thread;
    std::uint8_t op, mode, phase, slot;
    std::uint32_t duration, tag, flags;
    char name[64];
};
static_assert(sizeof(Flat) == 128 && offsetof(Flat, token) == 32 && offsetof(Flat, layer) == 44 &&
              offsetof(Flat, op) == 48 && offsetof(Flat, duration) == 52 && offsetof(Flat, name) == 64);

class FlatWriter : public Visitor {
public:
    FlatWriter(const tinfer::TraceReader& of, const ExportArgs& args, Out& out)
        : Visitor(of, args.selection()), out_(out) {}
    void see(const tinfer::KernelEvent& event) override {
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided || !selection.keeps(*access.tensor))
                continue;
            for (const auto& range : ranges_of(access))
                for (std::uint32_t i = 0; i < range.count; ++i)
                    add(event, access, range, range.offset + i * range.stride);
        }
    }

private:
    void add(const tinfer::KernelEvent& event, const tinfer::Access& access, const tinfer::AccessRange& range,
             std::uint64_t offset) {
        const auto& tensor = *access.tensor;
        Flat flat{};
        flat.time = event.begin;
        flat.file_offset = tensor.file_offset == tinfer::kNoOffset ? tinfer::kNoOffset : tensor.file_offset + offset;
        flat.bytes = range.length;
        flat.offset = offset;
        flat.token = static_cast<std::uint32_t>(event.run->decode);
        flat.event = static_cast<std::uint32_t>(event.index);
        flat.tensor = tensor.id;
        flat.layer = event.step->layer < 0 ? 65535 : static_cast<std::uint16_t>(event.step->layer);
        flat.thread = 65535;
        flat.op = static_cast<std::uint8_t>(event.step->op);
        flat.mode = static_cast<std::uint8_t>(access.mode);
        flat.phase = static_cast<std::uint8_t>(event.run->phase);
        flat.slot = static_cast<std::uint8_t>(access.slot);
        flat.duration = static_cast<std::uint32_t>(std::min<std::uint64_t>(event.end - event.begin, 0xFFFFFFFF));
        flat.tag = range.tag;
        flat.flags = tensor.name.size() > sizeof flat.name ? 1 : 0;
        std::memcpy(flat.name, tensor.name.data(), std::min(tensor.name.size(), sizeof flat.name));
        out_.write({reinterpret_cast<const char*>(&flat), sizeof flat});
    }
    Out& out_;
};

}  // namespace

void export_csv(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    CsvWriter(trace, args, out).visit();
}
void export_flat128(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    FlatWriter(trace, args, out).visit();
}

}  // namespace tinfer::app
