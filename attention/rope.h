#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// Rotary position embedding (Su et al., "RoFormer", 2021).
//
//   const MatrixView rope_table = Matrix(table, 2048, 64);
//   LAMINA_RETURN_IF_ERROR(
//       FillRopeTable({.theta = 1e4, .rotary_dim = 64}, rope_table));
//   absl::Status status = Rope({.x = Heads(q, tokens, 9, 64),
//                               .y = Heads(q, tokens, 9, 64),
//                               .table = rope_table,
//                               .positions = positions},
//                              stream);

// Which two elements of a head are rotated together.
enum class RopePairing : uint8_t {
  kHalfSplit,  // (i, i + rotary_dim / 2): Hugging Face checkpoints
  kAdjacent,   // (2i, 2i + 1): GGUF files of Llama models
};

// inv_freq[i] = theta^(-2i / rotary_dim) for i in [0, rotary_dim / 2).
//
// With factor != 1 they are scaled as Llama 3.1 does, by wavelength
// 2π / inv_freq: shorter than original_max_position / high_freq_factor stays,
// longer than original_max_position / low_freq_factor is divided by factor,
// between them the two are mixed linearly in
// (original_max_position / wavelength - low) / (high - low).
struct RopeFrequencies {
  double theta = 10000.0;
  int64_t rotary_dim = 0;  // even, >= 2
  double factor = 1.0;     // Llama-3 scaling; 1 = off
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 8192;
  // [rotary_dim / 2] f32, optional: inv_freq[i] is divided by divisors[i]
  // (rope_freqs.weight of a GGUF file).
  ConstVectorView divisors = {};
};

// Fills table [positions, rotary_dim] (f32): row p holds cos(p * inv_freq[i])
// in columns [0, rotary_dim / 2) and the sines behind them. Frequencies,
// angles, cosines and sines are computed in double and rounded to fp32 once.
// Host memory only; copy the table to the device that uses it.
// Errors: InvalidArgument.
[[nodiscard]] absl::Status FillRopeTable(const RopeFrequencies& frequencies,
                                         MatrixView table);

// For each head of each token t, with (c, s) = row positions[t] of the table,
// and each pair (x0, x1):
//
//   y0 = x0 * c - x1 * s        each product rounded to fp32, then one
//   y1 = x1 * c + x0 * s        subtraction or addition; one rounding to T
//
// Columns [rotary_dim, head_dim) are copied, bit for bit. The same bits on
// every backend, but that a NaN is any NaN on a GPU.
//
// Shapes      x, y [tokens, heads, head_dim], any strides (a slice of a fused
//             qkv row has batch_stride = the pitch of that row); table
//             [positions, rotary_dim], rotary_dim even and <= head_dim.
// Types       f32, f16, bf16; y has x's.
// Aliasing    y may be the very view of x (in place); else no overlap.
// Result      deterministic; a token's result depends on that token alone.
// Errors      InvalidArgument; Unimplemented for other types. On the CPU a
//             position outside the table is InvalidArgument and names the
//             token; nothing has been written then. A GPU backend does not
//             see positions before it runs: there they are the caller's duty.
struct RopeArgs {
  ConstMatrixView x;
  MatrixView y;
  ConstMatrixView table;               // FillRopeTable's, f32
  const int32_t* positions = nullptr;  // [tokens], rows of the table
  RopePairing pairing = RopePairing::kHalfSplit;
};
[[nodiscard]] absl::Status Rope(const RopeArgs& args, Stream stream);

}  // namespace lamina
