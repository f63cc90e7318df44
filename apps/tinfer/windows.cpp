// SPDX-License-Identifier: MIT
#include "windows.hpp"

#include <algorithm>

namespace tinfer::app {

std::size_t TextWindows::n_outputs(WindowOutputs outputs) const {
    if (outputs == WindowOutputs::all) return length;
    return outputs == WindowOutputs::last ? 1 : length - 1 - length / 2;
}

bool TextWindows::decode(tinfer::Context& context, std::size_t i, WindowOutputs outputs) const {
    const auto given = window(i);
    const std::size_t first = length / 2;
    tinfer::Batch batch;
    for (std::size_t j = 0; j < length; ++j) {
        const bool has_output = outputs == WindowOutputs::all || (outputs == WindowOutputs::last && j + 1 == length) ||
                                (outputs == WindowOutputs::second_half && j >= first && j + 1 < length);
        batch.add(j == 0 && bos ? *bos : given[j], tinfer::Pos{static_cast<int>(j)}, tinfer::SeqId{0}, has_output);
    }
    context.clear();
    const auto status = context.decode(batch);
    if (status == tinfer::DecodeStatus::no_room)
        throw tinfer::Error(tinfer::ErrorCode::no_room,
                            "a window of " + std::to_string(length) + " tokens does not fit the context (see --ctx)");
    return status != tinfer::DecodeStatus::cancelled;
}

TextWindows cut_text(const tinfer::Vocab& vocab, const std::string& text, std::size_t length, std::size_t least,
                     std::size_t most) {
    if (vocab.add_eos())
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                            "the vocabulary ends every text with EOS: no windows of it");
    TextWindows windows{vocab.encode(text), vocab.add_bos() ? vocab.bos() : std::nullopt, length, 0};
    if (length < 4 || windows.tokens.size() < least * length)
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "the text has " + std::to_string(windows.tokens.size()) +
                                                                  " tokens, " + std::to_string(least) + " windows of " +
                                                                  std::to_string(length) + " are needed");
    windows.count = windows.tokens.size() / length;
    if (most > 0) windows.count = std::min(windows.count, most);
    return windows;
}

}  // namespace tinfer::app
