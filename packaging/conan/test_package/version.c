/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <tinfer.h>

int main(void) {
    tinfer_model* model = NULL;
    if (tinfer_abi_version() != TINFER_ABI_VERSION) return 2;
    if (tinfer_model_load("no-such-file.gguf", NULL, &model) == TINFER_OK) return 1;
    puts(tinfer_last_error());
    return 0;
}
