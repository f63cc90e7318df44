// SPDX-License-Identifier: MIT
// A context runs a model: batches in, logits and vectors out, with the cache in between.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tinfer/error.hpp"
#include "tinfer/isa.hpp"
#include "tinfer/export.hpp"
#include "tinfer/model.hpp"
#include "tinfer/types.hpp"

namespace tinfer {

class Observer;

/// Element type of a cache. q8_0 and q4_0 hold codes with one scale per 32 channels and need heads of a multiple of 32.
enum class KvType : std::uint8_t { f32, f16, bf16, q8_0, q4_0 };
enum class RopeScaling : std::uint8_t { from_model, none, linear, yarn, longrope };
[[nodiscard]] TINFER_API std::string_view to_string(KvType type) noexcept;
struct ContextOptions {
    int n_ctx = 512;               ///< tokens the cache holds over all sequences; 0 = the model's; rounded up to 64
    int n_seq_max = 1;             ///< sequences 0 … n_seq_max-1; 1 … 256
    int n_batch = 0;               ///< most tokens of one decode call; 0 = n_ctx: a longer batch gets no_room
    int n_ubatch = 512;            ///< most tokens computed at once; 0 = n_batch. 256 at most without experts
    int n_outputs = 0;             ///< most output rows of one call; 0 = n_seq_max (n_batch with logits_all)
    int n_threads = 0;             ///< for one-token steps; 0 = min(physical cores, affinity, cgroup quota). Of more threads
                                   ///< than the process has processors only so many run
    int n_threads_batch = 0;       ///< for larger steps; 0 = n_threads
    Isa isa = Isa::automatic;
    bool fuse = true;              ///< false: one step per node; same bits
    KvType type_k = KvType::f16;
    KvType type_v = KvType::f16;
    float rope_freq_base = 0;      ///< 0 = from the model
    float rope_freq_scale = 0;     ///< 0 = from the model
    RopeScaling rope_scaling = RopeScaling::from_model;
    float yarn_ext_factor = -1;    ///< -1 = 1 if YaRN, else 0
    float yarn_attn_factor = 1, yarn_beta_fast = 32, yarn_beta_slow = 1;
    int yarn_orig_ctx = 0;         ///< 0 = from the model
    bool embeddings = false;       ///< final hidden states of output rows (Context::embedding), pooled if the model pools.
                                   ///< On where `pooling` asks for it and where a model has nothing else to give
    Pooling pooling = Pooling::from_model;   ///< other than none: vectors per sequence (Context::pooled) and no logits
    AttentionKind attention = AttentionKind::from_model;
    bool swa_full = false;         ///< layers with a window keep all cells too: more memory, and every seq_rm is possible
    bool logits_all = false;       ///< every row is an output when a batch gives no flags
    bool allow_position_gaps = false;   ///< positions need only increase
    bool check_finite = false;     ///< refuse embedding input that is not finite
    std::uint64_t memory_limit = 0;     ///< bytes the context may allocate; 0 = no limit
    std::vector<std::string> keep{};    ///< graph nodes whose values Context::result() gives: room for n_batch tokens each
    CancelFn cancel{};
    LogSink log{};
};

/// Bytes by class. Exact for what the library allocates from operator new while a context is made and used (callables in
/// the options, observers and threads are not the library's to count); the mapping is resident only where touched.
struct MemoryPlan {
    std::uint64_t weights_mapped = 0, weights_copied = 0;
    std::uint64_t cache = 0, recurrent = 0;
    std::uint64_t compute = 0;     ///< arena, scratch and inputs of the largest micro-batch
    std::uint64_t outputs = 0;     ///< logits, embeddings and kept values
    std::uint64_t adapters = 0;
    std::uint64_t fixed = 0;       ///< graph, plans, batch and cache bookkeeping
    [[nodiscard]] std::uint64_t context_total() const noexcept { return cache + recurrent + compute + outputs + adapters + fixed; }
    [[nodiscard]] std::uint64_t total() const noexcept { return weights_mapped + weights_copied + context_total(); }
};

/// What loading and a context would take, from header and options alone: no tensor data is touched.
[[nodiscard]] TINFER_API MemoryPlan plan(const std::filesystem::path& path, const ModelOptions& model_options = {},
                                         const ContextOptions& context_options = {});
[[nodiscard]] TINFER_API MemoryPlan plan(const Model& model, const ContextOptions& context_options = {});

/// Tokens (or rows of embeddings) with positions, sequences and output flags. Owns its arrays; clear() keeps capacity.
class TINFER_API Batch {
public:
    Batch() = default;
    /// A token at `pos` (nullopt: after the last of its sequence), in `seqs` (empty: sequence 0).
    void add(Token token, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    void add(Token token, Pos pos, SeqId seq, bool output) { add(token, std::optional(pos), std::span(&seq, 1), output); }
    /// A row of n_embd floats instead of a token.
    void add_embedding(std::span<const float> row, std::optional<Pos> pos = {}, std::span<const SeqId> seqs = {}, bool output = false);
    void clear() noexcept;
    [[nodiscard]] std::size_t size() const noexcept { return rows_.size(); }
    [[nodiscard]] bool empty() const noexcept { return rows_.empty(); }

    struct Row {
        std::int32_t token = -1;         ///< -1: the row is an embedding
        std::int32_t pos = -1;           ///< -1: automatic, see has_pos
        std::uint32_t first_seq = 0, n_seqs = 0;
        std::uint32_t first_value = 0, n_values = 0;   ///< of the embedding
        bool has_pos = false, output = false;
    };
    [[nodiscard]] std::span<const Row> rows() const noexcept { return rows_; }
    [[nodiscard]] std::span<const SeqId> seqs(const Row& row) const noexcept { return std::span(seqs_).subspan(row.first_seq, row.n_seqs); }
    [[nodiscard]] std::span<const float> values(const Row& row) const noexcept { return std::span(values_).subspan(row.first_value, row.n_values); }

private:
    std::vector<Row> rows_;
    std::vector<SeqId> seqs_;
    std::vector<float> values_;
};

/// Expected outcomes of a decode. After anything but `ok` the context is as before the call and has no outputs. `no_room`: the
/// batch has more tokens than Context::room tells, for want of cells or of learned positions; fewer may fit, or these after
/// others are removed, or in a larger context.
enum class [[nodiscard]] DecodeStatus : std::uint8_t { ok, cancelled, no_room };
/// The same of a decode in slices of time (Context::step); `pending`: there is more to do.
enum class [[nodiscard]] StepStatus : std::uint8_t { ok, cancelled, no_room, pending };
/// Outcomes of Context::seq_rm. After anything but `ok` nothing has changed: the range cuts a recurrent state, or a window
/// would reach back to cells that were released (ContextOptions::swa_full keeps them).
enum class [[nodiscard]] RemoveStatus : std::uint8_t { ok, partial_state, window_lost };

/// Seconds and counts since construction or reset_timings(), of calls that ended in `ok`: one that was cancelled, failed or
/// had no room counts neither its tokens nor its time. A call is generation where it takes one token of each of its
/// sequences, and prompt otherwise; encode() and models without causal attention know prompts only.
struct Timings {
    double load_s = 0;                          ///< of the model
    double prompt_s = 0, generation_s = 0;      ///< inside the calls: time between two steps of one is not theirs
    std::uint64_t prompt_n = 0, generation_n = 0;   ///< tokens
};

class Attachment;

/// State of a decode: cache, scratch, outputs. Move-only; one thread at a time (a second one gets `busy`); keeps its model
/// alive. Allocates in its constructor and, for observers and errors aside, nothing after the first decode.
class TINFER_API Context {
public:
    /// Throws bad_parameter, bad_cache_type, limit_exceeded, not_available or out_of_memory; nothing is kept then.
    explicit Context(Model model, ContextOptions options = {});
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();

    /// Appends tokens to sequence 0; the last one is the one output (every one with logits_all). One transaction of any
    /// length up to n_batch.
    DecodeStatus decode(std::span<const Token> tokens);
    /// One transaction: all of the batch, or nothing. Throws invalid_batch (context unchanged), compute_failed, and io_error
    /// where a part of the mapped model file cannot be read any more (ModelOptions::guard_mapping). Where the model has an
    /// encoder, tokens look at what encode() has made of their sequence: encoder_missing where that is nothing.
    DecodeStatus decode(const Batch& batch);

    /// A call of a bidirectional model (AttentionKind), which decode() does as well: its tokens see each other, so they are
    /// at most n_ubatch, and none of them is remembered. Throws unsupported_operation where attention is causal.
    /// Where the model has an encoder (ModelInfo::has_encoder) this runs it. There are no outputs; what it makes of each
    /// sequence of the batch is kept, in place of what all had before, until the next encode or clear(true), for tokens that
    /// are decoded in the same sequence. Those of the cache stay: clear() it for a new text. After a run that ended in
    /// anything but `ok`, nothing is encoded.
    DecodeStatus encode(std::span<const Token> tokens);
    DecodeStatus encode(const Batch& batch);

    /// The same in slices of time: begin(), then step() until it is not `pending`. One transaction, the same bits and the
    /// same events; in between the context is busy for everything that would change it, and observers' clocks go on. The
    /// batch has to stay as it is until the end. begin() throws invalid_batch.
    void begin(std::span<const Token> tokens);
    void begin(const Batch& batch);
    /// Computes for about `budget` and returns between two pieces of work, of which each thread does at least one: they
    /// take a fraction of a millisecond with the vector tables. Throws bad_parameter when nothing has begun; an exception
    /// ends the decode as it does in decode().
    StepStatus step(std::chrono::nanoseconds budget);
    /// Ends a decode that is pending; the context is as before begin(). Nothing happens when there is none.
    void abandon();

    /// Rows of the last decode in batch order; negative indices count from the end. The spans are valid until the next
    /// decode. Throws index_out_of_range, no_output.
    [[nodiscard]] int n_outputs() const noexcept;
    [[nodiscard]] std::span<const float> logits(int index = -1) const;      ///< n_vocab floats
    [[nodiscard]] std::span<const float> embedding(int index = -1) const;   ///< n_embd floats, after the final norm
    /// The vector of a sequence (the first one of its tokens counts) from its tokens of the last decode: n_embd floats, with
    /// Pooling::rank one per class. All tokens take part, whatever their flags. Throws no_output.
    [[nodiscard]] std::span<const float> pooled(SeqId seq = SeqId{0}) const;
    /// Output index of the batch's token i; throws no_output when it was not flagged.
    [[nodiscard]] int output_index(int token_index) const;
    /// A named result of the last decode: "result_output" and "result_norm" of its output rows, or a name of
    /// ContextOptions::keep: of all its tokens, behind the last layer's attention of its output rows, in their order.
    /// Valid until the next decode. Throws no_output.
    [[nodiscard]] std::span<const float> result(std::string_view name) const;

    /// Sequence operations act at once. A range is all of the sequence by default: seq_rm(seq), seq_rm(seq, {Pos{3}, Pos{7}}),
    /// seq_rm(seq, {Pos{3}}) from there on. Throw bad_parameter for a position below 0, bad_sequence.
    RemoveStatus seq_rm(SeqId seq, PosRange range = {});
    RemoveStatus seq_rm(SeqId seq, Pos begin, Pos end) { return seq_rm(seq, PosRange{begin, end}); }
    RemoveStatus rm_all_seqs(PosRange range);                       ///< seq_rm for every sequence
    RemoveStatus rm_all_seqs(Pos begin, Pos end) { return rm_all_seqs(PosRange{begin, end}); }
    void seq_cp(SeqId from, SeqId to, PosRange range = {});         ///< shares pages; copies nothing
    void seq_cp(SeqId from, SeqId to, Pos begin, Pos end) { seq_cp(from, to, PosRange{begin, end}); }
    void seq_keep(SeqId seq);
    /// Moves tokens by `delta` positions, or to their position divided by `divisor`, rounded down; those that would stand
    /// before 0 are removed. Keys are rotated by the difference before the next decode. Throws bad_sequence where tokens
    /// would pass or meet others of the sequence (in a division they may meet each other), shared_cell where another
    /// sequence shares one, and unsupported_operation where positions cannot move: learned positions, part of a recurrent
    /// state.
    void seq_add(SeqId seq, PosRange range, int delta);
    void seq_add(SeqId seq, Pos begin, Pos end, int delta) { seq_add(seq, PosRange{begin, end}, delta); }
    void seq_div(SeqId seq, PosRange range, int divisor);
    void seq_div(SeqId seq, Pos begin, Pos end, int divisor) { seq_div(seq, PosRange{begin, end}, divisor); }
    /// Positions of any range can move: the model knows them by rotation or by biases alone and has no recurrent layers.
    [[nodiscard]] bool can_shift() const noexcept;
    void clear(bool zero_data = false);
    /// nullopt when empty. With windows or recurrent layers: from where on every layer still has everything.
    [[nodiscard]] std::optional<Pos> seq_pos_min(SeqId seq) const;
    [[nodiscard]] std::optional<Pos> seq_pos_max(SeqId seq) const;
    [[nodiscard]] int count(SeqId seq) const;                        ///< tokens of a sequence
    [[nodiscard]] int used() const noexcept;                         ///< tokens in the cache, or states where there is none
    /// Tokens that decode() will take of this sequence now, in calls of at most n_batch, and not one more: n_ctx less used(),
    /// whatever lies where (the cache is compacted when need be, in a maintenance run that observers see; no bit changes),
    /// or fewer where the model has learned positions and comes to the end of their table.
    [[nodiscard]] int room(SeqId seq) const;

    /// Observers see every kernel call of this context until the handle is destroyed. Throws busy inside a callback, and
    /// not_available in builds without tracing.
    [[nodiscard]] Attachment attach(std::shared_ptr<Observer> observer);
    /// An annotation into the trace of every attached observer.
    void mark(std::string_view text);

    [[nodiscard]] const Model& model() const noexcept;
    [[nodiscard]] const ContextOptions& options() const noexcept;    ///< effective values, nothing left at 0
    [[nodiscard]] std::string_view isa() const noexcept;             ///< name of the kernel table in use
    [[nodiscard]] MemoryPlan memory() const noexcept;                ///< counted, not planned: equals plan()
    [[nodiscard]] Timings timings() const noexcept;
    void reset_timings() noexcept;
    void set_threads(int n_threads, int n_threads_batch);
    void set_cancel(CancelFn cancel);

    struct Impl;   ///< the library's own

private:
    friend struct detail::Access;
    std::unique_ptr<Impl> impl_;
};

/// Divides x by its p-norm, p ≥ 1 (2: Euclidean); 0: by max |x| / 32760; -1: not at all. Zeros stay zeros.
TINFER_API void normalize(std::span<float> x, double p = 2);

/// What export_graph draws.
struct GraphRequest {
    int n_tokens = 1;
    int n_outputs = 1;
    enum class Format : std::uint8_t { dot, text } format = Format::dot;
    enum class View : std::uint8_t { graph, plan } view = View::graph;   ///< nodes, or steps with kernels and offsets
};
/// The graph or plan of one micro-batch, without running it and without touching weights.
[[nodiscard]] TINFER_API std::string export_graph(const Model& model, const ContextOptions& options, const GraphRequest& request);

}  // namespace tinfer
