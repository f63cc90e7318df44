// SPDX-License-Identifier: MIT
// Export as .npz: columns as arrays that numpy.load opens. The file is a ZIP archive (PKWARE APPNOTE 6.3) of arrays in
// the format of NumPy (NEP 1, version 1.0), stored, not compressed.
#include <array>

#include "export.hpp"

namespace tinfer::app {

namespace {

/// CRC-32 of ZIP: reflected polynomial 0xEDB88320, inverted before and after.
std::uint32_t zip_crc(std::string_view bytes) {
    static constexpr auto kTable = [] {
        std::array<std::uint32_t, 256> table{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t crc = i;
            for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320u : 0u);
            table[i] = crc;
        }
        return table;
    }();
    std::uint32_t crc = ~0u;
    for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
    return ~crc;
}

template <class T>
void put(std::string& out, T value) {
    for (std::size_t i = 0; i < sizeof value; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

/// Writes members sequentially and the directory at the end.
class ZipWriter {
public:
    explicit ZipWriter(Out& out) : out_(out) {}
    void add(const std::string& name, std::string_view bytes) {
        if (offset_ + bytes.size() > 0xFFFFFF00u)
            throw tinfer::Error(tinfer::ErrorCode::limit_exceeded,
                                "export: an archive of more than 4 GiB; choose fewer runs or layers");
        std::string about;  // fields shared by the local header and the directory
        put<std::uint16_t>(about, 20), put<std::uint16_t>(about, 0), put<std::uint16_t>(about, 0);
        put<std::uint16_t>(about, 0), put<std::uint16_t>(about, 0x21);  // 1 January 1980: equal traces, equal archives
        put(about, zip_crc(bytes));
        put(about, static_cast<std::uint32_t>(bytes.size())), put(about, static_cast<std::uint32_t>(bytes.size()));
        put(about, static_cast<std::uint16_t>(name.size())), put<std::uint16_t>(about, 0);
        std::string head;
        put<std::uint32_t>(head, 0x04034B50);
        head += about + name;
        put<std::uint32_t>(directory_, 0x02014B50);
        put<std::uint16_t>(directory_, 20);
        directory_ += about;
        put<std::uint16_t>(directory_, 0), put<std::uint16_t>(directory_, 0), put<std::uint16_t>(directory_, 0);
        put<std::uint32_t>(directory_, 0), put(directory_, static_cast<std::uint32_t>(offset_));
        directory_ += name;
        out_.write(head);
        out_.write(bytes);
        offset_ += head.size() + bytes.size();
        ++n_members_;
    }
    void finish() {
        const auto size = static_cast<std::uint32_t>(directory_.size());
        put<std::uint32_t>(directory_, 0x06054B50);
        put<std::uint32_t>(directory_, 0);
        put(directory_, n_members_), put(directory_, n_members_), put(directory_, size);
        put(directory_, static_cast<std::uint32_t>(offset_));
        put<std::uint16_t>(directory_, 0);
        out_.write(directory_);
    }

private:
    Out& out_;
    std::string directory_;
    std::uint64_t offset_ = 0;
    std::uint16_t n_members_ = 0;
};

/// One column, as the bytes of its array.
struct NpyColumn {
    std::string name, type;  ///< "<u8", "|S12"
    std::string bytes;
    std::size_t n = 0;
    void add(std::uint64_t value) {
        const std::size_t size = type == "<u8" || type == "<i8" ? 8 : type == "<u4" || type == "<i4" ? 4 : 2;
        for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
        ++n;
    }
    /// The array with its header, padded to a multiple of 64 bytes.
    [[nodiscard]] std::string npy() const {
        std::string header =
            "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(n) + ",), }";
        header.append(63 - (10 + header.size()) % 64, ' ') += '\n';
        std::string out("\x93NUMPY\x01\x00", 8);
        put(out, static_cast<std::uint16_t>(header.size()));
        return out + header + bytes;
    }
};

/// Fixed-width texts, padded with zeros.
NpyColumn text_column(const std::string& name, const std::vector<std::string>& texts) {
    std::size_t width = 1;
    for (const auto& text : texts) width = std::max(width, text.size());
    NpyColumn column{name, "|S" + std::to_string(width), {}, texts.size()};
    for (const auto& text : texts) (column.bytes += text).append(width - text.size(), '\0');
    return column;
}

class NpzWriter : public Visitor {
public:
    NpzWriter(const tinfer::TraceReader& reader, const ExportArgs& args) : Visitor(reader, args.selection()) {
        for (const auto* name : {"event", "run", "decode", "begin_ns", "end_ns", "bytes_read", "bytes_written", "macs"})
            events_.push_back({std::string("event_") + name, "<u8", {}, 0});
        events_[0].name = "event";
        for (const auto* name : {"layer", "op", "part", "phase", "kernel", "status"})
            labels_.push_back({std::string("event_") + name, "<i4", {}, 0});
        for (const auto* name : {"event", "offset", "file_offset", "length", "stride", "count", "tag", "weight"})
            accesses_.push_back({std::string("access_") + name, "<u8", {}, 0});
        for (const auto* name : {"tensor", "slot", "mode", "passes"})
            kinds_.push_back({std::string("access_") + name, "<u4", {}, 0});
    }
    void see(const tinfer::KernelEvent& event) override {
        const auto& step = *event.step;
        const std::uint64_t numbers[] = {event.index, event.run->run,   event.run->decode,   event.begin,
                                         event.end,   event.bytes_read, event.bytes_written, event.macs};
        for (std::size_t i = 0; i < events_.size(); ++i) events_[i].add(numbers[i]);
        const std::int64_t labels[] = {step.layer,
                                       number_of(ops_, to_string(step.op)),
                                       number_of(parts_, to_string(step.part)),
                                       number_of(phases_, to_string(event.run->phase)),
                                       number_of(kernels_, step.kernel),
                                       static_cast<std::int64_t>(event.status)};
        for (std::size_t i = 0; i < labels_.size(); ++i) labels_[i].add(static_cast<std::uint64_t>(labels[i]));
        for (const auto& access : event.accesses) {
            if (access.scratch || access.kind == tinfer::AccessKind::elided || !selection.keeps(*access.tensor))
                continue;
            const auto& tensor = *access.tensor;
            const auto number = std::uint64_t(number_of(tensors_, tensor.name));
            for (const auto& range : ranges_of(access)) {
                const std::uint64_t at =
                    tensor.file_offset == tinfer::kNoOffset ? tinfer::kNoOffset : tensor.file_offset + range.offset;
                const std::uint64_t values[] = {event.index,  range.offset, at,        range.length,
                                                range.stride, range.count,  range.tag, range.weight};
                for (std::size_t i = 0; i < accesses_.size(); ++i) accesses_[i].add(values[i]);
                const std::uint64_t kinds[] = {number, access.slot, std::uint64_t(access.mode), access.passes};
                for (std::size_t i = 0; i < kinds_.size(); ++i) kinds_[i].add(kinds[i]);
            }
        }
    }
    void write(Out& out) const {
        ZipWriter zip(out);
        for (const auto* group : {&events_, &labels_, &accesses_, &kinds_})
            for (const auto& column : *group) zip.add(column.name + ".npy", column.npy());
        const std::pair<const char*, const Names*> names[] = {{"op_names", &ops_},
                                                              {"part_names", &parts_},
                                                              {"phase_names", &phases_},
                                                              {"kernel_names", &kernels_},
                                                              {"tensor_names", &tensors_}};
        for (const auto& [name, list] : names)
            zip.add(std::string(name) + ".npy", text_column(name, list->order).npy());
        zip.finish();
    }

private:
    struct Names {
        std::map<std::string, std::int64_t, std::less<>> numbers;
        std::vector<std::string> order;
    };
    static std::int64_t number_of(Names& names, std::string_view text) {
        const auto found = names.numbers.find(text);
        if (found != names.numbers.end()) return found->second;
        names.order.emplace_back(text);
        return names.numbers.emplace(text, std::int64_t(names.order.size()) - 1).first->second;
    }
    std::vector<NpyColumn> events_, labels_, accesses_, kinds_;
    Names ops_, parts_, phases_, kernels_, tensors_;
};

}  // namespace

void export_npz(const tinfer::TraceReader& trace, const ExportArgs& args, Out& out) {
    NpzWriter writer(trace, args);
    writer.visit();
    writer.write(out);
}

}  // namespace tinfer::app
