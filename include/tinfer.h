/* SPDX-License-Identifier: MIT
 * tinfer for C, and for every language that calls C: opaque handles, options that begin with their size, a status from
 * every call that can fail. C99. The C++ header tinfer/tinfer.hpp says more of each thing; docs/c.md shows a program.
 *
 *     tinfer_model* model = NULL;
 *     if (tinfer_abi_version() != TINFER_ABI_VERSION) return 1;
 *     if (tinfer_model_load("model.gguf", NULL, &model) != TINFER_OK) puts(tinfer_last_error());
 *     tinfer_model_free(model);
 *
 * Status: TINFER_OK is 0. After any other the text is tinfer_last_error() of the same thread, and nothing has changed.
 * No exception and no signal leaves a call; a NULL handle is TINFER_BAD_PARAMETER.
 * Options: set `size` to sizeof the struct and the rest to zero or to what is wanted, or call the _init function where
 * there is one; fields that a caller's older struct does not have get their defaults. NULL means all defaults.
 * Results of a size that is not known: `*n` is what there is; with less `capacity` nothing is written and the status is
 * TINFER_LIMIT_EXCEEDED, so a call with capacity 0 asks. Texts are UTF-8; of those that come back one byte 0 follows,
 * which `n` does not count.
 * Threads: models are for all threads, an engine too. A context, batch, sampler or chat serves one at a time.
 */
#ifndef TINFER_H
#define TINFER_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#    define TINFER_C_API
#else
#    define TINFER_C_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. tinfer_abi_version() is that of the library in use: equal, or the program must not go on. */
#define TINFER_ABI_VERSION 1

typedef int32_t tinfer_status;
enum {
    TINFER_OK = 0,
    /* The codes of tinfer::ErrorCode in their order, from 1 on. */
    TINFER_IO_ERROR, TINFER_OUT_OF_MEMORY, TINFER_LIMIT_EXCEEDED, TINFER_CANCELLED, TINFER_NOT_AVAILABLE,
    TINFER_BAD_PARAMETER, TINFER_BUSY,
    TINFER_NOT_GGUF, TINFER_UNSUPPORTED_VERSION, TINFER_WRONG_ENDIANNESS, TINFER_TRUNCATED, TINFER_BAD_METADATA,
    TINFER_BAD_ALIGNMENT, TINFER_BAD_TENSOR_INFO, TINFER_UNSUPPORTED_TENSOR_TYPE, TINFER_SIZE_OVERFLOW,
    TINFER_BAD_OFFSET, TINFER_TENSOR_OVERLAP, TINFER_TENSOR_OUT_OF_FILE, TINFER_BAD_SPLIT,
    TINFER_MISSING_KEY, TINFER_WRONG_TYPE, TINFER_BAD_KEY, TINFER_BAD_OVERRIDE, TINFER_NOT_A_MODEL, TINFER_UNKNOWN_ARCH,
    TINFER_UNSUPPORTED_ARCH, TINFER_MISSING_TENSOR, TINFER_UNUSED_TENSOR, TINFER_BAD_TENSOR_RANK,
    TINFER_BAD_TENSOR_SHAPE, TINFER_BAD_TENSOR_DATA,
    TINFER_BAD_VOCABULARY, TINFER_UNKNOWN_PRETOKENIZER, TINFER_NO_TOKENIZER, TINFER_MISSING_SPECIAL,
    TINFER_BAD_CACHE_TYPE, TINFER_INVALID_BATCH, TINFER_COMPUTE_FAILED, TINFER_ENCODER_MISSING, TINFER_NO_OUTPUT,
    TINFER_INDEX_OUT_OF_RANGE, TINFER_NON_FINITE,
    TINFER_DAMAGED, TINFER_NOT_STATE_FILE, TINFER_MODEL_MISMATCH, TINFER_PARAM_MISMATCH, TINFER_TYPE_MISMATCH,
    TINFER_NOT_ADAPTER, TINFER_ARCH_MISMATCH, TINFER_BAD_ADAPTER_TENSOR, TINFER_MISSING_BASE_TENSOR,
    TINFER_BAD_SEQUENCE, TINFER_SHARED_CELL, TINFER_UNSUPPORTED_OPERATION, TINFER_NO_ROOM,
    TINFER_NON_FINITE_LOGITS, TINFER_NO_CANDIDATES, TINFER_BAD_GRAMMAR, TINFER_BAD_SCHEMA, TINFER_GRAMMAR_VIOLATION,
    TINFER_GRAMMAR_TOO_AMBIGUOUS, TINFER_TEMPLATE_SYNTAX, TINFER_TEMPLATE_RUNTIME, TINFER_TEMPLATE_ERROR,
    /* What no other code says: a mistake of the library's. */
    TINFER_INTERNAL = 1000
};

typedef struct tinfer_model tinfer_model;
typedef struct tinfer_context tinfer_context;
typedef struct tinfer_batch tinfer_batch;
typedef struct tinfer_sampler tinfer_sampler;
typedef struct tinfer_chat tinfer_chat;
typedef struct tinfer_engine tinfer_engine;
typedef struct tinfer_attachment tinfer_attachment;

TINFER_C_API uint32_t tinfer_abi_version(void);
TINFER_C_API const char* tinfer_version(void);             /* "0.1.0"; as long as the library */
TINFER_C_API const char* tinfer_last_error(void);          /* of this thread, until its next call that fails */
TINFER_C_API const char* tinfer_status_name(tinfer_status status); /* "io_error"; "ok"; "unknown" */

/* ---- Models ------------------------------------------------------------------------------------------------------ */

/* Fractions 0 to 1 of the load; a result of 0 stops it (TINFER_CANCELLED). */
typedef int (*tinfer_progress_fn)(void* user, double fraction);

typedef struct tinfer_model_options {
    size_t size;
    int32_t no_mmap;       /* 1: ordinary reads into one buffer; same bits */
    int32_t mlock;         /* 1: lock the weights in memory */
    int32_t check_tensors; /* 1: scan every block for scales that are not finite */
    int32_t reserved;
    tinfer_progress_fn progress;
    void* user;
    int32_t first_layer; /* with n_layers: these layers alone, as one of several parts that run a model together */
    int32_t n_layers;    /* 0: all from first_layer on */
    uint64_t memory_limit; /* bytes of memory for weights: a larger model is read as it is needed; 0: no limit */
} tinfer_model_options;

typedef struct tinfer_model_info {
    size_t size;
    int32_t n_layer, n_embd, n_head, n_vocab, n_ctx_train, n_class;
    int32_t has_output_head, has_encoder;
    uint64_t n_params, weight_bytes;
    const char* architecture; /* as long as the model */
    int32_t first_layer, last_layer;     /* that are loaded */
    int32_t n_hidden_in, n_hidden_out;   /* floats of a token between parts; 0: there is no part on that side */
} tinfer_model_info;

TINFER_C_API tinfer_status tinfer_model_load(const char* path, const tinfer_model_options* options, tinfer_model** model);
TINFER_C_API void tinfer_model_free(tinfer_model* model); /* contexts and engines keep what they need of it */
TINFER_C_API tinfer_status tinfer_model_get_info(const tinfer_model* model, tinfer_model_info* info); /* set size first */

/* ---- Text -------------------------------------------------------------------------------------------------------- */

enum { TINFER_ADD_SPECIAL = 1, TINFER_PARSE_SPECIAL = 2, TINFER_RENDER_SPECIAL = 4 };

TINFER_C_API tinfer_status tinfer_tokenize(const tinfer_model* model, const char* text, size_t n_bytes, uint32_t flags,
                                           int32_t* tokens, size_t capacity, size_t* n);
/* Any bytes: a text may end inside a character. */
TINFER_C_API tinfer_status tinfer_detokenize(const tinfer_model* model, const int32_t* tokens, size_t n_tokens,
                                             uint32_t flags, char* text, size_t capacity, size_t* n);
TINFER_C_API int tinfer_token_is_eog(const tinfer_model* model, int32_t token); /* 1: it ends a generation */
/* "bos", "eos", "eot", …; -1 where the vocabulary has none. */
TINFER_C_API tinfer_status tinfer_token_special(const tinfer_model* model, const char* name, int32_t* token);

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

/* Polled while a decode runs, on its thread; a result other than 0 cancels it. */
typedef int (*tinfer_cancel_fn)(void* user);

typedef struct tinfer_context_options {
    size_t size;
    int32_t n_ctx;           /* tokens of the cache over all sequences; 0: 512 */
    int32_t n_seq_max;       /* 0: 1 */
    int32_t n_batch;         /* most tokens of one call; 0: n_ctx */
    int32_t n_ubatch;        /* most tokens computed at once; 0: 512 */
    int32_t n_outputs;       /* most output rows of one call; 0: n_seq_max, n_batch with logits_all */
    int32_t n_threads;       /* 0: of the machine */
    int32_t logits_all;      /* 1: every row is an output where a batch gives no flags */
    int32_t embeddings;      /* 1: final hidden states of output rows */
    const char* isa;         /* "avx2", …; NULL: the best */
    const char* type_k;      /* "f32", "f16", "bf16", "q8_0", "q4_0"; NULL: f16 */
    const char* type_v;
    const char* pooling;     /* "none", "mean", "cls", "last", "rank"; NULL: the model's */
    uint64_t memory_limit;   /* bytes that it may allocate; 0: no limit */
    tinfer_cancel_fn cancel; /* may be NULL */
    void* user;
} tinfer_context_options;

typedef struct tinfer_memory_plan {
    size_t size;
    uint64_t weights_mapped, weights_copied, cache, recurrent, compute, outputs, adapters, fixed, total;
    uint64_t weights_paged; /* room for weights that are read when they are needed; part of total */
} tinfer_memory_plan;

/* What a model that is larger than its memory limit has read so far. */
typedef struct tinfer_paging_counts {
    size_t size;
    uint64_t hits, misses; /* units (experts, or streamed tensors) that a step found in memory, or did not find */
    uint64_t bytes_read;
    double waited_s;
    uint64_t slot_bytes, used_bytes, unit_bytes; /* room for units, what of it is used, the largest unit */
    uint64_t ahead_used, ahead_wasted;           /* units read ahead: needed then, or dropped before */
} tinfer_paging_counts;

TINFER_C_API void tinfer_context_options_init(tinfer_context_options* options);
TINFER_C_API tinfer_status tinfer_context_create(const tinfer_model* model, const tinfer_context_options* options,
                                                 tinfer_context** context);
TINFER_C_API void tinfer_context_free(tinfer_context* context); /* attachments to it end */
/* What loading a file and such a context take; no tensor data is touched. Set plan->size first. */
TINFER_C_API tinfer_status tinfer_plan(const char* path, const tinfer_context_options* options, tinfer_memory_plan* plan);
/* All zeros where nothing of the model is paged. Set counts->size first. Any thread. */
TINFER_C_API tinfer_status tinfer_model_get_paging(const tinfer_model* model, tinfer_paging_counts* counts);

TINFER_C_API tinfer_status tinfer_batch_create(tinfer_batch** batch);
TINFER_C_API void tinfer_batch_free(tinfer_batch* batch);
/* pos -1: after the last one of the sequence. */
TINFER_C_API tinfer_status tinfer_batch_add(tinfer_batch* batch, int32_t token, int32_t pos, int32_t seq, int output);
TINFER_C_API tinfer_status tinfer_batch_add_sequence(tinfer_batch* batch, const int32_t* tokens, size_t n, int32_t seq,
                                                     int output_last);
TINFER_C_API void tinfer_batch_clear(tinfer_batch* batch);

/* All or nothing. TINFER_NO_ROOM and TINFER_CANCELLED are outcomes to expect. */
TINFER_C_API tinfer_status tinfer_decode(tinfer_context* context, const int32_t* tokens, size_t n);
TINFER_C_API tinfer_status tinfer_decode_batch(tinfer_context* context, const tinfer_batch* batch);
/* For parts of a model (first_layer, n_layers): a batch goes through all of them in order, with the `n` floats that
 * tinfer_hidden() gives of the part before; NULL and 0 for the first part. A part behind which others follow has no other
 * outputs. tinfer_compute() leaves the batch open, with the context busy for everything but reading, until
 * tinfer_commit() keeps it or tinfer_abandon() leaves the context as before: so parts keep it together, or none does. */
TINFER_C_API tinfer_status tinfer_decode_hidden(tinfer_context* context, const tinfer_batch* batch, const float* hidden,
                                                size_t n);
TINFER_C_API tinfer_status tinfer_compute(tinfer_context* context, const tinfer_batch* batch, const float* hidden,
                                          size_t n);
TINFER_C_API tinfer_status tinfer_commit(tinfer_context* context);
TINFER_C_API tinfer_status tinfer_abandon(tinfer_context* context);
TINFER_C_API tinfer_status tinfer_hidden(const tinfer_context* context, const float** rows, size_t* n);
/* Rows of the last decode, negative indices from the end; valid until the next decode, load_state or clear. */
TINFER_C_API int32_t tinfer_n_outputs(const tinfer_context* context);
TINFER_C_API tinfer_status tinfer_logits(const tinfer_context* context, int32_t index, const float** row, size_t* n);
TINFER_C_API tinfer_status tinfer_embedding(const tinfer_context* context, int32_t index, const float** row, size_t* n);
TINFER_C_API tinfer_status tinfer_pooled(const tinfer_context* context, int32_t seq, const float** row, size_t* n);

/* Positions begin <= p < end; end -1: to the end. */
TINFER_C_API tinfer_status tinfer_seq_rm(tinfer_context* context, int32_t seq, int32_t begin, int32_t end);
TINFER_C_API tinfer_status tinfer_seq_cp(tinfer_context* context, int32_t from, int32_t to, int32_t begin, int32_t end);
TINFER_C_API tinfer_status tinfer_seq_keep(tinfer_context* context, int32_t seq);
TINFER_C_API tinfer_status tinfer_clear(tinfer_context* context);
TINFER_C_API int32_t tinfer_used(const tinfer_context* context); /* tokens in the cache; -1 for NULL */
TINFER_C_API tinfer_status tinfer_room(const tinfer_context* context, int32_t seq, int32_t* n);

/* seq -1: all sequences with the last outputs. */
TINFER_C_API tinfer_status tinfer_state_save(tinfer_context* context, int32_t seq, void* bytes, size_t capacity,
                                             size_t* n);
TINFER_C_API tinfer_status tinfer_state_load(tinfer_context* context, const void* bytes, size_t n, int32_t seq);

/* ---- Sampling ---------------------------------------------------------------------------------------------------- */

/* Call tinfer_sampler_options_init() first: not all of these are off at 0. */
typedef struct tinfer_sampler_options {
    size_t size;
    float temperature; /* 0: the best */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    float penalty_repeat; /* 1: off */
    int32_t top_k;     /* 0: all */
    uint32_t seed;     /* 0xFFFFFFFF: from the hardware */
    const char* chain; /* instead of the others: "top_k(40) | top_p(0.95) | temperature(0.8) | dist(42)"; or NULL */
    const char* grammar; /* GBNF, or NULL */
    const char* schema;  /* a JSON schema, or NULL; not both */
} tinfer_sampler_options;

TINFER_C_API void tinfer_sampler_options_init(tinfer_sampler_options* options); /* those of the library */
TINFER_C_API tinfer_status tinfer_sampler_create(const tinfer_model* model, const tinfer_sampler_options* options,
                                                 tinfer_sampler** sampler);
TINFER_C_API tinfer_status tinfer_sampler_clone(const tinfer_sampler* sampler, tinfer_sampler** clone);
TINFER_C_API void tinfer_sampler_free(tinfer_sampler* sampler);
/* Draws from an output row and accepts the token; observers of the context see it. */
TINFER_C_API tinfer_status tinfer_sample(tinfer_sampler* sampler, tinfer_context* context, int32_t index, int32_t* token);
TINFER_C_API tinfer_status tinfer_sample_row(tinfer_sampler* sampler, const float* logits, size_t n, int32_t* token);
TINFER_C_API tinfer_status tinfer_sampler_accept(tinfer_sampler* sampler, int32_t token);
TINFER_C_API tinfer_status tinfer_sampler_reset(tinfer_sampler* sampler);

/* ---- Conversations ----------------------------------------------------------------------------------------------- */

typedef struct tinfer_chat_options {
    size_t size;
    const char* system; /* or NULL */
    const char* tools;  /* JSON array, or NULL */
    int64_t max_tokens; /* of one answer; 0: no limit */
    int32_t no_thinking;
    int32_t reserved;
} tinfer_chat_options;

/* What was added to an answer. Texts are valid until the next call with the chat; a model may write U+0000, so that the
   numbers of bytes say where content and reasoning end (a 0 follows, too). */
typedef struct tinfer_chat_piece {
    size_t size;
    const char* content;
    const char* reasoning;
    const char* tool_calls; /* JSON array of {"id", "name", "arguments"}; "[]" */
    int32_t ended;          /* 1: the answer is complete, and there is nothing in this piece */
    int32_t reserved;
    size_t n_content; /* bytes, without the 0 at the end */
    size_t n_reasoning;
} tinfer_chat_piece;

TINFER_C_API tinfer_status tinfer_chat_create(const tinfer_model* model, const tinfer_chat_options* options,
                                              tinfer_chat** chat);
TINFER_C_API void tinfer_chat_free(tinfer_chat* chat);
TINFER_C_API tinfer_status tinfer_chat_add(tinfer_chat* chat, const char* role, const char* content);
TINFER_C_API tinfer_status tinfer_chat_add_json(tinfer_chat* chat, const char* message);
TINFER_C_API tinfer_status tinfer_chat_next(tinfer_chat* chat, tinfer_context* context, tinfer_sampler* sampler,
                                            tinfer_chat_piece* piece); /* set size first */
/* The messages so far, a JSON array. */
TINFER_C_API tinfer_status tinfer_chat_messages(const tinfer_chat* chat, char* json, size_t capacity, size_t* n);

/* ---- Many requests at once --------------------------------------------------------------------------------------- */

enum { TINFER_GENERATE = 0, TINFER_SCORE = 1, TINFER_EMBED = 2, TINFER_RANK = 3 };
enum { TINFER_RUNNING = 0, TINFER_STOP_EOG, TINFER_STOP_LIMIT, TINFER_STOP_STRING, TINFER_STOP_INTERRUPT,
       TINFER_STOP_CONTEXT, TINFER_STOP_ERROR };

typedef struct tinfer_request {
    size_t size;
    int32_t kind;
    int32_t reserved;
    const int32_t* prompt;
    size_t n_prompt;
    int64_t max_tokens; /* 0: no limit */
    const tinfer_sampler_options* sampler; /* or NULL; its grammar and schema count, its chain too */
    const char* const* stop;
    size_t n_stop;
    uint32_t time_limit_ms; /* 0: none */
    uint32_t reserved_2;
} tinfer_request;

/* What has come of a request. All of it is valid during the callback. */
typedef struct tinfer_engine_event {
    size_t size;
    uint64_t request;
    const char* text;
    size_t n_text;
    const int32_t* tokens; /* drawn since the last event */
    size_t n_tokens;
    const float* vector; /* embed, rank */
    size_t n_vector;
    const double* log_probs; /* score: of the prompt's tokens, NaN for the first */
    size_t n_log_probs;
    int32_t stop;         /* TINFER_RUNNING, or how it ended */
    tinfer_status status; /* with TINFER_STOP_ERROR */
    const char* error;
    uint64_t n_prompt, n_cached, n_generated;
} tinfer_engine_event;

/* On the engine's thread: all requests wait meanwhile. Exactly one event of each request has `stop` set. */
typedef void (*tinfer_engine_fn)(void* user, const tinfer_engine_event* event);

TINFER_C_API tinfer_status tinfer_engine_create(const tinfer_model* model, const tinfer_context_options* options,
                                                int32_t max_queue, tinfer_engine** engine);
TINFER_C_API void tinfer_engine_free(tinfer_engine* engine); /* every request has had its last event then */
TINFER_C_API tinfer_status tinfer_engine_submit(tinfer_engine* engine, const tinfer_request* request,
                                                tinfer_engine_fn callback, void* user, uint64_t* id);
TINFER_C_API tinfer_status tinfer_engine_cancel(tinfer_engine* engine, uint64_t id);
TINFER_C_API tinfer_status tinfer_engine_drain(tinfer_engine* engine, uint32_t limit_ms); /* TINFER_BUSY: some still run */

/* ---- Observers --------------------------------------------------------------------------------------------------- */

typedef struct tinfer_range {
    uint64_t offset, length, stride;
    uint32_t count, tag;
} tinfer_range;

typedef struct tinfer_access {
    const char* tensor; /* name; not ended by a 0 */
    size_t n_tensor;
    uint64_t bytes; /* unique bytes touched */
    const tinfer_range* ranges;
    size_t n_ranges;
    uint32_t tensor_id;
    uint16_t slot; /* 0: the output */
    uint8_t mode;  /* 1 read, 2 write, 3 both */
    uint8_t tensor_class; /* 0: a weight */
} tinfer_access;

typedef struct tinfer_event {
    uint64_t index, run, begin, end, bytes_read, bytes_written, macs; /* times in ns */
    const char* kernel; /* not ended by a 0 */
    size_t n_kernel;
    const tinfer_access* accesses;
    size_t n_accesses;
    uint32_t step;
    int32_t layer; /* -1: none */
    uint16_t op;
    uint8_t phase, status;
    uint32_t reserved;
} tinfer_event;

/* The events of one run, on the thread that decodes; `event_bytes` apart, valid during the callback. A result other
 * than 0 fails the decode (TINFER_COMPUTE_FAILED), which leaves the context as before. */
typedef int (*tinfer_events_fn)(void* user, const tinfer_event* events, size_t n, size_t event_bytes);

TINFER_C_API tinfer_status tinfer_attach(tinfer_context* context, tinfer_events_fn callback, void* user,
                                         tinfer_attachment** attachment);
TINFER_C_API void tinfer_detach(tinfer_attachment* attachment); /* before or behind its context's end; not in a callback */

#ifdef __cplusplus
}
#endif

#endif
