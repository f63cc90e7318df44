// SPDX-License-Identifier: MIT
// Maps over public types whose code stays inside the library. The code of std::map<Phase, …> is as visible as Phase,
// and would be seen in every plug-in that links the library; a comparison that is the library's own keeps it in.
#pragma once

#include <map>

namespace tinfer {

struct OwnLess {
    template <class T>
    bool operator()(const T& a, const T& b) const {
        return a < b;
    }
};

template <class Key, class Value>
using OwnMap = std::map<Key, Value, OwnLess>;

}  // namespace tinfer
