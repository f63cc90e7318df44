// SPDX-License-Identifier: MIT
// What a vocabulary takes from a file, and what it refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

#if defined(__linux__)
#    include <fcntl.h>
#    include <sys/mman.h>
#    include <unistd.h>
#endif

#include "support/temp_folder.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

struct Refusal {
    ErrorCode code = ErrorCode::io_error;
    std::string message;
};

Refusal refusal(const GgufWriter& writer, const ModelOptions& options = {}) {
    try {
        (void)load_vocab(writer, options);
    } catch (const Error& error) {
        return {error.code(), error.what()};
    }
    FAIL("the vocabulary was accepted");
    return {};
}

GgufWriter spm_of(const std::vector<std::string>& tokens) {
    GgufWriter writer;
    writer.kv("general.architecture", "llama")
        .kv("tokenizer.ggml.model", "llama")
        .array("tokenizer.ggml.tokens", tokens);
    return writer;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("[L11] vocab: a vocabulary loads from a model's file and tokenizes without touching a tensor") {
#if defined(__linux__)
    constexpr std::size_t kBytes = 64u << 20, kPage = 4096, kAhead = 4u << 20;  // what the system may read ahead
    const TempFolder folder;
    const auto path = folder.path() / "model.gguf";
    GgufWriter writer = small_bpe();
    writer.reserve("token_embd.weight", DType::f32, {1024, 16384}, kBytes);
    const auto front = writer.front();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(front.data()), static_cast<std::streamsize>(front.size()));
    std::filesystem::resize_file(path, writer.data_start() + kBytes);

    const Vocab vocab = Vocab::load(path);
    CHECK(ids(vocab.encode("hello world")) == ids(load_vocab(small_bpe()).encode("hello world")));

    const std::size_t size = std::filesystem::file_size(path), first = (writer.data_start() + kAhead) / kPage;
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file, 0);
    ::close(file);
    REQUIRE(mapped != MAP_FAILED);
    std::vector<unsigned char> resident((size + kPage - 1) / kPage);
    REQUIRE(::mincore(mapped, size, resident.data()) == 0);
    CHECK(std::ranges::none_of(std::span(resident).subspan(first), [](unsigned char page) { return (page & 1) != 0; }));
    // the question is one that tells: a byte that is read is seen
    CHECK(static_cast<const volatile char*>(mapped)[first * kPage] == 0);
    REQUIRE(::mincore(mapped, size, resident.data()) == 0);
    CHECK((resident[first] & 1) != 0);
    ::munmap(mapped, size);
#endif
}

TEST_CASE("vocab: arrays shorter than the token list are refused, longer ones accepted") {
    const auto with = [](std::size_t n_scores, std::size_t n_types) {
        return spm_of({"<unk>", "<s>", "</s>", "a"})
            .array("tokenizer.ggml.scores", std::vector<float>(n_scores))
            .array("tokenizer.ggml.token_type", std::vector<std::int32_t>(n_types, 1));
    };
    CHECK(refusal(with(3, 4)).code == ErrorCode::bad_vocabulary);
    CHECK(contains(refusal(with(3, 4)).message, "'tokenizer.ggml.scores' has 3 elements for 4 tokens"));
    CHECK(contains(refusal(with(4, 0)).message, "'tokenizer.ggml.token_type' has 0 elements for 4 tokens"));
    CHECK_NOTHROW(load_vocab(with(5, 6)));
}

TEST_CASE("vocab: arrays of another element type are wrong_type") {
    CHECK(refusal(spm_of({"a"}).array("tokenizer.ggml.scores", std::vector<std::uint8_t>(1))).code ==
          ErrorCode::wrong_type);
    CHECK(refusal(spm_of({"a"}).array("tokenizer.ggml.token_type", {"x"})).code == ErrorCode::wrong_type);
    GgufWriter writer;
    writer.kv("tokenizer.ggml.model", "llama").array("tokenizer.ggml.tokens", std::vector<std::uint32_t>{1});
    CHECK(refusal(writer).code == ErrorCode::wrong_type);
}

TEST_CASE("vocab: unknown token types and scores that are no numbers are refused") {
    CHECK(refusal(spm_of({"a"}).array("tokenizer.ggml.token_type", std::vector<std::int32_t>{7})).code ==
          ErrorCode::bad_vocabulary);
    CHECK(refusal(spm_of({"a"}).array("tokenizer.ggml.token_type", std::vector<std::int32_t>{-1})).code ==
          ErrorCode::bad_vocabulary);
    const std::vector<float> nan{std::numeric_limits<float>::quiet_NaN()};
    CHECK(refusal(spm_of({"a"}).array("tokenizer.ggml.scores", nan)).code == ErrorCode::bad_vocabulary);
}

TEST_CASE("vocab: a merge without a space or naming no token is refused by number and text") {
    for (const char* merge : {"he", "h q", "q h", "h l", "", " "}) {
        BpeParts parts = small_bpe_parts();
        std::erase(parts.tokens, "q");
        parts.types.pop_back();
        parts.merges.insert(parts.merges.begin() + 2, merge);
        const Refusal refused = refusal(write_bpe(parts));
        CAPTURE(refused.message);
        CHECK(refused.code == ErrorCode::bad_vocabulary);
        CHECK(contains(refused.message, "merge 2 '"));
    }
}

TEST_CASE("vocab: the merge list is required, and its first rank of a pair wins") {
    BpeParts parts = small_bpe_parts();
    GgufWriter writer;
    writer.kv("tokenizer.ggml.model", "gpt2")
        .kv("tokenizer.ggml.pre", "gpt-2")
        .array("tokenizer.ggml.tokens", parts.tokens);
    CHECK(refusal(writer).code == ErrorCode::missing_key);
    parts.merges.push_back("h e");
    const Vocab twice = load_vocab(write_bpe(parts)), once = load_vocab(small_bpe());
    CHECK(twice.encode("hello hell he") == once.encode("hello hell he"));
}

TEST_CASE("vocab: an unknown pre-tokenizer is refused by name, and the caller can choose one") {
    const Refusal refused = refusal(small_bpe("no-such"));
    CHECK(refused.code == ErrorCode::unknown_pretokenizer);
    CHECK(contains(refused.message, "'no-such'"));
    const Vocab chosen = load_vocab(small_bpe("no-such"), {.pretokenizer_override = "smollm"});
    CHECK(chosen.pretokenizer() == "smollm");
    CHECK(refusal(small_bpe(), {.pretokenizer_override = "other"}).code == ErrorCode::unknown_pretokenizer);
}

TEST_CASE("vocab: a missing model or token list is missing_key, an empty list bad_vocabulary") {
    CHECK(refusal(GgufWriter().kv("general.architecture", "llama")).code == ErrorCode::missing_key);
    CHECK(refusal(GgufWriter().kv("tokenizer.ggml.model", "llama")).code == ErrorCode::missing_key);
    CHECK(refusal(spm_of({})).code == ErrorCode::bad_vocabulary);
}

TEST_CASE("vocab: ids outside the vocabulary are warned about and the default stays") {
    std::vector<std::string> log;
    const ModelOptions options{.log = [&](LogLevel, std::string_view text) { log.emplace_back(text); }};
    GgufWriter writer = small_spm();
    writer.kv("tokenizer.ggml.bos_token_id", 100000u)
        .kv("tokenizer.ggml.eos_token_id", -1)
        .kv("tokenizer.ggml.padding_token_id", 5ull);
    const Vocab vocab = load_vocab(writer, options);
    CHECK(vocab.bos() == Token{1});
    CHECK(vocab.eos() == std::nullopt);
    CHECK(vocab.special(Special::pad) == Token{5});
    CHECK(std::ranges::count_if(log, [](const auto& line) { return contains(line, "bos_token_id"); }) == 1);
}

TEST_CASE("vocab: default ids beyond a tiny vocabulary are none") {
    const Vocab vocab = load_vocab(spm_of({"a"}));
    CHECK(vocab.special(Special::unk) == Token{0});
    CHECK(vocab.bos() == std::nullopt);
    CHECK(vocab.eos() == std::nullopt);
}

TEST_CASE("vocab: without a vocabulary ids work, their number comes from the model, and encoding is no_tokenizer") {
    GgufWriter writer;
    writer.kv("general.architecture", "llama").kv("llama.vocab_size", 96u).kv("tokenizer.ggml.model", "no_vocab");
    const Vocab vocab = load_vocab(writer);
    CHECK(vocab.size() == 96);
    CHECK(vocab.algorithm() == "no_vocab");
    CHECK(vocab.piece(Token{95}).empty());
    CHECK(vocab.text(Token{95}).empty());
    CHECK(vocab.score(Token{95}) == 0.0f);
    CHECK(vocab.attr(Token{95}) == 0);
    CHECK_FALSE(vocab.is_eog(Token{2}));
    CHECK(vocab.bos() == std::nullopt);
    CHECK_THROWS_AS((void)vocab.piece(Token{96}), Error);
    try {
        (void)vocab.encode("x");
        FAIL("encoded without a tokenizer");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::no_tokenizer);
        CHECK(contains(error.what(), "'no_vocab'"));
    }
}

TEST_CASE("vocab: an unknown algorithm loads, shows pieces, and says so when asked to encode") {
    const Vocab vocab = load_vocab(write_vocab("something-new", {"a", "\\n\\x41"}));
    CHECK(vocab.piece(Token{0}) == "a");
    CHECK(vocab.piece(Token{1}) == "\\n\\x41");
    try {
        (void)vocab.encode("x");
        FAIL("encoded");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::no_tokenizer);
        CHECK(contains(error.what(), "something-new"));
    }
}

TEST_CASE("vocab: of two ids with one text the later is found; an empty text matches nothing") {
    const Vocab vocab = load_vocab(spm_of({"<unk>", "x", "x", ""}));
    CHECK(vocab.find("x") == Token{2});
    CHECK(vocab.text(Token{1}) == "x");
    CHECK(vocab.find("") == std::nullopt);
    CHECK(vocab.text(Token{3}) == "[EMPTY_3]");
}

TEST_CASE("[T12] vocab: ends of generation are found by key and by text, in every family's spelling") {
    for (const char* text : {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
                             "<EOT>", "_<EOT>", "[EOS]", "<|return|>", "<turn|>", "<｜end▁of▁sentence｜>", "<eos>"}) {
        CAPTURE(text);
        const Vocab vocab = load_vocab(spm_of({"<unk>", "<s>", "</s>", "a", text}));
        CHECK(vocab.is_eog(Token{2}));  // eos
        CHECK(vocab.is_eog(Token{4}));
        CHECK(vocab.is_control(Token{4}));
        CHECK_FALSE(vocab.is_eog(Token{3}));
        CHECK_FALSE(vocab.is_eog(Token{-1}));
        CHECK_FALSE(vocab.is_eog(Token{99}));
    }
    GgufWriter by_key = spm_of({"<unk>", "<s>", "</s>", "a", "b"});
    by_key.kv("tokenizer.ggml.eot_token_id", 3u).kv("tokenizer.ggml.eom_token_id", 4u);
    const Vocab vocab = load_vocab(by_key);
    CHECK(vocab.eog_tokens() == std::vector<Token>{Token{2}, Token{3}, Token{4}});
    CHECK(vocab.eot() == Token{3});
    CHECK(vocab.special(Special::eom) == Token{4});
}

TEST_CASE("vocab: an ordinary piece ends nothing, whatever its text; nor does a tag that was added") {
    // Types: 1 ordinary, 3 control, 4 added.
    const auto with = [](std::vector<std::string> tokens, std::vector<std::int32_t> types) {
        return load_vocab(write_vocab("llama", tokens, types));
    };
    const std::vector<std::string> texts{"<unk>", "<s>", "<|end|>", "</s>", "<PRE>", "[PAD]", "<eos>", "<fim_pad>"};
    const Vocab ordinary = with(texts, {2, 3, 1, 1, 1, 1, 1, 1});
    CHECK(ordinary.eog_tokens().empty());
    CHECK(ordinary.eot() == std::nullopt);
    CHECK(ordinary.eos() == std::nullopt);
    CHECK(ordinary.special(Special::fim_pre) == std::nullopt);
    CHECK(ordinary.special(Special::fim_pad) == std::nullopt);
    for (int id = 2; id < 8; ++id) CHECK(ordinary.attr(Token{id}) == TokenAttr::normal);
    const Vocab added = with(texts, {2, 3, 4, 4, 4, 4, 4, 4});
    CHECK(added.is_eog(Token{2}));
    CHECK_FALSE(added.is_eog(Token{3}));
    CHECK(added.attr(Token{3}) == TokenAttr::user_defined);
    CHECK(added.special(Special::fim_pre) == std::nullopt);
    CHECK(added.attr(Token{4}) == TokenAttr::user_defined);
    const Vocab control = with(texts, {2, 3, 3, 3, 3, 3, 3, 3});
    for (const int id : {2, 3, 6, 7}) CHECK(control.is_eog(Token{id}));
    CHECK(control.special(Special::fim_pre) == Token{4});

    GgufWriter by_key = write_vocab("llama", texts, {2, 3, 1, 1, 1, 1, 1, 1});
    by_key.kv("tokenizer.ggml.eos_token_id", 3u).kv("tokenizer.ggml.eot_token_id", 5u);
    CHECK(load_vocab(by_key).eog_tokens() == std::vector<Token>{Token{3}, Token{5}});  // what the file says is so
}

TEST_CASE("vocab: a default id is none where an ordinary piece stands there") {
    BpeParts parts = small_bpe_parts();  // token 11 is a byte
    const auto without_ids = [](const BpeParts& p) {
        GgufWriter writer;
        writer.kv("general.architecture", "gpt2").kv("tokenizer.ggml.model", "gpt2").kv("tokenizer.ggml.pre", "gpt-2");
        writer.array("tokenizer.ggml.tokens", p.tokens).array("tokenizer.ggml.merges", p.merges);
        if (!p.types.empty()) writer.array("tokenizer.ggml.token_type", p.types);
        return load_vocab(writer);
    };
    const Token last{static_cast<std::int32_t>(parts.tokens.size()) - 1};  // <|endoftext|>, control
    CHECK(without_ids(parts).bos() == std::nullopt);
    CHECK(without_ids(parts).eos() == std::nullopt);
    CHECK(without_ids(parts).eog_tokens() == std::vector<Token>{last});
    parts.types.clear();
    CHECK(without_ids(parts).eos() == std::nullopt);
    CHECK_FALSE(without_ids(parts).is_eog(Token{11}));
    parts = small_bpe_parts();
    std::swap(parts.tokens[11], parts.tokens.back());  // as in Falcon
    std::swap(parts.types[11], parts.types.back());
    CHECK(without_ids(parts).bos() == Token{11});
    CHECK(without_ids(parts).eos() == Token{11});

    const std::vector<std::string> texts{"x", "y", "z", "w", "<s>", "</s>"};
    for (const char* model : {"llama", "t5", "plamo2"}) {
        CAPTURE(model);
        const Vocab vocab = load_vocab(write_vocab(model, texts, {1, 1, 1, 1, 3, 3}));
        CHECK(vocab.bos() == std::nullopt);
        CHECK(vocab.eos() == std::nullopt);
        CHECK(vocab.special(Special::unk) == std::nullopt);
        CHECK(vocab.special(Special::pad) == std::nullopt);
        CHECK(vocab.eog_tokens() == std::vector<Token>{Token{5}});  // a control token
    }
    std::vector<std::string> words(110, "word");
    for (std::size_t i = 0; i < words.size(); ++i) words[i] += std::to_string(i);
    const Vocab wordpiece = load_vocab(write_vocab("bert", words, std::vector<std::int32_t>(110, 1)));
    for (const auto id : {wordpiece.bos(), wordpiece.special(Special::unk), wordpiece.special(Special::sep),
                          wordpiece.special(Special::pad), wordpiece.special(Special::mask)})
        CHECK(id == std::nullopt);
}

TEST_CASE("vocab: separators of channels do not end a generation and are always shown") {
    const Vocab vocab =
        load_vocab(spm_of({"<unk>", "<s>", "</s>", "<|end|>", "<|return|>", "<|call|>", "<|channel|>"}));
    CHECK_FALSE(vocab.is_eog(Token{3}));
    CHECK(vocab.is_eog(Token{4}));
    CHECK(vocab.is_eog(Token{5}));
    CHECK(vocab.piece(Token{3}) == "<|end|>");
    CHECK(vocab.piece(Token{6}) == "<|channel|>");
    CHECK(vocab.attr(Token{6}) == TokenAttr::user_defined);
}

TEST_CASE("vocab: infill ids by text in table order, by key, and by the old keys, which win") {
    GgufWriter writer = spm_of({"<unk>", "<PRE>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>", "x"});
    CHECK(load_vocab(writer).special(Special::fim_pre) == Token{2});
    CHECK(load_vocab(writer).special(Special::fim_suf) == Token{3});
    writer.kv("tokenizer.ggml.prefix_token_id", 5u).kv("tokenizer.ggml.fim_pre_token_id", 4u);
    CHECK(load_vocab(writer).special(Special::fim_pre) == Token{5});
}

TEST_CASE("vocab: pieces of hostile texts cannot grow without bound") {
    std::string wide;
    for (int i = 0; i < 20000; ++i)
        wide += "\xE4\xB8\xAD";  // each character outside the byte map repeats the whole text
    GgufWriter writer;
    writer.kv("tokenizer.ggml.model", "gpt2").array("tokenizer.ggml.tokens", std::vector<std::string>{wide});
    writer.array("tokenizer.ggml.merges", std::vector<std::string>{});
    CHECK(refusal(writer).code == ErrorCode::limit_exceeded);
}

TEST_CASE("vocab: a token is as long as a token may be, or refused by its number") {
    constexpr std::size_t kLongest = 1u << 20;
    std::vector<std::string> tokens{"<unk>", "a", std::string(kLongest, 'b')};
    const Vocab vocab = load_vocab(spm_of(tokens));
    CHECK(vocab.piece(Token{2}).size() == kLongest);
    tokens.emplace_back(kLongest + 1, 'c');
    const Refusal said = refusal(spm_of(tokens));
    CHECK(said.code == ErrorCode::limit_exceeded);
    CHECK(contains(said.message, "token 3 has 1048577 bytes, the limit is 1048576"));
}

TEST_CASE("vocab: a byte token whose text spells no byte stands for none") {
    std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "▁", "a", "<0x41>"};
    std::vector<std::int32_t> types{2, 3, 3, 1, 1, 6};
    for (const char* text :
         {"<0x-1>", "<0x-F>", "<0xZZ>", "<0x>", "<0x1>", "<0x100>", "<0x+4>", "<0x 4>", "0x42", "<0xFFFFFFFF>"}) {
        tokens.emplace_back(text);
        types.push_back(6);
    }
    GgufWriter writer = spm_of(tokens);
    writer.array("tokenizer.ggml.token_type", types).array("tokenizer.ggml.scores", std::vector<float>(tokens.size()));
    const Vocab vocab = load_vocab(writer);
    for (const std::string text : {"A", "B", "\x01", "\xFF", "\x10", "a\x04"})
        for (const Token token : vocab.encode(text)) CHECK(static_cast<int>(token) < 6);
    CHECK(vocab.encode("A", {.add_special = false}).back() == Token{5});
    for (std::size_t id = 6; id < tokens.size(); ++id)
        CHECK(vocab.decode(std::vector{Token{static_cast<std::int32_t>(id)}}).size() <= tokens[id].size());
}

TEST_CASE("vocab: byte-level text outside the byte map shows what it is instead of failing") {
    BpeParts parts = small_bpe_parts();
    parts.tokens.emplace_back("x中");
    parts.types.push_back(1);
    const Vocab vocab = load_vocab(write_bpe(parts));
    CHECK(vocab.piece(*vocab.find("x中")) == "x[UNK_BYTE_0xe4b8adx中]");
}

TEST_CASE("vocab: the vocabulary outlives the file it came from and handles are cheap copies") {
    std::optional<Vocab> copy;
    {
        const Vocab vocab = load_vocab(small_bpe());
        copy = vocab;
    }
    CHECK(copy->decode(copy->encode("hello")) == "hello");
}

}  // namespace tinfer::test
