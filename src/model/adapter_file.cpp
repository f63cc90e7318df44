// SPDX-License-Identifier: MIT
#include "model/adapter_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "tinfer/hash.hpp"

namespace tinfer::model {

namespace {

constexpr std::string_view kSuffixA = ".lora_a", kSuffixB = ".lora_b";

std::string extents_text(std::span<const std::int64_t> ne) {
    std::string out = "[";
    for (const std::int64_t n : ne) out += cat(out.size() == 1 ? "" : ", ", n);
    return out + "]";
}

std::string shape_of(const TensorInfo& tensor) {
    return extents_text(std::span(tensor.ne).first(static_cast<std::size_t>(tensor.n_dims)));
}

void check_shape(const gguf::File& file, const TensorInfo& tensor, const std::array<std::int64_t, 4>& expected,
                 int n_dims) {
    if (tensor.ne == expected) return;
    fail(ErrorCode::bad_adapter_tensor,
         cat(file.name(), ": adapter tensor '", escaped(tensor.name), "' has shape ", shape_of(tensor), ", expected ",
             extents_text(std::span(expected).first(static_cast<std::size_t>(n_dims)))));
}

void check_type(const gguf::File& file, const TensorInfo& tensor) {
    const DTypeInfo* const type = find_dtype(tensor.type);
    if (type == nullptr || type->activation == DType::none)
        fail(ErrorCode::unsupported_tensor_type, cat(file.name(), ": adapter tensor '", escaped(tensor.name),
                                                     "' has type ", to_string(tensor.type), ", which has no product"));
}

[[noreturn]] void unexpected(const gguf::File& file, const TensorInfo& tensor, std::string_view why) {
    fail(ErrorCode::bad_adapter_tensor,
         cat(file.name(), ": unexpected adapter tensor '", escaped(tensor.name), "'", why.empty() ? "" : ": ", why));
}

constexpr std::string_view kDirection = "direction.";

bool has_directions(const gguf::File& file) {
    return std::ranges::any_of(file.tensors(), [](const TensorInfo& t) { return t.name.starts_with(kDirection); });
}

void check_lora_keys(const gguf::File& file, const BoundModel& model, LoraAdapter& out) {
    const std::string_view kind = file.find_string("general.type").value_or("");
    if (kind != "adapter")
        fail(ErrorCode::not_adapter, cat(file.name(), ": not an adapter file (general.type = '", escaped(kind), "')",
                                         has_directions(file) ? ": it is a control vector" : ""));
    const std::string_view arch = file.require_string("general.architecture");
    if (arch != model.hp.arch)
        fail(ErrorCode::arch_mismatch,
             cat(file.name(), ": adapter is for architecture '", escaped(arch), "', model is '", model.hp.arch, "'"));
    const std::string_view type = file.find_string("adapter.type").value_or("");
    if (type != "lora")
        fail(ErrorCode::not_adapter, cat(file.name(), ": adapter.type '", escaped(type), "' not supported"));
    if (file.contains("adapter.alora.invocation_tokens"))
        fail(ErrorCode::unsupported_operation,
             cat(file.name(), ": adapters that tokens switch on (adapter.alora.invocation_tokens) are not supported"));
    const double alpha = file.find_number("adapter.lora.alpha").value_or(0.0);
    if (!std::isfinite(alpha) || std::abs(alpha) > static_cast<double>(std::numeric_limits<float>::max()))
        fail(ErrorCode::bad_key, cat(file.name(), ": metadata: key 'adapter.lora.alpha' = ", alpha,
                                     " is invalid: must be a finite 32-bit number"));
    out.alpha = static_cast<float>(alpha);
    out.task_name = file.find_string("adapter.lora.task_name").value_or("");
    out.prompt_prefix = file.find_string("adapter.lora.prompt_prefix").value_or("");
}

void check_pair(const gguf::File& file, const LoraPair& pair) {
    const std::array<std::int64_t, 4>& base = pair.base->ne;
    if (pair.base->n_dims < 2 || base[3] != 1) unexpected(file, *pair.a, "the base tensor is no matrix");
    const std::int64_t rank = pair.b->ne[0];
    if (pair.lookup) {  // row lookup in a
        check_shape(file, *pair.a, {rank, base[1], 1, 1}, 2);
        check_shape(file, *pair.b, {rank, base[0], 1, 1}, 2);
    } else {
        check_shape(file, *pair.a, {base[0], rank, base[2], 1}, pair.base->n_dims);
        check_shape(file, *pair.b, {rank, base[1], base[2], 1}, pair.base->n_dims);
    }
    check_type(file, *pair.a);
    check_type(file, *pair.b);
}

// The other half of a pair, by its name.
const TensorInfo* half(const gguf::File& file, std::string_view base, std::string_view suffix) {
    return file.find_tensor(std::string_view(cat(base, suffix)));
}

void add_pairs(const gguf::File& file, const BoundModel& model, const LogSink& log, LoraAdapter& out) {
    std::size_t n_ignored = 0;
    const TensorInfo* ignored = nullptr;
    for (const TensorInfo& tensor : file.tensors()) {
        const bool is_a = tensor.name.ends_with(kSuffixA), is_b = tensor.name.ends_with(kSuffixB);
        if (!is_a && !is_b) {
            if (!tensor.name.ends_with("_norm.weight")) unexpected(file, tensor, "");
            ignored = ignored == nullptr ? &tensor : ignored;
            ++n_ignored;
            continue;
        }
        const std::string_view base = tensor.name.substr(0, tensor.name.size() - kSuffixA.size());
        const TensorInfo* const other = half(file, base, is_a ? kSuffixB : kSuffixA);
        if (other == nullptr)
            fail(ErrorCode::bad_adapter_tensor,
                 cat(file.name(), ": adapter tensor '", escaped(tensor.name), "' has no counterpart"));
        if (is_b) continue;  // with its a
        LoraPair pair{model.file->find_tensor(base), &tensor, other};
        if (pair.base == nullptr)
            fail(ErrorCode::missing_base_tensor,
                 cat(file.name(), ": base tensor '", escaped(base), "' does not exist in ", model.file->name()));
        pair.lookup = pair.base == model.weights.token_embd;
        check_pair(file, pair);
        out.pairs.push_back(pair);
        out.bytes += pair.a->bytes + pair.b->bytes;
    }
    if (out.pairs.empty()) fail(ErrorCode::not_adapter, cat(file.name(), ": not an adapter file (no pair of tensors)"));
    if (n_ignored > 0 && log)
        log(LogLevel::warning, cat(file.name(), ": adapter tensor '", escaped(ignored->name), "' has no pair: ",
                                   n_ignored, n_ignored == 1 ? " tensor is ignored" : " tensors of norms are ignored"));
    std::ranges::sort(out.pairs, {}, [](const LoraPair& pair) { return pair.base->id; });
}

void hash_tensor(Sha256& hash, std::string_view name, const TensorInfo& tensor) {
    hash.update(cat(name, "\n", to_string(tensor.type), " ", tensor.ne[0], " ", tensor.ne[1], " ", tensor.ne[2], "\n"));
    hash.update({static_cast<const std::byte*>(tensor.address), static_cast<std::size_t>(tensor.bytes)});
}

}  // namespace

LoraAdapter read_lora(std::shared_ptr<gguf::File> file, const BoundModel& model, const LogSink& log) {
    LoraAdapter out;
    out.name = file->name();
    out.base = model.file;
    check_lora_keys(*file, model, out);
    add_pairs(*file, model, log, out);
    file->load_data({.use_mmap = false});  // read: no file that changes later can reach a decode
    Sha256 hash;
    hash.update(std::as_bytes(std::span(&out.alpha, 1)));
    for (const LoraPair& pair : out.pairs) {
        hash_tensor(hash, pair.base->name, *pair.a);
        hash_tensor(hash, pair.base->name, *pair.b);
    }
    out.fingerprint = hash.finish();
    out.file = std::move(file);
    return out;
}

Directions read_directions(std::shared_ptr<gguf::File> file, const BoundModel& model) {
    Directions out;
    out.name = file->name();
    out.base = model.file;
    if (const auto hint = file->find_string("controlvector.model_hint"); hint && *hint != model.hp.arch)
        fail(ErrorCode::arch_mismatch, cat(file->name(), ": control vector is for architecture '", escaped(*hint),
                                           "', model is '", model.hp.arch, "'"));
    if (file->tensors().empty()) fail(ErrorCode::not_adapter, cat(file->name(), ": no direction tensors"));
    std::vector<const TensorInfo*> found(static_cast<std::size_t>(model.hp.n_layer), nullptr);
    for (const TensorInfo& tensor : file->tensors()) {
        if (!tensor.name.starts_with(kDirection)) {
            if (!has_directions(*file)) fail(ErrorCode::not_adapter, cat(file->name(), ": no direction tensors"));
            unexpected(*file, tensor, "");
        }
        const std::string_view digits = tensor.name.substr(kDirection.size());
        int layer = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
        const bool plain = error == std::errc() && end == digits.data() + digits.size() && digits == cat(layer);
        if (!plain || layer < 1 || layer >= model.hp.n_layer)
            fail(ErrorCode::bad_adapter_tensor,
                 cat(file->name(), ": invalid direction index in '", escaped(tensor.name), "': must lie in 1 to ",
                     model.hp.n_layer - 1));
        if (tensor.n_dims != 1 || tensor.type != DType::f32)
            fail(ErrorCode::bad_adapter_tensor,
                 cat(file->name(), ": '", escaped(tensor.name), "' is ", to_string(tensor.type), " ", shape_of(tensor),
                     ", must be a list of f32"));
        if (tensor.ne[0] != model.hp.n_embd)
            fail(ErrorCode::bad_adapter_tensor, cat(file->name(), ": '", escaped(tensor.name), "' has ", tensor.ne[0],
                                                    " values, model needs ", model.hp.n_embd));
        found[static_cast<std::size_t>(layer)] = &tensor;
    }
    file->load_data({.use_mmap = false});
    Sha256 hash;
    out.layers.resize(found.size());
    for (std::size_t il = 0; il < found.size(); ++il) {
        if (found[il] == nullptr) continue;
        const auto bytes = static_cast<std::size_t>(found[il]->bytes);
        out.layers[il].resize(bytes / sizeof(float));
        std::memcpy(out.layers[il].data(), found[il]->address, bytes);
        for (const float x : out.layers[il])
            if (!std::isfinite(x))
                fail(ErrorCode::bad_adapter_tensor,
                     cat(file->name(), ": '", escaped(found[il]->name), "' has a value that is not finite"));
        hash.update(cat(il, "\n"));
        hash.update(std::as_bytes(std::span(out.layers[il])));
        ++out.n_layers;
    }
    out.fingerprint = hash.finish();
    return out;
}

}  // namespace tinfer::model
