# SPDX-License-Identifier: MIT
# Cross builds for 64-bit ARM with the compiler of Debian and Ubuntu, and the emulator that runs the programs (preset
# aarch64). PCRE2, utf8proc and run-time libraries come from arm64 packages; header-only libraries are the host's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)

# -cpu max: with the dot-product extension. No -L to the cross compiler's C library: the loader would mix it with that
# of arm64, and their internals are incompatible.
find_program(TINFER_QEMU NAMES qemu-aarch64-static qemu-aarch64)
mark_as_advanced(TINFER_QEMU)
if(TINFER_QEMU)
    set(CMAKE_CROSSCOMPILING_EMULATOR ${TINFER_QEMU} -cpu max)
endif()
