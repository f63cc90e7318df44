// SPDX-License-Identifier: MIT
#pragma once

#include <sys/resource.h>

#include <cstddef>

namespace tinfer::test {

/// While it lives the process gets no more addresses than it has: nothing may be allocated that needs them.
class AddressLimit {
public:
    explicit AddressLimit(std::size_t bytes) noexcept {
        ::getrlimit(RLIMIT_AS, &before_);
        ::rlimit lower = before_;
        lower.rlim_cur = bytes;
        ::setrlimit(RLIMIT_AS, &lower);
    }
    AddressLimit(const AddressLimit&) = delete;
    AddressLimit& operator=(const AddressLimit&) = delete;
    ~AddressLimit() { ::setrlimit(RLIMIT_AS, &before_); }

private:
    ::rlimit before_{};
};

}  // namespace tinfer::test
