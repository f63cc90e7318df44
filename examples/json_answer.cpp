// SPDX-License-Identifier: MIT
// Structured output: a JSON schema constrains the answer.
#include <tinfer/tinfer.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 3) return std::cerr << "usage: json_answer MODEL.gguf TEXT\n", 2;
    constexpr auto kSchema = R"({
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "hobbies": {"type": "array", "items": {"enum": ["chess", "music", "sport"]}, "maxItems": 3}
        },
        "required": ["name", "age", "hobbies"],
        "additionalProperties": false
    })";
    // Exactly one space after each colon and comma; otherwise a small model might generate white space endlessly.
    const auto schema = tinfer::Schema::parse(kSchema, {.space = tinfer::SchemaOptions::Space::spaced});
    const auto model = tinfer::Model::load(argv[1]);
    const auto& vocab = model.vocab();
    const auto chat = tinfer::ChatTemplate::of(model.file()).value_or(*tinfer::ChatTemplate::built_in("chatml"));
    tinfer::Context context(model, {.n_ctx = 2048});
    tinfer::Sampler sampler(vocab, {.temp = 0});
    sampler.constrain(schema.grammar().constraint(vocab));  // from now on it samples only tokens that the schema allows

    const std::vector<tinfer::ChatMessage> messages{{"system", "Answer with JSON: name, age, hobbies."},
                                                    {"user", argv[2]}};
    tinfer::Generation answer(vocab, tinfer::encode(vocab, chat.render(vocab, messages)).tokens, {.n_predict = 300});
    if (answer.run(context, sampler) != tinfer::StopReason::eog) {  // the limit, or the end of the context
        std::cerr << "json_answer: the answer is cut off: " << answer.text() << '\n';
        return 1;
    }
    std::cout << answer.text() << '\n';
} catch (const tinfer::Error& error) {
    std::cerr << "json_answer: " << error.what() << '\n';
    return 1;
}
