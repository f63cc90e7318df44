// SPDX-License-Identifier: MIT
#include "model_list.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <tinfer/tinfer.hpp>

#include "model_names.hpp"

namespace tinfer::app {

std::vector<std::string> models_nearby() {
    namespace fs = std::filesystem;
    std::vector<std::string> found;
    for (const char* folder : {"models", "."}) {
        std::error_code error;
        for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
            const auto& path = it->path();
            const std::string name = path.filename().string();
            if (path.extension() != ".gguf" || fs::is_directory(path, error)) continue;
            const auto shard = name.find("-of-");
            if (shard != name.npos && name.find("-00001-of-") == name.npos) continue;
            found.push_back(path.lexically_normal().string());
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::string no_model_text(std::string_view command) {
    const auto models = models_nearby();
    std::string text = "a model is needed: ";
    if (models.empty())
        return text + "tinfer " + std::string(command) + " MODEL.gguf; there is none here or in models/";
    text += "tinfer " + std::string(command) + " " + models[0];
    if (models.size() > 1) {
        text += "; there is also ";
        for (std::size_t i = 1; i < std::min<std::size_t>(models.size(), 6); ++i)
            text += (i > 1 ? ", " : "") + models[i];
        if (models.size() > 6) text += " and " + std::to_string(models.size() - 6) + " more";
    }
    return text;
}

std::string command_for_model(const std::vector<std::string>& args) {
    const bool named = args.size() > 1 && (args[0] == "-m" || args[0] == "--model");
    const std::string given = named ? args[1] : args.empty() ? std::string() : args[0];
    const std::string path = cached_path(given);
    if (path.empty()) return given.empty() ? "" : "chat";  // of what will be downloaded
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) return {};
    char magic[4] = {};
    if (!std::ifstream(path, std::ios::binary).read(magic, 4) || std::string_view(magic, 4) != "GGUF") return {};
    try {
        return tinfer::ModelFile::open(path).metadata_value("tokenizer.chat_template") ? "chat" : "run";
    } catch (const tinfer::Error&) {
        return "run";  // which reports what is wrong with the file
    }
}

std::string no_command_text() {
    const auto models = models_nearby();
    return "a command is needed: tinfer chat " + (models.empty() ? std::string("MODEL.gguf") : models[0]) +
           " talks, tinfer --help shows the others";
}

}  // namespace tinfer::app
