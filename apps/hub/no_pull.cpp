// SPDX-License-Identifier: MIT
// A build without cpp-httplib and OpenSSL: names are looked up in the cache, and nothing is fetched.
#include <tinfer/base.hpp>

#include "cache.hpp"

namespace tinfer::hub {

bool can_download() noexcept { return false; }

Pulled pull(std::string_view text, const Settings& settings, PullAction) {
    throw Error(ErrorCode::not_available, parse_hub_name(text).text() + ": not in the cache " +
                                              settings.cache.string() +
                                              ", and this tinfer was built without cpp-httplib and OpenSSL, which "
                                              "downloading needs");
}

}  // namespace tinfer::hub
