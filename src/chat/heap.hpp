// SPDX-License-Identifier: MIT
// The limits of one rendering: steps, and bytes of strings and containers. Every object of a rendering is counted, so
// that a hostile template gets an error instead of exhausting memory. Containers are in a list, so that reference
// cycles are freed, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace tinfer::chat {

class Container;

inline constexpr std::size_t kMaxText = std::size_t{16} << 20;  ///< bytes of one string, and of the output

class Heap {
public:
    Heap(std::uint64_t max_steps, std::size_t max_bytes) noexcept : max_steps_(max_steps), max_bytes_(max_bytes) {}
    Heap(const Heap&) = delete;
    Heap& operator=(const Heap&) = delete;
    ~Heap();  ///< frees the remaining containers; no value may be used afterwards

    /// Counts work; throws limit_exceeded beyond the limit.
    void work(std::uint64_t steps) {
        steps_ += steps;
        if (steps_ > max_steps_) too_many_steps();
    }
    void charge(std::size_t bytes) {
        if (bytes > max_bytes_ - bytes_) too_many_bytes();
        bytes_ += bytes;
    }
    void release(std::size_t bytes) noexcept { bytes_ -= bytes; }
    /// Throws limit_exceeded if a text, while it grows, exceeds kMaxText.
    void check_text(std::size_t bytes) const {
        if (bytes > kMaxText) text_too_long();
    }
    /// Deletes an unreferenced container. Containers inside it are deleted in a loop, not by recursion, so that lists
    /// may be nested as deep as memory allows.
    void retire(Container* container) noexcept;

private:
    friend class Container;
    void delete_retired() noexcept;
    [[noreturn]] void too_many_steps() const;
    [[noreturn]] void too_many_bytes() const;
    [[noreturn]] void text_too_long() const;

    std::uint64_t steps_ = 0, max_steps_;
    std::size_t bytes_ = 0, max_bytes_;
    Container* first_ = nullptr;  ///< list of all containers
    Container* retired_ = nullptr;
    bool retiring_ = false;
};

/// Base of objects whose bytes are counted. None outlives its heap or the rendering.
class Counted {
public:
    explicit Counted(Heap& heap, std::size_t bytes) : heap_(&heap), bytes_(bytes) { heap.charge(bytes); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { heap_->release(bytes_); }

    [[nodiscard]] Heap& heap() const noexcept { return *heap_; }

protected:
    /// Adds to the object's size.
    void grow(std::size_t bytes) {
        heap_->charge(bytes);
        bytes_ += bytes;
    }

private:
    Heap* heap_;
    std::size_t bytes_;
};

/// A counted object that holds values and so may be part of a reference cycle.
class Container : public Counted {
public:
    explicit Container(Heap& heap, std::size_t bytes) : Counted(heap, bytes), next_(heap.first_) {
        if (next_ != nullptr) next_->previous_ = this;
        heap.first_ = this;
    }
    virtual ~Container() {
        (previous_ != nullptr ? previous_->next_ : heap().first_) = next_;
        if (next_ != nullptr) next_->previous_ = previous_;
    }
    virtual void drop_values() noexcept = 0;

private:
    friend class Heap;
    Container* next_;
    Container* previous_ = nullptr;
    Container* next_retired_ = nullptr;
};

/// Makes a container whose last reference retires it.
template <class T, class... Args>
[[nodiscard]] std::shared_ptr<T> make_container(Heap& heap, Args&&... args) {
    return std::shared_ptr<T>(new T(heap, std::forward<Args>(args)...),
                              [](T* object) { object->heap().retire(object); });
}

}  // namespace tinfer::chat
