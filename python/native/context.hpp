// SPDX-License-Identifier: MIT
#pragma once

#include <list>

#include "common.hpp"
#include "view.hpp"

namespace tinfer_python {

/// ContextOptions of keyword arguments. Raises TypeError for names and types that do not fit.
tinfer::ContextOptions context_options(const nb::kwargs& keywords);
/// The value of one keyword; false: ContextOptions has none of that name.
bool set_context_option(tinfer::ContextOptions& options, std::string_view key, nb::handle value);

/// What the native observers need to know of the context that they are attached to.
class InterruptedObserver {
public:
    virtual ~InterruptedObserver() = default;
    /// `self`: the Python object, which is kept alive while its observer is attached.
    virtual void set_interrupt(std::shared_ptr<Interrupt> interrupt, PyObject* self) = 0;
    /// Python gets what it has not had yet; with the lock, behind a detach that Python asked for.
    virtual void flush() {}
};

struct ContextState;
/// Keeps an observer attached until it is detached or the context is closed.
struct Attached {
    nb::object observer;  ///< the Python object
    tinfer::Attachment attachment;
};

/// A context with what Python must know of it besides. Shared by the Python object and the views of its outputs.
struct ContextState {
    std::optional<tinfer::Context> context;  ///< nothing: closed
    std::shared_ptr<Interrupt> interrupt = std::make_shared<Interrupt>();
    std::uint64_t epoch = 0;  ///< counts what makes outputs invalid
    std::atomic<std::thread::id> user{};
    std::list<std::shared_ptr<Attached>> attached;

    /// For calls that only read: throws where it is closed or another thread is inside.
    tinfer::Context& get();
    /// Runs a computation without the interpreter's lock. With `outputs` views of outputs end.
    template <class Work>
    auto compute(Work&& work, bool outputs = true) {
        Use use(*this);
        if (outputs) ++epoch;
        return without_lock(*interrupt, [&] { return work(*context); });
    }
    /// For changes that take no time.
    template <class Work>
    auto change(Work&& work) {
        Use use(*this);
        return work(*context);
    }
    void close();

private:
    /// One user at a time, its own callbacks excluded.
    struct Use {
        explicit Use(ContextState& state);
        ~Use() { state.user = std::thread::id{}; }
        ContextState& state;
    };
};

/// The Python object.
struct PyContext {
    std::shared_ptr<ContextState> state;
    [[nodiscard]] tinfer::Context& get() const { return state->get(); }
};

/// Its methods for sequences, and for states.
void bind_sequences(nb::class_<PyContext>& context);
void bind_states(nb::class_<PyContext>& context);

/// A DecodeStatus as Python has it: nothing, or an Error.
void check_status(tinfer::DecodeStatus status, const tinfer::Context& context, std::size_t n_tokens);

}  // namespace tinfer_python
