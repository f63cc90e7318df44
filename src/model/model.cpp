// SPDX-License-Identifier: MIT
#include "model/model.hpp"

#include <algorithm>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "base/math.hpp"
#include "model/draft_model.hpp"
#include "model/family.hpp"
#include "model/parts.hpp"

namespace tinfer::model {

namespace {

void check_kind(const gguf::File& file) {
    const auto type = file.find_string("general.type");
    if (type && *type != "model")
        fail(ErrorCode::not_a_model, cat(file.name(), ": file is a ", escaped(*type), ", not a model"));
    if (!file.contains("general.architecture"))
        fail(ErrorCode::missing_key, cat(file.name(), ": metadata: missing required key 'general.architecture'"));
}

// Files of version 1 predate the block layouts of today.
void check_quantization_version(const gguf::File& file, const ModelOptions& options) {
    const bool quantized =
        std::ranges::any_of(file.tensors(), [](const TensorInfo& t) { return find_dtype(t.type)->block_elems > 1; });
    if (!quantized) return;
    const auto version = file.find_u32("general.quantization_version");
    if (version && *version < 2)
        fail(ErrorCode::bad_key,
             cat(file.name(), ": metadata: key 'general.quantization_version' = ", *version, " is invalid: must be 2"));
    if (!version && options.log) options.log(LogLevel::warning, "metadata: no general.quantization_version, taking 2");
}

ModelInfo make_info(const BoundModel& m) {
    ModelInfo info;
    const HParams& hp = m.hp;
    info.architecture = hp.arch;
    info.name = m.file->find_string("general.name").value_or("");
    info.n_layer = hp.n_layer;
    info.n_embd = hp.n_embd;
    info.n_head = hp.n_head[0];
    info.n_head_kv = hp.n_head_kv[0];
    info.head_dim_k = hp.head_dim_k;
    info.head_dim_v = hp.head_dim_v;
    info.n_ff = hp.n_ff[0];
    info.n_vocab = hp.n_vocab;
    info.n_ctx_train = hp.n_ctx_train;
    info.n_rot = hp.rope.n_rot;
    info.n_expert = hp.experts.n;
    info.n_expert_used = hp.experts.n_used;
    info.rope_freq_base = hp.rope.freq_base;
    info.rope_freq_scale = hp.rope.freq_scale;
    info.rms_eps = hp.rms_eps;
    info.n_window = hp.windows.window.size;
    info.n_class = m.weights.n_class();
    info.causal = hp.attention.causal;
    info.has_encoder = m.encoder.has_value();
    info.has_output_head = m.weights.output && !hp.ends_early();
    info.pooling = hp.pooling;
    info.layers = {hp.part.first, hp.end_layer() - 1};
    info.n_hidden_in = static_cast<int>(hp.part.n_in);
    info.n_hidden_out = static_cast<int>(hp.part.n_out);
    for (const TensorInfo& t : m.file->tensors()) {
        if (!m.file->is_chosen(t)) continue;
        info.n_params += static_cast<std::uint64_t>(t.ne[0]) * static_cast<std::uint64_t>(t.ne[1]) *
                         static_cast<std::uint64_t>(t.ne[2]) * static_cast<std::uint64_t>(t.ne[3]);
        info.weight_bytes += t.bytes;
    }
    return info;
}

}  // namespace

BoundModel bind_model(std::shared_ptr<gguf::File> file, const ModelOptions& options) {
    BoundModel m;
    m.file = std::move(file);
    check_kind(*m.file);
    check_quantization_version(*m.file, options);
    KeyReader keys(*m.file);
    m.family = &find_architecture(*m.file, keys.arch()).family();
    if (is_draft_file(*m.file))
        fail(ErrorCode::unsupported_arch, cat(m.file->name(), ": architecture '", escaped(keys.arch()),
                                              "' is a draft head and cannot be loaded as a model"));
    m.hp = m.family->read(keys);
    if (m.family->encoder != nullptr) m.encoder.emplace().hp = m.family->encoder->read(keys);
    keys.check_unknown(options);
    WeightBinder binder(*m.file, keys.arch());
    m.weights = m.family->bind(binder, m.hp);
    if (m.encoder) m.encoder->weights = m.family->encoder->bind(binder, m.encoder->hp);
    binder.finish(options);
    choose_part(m, options.layers);
    if (!m.hp.is_whole()) m.file->choose_tensors(tensors_of_part(m));
    m.info = make_info(m);
    m.id_tables.assign(binder.id_tables().begin(), binder.id_tables().end());
    return m;
}

void check_id_tables(const BoundModel& model) {
    for (const WeightBinder::IdTable& table : model.id_tables) {
        if (!model.file->is_chosen(*table.tensor)) continue;
        const auto n = static_cast<std::size_t>(table.tensor->bytes / sizeof(std::int32_t));
        const std::span ids{reinterpret_cast<const std::int32_t*>(table.tensor->address), n};
        for (std::size_t i = 0; i < n; ++i)
            if (ids[i] < 0 || ids[i] >= table.limit)
                fail(ErrorCode::bad_tensor_data,
                     cat(model.file->name(), ": tensor '", escaped(table.tensor->name), "': value ", i, " is ", ids[i],
                         ", must lie in 0 to ", table.limit - 1));
    }
}

}  // namespace tinfer::model
