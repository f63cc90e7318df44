// SPDX-License-Identifier: MIT
// Products of weight rows and activation rows: mul_mat, mul_mat_add, mul_mat_id and mul_mat_heads (mul_mat_id without
// ids: row i of a token meets matrix i) of every weight type. A chunk of work is one or two panels of rows, or a run of
// rows (of one expert), against all its columns; chunks go to whichever thread comes first.
#pragma once

#include "kernels/matmul/block_weights.hpp"
#include "kernels/matmul/chunks.hpp"
#include "kernels/matmul/float_weights.hpp"

namespace tinfer::kernels {

/// Per thread: the columns, then what the weights need.
template <class Arch, class Weights>
std::uint64_t mul_mat_scratch(const StepShape& shape) noexcept {
    const std::uint64_t each = PlainColumns<Arch>::scratch_bytes(shape) +
                               in_lines<Arch>(Weights::scratch_bytes(shape[2].n_rows(), shape[2].ne[0]));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}
template <class Arch, class Weights>
inline constexpr ScratchFn& mul_mat_add_scratch = mul_mat_scratch<Arch, Weights>;
template <class Arch, class Weights>
std::uint64_t mul_mat_id_scratch(const StepShape& shape) noexcept {
    const std::uint64_t each = ExpertColumns<Arch>::scratch_bytes(shape, Weights::gathers) +
                               in_lines<Arch>(Weights::scratch_bytes(shape[0].ne[1] * shape[0].ne[2], shape[2].ne[0]));
    return each * static_cast<std::uint64_t>(shape.n_threads);
}

template <class Arch, class Weights>
inline constexpr ScratchFn& mul_mat_heads_scratch = mul_mat_id_scratch<Arch, Weights>;

/// Multiplies the matrices in use, each with its columns, chunk by chunk.
template <class Arch, class Weights, class Columns>
TINFER_INLINE void multiply_chunks(const KernelCall& call, WorkSlice slice, Columns& columns,
                                   std::byte* scratch) noexcept {
    typename Weights::Session session;
    const std::int64_t most = columns.most();
    ChunkJobs<Arch, Columns> jobs(call, slice, columns,
                                  {Weights::uses_gemv(most), Weights::panel_rows(most), Weights::panels_together(most)},
                                  scratch);
    while (const PanelJob* job = jobs.next()) Weights::multiply(session, *job);
}

template <class Arch, class Weights>
void mul_mat_add(const KernelCall& call, WorkSlice slice) noexcept {
    std::byte* scratch = call.scratch(slice.thread);
    PlainColumns<Arch> columns(call, scratch, Weights::block_columns(call[2].n_rows(), call[2].ne[0]));
    multiply_chunks<Arch, Weights>(call, slice, columns, scratch + PlainColumns<Arch>::scratch_bytes(call));
}

template <class Arch, class Weights>
void mul_mat(const KernelCall& call, WorkSlice slice) noexcept {
    mul_mat_add<Arch, Weights>(call, slice);  // slot 3 is absent
}

template <class Arch, class Weights>
void mul_mat_id(const KernelCall& call, WorkSlice slice) noexcept {
    std::byte* scratch = call.scratch(slice.thread);
    ExpertColumns<Arch> columns(call, scratch, Weights::gathers);
    multiply_chunks<Arch, Weights>(call, slice, columns,
                                   scratch + ExpertColumns<Arch>::scratch_bytes(call, Weights::gathers));
}

template <class Arch, class Weights>
inline constexpr RunFn& mul_mat_heads = mul_mat_id<Arch, Weights>;

}  // namespace tinfer::kernels
