// SPDX-License-Identifier: MIT
// Model, its tensors as arrays, Vocab, plan().
#include "model.hpp"

#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>

#include <algorithm>

#include "kernels/dequantize/dequantize.hpp"
#include "view.hpp"

namespace tinfer_python {

tinfer::ModelPart layers_of(nb::handle layers) {
    if (layers.is_none()) return {};
    const auto [first, last] = value_of<std::pair<int, int>>(layers, "layers");
    return {first, last};
}

namespace {

/// Of a mapped file: while it is read, parts that were lost read as zeros, and are an error afterwards.
class FileLease : public Lease {
public:
    explicit FileLease(tinfer::Model model) : model_(std::move(model)) {}
    std::shared_ptr<void> enter() override { return std::make_shared<tinfer::ReadGuard>(model_.file()); }
    void leave(void* guard) override { static_cast<const tinfer::ReadGuard*>(guard)->check(); }

private:
    tinfer::Model model_;
};

tinfer::MetadataOverride override_of(nb::handle key, nb::handle value) {
    tinfer::MetadataOverride result{value_of<std::string>(key, "a key of overrides"), false};
    if (nb::isinstance<nb::bool_>(value)) result.value = nb::cast<bool>(value);
    else if (nb::isinstance<nb::int_>(value)) result.value = value_of<std::int64_t>(value, "an override");
    else if (nb::isinstance<nb::float_>(value)) result.value = nb::cast<double>(value);
    else if (nb::isinstance<nb::str>(value)) result.value = value_of<std::string>(value, "an override");
    else throw nb::type_error("an override is bool, int, float or str");
    return result;
}

/// Calls back with fractions; a false result, or an exception, stops the load.
tinfer::ProgressFn progress_of(nb::object progress, Interrupt& interrupt) {
    return [progress, &interrupt](double fraction) {
        if (progress.is_none()) return !interrupt.poll();
        nb::gil_scoped_acquire acquired;
        try {
            const nb::object answer = progress(fraction);
            return answer.is_none() || value_of<bool>(answer, "what progress returns");
        } catch (...) {
            interrupt.keep(std::current_exception());
            return false;
        }
    };
}

tinfer::ModelOptions read_options(bool use_mmap, bool mlock, bool populate, bool check_tensors,
                                  bool allow_unused_tensors, bool allow_unknown_keys, const nb::dict& overrides,
                                  std::string pretokenizer, nb::object log) {
    tinfer::ModelOptions options{.use_mmap = use_mmap,
                                 .mlock = mlock,
                                 .populate = populate,
                                 .check_tensors = check_tensors,
                                 .allow_unused_tensors = allow_unused_tensors,
                                 .allow_unknown_keys = allow_unknown_keys,
                                 .pretokenizer_override = std::move(pretokenizer)};
    for (const auto& [key, value] : overrides) options.overrides.push_back(override_of(key, value));
    options.log = log_sink(std::move(log));
    return options;
}

std::vector<std::filesystem::path> paths_of(nb::handle path) {
    std::vector<std::filesystem::path> paths;
    if (nb::isinstance<nb::list>(path) || nb::isinstance<nb::tuple>(path)) {
        for (const nb::handle item : nb::iter(path)) paths.push_back(path_of(item));
        if (paths.empty()) throw nb::value_error("no path is given");
    } else {
        paths.push_back(path_of(path));
    }
    return paths;
}

tinfer::Model load(nb::handle path, bool use_mmap, bool mlock, bool populate, bool check_tensors,
                   bool allow_unused_tensors, bool allow_unknown_keys, const nb::dict& overrides,
                   std::string pretokenizer, nb::handle layers, std::uint64_t memory_limit, nb::object progress,
                   nb::object log) {
    Interrupt interrupt;
    auto options = read_options(use_mmap, mlock, populate, check_tensors, allow_unused_tensors, allow_unknown_keys,
                                overrides, std::move(pretokenizer), std::move(log));
    options.layers = layers_of(layers);
    options.memory_limit = memory_limit;
    options.progress = progress_of(std::move(progress), interrupt);
    const auto paths = paths_of(path);
    return without_lock(interrupt, [&] {
        return paths.size() == 1 ? tinfer::Model::load(paths.front(), options) : tinfer::Model::load(paths, options);
    });
}

std::optional<nb::dict> paging_of(const tinfer::Model& model) {
    const auto counts = tinfer::paging_counts(model);
    if (!counts) return std::nullopt;
    nb::dict all;
    all["hits"] = counts->hits;
    all["misses"] = counts->misses;
    all["bytes_read"] = counts->bytes_read;
    all["waited_s"] = counts->waited_s;
    all["slot_bytes"] = counts->slot_bytes;
    all["used_bytes"] = counts->used_bytes;
    all["unit_bytes"] = counts->expert_bytes;
    all["ahead_used"] = counts->ahead_used;
    all["ahead_wasted"] = counts->ahead_wasted;
    return all;
}

/// As numpy counts them: the contiguous dimension last.
std::vector<std::size_t> numpy_shape(const tinfer::TensorInfo& tensor) {
    std::vector<std::size_t> shape;
    for (int i = tensor.n_dims; i-- > 0;)
        shape.push_back(static_cast<std::size_t>(tensor.ne[static_cast<std::size_t>(i)]));
    return shape;
}

const tinfer::TensorInfo& find(const tinfer::Model& model, std::string_view name) {
    const auto* tensor = model.file().find(name);
    if (tensor == nullptr) throw nb::key_error(std::string(name).c_str());
    if (tensor->address == nullptr)
        throw tinfer::Error(tinfer::ErrorCode::not_available, "tensor '" + std::string(name) + "' is not in memory");
    return *tensor;
}

View blocks(const tinfer::Model& model, std::string_view name) {
    const auto& tensor = find(model, name);
    auto shape = numpy_shape(tensor);
    nb::dlpack::dtype type = nb::dtype<std::uint8_t>();
    switch (tensor.type) {
        case tinfer::DType::f32: type = nb::dtype<float>(); break;
        case tinfer::DType::f64: type = nb::dtype<double>(); break;
        case tinfer::DType::f16: type = {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1}; break;
        case tinfer::DType::bf16: type = nb::dtype<std::uint16_t>(); break;
        case tinfer::DType::i8: type = nb::dtype<std::int8_t>(); break;
        case tinfer::DType::i16: type = nb::dtype<std::int16_t>(); break;
        case tinfer::DType::i32: type = nb::dtype<std::int32_t>(); break;
        case tinfer::DType::i64: type = nb::dtype<std::int64_t>(); break;
        default: shape.back() = static_cast<std::size_t>(tensor.row_bytes);
    }
    return make_view(std::make_shared<FileLease>(model), tensor.address, shape, type);
}

nb::ndarray<nb::numpy, float> dequantize(const tinfer::Model& model, std::string_view name) {
    const auto& tensor = find(model, name);
    if (!tinfer::kernels::can_dequantize(tensor.type))
        throw tinfer::Error(tinfer::ErrorCode::unsupported_operation,
                            "tensor '" + std::string(name) + "' of type " + name_of(tensor.type) + " holds no floats");
    std::size_t rows = 1;
    for (std::size_t i = 1; i < 4; ++i) rows *= static_cast<std::size_t>(tensor.ne[i]);
    const auto width = static_cast<std::size_t>(tensor.ne[0]);
    auto values = std::make_unique_for_overwrite<float[]>(rows * width);
    {
        nb::gil_scoped_release released;
        const tinfer::ReadGuard guard(model.file());
        const auto* bytes = static_cast<const std::byte*>(tensor.address);
        for (std::size_t row = 0; row < rows; ++row)
            tinfer::kernels::dequantize_row(tensor.type, bytes + row * tensor.row_bytes, tensor.ne[0],
                                            values.get() + row * width);
        guard.check();
    }
    const auto shape = numpy_shape(tensor);
    float* data = values.get();
    nb::capsule owner(values.release(), [](void* kept) noexcept { delete[] static_cast<float*>(kept); });
    return {data, shape.size(), shape.data(), owner};
}

/// A tensor of the file, copied out of the library's table.
struct Tensor {
    std::string name, type, role;
    std::vector<std::size_t> shape;
    int layer;
    std::uint64_t bytes, file_offset;
};

std::vector<Tensor> tensors(const tinfer::Model& model) {
    std::vector<Tensor> list;
    for (const auto& info : model.file().tensors())
        list.push_back({std::string(info.name), name_of(info.type), std::string(info.role), numpy_shape(info),
                        info.layer, info.bytes, info.file_offset});
    return list;
}

void bind_tensor(nb::module_& module) {
    nb::class_<Tensor>(module, "TensorInfo", "A tensor as the file describes it.")
        .def_ro("name", &Tensor::name)
        .def_ro("type", &Tensor::type, "'q4_1', 'f32', …")
        .def_ro("role", &Tensor::role, "'attn_q' for blk.3.attn_q.weight")
        .def_prop_ro(
            "shape", [](const Tensor& tensor) { return nb::tuple(nb::cast(tensor.shape)); },
            nb::sig("def shape(self) -> tuple[int, ...]"), "As numpy counts: rows first, {n_embd} last.")
        .def_ro("layer", &Tensor::layer, "-1 for a tensor of no block")
        .def_ro("nbytes", &Tensor::bytes)
        .def_ro("file_offset", &Tensor::file_offset)
        .def("__repr__",
             [](const Tensor& tensor) { return "<tinfer.TensorInfo " + tensor.name + " " + tensor.type + ">"; });
}

template <auto Member>
auto info(const tinfer::Model& model) {
    return model.info().*Member;
}

void bind_model_class(nb::module_& module) {
    using tinfer::ModelInfo;
    nb::class_<tinfer::Model> model(
        module, "Model",
        "A loaded model: weights in place in the mapped file, hyper-parameters, vocabulary. "
        "Immutable; any number of threads and contexts share one.");
    model
        .def_static(
            "load", &load, "path"_a, nb::kw_only(), "use_mmap"_a = true, "mlock"_a = false, "populate"_a = false,
            "check_tensors"_a = false, "allow_unused_tensors"_a = false, "allow_unknown_keys"_a = false,
            "overrides"_a = nb::dict(), "pretokenizer"_a = "", "layers"_a = nb::none(), "memory_limit"_a = 0,
            "progress"_a = nb::none(), "log"_a = nb::none(),
            nb::sig("def load(path: str | bytes | os.PathLike[str] | typing.Sequence[str | os.PathLike[str]], *, "
                    "use_mmap: bool = True, mlock: bool = False, populate: bool = False, check_tensors: bool = "
                    "False, allow_unused_tensors: bool = False, allow_unknown_keys: bool = False, overrides: "
                    "dict[str, bool | int | float | str] = {}, pretokenizer: str = '', layers: tuple[int, int] | None "
                    "= None, memory_limit: int = 0, progress: typing.Callable[[float], bool | None] | None = None, "
                    "log: typing.Callable[[str, str], "
                    "object] | None = None) -> Model"),
            "Loads a GGUF file, or a list of shards. Milliseconds: nothing is copied. `overrides` replaces values "
            "of the file's metadata. `layers`: these alone, (first, last), both included, the last one -1 for the "
            "model's, as one of several parts that run a model together (Context.decode, Context.hidden). "
            "`memory_limit`: bytes of memory for weights; a larger model is read as it is needed, and gives the same "
            "bits (paging). Raises Error: io_error, and the codes of files and models.")
        .def_prop_ro(
            "paging", &paging_of, nb::sig("def paging(self) -> dict[str, float] | None"),
            "How a model that is larger than its memory limit has fared since it was loaded: units (experts, or "
            "streamed tensors) that steps found in memory or had to wait for, bytes read, seconds waited. None where "
            "everything is in memory.")
        .def_prop_ro("vocab", [](const tinfer::Model& self) { return self.vocab(); })
        .def_prop_ro("tensors", &tensors, "Every tensor of the file, in its order.")
        .def("blocks", &blocks, "name"_a,
             "The bytes of a tensor where the file is mapped, read-only and without a copy: float32, float16 and "
             "integer "
             "tensors as such, bfloat16 as uint16, quantized ones as uint8 with a row of blocks per row. Raises "
             "KeyError, "
             "and io_error when what is read has vanished from the file.")
        .def("dequantize", &dequantize, "name"_a,
             "A tensor as a new float32 array, its rows first. Exact for every type of weights.")
        .def(
            "metadata",
            [](const tinfer::Model& self) {
                nb::dict all;
                for (const auto& entry : self.file().metadata())
                    all[text_of(entry.key)] = text_of(self.file().metadata_value(entry.key).value_or(entry.value));
                return all;
            },
            nb::sig("def metadata(self) -> dict[str, str]"),
            "Keys and values of the file as text; arrays are cut after eight elements.")
        .def_prop_ro(
            "fingerprint", [](const tinfer::Model& self) { return tinfer::to_hex(self.file().fingerprint()); },
            "32 hexadecimal digits that name the file.")
        .def_prop_ro("paths", [](const tinfer::Model& self) {
            std::vector<std::string> paths;
            for (const auto& path : self.file().paths()) paths.push_back(path.string());
            return paths;
        });
    model.def_prop_ro("architecture", &info<&ModelInfo::architecture>)
        .def_prop_ro("name", &info<&ModelInfo::name>)
        .def_prop_ro("n_layer", &info<&ModelInfo::n_layer>)
        .def_prop_ro("n_embd", &info<&ModelInfo::n_embd>)
        .def_prop_ro("n_head", &info<&ModelInfo::n_head>)
        .def_prop_ro("n_head_kv", &info<&ModelInfo::n_head_kv>)
        .def_prop_ro("n_ff", &info<&ModelInfo::n_ff>)
        .def_prop_ro("n_vocab", &info<&ModelInfo::n_vocab>)
        .def_prop_ro("n_ctx_train", &info<&ModelInfo::n_ctx_train>)
        .def_prop_ro("n_expert", &info<&ModelInfo::n_expert>)
        .def_prop_ro("n_class", &info<&ModelInfo::n_class>, "scores of a reranker's classifier")
        .def_prop_ro("n_params", &info<&ModelInfo::n_params>)
        .def_prop_ro("weight_bytes", &info<&ModelInfo::weight_bytes>)
        .def_prop_ro(
            "layers",
            [](const tinfer::Model& self) { return std::pair(self.info().layers.first, self.info().layers.last); },
            "First and last layer that are loaded.")
        .def_prop_ro("n_hidden_in", &info<&ModelInfo::n_hidden_in>,
                     "float32 of a token that a part takes from the layers before it; 0: it begins with the first")
        .def_prop_ro("n_hidden_out", &info<&ModelInfo::n_hidden_out>,
                     "float32 of a token that it leaves for those behind it; 0: it ends with the last")
        .def_prop_ro("causal", &info<&ModelInfo::causal>)
        .def_prop_ro("has_encoder", &info<&ModelInfo::has_encoder>)
        .def_prop_ro("has_output_head", &info<&ModelInfo::has_output_head>, "gives logits")
        .def_prop_ro("pooling", [](const tinfer::Model& self) { return name_of(self.info().pooling); })
        .def("__repr__",
             [](const tinfer::Model& self) { return "<tinfer.Model " + self.file().paths().front().string() + ">"; });
}

nb::object optional_token(std::optional<tinfer::Token> token) {
    return token ? nb::object(nb::int_(static_cast<std::int32_t>(*token))) : nb::object(nb::none());
}

void bind_vocab(nb::module_& module) {
    using tinfer::Token;
    using tinfer::Vocab;
    nb::class_<Vocab> vocab(module, "Vocab", "Text to tokens and back. Immutable, for any thread.");
    vocab
        .def_static(
            "load", [](nb::handle path) { return Vocab::load(path_of(path)); }, "path"_a,
            nb::sig("def load(path: str | bytes | os.PathLike[str]) -> Vocab"),
            "Only the text part of a file; its weights are not touched.")
        .def(
            "encode",
            [](const Vocab& self, nb::handle text, bool add_special, bool parse_special) {
                const auto bytes = text_bytes(text);
                std::vector<Token> tokens;
                {
                    nb::gil_scoped_release released;
                    tokens = self.encode(bytes, {.add_special = add_special, .parse_special = parse_special});
                }
                return list_of(tokens);
            },
            "text"_a, nb::kw_only(), "add_special"_a = true, "parse_special"_a = false,
            nb::sig("def encode(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False) -> "
                    "list[int]"),
            "The tokens of a text. `add_special`: with BOS and EOS as the vocabulary says. `parse_special`: text of "
            "control tokens becomes their ids; keep it off for text from outside. Raises Error (no_tokenizer).")
        .def(
            "decode",
            [](const Vocab& self, nb::handle tokens, bool skip_special) {
                return text_of(self.decode(tokens_of(tokens), {.render_special = !skip_special}));
            },
            "tokens"_a, nb::kw_only(), "skip_special"_a = true,
            nb::sig("def decode(self, tokens: typing.Iterable[int], *, skip_special: bool = True) -> str"),
            "The text of tokens; U+FFFD where they end inside a character. Raises Error (index_out_of_range).")
        .def(
            "decode_bytes",
            [](const Vocab& self, nb::handle tokens, bool skip_special) {
                const auto text = self.decode(tokens_of(tokens), {.render_special = !skip_special});
                return nb::bytes(text.data(), text.size());
            },
            "tokens"_a, nb::kw_only(), "skip_special"_a = true,
            nb::sig("def decode_bytes(self, tokens: typing.Iterable[int], *, skip_special: bool = True) -> bytes"),
            "The same as bytes.")
        .def(
            "piece",
            [](const Vocab& self, std::int32_t token, bool special) {
                const auto piece = self.piece(Token{token}, special);
                return nb::bytes(piece.data(), piece.size());
            },
            "token"_a, nb::kw_only(), "special"_a = false,
            "The bytes of one token, maybe a part of a character; control tokens are empty unless `special`.")
        .def(
            "text", [](const Vocab& self, std::int32_t token) { return text_of(self.text(Token{token})); }, "token"_a,
            nb::sig("def text(self, token: int) -> str"), "As stored in the file.")
        .def(
            "score", [](const Vocab& self, std::int32_t token) { return self.score(Token{token}); }, "token"_a,
            "As stored in the file; 0 where it holds none.")
        .def(
            "find", [](const Vocab& self, std::string_view text) { return optional_token(self.find(text)); }, "text"_a,
            nb::sig("def find(self, text: str) -> int | None"), "The token stored as this text.")
        .def(
            "is_eog", [](const Vocab& self, std::int32_t token) { return self.is_eog(Token{token}); }, "token"_a,
            "Whether the token ends a generation.")
        .def(
            "is_control", [](const Vocab& self, std::int32_t token) { return self.is_control(Token{token}); },
            "token"_a, "Whether it stands for no text: <s>, <|im_end|>, …")
        .def(
            "special",
            [](const Vocab& self, std::string_view which) {
                return optional_token(self.special(enum_of(which, tinfer::Special::fim_sep, "the token")));
            },
            "which"_a, nb::sig("def special(self, which: str) -> int | None"),
            "'bos', 'eos', 'eot', 'sep', 'pad', 'fim_pre', …; None where the vocabulary has none.")
        .def_prop_ro(
            "bos", [](const Vocab& self) { return optional_token(self.bos()); }, nb::sig("def bos(self) -> int | None"))
        .def_prop_ro(
            "eos", [](const Vocab& self) { return optional_token(self.eos()); }, nb::sig("def eos(self) -> int | None"))
        .def_prop_ro(
            "eot", [](const Vocab& self) { return optional_token(self.eot()); }, nb::sig("def eot(self) -> int | None"))
        .def_prop_ro(
            "eog_tokens", [](const Vocab& self) { return list_of(self.eog_tokens()); },
            nb::sig("def eog_tokens(self) -> list[int]"))
        .def_prop_ro("add_bos", &Vocab::add_bos)
        .def_prop_ro("add_eos", &Vocab::add_eos)
        .def_prop_ro("algorithm", [](const Vocab& self) { return std::string(self.algorithm()); })
        .def("__len__", &Vocab::size)
        .def("__repr__",
             [](const Vocab& self) { return "<tinfer.Vocab of " + std::to_string(self.size()) + " tokens>"; });
}

}  // namespace

nb::dict dict_of(const tinfer::MemoryPlan& plan) {
    nb::dict all;
    all["weights_mapped"] = plan.weights_mapped;
    all["weights_copied"] = plan.weights_copied;
    all["weights_paged"] = plan.weights_paged;
    all["cache"] = plan.cache;
    all["recurrent"] = plan.recurrent;
    all["compute"] = plan.compute;
    all["outputs"] = plan.outputs;
    all["adapters"] = plan.adapters;
    all["fixed"] = plan.fixed;
    all["context_total"] = plan.context_total();
    all["total"] = plan.total();
    return all;
}

void bind_model(nb::module_& module) {
    bind_view(module);
    bind_tensor(module);
    bind_vocab(module);
    bind_model_class(module);
    nb::class_<tinfer::Adapter>(module, "Adapter",
                                "A LoRA adapter of one model. Context.attach_adapter() switches it on.")
        .def_static(
            "load",
            [](const tinfer::Model& model, nb::handle path) {
                const auto file = path_of(path);
                nb::gil_scoped_release released;
                return tinfer::Adapter::load(model, file);
            },
            "model"_a, "path"_a, nb::sig("def load(model: Model, path: str | bytes | os.PathLike[str]) -> Adapter"),
            "Raises Error: not_adapter, arch_mismatch, bad_adapter_tensor, …")
        .def_prop_ro("name", [](const tinfer::Adapter& self) { return self.name(); })
        .def_prop_ro("alpha", &tinfer::Adapter::alpha)
        .def_prop_ro("n_pairs", &tinfer::Adapter::n_pairs, "weights that it changes")
        .def_prop_ro("nbytes", &tinfer::Adapter::bytes)
        .def_prop_ro("fingerprint", [](const tinfer::Adapter& self) { return tinfer::to_hex(self.fingerprint()); });
}

}  // namespace tinfer_python
