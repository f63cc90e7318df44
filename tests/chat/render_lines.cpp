// SPDX-License-Identifier: MIT
// Renders templates for tests in Python: each line of standard input is {"template": …, "inputs": …}, each line of the
// output {"text": …, "outside": [[begin, end], …]}, bytes of the text that come from the inputs, or {"error": …}. With
// "adapted": true the inputs are first made what the template can take.
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include <tinfer/tinfer.hpp>

int main() {
    using OrderedJson = nlohmann::ordered_json;
    const tinfer::RenderOptions options{.now = tinfer::LocalTime{2026, 3, 9, 14, 5, 7}, .max_steps = 5'000'000};
    for (std::string line; std::getline(std::cin, line);) {
        const OrderedJson task = OrderedJson::parse(line);
        OrderedJson answer;
        try {
            const tinfer::ChatTemplate chat_template(task["template"].get<std::string>());
            std::string inputs = task["inputs"].dump();
            if (task.value("adapted", false))
                inputs = tinfer::adapt_inputs(tinfer::capabilities(chat_template), inputs);
            const auto prompt = chat_template.render(inputs, options);
            answer = {{"text", prompt.text}, {"outside", OrderedJson::array()}};
            for (const auto& span : prompt.spans)
                if (span.origin != 0) answer["outside"].push_back({span.begin, span.end});
        } catch (const tinfer::Error& error) {
            answer = {{"error", error.what()}};
        }
        std::cout << answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << '\n';
    }
}
