// SPDX-License-Identifier: MIT
// Renders templates for jinja_test.py: each line of standard input is {"template": …, "inputs": …}, each line of the
// output {"text": …} or {"error": …}.
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include <tinfer/tinfer.hpp>

int main() {
    using Json = nlohmann::ordered_json;
    const tinfer::RenderOptions options{.now = tinfer::LocalTime{2026, 3, 9, 14, 5, 7}, .max_steps = 5'000'000};
    for (std::string line; std::getline(std::cin, line);) {
        const Json task = Json::parse(line);
        Json answer;
        try {
            answer["text"] =
                tinfer::ChatTemplate(task["template"].get<std::string>()).render(task["inputs"].dump(), options).text;
        } catch (const tinfer::Error& error) {
            answer = {{"error", error.what()}};
        }
        std::cout << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
    }
}
