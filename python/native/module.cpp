// SPDX-License-Identifier: MIT
// The extension module: thin classes over the library. What Python adds to them is in python/tinfer/.
#include "common.hpp"

namespace {

namespace nb = nanobind;

/// tinfer::Error becomes tinfer.Error with its code.
void translate(const std::exception_ptr& pointer, void* /*payload*/) {
    try {
        std::rethrow_exception(pointer);
    } catch (const tinfer::Error& error) {
        tinfer_python::raise(error);
    }
}

}  // namespace

NB_MODULE(_native, module) {
    nb::register_exception_translator(translate);
    module.attr("version") = std::string(tinfer::version());
    tinfer_python::bind_model(module);
    tinfer_python::bind_trace(module);  // observers, before Context takes them
    tinfer_python::bind_batch(module);
    tinfer_python::bind_context(module);
    tinfer_python::bind_sampling(module);
    tinfer_python::bind_generation(module);
    tinfer_python::bind_chat(module);
    tinfer_python::bind_engine(module);
    tinfer_python::bind_receipt(module);
}
