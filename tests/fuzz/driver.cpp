// SPDX-License-Identifier: MIT
// A main for fuzz targets where there is no libFuzzer: runs LLVMFuzzerTestOneInput on seeds and on deterministic
// mutations of them that know a little of binary formats (interesting integers at any place, cuts, splices). Fails on
// an exception that leaves the target and on an input that takes longer than a second; sanitizers find the rest.
//
//     fuzz_gguf [--runs N] [--seed S] [--failures FOLDER] [--lines FILE]… <seed file or folder>…
//
// A file of lines has an input a line, with \xNN and \\ for what is not printable: tests/fuzz/corpus.
// Equal arguments give equal inputs. Before each run the input lies in FOLDER/last when that is given, so that a run
// which ends the process can be repeated: fuzz_gguf --runs 0 FOLDER/last.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Input = std::vector<std::uint8_t>;

struct Arguments {
    std::uint64_t runs = 10000, seed = 1;
    std::filesystem::path failures;
    std::vector<std::filesystem::path> seeds, lines;
};

Input read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::filesystem::path& path, const Input& input) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

std::vector<Input> read_seeds(const std::vector<std::filesystem::path>& paths) {
    std::vector<std::filesystem::path> files;
    for (const auto& path : paths) {
        if (!std::filesystem::exists(path)) throw std::runtime_error("no seeds at " + path.string());
        if (!std::filesystem::is_directory(path)) files.push_back(path);
        else
            for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
                if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());  // the order of a folder is the file system's whim
    std::vector<Input> seeds;
    for (const auto& file : files) seeds.push_back(read_file(file));
    if (seeds.empty()) seeds.emplace_back();
    return seeds;
}

/// The inputs of a file of lines.
void read_lines(const std::filesystem::path& path, std::vector<Input>& seeds) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("no lines at " + path.string());
    for (std::string line; std::getline(file, line);) {
        Input& input = seeds.emplace_back();
        for (std::size_t i = 0; i < line.size(); ++i) {
            if (line[i] != '\\') input.push_back(static_cast<std::uint8_t>(line[i]));
            else if (line[++i] == '\\') input.push_back('\\');
            else input.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i + 1, 2), nullptr, 16))), i += 2;
        }
    }
}

class Mutator {
public:
    Mutator(const std::vector<Input>& seeds, std::uint64_t seed) : seeds_(seeds), random_(seed) {}

    Input next() {
        Input input = seeds_[below(seeds_.size())];
        for (std::size_t steps = 1 + below(below(8) + 1); steps != 0; --steps) mutate(input);
        return input;
    }

private:
    std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

    std::uint64_t interesting() {
        constexpr std::uint64_t edges[] = {0,
                                           1,
                                           2,
                                           3,
                                           4,
                                           7,
                                           8,
                                           9,
                                           12,
                                           13,
                                           16,
                                           31,
                                           32,
                                           64,
                                           127,
                                           128,
                                           255,
                                           256,
                                           1024,
                                           4096,
                                           65535,
                                           65536,
                                           0x7fffffff,
                                           0x80000000,
                                           0xffffffff,
                                           0x100000000,
                                           0x7fffffffffffffff,
                                           0x8000000000000000,
                                           0xffffffffffffffff,
                                           0xffffffffffffffe0,
                                           0x3fffffffffffffff,
                                           0x1000000000000000};
        const std::uint64_t edge = edges[below(std::size(edges))];
        return below(4) == 0 ? edge + below(5) - 2 : edge;
    }

    void put(Input& input, std::size_t width) {
        if (input.size() < width) return;
        const std::uint64_t value = interesting();
        std::memcpy(input.data() + below(input.size() - width + 1), &value, width);  // little-endian
    }

    void mutate(Input& input) {
        const std::size_t at = below(input.size()), length = below(std::min<std::size_t>(input.size() - at, 64) + 1);
        const auto place = input.begin() + static_cast<std::ptrdiff_t>(at);
        switch (below(11)) {
            case 0:
                if (!input.empty()) *place ^= static_cast<std::uint8_t>(1u << below(8));
                break;
            case 1:
                if (!input.empty()) *place = static_cast<std::uint8_t>(random_());
                break;
            case 2: put(input, 1); break;
            case 3: put(input, 2); break;
            case 4:
            case 5: put(input, 4); break;
            case 6:
            case 7: put(input, 8); break;
            case 8: input.resize(at); break;
            case 9: splice(input, at); break;
            default:
                if (below(2) == 0) input.erase(place, place + static_cast<std::ptrdiff_t>(length));
                else input.insert(place, length, static_cast<std::uint8_t>(interesting()));
        }
    }

    /// Replaces or inserts a piece of another seed.
    void splice(Input& input, std::size_t at) {
        const Input& other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size()), length = below(other.size() - from + 1);
        const auto begin = other.begin() + static_cast<std::ptrdiff_t>(from);
        if (below(2) == 0) input.resize(at);
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), begin,
                     begin + static_cast<std::ptrdiff_t>(length));
    }

    const std::vector<Input>& seeds_;
    std::mt19937_64 random_;
};

class Runner {
public:
    explicit Runner(std::filesystem::path failures) : failures_(std::move(failures)) {
        if (!failures_.empty()) std::filesystem::create_directories(failures_);
    }

    /// False when the input is a finding.
    bool run(const Input& input) {
        if (!failures_.empty()) write_file(failures_ / "last", input);
        const std::clock_t begin = std::clock();  // processor time: a busy machine is no finding
        try {
            LLVMFuzzerTestOneInput(input.data(), input.size());
        } catch (const std::exception& error) {
            return report(input, std::string("exception left the target: ") + error.what());
        }
        const double taken = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
        slowest_ = std::max(slowest_, taken);
        ++count_;
        return taken <= 1.0 || report(input, "took " + std::to_string(taken) + " s");
    }

    [[nodiscard]] std::uint64_t count() const { return count_; }
    [[nodiscard]] double slowest() const { return slowest_; }

private:
    bool report(const Input& input, const std::string& text) {
        std::fprintf(stderr, "run %llu, %zu bytes: %s\n", static_cast<unsigned long long>(count_), input.size(),
                     text.c_str());
        if (!failures_.empty()) write_file(failures_ / ("finding-" + std::to_string(count_)), input);
        return false;
    }

    std::filesystem::path failures_;
    std::uint64_t count_ = 0;
    double slowest_ = 0;
};

Arguments parse_arguments(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view word = argv[i];
        const char* value = i + 1 < argc ? argv[i + 1] : "";
        if (word == "--runs") arguments.runs = std::strtoull(value, nullptr, 10), ++i;
        else if (word == "--seed") arguments.seed = std::strtoull(value, nullptr, 10), ++i;
        else if (word == "--failures") arguments.failures = value, ++i;
        else if (word == "--lines") arguments.lines.emplace_back(value), ++i;
        else arguments.seeds.emplace_back(word);
    }
    return arguments;
}

}  // namespace

int main(int argc, char** argv) {
    const Arguments arguments = parse_arguments(argc, argv);
    auto seeds = read_seeds(arguments.seeds);
    for (const auto& file : arguments.lines) read_lines(file, seeds);
    Runner runner(arguments.failures);
    bool clean = true;
    for (const Input& seed : seeds) clean = runner.run(seed) && clean;
    Mutator mutator(seeds, arguments.seed);
    for (std::uint64_t i = 0; i < arguments.runs && clean; ++i) clean = runner.run(mutator.next());
    std::printf("%llu runs from %zu seeds, slowest %.3f s: %s\n", static_cast<unsigned long long>(runner.count()),
                seeds.size(), runner.slowest(), clean ? "nothing found" : "FINDING");
    return clean ? 0 : 1;
}
