#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

namespace lamina {

// Which two elements of a head are rotated together.
enum class RopePairing : uint8_t {
  kHalfSplit,  // (i, i + rotary_dim / 2): Hugging Face checkpoints
  kAdjacent,   // (2i, 2i + 1): GGUF files of Llama models
};

// Frequencies: inv_freq[i] = theta^(-2i / rotary_dim), with Llama-3 scaling
// when `factor` is not 1.
struct RopeFrequencies {
  double theta = 10000.0;
  int64_t rotary_dim = 0;
  double factor = 1.0;  // Llama-3 rope scaling; 1 = off
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_max_position = 8192;
};

// Fills table [positions, rotary_dim] (f32): row p holds cos(p * inv_freq[i])
// in columns [0, rotary_dim / 2) and the sines behind them. Host only.
[[nodiscard]] absl::Status FillRopeTable(const RopeFrequencies& frequencies,
                                         MatrixView table);

struct RopeArgs {
  ConstMatrixView x;    // [tokens, heads, head_dim]: f32, f16, bf16
  MatrixView y;         // same; may be x
  ConstMatrixView table;  // FillRopeTable's, f32
  const int32_t* positions = nullptr;  // [tokens], row of the table
  RopePairing pairing = RopePairing::kHalfSplit;
};
[[nodiscard]] absl::Status Rope(const RopeArgs& args, Stream stream);

}  // namespace lamina
