#pragma once

// The row algorithm of RmsNorm and AddRmsNorm in the common case
// (norm/lean_norm_args.h): the same rule as norm/norm_row.cuh, the fewest
// instructions.
//
//   z = round_T(x + residual) (or x);  v = (z * rstd) * w;  y or codes of v
//
// A lane owns one, two or four octets, which stay in registers. Weights and a
// static scale are loaded before the kernel waits for its predecessor. Many
// rows: a block loads its next one while it finishes one.

#include <cstdint>

#include "lamina/core/block.cuh"
#include "lamina/core/octet.cuh"
#include "lamina/core/quick_divide.cuh"
#include "lamina/norm/lean_norm_args.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/quant/store_quantized.cuh"
#include "lamina/reduce/row_reduce.cuh"

namespace lamina::norm_internal {

// What the kernel's launch bounds are: most lanes of a block, and blocks of so
// many lanes that a unit should have registers for (NVIDIA: 32, 40 or 64 a
// lane; CDNA: 128).
struct LeanNormBounds {
  int lanes = 1024;
  int blocks = 1;
};
constexpr LeanNormBounds BoundsOf(const LeanNormVariant& variant,
                                  bool residual) {
  if (variant.many_rows || variant.octets == 4 ||
      variant.scope == gpu::RowScope::kCluster) {
    return {};
  }
  if (variant.octets == 1) return {.blocks = gpu::BlocksAUnit(2, 1024)};
  const bool small = variant.output == LeanOutput::kY && !residual;
  return {.lanes = gpu::kWideLanes,
          .blocks = gpu::BlocksAUnit(small ? 3 : 2, gpu::kWideLanes)};
}

template <class T, LeanNormVariant kVariant, bool kResidual,
          class Block = gpu::LaunchedBlock>
class LeanNormRow {
 public:
  static constexpr int kOctets = kVariant.octets;
  static constexpr LeanOutput kOutput = kVariant.output;
  // NOTE: from the L1 cache; in registers they would not fit beside two octets
  // of this row and the next.
  static constexpr bool kWeightsEachRow = kVariant.many_rows;
  using Octet = gpu::Octet;
  using Bits = gpu::OctetBits<T>;

  __device__ explicit LeanNormRow(const LeanNormArgs& args, Block block = {})
      : args_(args), block_(block), lanes_(args.lanes, args.cols, 0, block) {}

  __device__ void Run() {
    Bits w[kOctets];
    if constexpr (!kWeightsEachRow) {
#pragma unroll
      for (int k = 0; k < kOctets; ++k) w[k] = LoadWeights(k);
    }
    float scale = 1.0f;
    if constexpr (kOutput == LeanOutput::kStatic) scale = *args_.scales;
    if (kVariant.many_rows || !args_.late_dependents) block_.AllowDependents();
    block_.WaitForPredecessor();

    uint32_t row = static_cast<uint32_t>(lanes_.row());
    Fetched fetched = Load(row);
    const float inverse = gpu::Divide(1.0f, scale);
    if constexpr (!kVariant.many_rows) {
      OneRow(row, w, inverse, 0, fetched, row);
    } else {
      const uint32_t stride = static_cast<uint32_t>(block_.Count());
      // NOTE: slots in turn: a lane may still read the last row's.
      for (int slot = 0; row < args_.rows; slot ^= 2) {
        const uint32_t next = row + stride;
        OneRow(row, w, inverse, slot, fetched, next);
        row = next;
      }
    }
  }

 private:
  // What a lane has of a row.
  struct Fetched {
    Bits x[kOctets];
    Bits residual[kResidual ? kOctets : 1];
  };
  static constexpr int kParts = static_cast<int>(sizeof(T) / 2);

  __device__ int Column(int k) const {
    return (k * lanes_.lanes() + lanes_.lane()) * gpu::kOctet;
  }
  __device__ bool Exists(int k) const { return Column(k) < args_.cols; }
  // First column of part `part` of octet k. Of f32 an octet is two quads in the
  // two halves of its chunk, so that neighbouring lanes move neighbouring
  // quads.
  __device__ int PartColumn(int k, int part) const {
    if constexpr (kParts == 1) return Column(k);
    const int octet = k * lanes_.lanes() + lanes_.lane();
    return octet / gpu::kChunkLanes * 256 + part * 128 +
           octet % gpu::kChunkLanes * 4;
  }
  __device__ static const char* RowOf(const void* matrix, uint32_t row,
                                      uint32_t pitch) {
    return static_cast<const char*>(matrix) +
           static_cast<uint64_t>(row) * pitch;
  }
  __device__ static char* RowOf(void* matrix, uint32_t row, uint32_t pitch) {
    return static_cast<char*>(matrix) + static_cast<uint64_t>(row) * pitch;
  }

  template <gpu::Access kAccess>
  __device__ Bits LoadOctet(const char* row, int k) const {
    Bits bits = {};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int col = PartColumn(k, part);
      if (col < args_.cols) {
        bits.part[part] =
            gpu::LoadBits128<kAccess>(row + col * static_cast<int>(sizeof(T)));
      }
    }
    return bits;
  }
  __device__ void StoreOctet(const Bits& bits, char* row, int k) const {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const int col = PartColumn(k, part);
      if (col < args_.cols)
        gpu::Store128(bits.part[part], row + col * static_cast<int>(sizeof(T)));
    }
  }
  __device__ Bits LoadWeights(int k) const {
    return LoadOctet<gpu::Access::kConstant>(
        static_cast<const char*>(args_.weight), k);
  }

  __device__ Fetched Load(uint32_t row) const {
    Fetched fetched = {};
    const char* const x = RowOf(args_.x, row, args_.x_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      fetched.x[k] = LoadOctet<gpu::Access::kPlain>(x, k);
    }
    if constexpr (kResidual) {
      const char* const residual =
          RowOf(args_.residual, row, args_.residual_pitch);
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        fetched.residual[k] = LoadOctet<gpu::Access::kPlain>(residual, k);
      }
    }
    return fetched;
  }

  // The canonical sum of the chunk that an octet is of.
  __device__ static float ChunkSum(const Octet& v) {
    constexpr int kWave = kVariant.wave_size;
    if constexpr (kParts == 1) return gpu::ChunkSum<kWave>(gpu::TreeSum(v));
    const float low = (v.v[0] + v.v[1]) + (v.v[2] + v.v[3]);
    const float high = (v.v[4] + v.v[5]) + (v.v[6] + v.v[7]);
    return gpu::ChunkSum<kWave>(low) + gpu::ChunkSum<kWave>(high);
  }

  // Normalises the row that was fetched; fetches `next`.
  __device__ void OneRow(uint32_t row, const Bits (&w)[kOctets], float inverse,
                         int slot, Fetched& fetched, uint32_t next) {
    if constexpr (kResidual) {
      char* const out =
          RowOf(args_.residual_out, row, args_.residual_out_pitch);
#pragma unroll
      for (int k = 0; k < kOctets; ++k) {
        fetched.x[k] = gpu::Pack<T>(gpu::Map(
            gpu::Unpack(fetched.x[k]), gpu::Unpack(fetched.residual[k]),
            [](float a, float b) { return a + b; }));
        StoreOctet(fetched.x[k], out, k);
      }
    }
    Octet z[kOctets];
    float chunks[kOctets];
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      z[k] = gpu::Unpack(fetched.x[k]);
      chunks[k] = ChunkSum(gpu::Map(z[k], [](float v) { return v * v; }));
    }
    if constexpr (kVariant.many_rows) {
      if (next < args_.rows) fetched = Load(next);
    }
    const float mean = gpu::Divide(lanes_.AddChunkSums(0.0f, chunks, slot),
                                   static_cast<float>(args_.cols));
    if (!kVariant.many_rows && args_.late_dependents) block_.AllowDependents();
    const float rstd = gpu::Divide(1.0f, gpu::SquareRoot(mean + args_.epsilon));
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      Octet factor = gpu::Unpack(kWeightsEachRow ? LoadWeights(k) : w[k]);
      if (args_.weight_plus_one) {
        factor = gpu::Map(factor, [](float v) { return 1.0f + v; });
      }
      z[k] = gpu::Map(z[k], factor,
                      [&](float v, float f) { return (v * rstd) * f; });
    }
    if constexpr (kOutput == LeanOutput::kY) StoreY(row, z);
    if constexpr (kOutput == LeanOutput::kStatic) StoreCodes(row, z, inverse);
    if constexpr (kOutput == LeanOutput::kPerRow) StorePerRow(row, z, slot + 1);
    if constexpr (kOutput == LeanOutput::kPerBlock) StorePerBlock(row, z);
  }

  __device__ void StoreY(uint32_t row, const Octet (&v)[kOctets]) const {
    char* const y = RowOf(args_.out, row, args_.out_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      StoreOctet(gpu::Pack<T>(v[k]), y, k);
    }
  }

  __device__ void StoreCodesOf(char* codes, int k, const Octet& v,
                               float inverse) const {
    Octet scaled = gpu::Map(v, [&](float f) { return f * inverse; });
    if (kOutput != LeanOutput::kStatic && args_.clamp) {
      const float limit = args_.qmax;
      scaled = gpu::Map(scaled, [&](float f) {  // NaN passes
        const float below = f > limit ? limit : f;
        return below < -limit ? -limit : below;
      });
    }
    const gpu::Bits64 bits = gpu::EncodeOctet(args_.code, scaled);
    if (Exists(k)) gpu::Store64(bits, codes + Column(k));
  }
  __device__ void StoreCodes(uint32_t row, const Octet (&v)[kOctets],
                             float inverse) const {
    char* const codes = RowOf(args_.out, row, args_.out_pitch);
#pragma unroll
    for (int k = 0; k < kOctets; ++k) StoreCodesOf(codes, k, v[k], inverse);
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

  // 1 / scale: at least 2^-26, and seldom huge.
  __device__ static float DynamicInverse(float scale) {
    if (scale < 0x1p100f) return gpu::QuickDivide(1.0f, scale);
    return gpu::Divide(1.0f, scale);
  }

  __device__ void StorePerRow(uint32_t row, const Octet (&v)[kOctets],
                              int slot) {
    float amax = 0.0f;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      amax = gpu::FiniteAbsMax(v[k], gpu::kOctet, amax);
    }
    const float scale = DynamicScale(lanes_.Reduce(amax, slot, gpu::Larger{}));
    if (lanes_.lane() == 0) args_.scales[row * args_.scale_row_stride] = scale;
    StoreCodes(row, v, DynamicInverse(scale));
  }

  __device__ void StorePerBlock(uint32_t row, const Octet (&v)[kOctets]) {
    char* const codes = RowOf(args_.out, row, args_.out_pitch);
    float* const scales = args_.scales + row * args_.scale_row_stride;
    const int block_lanes = 1 << args_.block_shift;
#pragma unroll
    for (int k = 0; k < kOctets; ++k) {
      const float amax = gpu::WaveReduce<kVariant.wave_size>(
          gpu::FiniteAbsMax(v[k], gpu::kOctet, 0.0f), block_lanes,
          gpu::Larger{});
      const float scale = DynamicScale(amax);
      const int octet = k * lanes_.lanes() + lanes_.lane();
      if (Exists(k) && (octet & (block_lanes - 1)) == 0) {
        scales[(octet >> args_.block_shift) * args_.scale_col_stride] = scale;
      }
      StoreCodesOf(codes, k, v[k], DynamicInverse(scale));
    }
  }

  const LeanNormArgs& args_;
  [[no_unique_address]] Block block_;
  gpu::RowLanes<kVariant.wave_size, kVariant.scope, kVariant.octets, Block>
      lanes_;
};

}  // namespace lamina::norm_internal
