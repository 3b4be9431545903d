#pragma once

// Rows of results that depend on their own columns, in the common case
// (quant/lean_rows_args.h): the same rule as quant/store_quantized.cuh, the
// fewest instructions.
//
// A lane owns 4 or 8 adjacent columns of a row that 2^n blocks share: the
// block's index gives both by a shift and a mask. Few rows: four columns a
// lane, because a lane's time is that of its instructions. Many rows: blocks go
// over them and keep loads of the next ones on their way. A static scale is
// loaded before the kernel waits for its predecessor, all else after it;
// addresses of outputs are formed after the loads.
//
// A Source says what results are made of:
//   using Type;                         of the inputs and of y
//   static constexpr int kInputs;       1: x; 2: x and up
//   template <int n> static Lane<n> Results(const Lane<n> (&inputs)[kInputs]);

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "lamina/core/block.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/lean_rows_args.h"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/wave_reduce.cuh"

namespace lamina::quant_internal {

// Adjacent columns of a lane.
template <int kColumns>
struct Lane {
  float v[kColumns];
};

template <class Source, LeanRowsVariant kVariant,
          class Block = gpu::LaunchedBlock>
class LeanRows {
 public:
  __device__ explicit LeanRows(const LeanRowsArgs& args, Block block = {})
      : args_(args),
        block_(block),
        block_in_row_(static_cast<uint32_t>(block.Index()) & args.blocks_mask),
        first_row_(static_cast<uint32_t>(block.Index()) >> args.blocks_log2),
        col_((block_in_row_ * static_cast<uint32_t>(block.Threads()) +
              static_cast<uint32_t>(gpu::ThreadIndex())) *
             kColumns) {}

  __device__ void Run() {
    if constexpr (!gpu::kWaveRunsHere<kWave>) {
      return;
    } else if constexpr (kOutput == LeanOutput::kPerRow) {
      // NOTE: waited for before the exchange: a block must have started before
      // another writes to its shared memory.
      if constexpr (kCluster) gpu::ClusterArriveRelaxed();
      RunRows();
    } else {
      RunElements();
    }
  }

 private:
  static constexpr LeanOutput kOutput = kVariant.output;
  static constexpr int kWave = kVariant.wave_size;
  static constexpr int kColumns = kVariant.columns;
  static constexpr int kPieces = kVariant.pieces;
  // Numbers that a lane reads at once in an exchange; a block has up to 32.
  static constexpr uint32_t kAtOnce =
      kVariant.scope == gpu::RowScope::kCluster ? 4 : 1;
  static constexpr bool kCluster = kVariant.scope == gpu::RowScope::kCluster;
  static_assert(kColumns == 4 || kColumns == 8, "what one load can take");

  using T = typename Source::Type;
  static constexpr int kInputs = Source::kInputs;
  using Values = Lane<kColumns>;
  using Bits = std::conditional_t<kColumns == 8, gpu::Bits128, gpu::Bits64>;
  struct Input {
    Bits of[kInputs];
  };

  // First column of piece k of this lane; can be past the end.
  __device__ uint32_t Column(int k = 0) const {
    return col_ + static_cast<uint32_t>(k * block_.Threads() * kColumns);
  }
  __device__ bool Exists(int k = 0) const {
    return Column(k) < static_cast<uint32_t>(args_.cols);
  }

  // ---- Loads ----------------------------------------------------------------

  __device__ static Bits LoadBits(const char* p) {
    if constexpr (kColumns == 8) {
      return gpu::Load128(p);
    } else {
      return gpu::Load64(p);
    }
  }
  // Bytes from the first element of an input to this lane's.
  __device__ uint64_t InputOffset(uint32_t row, int k = 0) const {
    return static_cast<uint64_t>(row) * args_.x_pitch +
           static_cast<uint64_t>(Column(k)) * sizeof(T);
  }
  __device__ Input Load(uint64_t offset) const {
    Input input;
    input.of[0] = LoadBits(static_cast<const char*>(args_.x) + offset);
    if constexpr (kInputs == 2) {
      input.of[1] = LoadBits(static_cast<const char*>(args_.up) + offset);
    }
    return input;
  }
  // NOTE: 0 where there is nothing; a result of 0 does not matter to a maximum.
  __device__ Input LoadIf(bool exists, uint64_t offset) const {
    Input input = {};
    if (exists) input = Load(offset);
    return input;
  }

  __device__ static Values Unpack(const Bits& bits) {
    Values values;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      float* const pair = values.v + 2 * i;
      if constexpr (std::is_same_v<T, BF16>) {
        pair[0] = std::bit_cast<float>(bits.word[i] << 16);
        pair[1] = std::bit_cast<float>(bits.word[i] & 0xffff0000u);
      } else {
        gpu::UnpackF16(bits.word[i], pair[0], pair[1]);
      }
    }
    return values;
  }

  __device__ static Values Results(const Input& input) {
    Values inputs[kInputs];
#pragma unroll
    for (int i = 0; i < kInputs; ++i) inputs[i] = Unpack(input.of[i]);
    return Source::Results(inputs);
  }

  // ---- Stores ---------------------------------------------------------------

  __device__ char* OutputOf(uint32_t row, int k = 0) const {
    return static_cast<char*>(args_.out) +
           (static_cast<uint64_t>(row) * args_.out_pitch +
            static_cast<uint64_t>(Column(k)) *
                (kOutput == LeanOutput::kY ? sizeof(T) : 1));
  }
  __device__ static void StoreY(char* y, const Values& values) {
    Bits bits;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const float a = values.v[2 * i], b = values.v[2 * i + 1];
      bits.word[i] =
          std::is_same_v<T, BF16> ? gpu::PackBf16(a, b) : gpu::PackF16(a, b);
    }
    if constexpr (kColumns == 8) {
      gpu::Store128(bits, y);
    } else {
      gpu::Store64(bits, y);
    }
  }
  __device__ static void StoreCodes(char* p, const Values& values,
                                    float inverse) {
    gpu::Bits64 codes;
#pragma unroll
    for (int i = 0; i < kColumns / 4; ++i) {
      const float* const v = values.v + 4 * i;
      codes.word[i] = gpu::EncodeDeviceF8(v[0] * inverse, v[1] * inverse,
                                          v[2] * inverse, v[3] * inverse);
    }
    if constexpr (kColumns == 8) {
      gpu::Store64(codes, p);
    } else {
      gpu::Store32(codes.word[0], p);
    }
  }

  // ---- Scales ---------------------------------------------------------------

  // The largest |v| of the finite values.
  __device__ static float FiniteAbsMax(const Values& values, float amax) {
    float largest = amax;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      largest = std::fmax(largest, std::fabs(values.v[i]));  // ignores NaN
    }
    if (largest <= std::numeric_limits<float>::max()) return largest;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const float magnitude = std::fabs(values.v[i]);
      if (magnitude <= std::numeric_limits<float>::max()) {
        amax = std::fmax(amax, magnitude);
      }
    }
    return amax;
  }
  // quant/scale.h's scale of a group.
  __device__ float DynamicScale(float amax) const {
    const float bounded = amax < args_.scale_ub ? amax : args_.scale_ub;
    // NOTE: exact where it matters: a quotient whose remainder underflows is
    // far below min_scale.
    const float scale =
        gpu::QuotientFrom(bounded, args_.qmax, args_.inverse_qmax);
    return scale > args_.min_scale ? scale : args_.min_scale;
  }
  // The scale of the group that begins at this lane's first column.
  __device__ void StoreScale(uint32_t row, float scale) const {
    const uint32_t group = col_ >> args_.col_shift;
    args_.scales[static_cast<uint64_t>(row) * args_.scale_row_stride +
                 static_cast<uint64_t>(group) * args_.scale_col_stride] = scale;
  }

  // ---- Elements -------------------------------------------------------------

  __device__ void RunElements() const {
    float scale = 1.0f;
    if constexpr (kOutput == LeanOutput::kStatic) scale = *args_.scales;
    if (!args_.late_dependents) block_.AllowDependents();
    const bool exists = Exists();
    // Lanes of a wave meet for the scale of a block of columns.
    if (kOutput != LeanOutput::kPerBlock && !exists) return;
    uint32_t row = first_row_;
    uint64_t offset = InputOffset(row);
    gpu::Settle(offset);
    block_.WaitForPredecessor();

    if constexpr (!kVariant.many_rows) {
      Input input = LoadIf(exists, offset);
      float inverse = gpu::Divide(1.0f, scale);
      gpu::Settle(inverse);  // while the loads are on their way
      Finish(row, OutputOf(row), exists, input, inverse);
    } else {
      constexpr int kAhead = 4 / kInputs;
      const uint32_t rows =
          static_cast<uint32_t>(block_.Count()) >> args_.blocks_log2;
      const uint64_t step = static_cast<uint64_t>(rows) * args_.x_pitch;
      const uint64_t out_step = static_cast<uint64_t>(rows) * args_.out_pitch;
      Input ahead[kAhead];
      uint32_t next = row;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        ahead[i] = LoadIf(exists && next < args_.rows, offset);
        next += rows;
        offset += step;
      }
      const float inverse = gpu::Divide(1.0f, scale);
      char* out = OutputOf(row);
      const auto finish_one = [&](Input& input) {
        if (row >= args_.rows) return false;
        Finish(row, out, exists, input, inverse);
        // NOTE: not earlier: into the registers that are free now. The other
        // waves of the unit take longer than the loads.
        if (exists && next < args_.rows) input = Load(offset);
        row += rows;
        next += rows;
        offset += step;
        out += out_step;
        return true;
      };
      // NOTE: not a loop over them: they have to stay in registers.
      [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
        while ((finish_one(ahead[kIndex]) && ...)) {
        }
      }
      (std::make_index_sequence<kAhead>{});
    }
  }

  __device__ void Finish(uint32_t row, char* out, bool exists,
                         const Input& input, float inverse) const {
    const Values values = Results(input);
    if (!kVariant.many_rows && args_.late_dependents) block_.AllowDependents();
    if constexpr (kOutput == LeanOutput::kY) {
      StoreY(out, values);
    } else if constexpr (kOutput == LeanOutput::kStatic) {
      StoreCodes(out, values, inverse);
    } else {
      const float amax = gpu::WaveReduce<kWave>(
          FiniteAbsMax(values, 0.0f), (1 << args_.col_shift) / kColumns,
          gpu::Larger{});
      if (!exists) return;
      const float group_scale = DynamicScale(amax);
      StoreCodes(out, values, gpu::DynamicInverse(group_scale));
      if ((col_ & ((1u << args_.col_shift) - 1)) == 0) {
        StoreScale(row, group_scale);
      }
    }
  }

  // ---- Rows -----------------------------------------------------------------

  __device__ void RunRows() const {
    if (!args_.late_dependents) block_.AllowDependents();
    uint32_t row = first_row_;
    uint64_t offset = InputOffset(row);
    gpu::Settle(offset);
    block_.WaitForPredecessor();

    Input input[kPieces];
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      input[k] = LoadIf(Exists(k), k == 0 ? offset : InputOffset(row, k));
    }
    if constexpr (!kVariant.many_rows) {
      OneRow(row, input, 0, args_.rows);
    } else {
      const uint32_t step = static_cast<uint32_t>(block_.Count());
      // NOTE: slots in turn: a lane may still read the last row's.
      for (uint32_t slot = 0; row < args_.rows; slot ^= 1) {
        OneRow(row, input, slot, row + step);
        row += step;
      }
    }
  }

  // Finishes the row that was fetched; fetches `next`.
  __device__ void OneRow(uint32_t row, Input (&input)[kPieces], uint32_t slot,
                         uint32_t next) const {
    Values values[kPieces];
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      values[k] = Results(input[k]);
      if constexpr (kVariant.many_rows) {
        if (Exists(k) && next < args_.rows) {
          input[k] = Load(InputOffset(next, k));
        }
      }
      amax = FiniteAbsMax(values[k], amax);
    }
    if (!kVariant.many_rows && args_.late_dependents) block_.AllowDependents();
    const float scale = DynamicScale(RowMax(amax, slot));
    const float inverse = gpu::DynamicInverse(scale);
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      if (Exists(k)) StoreCodes(OutputOf(row, k), values[k], inverse);
    }
    if (col_ == 0) StoreScale(row, scale);
  }

  // The largest of the row's lanes; every wave publishes one number to every
  // block of the row. No value is NaN or has its sign set.
  __device__ float RowMax(float value, uint32_t slot) const {
    const uint32_t thread = static_cast<uint32_t>(gpu::ThreadIndex());
    const uint32_t waves = static_cast<uint32_t>(block_.Threads()) / kWave;
    const uint32_t count = waves << args_.blocks_log2;
    const uint32_t lane = thread % kWave;
    float* const partial = block_.template Shared<float>() + slot * count;
    float* const mine = partial + (block_in_row_ * waves + thread / kWave);
    value = gpu::WaveMax<kWave>(value);
    if constexpr (kCluster) {
      gpu::ClusterWait();
      if (lane <= args_.blocks_mask) {
        gpu::StoreShared(mine, static_cast<int>(lane), value);
      }
      gpu::ClusterArrive();
      gpu::ClusterWait();
    } else {
      if (lane == 0) *mine = value;
      block_.Sync();
    }
    value = 0.0f;
#pragma unroll 1
    for (uint32_t begin = lane; begin < count; begin += kAtOnce * kWave) {
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t from = begin + i * kWave;
        if (from < count) value = std::fmax(value, partial[from]);
      }
    }
    return gpu::WaveMax<kWave>(value);
  }

  const LeanRowsArgs& args_;
  [[no_unique_address]] Block block_;
  uint32_t block_in_row_;
  uint32_t first_row_;
  uint32_t col_;
};

}  // namespace lamina::quant_internal
