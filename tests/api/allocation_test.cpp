// SPDX-License-Identifier: MIT
// Memory runs out at every place where it can: each allocation of each public operation is refused once. The operation
// then throws out_of_memory and nothing else, keeps nothing, and what it was called on still works with the same bits.
#include <doctest/doctest.h>

#include <algorithm>

#include "base/access.hpp"
#include "support/allocation_sites.hpp"
#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"
#include "tokenizer/vocab_support.hpp"

namespace tinfer::test {

namespace {

/// A model with a vocabulary, all in one file.
std::filesystem::path save_with_vocab(const TempFolder& folder, const char* arch, const GgufWriter& vocab) {
    TinyModel tiny = TinyModel::of(arch);
    tiny.n_layer = 1;
    const TempFolder other;
    vocab.save(other / "vocab.gguf");
    tiny.n_vocab = static_cast<int>(Vocab::load(other / "vocab.gguf").size());
    GgufWriter w = tiny.writer();
    w.take(vocab).set("general.architecture", GgufValue{tiny.arch});
    const auto path = folder / (std::string(arch) + ".gguf");
    w.save(path);
    return path;
}

class Counting : public Observer {
public:
    void on_events(std::span<const KernelEvent> events) override { n += events.size(); }
    std::uint64_t n = 0;
};

const ContextOptions kSmall{.n_ctx = 64, .n_seq_max = 2, .n_ubatch = 8, .n_threads = 1};

}  // namespace

TEST_CASE("[N3] loading survives the failure of any allocation and keeps nothing") {
    const TempFolder folder;
    const auto path = save_with_vocab(folder, "llama", small_bpe("gpt-2")),
               spm = save_with_vocab(folder, "qwen2moe", small_spm());
    for (const auto& file : {path, spm}) {
        for (const bool use_mmap : {true, false}) {
            std::int64_t left = 0;
            const ModelOptions options{.use_mmap = use_mmap};
            const AllocationScope scope;
            const Sites sites = refuse_each_allocation([&] { (void)Model::load(file, options); },
                                                       [&] { return (left = scope.live()) < 4096; });
            check_sites("load", sites, 100, 20);
            CHECK(left < 4096);
        }
        check_sites("vocabulary", refuse_each_allocation([&] { (void)Vocab::load(file); }), 50, 20);
        check_sites("plan", refuse_each_allocation([&] { (void)plan(file, {}, kSmall); }), 50, 20);
        const auto inspect = [&] {
            const auto opened = ModelFile::open(file);
            (void)opened.metadata();
            (void)opened.metadata_value("general.architecture");
            (void)opened.csv();
            (void)opened.json();
            (void)opened.type_mix();
            (void)opened.paths();
            opened.check_data();
        };
        check_sites("inspect", refuse_each_allocation(inspect), 80, 20);
    }
}

TEST_CASE("[N3] split files and damaged ones fail in memory's name or their own") {
    const TempFolder folder;
    GgufWriter w = TinyModel::of("llama").writer();
    const auto incomplete = folder / "m.gguf", absent = folder / "absent.gguf";
    w.erase_tensor("blk.1.ffn_up.weight").save(incomplete);
    check_sites("missing tensor", refuse_each_allocation([&] {
                    try {
                        (void)Model::load(incomplete);
                    } catch (const Error& error) {
                        if (error.code() != ErrorCode::missing_tensor) throw;
                    }
                }),
                50, 20);
    check_sites("no file", refuse_each_allocation([&] {
                    try {
                        (void)Model::load(absent);
                    } catch (const Error& error) {
                        if (error.code() != ErrorCode::io_error) throw;
                    }
                }),
                2, 20);
}

TEST_CASE("[N3] making a context, planning one and drawing its graph survive the failure of any allocation") {
    const TempFolder folder;
    for (const char* arch : {"llama", "qwen3moe"}) {
        const auto model = Model::load(TinyModel::of(arch).save(folder.path()));
        const auto expected = bits_of(logits_of(model, std::vector{Token{5}, Token{6}}, kSmall));
        const auto same = [&] {
            return bits_of(logits_of(model, std::vector{Token{5}, Token{6}}, kSmall)) == expected;
        };
        ContextOptions options = kSmall;
        options.embeddings = true;
        options.keep = {"l_out-0"};
        std::int64_t left = 0;
        const AllocationScope scope;
        const Sites sites = refuse_each_allocation([&] { const Context context(model, kSmall); },
                                                   [&] {
                                                       left = scope.live();
                                                       return left < 4096;
                                                   });
        check_sites("context", sites, 40);
        CHECK(left < 4096);
        check_sites("context that keeps results", refuse_each_allocation([&] {
                        try {
                            const Context context(model, options);
                        } catch (const std::bad_alloc&) {
                            throw Error(ErrorCode::out_of_memory, "the caller's copy of the options");
                        }
                    }),
                    40);
        check_sites("plan", refuse_each_allocation([&] { (void)plan(model, kSmall); }), 20);
        for (const auto format : {GraphRequest::Format::dot, GraphRequest::Format::text})
            for (const auto view : {GraphRequest::View::graph, GraphRequest::View::plan})
                check_sites("graph", refuse_each_allocation([&] {
                                (void)export_graph(model, kSmall, {.n_tokens = 3, .format = format, .view = view});
                            }),
                            20, 2);  // a sort does without its buffer
        CHECK(same());
    }
}

TEST_CASE("[N3] the first decode and later ones allocate nothing that could fail") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("qwen2moe").save(folder.path()));
    const auto prompt = random_tokens(20, model.info().n_vocab, 4);
    const auto expected = bits_of(logits_of(model, prompt, kSmall));
    const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
    Context context(model, kSmall);
    const auto decode = [&] {
        context.clear();
        if (context.decode(prompt) != DecodeStatus::ok) throw std::runtime_error("decode");
    };
    const auto usable = [&] {
        decode();
        return std::ranges::equal(bits_of(context.logits()), std::span(expected).last(n_vocab));
    };
    check_sites("decode", refuse_each_allocation(decode, usable), 0);
    CHECK(usable());
    // What a decode refuses, it refuses in these words or for want of memory for them.
    Batch wrong;
    wrong.add(Token{1}, Pos{40}, SeqId{0}, true);
    check_sites("invalid batch",
                refuse_each_allocation([&] { (void)context.decode(wrong); }, usable, ErrorCode::invalid_batch), 1);
    REQUIRE(usable());
    check_sites("no output",
                refuse_each_allocation([&] { (void)context.logits(17); }, usable, ErrorCode::index_out_of_range), 1);
    check_sites("no result",
                refuse_each_allocation(
                    [&] {
                        try {
                            (void)context.result("x");
                        } catch (const Error& error) {
                            if (error.code() != ErrorCode::no_output) throw;
                        }
                    },
                    usable),
                1, 2);
    check_sites("sequence id",
                refuse_each_allocation([&] { (void)context.seq_rm(SeqId{9}); }, usable, ErrorCode::bad_sequence), 1);
    check_sites("room", refuse_each_allocation([&] { (void)context.room(SeqId{9}); }, usable, ErrorCode::bad_sequence),
                1);
    check_sites("threads",
                refuse_each_allocation([&] { context.set_threads(99, 1); }, usable, ErrorCode::bad_parameter), 1);
    check_sites("sharing",
                refuse_each_allocation(
                    [&] {
                        context.seq_cp(SeqId{0}, SeqId{1});
                        context.seq_keep(SeqId{0});
                    },
                    usable),
                0);
}

TEST_CASE("[N3] attaching an observer and decoding under it survive the failure of any allocation") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama-moe");
    tiny.n_layer = 1;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto prompt = random_tokens(5, model.info().n_vocab, 4);
    const auto expected = bits_of(logits_of(model, prompt, kSmall));
    const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
    const auto decodes = [&](Context& context) {
        context.clear();
        return context.decode(prompt) == DecodeStatus::ok &&
               std::ranges::equal(bits_of(context.logits()), std::span(expected).last(n_vocab));
    };
    {
        Context context(model, kSmall);
        const auto observer = std::make_shared<Counting>();
        check_sites(
            "attach",
            refuse_each_allocation([&] { (void)context.attach(observer); },
                                   [&] { return detail::Access::n_attached(*observer) == 0 && decodes(context); }),
            2);
    }
    for (const bool immediate :
         {false, true}) {  // a fresh context each time: the session's tables are made in the first run
        std::shared_ptr<Observer> observer;
        if (immediate) observer = std::make_shared<CoverageCheck>();
        else observer = std::make_shared<Counting>();
        std::optional<Context> context;
        Attachment attached;
        const auto renew = [&] {
            attached = Attachment();
            context.emplace(model, kSmall);
            attached = context->attach(observer);
        };
        const auto usable = [&] {
            const bool ok = decodes(*context);
            renew();
            return ok;
        };
        renew();
        const auto decode = [&] {
            if (context->decode(prompt) != DecodeStatus::ok) throw std::runtime_error("decode");
        };
        check_sites("traced decode", refuse_each_allocation(decode, usable, ErrorCode::compute_failed), 50);
        attached = Attachment();
        if (immediate) CHECK(std::static_pointer_cast<CoverageCheck>(observer)->differences().empty());
    }
}

TEST_CASE("[N3] sampling survives the failure of any allocation") {
    const TempFolder folder;
    const auto model = Model::load(save_with_vocab(folder, "llama", small_bpe("gpt-2")));
    const std::vector<float> logits = logits_of(model, std::vector{Token{5}}, kSmall);
    const SamplerOptions options{.penalty_repeat = 1.3f, .seed = 1};
    check_sites("sampler", refuse_each_allocation([&] {
                    Sampler sampler(model.vocab(), SamplerOptions{.seed = 3});
                    Sampler copy(sampler);
                    copy = sampler;
                }),
                10);
    Sampler sampler(model.vocab(), options);
    std::optional<Sampler> fresh;
    fresh.emplace(model.vocab(), options);
    const Token expected = Sampler(model.vocab(), options).sample(logits);
    check_sites("sample",
                refuse_each_allocation([&] { (void)fresh->sample(logits); },
                                       [&] {
                                           fresh.emplace(model.vocab(), options);
                                           return true;
                                       }),
                0);
    sampler.reset();
    CHECK(sampler.sample(logits) == expected);
    const auto usable = [&] {
        sampler.reset();
        return sampler.sample(logits) == expected;
    };
    check_sites("views",
                refuse_each_allocation(
                    [&] {
                        (void)sampler.probs(5);
                        (void)sampler.names();
                        (void)sampler.recent(3);
                        (void)sampler.recent_text(3);
                    },
                    usable),
                3);
    const std::vector<float> nan(logits.size(), NAN);
    check_sites("NaN", refuse_each_allocation([&] { (void)sampler.sample(nan); }, usable, ErrorCode::non_finite_logits),
                1);
    check_sites("remove", refuse_each_allocation([&] { sampler.remove(99); }, usable, ErrorCode::index_out_of_range),
                1);
}

TEST_CASE("[N3] regular expressions, and what compiles them, get their memory where all of it comes from") {
    const TempFolder folder;
    const auto path = folder / "vocab.gguf";
    small_bpe("gpt-4o").save(path);  // no scanner stands for its expression
    const std::string text = "Words, 1234 digits \u4E2D\u6587\u0301.\n";
    const auto expected = Vocab::load(path).encode(text);
    bool same = true;
    const auto load_and_encode = [&] { same = Vocab::load(path).encode(text) == expected && same; };
    std::uint64_t with_scanners = 0, with_expressions = 0;
    {
        small_bpe("gpt-2").save(folder / "scanned.gguf");
        const AllocationScope scope;
        (void)Vocab::load(folder / "scanned.gguf");
        with_scanners = scope.count();
    }
    {
        const AllocationScope scope;
        (void)Vocab::load(path);
        with_expressions = scope.count();
        CHECK(scope.live() < 4096);
    }
    CHECK(with_expressions >= with_scanners + 5);
    check_sites("expressions", refuse_each_allocation(load_and_encode), 60, 20);
    CHECK(same);
}

TEST_CASE("[N3] expressions that a grammar waits for get their memory there, too") {
    const Vocab vocab = load_vocab(small_bpe("gpt-2"));
    const Grammar grammar = Grammar::parse("root ::= \"a\"");
    const GrammarTriggers given{.patterns = {"no call <(" + std::string(20'000, 'x') + ")>"}};
    GrammarTriggers triggers;  // copied by whoever calls, not by the library
    const auto again = [&] {
        triggers = given;
        return true;
    };
    const auto make = [&] { (void)grammar.constraint(vocab, std::move(triggers)); };
    again();
    make();  // the vocabulary is indexed in the first call
    again();
    {
        const AllocationScope scope;
        make();
        CHECK(scope.peak() > 40'000);  // a character and its opcode, 20,000 times
    }
    again();
    check_sites("trigger", refuse_each_allocation(make, again), 10);
}

TEST_CASE("[N3] tokenizing survives the failure of any allocation") {
    const std::string text = "Hello w\xC3\xB6rld <s> 12345 \xE4\xB8\x96\xE7\x95\x8C\n  the end";
    for (const auto& writer : {small_bpe("gpt-2"), small_bpe("llama-bpe"), small_spm()}) {
        std::optional<Vocab> vocab(load_vocab(writer));
        const auto expected = vocab->encode(text);
        const auto usable = [&] { return vocab->encode(text) == expected; };
        check_sites("encode",
                    refuse_each_allocation([&] { (void)vocab->encode(text, {.parse_special = true}); }, usable), 1, 5);
        const auto fresh = [&] {
            vocab.emplace(load_vocab(writer));
            return true;
        };
        fresh();
        check_sites("first encode",
                    refuse_each_allocation([&] { (void)vocab->encode(text, {.parse_special = true}); }, fresh), 5, 5);
        check_sites("decode",
                    refuse_each_allocation([&] { (void)vocab->decode(expected, {.render_special = true}); }, usable), 1,
                    5);
        check_sites("eog", refuse_each_allocation([&] { (void)vocab->eog_tokens(); }, usable), 1);
        check_sites(
            "piece",
            refuse_each_allocation([&] { (void)vocab->piece(Token{-5}); }, usable, ErrorCode::index_out_of_range), 1);
        const std::string piece = "a long piece of text \xE4\xB8";
        check_sites("stream", refuse_each_allocation([&] {
                        Utf8Stream stream;
                        (void)stream.push(piece);
                        (void)stream.push("\x96 and some more text after it");
                        (void)stream.flush();
                    }),
                    2);
    }
}

TEST_CASE("[N3] fingerprints and guarded reads survive the failure of any allocation") {
    const TempFolder folder;
    const auto path = TinyModel::of("llama").save(folder.path());
    const auto expected = ModelFile::open(path).full_fingerprint();
    std::optional<ModelFile> file;
    const auto renew = [&] {
        file.emplace(ModelFile::open(path));
        return true;
    };
    renew();
    check_sites("full fingerprint", refuse_each_allocation([&] { (void)file->full_fingerprint(); }, renew), 1, 3);
    CHECK(file->full_fingerprint() == expected);
    check_sites("read guard", refuse_each_allocation([&] { const ReadGuard guard(*file); }), 1);
}

TEST_CASE("[N3] a template is parsed and its prompt tokenized, or nothing is, wherever memory runs out") {
    const Vocab vocab = load_vocab(small_bpe("gpt-2"));
    const ChatTemplate chat = *ChatTemplate::built_in("chatml");
    const std::string source(chat.source());
    const std::vector<ChatMessage> messages{{"system", "Be brief."}, {"user", "Hello w\xC3\xB6rld <|im_end|>"}};
    const auto rendered = chat.render(vocab, messages);
    const auto tokens = encode(vocab, rendered).tokens;
    const auto usable = [&] { return encode(vocab, chat.render(vocab, messages)).tokens == tokens; };
    check_sites("template", refuse_each_allocation([&] { (void)ChatTemplate(source); }, usable), 20, 5);
    check_sites("encode", refuse_each_allocation([&] { (void)encode(vocab, rendered); }, usable), 5, 10);
}

TEST_CASE("[N3] recording a trace: wherever memory runs out the decode has its bits, and the file is a trace") {
    const TempFolder folder;
    TinyModel tiny = TinyModel::of("llama");
    tiny.n_layer = 1;
    const auto model = Model::load(tiny.save(folder.path()));
    const auto prompt = random_tokens(5, model.info().n_vocab, 4);
    const auto expected = bits_of(logits_of(model, prompt, kSmall));
    const auto n_vocab = static_cast<std::size_t>(model.info().n_vocab);
    const auto path = folder / "t.tntrace";
    std::optional<Context> context(std::in_place, model, kSmall);
    std::string wrong;
    const auto record = [&] {
        std::shared_ptr<TraceFile> file;
        try {
            file = std::make_shared<TraceFile>(path, TraceFileOptions{.overwrite = true});
        } catch (const std::bad_alloc&) {
            throw Error(ErrorCode::out_of_memory, "the caller's own");
        }
        const auto attached = context->attach(file);
        if (context->decode(prompt) != DecodeStatus::ok) throw std::runtime_error("decode");
        file->close();
    };
    const auto usable = [&] {  // what is there is whole or says what it lacks; the context decodes as before
        if (std::filesystem::exists(path) && std::filesystem::file_size(path) >= sizeof(trace_format::Header))
            (void)TraceReader::open(path);
        context->clear();
        return context->decode(prompt) == DecodeStatus::ok &&
               std::ranges::equal(bits_of(context->logits()), std::span(expected).last(n_vocab));
    };
    const Sites sites = refuse_each_allocation(record, usable, ErrorCode::compute_failed);
    check_sites("recording", sites, 50, 1000);
    record();
    const auto bytes = std::filesystem::file_size(path);
    check_sites("reading a trace", refuse_each_allocation([&] { (void)TraceReader::open(path); }), 20, 5);
    const auto trace = TraceReader::open(path);
    CHECK(trace.header().n_events > 0);
    CHECK(std::filesystem::file_size(path) == bytes);
}

TEST_CASE("[N3] an engine is made or is not, wherever memory runs out, and a request that is refused costs itself") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel::of("llama").save(folder.path()));
    const EngineOptions options{.context = {.n_ctx = 64, .n_seq_max = 2, .n_threads = 1}};
    std::int64_t left = 0;
    const AllocationScope scope;
    const Sites made = refuse_each_allocation([&] { const Engine engine(model, options); },
                                              [&] { return (left = scope.live()) < 65536; });
    check_sites("engine", made, 40, 50);
    CHECK(left < 65536);
}

TEST_CASE("a batch that cannot grow is as it was") {
    Batch batch;
    const std::vector<SeqId> seqs{SeqId{0}, SeqId{1}, SeqId{2}};
    const std::vector<float> row(100);
    const auto fill = [&] {
        Batch fresh;
        for (int i = 0; i < 9; ++i) fresh.add(Token{i}, Pos{i}, seqs, true);
        for (int i = 0; i < 9; ++i) fresh.add_embedding(row, {}, seqs, true);
    };
    check_sites("batch", refuse_each_allocation(fill), 10);
    batch.add(Token{1}, {}, {}, true);
    const auto grow = [&] {
        while (batch.size() < 300) batch.add(Token{static_cast<std::int32_t>(batch.size())}, {}, seqs, false);
    };
    const auto usable = [&] {
        bool ok = true;
        for (std::size_t i = 1; i < batch.size(); ++i)
            ok = ok && batch.rows()[i].token == static_cast<std::int32_t>(i) &&
                 std::ranges::equal(batch.seqs(batch.rows()[i]), seqs);
        return ok;
    };
    check_sites("growing", refuse_each_allocation(grow, usable), 1);
    CHECK(usable());
}

}  // namespace tinfer::test
