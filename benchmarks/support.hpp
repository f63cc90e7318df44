// SPDX-License-Identifier: MIT
// What every benchmark needs besides its subject: options, threads that start together, the best of many runs, the
// roofs of the machine, and records that a person can read (columns) or a script can compare (JSON lines).
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "roof.hpp"

namespace tinfer::bench {

/// `--name value` and `--name` as given; asking for a name makes it known, and finish() refuses what nobody asked for.
class Options {
public:
    Options(int argc, char** argv, std::string_view usage);
    [[nodiscard]] bool flag(std::string_view name);
    [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise);
    [[nodiscard]] double number(std::string_view name, double otherwise);
    [[nodiscard]] std::vector<std::string> list(std::string_view name, std::string_view otherwise);  ///< a,b,c
    [[nodiscard]] std::vector<int> numbers(std::string_view name, std::string_view otherwise);
    /// Throws for options that no call above knows; prints `usage` and ends the program for --help.
    void finish() const;

private:
    std::string usage_;
    std::map<std::string, std::string, std::less<>> given_;
    std::map<std::string, bool, std::less<>> asked_;
};

/// One line of results: names and values in the order they were added.
class Record {
public:
    explicit Record(std::string_view benchmark) { add("bench", benchmark); }
    Record& add(std::string_view name, std::string_view value);
    Record& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
    Record& add(std::string_view name, std::integral auto value) { return put(name, std::to_string(value)); }
    Record& add(std::string_view name, double value, int digits = 2);
    /// A share of a roof in percent.
    Record& percent(std::string_view name, double value, double roof) { return add(name, 100 * value / roof, 1); }

    struct Field {
        std::string name, value;
        bool quoted;
    };
    [[nodiscard]] const std::vector<Field>& fields() const noexcept { return fields_; }

private:
    Record& put(std::string_view name, std::string value);
    std::vector<Field> fields_;
};

/// Prints records: as JSON lines, or in columns with a line of names wherever they change.
class Printer {
public:
    explicit Printer(bool as_json) : as_json_(as_json) {}
    void print(const Record& record);

private:
    bool as_json_;
    std::vector<std::string> heading_;
};

/// "Intel(R) Xeon(R) Processor": as the system calls the processor.
[[nodiscard]] std::string cpu_name();
/// Bytes of the L2 cache of a core; 1 MiB where the system does not say.
[[nodiscard]] std::size_t l2_bytes() noexcept;

/// `main` of a benchmark: runs it, and turns exceptions into one line and exit code 1.
int run_main(std::string_view name, const std::function<void()>& benchmark);

}  // namespace tinfer::bench
