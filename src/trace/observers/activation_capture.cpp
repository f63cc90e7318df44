// SPDX-License-Identifier: MIT
// ActivationCapture: values as they are written, into a file of records.
#include <algorithm>
#include <fstream>

#include "base/byte_io.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/mapped_file.hpp"
#include "tinfer/observers.hpp"
#include "trace/filter.hpp"
#include "trace/observers/value_rows.hpp"

namespace tinfer {

namespace {

constexpr std::string_view kCaptureMagic = "TNVALUE1";
constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;
constexpr std::uint64_t kMaxCaptureBytes = std::uint64_t{1} << 40;  // all of it is in memory

}  // namespace

struct ActivationCapture::Impl {
    std::string name;
    CaptureOptions options;
    std::ofstream out;
    std::uint64_t bytes = kCaptureMagic.size(), captured = 0, dropped = 0, elided = 0;
    std::string error;
    std::vector<std::byte> record;
    std::vector<float> row;

    [[nodiscard]] bool wants(std::string_view value) const {
        return options.names.empty() || std::ranges::any_of(options.names, [&](const std::string& glob) {
                   return trace::glob_matches(glob, value);
               });
    }
    [[nodiscard]] bool encode(const KernelEvent& event, const TensorInfo& tensor, std::span<const std::byte> data);
    void write();
};

bool ActivationCapture::Impl::encode(const KernelEvent& event, const TensorInfo& tensor,
                                     std::span<const std::byte> data) {
    const trace::ValueRows rows(data, tensor.type, tensor.ne[0]);
    record.clear();
    ByteWriter to(record, name);
    to.number(event.run->run);
    to.number(event.step->number);
    to.number(static_cast<std::int32_t>(event.step->layer));
    for (const std::int64_t n : tensor.ne) to.number(n);
    to.number(static_cast<std::uint32_t>(tensor.name.size()));
    to.number<std::uint32_t>(0);
    to.text(tensor.name);
    to.align(8);
    row.resize(static_cast<std::size_t>(tensor.ne[0]));
    const std::int64_t n_rows = tensor.ne[1] * tensor.ne[2] * tensor.ne[3];
    for (std::int64_t i = 0; i < n_rows; ++i) {
        if (!rows.read(i, row)) return false;
        to.numbers(std::span<const float>(row));
    }
    to.align(8);
    return true;
}

void ActivationCapture::Impl::write() {
    if (!error.empty() || (options.max_bytes > 0 && bytes + record.size() > options.max_bytes)) {
        ++dropped;
        return;
    }
    out.write(reinterpret_cast<const char*>(record.data()), static_cast<std::streamsize>(record.size()));
    if (!out) {
        error = cat(name, ": cannot be written beyond byte ", bytes);
        ++dropped;
        return;
    }
    bytes += record.size();
    ++captured;
}

ActivationCapture::ActivationCapture(const std::filesystem::path& path, CaptureOptions options)
    : impl_(std::make_unique<Impl>()) {
    impl_->name = path.string();
    impl_->options = std::move(options);
    std::error_code ignored;
    if (!impl_->options.overwrite && std::filesystem::exists(path, ignored))
        fail(ErrorCode::io_error, cat(impl_->name, ": is there already"));
    impl_->out.open(path, std::ios::binary | std::ios::trunc);
    impl_->out.write(kCaptureMagic.data(), static_cast<std::streamsize>(kCaptureMagic.size()));
    if (!impl_->out) fail(ErrorCode::io_error, cat(impl_->name, ": cannot be written"));
}
ActivationCapture::~ActivationCapture() = default;

void ActivationCapture::close() {
    if (!impl_->out.is_open()) return;
    impl_->out.close();
    if (impl_->error.empty() && !impl_->out) impl_->error = cat(impl_->name, ": cannot be closed");
    if (!impl_->error.empty()) fail(ErrorCode::io_error, impl_->error);
}
std::uint64_t ActivationCapture::captured() const noexcept { return impl_->captured; }
std::uint64_t ActivationCapture::dropped() const noexcept { return impl_->dropped; }
std::uint64_t ActivationCapture::elided() const noexcept { return impl_->elided; }

TraceRequest ActivationCapture::request() const {
    return {.level = TraceLevel::counts, .delivery = Delivery::immediate, .filter = {.tensors = impl_->options.names}};
}

void ActivationCapture::on_step_end(const KernelEvent& event, const StepValues& values) {
    if (event.status != EventStatus::ok) return;
    for (const Access& access : event.accesses) {
        const TensorInfo& tensor = *access.tensor;
        if (access.scratch || access.mode == AccessMode::read || !trace::holds_numbers(tensor.type) ||
            (tensor.tensor_class != TensorClass::value && tensor.tensor_class != TensorClass::output) ||
            !impl_->wants(tensor.name))
            continue;
        if (access.kind == AccessKind::elided) {
            ++impl_->elided;
            continue;
        }
        const auto value = values.value(access.slot);
        if (value.tensor != access.tensor || !impl_->encode(event, tensor, value.data)) ++impl_->dropped;
        else impl_->write();
    }
}

std::vector<CapturedValue> ActivationCapture::read(const std::filesystem::path& path) {
    const std::string name = path.string();
    const auto bytes = read_whole_file(path, kMaxCaptureBytes);
    ByteReader from(bytes, name, ErrorCode::damaged);
    if (from.text(kCaptureMagic.size()) != kCaptureMagic) from.refuse(0, "no file of captured values");
    std::vector<CapturedValue> out;
    while (!from.at_end()) {
        const std::uint64_t begin = from.position();
        CapturedValue value;
        value.run = from.number<std::uint64_t>();
        value.step = from.number<std::uint32_t>();
        value.layer = from.number<std::int32_t>();
        std::uint64_t n = 1;
        for (std::int64_t& size : value.ne) {
            size = from.number<std::int64_t>();
            if (size < 1 || static_cast<std::uint64_t>(size) > kMaxElements / n) from.refuse(begin, "shape");
            n *= static_cast<std::uint64_t>(size);
        }
        const auto length = from.number<std::uint32_t>();
        if (from.number<std::uint32_t>() != 0) from.refuse(begin, "reserved number is not 0");
        value.name = from.text(length);
        from.align(8);
        if (n > from.remaining() / sizeof(float)) from.refuse(begin, "values reach beyond the end");
        value.data.resize(n);
        from.numbers(std::span(value.data));
        from.align(8);
        out.push_back(std::move(value));
    }
    return out;
}

}  // namespace tinfer
