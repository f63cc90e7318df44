// SPDX-License-Identifier: MIT
// Any bytes as the inputs of a template that looks at everything a conversation may hold.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tinfer/chat.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const tinfer::ChatTemplate chat_template(
        R"({%- macro show(v) %}{% if v is mapping %}{% for k, x in v | items %}{{ k }}={{ show(x) }};{% endfor %}
        {%- elif v is iterable and v is not string %}[{%
            for x in v %}{{ show(x) }},{% endfor %}]{% else %}{{
            v ~ '' | trim | upper }}{% endif %}{% endmacro -%}
        {%- for m in messages %}<|{{ m.role }}|>{{ m.content | string | replace('a', 'b') }}{{
            m['content'][1:-1] if m.content is string }}
        {%- if m.tool_calls %}{{ m.tool_calls | tojson(indent=2) }}{% endif %}{% endfor %}{{
            show(tools) }}{{ messages }}{{
            documents | default([]) | sort | join }})");
    try {
        (void)chat_template.render(std::string_view(reinterpret_cast<const char*>(data), size),
                                   {.max_steps = 20'000, .max_bytes = 1u << 20});
    } catch (const tinfer::Error&) {
    }
    return 0;
}
