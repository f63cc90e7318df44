// SPDX-License-Identifier: MIT
// The codebook types: iq1_s, iq1_m, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s. A block of 256 values is
//     y = D · l · code,  l = 1, 3, 5 … one per 16 or 32 values, codes four or eight at a time from a row of a book.
// How others choose rows is not published in a form that this follows: here every row is tried. Σ w (x − c·g)² of a row
// g is Σwx² − 2c·a + c²·b with a = Σ w·x·g and b = Σ w·g², which do not depend on the scale c, so many scales cost
// little more than one. Float32, each operation rounded, sums in the order of the elements.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/quants/codebook.hpp"
#include "quantize/encoders.hpp"
#include "quantize/search.hpp"

namespace tinfer::quantize {

namespace {

constexpr int kBlock = 256;

/// What is known of a type: its book, how many values share a scale, and which signs it can say. Books of shifted rows
/// have each row twice, an eighth up and an eighth down.
template <int Rows, int Width, int Sub, int TopLevel, int Scales, bool Even, bool Shifted>
struct BookShape {
    static constexpr int kRows = Rows, kWidth = Width, kSub = Sub, kScales = Scales;
    static constexpr float kTopLevel = TopLevel;
    static constexpr bool kEven = Even, kShifted = Shifted;
};
struct Iq2XxsBook : BookShape<256, 8, 32, 43, 16, true, false> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq2XxsGrid[r]; }
};
struct Iq2XsBook : BookShape<512, 8, 16, 43, 16, true, false> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq2XsGrid[r]; }
};
struct Iq2SBook : BookShape<1024, 8, 16, 43, 16, false, false> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq2SGrid[r]; }
};
struct Iq3XxsBook : BookShape<256, 4, 32, 62, 16, true, false> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq3XxsGrid[r]; }
};
struct Iq3SBook : BookShape<512, 4, 32, 15, 16, false, false> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq3SGrid[r]; }
};
struct Iq1SBook : BookShape<4096, 8, 32, 9, 8, false, true> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq1Grid[r % 2048]; }
};
struct Iq1MBook : BookShape<4096, 8, 16, 9, 8, false, true> {
    static std::uint64_t row(int r) noexcept { return kernels::kIq1Grid[r % 2048]; }
};

/// The values of all rows at one place, as floats.
template <class Book>
std::array<float, Book::kRows> levels_at(int place) noexcept {
    std::array<float, Book::kRows> levels;
    for (int r = 0; r < Book::kRows; ++r) {
        const int value = static_cast<std::int8_t>(Book::row(r) >> 8 * place & 255u);
        levels[r] = static_cast<float>(Book::kShifted ? 8 * value + (r < Book::kRows / 2 ? 1 : -1) : value);
    }
    return levels;
}

/// The row of the least c²·b − 2c·a among rows first … last − 1 (a multiple of eight), the first of several.
int best_row(const float* a, const float* b, float c, int first, int last) noexcept {
    constexpr int kLanes = 8;
    std::array<float, kLanes> least;
    std::array<int, kLanes> index;
    least.fill(std::numeric_limits<float>::infinity());
    index.fill(first);
    for (int r = first; r < last; r += kLanes)
        for (int k = 0; k < kLanes; ++k) {
            const float cost = c * (c * b[r + k] - 2.0f * a[r + k]);
            const bool less = cost < least[k];
            least[k] = less ? cost : least[k];
            index[k] = less ? r + k : index[k];
        }
    int best = 0;
    for (int k = 1; k < kLanes; ++k)
        if (least[k] < least[best] || (least[k] == least[best] && index[k] < index[best])) best = k;
    return index[best];
}

/// The values of one scale, with rows chosen for it.
template <class Book>
class SubBlock {
public:
    static constexpr int kGroups = Book::kSub / Book::kWidth;

    /// `x` as its signs make it: magnitudes where the type has signs of its own.
    void set(const float* x, const float* w) noexcept {
        for (int g = 0; g < kGroups; ++g) a_[g].fill(0), b_[g].fill(0);
        for (int j = 0; j < Book::kWidth; ++j) {
            const auto levels = levels_at<Book>(j);
            for (int g = 0; g < kGroups; ++g) {
                auto &a = a_[g], &b = b_[g];
                const float weight = w[g * Book::kWidth + j], wx = weight * x[g * Book::kWidth + j];
                for (int r = 0; r < Book::kRows; ++r) {
                    a[r] += wx * levels[r];
                    b[r] += weight * levels[r] * levels[r];
                }
            }
        }
    }

    /// Chooses the rows for the scale c.
    void choose(float c) noexcept {
        if constexpr (Book::kShifted && Book::kSub == 32) {  // one shift for all groups
            choose_among(c, 0, Book::kRows / 2);
            const auto up = rows;
            const float cost_up = cost(c);
            choose_among(c, Book::kRows / 2, Book::kRows);
            if (!(cost(c) < cost_up)) rows = up, sum();
        } else choose_among(c, 0, Book::kRows);
    }
    /// Σ w (x − c · code)² without Σ w x².
    [[nodiscard]] float cost(float c) const noexcept { return c * (c * q - 2.0f * p); }

    std::array<int, kGroups> rows{};
    float p = 0, q = 0;  ///< Σ w·x·code, Σ w·code² of the rows

private:
    void choose_among(float c, int first, int last) noexcept {
        for (int g = 0; g < kGroups; ++g) rows[g] = best_row(a_[g].data(), b_[g].data(), c, first, last);
        sum();
    }
    void sum() noexcept {
        p = q = 0;
        for (int g = 0; g < kGroups; ++g) p += a_[g][rows[g]], q += b_[g][rows[g]];
    }

    std::array<std::array<float, Book::kRows>, kGroups> a_, b_;
};

/// A block in a book's terms, to be packed.
template <class Book>
struct CodedBlock {
    static constexpr int kSubs = kBlock / Book::kSub;
    std::array<int, kBlock / Book::kWidth> rows{};
    std::array<int, kSubs> scales{};  ///< s of l = 2s + 1
    std::array<int, 32> signs{};      ///< a bit for each of eight values
    float d = 0;                      ///< D
};

/// Signs of eight values, and the values with them. Where their number must be even, the one that matters least is
/// wrong.
template <class Book>
int take_signs(const float* x, const float* w, float* out) noexcept {
    int signs = 0, count = 0, least = 0;
    for (int j = 0; j < 8; ++j) {
        out[j] = std::fabs(x[j]);
        if (x[j] < 0) signs |= 1 << j, ++count;
        if (w[j] * out[j] < w[least] * out[least]) least = j;
    }
    if (Book::kEven && count % 2 != 0) signs ^= 1 << least, out[least] = -out[least];
    return signs;
}

/// The scale that suits the values of a sub-block best, of its own.
template <class Book>
float free_scale(SubBlock<Book>& sub, float largest) noexcept {
    constexpr int kTries = 12;  // twice as many gain nothing
    double best = 0;
    float scale = 0;
    const auto attempt = [&](float c) {
        sub.choose(c);
        if (!(sub.p > 0) || !(sub.q > 0)) return false;
        const double fit = double{sub.p} * double{sub.p} / double{sub.q};
        if (!(fit > best)) return false;
        best = fit, scale = sub.p / sub.q;
        return true;
    };
    if (!(largest > kTiny)) return 0;
    for (int k = 0; k < kTries; ++k)
        attempt(largest / (Book::kTopLevel * (0.65f + 1.6f / kTries * static_cast<float>(k))));
    for (int round = 0; round < 3 && scale > 0 && attempt(scale); ++round) {
    }
    return scale;
}

int nearest_scale(float c, float d, int n_scales) noexcept {
    return static_cast<int>(round_within((c * inverse(d) - 1.0f) * 0.5f, 0, static_cast<float>(n_scales - 1)));
}

/// The D for which the scales that can be said are nearest to free ones, each as heavy as its q.
template <std::size_t N>
float common_scale(const std::array<float, N>& c, const std::array<float, N>& q, int n_scales) noexcept {
    const float largest = *std::max_element(c.begin(), c.end());
    float best = std::numeric_limits<float>::infinity(), d = 0;
    for (int k = 0; k <= 32; ++k) {
        const float top = static_cast<float>(2 * n_scales - 1) * (1.05f - 0.02f * static_cast<float>(k));
        const float candidate = largest / top;
        float error = 0;
        for (std::size_t i = 0; i < N; ++i) {
            const auto l = static_cast<float>(2 * nearest_scale(c[i], candidate, n_scales) + 1);
            const float off = c[i] - candidate * l;
            error += q[i] * off * off;
        }
        if (error < best) best = error, d = candidate;
    }
    return d;
}

/// The usual weights, at most 1, so that no sum of squares leaves float32.
void weigh(const float* x, const float* importance, std::array<float, kBlock>& w) noexcept {
    double squares = 0;
    for (int i = 0; i < kBlock; ++i) squares += double{x[i]} * double{x[i]};
    const auto mean = static_cast<float>(std::sqrt(squares / kBlock));
    for (int i = 0; i < kBlock; ++i)
        w[i] = importance != nullptr ? importance[i] * std::sqrt(2.0f * mean * mean + x[i] * x[i])
                                     : mean + std::fabs(x[i]);
    const float largest = *std::max_element(w.begin(), w.end());
    for (float& weight : w) weight = largest > 0 ? weight / largest : 0.0f;
}

/// `unit` is what the stored half float is a multiple of D by: 8 for D = d/8.
template <class Book>
CodedBlock<Book> encode_codebook(const float* x, const BlockContext& context, float unit) noexcept {
    using Coded = CodedBlock<Book>;
    constexpr int kSubs = Coded::kSubs, kSub = Book::kSub;
    Coded out;
    std::array<float, kBlock> w, values;
    weigh(x, context.importance, w);
    for (int i = 0; i < kBlock; i += 8)
        if (Book::kShifted) std::copy_n(x + i, 8, values.data() + i);
        else out.signs[i / 8] = take_signs<Book>(x + i, w.data() + i, values.data() + i);

    SubBlock<Book> sub;
    std::array<float, kSubs> c{}, q{};
    for (int b = 0; b < kSubs; ++b) {
        sub.set(values.data() + b * kSub, w.data() + b * kSub);
        c[b] = free_scale(sub, extreme_of<1>(x + b * kSub, kSub).magnitude[0]);
        sub.choose(c[b]);
        q[b] = sub.q;
    }
    if (!(*std::max_element(c.begin(), c.end()) > 0)) return Coded{};
    out.d = as_half(common_scale(c, q, Book::kScales) * unit) / unit;

    float lp = 0, lq = 0;  // Σ l·p, Σ l²·q: what D fits best with the rows as they are
    for (int b = 0; b < kSubs; ++b) {
        sub.set(values.data() + b * kSub, w.data() + b * kSub);
        const int near = nearest_scale(c[b], out.d, Book::kScales);
        float best = std::numeric_limits<float>::infinity(), p = 0, q_of_best = 0;
        for (int s = std::max(0, near - 1); s <= std::min(Book::kScales - 1, near + 1); ++s) {
            const float scale = out.d * static_cast<float>(2 * s + 1);
            sub.choose(scale);
            if (!(sub.cost(scale) < best)) continue;
            best = sub.cost(scale), p = sub.p, q_of_best = sub.q;
            out.scales[b] = s;
            std::copy(sub.rows.begin(), sub.rows.end(), out.rows.begin() + b * SubBlock<Book>::kGroups);
        }
        const auto l = static_cast<float>(2 * out.scales[b] + 1);
        lp += l * p, lq += l * l * q_of_best;
    }
    if (lp > 0 && lq > 0) out.d = lp / lq;
    return out;
}

int seven_signs(int signs) noexcept { return signs & 127; }
void put_u16(std::byte* out, unsigned value) noexcept {
    put_byte(out, static_cast<int>(value & 255u));
    put_byte(out + 1, static_cast<int>(value >> 8 & 255u));
}
void put_u32(std::byte* out, std::uint32_t value) noexcept {
    put_u16(out, value & 0xFFFFu);
    put_u16(out + 2, value >> 16);
}
/// Four 7-bit sign numbers and a 4-bit scale on top.
std::uint32_t sign_word(const int* signs, int scale) noexcept {
    std::uint32_t word = static_cast<std::uint32_t>(scale) << 28;
    for (int l = 0; l < 4; ++l) word |= static_cast<std::uint32_t>(seven_signs(signs[l])) << 7 * l;
    return word;
}
/// Nibbles, the low one first.
void put_nibbles(std::byte* out, const int* values, int n) noexcept {
    for (int i = 0; i < n / 2; ++i) put_byte(out + i, values[2 * i] | values[2 * i + 1] << 4);
}

}  // namespace

void encode_iq2_xxs(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq2XxsBook>(x, context, 8);
    put_half(out, block.d * 8);
    for (int ib = 0; ib < 8; ++ib) {
        for (int l = 0; l < 4; ++l) put_byte(out + 2 + 8 * ib + l, block.rows[4 * ib + l]);
        put_u32(out + 6 + 8 * ib, sign_word(block.signs.data() + 4 * ib, block.scales[ib]));
    }
}

void encode_iq2_xs(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq2XsBook>(x, context, 8);
    put_half(out, block.d * 8);
    for (int g = 0; g < 32; ++g)
        put_u16(out + 2 + 2 * g, static_cast<unsigned>(block.rows[g] | seven_signs(block.signs[g]) << 9));
    put_nibbles(out + 66, block.scales.data(), 16);
}

void encode_iq2_s(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq2SBook>(x, context, 8);
    put_half(out, block.d * 8);
    for (int g = 0; g < 32; ++g) {
        put_byte(out + 2 + g, block.rows[g] & 255);
        put_byte(out + 34 + g, block.signs[g]);
    }
    for (int ib = 0; ib < 8; ++ib) {
        int high = 0;
        for (int l = 0; l < 4; ++l) high |= block.rows[4 * ib + l] >> 8 << 2 * l;
        put_byte(out + 66 + ib, high);
    }
    put_nibbles(out + 74, block.scales.data(), 16);
}

void encode_iq3_xxs(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq3XxsBook>(x, context, 4);
    put_half(out, block.d * 4);
    for (int g = 0; g < 64; ++g) put_byte(out + 2 + g, block.rows[g]);
    for (int ib = 0; ib < 8; ++ib) put_u32(out + 66 + 4 * ib, sign_word(block.signs.data() + 4 * ib, block.scales[ib]));
}

void encode_iq3_s(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq3SBook>(x, context, 1);
    put_half(out, block.d);
    for (int ib = 0; ib < 8; ++ib) {
        int high = 0;
        for (int k = 0; k < 8; ++k) {
            put_byte(out + 2 + 8 * ib + k, block.rows[8 * ib + k] & 255);
            high |= block.rows[8 * ib + k] >> 8 << k;
        }
        put_byte(out + 66 + ib, high);
    }
    for (int g = 0; g < 32; ++g) put_byte(out + 74 + g, block.signs[g]);
    put_nibbles(out + 106, block.scales.data(), 8);
}

void encode_iq1_s(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq1SBook>(x, context, 8);
    put_half(out, block.d * 8);
    for (int ib = 0; ib < 8; ++ib) {
        const bool down = block.rows[4 * ib] >= 2048;
        unsigned word = static_cast<unsigned>(block.scales[ib]) << 12 | (down ? 0x8000u : 0u);
        for (int l = 0; l < 4; ++l) {
            const auto row = static_cast<unsigned>(block.rows[4 * ib + l] % 2048);
            put_byte(out + 2 + 4 * ib + l, static_cast<int>(row & 255u));
            word |= row >> 8 << 3 * l;
        }
        put_u16(out + 34 + 2 * ib, word);
    }
}

void encode_iq1_m(const float* x, const BlockContext& context, std::byte* out) noexcept {
    const auto block = encode_codebook<Iq1MBook>(x, context, 8);
    std::array<int, 32> nibbles;
    for (int g = 0; g < 32; ++g) {
        const int row = block.rows[g] % 2048;
        put_byte(out + g, row & 255);
        nibbles[g] = row >> 8 | (block.rows[g] >= 2048 ? 8 : 0);
    }
    put_nibbles(out + 32, nibbles.data(), 32);
    const unsigned d = f32_to_f16(block.d * 8);
    for (int word = 0; word < 4; ++word) {
        unsigned bits = (d >> 4 * word & 15u) << 12;
        for (int j = 0; j < 4; ++j) bits |= static_cast<unsigned>(block.scales[4 * word + j]) << 3 * j;
        put_u16(out + 48 + 2 * word, bits);
    }
}

}  // namespace tinfer::quantize
