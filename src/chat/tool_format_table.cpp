// SPDX-License-Identifier: MIT
// The table of formats. The first row whose texts all occur in a template's source applies.
#include "chat/tool_format.hpp"

namespace tinfer::chat {
namespace {

using Shape = CallShape;

// clang-format off
constexpr ToolFormat kToolFormats[] = {
    {.name = "harmony", .found_by = {"<|channel|>"}, .shape = Shape::channels, .call_close = "<|call|>", .close_ends = true,
     .dropped = {"<|end|>", "<|return|>", "<|call|>"}},
    {.name = "dsml", .found_by = {"DSML"}, .shape = Shape::parameters, .open = "<｜DSML｜tool_calls>", .close = "</｜DSML｜tool_calls>",
     .call_open = "<｜DSML｜invoke name=\"", .call_close = "</｜DSML｜invoke>", .name_close = "\">",
     .parameter_open = "<｜DSML｜parameter name=\"", .parameter_name_close = ">", .parameter_close = "</｜DSML｜parameter>", .typed = true,
     .also = "dsml-function-calls"},
    {.name = "dsml-function-calls", .shape = Shape::parameters, .open = "<｜DSML｜function_calls>", .close = "</｜DSML｜function_calls>",
     .call_open = "<｜DSML｜invoke name=\"", .call_close = "</｜DSML｜invoke>", .name_close = "\">",
     .parameter_open = "<｜DSML｜parameter name=\"", .parameter_name_close = ">", .parameter_close = "</｜DSML｜parameter>", .typed = true},
    {.name = "deepseek-r1", .found_by = {"<｜tool▁calls▁begin｜>", "```json"}, .shape = Shape::named,
     .open = "<｜tool▁calls▁begin｜>", .close = "<｜tool▁calls▁end｜>", .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>", .name_open = "function<｜tool▁sep｜>", .name_close = "\n",
     .arguments_open = "```json", .arguments_close = "```", .also = "deepseek-r1-spelled"},
    {.name = "deepseek-r1-spelled", .shape = Shape::named,
     .open = "<｜tool_calls_begin｜>", .close = "<｜tool_calls_end｜>", .call_open = "<｜tool_call_begin｜>",
     .call_close = "<｜tool_call_end｜>", .name_open = "function<｜tool_sep｜>", .name_close = "\n",
     .arguments_open = "```json", .arguments_close = "```", .also = "deepseek-r1-spaced"},
    {.name = "deepseek-r1-spaced", .shape = Shape::named,
     .open = "<｜tool calls begin｜>", .close = "<｜tool calls end｜>", .call_open = "<｜tool call begin｜>",
     .call_close = "<｜tool call end｜>", .name_open = "function<｜tool sep｜>", .name_close = "\n",
     .arguments_open = "```json", .arguments_close = "```", .also = "deepseek-r1-escaped"},
    {.name = "deepseek-r1-escaped", .shape = Shape::named,
     .open = "<｜tool\\_calls\\_begin｜>", .close = "<｜tool\\_calls\\_end｜>", .call_open = "<｜tool\\_call\\_begin｜>",
     .call_close = "<｜tool\\_call\\_end｜>", .name_open = "function<｜tool\\_sep｜>", .name_close = "\n",
     .arguments_open = "```json", .arguments_close = "```"},
    {.name = "deepseek-v3.1", .found_by = {"<｜tool▁calls▁begin｜>"}, .shape = Shape::named,
     .open = "<｜tool▁calls▁begin｜>", .close = "<｜tool▁calls▁end｜>", .call_open = "<｜tool▁call▁begin｜>",
     .call_close = "<｜tool▁call▁end｜>", .name_close = "<｜tool▁sep｜>"},
    {.name = "kimi-k2", .found_by = {"<|tool_calls_section_begin|>"}, .shape = Shape::named,
     .open = "<|tool_calls_section_begin|>", .close = "<|tool_calls_section_end|>", .call_open = "<|tool_call_begin|>",
     .call_close = "<|tool_call_end|>", .name_close = "<|tool_call_argument_begin|>", .numbered = true},
    {.name = "command-r7b", .found_by = {"<|START_ACTION|>"}, .shape = Shape::list, .call_open = "<|START_ACTION|>",
     .call_close = "<|END_ACTION|>", .name_key = "tool_name", .arguments_key = "parameters", .id_key = "tool_call_id", .ids = IdShape::digits,
     .dropped = {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"}},
    {.name = "mistral-named", .found_by = {"[TOOL_CALLS]", "[ARGS]"}, .shape = Shape::named, .call_open = "[TOOL_CALLS]",
     .name_close = "[ARGS]", .id_open = "[CALL_ID]", .ids = IdShape::nine},
    {.name = "mistral", .found_by = {"[TOOL_CALLS]"}, .shape = Shape::list, .call_open = "[TOOL_CALLS]", .ids = IdShape::nine},
    {.name = "functionary-v3.2", .found_by = {">>>all"}, .shape = Shape::named, .call_open = ">>>", .name_close = "\n",
     .content_name = "all"},
    {.name = "functionary-v3.1", .found_by = {"<function=", "<|start_header_id|>"}, .shape = Shape::named,
     .call_open = "<function=", .call_close = "</function>", .name_close = ">", .code_open = "<|python_tag|>"},
    {.name = "minimax-m3", .found_by = {"]<]minimax[>[<invoke name="}, .shape = Shape::parameters, .open = "]<]minimax[>[<tool_call>",
     .close = "]<]minimax[>[</tool_call>", .call_open = "]<]minimax[>[<invoke name=\"", .call_close = "]<]minimax[>[</invoke>",
     .name_close = "\">", .parameter_open = "]<]minimax[>[<", .parameter_name_close = ">",
     .parameter_close = "]<]minimax[>[</", .parameter_close_end = ">", .elements = true},
    {.name = "step3", .found_by = {"<steptml:invoke name="}, .shape = Shape::parameters, .open = "<｜tool_calls_begin｜>",
     .close = "<｜tool_calls_end｜>", .call_open = "<｜tool_call_begin｜>\nfunction<｜tool_sep｜><steptml:invoke name=\"",
     .call_close = "</steptml:invoke><｜tool_call_end｜>", .name_close = "\">",
     .parameter_open = "<steptml:parameter name=\"", .parameter_name_close = "\">", .parameter_close = "</steptml:parameter>",
     .python_words = true, .python_none = true, .python_lists = true, .python_objects = true},
    {.name = "minicpm5", .found_by = {"<function name="}, .shape = Shape::parameters, .call_open = "<function name=\"",
     .call_close = "</function>", .name_close = "\">", .parameter_open = "<param name=\"", .parameter_name_close = "\">",
     .parameter_close = "</param>", .python_words = true, .python_none = true, .python_lists = true, .python_objects = true, .cdata = true},
    {.name = "minimax", .found_by = {"<invoke name="}, .shape = Shape::parameters, .open = "<minimax:tool_call>",
     .close = "</minimax:tool_call>", .call_open = "<invoke name=\"", .call_close = "</invoke>", .name_close = "\">",
     .parameter_open = "<parameter name=\"", .parameter_name_close = "\">", .parameter_close = "</parameter>"},
    {.name = "seed", .found_by = {"<seed:tool_call>"}, .shape = Shape::parameters, .call_open = "<seed:tool_call>",
     .call_close = "</seed:tool_call>", .name_open = "<function=", .name_close = ">", .arguments_close = "</function>",
     .parameter_open = "<parameter=", .parameter_name_close = ">", .parameter_close = "</parameter>"},
    {.name = "qwen3-coder", .found_by = {"<tool_call>", "<function="}, .shape = Shape::parameters, .call_open = "<tool_call>",
     .call_close = "</tool_call>", .name_open = "<function=", .name_close = ">", .arguments_close = "</function>",
     .parameter_open = "<parameter=", .parameter_name_close = ">", .parameter_close = "</parameter>", .pads_begin = true, .pads_end = true,
     .also = "qwen3-coder-bare"},
    {.name = "qwen3-coder-bare", .shape = Shape::parameters, .close = "</tool_call>", .call_open = "<function=",
     .call_close = "</function>", .name_close = ">", .parameter_open = "<parameter=", .parameter_name_close = ">",
     .parameter_close = "</parameter>", .pads_begin = true, .pads_end = true, .also = "hermes"},
    {.name = "longcat", .found_by = {"<longcat_arg_key>"}, .shape = Shape::parameters, .call_open = "<longcat_tool_call>",
     .call_close = "</longcat_tool_call>", .parameter_open = "<longcat_arg_key>", .parameter_name_close = "</longcat_arg_key>",
     .parameter_value_open = "<longcat_arg_value>", .parameter_close = "</longcat_arg_value>"},
    {.name = "longcat-json", .found_by = {"<longcat_tool_call>"}, .shape = Shape::object, .call_open = "<longcat_tool_call>",
     .call_close = "</longcat_tool_call>"},
    {.name = "hy3", .found_by = {"<tool_sep>", "<arg_key>"}, .shape = Shape::parameters, .open = "<tool_calls>",
     .close = "</tool_calls>", .call_open = "<tool_call>", .call_close = "</tool_call>", .name_close = "<tool_sep>",
     .parameter_open = "<arg_key>", .parameter_name_close = "</arg_key>", .parameter_value_open = "<arg_value>",
     .parameter_close = "</arg_value>"},
    {.name = "glm", .found_by = {"<arg_key>"}, .shape = Shape::parameters, .call_open = "<tool_call>",
     .call_close = "</tool_call>", .parameter_open = "<arg_key>",
     .parameter_name_close = "</arg_key>", .parameter_value_open = "<arg_value>", .parameter_close = "</arg_value>"},
    {.name = "gemma4", .found_by = {"<|tool_call>call:"}, .shape = Shape::braces, .call_open = "<|tool_call>call:",
     .call_close = "<tool_call|>", .dropped = {"<turn|>"}},
    {.name = "functiongemma", .found_by = {"<start_function_call>call:"}, .shape = Shape::braces,
     .call_open = "<start_function_call>call:", .call_close = "<end_function_call>", .quote = "<escape>"},
    {.name = "granite", .found_by = {"<|tool_call|>"}, .shape = Shape::list, .call_open = "<|tool_call|>"},
    {.name = "minicpm", .found_by = {"<|tool_call_start|>", "```python"}, .shape = Shape::python,
     .call_open = "<|tool_call_start|>\n```python", .call_close = "```\n<|tool_call_end|>", .list_open = "", .list_close = "",
     .also = "lfm2"},
    {.name = "lfm2", .found_by = {"<|tool_call_start|>"}, .shape = Shape::python, .call_open = "<|tool_call_start|>",
     .call_close = "<|tool_call_end|>", .python_words = true, .python_none = true, .python_lists = true, .python_objects = true},
    {.name = "lfm2", .found_by = {"<|tool_list_start|>"}, .shape = Shape::python, .call_open = "<|tool_call_start|>",
     .call_close = "<|tool_call_end|>", .python_words = true, .python_none = true, .python_lists = true, .python_objects = true},
    {.name = "firefunction-v2", .found_by = {" functools["}, .shape = Shape::list, .call_open = "functools"},
    {.name = "olmo3", .found_by = {"<function_calls>"}, .shape = Shape::python, .call_open = "<function_calls>",
     .call_close = "</function_calls>", .list_open = "", .list_close = ""},
    {.name = "nemotron", .found_by = {"<TOOLCALL>"}, .shape = Shape::list, .call_open = "<TOOLCALL>", .call_close = "</TOOLCALL>"},
    {.name = "apertus", .found_by = {"<|tools_prefix|>"}, .shape = Shape::list, .call_open = "<|tools_prefix|>",
     .call_close = "<|tools_suffix|>", .object = CallObject::keyed},
    {.name = "hyperclovax", .found_by = {"-> tool/function_call"}, .shape = Shape::list, .call_open = "-> tool/function_call"},
    {.name = "intern-s1", .found_by = {"<|action_start|><|plugin|>"}, .shape = Shape::object,
     .call_open = "<|action_start|><|plugin|>", .call_close = "<|action_end|>", .arguments_key = "parameters"},
    {.name = "solar-open", .found_by = {"<|tool_call:name|>"}, .shape = Shape::named, .open = "<|tool_calls|>", .close = "<|calls|>",
     .call_open = "<|tool_call:begin|>", .call_close = "<|tool_call:end|>", .name_open = "<|tool_call:name|>",
     .name_close = "<|tool_call:args|>", .close_ends = true, .ids = IdShape::any, .id_first = true, .dropped = {"<|content|>"}},
    {.name = "hunyuan", .found_by = {"<tool_calls>", "```json"}, .shape = Shape::named, .open = "<tool_calls>",
     .close = "</tool_calls>", .call_open = "<tool_call>", .call_close = "</tool_call>", .arguments_open = "```json",
     .arguments_close = "```"},
    {.name = "step3-vl", .found_by = {"<tool_calls>", "<tool_call>"}, .shape = Shape::object, .open = "<tool_calls>",
     .close = "</tool_calls>", .call_open = "<tool_call>", .call_close = "</tool_call>"},
    {.name = "apriel", .found_by = {"<tool_calls>"}, .shape = Shape::list, .call_open = "<tool_calls>",
     .call_close = "</tool_calls>"},
    {.name = "gigachat", .found_by = {"function call<|role_sep|>"}, .shape = Shape::object,
     .call_open = "function call<|role_sep|>", .dropped = {"<|message_sep|>"}},
    {.name = "gigachat-3.1", .found_by = {"<|function_call|>"}, .shape = Shape::object, .call_open = "<|function_call|>",
     .dropped = {"<|message_sep|>"}},
    {.name = "hermes", .found_by = {"<tool_call>"}, .shape = Shape::object, .call_open = "<tool_call>",
     .call_close = "</tool_call>", .also = "hermes-function-call"},
    {.name = "hermes-function-call", .shape = Shape::object, .call_open = "<function_call>", .call_close = "</function_call>",
     .also = "hermes-tools"},
    {.name = "hermes-tools", .shape = Shape::object, .call_open = "<tools>", .call_close = "</tools>"},
    {.name = "llama3", .found_by = {"<|start_header_id|>ipython"}, .shape = Shape::object, .arguments_key = "parameters",
     .begins_answer = true, .code_open = "<|python_tag|>"},
    {.name = "llama3", .found_by = {"<|start_header_id|>", "ipython"}, .shape = Shape::object, .arguments_key = "parameters",
     .begins_answer = true, .code_open = "<|python_tag|>"},
    {.name = "llama3", .found_by = {"<|python_tag|>"}, .shape = Shape::object, .arguments_key = "parameters",
     .begins_answer = true, .code_open = "<|python_tag|>"},
    {.name = "json-list", .shape = Shape::list, .begins_answer = true},
    {.name = "pythonic", .shape = Shape::python, .begins_answer = true, .python_words = true, .python_none = true, .python_lists = true,
     .python_objects = true},
    {.name = "generic", .shape = Shape::generic, .begins_answer = true},
};

constexpr ReasoningFormat kReasoningFormats[] = {
    {"<|channel|>analysis<|message|>", "<|end|>", "<|channel|>"},
    {"<|START_THINKING|>", "<|END_THINKING|>", "<|START_THINKING|>"},
    {"[THINK]", "[/THINK]", "[THINK]"},
    {"<seed:think>", "</seed:think>", "seed:think"},
    {"<|channel>thought", "<channel|>", "<|channel>thought"},
    {"<think>", "</think>", "</think>"},
    {"<think>", "</think>", "<think>"},
};
// clang-format on

bool has(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

std::span<const ToolFormat> tool_formats() noexcept { return kToolFormats; }

const ToolFormat* find_tool_format(std::string_view name) noexcept {
    for (const ToolFormat& row : kToolFormats)
        if (row.name == name) return &row;
    return nullptr;
}

const ToolFormat& find_by_marks(std::string_view text) noexcept {
    for (const ToolFormat& row : kToolFormats)
        if (!row.found_by[0].empty() && has(text, row.found_by[0]) && has(text, row.found_by[1])) return row;
    return *find_tool_format("generic");
}

const ReasoningFormat* detect_reasoning_format(std::string_view source) noexcept {
    for (const ReasoningFormat& row : kReasoningFormats)
        if (has(source, row.found_by)) return &row;
    return nullptr;
}

}  // namespace tinfer::chat
