// SPDX-License-Identifier: MIT
// The filters, grouped by the values they apply to; filters.cpp has the table of their names.
#pragma once

#include "chat/interpreter.hpp"

namespace tinfer::chat::filters {

#define TINFER_FILTER(name) Value name(Interpreter& interpreter, const Value& subject, Arguments& arguments)
// of texts
TINFER_FILTER(capitalize);
TINFER_FILTER(center);
TINFER_FILTER(escape);
TINFER_FILTER(forceescape);
TINFER_FILTER(format);
TINFER_FILTER(from_json);
TINFER_FILTER(indent);
TINFER_FILTER(lower);
TINFER_FILTER(replace);
TINFER_FILTER(safe);
TINFER_FILTER(string);
TINFER_FILTER(striptags);
TINFER_FILTER(title);
TINFER_FILTER(tojson);
TINFER_FILTER(trim);
TINFER_FILTER(truncate);
TINFER_FILTER(upper);
TINFER_FILTER(urlencode);
TINFER_FILTER(wordcount);
TINFER_FILTER(wordwrap);
TINFER_FILTER(xmlattr);
// of numbers, and of any value
TINFER_FILTER(abs);
TINFER_FILTER(attr);
TINFER_FILTER(default_value);
TINFER_FILTER(filesizeformat);
TINFER_FILTER(pprint);
TINFER_FILTER(round);
TINFER_FILTER(to_float);
TINFER_FILTER(to_int);
// of lists and mappings
TINFER_FILTER(batch);
TINFER_FILTER(dictsort);
TINFER_FILTER(first);
TINFER_FILTER(groupby);
TINFER_FILTER(items);
TINFER_FILTER(join);
TINFER_FILTER(last);
TINFER_FILTER(length);
TINFER_FILTER(list);
TINFER_FILTER(map);
TINFER_FILTER(max);
TINFER_FILTER(min);
TINFER_FILTER(reject);
TINFER_FILTER(rejectattr);
TINFER_FILTER(reverse);
TINFER_FILTER(select);
TINFER_FILTER(selectattr);
TINFER_FILTER(slice);
TINFER_FILTER(sort);
TINFER_FILTER(sum);
TINFER_FILTER(unique);
#undef TINFER_FILTER

}  // namespace tinfer::chat::filters
