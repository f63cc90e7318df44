// SPDX-License-Identifier: MIT
// tinfer embed: one vector per line of text, many lines in one decode; each equals that of the line alone, bit for bit.
#include "common.hpp"

#include <bit>
#include <sstream>

namespace cli {

namespace {

struct EmbedArgs {
    ModelArgs model;
    ContextArgs context;
    TextArgs text;
    EncodeArgs encode;
    std::string pooling = "auto", out;
    double norm = 2;
    int dimensions = 0, n_parallel = 32;
    bool truncate = false, as_json = false;
};

struct Line {
    std::size_t number = 0;   ///< from 0
    std::vector<tinfer::Token> tokens;
};

/// Empty lines count, so that rows and lines of the file agree.
std::vector<Line> read_lines(const EmbedArgs& args, const tinfer::Vocab& vocab) {
    std::vector<Line> lines;
    std::istringstream text(args.text.read());
    for (std::string line; std::getline(text, line);) {
        if (line.ends_with('\r')) line.pop_back();
        lines.push_back({lines.size(), vocab.encode(line, args.encode.get())});
        if (lines.back().tokens.empty())
            throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "line " + std::to_string(lines.size()) + " has no tokens");
    }
    if (lines.empty()) throw tinfer::Error(tinfer::ErrorCode::bad_parameter, "there is no text to embed");
    return lines;
}

/// What does not fit is an error, or with --truncate cut, which is reported.
void limit_lines(std::vector<Line>& lines, std::size_t most, bool truncate) {
    for (Line& line : lines) {
        if (line.tokens.size() <= most) continue;
        const std::string what = "line " + std::to_string(line.number + 1) + " has " + std::to_string(line.tokens.size()) + " tokens, limit " + std::to_string(most);
        if (!truncate) throw tinfer::Error(tinfer::ErrorCode::limit_exceeded, what + " (see --ctx, --ubatch and --truncate)");
        note("tinfer: " + what + ": cut");
        line.tokens.resize(most);
    }
}

class Embedder {
public:
    Embedder(const EmbedArgs& args, const tinfer::Model& model) : args_(args), context_(model, options(args, model)) {}

    /// Tokens of one decode: a bidirectional model computes them all at once.
    [[nodiscard]] std::size_t capacity() const {
        const auto& o = context_.options();
        return static_cast<std::size_t>(o.attention == tinfer::AttentionKind::causal ? o.n_batch : std::min(o.n_batch, o.n_ubatch));
    }

    /// Vectors of as many lines from the first on as fit; empty when interrupted.
    std::vector<std::vector<float>> next(std::span<const Line> lines) {
        tinfer::Batch batch;
        int n = 0;
        for (; n < std::min(args_.n_parallel, static_cast<int>(lines.size())); ++n) {
            const auto& tokens = lines[static_cast<std::size_t>(n)].tokens;
            if (batch.size() + tokens.size() > capacity()) break;
            for (std::size_t i = 0; i < tokens.size(); ++i) batch.add(tokens[i], tinfer::Pos{static_cast<int>(i)}, tinfer::SeqId{n}, false);
        }
        context_.clear();
        switch (context_.decode(batch)) {
        case tinfer::DecodeStatus::ok: break;
        case tinfer::DecodeStatus::cancelled: return {};
        case tinfer::DecodeStatus::no_room: throw tinfer::Error(tinfer::ErrorCode::no_room, "the lines do not fit: see --ctx");
        }
        std::vector<std::vector<float>> out;
        for (int s = 0; s < n; ++s) {
            const auto row = context_.pooled(tinfer::SeqId{s});
            const std::size_t width = args_.dimensions > 0 ? std::min<std::size_t>(row.size(), static_cast<std::size_t>(args_.dimensions)) : row.size();
            out.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(width));
            if (context_.options().pooling != tinfer::Pooling::rank) tinfer::normalize(out.back(), args_.norm);
        }
        return out;
    }

private:
    static tinfer::ContextOptions options(const EmbedArgs& args, const tinfer::Model& model) {
        auto options = args.context.options(args.model, model.info(), 0);
        options.embeddings = true;
        options.pooling = args.pooling == "auto" ? tinfer::Pooling::from_model : parse_pooling(args.pooling);
        if (args.pooling == "auto" && model.info().pooling == tinfer::Pooling::none) options.pooling = tinfer::Pooling::mean;
        options.n_seq_max = args.n_parallel;
        return options;
    }

    const EmbedArgs& args_;
    tinfer::Context context_;
};

int embed(const EmbedArgs& args) {
    const auto model = args.model.load();
    auto lines = read_lines(args, model.vocab());
    Embedder embedder(args, model);
    limit_lines(lines, embedder.capacity(), args.truncate);

    std::vector<float> values;
    for (std::size_t at = 0; at < lines.size();) {
        const auto rows = embedder.next(std::span(lines).subspan(at));
        if (rows.empty()) return kInterrupted;
        for (const auto& row : rows) {
            if (args.out.empty()) print_line({{"index", lines[at].number}, {"tokens", lines[at].tokens.size()}, {"embedding", row}});
            else values.insert(values.end(), row.begin(), row.end());
            ++at;
        }
    }
    if (args.out.empty()) return 0;
    static_assert(std::endian::native == std::endian::little, "the file is little-endian");
    write_file(args.out, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    print_line({{"rows", lines.size()}, {"n_embd", values.size() / lines.size()}, {"sha256", hash_floats(values)}});
    return 0;
}

}  // namespace

Action add_embed(CLI::App& app) {
    auto args = std::make_shared<EmbedArgs>();
    auto* command = app.add_subcommand("embed", "Turns each line of text into one vector: JSON lines, or raw floats.");
    args->model.add_to(*command);
    args->text.add_to(*command, true);
    args->encode.add_to(*command);
    command->add_option("--pooling", args->pooling, "mean, cls, last or rank; auto = as the file says, else mean")->capture_default_str()->group("Output");
    command->add_option("--normalize", args->norm, "to length 1 in the p-norm; 0 = largest value 32760, -1 = not at all")->capture_default_str()->type_name("P")->group("Output");
    command->add_option("--dimensions", args->dimensions, "keep the first N values, then normalize")->check(CLI::PositiveNumber)->type_name("N")->group("Output");
    command->add_option("-o,--output", args->out, "raw float32, little-endian, [lines, n_embd]")->type_name("FILE")->group("Output");
    command->add_flag("--truncate", args->truncate, "cut lines that are too long, and say so")->group("Output");
    command->add_option("--parallel", args->n_parallel, "most lines of one decode")->check(CLI::Range(1, 256))->capture_default_str()->type_name("N")->group("Context");
    command->add_flag("--json", args->as_json, "accepted: the output is JSON anyway")->group("Output");
    args->context.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("Examples:\n  tinfer embed -m model.gguf -p 'a sentence'\n  tinfer embed -m model.gguf -f lines.txt -o vectors.f32 --dimensions 256");
    return [args] { return embed(*args); };
}

}  // namespace cli
