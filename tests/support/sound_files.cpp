// SPDX-License-Identifier: MIT
#include "support/sound_files.hpp"

#include <algorithm>

#include "support/family_model.hpp"
#include "support/gguf_copy.hpp"
#include "support/golden.hpp"
#include "support/jina_model.hpp"
#include "support/t5_model.hpp"

namespace tinfer::test {

namespace {

bool has(const std::vector<SoundFile>& files, std::string_view architecture) {
    return std::ranges::any_of(files, [&](const SoundFile& file) { return file.architecture == architecture; });
}

}  // namespace

std::vector<SoundFile> small_files() {
    std::vector<SoundFile> out;
    for (const Family& family : small_families())
        if (!has(out, family.arch)) out.push_back({family.arch, family.writer()});
    out.push_back({"jina-bert-v2", SmallJina(false, true, true, 3).file});
    out.push_back({"t5", SmallT5({}).file});
    out.push_back({"t5encoder", SmallT5({.decoder = false}).file});
    return out;
}

std::vector<SoundFile> golden_files() {
    const auto own = small_files();
    auto models = golden_models();
    std::ranges::sort(models, {}, [](const GoldenModel& model) { return std::filesystem::file_size(model.file); });
    std::vector<SoundFile> out;
    for (const GoldenModel& model : models)
        if (model.f32 && !has(own, model.architecture) && !has(out, model.architecture))
            out.push_back({model.architecture, gguf_copy(model.file)});
    return out;
}

}  // namespace tinfer::test
