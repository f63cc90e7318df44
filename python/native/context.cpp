// SPDX-License-Identifier: MIT
// Context: decode, outputs as views, sequences, states, observers, adapters.
#include "context.hpp"

#include <nanobind/stl/pair.h>

#include "model.hpp"

namespace tinfer_python {

using tinfer::SeqId;

ContextState::Use::Use(ContextState& used) : state(used) {
    std::thread::id nobody{};
    if (!state.user.compare_exchange_strong(nobody, std::this_thread::get_id()))
        throw tinfer::Error(tinfer::ErrorCode::busy,
                            nobody == std::this_thread::get_id()
                                ? "the context is computing: a callback cannot change it"
                                : "the context is computing in another thread: one thread at a time");
    if (!state.context) {
        state.user = std::thread::id{};
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the context is closed");
    }
}

tinfer::Context& ContextState::get() {
    const auto inside = user.load();
    if (inside != std::thread::id{} && inside != std::this_thread::get_id())
        throw tinfer::Error(tinfer::ErrorCode::busy, "the context is computing in another thread");
    if (!context) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the context is closed");
    return *context;
}

void ContextState::close() {
    if (!context) return;
    Use use(*this);
    ++epoch;
    // Detaching calls the observers back; their Python objects go last.
    const auto observers = std::move(attached);
    attached.clear();
    for (const auto& one : observers) one->attachment = tinfer::Attachment();
    auto gone = std::move(context);
    context.reset();
}

void check_status(tinfer::DecodeStatus status, const tinfer::Context& context, std::size_t n_tokens) {
    if (status == tinfer::DecodeStatus::ok) return;
    if (status == tinfer::DecodeStatus::cancelled)
        throw tinfer::Error(tinfer::ErrorCode::cancelled, "the decode was cancelled; the context is as before");
    throw tinfer::Error(tinfer::ErrorCode::no_room, std::to_string(n_tokens) + " tokens do not fit: n_ctx " +
                                                        std::to_string(context.options().n_ctx) + ", used " +
                                                        std::to_string(context.used()) + ", n_batch " +
                                                        std::to_string(context.options().n_batch));
}

namespace {

/// Outputs of one decode: valid until the next.
class OutputLease : public Lease {
public:
    OutputLease(std::shared_ptr<ContextState> state, std::string what)
        : state_(std::move(state)), what_(std::move(what)), epoch_(state_->epoch) {}
    std::shared_ptr<void> enter() override {
        if (epoch_ != state_->epoch || !state_->context)
            throw tinfer::Error(tinfer::ErrorCode::no_output,
                                what_ + " are those of an earlier decode, and gone: keep them with .copy()");
        return {};
    }

private:
    std::shared_ptr<ContextState> state_;
    std::string what_;
    std::uint64_t epoch_;
};

View view_of(const PyContext& self, const char* what, std::span<const float> values, std::size_t width = 0) {
    std::vector<std::size_t> shape{values.size()};
    if (width != 0) shape = {values.size() / width, width};
    return make_view(std::make_shared<OutputLease>(self.state, what), values.data(), shape, nb::dtype<float>());
}

View result(const PyContext& self, const std::string& name) {
    const auto values = std::as_const(self.get()).result(name);
    return view_of(self, "values", values);
}

// ---- Context --------------------------------------------------------------------------------------------------------

void construct(PyContext* self, const tinfer::Model& model, nb::object cancel, const nb::kwargs& keywords) {
    if (!cancel.is_none() && PyCallable_Check(cancel.ptr()) == 0) throw nb::type_error("cancel is a callable");
    auto options = context_options(keywords);
    auto state = std::make_shared<ContextState>();
    state->interrupt->cancel = std::move(cancel);
    options.cancel = [interrupt = state->interrupt.get()] { return interrupt->poll(); };
    {
        nb::gil_scoped_release released;
        state->context.emplace(model, std::move(options));
    }
    new (self) PyContext{std::move(state)};
}

/// What the layers before a part have left, {n_tokens, n} or flat, of a View or any array of float32; None: nothing. A
/// copy: other threads may change theirs.
std::vector<float> rows_of(nb::handle hidden) {
    if (hidden.is_none()) return {};
    nb::object kept = nb::borrow(hidden);
    std::optional<std::shared_ptr<void>> guard;
    if (nb::isinstance<View>(hidden)) {
        const auto& view = nb::cast<const View&>(hidden);
        guard = view.lease->enter();
        kept = view.array;
    }
    nb::ndarray<const float, nb::c_contig, nb::device::cpu> rows;
    if (!nb::try_cast(kept, rows, false))
        throw nb::type_error("hidden states are an array of float32, contiguous: Context.hidden() gives one");
    return {rows.data(), rows.data() + rows.size()};
}

tinfer::Batch batch_of(nb::handle what) {
    if (nb::isinstance<tinfer::Batch>(what)) return nb::cast<tinfer::Batch>(what);
    tinfer::Batch batch;
    batch.add_sequence(tokens_of(what), SeqId{0}, false);  // which rows are outputs is for the context's options
    return batch;
}

void decode(const PyContext& self, nb::handle what, nb::handle hidden) {
    std::size_t n_tokens = 0;
    tinfer::DecodeStatus status{};
    if (nb::isinstance<tinfer::Batch>(what) || !hidden.is_none()) {
        const auto batch = batch_of(what);  // a copy: other threads may change theirs
        const auto rows = rows_of(hidden);
        n_tokens = batch.size();
        status = self.state->compute([&](tinfer::Context& context) { return context.decode(batch, rows); });
    } else {
        const auto tokens = tokens_of(what);
        n_tokens = tokens.size();
        status = self.state->compute([&](tinfer::Context& context) { return context.decode(tokens); });
    }
    check_status(status, self.get(), n_tokens);
}

void compute(const PyContext& self, nb::handle what, nb::handle hidden) {
    const auto batch = batch_of(what);
    const auto rows = rows_of(hidden);
    check_status(self.state->compute([&](tinfer::Context& context) { return context.compute(batch, rows); }),
                 self.get(), batch.size());
}

void encode(const PyContext& self, nb::handle what) {
    std::size_t n_tokens = 0;
    tinfer::DecodeStatus status{};
    if (nb::isinstance<tinfer::Batch>(what)) {
        const auto batch = nb::cast<tinfer::Batch>(what);
        n_tokens = batch.size();
        status = self.state->compute([&](tinfer::Context& context) { return context.encode(batch); });
    } else {
        const auto tokens = tokens_of(what);
        n_tokens = tokens.size();
        status = self.state->compute([&](tinfer::Context& context) { return context.encode(tokens); });
    }
    check_status(status, self.get(), n_tokens);
}

std::shared_ptr<Attached> attach(const PyContext& self, nb::object observer) {
    if (!nb::isinstance<tinfer::Observer>(observer))
        throw nb::type_error("an observer is a tinfer.Observer, TraceFile or another of tinfer's own");
    auto shared = value_of<std::shared_ptr<tinfer::Observer>>(observer, "an observer");
    auto one = std::make_shared<Attached>();
    one->observer = std::move(observer);
    if (auto* interrupted = dynamic_cast<InterruptedObserver*>(shared.get()))
        interrupted->set_interrupt(self.state->interrupt, one->observer.ptr());
    one->attachment = self.state->compute([&](tinfer::Context& c) { return c.attach(std::move(shared)); }, false);
    self.state->attached.push_back(one);
    return one;
}

void detach(const PyContext& self, const Attached& one) {
    self.state->change([&](tinfer::Context&) {
        self.state->attached.remove_if([&](const auto& item) {
            if (item.get() != &one) return false;
            item->attachment = tinfer::Attachment();
            return true;
        });
    });
}

/// What `with context.attach(observer):` is.
struct PyAttachment {
    std::shared_ptr<ContextState> state;
    std::shared_ptr<Attached> one;
    void detach() const {
        if (state->context && one->attachment.attached()) tinfer_python::detach(PyContext{state}, *one);
        if (auto* observer = dynamic_cast<InterruptedObserver*>(nb::cast<tinfer::Observer*>(one->observer)))
            observer->flush();
    }
};

void bind_watching(nb::module_& module, nb::class_<PyContext>& context) {
    nb::class_<PyAttachment>(module, "Attachment", "Keeps an observer attached; a context manager that detaches it.")
        .def("detach", &PyAttachment::detach, "The observer sees nothing any more; twice is as once.")
        .def_prop_ro("attached",
                     [](const PyAttachment& self) { return self.state->context && self.one->attachment.attached(); })
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Attachment"))
        .def(
            "__exit__", [](const PyAttachment& self, nb::args) { self.detach(); },
            nb::sig("def __exit__(self, *args: object) -> None"));
    context
        .def(
            "attach",
            [](const PyContext& self, nb::object observer) {
                return PyAttachment{self.state, attach(self, std::move(observer))};
            },
            "observer"_a, nb::sig("def attach(self, observer: _Observer) -> Attachment"),
            "The observer sees every kernel call until it is detached: by the attachment (also `with "
            "context.attach(observer):`), or with the context's end.")
        .def(
            "mark",
            [](const PyContext& self, const std::string& text) {
                self.state->compute([&](tinfer::Context& c) { c.mark(text); }, false);
            },
            "text"_a, "An annotation into the trace of every attached observer.")
        .def(
            "attach_adapter",
            [](const PyContext& self, const tinfer::Adapter& adapter, float scale, std::optional<std::int32_t> seq) {
                self.state->change([&](tinfer::Context& c) {
                    if (seq) tinfer::attach(c, adapter, scale, SeqId{*seq});
                    else tinfer::attach(c, adapter, scale);
                });
            },
            "adapter"_a, "scale"_a = 1.0F, nb::kw_only(), "seq"_a = nb::none(),
            "From the next decode on, for all sequences or one. Raises Error: model_mismatch, busy, …")
        .def(
            "detach_adapter",
            [](const PyContext& self, const tinfer::Adapter& adapter, std::optional<std::int32_t> seq) {
                self.state->change([&](tinfer::Context& c) {
                    if (seq) tinfer::detach(c, adapter, SeqId{*seq});
                    else tinfer::detach(c, adapter);
                });
            },
            "adapter"_a, nb::kw_only(), "seq"_a = nb::none(),
            "From the next decode on, for all sequences or one; what is cached stays as it was computed.");
}

void bind_outputs(nb::class_<PyContext>& context) {
    context
        .def("decode", &decode, "tokens"_a, "hidden"_a = nb::none(),
             nb::sig("def decode(self, tokens: typing.Iterable[int] | Batch, hidden: View | numpy.ndarray | None = "
                     "None) -> None"),
             "Appends token ids to sequence 0, or computes a Batch: all of it or nothing. The last token's logits are "
             "the output (all of them with logits_all). Ctrl-C, or `cancel`, stops it; the context is as before then. "
             "`hidden`: in a part that begins behind the first layer, what hidden() of the part before has given for "
             "the same tokens. Raises Error: no_room, cancelled, invalid_batch, compute_failed, io_error, busy.")
        .def("compute", &compute, "tokens"_a, "hidden"_a = nb::none(),
             nb::sig("def compute(self, tokens: typing.Iterable[int] | Batch, hidden: View | numpy.ndarray | None = "
                     "None) -> None"),
             "decode() as the first half of a transaction over several contexts: outputs can be read, and the context "
             "is busy for everything else, until commit() keeps the tokens or abandon() leaves it as before.")
        .def(
            "commit", [](const PyContext& self) { self.state->change([](tinfer::Context& c) { c.commit(); }); },
            "Keeps what compute() has computed. Raises Error: bad_parameter where there is nothing.")
        .def(
            "abandon", [](const PyContext& self) { self.state->compute([](tinfer::Context& c) { c.abandon(); }); },
            "Leaves the context as before compute(). Nothing happens where nothing is computed.")
        .def(
            "hidden",
            [](const PyContext& self) {
                const auto width = static_cast<std::size_t>(self.get().model().info().n_hidden_out);
                return view_of(self, "hidden states", std::as_const(self.get()).hidden(), width);
            },
            "What the last decode has left for the layers behind a part of a model: float32 {n_tokens, n_hidden_out}. "
            "A "
            "view. Raises Error: no_output.")
        .def("encode", &encode, "tokens"_a, nb::sig("def encode(self, tokens: typing.Iterable[int] | Batch) -> None"),
             "Runs what attends to a whole text at once: bidirectional models, and the encoder before a decoder.")
        .def(
            "logits",
            [](const PyContext& self, int index) {
                return view_of(self, "logits", std::as_const(self.get()).logits(index));
            },
            "index"_a = -1,
            "A row of n_vocab float32, of the last decode; negative from the end. A view: it raises after the next "
            "decode. Raises Error: no_output, index_out_of_range.")
        .def(
            "embedding",
            [](const PyContext& self, int index) {
                return view_of(self, "embeddings", std::as_const(self.get()).embedding(index));
            },
            "index"_a = -1, "A row of n_embd float32, after the final norm. A view.")
        .def(
            "pooled",
            [](const PyContext& self, std::int32_t seq) {
                return view_of(self, "vectors", std::as_const(self.get()).pooled(SeqId{seq}));
            },
            "seq"_a = 0, "The vector of a sequence: n_embd float32, or a reranker's scores. A view.")
        .def("result", &result, "name"_a,
             "A value by the name that `keep` asked for, flat: a row for each token. A view.")
        .def(
            "output_index", [](const PyContext& self, int token) { return self.get().output_index(token); },
            "token_index"_a,
            "Which output the batch's token i has become. Raises Error: no_output where it was not flagged, "
            "index_out_of_range.")
        .def_prop_ro("n_outputs", [](const PyContext& self) { return self.get().n_outputs(); });
}

void bind_properties(nb::class_<PyContext>& context) {
    context.def_prop_ro("model", [](const PyContext& self) { return std::as_const(self.get()).model(); })
        .def_prop_ro("n_ctx", [](const PyContext& self) { return self.get().options().n_ctx; })
        .def_prop_ro("n_batch", [](const PyContext& self) { return self.get().options().n_batch; })
        .def_prop_ro("n_seq_max", [](const PyContext& self) { return self.get().options().n_seq_max; })
        .def_prop_ro("n_threads", [](const PyContext& self) { return self.get().options().n_threads; })
        .def_prop_ro(
            "isa", [](const PyContext& self) { return std::string(self.get().isa()); },
            "Name of the kernel table in use.")
        .def_prop_ro(
            "used", [](const PyContext& self) { return self.get().used(); }, "Tokens in the cache.")
        .def_prop_ro("can_shift", [](const PyContext& self) { return self.get().can_shift(); })
        .def(
            "memory", [](const PyContext& self) { return dict_of(self.get().memory()); },
            nb::sig("def memory(self) -> dict[str, int]"), "Bytes by class, counted: equal to plan().")
        .def(
            "timings",
            [](const PyContext& self) {
                const auto timings = self.get().timings();
                nb::dict all;
                all["load_s"] = timings.load_s;
                all["prompt_s"] = timings.prompt_s;
                all["generation_s"] = timings.generation_s;
                all["prompt_n"] = timings.prompt_n;
                all["generation_n"] = timings.generation_n;
                all["expert_hits"] = timings.expert_hits;
                all["expert_misses"] = timings.expert_misses;
                all["expert_bytes"] = timings.expert_bytes;
                all["expert_wait_s"] = timings.expert_wait_s;
                return all;
            },
            nb::sig("def timings(self) -> dict[str, float]"), "Seconds and tokens since the context was made.")
        .def(
            "set_threads",
            [](const PyContext& self, int n_threads, int n_threads_batch) {
                self.state->change([&](tinfer::Context& c) {
                    c.set_threads(n_threads, n_threads_batch == 0 ? n_threads : n_threads_batch);
                });
            },
            "n_threads"_a, "n_threads_batch"_a = 0,
            "Threads of the next decodes, at most as many as the context was made for (0: as n_threads). Raises Error: "
            "bad_parameter.")
        .def(
            "close", [](const PyContext& self) { self.state->close(); }, "Frees cache and scratch; views end.")
        .def_prop_ro("closed", [](const PyContext& self) { return !self.state->context; })
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> Context"))
        .def(
            "__exit__", [](const PyContext& self, nb::args) { self.state->close(); },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

/// Observers and callables may hold the context: the collector of cycles has to see them.
int traverse(PyObject* self, visitproc visit, void* arg) {
#if PY_VERSION_HEX >= 0x03090000
    Py_VISIT(Py_TYPE(self));
#endif
    if (!nb::inst_ready(self)) return 0;
    const auto& state = nb::inst_ptr<PyContext>(nb::handle(self))->state;
    if (!state || state.use_count() > 1) return 0;  // a view holds it, too
    Py_VISIT(state->interrupt->cancel.ptr());
    for (const auto& one : state->attached)
        if (one.use_count() == 1) {
            Py_VISIT(one->observer.ptr());
            if (one->attachment.attached()) Py_VISIT(one->observer.ptr());  // the library's reference
        }
    return 0;
}

int clear(PyObject* self) {
    if (!nb::inst_ready(self)) return 0;
    const auto state = nb::inst_ptr<PyContext>(nb::handle(self))->state;
    if (!state) return 0;
    try {
        state->close();
    } catch (const std::exception&) {
    }
    state->interrupt->cancel.reset();
    return 0;
}

PyType_Slot context_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

constexpr const char* kContextSignature =
    "def __init__(self, model: Model, *, cancel: typing.Callable[[], bool] | None = None, n_ctx: int = 512, n_seq_max: "
    "int = 1, n_batch: int = 0, n_ubatch: int = 512, n_outputs: int = 0, n_threads: int = 0, n_threads_batch: int = 0, "
    "isa: str = 'automatic', fuse: bool = True, type_k: str = 'f16', type_v: str = 'f16', kv_rotation: str = "
    "'automatic', rope_freq_base: float | None = None, rope_freq_scale: float | None = None, rope_scaling: str = "
    "'from_model', yarn_ext_factor: float | None = None, yarn_attn_factor: float | None = None, yarn_beta_fast: float "
    "| "
    "None = None, yarn_beta_slow: float | None = None, yarn_orig_ctx: int | None = None, embeddings: bool = False, "
    "pooling: str = 'from_model', attention: str = 'from_model', swa_full: bool = False, logits_all: bool = False, "
    "allow_position_gaps: bool = False, check_finite: bool = False, memory_limit: int = 0, keep: list[str] = [], log: "
    "typing.Callable[[str, str], object] | None = None) -> None";

}  // namespace

void bind_context(nb::module_& module) {
    nb::class_<PyContext> context(module, "Context", nb::type_slots(context_slots),
                                  "Runs a model: token ids in, logits and vectors out, with the cache in between. One "
                                  "thread at a time (a second one gets Error, busy). The keyword arguments are the "
                                  "fields of ContextOptions; 0 leaves a number to the model or the machine.");
    context.def("__init__", &construct, "model"_a, nb::kw_only(), "cancel"_a = nb::none(), "options"_a,
                nb::sig(kContextSignature));
    bind_outputs(context);
    bind_sequences(context);
    bind_states(context);
    bind_watching(module, context);
    bind_properties(context);
    module.def(
        "plan",
        [](nb::handle model, nb::handle layers, const nb::kwargs& keywords) {
            const auto options = context_options(keywords);
            if (nb::isinstance<tinfer::Model>(model)) {
                if (!layers.is_none()) throw nb::type_error("layers are of a file: a model has its own");
                return dict_of(tinfer::plan(nb::cast<const tinfer::Model&>(model), options));
            }
            return dict_of(tinfer::plan(path_of(model), {.layers = layers_of(layers)}, options));
        },
        "model"_a, nb::kw_only(), "layers"_a = nb::none(), "options"_a,
        nb::sig("def plan(model: Model | str | os.PathLike[str], *, layers: tuple[int, int] | None = None, **options: "
                "typing.Any) -> dict[str, int]"),
        "Bytes that loading a file, or some layers of it, and a context of these options take, by class, without "
        "touching tensor data.");
}

}  // namespace tinfer_python
