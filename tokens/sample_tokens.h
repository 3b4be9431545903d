#pragma once

// SampleTokens: chooses the next token of every sequence from its logits.
//
//   // logits: const float*, positions: const int32_t*, tokens: int64_t*
//   absl::Status status =
//       SampleTokens({.logits = Matrix(logits, sequences, vocabulary),
//                     .positions = Vector(positions, sequences),
//                     .sampling = {.temperature = 0.8f, .top_p = 0.95f,
//                                  .seed = 7},
//                     .tokens = Vector(tokens, sequences)},
//                    stream);
//
// The rule, for the logits x of one row, each widened to fp32:
//   NaN          A row with NaN gives its first NaN, as ReduceRows' kArgMax.
//   greedy       temperature 0 gives the largest logit, the first of equals.
//   weights      m = max x;  d_i = 0 where x_i = m, else
//                (x_i - m) * (1 / temperature), each rounded to fp32;
//                w_i = floor(2^40 * Exp(d_i)), an integer (core/elementary.h).
//   min_p        w_i = 0 where w_i < min_p * 2^40: the largest weight is 2^40.
//   order        Larger logits first (+0 = -0), lower ids first among equals.
//   top_k        A = the first top_k tokens of the order; 0: all.
//   top_p        B = the fewest first tokens of the order whose weights add up
//                to floor(W_A * P / 2^32) or more, one at least, where W_A is
//                the weight of A and P = round(2^32 * top_p).
//   choice       target = floor(r * W_B / 2^64); the token is the lowest id in
//                B at which the sum of w over B's ids from the lowest exceeds
//                the target.
//   r            64 random bits: the first two words, low word first, of
//                Philox4x32-10 (Salmon et al., "Parallel random numbers: as
//                easy as 1, 2, 3", 2011) with the seed as its key and the
//                counter {position, 0, sequence, sequence >> 32}.
// Weights are integers, so that a sum does not depend on its order: every
// backend, split and batch gives the same token. Tokens less than 2^-40 as
// likely as the likeliest are never chosen. +Inf takes all; a row of -Inf alone
// is uniform. top_p = 0 and top_k = 1 give the greedy choice.
//
// Shapes: logits [sequences, vocabulary], 1 <= vocabulary <= 2^22, any row
// pitch, alignment of one element; positions, sequence_ids and tokens
// [sequences].
// Aliasing: tokens overlaps none of the others.
// Determinism: a token depends on its row, position, sequence and the sampling
// alone.
// Errors: InvalidArgument for shapes, pointers, overlap, types of vectors;
// temperature that is negative or not finite; top_p or min_p outside [0, 1];
// top_k < 0. Unimplemented for logits that are not in SampleTokensTable
// (tokens/sample_tokens/sample_tokens_policy.h).

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

struct Sampling {
  float temperature = 0;  // 0: the largest logit
  int64_t top_k = 0;      // 0: all tokens
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;

  friend bool operator==(const Sampling&, const Sampling&) = default;
};

struct SampleTokensArgs {
  ConstMatrixView logits;     // [sequences, vocabulary]: f32, f16, bf16
  ConstVectorView positions;  // [sequences] i32: of the tokens before
  // [sequences] i32, what tells the sequences apart; absent: the row's index.
  ConstVectorView sequence_ids = {};
  Sampling sampling = {};
  VectorView tokens;  // [sequences] i64
};
[[nodiscard]] absl::Status SampleTokens(const SampleTokensArgs& args,
                                        Stream stream);

}  // namespace lamina
