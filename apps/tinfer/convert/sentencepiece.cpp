// SPDX-License-Identifier: MIT
// Protocol buffers (https://protobuf.dev/programming-guides/encoding) as far as sentencepiece_model.proto needs them.
#include <bit>

#include "convert/text.hpp"
#include "convert/vocabulary.hpp"

namespace tinfer::convert {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20, kMaxPieces = std::size_t{1} << 22;

struct Field {
    std::uint64_t number = 0;
    std::uint32_t wire = 0;
    std::uint64_t value = 0;   ///< of wire types 0, 1 and 5
    std::string_view bytes{};  ///< of wire type 2
};

/// Fields of one message, one after the other. `name` and `base` are for messages about the file.
class Message {
public:
    Message(std::string_view bytes, std::string_view name, std::size_t base)
        : bytes_(bytes), name_(name), base_(base) {}

    [[nodiscard]] bool next(Field& field) {
        if (at_ == bytes_.size()) return false;
        const std::uint64_t tag = varint();
        field = {.number = tag >> 3, .wire = static_cast<std::uint32_t>(tag & 7)};
        if (field.number == 0) refuse("a field has the number 0");
        switch (field.wire) {
            case 0: field.value = varint(); break;
            case 1: field.value = fixed(8); break;
            case 2: field.bytes = take(varint()); break;
            case 5: field.value = fixed(4); break;
            default: refuse(cat("wire type ", field.wire, " is not known"));
        }
        return true;
    }
    [[nodiscard]] Message inner(const Field& field) const {
        if (field.wire != 2) refuse(cat("field ", field.number, " is no message"));
        return {field.bytes, name_, base_ + static_cast<std::size_t>(field.bytes.data() - bytes_.data())};
    }
    [[nodiscard]] std::string_view text(const Field& field) const {
        if (field.wire != 2) refuse(cat("field ", field.number, " is no text"));
        return field.bytes;
    }
    [[nodiscard]] std::uint64_t number(const Field& field) const {
        if (field.wire != 0) refuse(cat("field ", field.number, " is no whole number"));
        return field.value;
    }
    [[nodiscard]] float real(const Field& field) const {
        if (field.wire != 5) refuse(cat("field ", field.number, " is no 32-bit float"));
        return std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    }
    [[noreturn]] void refuse(std::string_view what) const {
        fail(ErrorCode::bad_vocabulary, name_, ": byte ", base_ + at_, ": ", what);
    }

private:
    std::uint64_t varint() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; shift < 70; shift += 7) {
            if (at_ == bytes_.size()) refuse("the file ends in a number");
            const auto byte = static_cast<unsigned char>(bytes_[at_++]);
            value |= std::uint64_t{byte & 0x7Fu} << shift;  // bits beyond 64 are dropped, as the format says
            if (byte < 0x80) return value;
        }
        refuse("a number has more than 10 bytes");
    }
    std::string_view take(std::uint64_t n) {
        if (n > bytes_.size() - at_) refuse(cat("a length of ", n, " in ", bytes_.size() - at_, " bytes"));
        const auto taken = bytes_.substr(at_, static_cast<std::size_t>(n));
        at_ += taken.size();
        return taken;
    }
    std::uint64_t fixed(std::size_t n) {
        const auto bytes = take(n);
        std::uint64_t value = 0;
        for (std::size_t i = n; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
        return value;
    }

    std::string_view bytes_, name_;
    std::size_t base_, at_ = 0;
};

TokenText read_piece(Message message) {
    TokenText piece;
    bool has_text = false;
    for (Field field; message.next(field);) {
        if (field.number == 1) piece.text = message.text(field), has_text = true;
        else if (field.number == 2) piece.score = message.real(field);
        else if (field.number == 3) {
            const std::uint64_t type = message.number(field);
            if (type < 1 || type > 6) message.refuse(cat("a piece of the type ", type, ", 1 to 6 are known"));
            piece.type = static_cast<std::int32_t>(type);
        }
    }
    if (!has_text) message.refuse("a piece has no text");
    if (piece.score != piece.score) message.refuse("the score of a piece is no number");
    return piece;
}

void read_trainer(Message message, SentencePiece& result) {
    for (Field field; message.next(field);) {
        const auto id = [&] { return static_cast<std::int32_t>(message.number(field)); };
        switch (field.number) {
            case 3: {
                const std::uint64_t model = message.number(field);
                if (model < 1 || model > 4) message.refuse(cat("model type ", model, " is not known"));
                result.model = static_cast<SentencePiece::Model>(model);
                break;
            }
            case 24: result.suffix_whitespace = message.number(field) != 0; break;
            case 40: result.unk = id(); break;
            case 41: result.bos = id(); break;
            case 42: result.eos = id(); break;
            case 43: result.pad = id(); break;
            default: break;
        }
    }
}

void read_normalizer(Message message, SentencePiece& result) {
    for (Field field; message.next(field);) {
        switch (field.number) {
            case 2: result.character_map = message.text(field); break;
            case 3: result.add_dummy_prefix = message.number(field) != 0; break;
            case 4: result.remove_extra_whitespaces = message.number(field) != 0; break;
            case 5: result.escape_whitespaces = message.number(field) != 0; break;
            default: break;
        }
    }
}

}  // namespace

SentencePiece read_sentencepiece(std::span<const std::byte> bytes, std::string_view name) {
    if (bytes.size() > kMaxBytes)
        fail(ErrorCode::limit_exceeded, name, ": has ", bytes.size(), " bytes, at most ", kMaxBytes, " are read");
    Message message({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name, 0);
    SentencePiece result;
    for (Field field; message.next(field);) {
        if (field.number == 1) {
            if (result.pieces.size() == kMaxPieces)
                fail(ErrorCode::limit_exceeded, name, ": has more than ", kMaxPieces, " pieces");
            result.pieces.push_back(read_piece(message.inner(field)));
        } else if (field.number == 2) read_trainer(message.inner(field), result);
        else if (field.number == 3) read_normalizer(message.inner(field), result);
    }
    if (result.pieces.empty()) message.refuse("no pieces: this is no SentencePiece file");
    return result;
}

}  // namespace tinfer::convert
