// SPDX-License-Identifier: MIT
// tinfer replay --compare: for each recorded token the choices, probabilities and divergence of two models, or of one
// with two sets of options; as a table, JSON, or an HTML page.
#include <algorithm>
#include <cmath>

#include "replay.hpp"

namespace tinfer::app {

namespace {

/// Text of a token for a table, with JSON escapes for invisible characters.
std::string shown_token(const tinfer::Vocab& vocab, tinfer::Token token) {
    if (static_cast<std::size_t>(token) >= vocab.size()) return "#" + std::to_string(static_cast<int>(token));
    return Json(std::string(vocab.piece(token, true))).dump();
}

std::string piece_of(const tinfer::Vocab& vocab, tinfer::Token token) {
    // Models with padded embeddings have more logits than tokens.
    return static_cast<std::size_t>(token) < vocab.size() ? std::string(vocab.piece(token, true)) : std::string();
}

std::string padded_to(const std::string& text, std::size_t width) {
    const std::size_t used = width_of(text);
    return used >= width ? text : text + std::string(width - used, ' ');
}

std::string padded_left(const std::string& text, std::size_t width) {
    const std::size_t used = width_of(text);
    return used >= width ? text : std::string(width - used, ' ') + text;
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

/// Headings of the table and the page.
struct Sides {
    std::string a, b;
};

std::string describe_side(const tinfer::Model& model, const tinfer::Context& context) {
    const auto& options = context.options();
    std::string text = model.file().paths().front().filename().string();
    if (options.type_k != tinfer::KvType::f16 || options.type_v != tinfer::KvType::f16)
        text += ", cache " + std::string(to_string(options.type_k)) + "/" + std::string(to_string(options.type_v));
    if (options.kv_rotation == tinfer::KvRotation::on) text += " rotated";
    return text;
}

Json side_json(const tinfer::Vocab& vocab, const tinfer::ComparedToken::Side& side) {
    Json top = Json::array();
    for (const auto& other : side.top)
        top.push_back({{"token", static_cast<std::int32_t>(other.token)},
                       {"text", piece_of(vocab, other.token)},
                       {"p", other.p}});
    return {{"choice", static_cast<std::int32_t>(side.choice)},
            {"text", piece_of(vocab, side.choice)},
            {"p_choice", side.p_choice},
            {"rank", side.rank},
            {"p", side.p},
            {"top", std::move(top)}};
}

Json comparison_json(const tinfer::Comparison& comparison, const tinfer::Vocab& vocab, const Sides& sides) {
    const auto or_null = [](std::optional<std::size_t> value) { return value ? Json(*value) : Json(nullptr); };
    Json tokens = Json::array();
    for (const auto& token : comparison.tokens)
        tokens.push_back({{"token", static_cast<std::int32_t>(token.token)},
                          {"text", piece_of(vocab, token.token)},
                          {"kl", number_or_null(token.kl)},
                          {"a", side_json(vocab, token.a)},
                          {"b", side_json(vocab, token.b)}});
    return {{"a", sides.a},
            {"b", sides.b},
            {"first_bits", or_null(comparison.first_bits)},
            {"first_parted", or_null(comparison.first_parted)},
            {"same_choice", comparison.same_choice},
            {"mean_kl", number_or_null(comparison.mean_kl)},
            {"max_kl", number_or_null(comparison.max_kl)},
            {"ppl_a", number_or_null(comparison.ppl_a)},
            {"ppl_b", number_or_null(comparison.ppl_b)},
            {"tokens", std::move(tokens)}};
}

void print_table(const tinfer::Comparison& comparison, const tinfer::Vocab& vocab, const Sides& sides) {
    constexpr std::size_t kText = 18;
    print("a  " + sides.a + "\nb  " + sides.b + "\n\n");
    print(padded_left("token", 5) + "  " + padded_to("recorded", kText) + padded_to("a chooses", kText) +
          padded_to("b chooses", kText) + padded_left("rank a", 7) + padded_left("rank b", 7) + padded_left("p a", 8) +
          padded_left("p b", 8) + padded_left("KL", 9) + "\n");
    for (std::size_t i = 0; i < comparison.tokens.size(); ++i) {
        const auto& token = comparison.tokens[i];
        const auto choice = [&](const tinfer::ComparedToken::Side& side) {
            return side.choice == token.token ? std::string("=") : shown_token(vocab, side.choice);
        };
        print(padded_left(std::to_string(i), 5) + "  " + padded_to(shown_token(vocab, token.token), kText - 1) + " " +
              padded_to(choice(token.a), kText - 1) + " " + padded_to(choice(token.b), kText - 1) + " " +
              padded_left(std::to_string(token.a.rank), 7) + padded_left(std::to_string(token.b.rank), 7) +
              padded_left(fixed(token.a.p, 4), 8) + padded_left(fixed(token.b.p, 4), 8) +
              padded_left(fixed(token.kl, 5), 9) + (comparison.first_parted == i ? "  <- here they part" : "") + "\n");
    }
    std::string text = "\n" + counted(comparison.tokens.size(), "token") + ", the same choice for " +
                       fixed(100 * comparison.same_choice, 1) + " %, mean KL " + fixed(comparison.mean_kl, 6) +
                       ", largest " + fixed(comparison.max_kl, 6) + ", perplexity " + fixed(comparison.ppl_a, 4) +
                       " and " + fixed(comparison.ppl_b, 4) + "\n";
    if (!comparison.first_bits) text += "every row has the same bits\n";
    else text += "the rows of token " + std::to_string(*comparison.first_bits) + " are the first with other bits\n";
    if (comparison.first_parted) {
        const auto& token = comparison.tokens[*comparison.first_parted];
        text += "they part at token " + std::to_string(*comparison.first_parted) + ": " +
                shown_token(vocab, token.a.choice) + " and " + shown_token(vocab, token.b.choice) + "\n";
    } else {
        text += "they choose the same everywhere\n";
    }
    print(text);
}

/// JSON for a script element: without `<`, so it contains no closing tag or comment.
std::string script_json(const Json& document) {
    std::string out;
    for (const char c : document.dump({.ascii = true})) {
        if (c == '<') out += "\\u003c";
        else out += c;
    }
    return out;
}

void write_page(const std::string& path, const Json& document) {
    std::string text;
    const ComparePage page = compare_page();
    for (const auto part : page.before) text += part;
    text += script_json(document);
    for (const auto part : page.after) text += part;
    write_file(path, text);
}

}  // namespace

int compare_receipt(const ReplayArgs& args, const tinfer::Receipt& receipt) {
    ReplayArgs base = args;
    base.model.files.clear();
    if (!args.base.empty()) base.model.files = {args.base};
    else
        for (const auto& name : receipt.files) base.model.files.push_back(find_model_of(name, args.file, "--base"));
    base.model.overrides.clear();
    const auto model_a = base.load(receipt);
    const bool same_model = args.model.files.empty() && args.model.overrides.empty() && args.base.empty();
    const auto model_b = same_model ? model_a : args.load(receipt);
    if (model_b.vocab().size() != model_a.vocab().size())
        throw tinfer::Error(tinfer::ErrorCode::bad_parameter,
                            "the models have vocabularies of " + std::to_string(model_a.vocab().size()) + " and " +
                                std::to_string(model_b.vocab().size()) + " tokens: they cannot be compared");

    auto options_a = args.context_options(receipt);
    options_a.type_k = receipt.options.type_k;  // given types apply to the other side
    options_a.type_v = receipt.options.type_v;
    options_a.kv_rotation = receipt.options.kv_rotation;
    options_a.swa_full = receipt.options.swa_full;
    tinfer::Context a(model_a, options_a), b(model_b, args.context_options(receipt));
    const auto comparison = tinfer::compare(receipt, a, b, args.n_top);
    const Sides sides{describe_side(model_a, a), describe_side(model_b, b)};
    const auto& vocab = model_a.vocab();
    if (!args.html.empty()) {
        Json document = comparison_json(comparison, vocab, sides);
        document["sampler"] = receipt.sampler;
        document["prompt"] = vocab.decode(receipt.prompt, {.render_special = true});
        write_page(args.html, document);
    }
    if (args.as_json) print_line(comparison_json(comparison, vocab, sides));
    else if (args.html.empty() || !is_quiet()) print_table(comparison, vocab, sides);
    return 0;
}

}  // namespace tinfer::app
