// SPDX-License-Identifier: MIT
#include "support/family_template.hpp"

#include "base/error.hpp"
#include "chat/call_literals.hpp"

namespace tinfer::test {
namespace {

using chat::CallShape;

/// A text of the template.
std::string says(std::string_view text) { return text.empty() ? "" : cat("{{ ", chat::json_string(text), " }}"); }

std::string object(const chat::ToolFormat& row) {
    const auto member = [](std::string_view key, std::string_view value) {
        return says(cat('"', key, "\": ")) + std::string(value);
    };
    const std::string name = "{{ f.name|tojson }}", arguments = "{{ f.arguments|tojson }}";
    if (row.object == chat::CallObject::keyed) return says("{") + name + says(": ") + arguments + says("}");
    std::string out = says("{");
    if (row.ids == chat::IdShape::digits) out += member(row.id_key, says("\"") + "{{ loop.index0 }}" + says("\", "));
    out += member(row.name_key, name) + says(", ") + member(row.arguments_key, arguments);
    if (row.ids == chat::IdShape::nine) out += says(", ") + member(row.id_key, "{{ c.id|tojson }}");
    return out + says("}");
}

std::string call(const chat::ToolFormat& row) {
    const std::string name = "{{ f.name }}";
    switch (row.shape) {
        case CallShape::named: {
            const std::string id = row.ids == chat::IdShape::any || row.ids == chat::IdShape::nine ? "{{ c.id }}" : "";
            return (row.id_first ? id : "") + says(row.name_open) + (row.numbered ? "functions." : "") + name +
                   (row.numbered ? ":{{ loop.index0 }}" : "") + (row.id_first ? "" : says(row.id_open) + id) +
                   says(row.name_close) + says(row.arguments_open) + "{{ f.arguments|tojson }}" +
                   says(row.arguments_close);
        }
        case CallShape::parameters: {
            const std::string value = "{{ v if v is string else v|tojson }}";
            const std::string typed =
                row.typed ? "\" string=\"{{ 'true' if v is string else 'false' }}\"" : std::string();
            std::string close = says(row.parameter_close);
            if (!row.parameter_close_end.empty()) close += "{{ k }}" + says(row.parameter_close_end);
            return says(row.name_open) + name + says(row.name_close) + says("\n") +
                   "{% for k, v in f.arguments.items() %}" + says(row.parameter_open) + "{{ k }}" + typed +
                   says(row.parameter_name_close) + says(row.parameter_value_open) +
                   (row.pads_begin ? says("\n") : "") + value + (row.pads_end ? says("\n") : "") + close + says("\n") +
                   "{% endfor %}" + says(row.arguments_close);
        }
        case CallShape::python:
            return name + "({% for k, v in f.arguments.items() %}{{ k }}={{ v|tojson }}{% if not loop.last %}, "
                          "{% endif %}{% endfor %})";
        case CallShape::braces:
            return name + says("{") + "{% for k, v in f.arguments|dictsort %}{{ k }}:{% if v is string %}" +
                   says(row.quote) + "{{ v }}" + says(row.quote) +
                   "{% else %}{{ v|tojson }}{% endif %}{% if not loop.last %},{% endif %}{% endfor %}" + says("}");
        default: return object(row);
    }
}

}  // namespace

std::string family_template(const chat::ToolFormat& row) {
    const bool is_list = row.shape == CallShape::list || row.shape == CallShape::python;
    const std::string each = "{% for c in m.tool_calls %}{% set f = c.function %}", behind = "{% endfor %}";
    std::string calls;
    if (row.shape == CallShape::channels)
        calls = each + " to=functions.{{ f.name }}" + says("<|channel|>commentary json<|message|>") +
                "{{ f.arguments|tojson }}" + says("<|call|>") + behind;
    else if (is_list)
        calls = says(row.call_open) + says(row.list_open) + each + call(row) + "{% if not loop.last %}" +
                says(row.list_open.empty() ? "\n" : ", ") + "{% endif %}" + behind + says(row.list_close) +
                says(row.call_close);
    else
        calls = says(row.open) + each + says(row.call_open) + call(row) + says(row.call_close) +
                "{% if not loop.last %}" + says(row.separator.empty() ? "\n" : row.separator) + "{% endif %}" + behind +
                (row.open.empty() ? "" : says(row.close));
    const bool has_channels = row.shape == CallShape::channels;
    const std::string turn = has_channels ? says("<|start|>") : says("<|im_start|>");
    const std::string content =
        has_channels ? says("<|channel|>final<|message|>") + "{{ m.content }}" : says("\n") + "{{ m.content }}";
    return "{% for m in messages %}" + turn + "{{ m.role }}{% if m.content or not m.tool_calls %}" + content +
           "{% elif " + (has_channels ? "false" : "true") + " %}" + says("\n") + "{% endif %}{% if m.tool_calls %}" +
           (row.shape == CallShape::generic ? "" : calls) + "{% endif %}" +
           says(has_channels ? "<|end|>" : "<|im_end|>\n") + "{% endfor %}{% if add_generation_prompt %}" + turn +
           "assistant" + (has_channels ? "" : says("\n")) + "{% endif %}";
}

}  // namespace tinfer::test
