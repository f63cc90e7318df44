// SPDX-License-Identifier: MIT
// The permission to use AMX registers is one of the whole process and makes its signal frames larger. So only a context
// that computes with the table `amx` asks for it. A program of its own, because nothing gives the permission back.
//
//     amx_permission MODEL.gguf: exit code 77 on machines without AMX
#include <tinfer/tinfer.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <string_view>

#if defined(__linux__) && defined(__x86_64__)
#    include <sys/syscall.h>
#    include <unistd.h>

namespace {

bool has_permission() {
    constexpr int kGetPermission = 0x1022, kTileData = 18;  // ARCH_GET_XCOMP_PERM; the bit of XCR0
    std::uint64_t permitted = 0;
    return syscall(SYS_arch_prctl, kGetPermission, &permitted) == 0 && (permitted >> kTileData & 1) != 0;
}

bool expect(bool permission, std::string_view after) {
    if (has_permission() == permission) return true;
    std::cerr << "after " << after << " the process has " << (permission ? "no " : "") << "permission for AMX\n";
    return false;
}

}  // namespace

int main(int argc, char** argv) try {
    if (argc != 2) return std::cerr << "usage: amx_permission MODEL.gguf\n", 2;
    bool fine = expect(false, "its start");
    const auto isas = tinfer::available_isas();
    fine &= expect(false, "listing the tables");
    if (std::ranges::find(isas, tinfer::Isa::amx) == isas.end()) return std::cout << "no AMX here\n", 77;
    const auto model = tinfer::Model::load(argv[1]);
    for (const tinfer::Isa isa : {tinfer::Isa::avx512vnni, tinfer::Isa::amx}) {
        tinfer::Context context(model, {.n_ctx = 32, .isa = isa});
        const std::array tokens{tinfer::Token{1}, tinfer::Token{2}};
        if (context.decode(tokens) != tinfer::DecodeStatus::ok) return 1;
        fine &= expect(isa == tinfer::Isa::amx, tinfer::to_string(isa));
    }
    return fine ? 0 : 1;
} catch (const tinfer::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
}
#else
int main() { return std::cout << "no AMX here\n", 77; }
#endif
