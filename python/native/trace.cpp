// SPDX-License-Identifier: MIT
// Observers, traces in files and their reader.
#include <nanobind/stl/pair.h>

#include <algorithm>

#include "recorder.hpp"

namespace tinfer_python {

namespace {

/// The enumerators of what events name by number, in order, as their names.
template <class Enum>
std::vector<std::string> names_from_zero(Enum last) {
    std::vector<std::string> names;
    for (int i = 0; i <= static_cast<int>(last); ++i) names.push_back(name_of(static_cast<Enum>(i)));
    return names;
}

std::vector<std::string> op_names() {
    std::vector<std::string> names;
    for (int i = 0; i < 1000; ++i) {
        auto name = name_of(static_cast<tinfer::Op>(i));
        if (i > 0 && (name.empty() || name == "unknown")) break;
        names.push_back(std::move(name));
    }
    return names;
}

/// Where a name stands in its list.
template <class Enum>
std::vector<Enum> enums_of(const std::vector<std::string>& given, const std::vector<std::string>& names,
                           const char* what) {
    std::vector<Enum> values;
    for (const auto& name : given) {
        const auto place = std::find(names.begin(), names.end(), name);
        if (place == names.end())
            throw nb::value_error(("no " + std::string(what) + " is called '" + name + "'").c_str());
        values.push_back(static_cast<Enum>(place - names.begin()));
    }
    return values;
}

tinfer::EventFilter filter_of(const std::vector<std::string>& ops, std::vector<int> layers,
                              const std::vector<std::string>& parts, const std::vector<std::string>& phases,
                              std::vector<std::string> tensors, std::uint64_t every_nth_run) {
    if (every_nth_run == 0) throw nb::value_error("every_nth_run is at least 1");
    return {.ops = enums_of<tinfer::Op>(ops, op_names(), "op"),
            .layers = std::move(layers),
            .parts = enums_of<tinfer::Part>(parts, names_from_zero(tinfer::Part::pool), "part"),
            .phases = enums_of<tinfer::Phase>(phases, names_from_zero(tinfer::kLastPhase), "phase"),
            .tensors = std::move(tensors),
            .every_nth_run = every_nth_run};
}

int get_rows(PyObject* self, Py_buffer* buffer, int flags) {
    const Rows& rows = *nb::inst_ptr<Rows>(nb::handle(self));
    return PyBuffer_FillInfo(buffer, self, const_cast<void*>(rows.data), static_cast<Py_ssize_t>(rows.n_bytes), 1,
                             flags);
}

PyType_Slot rows_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_rows)}, {0, nullptr}};

void bind_recorder(nb::module_& module) {
    using Texts = std::vector<std::string>;
    nb::class_<Rows>(module, "_Rows", nb::type_slots(rows_slots), "Records that a numpy array reads and keeps.");
    nb::class_<Recorder, tinfer::Observer>(module, "_Recorder")
        .def(
            "__init__",
            [](Recorder* self, std::string_view level, const Texts& ops, std::vector<int> layers, const Texts& parts,
               const Texts& phases, Texts tensors, std::uint64_t every_nth_run, Texts values, bool keep, bool calls,
               bool accesses, std::size_t runs_per_call, bool detach_on_error) {
                if (runs_per_call == 0) throw nb::value_error("runs_per_call is at least 1");
                tinfer::TraceRequest request{
                    .level = enum_of(level, tinfer::TraceLevel::threads, "level"),
                    .filter = filter_of(ops, std::move(layers), parts, phases, std::move(tensors), every_nth_run),
                    .on_throw = detach_on_error ? tinfer::OnThrow::detach : tinfer::OnThrow::fail_decode};
                auto* recorder = new (self) Recorder;
                recorder->options = std::move(request);
                recorder->values = std::move(values);
                recorder->keep = keep;
                recorder->calls = calls;
                recorder->accesses = accesses;
                recorder->runs_per_call = runs_per_call;
            },
            "level"_a, "ops"_a, "layers"_a, "parts"_a, "phases"_a, "tensors"_a, "every_nth_run"_a, "values"_a, "keep"_a,
            "calls"_a, "accesses"_a, "runs_per_call"_a, "detach_on_error"_a)
        .def("_events",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.events); });
             })
        .def("_accesses",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.accesses); });
             })
        .def("_ranges",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.ranges); });
             })
        .def("_runs",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.runs); });
             })
        .def("_tensors",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.tensors); });
             })
        .def("_steps",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.steps); });
             })
        .def("_samples",
             [](const Recorder& self) {
                 return self.read([](const auto& records, const Names&) { return bytes_of(records.samples); });
             })
        .def(
            "_marks",
            [](const Recorder& self) {
                nb::list marks;
                const auto all = self.read([](const auto& records, const Names&) { return records.marks; });
                for (const auto& [time, text] : all) marks.append(nb::make_tuple(time, text_of(text)));
                return marks;
            },
            nb::sig("def _marks(self) -> list[tuple[int, str]]"))
        .def(
            "_names",
            [](const Recorder& self) {
                nb::list names;
                const auto all = self.read([](const auto&, const Names& texts) { return texts.all(); });
                for (const auto& name : all) names.append(text_of(name));
                return names;
            },
            nb::sig("def _names(self) -> list[str]"))
        .def("_forget", &Recorder::forget)
        .def("_flush", &Recorder::flush);
}

void bind_trace_file(nb::module_& module) {
    using Texts = std::vector<std::string>;
    nb::class_<tinfer::TraceFile, tinfer::Observer>(
        module, "TraceFile", "An observer that writes what it sees into a .tntrace file. A context manager.")
        .def(
            "__init__",
            [](tinfer::TraceFile* self, nb::handle path, std::string_view level, bool overwrite, bool token_ids,
               bool value_hash, bool router, const Texts& ops, std::vector<int> layers, std::uint64_t max_bytes) {
                tinfer::TraceFileOptions options{
                    .level = enum_of(level, tinfer::TraceLevel::threads, "level"),
                    .filter = filter_of(ops, std::move(layers), {}, {}, {}, 1),
                    .extras = {.router = router, .value_hash = value_hash, .token_ids = token_ids},
                    .overwrite = overwrite,
                    .max_bytes = max_bytes};
                new (self) tinfer::TraceFile(path_of(path), std::move(options));
            },
            "path"_a, nb::kw_only(), "level"_a = "steps", "overwrite"_a = false, "token_ids"_a = false,
            "value_hash"_a = false, "router"_a = false, "ops"_a = Texts{}, "layers"_a = std::vector<int>{},
            "max_bytes"_a = 0,
            nb::sig(
                "def __init__(self, path: str | os.PathLike[str], *, level: str = 'steps', overwrite: bool = False, "
                "token_ids: bool = False, value_hash: bool = False, router: bool = False, ops: list[str] = [], "
                "layers: list[int] = [], max_bytes: int = 0) -> None"),
            "Raises Error (io_error) where the file cannot be made, or is there and `overwrite` is not set.")
        .def("close", &tinfer::TraceFile::close, "Writes what is left. Raises the first error since the beginning.")
        .def_prop_ro("events", &tinfer::TraceFile::events, "Seen so far.")
        .def_prop_ro("dropped", &tinfer::TraceFile::dropped)
        .def_prop_ro("nbytes", &tinfer::TraceFile::bytes)
        .def(
            "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> TraceFile"))
        .def(
            "__exit__", [](tinfer::TraceFile& self, nb::args) { self.close(); },
            nb::sig("def __exit__(self, *args: object) -> None"));
}

void bind_reader(nb::module_& module) {
    nb::class_<tinfer::TraceReader>(module, "_TraceReader")
        .def_static(
            "open",
            [](nb::handle path) {
                const auto file = path_of(path);
                nb::gil_scoped_release released;
                return tinfer::TraceReader::open(file);
            },
            "path"_a)
        .def_static(
            "from_bytes",
            [](const nb::bytes& bytes, std::string name) {
                const auto* data = static_cast<const std::byte*>(bytes.data());
                std::vector<std::byte> copy(data, data + bytes.size());
                nb::gil_scoped_release released;
                return tinfer::TraceReader::from_bytes(std::move(copy), std::move(name));
            },
            "data"_a, "name"_a)
        .def(
            "replay",
            [](const tinfer::TraceReader& self, nb::handle object) {
                auto& observer = *value_of<tinfer::Observer*>(object, "an observer");
                auto interrupt = std::make_shared<Interrupt>();
                if (auto* interrupted = dynamic_cast<InterruptedObserver*>(&observer))
                    interrupted->set_interrupt(interrupt, object.ptr());
                without_lock(*interrupt, [&] { self.replay(observer); });
            },
            "observer"_a)
        .def(
            "session",
            [](const tinfer::TraceReader& self) {
                nb::dict all;
                for (const auto& [key, value] : self.session()) all[text_of(key)] = text_of(value);
                return all;
            },
            nb::sig("def session(self) -> dict[str, str]"))
        .def("damage", [](const tinfer::TraceReader& self) { return self.damage().size(); })
        .def("is_closed", &tinfer::TraceReader::is_closed)
        .def("content_hash",
             [](const tinfer::TraceReader& self) { return tinfer::to_hex(tinfer::content_hash(self).all); })
        .def(
            "name", [](const tinfer::TraceReader& self) { return text_of(self.name()); },
            nb::sig("def name(self) -> str"))
        .def("file_bytes", &tinfer::TraceReader::file_bytes);
}

void bind_studies(nb::module_& module) {
    nb::class_<tinfer::CoverageCheck, tinfer::Observer>(
        module, "CoverageCheck", "Proves by separate arithmetic that every event reports every byte it touches.")
        .def(nb::init<>())
        .def_prop_ro("steps", &tinfer::CoverageCheck::steps)
        .def_prop_ro(
            "differences", [](const tinfer::CoverageCheck& self) { return self.differences(); },
            "Differences found so far, a line each.");
    nb::class_<tinfer::Roofline, tinfer::Observer>(
        module, "Roofline", "Where the time goes, by role of weights, beside the machine's peaks.")
        .def(
            "__init__",
            [](tinfer::Roofline* self, double bytes, double int8_macs, double f32_macs) {
                new (self) tinfer::Roofline({.bytes = bytes, .int8_macs = int8_macs, .f32_macs = f32_macs});
            },
            nb::kw_only(), "bytes"_a = 0.0, "int8_macs"_a = 0.0, "f32_macs"_a = 0.0)
        .def("report", &tinfer::Roofline::report, "A table as text: bytes, time and share of the peaks by role.");
}

}  // namespace

void bind_trace(nb::module_& module) {
    nb::class_<tinfer::Observer>(module, "_Observer", "What Context.attach() takes.");
    bind_recorder(module);
    bind_trace_file(module);
    bind_reader(module);
    bind_studies(module);
    module.attr("OPS") = nb::tuple(nb::cast(op_names()));
    module.attr("PARTS") = nb::tuple(nb::cast(names_from_zero(tinfer::Part::pool)));
    module.attr("PHASES") = nb::tuple(nb::cast(names_from_zero(tinfer::kLastPhase)));
    module.attr("TENSOR_CLASSES") = nb::tuple(nb::cast(names_from_zero(tinfer::TensorClass::scratch)));
    module.attr("EVENT_STATUS") = nb::tuple(nb::cast(names_from_zero(tinfer::EventStatus::failed)));
    module.attr("_RECORD_BYTES") =
        nb::make_tuple(sizeof(EventRecord), sizeof(AccessRecord), sizeof(RangeRecord), sizeof(RunRecord),
                       sizeof(TensorRecord), sizeof(StepRecord), sizeof(SampleRecord));
}

}  // namespace tinfer_python
