// SPDX-License-Identifier: MIT
// Names of the enums of contexts.
#include "tinfer/context.hpp"

namespace tinfer {

std::string_view to_string(KvType value) noexcept {
    switch (value) {
        case KvType::f32: return "f32";
        case KvType::f16: return "f16";
        case KvType::bf16: return "bf16";
        case KvType::q8_0: return "q8_0";
        case KvType::q4_0: return "q4_0";
    }
    return "unknown";
}

std::string_view to_string(KvRotation value) noexcept {
    switch (value) {
        case KvRotation::automatic: return "auto";
        case KvRotation::off: return "off";
        case KvRotation::on: return "on";
    }
    return "unknown";
}

std::string_view to_string(RopeScaling value) noexcept {
    switch (value) {
        case RopeScaling::from_model: return "from_model";
        case RopeScaling::none: return "none";
        case RopeScaling::linear: return "linear";
        case RopeScaling::yarn: return "yarn";
        case RopeScaling::longrope: return "longrope";
    }
    return "unknown";
}

std::string_view to_string(AttentionKind value) noexcept {
    switch (value) {
        case AttentionKind::from_model: return "from_model";
        case AttentionKind::causal: return "causal";
        case AttentionKind::bidirectional: return "bidirectional";
    }
    return "unknown";
}

std::string_view to_string(Pooling value) noexcept {
    switch (value) {
        case Pooling::from_model: return "from_model";
        case Pooling::none: return "none";
        case Pooling::mean: return "mean";
        case Pooling::cls: return "cls";
        case Pooling::last: return "last";
        case Pooling::rank: return "rank";
    }
    return "unknown";
}

std::string_view to_string(DecodeStatus value) noexcept {
    switch (value) {
        case DecodeStatus::ok: return "ok";
        case DecodeStatus::cancelled: return "cancelled";
        case DecodeStatus::no_room: return "no_room";
    }
    return "unknown";
}

std::string_view to_string(StepStatus value) noexcept {
    switch (value) {
        case StepStatus::ok: return "ok";
        case StepStatus::cancelled: return "cancelled";
        case StepStatus::no_room: return "no_room";
        case StepStatus::pending: return "pending";
    }
    return "unknown";
}

std::string_view to_string(RemoveStatus value) noexcept {
    switch (value) {
        case RemoveStatus::ok: return "ok";
        case RemoveStatus::partial_state: return "partial_state";
        case RemoveStatus::window_lost: return "window_lost";
    }
    return "unknown";
}

std::string_view to_string(GraphRequest::Format value) noexcept {
    switch (value) {
        case GraphRequest::Format::dot: return "dot";
        case GraphRequest::Format::text: return "text";
    }
    return "unknown";
}

std::string_view to_string(GraphRequest::View value) noexcept {
    switch (value) {
        case GraphRequest::View::graph: return "graph";
        case GraphRequest::View::plan: return "plan";
    }
    return "unknown";
}

}  // namespace tinfer
