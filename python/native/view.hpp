// SPDX-License-Identifier: MIT
// Arrays over memory of the library's, without a copy. What numpy makes of such memory would go on reading it when it
// has long been something else, so Python gets a View: it does what an array does (python/tinfer/_view.py), and asks
// its lease first whether the memory is still what it was.
#pragma once

#include "common.hpp"

namespace tinfer_python {

/// The right to read a piece of memory. Keeps the memory's owner alive.
class Lease {
public:
    virtual ~Lease() = default;
    /// Before every read: throws where the memory has become something else. What it returns lives during the read.
    virtual std::shared_ptr<void> enter() = 0;
    /// After the read, with what enter() gave: throws where what was read may be wrong.
    virtual void leave(void* /*guard*/) {}
};

/// An array with the lease that it is read by.
struct View {
    std::shared_ptr<Lease> lease;
    nb::object array;  ///< a numpy array over the memory, read-only
};

/// A view of `data`, C-contiguous. Type: a NumPy type code and bits.
View make_view(std::shared_ptr<Lease> lease, const void* data, std::span<const std::size_t> shape,
               nb::dlpack::dtype type);

void bind_view(nb::module_& module);

}  // namespace tinfer_python
