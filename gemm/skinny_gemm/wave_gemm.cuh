#pragma once

// y = epilogue(x · wᵀ) on the tensor cores that every CUDA GPU from sm_80 on
// has, for up to 64 rows of x.
//
// Bytes: w once from memory, x once a block from the caches.
// Mapping: a block has 16 or 32 rows of w (half of them gate, half up, with a
// gate) and all of K, which its 8 waves share: wave i has the segments, 128
// bytes of a row of w, i, i + 8, … They go from memory to registers: a product
// of 16 columns of K takes what a lane has loaded by 16 bytes from a row of w
// and from one of x, whichever columns these are. A wave loads one segment
// ahead; that an SM holds two or three blocks does the rest. FP8 is widened to
// f16 in registers, exactly, and to bf16 beside bf16 activations.
// Limit: reading w up to 16 rows of x (1.2 to 1.4 times the time of that), then
// reading x (2.0 at 32, 3.1 at 64 rows; H200, 2026-11-30, 4096 x 14336).
//
// The rule here: the products of a segment, 64 columns of 16-bit weights or 128
// of FP8, are summed by the tensor core; with scales of blocks this sum is
// scaled; a wave adds its segments in order, in fp32. The waves' sums are added
// in their order. Hence the bits of a row of y depend on nothing but that row
// and the kind of tensor core.

#include <cstdint>
#include <type_traits>

#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/device/matrix.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/wave_gemm_args.h"

namespace lamina::gemm_internal {

template <WaveGemmVariant kVariant>
class WaveGemm {
 public:
  __device__ explicit WaveGemm(const WaveGemmArgs& args)
      : args_(args.gemm),
        segments_(args.segments),
        wave_(gpu::UniformWave()),
        row_(gpu::ThreadIndex() % 32 / 4),
        column_(gpu::ThreadIndex() % 4) {
    first_col_ = static_cast<int>(gpu::BlockIndex()) * Cols();
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        w_row_[tile][half] = WeightRow(16 * tile + 8 * half + row_);
      }
    }
  }

  __device__ void Run() {
    gpu::AllowDependents();
    LoadWeights(wave_);
    gpu::WaitForPredecessor();
    for (int segment = wave_; segment < segments_; segment += kWaveGemmWaves) {
      uint32_t w[kTiles][kSteps][4];
      Operands(w);
      LoadWeights(segment + kWaveGemmWaves);
      Add(segment, w);
    }
    Put();
    gpu::BlockSync();
    Store();
  }

 private:
  static constexpr WaveTypes kTypes = kVariant.types;
  static constexpr bool kFp8W = HasFp8Weights(kTypes);
  static constexpr bool kFp8X = kTypes == WaveTypes::kF8;
  // What the tensor cores multiply.
  using T = std::conditional_t<MultipliesBF16(kTypes), BF16, F16>;

  static constexpr int kTiles = WaveTiles(kVariant);
  static constexpr int kRows = kVariant.rows;
  static constexpr int kGroups = kRows / 8;  // of rows of x: a product's
  static constexpr int kTogether = kGroups < 2 ? 1 : 2;
  static constexpr int kSteps = kFp8W ? 8 : 4;  // products along a segment
  static constexpr int kHalfSteps = kSteps / 2;
  static constexpr int kPitch = kWaveTileRows * kTiles + 4;  // no conflicts

  // ---- Places ---------------------------------------------------------------

  // Columns of y of a block.
  __device__ int Cols() const {
    return kWaveTileRows * kTiles / (args_.epilogue.gated ? 2 : 1);
  }
  // The row of w behind row `row` of the block's tiles. NOTE: what does not
  // exist is the last column's.
  __device__ int WeightRow(int row) const {
    const bool gated = args_.epilogue.gated;
    const int col = first_col_ + (gated ? row / 16 * 8 + row % 8 : row);
    const int last = args_.epilogue.cols - 1;
    return Epilogue(args_.epilogue)
        .WeightRow(col < last ? col : last, gated && row % 16 >= 8);
  }
  // The first of the lane's 16 bytes of a row of w.
  __device__ int Byte(int segment, int half) const {
    return segment * kWaveSegmentBytes + half * 64 + column_ * 16;
  }
  __device__ bool Exists(int segment, int half) const {
    return Byte(segment, half) < args_.k * (kFp8W ? 1 : 2);
  }

  // ---- Operands -------------------------------------------------------------

  // May run before WaitForPredecessor. Zero past the end.
  __device__ void LoadWeights(int segment) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = Exists(segment, half);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          next_[tile][half][i] = {};
          if (exists) {
            next_[tile][half][i] = gpu::Load128Streaming(
                static_cast<const char*>(args_.w) +
                w_row_[tile][i] * args_.w_pitch + Byte(segment, half));
          }
        }
      }
    }
  }

  // 16 codes as pairs of T, two a step.
  template <class F8>
  __device__ static void Widen(const gpu::Bits128& codes,
                               uint32_t (&pairs)[4][2]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto two = static_cast<uint16_t>(codes.word[i / 2] >> i % 2 * 16);
      if constexpr (std::is_same_v<T, F16>) {
        pairs[i / 2][i % 2] = gpu::WidenToF16<F8>(two);
      } else {
        pairs[i / 2][i % 2] = gpu::WidenToBf16<F8>(two);
      }
    }
  }
  __device__ static void Widen(DType type, const gpu::Bits128& codes,
                               uint32_t (&pairs)[4][2]) {
    if (type == DType::kF8E5M2) {
      Widen<F8E5M2>(codes, pairs);
    } else {
      Widen<F8E4M3Fn>(codes, pairs);
    }
  }

  // The segment that has been loaded, as products take it.
  __device__ void Operands(uint32_t (&w)[kTiles][kSteps][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const gpu::Bits128& bits = next_[tile][half][i];
          uint32_t pairs[4][2];
          if constexpr (kFp8W) {
            Widen(args_.w_type, bits, pairs);
          }
#pragma unroll
          for (int step = 0; step < kHalfSteps; ++step) {
            uint32_t(&to)[4] = w[tile][half * kHalfSteps + step];
            to[i] = kFp8W ? pairs[step][0] : bits.word[2 * step];
            to[i + 2] = kFp8W ? pairs[step][1] : bits.word[2 * step + 1];
          }
        }
      }
    }
  }

  // What meets a segment of w of row `row` of x.
  __device__ void LoadActivations(int row, int segment,
                                  uint32_t (&x)[kSteps][2]) const {
    const int last = args_.m - 1;
    const char* const from = static_cast<const char*>(args_.x) +
                             (row < last ? row : last) * args_.x_pitch;
    constexpr int kWide = kFp8W && !kFp8X ? 2 : 1;  // bytes of x a byte of w
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool exists = Exists(segment, half);
      gpu::Bits128 bits[kWide] = {};
#pragma unroll
      for (int i = 0; i < kWide; ++i) {
        if (exists) {
          bits[i] = gpu::Load128(from + Byte(segment, half) * kWide + i * 16);
        }
      }
      uint32_t pairs[4][2];
      if constexpr (kFp8X) {
        Widen(args_.x_type, bits[0], pairs);
      }
#pragma unroll
      for (int step = 0; step < kHalfSteps; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int word = 2 * step + i;
          x[half * kHalfSteps + step][i] =
              kFp8X ? pairs[step][i] : bits[word / 4].word[word % 4];
        }
      }
    }
  }

  // ---- Sums -----------------------------------------------------------------

  // A lane's sums i of a tile and a group of rows of x are of row
  // row_ + 8 * (i / 2) of the tile and of row 2 * column_ + i % 2 of the group.
  __device__ void Add(int segment, const uint32_t (&w)[kTiles][kSteps][4]) {
    float w_scale[kTiles][2];
    const int k = segment * kWaveSegmentBytes;  // FP8: a block's
    if (args_.block_scales) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          w_scale[tile][i] = ScaleOrOne(args_.w_scales, w_row_[tile][i], k);
        }
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; group += kTogether) {
      uint32_t x[kTogether][kSteps][2];
      float products[kTogether][kTiles][4] = {};
#pragma unroll
      for (int g = 0; g < kTogether; ++g) {
        LoadActivations(8 * (group + g) + row_, segment, x[g]);
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int g = 0; g < kTogether; ++g) {
#pragma unroll
          for (int tile = 0; tile < kTiles; ++tile) {
            gpu::WaveMma<T>(products[g][tile], w[tile][step], x[g][step]);
          }
        }
      }
#pragma unroll
      for (int g = 0; g < kTogether; ++g) {
        if (args_.block_scales) Scale(group + g, k, w_scale, products[g]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums_[group + g][tile][i] += products[g][tile][i];
          }
        }
      }
    }
  }

  __device__ void Scale(int group, int k, const float (&w_scale)[kTiles][2],
                        float (&products)[kTiles][4]) const {
    float x_scale[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 8 * group + 2 * column_ + i;
      x_scale[i] =
          ScaleOrOne(args_.x_scales, row < args_.m ? row : args_.m - 1, k);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        products[tile][i] =
            (products[tile][i] * x_scale[i % 2]) * w_scale[tile][i / 2];
      }
    }
  }

  // ---- Results --------------------------------------------------------------

  // Of a wave: [kRows, kPitch].
  __device__ static float* Exchanged(int wave) {
    return gpu::SharedMemory<float>() + wave * kRows * kPitch;
  }

  __device__ void Put() const {
    float* const exchanged = Exchanged(wave_);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          exchanged[(8 * group + 2 * column_ + i % 2) * kPitch +
                    kWaveTileRows * tile + 8 * (i / 2) + row_] =
              sums_[group][tile][i];
        }
      }
    }
  }

  // NOTE: what the epilogue knows is not kept while there are sums: registers.
  __device__ void Store() const {
    const Epilogue epilogue(args_.epilogue);
    const int cols = Cols();
    for (int i = gpu::ThreadIndex(); i < args_.m * cols;
         i += kWaveGemmThreads) {
      const int row = i / cols;
      const int col = i % cols;
      if (first_col_ + col >= args_.epilogue.cols) continue;
      if (epilogue.gated()) {
        const int gate = col / 8 * 16 + col % 8;
        epilogue.StoreGated(row, first_col_ + col, Sum(row, gate),
                            Sum(row, gate + 8));
      } else {
        epilogue.Store(row, first_col_ + col, Sum(row, col));
      }
    }
  }

  // Of row `tile_row` of the block's tiles.
  __device__ float Sum(int row, int tile_row) const {
    float sum = 0.0f;
#pragma unroll
    for (int wave = 0; wave < kWaveGemmWaves; ++wave) {
      const float part = Exchanged(wave)[row * kPitch + tile_row];
      sum = wave == 0 ? part : sum + part;
    }
    if (args_.block_scales) return sum;
    return (sum * ScaleOrOne(args_.x_scales, row, 0)) *
           ScaleOrOne(args_.w_scales, WeightRow(tile_row), 0);
  }

  const GemmArgs& args_;
  int segments_;
  int wave_;
  int row_;     // of a group of eight that the lane loads
  int column_;  // of 16 bytes, likewise
  int first_col_;
  int w_row_[kTiles][2];
  // What a lane loads of a segment: 16 bytes of two rows of a tile and of the
  // two halves of the segment.
  gpu::Bits128 next_[kTiles][2][2];
  float sums_[kGroups][kTiles][4] = {};
};

constexpr int WaveGemmSharedBytes(const WaveGemmVariant& variant) {
  return kWaveGemmWaves * variant.rows *
         (kWaveTileRows * WaveTiles(variant) + 4) * int{sizeof(float)};
}

}  // namespace lamina::gemm_internal
