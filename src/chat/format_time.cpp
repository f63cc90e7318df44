// SPDX-License-Identifier: MIT
// strftime with English names whatever the locale, because a prompt must not depend on the machine.
#include <array>

#include "base/error.hpp"
#include "chat/interpreter.hpp"

namespace tinfer::chat {
namespace {

constexpr std::array<std::string_view, 7> kDays{"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths{"January",   "February", "March",    "April",
                                                   "May",       "June",     "July",     "August",
                                                   "September", "October",  "November", "December"};

std::string digits(int value, std::size_t width, char fill = '0') {
    std::string out = std::to_string(value);
    return out.size() < width ? std::string(width - out.size(), fill) + out : out;
}

/// Weeks that begin at `first_day` (0: Sunday, 1: Monday); days before the first one are week 0.
int week_of_year(const std::tm& time, int first_day) {
    return (time.tm_yday + 7 - (time.tm_wday + 7 - first_day) % 7) / 7;
}

struct IsoWeek {
    int year, week;
};

/// ISO 8601: week 1 is the one with the first Thursday of the year.
IsoWeek iso_week(const std::tm& time) {
    const int weekday = (time.tm_wday + 6) % 7;  // 0: Monday
    const int year = time.tm_year + 1900;
    const int week = (time.tm_yday - weekday + 10) / 7;
    const auto weeks_in = [](int y) {
        const auto last_weekday = [](int z) { return (z + z / 4 - z / 100 + z / 400) % 7; };  // of 31 December
        return last_weekday(y) == 4 || last_weekday(y - 1) == 3 ? 53 : 52;
    };
    if (week < 1) return {year - 1, weeks_in(year - 1)};
    if (week > weeks_in(year)) return {year + 1, 1};
    return {year, week};
}

std::string plain_time(std::string_view format, const std::tm& time);

std::string one(char specifier, const std::tm& time) {
    const auto day = kDays[static_cast<std::size_t>(time.tm_wday) % 7],
               month = kMonths[static_cast<std::size_t>(time.tm_mon) % 12];
    const int year = time.tm_year + 1900, hour12 = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
    switch (specifier) {
        case 'a': return std::string(day.substr(0, 3));
        case 'A': return std::string(day);
        case 'b':
        case 'h': return std::string(month.substr(0, 3));
        case 'B': return std::string(month);
        case 'c': return plain_time("%a %b %e %H:%M:%S %Y", time);
        case 'C': return digits(year / 100, 2);
        case 'd': return digits(time.tm_mday, 2);
        case 'D':
        case 'x': return plain_time("%m/%d/%y", time);
        case 'e': return digits(time.tm_mday, 2, ' ');
        case 'f': return "000000";
        case 'F': return plain_time("%Y-%m-%d", time);
        case 'g': return digits(iso_week(time).year % 100, 2);
        case 'G': return digits(iso_week(time).year, 4);
        case 'H': return digits(time.tm_hour, 2);
        case 'I': return digits(hour12, 2);
        case 'j': return digits(time.tm_yday + 1, 3);
        case 'k': return digits(time.tm_hour, 2, ' ');
        case 'l': return digits(hour12, 2, ' ');
        case 'm': return digits(time.tm_mon + 1, 2);
        case 'M': return digits(time.tm_min, 2);
        case 'n': return "\n";
        case 'p': return time.tm_hour < 12 ? "AM" : "PM";
        case 'P': return time.tm_hour < 12 ? "am" : "pm";
        case 'r': return plain_time("%I:%M:%S %p", time);
        case 'R': return plain_time("%H:%M", time);
        case 'S': return digits(time.tm_sec, 2);
        case 't': return "\t";
        case 'T':
        case 'X': return plain_time("%H:%M:%S", time);
        case 'u': return digits(time.tm_wday == 0 ? 7 : time.tm_wday, 1);
        case 'U': return digits(week_of_year(time, 0), 2);
        case 'V': return digits(iso_week(time).week, 2);
        case 'w': return digits(time.tm_wday, 1);
        case 'W': return digits(week_of_year(time, 1), 2);
        case 'y': return digits(year % 100, 2);
        case 'Y': return digits(year, 1);
        case 'z':
        case 'Z': return {};  // the caller's clock has no zone
        case '%': return "%";
        default: return {'%', specifier};
    }
}

/// Calls write(text) for each piece of the formatted time.
template <class Write>
void write_time(std::string_view format, const std::tm& time, Write&& write) {
    for (std::size_t at = 0; at < format.size(); ++at) {
        if (format[at] != '%' || at + 1 == format.size()) {
            write(format.substr(at, 1));
            continue;
        }
        ++at;
        // "-" leaves out the padding of a number; E and O choose a locale's other forms, which English has not.
        const bool plain = format[at] == '-' && at + 1 < format.size();
        if ((plain || format[at] == 'E' || format[at] == 'O') && at + 1 < format.size()) ++at;
        std::string text = one(format[at], time);
        if (plain) {
            const std::size_t keep = std::min(text.find_first_not_of("0 "), text.size() - (text.empty() ? 0 : 1));
            text.erase(0, keep);
        }
        write(text);
    }
}

/// Of the short formats above.
std::string plain_time(std::string_view format, const std::tm& time) {
    std::string out;
    write_time(format, time, [&](std::string_view text) { out += text; });
    return out;
}

}  // namespace

OriginText format_time(const OriginText& format, const std::tm& time) {
    OriginText out(format.heap());
    write_time(format.bytes(), time, [&](std::string_view text) { out.append(text, format.main_origin()); });
    return out;
}

}  // namespace tinfer::chat
