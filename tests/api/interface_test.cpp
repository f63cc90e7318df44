// SPDX-License-Identifier: MIT
// The words of the interface: ids that count and print, enums with names, ranges, batches by their natural spelling,
// and what does not compile because it would go wrong.
#include <doctest/doctest.h>

#include <tinfer/tinfer.hpp>

#include <set>
#include <sstream>

#include "support/temp_folder.hpp"
#include "support/tiny_model.hpp"

namespace elsewhere {

std::string print(tinfer::trace_format::BlockType type) {  // nothing of the library's is in scope here
    std::ostringstream out;
    out << type;
    return out.str();
}

}  // namespace elsewhere

using namespace tinfer;
using namespace tinfer::test;

namespace {

template <class T>
std::string printed(const T& value) {
    std::ostringstream out;
    out << value;
    return out.str();
}

// ---- what must not compile ------------------------------------------------------------------------------------------

#define TINFER_USES(name, expression)                                                                                  \
    template <class T>                                                                                                 \
    concept name = requires(T && x) {                                                                                  \
        expression;                                                                                                    \
    }

TINFER_USES(Vocabulary, std::forward<T>(x).vocab());
TINFER_USES(Info, std::forward<T>(x).info());
TINFER_USES(File, std::forward<T>(x).file());
static_assert(Vocabulary<const Model&> && Info<const Model&> && File<Model&>);
static_assert(!Vocabulary<Model> && !Info<Model> && !File<const Model>, "Model::load(path).vocab() would dangle");

TINFER_USES(Metadata, std::forward<T>(x).metadata());
TINFER_USES(Tensors, std::forward<T>(x).tensors());
TINFER_USES(FindName, std::forward<T>(x).find("name"));
TINFER_USES(FindAddress, std::forward<T>(x).find(static_cast<const void*>(nullptr)));
static_assert(Metadata<const ModelFile&> && Tensors<ModelFile&> && FindName<ModelFile&> && FindAddress<ModelFile&>);
static_assert(!Metadata<ModelFile> && !Tensors<ModelFile> && !FindName<ModelFile> && !FindAddress<ModelFile>);

TINFER_USES(Piece, std::forward<T>(x).piece(Token{1}));
TINFER_USES(Text, std::forward<T>(x).text(Token{1}));
TINFER_USES(Algorithm, std::forward<T>(x).algorithm());
TINFER_USES(Pretokenizer, std::forward<T>(x).pretokenizer());
static_assert(Piece<const Vocab&> && Text<const Vocab&> && Algorithm<Vocab&> && Pretokenizer<Vocab&>);
static_assert(!Piece<Vocab> && !Text<Vocab> && !Algorithm<Vocab> && !Pretokenizer<Vocab>);

TINFER_USES(Logits, std::forward<T>(x).logits());
TINFER_USES(Embedding, std::forward<T>(x).embedding(0));
TINFER_USES(Pooled, std::forward<T>(x).pooled());
TINFER_USES(Result, std::forward<T>(x).result("result_output"));
TINFER_USES(ItsModel, std::forward<T>(x).model());
TINFER_USES(Options, std::forward<T>(x).options());
static_assert(Logits<const Context&> && Embedding<Context&> && Pooled<Context&> && Result<Context&> &&
              ItsModel<Context&> && Options<Context&>);
static_assert(!Logits<Context> && !Embedding<Context> && !Pooled<Context> && !Result<Context> && !ItsModel<Context> &&
              !Options<Context>);

TINFER_USES(Rows, std::forward<T>(x).rows());
TINFER_USES(Held, std::forward<T>(x).held());
TINFER_USES(Differences, std::forward<T>(x).differences());
TINFER_USES(Pending, std::forward<T>(x).pending());
static_assert(Rows<const Batch&> && Held<Utf8Stream&> && Differences<CoverageCheck&> && Pending<Generation&>);
static_assert(!Rows<Batch> && !Held<Utf8Stream> && !Differences<CoverageCheck> && !Pending<Generation>);

TINFER_USES(Source, std::forward<T>(x).source());
TINFER_USES(TextOf, std::forward<T>(x).text_of(PromptSpan{}));
TINFER_USES(Able, std::forward<T>(x).able());
static_assert(Source<const ChatTemplate&> && TextOf<RenderedPrompt&> && Able<Chat&>);
static_assert(!Source<ChatTemplate> && !TextOf<RenderedPrompt> && !Able<Chat>);

TINFER_USES(Header, std::forward<T>(x).header());
TINFER_USES(Runs, std::forward<T>(x).runs());
TINFER_USES(Damage, std::forward<T>(x).damage());
TINFER_USES(Plan, std::forward<T>(x).plan(0));
TINFER_USES(TextById, std::forward<T>(x).text(1u));
static_assert(Header<const TraceReader&> && Runs<TraceReader&> && Damage<TraceReader&> && Plan<TraceReader&> &&
              TextById<TraceReader&>);
static_assert(!Header<TraceReader> && !Runs<TraceReader> && !Damage<TraceReader> && !Plan<TraceReader> &&
              !TextById<TraceReader>);

// Nothing of the library's own shows.
TINFER_USES(Impl, x.impl());
TINFER_USES(Count, x.n_attached);
TINFER_USES(CountOfOurs, x.n_attached_);
static_assert(!Impl<Model> && !Impl<ModelFile> && !Impl<Context> && !Count<Observer&> && !CountOfOurs<Observer&>);
static_assert(!std::is_constructible_v<Model, std::shared_ptr<const Model::Impl>> &&
              !std::is_constructible_v<Vocab, std::shared_ptr<const Vocab::Impl>> &&
              !std::is_constructible_v<ModelFile, std::shared_ptr<const ModelFile::Impl>> &&
              !std::is_constructible_v<Attachment, std::shared_ptr<Attachment::Impl>>);

// Only a slice can be pending.
template <class Enum>
concept CanBePending = requires {
    Enum::pending;
};
static_assert(CanBePending<StepStatus> && !CanBePending<DecodeStatus>);

// Ids are not taken for one another, and a lone position is not taken for a range.
TINFER_USES(RemoveAt, x.seq_rm(SeqId{0}, Pos{3}));
TINFER_USES(RemoveFrom, x.seq_rm(SeqId{0}, {Pos{3}}));
TINFER_USES(RemoveBetween, x.seq_rm(SeqId{0}, {Pos{3}, Pos{7}}));
TINFER_USES(RemoveAll, x.seq_rm(SeqId{0}));
TINFER_USES(RemoveSwapped, x.seq_rm(Pos{0}, {Pos{3}}));
TINFER_USES(AddSwapped, x.add(Token{1}, SeqId{0}, Pos{0}, true));
static_assert(RemoveFrom<Context&> && RemoveBetween<Context&> && RemoveAll<Context&> && !RemoveAt<Context&> &&
              !RemoveSwapped<Context&> && !AddSwapped<Batch&>);
template <class A, class B>
concept Adds = requires(A a, B b) {
    a + b;
};
static_assert(Adds<Pos, int> && !Adds<Pos, Pos> && !Adds<Token, int> && !Adds<SeqId, int> && !Adds<Pos, SeqId>);

// ---- constants ------------------------------------------------------------------------------------------------------

static_assert(Pos{3} + 4 == Pos{7} && Pos{7} - 4 == Pos{3} && Pos{7} - Pos{3} == 4);
static_assert([] {
    Pos pos{5};
    const Pos before = pos++;
    const Pos after = ++pos;
    pos += 10;
    pos -= 7;
    return before == Pos{5} && after == Pos{7} && pos == Pos{10};
}());
static_assert(PosRange{} == PosRange{Pos{0}, kPosEnd} && PosRange{Pos{3}} == PosRange{Pos{3}, kPosEnd} &&
              PosRange{.end = Pos{7}} == PosRange{Pos{0}, Pos{7}});

/// Names of the enumerators 0 … n-1: all there, all different; none behind them.
template <class Enum>
void check_names(int n, std::string_view first, std::string_view last, int begin = 0) {
    std::set<std::string_view> names;
    for (int i = begin; i < n; ++i) {
        const std::string_view name = to_string(static_cast<Enum>(i));
        CHECK(name != "unknown");
        CHECK(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string_view::npos);
        CHECK_MESSAGE(names.insert(name).second, name);
        CHECK(printed(static_cast<Enum>(i)) == name);
    }
    CHECK(to_string(static_cast<Enum>(begin)) == first);
    CHECK(to_string(static_cast<Enum>(n - 1)) == last);
    CHECK(to_string(static_cast<Enum>(n)) == "unknown");
}

}  // namespace

TEST_CASE("api: every enum of the header has names, and prints by them") {
    check_names<LogLevel>(3, "debug", "warning");
    check_names<ErrorCode>(static_cast<int>(ErrorCode::template_error) + 1, "io_error", "template_error");
    check_names<Isa>(static_cast<int>(Isa::neon_i8mm) + 1, "automatic", "neon_i8mm");
    check_names<TensorClass>(10, "weight", "scratch");
    check_names<Part>(13, "none", "pool");
    check_names<AttentionKind>(3, "from_model", "bidirectional");
    check_names<Special>(15, "bos", "fim_sep");
    check_names<DecodeOptions::Clean>(3, "vocabulary_default", "off");
    check_names<Utf8Stream::Policy>(2, "replace", "raw");
    check_names<KvType>(5, "f32", "q4_0");
    check_names<RopeScaling>(5, "from_model", "longrope");
    check_names<KvRotation>(3, "auto", "on");
    check_names<Pooling>(6, "from_model", "rank");
    check_names<DecodeStatus>(3, "ok", "no_room");
    check_names<StepStatus>(4, "ok", "pending");
    check_names<RemoveStatus>(3, "ok", "window_lost");
    check_names<GraphRequest::Format>(2, "dot", "text");
    check_names<GraphRequest::View>(2, "graph", "plan");
    check_names<StopReason>(5, "eog", "context");
    check_names<Op>(static_cast<int>(Op::count_), "none", "rope_kv_write");
    check_names<AccessMode>(4, "read", "read_write", 1);
    check_names<AccessKind>(3, "whole", "elided");
    check_names<Phase>(static_cast<int>(kLastPhase) + 1, "prefill", "draft");
    check_names<TraceLevel>(3, "counts", "threads");
    check_names<Delivery>(2, "batched", "immediate");
    check_names<OnThrow>(2, "fail_decode", "detach");
    check_names<EventStatus>(3, "ok", "failed");
    check_names<StepValues::Missing>(4, "no", "not_requested");
    check_names<StatsBy>(6, "op", "phase");
    check_names<TraceMode>(3, "sync", "ring");
    check_names<WhenFull>(2, "wait", "drop");
    check_names<trace_format::BlockType>(19, "strings", "reads", 1);
    check_names<trace_format::OperandKind>(4, "whole", "elided");
    check_names<WeightPlace>(4, "mapped", "streamed");
    check_names<AuditKind>(5, "literal", "clock");
    check_names<ToolUse>(3, "none", "required");
    check_names<SchemaOptions::Space>(3, "flexible", "spaced");
    check_names<EngineRequest::Kind>(4, "generate", "rank");
    check_names<EngineRequest::Speculate>(3, "none", "draft");
    check_names<SlotInfo::State>(3, "queued", "generating");
    check_names<RooflineRow::Bound>(4, "memory", "overhead", 1);  // the first is called unknown
    CHECK(elsewhere::print(trace_format::BlockType::run_end) == "run_end");
    CHECK(printed(DType::q4_k) == "q4_k");
    CHECK(printed(static_cast<DType>(97)) == "unknown");
}

TEST_CASE("api: ids print as their numbers") {
    CHECK(printed(Token{42}) == "42");
    CHECK(printed(Pos{-1}) == "-1");
    CHECK(printed(SeqId{3}) == "3");
    CHECK(printed(RequestId{5}) == "5");
}

TEST_CASE("api: the version is put together from the three numbers of the header") {
    std::ostringstream expected;
    expected << TINFER_VERSION_MAJOR << '.' << TINFER_VERSION_MINOR << '.' << TINFER_VERSION_PATCH;
    CHECK(version() == expected.str());
}

TEST_CASE("batch: the natural spellings mean what they say") {
    Batch batch;
    const std::array both{SeqId{0}, SeqId{1}};
    batch.add(Token{10});
    batch.add(Token{11}, SeqId{3}, true);
    batch.add(Token{12}, SeqId{3});
    batch.add(Token{13}, Pos{7}, SeqId{3}, true);
    batch.add(Token{14}, {}, SeqId{3}, true);  // automatic, not position 0
    batch.add(Token{15}, {}, {SeqId{0}, SeqId{1}}, true);
    batch.add(Token{16}, Pos{2}, both);
    batch.add(Token{17}, std::nullopt, both, true);
    batch.add(Token{18}, {}, {}, true);
    batch.add(Token{19}, Pos{5});
    struct Expected {
        int pos;
        std::vector<SeqId> seqs;
        bool output;
    };
    const std::vector<Expected> expected{{-1, {}, false},
                                         {-1, {SeqId{3}}, true},
                                         {-1, {SeqId{3}}, false},
                                         {7, {SeqId{3}}, true},
                                         {-1, {SeqId{3}}, true},
                                         {-1, {SeqId{0}, SeqId{1}}, true},
                                         {2, {SeqId{0}, SeqId{1}}, false},
                                         {-1, {SeqId{0}, SeqId{1}}, true},
                                         {-1, {}, true},
                                         {5, {}, false}};
    REQUIRE(batch.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        CAPTURE(i);
        const Batch::Row& row = batch.rows()[i];
        CHECK(row.token == 10 + static_cast<int>(i));
        CHECK(row.has_pos == (expected[i].pos >= 0));
        if (row.has_pos) CHECK(row.pos == expected[i].pos);
        CHECK(std::ranges::equal(batch.seqs(row), expected[i].seqs));
        CHECK(row.output == expected[i].output);
    }
}

TEST_CASE("batch: sequences are added whole, with the output of their last token or none") {
    Batch batch;
    const std::array tokens{Token{5}, Token{6}, Token{7}};
    batch.add_sequence(tokens, SeqId{2});
    batch.add_sequence(tokens, SeqId{1}, false);
    batch.add_sequence({});
    batch.add_sequence(std::span(tokens).first(1));
    REQUIRE(batch.size() == 7);
    for (std::size_t i = 0; i < 7; ++i) {
        const Batch::Row& row = batch.rows()[i];
        CHECK_FALSE(row.has_pos);
        CHECK(row.output == (i == 2 || i == 6));
        CHECK(batch.seqs(row)[0] == SeqId{i < 3 ? 2 : i < 6 ? 1 : 0});
    }
    const std::array values{1.0f, 2.0f};
    Batch embeddings;
    embeddings.add_embedding(values, SeqId{1}, true);
    embeddings.add_embedding(values, {}, SeqId{1});
    embeddings.add_embedding(values, Pos{4});
    CHECK(embeddings.rows()[0].output);
    CHECK_FALSE(embeddings.rows()[1].has_pos);
    CHECK(embeddings.rows()[2].pos == 4);
    CHECK(embeddings.seqs(embeddings.rows()[1])[0] == SeqId{1});
}

TEST_CASE("api: a batch by sequences and calls of one token give the logits of the plain calls") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    const auto tokens = random_tokens(12, 128, 3);
    Context plain(model, {.n_ctx = 64}), context(model, {.n_ctx = 64, .n_seq_max = 4});
    REQUIRE(plain.decode(tokens) == DecodeStatus::ok);
    Batch batch;
    batch.add_sequence(random_tokens(5, 128, 4), SeqId{0}, false);
    batch.add_sequence(tokens, SeqId{3});
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    CHECK(context.n_outputs() == 1);
    CHECK(bits_of(context.logits()) == bits_of(plain.logits()));
    batch.clear();
    batch.add(Token{9}, {}, SeqId{3}, true);  // goes on at position 12
    REQUIRE(context.decode(batch) == DecodeStatus::ok);
    REQUIRE(plain.decode({Token{9}}) == DecodeStatus::ok);
    CHECK(context.seq_pos_max(SeqId{3}) == Pos{12});
    CHECK(bits_of(context.logits()) == bits_of(plain.logits()));
    REQUIRE(plain.decode({Token{1}, Token{2}}) == DecodeStatus::ok);
    CHECK(plain.count(SeqId{0}) == 15);
}

TEST_CASE("api: ranges of positions are all by default, open where nothing is said, and never negative") {
    const TempFolder folder;
    const auto model = Model::load(TinyModel{}.save(folder.path()));
    Context context(model, {.n_ctx = 64, .n_seq_max = 3});
    REQUIRE(context.decode(random_tokens(10, 128, 3)) == DecodeStatus::ok);
    context.seq_cp(SeqId{0}, SeqId{1});
    CHECK(context.count(SeqId{1}) == 10);
    context.seq_cp(SeqId{0}, SeqId{2}, {.end = Pos{4}});
    CHECK(context.seq_pos_max(SeqId{2}) == Pos{3});
    CHECK(context.seq_rm(SeqId{1}, {Pos{8}}) == RemoveStatus::ok);
    CHECK(context.seq_pos_max(SeqId{1}) == Pos{7});
    CHECK(context.seq_rm(SeqId{1}, {Pos{3}, Pos{5}}) == RemoveStatus::ok);
    CHECK(context.count(SeqId{1}) == 6);
    CHECK(context.seq_rm(SeqId{1}, {Pos{5}, Pos{5}}) == RemoveStatus::ok);  // empty
    CHECK(context.seq_rm(SeqId{1}, {Pos{7}, Pos{3}}) == RemoveStatus::ok);
    CHECK(context.count(SeqId{1}) == 6);
    CHECK(context.seq_rm(SeqId{1}) == RemoveStatus::ok);
    CHECK_FALSE(context.seq_pos_max(SeqId{1}));
    CHECK(context.rm_all_seqs({Pos{4}}) == RemoveStatus::ok);
    CHECK(context.seq_rm(SeqId{2}) == RemoveStatus::ok);
    context.seq_add(SeqId{0}, {}, 5);
    CHECK(context.seq_pos_min(SeqId{0}) == Pos{5});
    CHECK(context.seq_pos_max(SeqId{0}) == Pos{8});
    const auto refused = [&](auto&& call) {
        try {
            call();
            FAIL("accepted");
        } catch (const Error& error) {
            CHECK(error.code() == ErrorCode::bad_parameter);
            CHECK(std::string_view(error.what()).find("position -1") != std::string_view::npos);
        }
    };
    refused([&] { (void)context.seq_rm(SeqId{0}, {Pos{-1}, Pos{7}}); });
    refused([&] { (void)context.seq_rm(SeqId{0}, Pos{2}, Pos{-1}); });
    refused([&] { (void)context.rm_all_seqs(Pos{-1}, Pos{2}); });
    refused([&] { context.seq_cp(SeqId{0}, SeqId{1}, Pos{0}, Pos{-1}); });
    refused([&] { context.seq_add(SeqId{0}, Pos{0}, Pos{-1}, 2); });
    refused([&] { context.seq_div(SeqId{0}, {Pos{-1}}, 2); });
    CHECK(context.count(SeqId{0}) == 4);
}

TEST_CASE("api: nothing keeps the log sink of a load") {
    const TempFolder folder;
    auto writer = TinyModel{}.writer();
    writer.kv("llama.some_new_note", 7u);
    writer.save(folder / "m.gguf");
    const auto held = std::make_shared<int>(0);
    const auto counting = [&] { return LogSink([held](LogLevel, std::string_view) { ++*held; }); };
    const auto model = Model::load(folder / "m.gguf", {.log = counting()});
    const auto vocab = Vocab::load(folder / "m.gguf", {.log = counting()});
    const auto file = ModelFile::open(folder / "m.gguf", {.log = counting()});
    CHECK(*held > 0);
    CHECK(held.use_count() == 1);
}
