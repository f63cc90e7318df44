// SPDX-License-Identifier: MIT
// Templates that apply one operation of the language to one subject: for the tests of limits and the fuzz target of
// large numbers, which try all of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/interpreter.hpp"

namespace tinfer::test {

/// What stands before and after the list of arguments, where `s` is the subject: "s|center(" and ")".
struct Operation {
    std::string before, after;
    bool of_texts = true;  ///< false: only for lists or mappings
};

inline std::vector<Operation> operations() {
    std::vector<Operation> out;
    for (const auto name : chat::filter_names()) out.push_back({"{{ s|" + std::string(name) + "(", ") }}"});
    // Through `map` an operation meets many small subjects.
    for (const auto name : chat::filter_names())
        out.push_back({"{{ [s, s]|map('" + std::string(name) + "', ", ")|list }}"});
    for (const auto name : chat::test_names())
        if (name[0] >= 'a' && name[0] != 'i') out.push_back({"{{ s is " + std::string(name) + "(", ") }}"});
    chat::Heap heap(1000, 100000);
    const chat::Value subjects[] = {chat::make_string(heap, ""), chat::make_list(heap), chat::make_map(heap)};
    for (const chat::Value& subject : subjects)
        for (const auto name : chat::method_names(subject))
            out.push_back({"{{ s." + std::string(name) + "(", ") }}", subject.is_string()});
    for (const char* name : {"range", "dict", "namespace", "strftime_now", "cycler", "joiner"})
        out.push_back({"{{ " + std::string(name) + "(", ") }}"});
    for (const char* op : {"+", "-", "*", "/", "//", "%", "**", "~", "<", "in", "=="})
        out.push_back({"{{ s " + std::string(op) + " [", "][0] }}"});
    out.push_back({"{{ s[[", "][0]:] }}"});
    out.push_back({"{{ s[::[", "][0]] }}"});
    out.push_back({"{{ s[[", "][0]] }}"});
    out.push_back({"{{ '%*.*f|%*d' % (", ",) }}"});
    out.push_back({"{{ '{:>{}}{:.{}f}'.format(", ") }}"});
    out.push_back({"{% macro f() %}{{ varargs|length }}{{ kwargs }}{% endmacro %}{{ f(*[", "], **dict(a=s)) }}"});
    return out;
}

}  // namespace tinfer::test
