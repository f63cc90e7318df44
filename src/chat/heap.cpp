// SPDX-License-Identifier: MIT
#include "chat/heap.hpp"

#include "base/error.hpp"

namespace tinfer::chat {

Heap::~Heap() {
    retiring_ = true;  // containers that the loop releases are deleted after it
    for (Container* container = first_; container != nullptr; container = container->next_) container->drop_values();
    delete_retired();
}

void Heap::retire(Container* container) noexcept {
    container->next_retired_ = retired_;
    retired_ = container;
    if (retiring_) return;
    retiring_ = true;
    delete_retired();
    retiring_ = false;
}

void Heap::delete_retired() noexcept {
    while (retired_ != nullptr) {
        Container* const container = retired_;
        retired_ = container->next_retired_;
        container->drop_values();  // retires containers that were referenced only here
        delete container;
    }
}

void Heap::too_many_steps() const {
    fail(ErrorCode::limit_exceeded, cat("template: more than ", max_steps_, " steps"));
}

void Heap::too_many_bytes() const {
    fail(ErrorCode::limit_exceeded, cat("template: more than ", max_bytes_, " bytes of strings and lists"));
}

void Heap::text_too_long() const {
    fail(ErrorCode::limit_exceeded, cat("template: a text of more than ", kMaxText, " bytes"));
}

}  // namespace tinfer::chat
