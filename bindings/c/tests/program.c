/* SPDX-License-Identifier: MIT
 * Goes on with a text. The logits of the prompt's tokens go to a file, if one is named.
 *     program model.gguf "Once upon a time" [logits] */
#include <stdio.h>
#include <string.h>
#include <tinfer.h>

#define CHECK(call) if ((call) != TINFER_OK) return fprintf(stderr, "%s\n", tinfer_last_error()), 1

int main(int argc, char** argv) {
    tinfer_model* model = NULL;
    tinfer_context* context = NULL;
    tinfer_sampler* sampler = NULL;
    tinfer_context_options options;
    tinfer_sampler_options greedy;
    int32_t tokens[256], token;
    size_t n, n_row;
    const float* row;
    char piece[64];
    if (argc < 3 || tinfer_abi_version() != TINFER_ABI_VERSION) return 2;
    CHECK(tinfer_model_load(argv[1], NULL, &model));
    tinfer_context_options_init(&options);
    options.logits_all = 1;
    CHECK(tinfer_context_create(model, &options, &context));
    tinfer_sampler_options_init(&greedy);
    greedy.temperature = 0;
    CHECK(tinfer_sampler_create(model, &greedy, &sampler));
    CHECK(tinfer_tokenize(model, argv[2], strlen(argv[2]), TINFER_ADD_SPECIAL, tokens, 256, &n));
    CHECK(tinfer_decode(context, tokens, n));
    FILE* file = argc > 3 ? fopen(argv[3], "wb") : NULL;
    for (int32_t i = 0; file != NULL && i < tinfer_n_outputs(context); ++i) {
        CHECK(tinfer_logits(context, i, &row, &n_row));
        fwrite(row, sizeof *row, n_row, file);
    }
    if (file != NULL) fclose(file);
    for (int i = 0; i < 8; ++i) {
        CHECK(tinfer_sample(sampler, context, -1, &token));
        if (tinfer_token_is_eog(model, token)) break;
        CHECK(tinfer_detokenize(model, &token, 1, 0, piece, sizeof piece, &n));
        fwrite(piece, 1, n, stdout);
        CHECK(tinfer_decode(context, &token, 1));
    }
    tinfer_sampler_free(sampler);
    tinfer_context_free(context);
    tinfer_model_free(model);
    return 0;
}
