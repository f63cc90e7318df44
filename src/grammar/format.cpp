// SPDX-License-Identifier: MIT
#include "grammar/format.hpp"

#include <string>

#include "grammar/regex.hpp"

namespace tinfer::grammar {
namespace {

// RFC 3339 §5.6, with the lengths of months; leap seconds only at 23:59:60 UTC.
std::string leap_day() { return "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"; }
std::string date() {
    return "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
           "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
           leap_day() + "-02-29)";
}
std::string zone() { return "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"; }
std::string time_of_day() {
    return std::string("(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?") + zone() +
           "|23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00))";
}
// RFC 3339 appendix A.
std::string duration() {
    return "P(?:[0-9]+W|(?:(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
           "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?"
           "|T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)))";
}
std::string ipv4_byte() { return "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"; }
std::string ipv4() { return std::string("(?:") + ipv4_byte() + "\\.){3}" + ipv4_byte(); }
std::string label() { return "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"; }
std::string hostname() { return label() + "(?:\\." + label() + ")*"; }

/// RFC 4291 §2.2: eight groups, with one run of zeros as "::", the last two perhaps as IPv4.
std::string ipv6() {
    const std::string group = "[0-9A-Fa-f]{1,4}";
    const std::string last = "(?:" + group + ":" + group + "|" + ipv4() + ")";
    std::string out = "(?:(?:" + group + ":){6}" + last;
    for (int before = 0; before <= 5; ++before) {  // number of groups before "::"
        const int after = 5 - before;
        const std::string exact = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
        out += "|" + exact + "::(?:" + group + ":){0," + std::to_string(after) + "}" + last;
    }
    for (int before = 0; before <= 6; ++before) {
        const std::string exact = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
        out += "|" + exact + "::" + group;
    }
    for (int before = 0; before <= 7; ++before) {
        const std::string exact = before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
        out += "|" + exact + "::";
    }
    return out + ")";
}

// RFC 3986 appendix A.
std::string path_character() { return "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"; }
std::string user_info() { return "(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@"; }
std::string reg_name() { return "(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"; }

std::string authority_path() {
    const std::string host =
        "(?:\\[(?:" + ipv6() + "|[vV][0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]|" + reg_name() + ")";
    return std::string("//(?:") + user_info() + ")?" + host + "(?::[0-9]*)?(?:/" + path_character() + "*)*";
}
std::string query_and_fragment() {
    return std::string("(?:\\?(?:[/?]|") + path_character() + ")*)?(?:#(?:[/?]|" + path_character() + ")*)?";
}

std::string uri() {
    return std::string("[A-Za-z][A-Za-z0-9+.-]*:(?:") + authority_path() + "|/(?:" + path_character() + "+(?:/" +
           path_character() + "*)*)?|" + path_character() + "+(?:/" + path_character() + "*)*|)" + query_and_fragment();
}
std::string uri_reference() {
    const std::string no_colon = "(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})";
    return std::string("(?:") + uri() + "|(?:" + authority_path() + "|/(?:" + path_character() + "+(?:/" +
           path_character() + "*)*)?|" + no_colon + "+(?:/" + path_character() + "*)*|)" + query_and_fragment() + ")";
}

std::string atom() { return "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"; }
std::string email() {
    return std::string("(?:") + atom() + "(?:\\." + atom() +
           ")*|\"(?:[\\x20\\x21\\x23-\\x5B\\x5D-\\x7E]|\\\\[\\x20-\\x7E])*\")@(?:" + hostname() + "|\\[" + ipv4() +
           "\\]|\\[IPv6:" + ipv6() + "\\])";
}

}  // namespace

std::shared_ptr<const Dfa> format_dfa(std::string_view name) {
    std::string pattern;
    if (name == "date") pattern = date();
    else if (name == "time") pattern = time_of_day();
    else if (name == "date-time") pattern = date() + "[Tt]" + time_of_day();
    else if (name == "duration") pattern = duration();
    else if (name == "email") pattern = email();
    else if (name == "hostname") pattern = hostname();
    else if (name == "ipv4") pattern = ipv4();
    else if (name == "ipv6") pattern = ipv6();
    else if (name == "uri") pattern = uri();
    else if (name == "uri-reference") pattern = uri_reference();
    else if (name == "uuid") pattern = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
    else return nullptr;
    Dfa dfa = compile_regex("^(?:" + pattern + ")$");
    return std::make_shared<const Dfa>(std::move(dfa));
}

}  // namespace tinfer::grammar
