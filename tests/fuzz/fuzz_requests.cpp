// SPDX-License-Identifier: MIT
// Any bytes as the body of a request: the first one says of which route. What is read of it is a job that the engine
// takes, or an error with the status and a message that a client can read; nothing else leaves.
#include <cstdlib>
#include <filesystem>

#include <unistd.h>

#include "server/infill.hpp"
#include "server/job.hpp"
#include "server/ollama.hpp"
#include "support/adapter_files.hpp"
#include "support/tiny_model.hpp"

namespace {

using tinfer::Json;

/// A model of two layers whose vocabulary is the bytes, marks of turns and of filling in, and an adapter, red.gguf.
std::filesystem::path save_model(const std::filesystem::path& folder) {
    std::vector<std::string> texts{"<unk>", "<s>", "</s>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>"};
    std::vector<std::int32_t> types{2, 3, 3, 3, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
        constexpr std::string_view kDigits = "0123456789ABCDEF";
        texts.push_back(std::string("<0x") + kDigits[std::size_t(byte) / 16] + kDigits[std::size_t(byte) % 16] + ">");
        types.push_back(6);
    }
    for (const char* text : {"<|im_start|>", "<|im_end|>"}) {
        texts.emplace_back(text);
        types.push_back(3);
    }
    auto writer = tinfer::test::TinyModel{.n_vocab = static_cast<int>(texts.size())}.writer();
    writer.set("tokenizer.ggml.model", tinfer::test::GgufValue{std::string("llama")});
    writer.array("tokenizer.ggml.scores", std::vector<float>(texts.size()));
    writer.array("tokenizer.ggml.tokens", texts).array("tokenizer.ggml.token_type", types);
    writer.kv("tokenizer.ggml.bos_token_id", 1u).kv("tokenizer.ggml.eos_token_id", 2u);
    writer.kv("tokenizer.ggml.fim_pre_token_id", 3u).kv("tokenizer.ggml.fim_suf_token_id", 4u);
    writer.kv("tokenizer.ggml.fim_mid_token_id", 5u);
    writer.save(folder / "model.gguf");
    tinfer::test::lora_for(writer, {.names = tinfer::test::adaptable(writer)}).save(folder / "red.gguf");
    return folder / "model.gguf";
}

tinfer::server::ServeOptions with_receipts() {
    tinfer::server::ServeOptions options;
    options.receipts = true;
    return options;
}

struct Served {
    Served() : folder(std::filesystem::temp_directory_path() / ("tinfer-requests-" + std::to_string(::getpid()))) {
        std::filesystem::create_directories(folder);
        const auto model = tinfer::Model::load(save_model(folder));
        tinfer::EngineOptions made{.context = {.n_ctx = 512, .n_seq_max = 2}};
        made.adapters = {{"red", tinfer::Adapter::load(model, folder / "red.gguf")}};
        engine = std::make_unique<tinfer::Engine>(model, std::move(made));
        service = std::make_unique<tinfer::server::Service>(*engine, broker);
        std::filesystem::remove_all(folder);
    }
    std::filesystem::path folder;
    tinfer::server::Broker broker{with_receipts()};
    std::unique_ptr<tinfer::Engine> engine;
    std::unique_ptr<tinfer::server::Service> service;
};

void require(bool holds) {
    if (!holds) std::abort();
}

void read(int route, Json body, const tinfer::server::Service& service) {
    tinfer::server::Job job;
    switch (route) {
        case 0: job = tinfer::server::read_chat(body, service); break;
        case 1: job = tinfer::server::read_completion(body, service); break;
        case 2: job = tinfer::server::read_responses(body, service); break;
        case 3: job = tinfer::server::read_anthropic(body, service); break;
        case 4: (void)tinfer::server::read_anthropic(body, service, true); return;
        case 6: job = tinfer::server::read_infill(body, service); break;
        case 7:
        case 8: {
            using tinfer::server::ollama::Kind;
            auto ask = tinfer::server::ollama::read(route == 7 ? Kind::chat : Kind::generate, body, service);
            if (!ask.job) return;  // only loads
            job = *std::move(ask.job);
            break;
        }
        default: {
            tinfer::server::Fields fields(body);
            const tinfer::server::Conversation talk = tinfer::server::read_conversation(fields);
            const bool has_tools = !talk.tools.empty();
            (void)tinfer::render_prompt(service.chat_template(has_tools), service.able(has_tools),
                                        service.model.vocab(), talk);
            return;
        }
    }
    const auto room = service.engine.max_tokens();
    const auto n_vocab = static_cast<std::int32_t>(service.model.vocab().size());
    require(!job.prompts.empty() && job.n >= 1 && job.n <= 8);
    for (const auto& prompt : job.prompts) {
        require(!prompt.tokens.empty() && prompt.tokens.size() + (job.is_score ? 0 : 1) <= room);
        for (const auto token : prompt.tokens)
            require(static_cast<std::int32_t>(token) >= 0 && static_cast<std::int32_t>(token) < n_vocab);
    }
    job.request.sampler.validate();
    require(job.request.adapters.size() <= 1 && !job.trace);  // there is one, and no folder for traces
    require(!job.request.receipt || job.request.adapters.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const Served served;
    if (size == 0) return 0;
    const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
    try {
        read(data[0] % 9, tinfer::server::parse_body(text), *served.service);
    } catch (const tinfer::server::ApiError& error) {
        require(error.status == 400 || error.status == 404 || error.status == 501);
        require(*error.what() != '\0' && !tinfer::server::to_line(error.to_json()).empty());
    } catch (const tinfer::Error& error) {  // as the routes translate it
        require(tinfer::server::translate(error).status < 500);
    }
    return 0;
}
