// SPDX-License-Identifier: MIT
// Reads a state: no byte of it is trusted until every length, checksum and table has been checked.
#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "runtime/state/format.hpp"

namespace tinfer::runtime::state {

namespace {

class StateParser {
public:
    StateParser(std::span<const std::byte> bytes, std::string_view name) : bytes_(bytes), name_(name) {}

    Parsed parse() {
        read_header();
        std::uint64_t at = kHeaderBytes;
        std::uint32_t tag = 0;
        while (tag != static_cast<std::uint32_t>(Tag::end)) at = read_section(at, tag);
        if (at != bytes_.size()) refuse(cat(bytes_.size() - at, " bytes behind section 'END '"));
        check_sections();
        return std::move(out_);
    }

private:
    [[noreturn]] void refuse(std::string_view what) const {
        fail(ErrorCode::damaged, cat(name_, ": state file truncated or damaged: ", what));
    }

    void read_header() {
        if (bytes_.size() < kMagic.size() || std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0)
            fail(ErrorCode::not_state_file, cat(name_, ": not a state: the first 8 bytes are not '", kMagic, "'"));
        ByteReader in(bytes_, name_, ErrorCode::damaged);
        in.skip(kMagic.size());
        out_.info.version = in.number<std::uint32_t>();
        if (out_.info.version < 1 || out_.info.version > kStateVersion)
            fail(ErrorCode::unsupported_version,
                 cat(name_, ": version ", out_.info.version, " of the format of states, this library reads 1 to ",
                     kStateVersion));
        const auto scope = in.number<std::uint32_t>();
        const auto bytes = in.number<std::uint64_t>();
        if (in.number<std::uint32_t>() != crc32c(bytes_.first(kHeaderBytes - 4))) refuse("checksum of the header");
        if (bytes != bytes_.size()) refuse(cat("it has ", bytes_.size(), " bytes, its header says ", bytes));
        if (scope > 1) refuse(cat("scope ", scope));
        out_.info.whole_context = scope == 0;
        out_.info.bytes = bytes;
    }

    std::uint64_t read_section(std::uint64_t at, std::uint32_t& tag) {
        const std::uint64_t left = bytes_.size() - at;
        if (left < kSectionOverhead) refuse(cat("at a section at byte ", at));
        const std::byte* begin = bytes_.data() + at;
        tag = load<std::uint32_t>(begin);
        const auto n = load<std::uint64_t>(begin + 4);
        const std::string section = cat("at section '", tag_text(tag), "' (byte ", at, ")");
        if (n > left - kSectionOverhead) refuse(section);
        const auto all = bytes_.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(n) + 12);
        if (load<std::uint32_t>(begin + 12 + n) != crc32c(all)) refuse(section);
        const std::string label = cat(name_, ": state file truncated or damaged ", section);
        ByteReader in(all.subspan(12), label, ErrorCode::damaged);
        read_payload(Tag{tag}, in);
        if (!in.at_end()) in.refuse(in.position(), cat(in.remaining(), " bytes too many"));
        return at + n + kSectionOverhead;
    }

    static std::string_view short_text(ByteReader& in) { return in.text(in.number<std::uint16_t>()); }

    void once(Tag tag, ByteReader& in) {
        if (std::ranges::find(seen_, tag) != seen_.end()) in.refuse(0, "it is there twice");
        seen_.push_back(tag);
    }

    void read_payload(Tag tag, ByteReader& in) {
        if (tag != Tag::rows && tag != Tag::states) once(tag, in);
        switch (tag) {
            case Tag::model:
                in.numbers(std::span(out_.info.model));
                out_.info.architecture = short_text(in);
                if (out_.info.version > 1) out_.info.full_model = read_full_fingerprint(in);
                return;
            case Tag::params: return read_parameters(in);
            case Tag::tokens: {
                const auto n = in.count<std::uint64_t>(sizeof(Token));
                out_.info.tokens.resize(static_cast<std::size_t>(n));
                return in.numbers(std::span(out_.info.tokens));
            }
            case Tag::slots: return read_slots(in);
            case Tag::rows: return read_rows(in, out_.rows);
            case Tag::recurrent: return read_recurrent(in);
            case Tag::states: return read_rows(in, out_.states);
            case Tag::outputs: return read_outputs(in);
            case Tag::head: {
                out_.head = in.bytes(in.remaining());
                return;
            }
            case Tag::sampler: {
                const auto bytes = in.bytes(in.remaining());
                out_.info.sampler.assign(bytes.begin(), bytes.end());
                return;
            }
            case Tag::end: return;
        }
        in.refuse(0, "no section of this version has that name");
    }

    void read_parameters(ByteReader& in) {
        const auto n = in.count<std::uint32_t>(6);
        for (std::uint64_t i = 0; i < n; ++i) {
            const auto name = short_text(in);
            out_.parameters.emplace_back(name, in.text(in.number<std::uint32_t>()));
        }
    }

    void read_slots(ByteReader& in) {
        const bool whole = out_.info.whole_context;
        const auto n = in.count<std::uint64_t>(whole ? 9 : 5);
        out_.info.n_tokens = n;
        out_.tokens.reserve(static_cast<std::size_t>(n));
        std::int32_t before = 0;
        for (std::uint64_t i = 0; i < n; ++i) {
            const std::uint64_t at = in.position();
            OutlineToken token{.pos = in.number<std::int32_t>()};
            const auto resident = in.number<std::uint8_t>();
            if (resident > 1) in.refuse(at, cat("token ", i, ": flags ", resident));
            if (token.pos < before || token.pos == std::numeric_limits<std::int32_t>::max())
                in.refuse(at, cat("token ", i, ": position ", token.pos, " behind ", before));
            before = token.pos;
            token.window_slot = resident != 0 ? 0 : -1;
            token.first_seq = static_cast<std::uint32_t>(out_.seqs.size());
            token.n_seqs = whole ? in.number<std::uint16_t>() : 1;
            if (token.n_seqs == 0 || token.n_seqs > 256)
                in.refuse(at, cat("token ", i, ": ", token.n_seqs, " sequences"));
            for (std::uint32_t k = 0; k < token.n_seqs; ++k) {
                const std::int32_t seq = whole ? in.number<std::uint16_t>() : 0;
                for (std::uint32_t j = 0; j < k; ++j)
                    if (out_.seqs[token.first_seq + j] == SeqId{seq})
                        in.refuse(at, cat("token ", i, ": sequence ", seq, " twice"));
                out_.seqs.push_back(SeqId{seq});
            }
            out_.tokens.push_back(token);
        }
    }

    static void read_rows(ByteReader& in, std::vector<Parsed::Rows>& out) {
        Parsed::Rows rows;
        rows.name = short_text(in);
        rows.type = short_text(in);
        rows.row_bytes = in.number<std::uint64_t>();
        const std::uint64_t at = in.position();
        rows.n_rows = in.number<std::uint64_t>();
        const bool fits = rows.row_bytes == 0
                              ? rows.n_rows == 0
                              : in.remaining() % rows.row_bytes == 0 && in.remaining() / rows.row_bytes == rows.n_rows;
        if (!fits) in.refuse(at, cat(rows.n_rows, " rows of ", rows.row_bytes, " bytes in ", in.remaining()));
        rows.bytes = in.bytes(in.remaining());
        out.push_back(rows);
    }

    void read_recurrent(ByteReader& in) {
        const auto n = in.count<std::uint32_t>(16);
        if (n > (out_.info.whole_context ? 256u : 1u)) in.refuse(0, cat(n, " sequences"));
        for (std::uint64_t i = 0; i < n; ++i) {
            const std::uint64_t at = in.position();
            const auto seq = in.number<std::uint32_t>();
            OutlineRecurrent entry;
            entry.seq = SeqId{static_cast<std::int32_t>(std::min(seq, 65536u))};
            entry.pos = in.number<std::int32_t>();
            entry.count = in.number<std::int32_t>();
            entry.row = in.number<std::uint32_t>();
            const bool in_order = out_.recurrent.empty() || out_.recurrent.back().seq < entry.seq;
            if (!in_order || entry.count < 1 || entry.pos < entry.count - 1 || entry.row >= n ||
                entry.pos == std::numeric_limits<std::int32_t>::max() || (!out_.info.whole_context && seq != 0))
                in.refuse(at, cat("state of sequence ", seq, ": position ", entry.pos, ", ", entry.count,
                                  " tokens, number ", entry.row));
            out_.recurrent.push_back(entry);
        }
        out_.n_states = in.number<std::uint32_t>();
        for (std::uint32_t row = 0; row < out_.n_states; ++row)
            if (row >= n || std::ranges::find(out_.recurrent, row, &OutlineRecurrent::row) == out_.recurrent.end())
                in.refuse(0, cat("no sequence has state ", row, " of ", out_.n_states));
        for (const OutlineRecurrent& entry : out_.recurrent)
            if (entry.row >= out_.n_states) in.refuse(0, cat("state ", entry.row, " of ", out_.n_states));
    }

    void read_outputs(ByteReader& in) {
        out_.n_batch = in.number<std::uint64_t>();
        const std::uint64_t at = in.position();
        out_.n_outputs = in.number<std::uint64_t>();
        const auto logits = in.number<std::uint64_t>(), embeddings = in.number<std::uint64_t>();
        if (!out_.info.whole_context || out_.n_outputs == 0 || out_.n_outputs > in.remaining() / 4 ||
            logits > in.remaining() || embeddings > in.remaining() || logits % 4 != 0 || embeddings % 4 != 0)
            in.refuse(at, cat(out_.n_outputs, " outputs of ", logits, " and ", embeddings, " bytes"));
        out_.output_rows = in.bytes(4 * out_.n_outputs);
        std::int64_t before = -1;
        for (std::uint64_t o = 0; o < out_.n_outputs; ++o) {
            const auto row = load<std::int32_t>(out_.output_rows.data() + 4 * o);
            if (row <= before || static_cast<std::uint64_t>(row) >= out_.n_batch)
                in.refuse(at, cat("output ", o, " is row ", row, " of ", out_.n_batch));
            before = row;
        }
        out_.logits = in.bytes(logits);
        out_.embeddings = in.bytes(embeddings);
        out_.info.has_outputs = true;
    }

    void check_sections() const {
        const auto has = [&](Tag tag) { return std::ranges::find(seen_, tag) != seen_.end(); };
        for (const Tag tag : {Tag::model, Tag::params})
            if (!has(tag)) refuse(cat("section '", tag_text(static_cast<std::uint32_t>(tag)), "' is missing"));
        if (!has(Tag::slots) && !out_.rows.empty()) refuse("rows without section 'CELL'");
        if (!has(Tag::recurrent) && !out_.states.empty()) refuse("states without section 'RECU'");
        for (const Parsed::Rows& rows : out_.rows)
            if (rows.n_rows != out_.tokens.size() && rows.n_rows != out_.n_resident())
                refuse(cat("cache '", escaped(rows.name), "' has ", rows.n_rows, " rows of ", out_.tokens.size(),
                           " tokens"));
        for (const Parsed::Rows& rows : out_.states)
            if (rows.n_rows != out_.n_states)
                refuse(cat("states '", escaped(rows.name), "' are ", rows.n_rows, " of ", out_.n_states));
    }

    std::span<const std::byte> bytes_;
    std::string_view name_;
    Parsed out_;
    std::vector<Tag> seen_;
};

}  // namespace

Parsed parse(std::span<const std::byte> bytes, std::string_view name) { return StateParser(bytes, name).parse(); }

}  // namespace tinfer::runtime::state
