// SPDX-License-Identifier: MIT
#include <algorithm>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "runtime/state/format.hpp"
#include "runtime/state/head_state.hpp"

namespace tinfer::runtime::state {

namespace {

constexpr std::string_view kStateName = "state";
constexpr std::uint64_t kRowsAtOnce = 1u << 16;  // bytes of rows that are gathered before they are written

struct StatePayload {
    std::vector<std::byte> bytes;
    ByteWriter out{bytes, kStateName};

    template <class T>
    StatePayload& number(T value) {
        out.number(value);
        return *this;
    }
    StatePayload& short_text(std::string_view text) {
        out.number(static_cast<std::uint16_t>(text.size()));
        out.text(text);
        return *this;
    }
};

}  // namespace

void check_has_states(const Context::Impl& context) {
    const model::BoundModel& model = context.layout.model();
    if (model.encoder)
        fail(ErrorCode::unsupported_operation,
             cat("state: architecture '", model.hp.arch, "' has an encoder, whose result is no part of a state"));
    if (!context.layout.causal())
        fail(ErrorCode::unsupported_operation, "state: attention is bidirectional, nothing is kept between two calls");
}

void Writer::add(Tag tag, std::vector<std::byte> head, std::uint64_t rest_bytes, std::function<void(const Put&)> rest) {
    const std::uint64_t bytes = head.size() + rest_bytes;
    sections_.push_back({tag, bytes, std::move(head), std::move(rest)});
    bytes_ += bytes + kSectionOverhead;
}

Writer::Writer(Context::Impl& context, const StateOptions& options)
    : context_(&context), whole_context_(!options.seq), bytes_(kHeaderBytes) {
    check_has_states(context);
    const std::int32_t n_seq = context.options.n_seq_max;
    if (options.seq && (*options.seq < SeqId{0} || *options.seq >= SeqId{n_seq}))
        fail(ErrorCode::bad_sequence,
             cat("sequence id ", static_cast<std::int32_t>(*options.seq), " outside 0..", n_seq - 1));
    context.apply_key_shifts();
    outline_ = outline_of(context.sequences, whole_context_ ? Scope::all : Scope::one, options.seq.value_or(SeqId{0}));

    StatePayload model;
    const auto fingerprint = context.layout.model().file->fingerprint();
    model.out.numbers(std::span(fingerprint));
    model.short_text(context.layout.model().hp.arch);
    const FullFingerprint full = known_or_zeros(context.layout.model().file->full_fingerprint());
    model.out.numbers(std::span(full));
    add(Tag::model, std::move(model.bytes));
    StatePayload params;
    const Parameters parameters = compute_parameters(context, options.seq);
    params.number(static_cast<std::uint32_t>(parameters.size()));
    for (const auto& [name, value] : parameters) {
        params.short_text(name);
        params.number(static_cast<std::uint32_t>(value.size())).out.text(value);
    }
    add(Tag::params, std::move(params.bytes));
    if (!options.tokens.empty()) {
        StatePayload tokens;
        tokens.number(std::uint64_t{options.tokens.size()}).out.numbers(options.tokens);
        add(Tag::tokens, std::move(tokens.bytes));
    }
    if (context.sequences.kv() != nullptr) add_slots();
    if (context.sequences.states() != nullptr) add_recurrent();
    if (whole_context_ && context.outputs.size() > 0 && context.options.pooling == Pooling::none) add_outputs();
    if (context.head) add_head(options.seq);
    if (!options.sampler.empty())
        add(Tag::sampler, std::vector<std::byte>(options.sampler.begin(), options.sampler.end()));
    add(Tag::end, {});
}

void Writer::add_slots() {
    StatePayload slots;
    slots.number(std::uint64_t{outline_.tokens.size()});
    for (const OutlineToken& token : outline_.tokens) {
        slots.number(token.pos).number(static_cast<std::uint8_t>(token.window_slot >= 0 ? 1 : 0));
        if (!whole_context_) continue;
        slots.number(static_cast<std::uint16_t>(token.n_seqs));
        for (const SeqId seq : outline_.seqs_of(token))
            slots.number(static_cast<std::uint16_t>(static_cast<std::int32_t>(seq)));
    }
    add(Tag::slots, std::move(slots.bytes));
    for (const CacheRows& rows : cache_rows(*context_)) add_rows(rows);
}

void Writer::add_rows(const CacheRows& rows) {
    const std::uint64_t n = rows.windowed ? outline_.n_resident() : outline_.tokens.size();
    StatePayload head;
    head.short_text(rows.cache->name).short_text(to_string(rows.cache->type)).number(rows.row_bytes).number(n);
    add(Tag::rows, std::move(head.bytes), n * rows.row_bytes, [this, rows](const Put& put) {
        std::vector<std::byte> block;
        const bool pooled = rows.windowed && context_->sequences.has_window_pool();
        for (const OutlineToken& token : outline_.tokens) {
            if (rows.windowed && token.window_slot < 0) continue;
            const auto at = block.size();
            block.resize(at + static_cast<std::size_t>(rows.row_bytes));
            rows.read(pooled          ? context_->sequences.window_slot(token.window_slot)
                      : rows.windowed ? token.window_slot
                                      : token.slot,
                      block.data() + at);
            if (block.size() < kRowsAtOnce) continue;
            put(block);
            block.clear();
        }
        put(block);
    });
}

void Writer::add_recurrent() {
    StatePayload head;
    head.number(static_cast<std::uint32_t>(outline_.recurrent.size()));
    for (const OutlineRecurrent& entry : outline_.recurrent)
        head.number(static_cast<std::uint32_t>(whole_context_ ? static_cast<std::int32_t>(entry.seq) : 0))
            .number(entry.pos)
            .number(entry.count)
            .number(entry.row);
    head.number(static_cast<std::uint32_t>(outline_.rows.size()));
    add(Tag::recurrent, std::move(head.bytes));
    for (const TensorInfo* tensor : state_rows(*context_)) {
        StatePayload rows;
        const std::uint64_t n = outline_.rows.size();
        rows.short_text(tensor->name).short_text(to_string(tensor->type)).number(tensor->row_bytes).number(n);
        add(Tag::states, std::move(rows.bytes), n * tensor->row_bytes, [this, tensor](const Put& put) {
            for (const std::int32_t row : outline_.rows)
                put({static_cast<const std::byte*>(tensor->address) +
                         static_cast<std::uint64_t>(row) * tensor->row_bytes,
                     static_cast<std::size_t>(tensor->row_bytes)});
        });
    }
}

void Writer::add_outputs() {
    const std::uint64_t n_logits = context_->outputs.logits_bytes().size(),
                        n_embeddings = context_->outputs.embedding_bytes().size();
    StatePayload head;
    head.number(std::uint64_t{context_->batch.size()})
        .number(static_cast<std::uint64_t>(context_->outputs.size()))
        .number(n_logits)
        .number(n_embeddings);
    // Of a check that kept a part of its tokens the first rows are left.
    head.out.numbers(context_->batch.output_rows().first(static_cast<std::size_t>(context_->outputs.size())));
    add(Tag::outputs, std::move(head.bytes), n_logits + n_embeddings, [this](const Put& put) {
        put(context_->outputs.logits_bytes());
        put(context_->outputs.embedding_bytes());
    });
}

void Writer::add_head(std::optional<SeqId> seq) {
    const auto section = std::make_shared<const HeadSection>(*context_->head, seq);
    version_ = kStateVersion;
    add(Tag::head, section->begin(), section->memory().bytes(),
        [section](const Put& put) { section->memory().write(put); });
}

void Writer::write(const Put& put) const {
    std::vector<std::byte> header;
    ByteWriter out(header, kStateName);
    out.text(kMagic);
    out.number(version_);
    out.number(std::uint32_t{whole_context_ ? 0u : 1u});
    out.number(bytes_);
    out.number(crc32c(header));
    put(header);
    for (const Section& section : sections_) {
        std::uint32_t crc = 0;
        const Put counted = [&](std::span<const std::byte> bytes) {
            crc = crc32c(bytes, crc);
            put(bytes);
        };
        std::vector<std::byte> begin;
        ByteWriter head(begin, kStateName);
        head.number(static_cast<std::uint32_t>(section.tag));
        head.number(section.bytes);
        counted(begin);
        counted(section.head);
        if (section.rest) section.rest(counted);
        put(std::as_bytes(std::span(&crc, 1)));
    }
}

}  // namespace tinfer::runtime::state
