// SPDX-License-Identifier: MIT
#include "support/failing_calls.hpp"

#if defined(__linux__) && defined(__x86_64__)

#    include <linux/audit.h>
#    include <linux/filter.h>
#    include <linux/seccomp.h>
#    include <sys/prctl.h>
#    include <sys/syscall.h>
#    include <ucontext.h>
#    include <unistd.h>

#    include <algorithm>
#    include <array>
#    include <atomic>
#    include <cerrno>
#    include <csignal>
#    include <cstddef>
#    include <ctime>
#    include <vector>

// The only place from which the filter lets these calls through.
asm(R"(
    .text
    .globl tinfer_test_call
    .globl tinfer_test_called
    .type tinfer_test_call, @function
tinfer_test_call:
    movq %rdi, %rax
    movq %rsi, %rdi
    movq %rdx, %rsi
    movq %rcx, %rdx
    movq %r8, %r10
    movq %r9, %r8
    movq 8(%rsp), %r9
    syscall
tinfer_test_called:
    ret
    .size tinfer_test_call, . - tinfer_test_call
)");
extern "C" long tinfer_test_call(long number, long a, long b, long c, long d, long e, long f);
extern "C" const char tinfer_test_called[];

namespace tinfer::test {

namespace {

constexpr std::array<int, 4> kReads{SYS_read, SYS_pread64, SYS_readv, SYS_preadv};
constexpr std::array<int, 3> kWrites{SYS_write, SYS_pwrite64, SYS_writev},
    kSyncs{SYS_fsync, SYS_fdatasync, SYS_ftruncate};
constexpr std::array<int, 17> kOthers{SYS_open,       SYS_openat,    SYS_close,  SYS_stat,     SYS_fstat,
                                      SYS_lstat,      SYS_statx,     SYS_lseek,  SYS_rename,   SYS_mmap,
                                      SYS_mkdir,      SYS_mkdirat,   SYS_access, SYS_renameat, SYS_renameat2,
                                      SYS_getdents64, SYS_newfstatat};

constinit std::atomic<std::uint64_t> until_fault{0};
constinit std::atomic<Fault> wanted{Fault::error};
constinit std::atomic<bool> has_failed{false};

template <std::size_t n>
bool is_one_of(const std::array<int, n>& calls, long number) noexcept {
    return std::ranges::find(calls, number) != calls.end();
}

bool has_its_turn() noexcept {
    std::uint64_t left = until_fault.load();
    while (left > 0 && !until_fault.compare_exchange_weak(left, left - 1)) {
    }
    return left == 1;
}

void on_call(int, siginfo_t* info, void* context) noexcept {
    auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
    const long number = info->si_syscall;
    std::array<long, 6> a{registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                          registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    const bool reads = is_one_of(kReads, number), writes = is_one_of(kWrites, number),
               syncs = is_one_of(kSyncs, number);
    const bool has_length = number != SYS_readv && number != SYS_writev;  // of preadv it is the number of places
    const bool has_part = (reads || writes) && has_length && a[2] > 1;
    const Fault fault = wanted;
    const bool is_of_file = number != SYS_mmap || static_cast<int>(a[4]) >= 0;
    const bool can_fail = fault == Fault::error  ? is_of_file
                          : fault == Fault::part ? has_part
                          : fault == Fault::late ? reads || writes
                                                 : reads || writes || syncs;
    long result = 0;
    if (can_fail && has_its_turn()) {
        has_failed = true;
        if (number == SYS_close) (void)tinfer_test_call(number, a[0], 0, 0, 0, 0, 0);
        if (fault == Fault::part) result = tinfer_test_call(number, a[0], a[1], a[2] / 2, a[3], a[4], a[5]);
        else if (fault == Fault::interrupt) result = -EINTR;
        else if (fault == Fault::late) {
            const timespec time{.tv_sec = 1, .tv_nsec = 0};
            (void)::nanosleep(&time, nullptr);
            result = tinfer_test_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        } else result = writes ? -ENOSPC : number == SYS_mmap ? -ENOMEM : -EIO;
    } else {
        result = tinfer_test_call(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    registers[REG_RAX] = result;
}

}  // namespace

bool begin_failing_calls() noexcept {
    struct sigaction action {};
    action.sa_sigaction = on_call;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    if (::sigaction(SIGSYS, &action, nullptr) != 0) return false;
    try {
        const auto place = reinterpret_cast<std::uintptr_t>(tinfer_test_called);
        std::vector<sock_filter> program;
        const auto load = [&](std::size_t offset) {
            program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offset)));
        };
        const auto unless = [&](std::uint32_t value, std::uint8_t skipped) {
            program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped));
        };
        const auto end = [&](std::uint32_t result) { program.push_back(BPF_STMT(BPF_RET | BPF_K, result)); };
        load(offsetof(seccomp_data, instruction_pointer));
        unless(static_cast<std::uint32_t>(place), 3);
        load(offsetof(seccomp_data, instruction_pointer) + 4);
        unless(static_cast<std::uint32_t>(place >> 32), 1);
        end(SECCOMP_RET_ALLOW);
        load(offsetof(seccomp_data, nr));
        const auto trap = [&](const auto& calls) {
            for (const int number : calls) {
                unless(static_cast<std::uint32_t>(number), 1);
                end(SECCOMP_RET_TRAP);
            }
        };
        trap(kReads);
        trap(kWrites);
        trap(kSyncs);
        trap(kOthers);
        end(SECCOMP_RET_ALLOW);
        const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
        return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
    } catch (...) {
        return false;
    }
}

void fail_call_at(std::uint64_t n, Fault fault) noexcept {
    wanted = fault;
    has_failed = false;
    until_fault = n;
}

bool call_failed() noexcept { return has_failed; }

}  // namespace tinfer::test

#else

namespace tinfer::test {

bool begin_failing_calls() noexcept { return false; }
void fail_call_at(std::uint64_t, Fault) noexcept {}
bool call_failed() noexcept { return false; }

}  // namespace tinfer::test

#endif
