// SPDX-License-Identifier: MIT
#include "view.hpp"

namespace tinfer_python {

namespace {

/// The buffer protocol gives a copy: who keeps a buffer could not be told that the memory has changed.
int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
    try {
        const View& view = *nb::inst_ptr<View>(nb::handle(self));
        const auto guard = view.lease->enter();
        const nb::object copy = view.array.attr("copy")();
        view.lease->leave(guard.get());
        return PyObject_GetBuffer(copy.ptr(), buffer, flags);
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const tinfer::Error& error) {
        raise(error);
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_BufferError, error.what());
    }
    buffer->obj = nullptr;
    return -1;
}

PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

/// During one read.
struct Reading {
    std::shared_ptr<Lease> lease;
    std::shared_ptr<void> guard;
};

}  // namespace

View make_view(std::shared_ptr<Lease> lease, const void* data, std::span<const std::size_t> shape,
               nb::dlpack::dtype type) {
    // The array keeps the lease, which keeps the memory.
    nb::capsule owner(new std::shared_ptr<Lease>(lease),
                      [](void* kept) noexcept { delete static_cast<std::shared_ptr<Lease>*>(kept); });
    const nb::ndarray<nb::numpy, nb::ro> array(const_cast<void*>(data), shape.size(), shape.data(), owner, nullptr,
                                               type);
    return {std::move(lease), nb::cast(array)};
}

void bind_view(nb::module_& module) {
    nb::class_<View>(module, "View", nb::type_slots(view_slots),
                     "A read-only array over memory of the library, without a copy. It does what a numpy array does as "
                     "long as the memory is what it was; afterwards it raises Error (`no_output`). `.copy()` gives an "
                     "array that stays; so do np.array(), np.asarray() and memoryview().")
        .def_prop_ro("_array", [](const View& view) { return view.array; })
        .def(
            "_enter",
            [](const View& view) {
                return Reading{view.lease, view.lease->enter()};
            },
            "Before a read; raises where the memory is no longer what it was.")
        .def(
            "_derive",
            [](const View& view, nb::object array) {
                return View{view.lease, std::move(array)};
            },
            "array"_a, "A view of a part of the same memory.");
    nb::class_<Reading>(module, "_Reading").def("leave", [](const Reading& reading) {
        reading.lease->leave(reading.guard.get());
    });
}

}  // namespace tinfer_python
