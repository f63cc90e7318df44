// SPDX-License-Identifier: MIT
// The limits of one rendering: steps, and bytes of strings and containers. Every object of a rendering is counted, and
// so is every text and list that exists only inside a filter: their memory comes from HeapAllocator, which asks before
// it allocates. So a hostile template gets an error instead of exhausting memory. Containers are in a list, so that
// reference cycles are freed, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tinfer::chat {

class Container;

inline constexpr std::size_t kMaxText = std::size_t{16} << 20;  ///< bytes of one string, and of the output

class Heap {
public:
    Heap(std::uint64_t max_steps, std::size_t max_bytes) noexcept
        : max_steps_(max_steps), left_(max_steps > kMaxUnits / kStep ? kMaxUnits : max_steps * kStep),
          max_bytes_(max_bytes) {}
    Heap(const Heap&) = delete;
    Heap& operator=(const Heap&) = delete;
    ~Heap();  ///< frees the remaining containers; no value may be used afterwards

    /// Counts work that is about to be done; throws limit_exceeded beyond the limit.
    void work(std::uint64_t steps) {
        if (steps > left_ / kStep) too_many_steps();
        left_ -= steps * kStep;
    }
    /// Counts one look at, or copy of, so many bytes of text: 64 of them are a step, a short text is an eighth of one.
    void touch(std::size_t bytes) {
        if (bytes > left_ || kTouch > left_ - bytes) too_many_steps();
        left_ -= bytes + kTouch;
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

    static constexpr std::uint64_t kStep = 64, kTouch = 8;  // the units in which work is counted
    static constexpr std::uint64_t kMaxUnits = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t max_steps_, left_;
    std::size_t bytes_ = 0, max_bytes_;
    Container* first_ = nullptr;  ///< list of all containers
    Container* retired_ = nullptr;
    bool retiring_ = false;
};

/// Memory of strings and vectors, counted by a heap, which outlives them.
template <class T>
class HeapAllocator {
public:
    using value_type = T;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    HeapAllocator(Heap& heap) noexcept : heap_(&heap) {}
    template <class U>
    HeapAllocator(const HeapAllocator<U>& other) noexcept : heap_(&other.heap()) {}
    [[nodiscard]] Heap& heap() const noexcept { return *heap_; }

    [[nodiscard]] T* allocate(std::size_t n) {
        const std::size_t bytes = n > std::numeric_limits<std::size_t>::max() / sizeof(T)
                                      ? std::numeric_limits<std::size_t>::max()
                                      : n * sizeof(T);
        heap_->charge(bytes);
        try {
            return std::allocator<T>().allocate(n);
        } catch (...) {
            heap_->release(bytes);
            throw;
        }
    }
    void deallocate(T* memory, std::size_t n) noexcept {
        std::allocator<T>().deallocate(memory, n);
        heap_->release(n * sizeof(T));
    }
    template <class U>
    bool operator==(const HeapAllocator<U>& other) const noexcept {
        return heap_ == &other.heap();
    }

private:
    Heap* heap_;
};

template <class T>
using HeapVector = std::vector<T, HeapAllocator<T>>;
using HeapString = std::basic_string<char, std::char_traits<char>, HeapAllocator<char>>;

/// Base of objects whose bytes are counted. None outlives its heap or the rendering.
class Counted {
public:
    explicit Counted(Heap& heap, std::size_t bytes) : heap_(&heap), bytes_(bytes) { heap.charge(bytes); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() { heap_->release(bytes_); }

    [[nodiscard]] Heap& heap() const noexcept { return *heap_; }

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
