// SPDX-License-Identifier: MIT
// Versions, errors, models and text.
#include "handles.hpp"

namespace tinfer_c {

namespace {

thread_local char last_error[1024] = "";

}  // namespace

tinfer_status failed(tinfer_status status, std::string_view text) noexcept {
    const std::size_t n = std::min(text.size(), sizeof last_error - 1);
    std::memcpy(last_error, text.data(), n);
    last_error[n] = '\0';
    return status;
}

}  // namespace tinfer_c

using tinfer_c::complete;
using tinfer_c::enum_of;
using tinfer_c::give;
using tinfer_c::give_all;
using tinfer_c::give_text;
using tinfer_c::guarded;
using tinfer_c::last_error;
using tinfer_c::needed;
using tinfer_c::status_of;
using tinfer_c::tokens_of;

// The codes of the header are those of the library.
static_assert(status_of(tinfer::ErrorCode::io_error) == TINFER_IO_ERROR);
static_assert(status_of(tinfer::ErrorCode::busy) == TINFER_BUSY);
static_assert(status_of(tinfer::ErrorCode::not_gguf) == TINFER_NOT_GGUF);
static_assert(status_of(tinfer::ErrorCode::missing_key) == TINFER_MISSING_KEY);
static_assert(status_of(tinfer::ErrorCode::bad_vocabulary) == TINFER_BAD_VOCABULARY);
static_assert(status_of(tinfer::ErrorCode::bad_cache_type) == TINFER_BAD_CACHE_TYPE);
static_assert(status_of(tinfer::ErrorCode::damaged) == TINFER_DAMAGED);
static_assert(status_of(tinfer::ErrorCode::no_room) == TINFER_NO_ROOM);
static_assert(status_of(tinfer::ErrorCode::template_error) == TINFER_TEMPLATE_ERROR);

uint32_t tinfer_abi_version(void) { return TINFER_ABI_VERSION; }
const char* tinfer_version(void) { return tinfer::version().data(); }
const char* tinfer_last_error(void) { return last_error; }

const char* tinfer_status_name(tinfer_status status) {
    if (status == TINFER_OK) return "ok";
    if (status == TINFER_INTERNAL) return "internal";
    if (status < 0 || status > TINFER_TEMPLATE_ERROR) return "unknown";
    return to_string(static_cast<tinfer::ErrorCode>(status - 1)).data();
}

tinfer_status tinfer_model_load(const char* path, const tinfer_model_options* options, tinfer_model** model) {
    return guarded([&] {
        auto& out = needed(model, "model");
        const auto given = complete(options, "tinfer_model_options");
        tinfer::ModelOptions how{
            .use_mmap = given.no_mmap == 0, .mlock = given.mlock != 0, .check_tensors = given.check_tensors != 0};
        how.memory_limit = given.memory_limit;
        how.layers.first = given.first_layer;
        if (given.n_layers != 0) how.layers.last = given.first_layer + given.n_layers - 1;
        if (given.progress != nullptr)
            how.progress = [given](double fraction) { return given.progress(given.user, fraction) != 0; };
        out = new tinfer_model{tinfer::Model::load(&needed(path, "path"), how)};
    });
}

void tinfer_model_free(tinfer_model* model) { delete model; }

tinfer_status tinfer_model_get_info(const tinfer_model* model, tinfer_model_info* info) {
    return guarded([&] {
        const auto& from = needed(model, "model").model.info();
        give(info, "tinfer_model_info",
             {.size = 0,
              .n_layer = from.n_layer,
              .n_embd = from.n_embd,
              .n_head = from.n_head,
              .n_vocab = from.n_vocab,
              .n_ctx_train = from.n_ctx_train,
              .n_class = from.n_class,
              .has_output_head = from.has_output_head,
              .has_encoder = from.has_encoder,
              .n_params = from.n_params,
              .weight_bytes = from.weight_bytes,
              .architecture = from.architecture.c_str(),
              .first_layer = from.layers.first,
              .last_layer = from.layers.last,
              .n_hidden_in = from.n_hidden_in,
              .n_hidden_out = from.n_hidden_out});
    });
}

tinfer_status tinfer_tokenize(const tinfer_model* model, const char* text, size_t n_bytes, uint32_t flags,
                              int32_t* tokens, size_t capacity, size_t* n) {
    return guarded([&] {
        if (n_bytes > 0) needed(text, "text");
        const auto ids = needed(model, "model")
                             .model.vocab()
                             .encode({text, n_bytes}, {.add_special = (flags & TINFER_ADD_SPECIAL) != 0,
                                                       .parse_special = (flags & TINFER_PARSE_SPECIAL) != 0});
        std::vector<std::int32_t> numbers;
        numbers.reserve(ids.size());
        for (const auto id : ids) numbers.push_back(static_cast<std::int32_t>(id));
        return give_all(std::span<const std::int32_t>(numbers), tokens, capacity, n, false);
    });
}

tinfer_status tinfer_detokenize(const tinfer_model* model, const int32_t* tokens, size_t n_tokens, uint32_t flags,
                                char* text, size_t capacity, size_t* n) {
    return guarded([&] {
        const auto ids = tokens_of(tokens, n_tokens);
        return give_text(
            needed(model, "model").model.vocab().decode(ids, {.render_special = (flags & TINFER_RENDER_SPECIAL) != 0}),
            text, capacity, n);
    });
}

int tinfer_token_is_eog(const tinfer_model* model, int32_t token) {
    return model != nullptr && model->model.vocab().is_eog(tinfer::Token{token}) ? 1 : 0;
}

tinfer_status tinfer_token_special(const tinfer_model* model, const char* name, int32_t* token) {
    return guarded([&] {
        const auto which =
            enum_of(&needed(name, "name"), tinfer::Special::fim_sep, tinfer::Special::bos, "the token's name");
        const auto found = needed(model, "model").model.vocab().special(which);
        needed(token, "token") = found ? static_cast<std::int32_t>(*found) : -1;
    });
}
