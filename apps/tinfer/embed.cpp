// SPDX-License-Identifier: MIT
// tinfer embed: one vector per line of text, many lines in one decode; each equals that of the line alone, bit for bit.
#include "common.hpp"
#include "output_file.hpp"

#include <algorithm>
#include <bit>
#include <sstream>

namespace tinfer::app {

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
    std::size_t number = 0;  ///< from 0
    std::vector<tinfer::Token> tokens;
    std::size_t n_closing = 0;  ///< tokens at the end added by the vocabulary: EOS, SEP

    [[nodiscard]] std::string name() const { return "line " + std::to_string(number + 1); }
};

/// Number of tokens that the vocabulary added at the end of the text.
std::size_t count_closing(std::span<const tinfer::Token> tokens, std::span<const tinfer::Token> plain) {
    const std::size_t n_added = tokens.size() - plain.size();
    for (std::size_t front = 0; front < n_added; ++front)
        if (std::equal(plain.begin(), plain.end(), tokens.begin() + static_cast<std::ptrdiff_t>(front)))
            return n_added - front;
    return 0;
}

/// Includes empty lines, so that rows and lines of the file correspond.
std::vector<Line> read_lines(const EmbedArgs& args, const tinfer::Vocab& vocab) {
    std::vector<Line> lines;
    std::string text = args.text.read();
    if (args.text.prompt_option->count() > 0) text += '\n';  // one text, even if empty
    std::istringstream stream(text);
    auto options = args.encode.get();
    for (std::string line; std::getline(stream, line);) {
        if (line.ends_with('\r')) line.pop_back();
        lines.push_back({lines.size(), vocab.encode(line, options)});
        if (!args.truncate || !options.add_special) continue;
        auto plain_options = options;
        plain_options.add_special = false;
        lines.back().n_closing = count_closing(lines.back().tokens, vocab.encode(line, plain_options));
    }
    if (lines.empty()) note("tinfer: there are no lines to embed");
    return lines;
}

/// Lines that are too long are an error, or with --truncate are cut, which is reported. Closing tokens stay, so that
/// the vector equals that of the shortened text.
void limit_lines(std::vector<Line>& lines, std::size_t most, bool truncate) {
    for (Line& line : lines) {
        if (line.tokens.size() <= most) continue;
        const std::string what =
            line.name() + " has " + std::to_string(line.tokens.size()) + " tokens, limit " + std::to_string(most);
        if (!truncate)
            throw tinfer::Error(tinfer::ErrorCode::limit_exceeded, what + " (see --ctx, --ubatch and --truncate)");
        note("tinfer: warning: " + what + ": cut", Look::warning);
        const auto first = line.tokens.begin() + static_cast<std::ptrdiff_t>(most - std::min(line.n_closing, most));
        line.tokens.erase(first, line.tokens.end() - static_cast<std::ptrdiff_t>(std::min(line.n_closing, most)));
    }
}

class Embedder {
public:
    Embedder(const EmbedArgs& args, const tinfer::Model& model) : args_(args), context_(model, options(args, model)) {}

    /// Maximum tokens of one decode, which a bidirectional model computes all at once.
    [[nodiscard]] std::size_t capacity() const {
        const auto& o = context_.options();
        return static_cast<std::size_t>(o.attention == tinfer::AttentionKind::causal ? o.n_batch
                                                                                     : std::min(o.n_batch, o.n_ubatch));
    }
    /// Maximum tokens of one line: limited by the model's positions.
    [[nodiscard]] std::size_t longest_line() const {
        return std::min(capacity(), static_cast<std::size_t>(std::max(context_.room(tinfer::SeqId{0}), 0)));
    }
    /// Dimension of the vectors.
    [[nodiscard]] std::size_t width() const {
        const auto& info = context_.model().info();
        const int all = context_.options().pooling == tinfer::Pooling::rank ? info.n_class : info.n_embd;
        return static_cast<std::size_t>(args_.dimensions > 0 ? std::min(args_.dimensions, all) : all);
    }

    /// Vectors of as many leading lines as fit one decode; empty for a line without tokens. No vectors if interrupted.
    std::vector<std::vector<float>> next(std::span<const Line> lines) {
        tinfer::Batch batch;
        int n = 0;
        for (; n < std::min(args_.n_parallel, static_cast<int>(lines.size())); ++n) {
            const auto& tokens = lines[static_cast<std::size_t>(n)].tokens;
            if (batch.size() + tokens.size() > capacity()) break;
            for (std::size_t i = 0; i < tokens.size(); ++i)
                batch.add(tokens[i], tinfer::Pos{static_cast<int>(i)}, tinfer::SeqId{n}, false);
        }
        context_.clear();
        const auto status = batch.empty() ? tinfer::DecodeStatus::ok : context_.decode(batch);
        if (status == tinfer::DecodeStatus::cancelled) return {};
        if (status == tinfer::DecodeStatus::no_room)
            throw tinfer::Error(tinfer::ErrorCode::no_room, "the lines do not fit: see --ctx");
        std::vector<std::vector<float>> out;
        for (int s = 0; s < n; ++s) {
            const Line& line = lines[static_cast<std::size_t>(s)];
            if (line.tokens.empty()) {
                out.emplace_back();
                continue;
            }
            const auto row = vector_of(tinfer::SeqId{s}, line);
            out.emplace_back(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(std::min(width(), row.size())));
            if (context_.options().pooling != tinfer::Pooling::rank) tinfer::normalize(out.back(), args_.norm);
        }
        return out;
    }

private:
    std::span<const float> vector_of(tinfer::SeqId seq, const Line& line) const try {
        return context_.pooled(seq);
    } catch (const tinfer::Error& error) {
        if (error.code() != tinfer::ErrorCode::non_finite) throw;
        refuse_not_finite(context_.model(), line.name());
    }

    static tinfer::ContextOptions options(const EmbedArgs& args, const tinfer::Model& model) {
        auto options = args.context.options(args.model, model.info(), 0);
        options.embeddings = true;
        options.pooling = args.pooling == "auto" ? tinfer::Pooling::from_model : parse_pooling(args.pooling);
        if (args.pooling == "auto" && model.info().pooling == tinfer::Pooling::none)
            options.pooling = tinfer::Pooling::mean;
        options.n_seq_max = args.n_parallel;
        return options;
    }

    const EmbedArgs& args_;
    tinfer::Context context_;
};

int embed(const EmbedArgs& args) {
    args.model.require();
    args.text.require();
    check_output(args.out, "--output", args.model.files);
    const auto model = args.model.load();
    auto lines = read_lines(args, model.vocab());
    if (interrupted()) return kInterrupted;
    Embedder embedder(args, model);
    limit_lines(lines, embedder.longest_line(), args.truncate);

    std::vector<float> values;
    Progress progress("line");
    for (std::size_t at = 0; at < lines.size();) {
        if (!args.out.empty()) progress.update(at, lines.size());
        const auto rows = embedder.next(std::span(lines).subspan(at));
        if (rows.empty()) return kInterrupted;
        for (const auto& row : rows) {
            const Line& line = lines[at++];
            if (row.empty())
                note("tinfer: warning: " + line.name() +
                         " has no tokens: " + (args.out.empty() ? "no vector" : "zeros"),
                     Look::warning);
            if (args.out.empty())
                print_line({{"index", line.number},
                            {"tokens", line.tokens.size()},
                            {"embedding", row.empty() ? Json(nullptr) : Json(row)}});
            values.insert(values.end(), row.begin(), row.end());
            values.resize(args.out.empty() ? 0 : at * embedder.width());
        }
    }
    progress.clear();
    if (args.out.empty()) return 0;
    static_assert(std::endian::native == std::endian::little, "the file is little-endian");
    write_file(args.out, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    print_line({{"rows", lines.size()}, {"n_embd", embedder.width()}, {"sha256", hash_floats(values)}});
    return 0;
}

}  // namespace

Action add_embed(CLI::App& app) {
    auto args = std::make_shared<EmbedArgs>();
    auto* command = app.add_subcommand("embed", "Turns each line of text into one vector: JSON lines, or raw floats.");
    args->text.add_to(*command);
    args->model.add_to(*command);
    args->encode.add_to(*command);
    command->add_option("--pooling", args->pooling, "mean, cls, last or rank; auto = as the file says, else mean")
        ->check(one_of({"auto", "mean", "cls", "last", "rank"}))
        ->type_name("KIND")
        ->group("Output");
    command
        ->add_option("--normalize", args->norm, "to length 1 in the p-norm; 0 = largest value 32760, -1 = not at all")
        ->check(number(-1))
        ->type_name("P")
        ->group("Output");
    command->add_option("--dimensions", args->dimensions, "keep the first N values, then normalize")
        ->check(whole(1))
        ->default_str("all")
        ->type_name("N")
        ->group("Output");
    command->add_option("-o,--output", args->out, "raw float32, little-endian, [lines, n_embd]")
        ->type_name("FILE")
        ->group("Output");
    command->add_flag("--truncate", args->truncate, "cut lines that are too long, and say so")->group("Output");
    command->add_option("--parallel", args->n_parallel, "most lines of one decode")
        ->check(whole(1, 256))
        ->type_name("N")
        ->group("Context");
    command->add_flag("--json", args->as_json, "accepted: the output is JSON anyway")->group(rare("Output"));
    args->context.add_to(*command);
    args->context.add_threads_to(*command);
    command->footer("\nExamples:\n  tinfer embed model.gguf -p 'a sentence'\n  tinfer embed model.gguf -f lines.txt -o "
                    "vectors.f32 --dimensions 256");
    return [args] { return embed(*args); };
}

}  // namespace tinfer::app
