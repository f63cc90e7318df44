// SPDX-License-Identifier: MIT
#include <tinfer/tinfer.hpp>

#include <iostream>

int main() {
    std::cout << "tinfer " << tinfer::version() << '\n';
    try {
        (void)tinfer::Model::load("no-such-file.gguf");
    } catch (const tinfer::Error& error) {
        return error.code() == tinfer::ErrorCode::io_error ? 0 : 1;
    }
    return 1;
}
