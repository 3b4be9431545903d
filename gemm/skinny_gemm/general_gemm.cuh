#pragma once

// SkinnyGemm on any GPU, for any types, strides and alignment: fp32 fma on the
// ordinary lanes. skinny_gemm.h has the rule.
//
//   partial[lane] = sum over octets lane, lane + 32, … of (octet of x · of w)
//   sum           = tree over the 32 partials
//
// 32 adjacent lanes own a cell: kVariant.w_rows rows of w (pairs of gate and
// up), of which they read every byte once, times kVariant.x_rows rows of x,
// which come from the caches. Cells of the same columns follow each other, one
// a pass over x. A lane loads the octets of its next step while it multiplies
// those of this one: 64 to 128 bytes on their way. The limit of one row
// of x is reading w, of more the products and decoding FP8: bf16 weights are
// read at 0.83 of the limit by one row, 0.38 by eight (H200, 28672 x 4096,
// 2026-11-30).

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "lamina/core/octet.cuh"
#include "lamina/gemm/skinny_gemm/epilogue.cuh"
#include "lamina/gemm/skinny_gemm/fp8_decoder.cuh"
#include "lamina/gemm/skinny_gemm/general_gemm_args.h"
#include "lamina/quant/fp8.cuh"
#include "lamina/reduce/wave_reduce.cuh"

namespace lamina::gemm_internal {

using gpu::Bits128;
using gpu::Bits64;
using gpu::kOctet;
using gpu::Octet;

inline constexpr int kCellLanes = 32;
inline constexpr int kGeneralGemmThreads = 128;
inline constexpr int kCellsPerBlock = kGeneralGemmThreads / kCellLanes;

// ---- Loads ------------------------------------------------------------------

// An octet of weights as it is in memory.
template <bool kFp8>
using RawOctet = std::conditional_t<kFp8, Bits64, Bits128>;

__device__ inline void LoadRaw(const char* p, Bits64& raw) {
  raw = gpu::Load64(p);
}
__device__ inline void LoadRaw(const char* p, Bits128& raw) {
  raw = gpu::Load128Streaming(p);
}
__device__ inline Octet Decode(DType, const Fp8Decoder& decode,
                               const Bits64& raw) {
  return decode(raw);
}
__device__ inline Octet Decode(DType type, const Fp8Decoder&,
                               const Bits128& raw) {
  return type == DType::kF16 ? gpu::Unpack(gpu::OctetBits<F16>{{raw}})
                             : gpu::Unpack(gpu::OctetBits<BF16>{{raw}});
}

template <class T, int kRows>
__device__ inline void LoadOctets(const char* const (&rows)[kRows], int octet,
                                  Octet (&x)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    x[r] = gpu::LoadOctet(reinterpret_cast<const T*>(rows[r]) +
                          int64_t{octet} * kOctet);
  }
}

// An octet of each row.
template <int kRows>
__device__ inline void LoadOctets(DType type, const Fp8Decoder& decode,
                                  const char* const (&rows)[kRows], int octet,
                                  Octet (&x)[kRows]) {
  if (type == DType::kF32) {
    LoadOctets<float>(rows, octet, x);
  } else if (type == DType::kF16) {
    LoadOctets<F16>(rows, octet, x);
  } else if (type == DType::kBF16) {
    LoadOctets<BF16>(rows, octet, x);
  } else {
    Bits64 codes[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      codes[r] = gpu::Load64(rows[r] + int64_t{octet} * kOctet);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) x[r] = decode(codes[r]);
  }
}

// Element `index` of a row.
__device__ inline float LoadOperand(DType type, const char* row, int index) {
  if (!IsFp8(type)) return LoadElement(type, row, index);
  namespace fp8 = gpu::fp8_internal;
  const uint32_t code = static_cast<uint8_t>(row[index]);
  switch (type) {
    case DType::kF8E4M3Fn:
      return fp8::Decode<F8E4M3Fn>(code);
    case DType::kF8E5M2:
      return fp8::Decode<F8E5M2>(code);
    case DType::kF8E4M3Fnuz:
      return fp8::Decode<F8E4M3Fnuz>(code);
    default:
      return fp8::Decode<F8E5M2Fnuz>(code);
  }
}

// ---- A cell -----------------------------------------------------------------

__device__ inline float Dot(const Octet& x, const Octet& w) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kOctet; ++i) sum = std::fma(x.v[i], w.v[i], sum);
  return sum;
}

// NOTE: members are always inline: pointers into the kernel's arguments and
// registers must not become memory.
template <GeneralGemmVariant kVariant>
class Cell {
 public:
  static constexpr int kX = kVariant.x_rows;
  static constexpr int kW = kVariant.w_rows;

  // NOTE: columns and rows past the end are the last one's, for the exchanges
  // between lanes; they are not stored.
  __device__ Cell(const GemmArgs& args, const Epilogue& epilogue,
                  int64_t first_col, int first_row, int lane)
      : args_(args),
        epilogue_(epilogue),
        decode_x_(args.x_type),
        decode_w_(args.w_type),
        first_col_(first_col),
        first_row_(first_row),
        lane_(lane),
        whole_(kVariant.octets ? args.k / kOctet : 0) {
#pragma unroll
    for (int i = 0; i < kW; ++i) {
      const int64_t col = Col(i);
      w_row_[i] =
          epilogue.WeightRow(col < args.epilogue.cols ? static_cast<int>(col)
                                                      : args.epilogue.cols - 1,
                             IsUp(i));
      w_[i] = static_cast<const char*>(args.w) + w_row_[i] * args.w_pitch;
    }
#pragma unroll
    for (int r = 0; r < kX; ++r) {
      x_row_[r] = first_row + r < args.m ? first_row + r : args.m - 1;
      x_[r] = static_cast<const char*>(args.x) + x_row_[r] * args.x_pitch;
    }
  }

  // May run before WaitForPredecessor.
  __forceinline__ __device__ void LoadFirst() {
    if constexpr (kVariant.octets) Load(lane_);
  }

  __forceinline__ __device__ void Sum() {
    if constexpr (kVariant.octets) {
      for (int first = lane_; first < whole_; first += kStep) {
        RawOctet<kVariant.fp8> raw[kOctets][kW];
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
#pragma unroll
          for (int i = 0; i < kW; ++i) raw[o][i] = next_[o][i];
        }
        Load(first + kStep);
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
          const int octet = first + o * kCellLanes;
          if (octet < whole_) AddOctet(octet, raw[o]);
        }
      }
    }
    // What cannot be moved by octets: the last columns, or all.
    const int octets = args_.k / kOctet + (args_.k % kOctet != 0);
    const int first = whole_ + ((lane_ - whole_) & (kCellLanes - 1));
    for (int octet = first; octet < octets; octet += kCellLanes) {
      AddElements(octet);
    }
  }

  __forceinline__ __device__ void Store() {
    float mine = 0.0f;  // lane i has sum i: of x row i / kW, w row i % kW
#pragma unroll
    for (int r = 0; r < kX; ++r) {
#pragma unroll
      for (int i = 0; i < kW; ++i) {
        const float sum = gpu::WaveReduce<kVariant.wave_size>(
            sums_[r][i], kCellLanes, [](float a, float b) { return a + b; });
        if (lane_ == r * kW + i) mine = sum;
      }
    }
    const int row = first_row_ + lane_ / kW;
    const int i = lane_ % kW;
    const int64_t col = Col(i);
    const bool exists =
        lane_ < kX * kW && row < args_.m && col < args_.epilogue.cols;
    // NOTE: k = 0 gives +0 whatever the scales.
    if (exists && !args_.block_scales && args_.k > 0) {
      mine = mine * ScaleOrOne(args_.x_scales, row, 0) *
             ScaleOrOne(args_.w_scales,
                        epilogue_.WeightRow(static_cast<int>(col), IsUp(i)), 0);
    }
    const float other = gpu::ExchangeHalves<kVariant.wave_size>(mine, 1);
    if (!exists) return;
    if (!epilogue_.gated()) {
      epilogue_.Store(row, static_cast<int>(col), mine);
    } else if (!IsUp(i)) {
      epilogue_.StoreGated(row, static_cast<int>(col), mine, other);
    }
  }

 private:
  // Octets of a row that a lane loads in a step.
  static constexpr int kOctets = kVariant.fp8 ? 2 : 1;
  static constexpr int kStep = kCellLanes * kOctets;
  // Rows of x that are loaded together: more would not fit the registers.
  static constexpr int kTogether = kX < 2 ? kX : 2;

  __device__ bool IsUp(int i) const { return epilogue_.gated() && i % 2 != 0; }
  __device__ int64_t Col(int i) const {
    return first_col_ + (epilogue_.gated() ? i / 2 : i);
  }

  __forceinline__ __device__ void Load(int first) {
#pragma unroll
    for (int o = 0; o < kOctets; ++o) {
      const int octet = first + o * kCellLanes;
      if (octet >= whole_) continue;
#pragma unroll
      for (int i = 0; i < kW; ++i) {
        LoadRaw(w_[i] + int64_t{octet} * sizeof(next_[o][i]), next_[o][i]);
      }
    }
  }

  __forceinline__ __device__ void AddOctet(
      int octet, const RawOctet<kVariant.fp8> (&raw)[kW]) {
    Octet w[kW];
#pragma unroll
    for (int i = 0; i < kW; ++i) w[i] = Decode(args_.w_type, decode_w_, raw[i]);
    float w_scale[kW];
    LoadWeightScales(octet, w_scale);
#pragma unroll
    for (int begin = 0; begin < kX; begin += kTogether) {
      const char* rows[kTogether];
#pragma unroll
      for (int r = 0; r < kTogether; ++r) rows[r] = x_[begin + r];
      Octet x[kTogether];
      LoadOctets(args_.x_type, decode_x_, rows, octet, x);
#pragma unroll
      for (int r = 0; r < kTogether; ++r) {
        float dots[kW];
#pragma unroll
        for (int i = 0; i < kW; ++i) dots[i] = Dot(x[r], w[i]);
        AddDots(octet, begin + r, dots, w_scale);
      }
    }
  }

  __forceinline__ __device__ void AddElements(int octet) {
    float dots[kX][kW] = {};
    const int left = args_.k - octet * kOctet;
#pragma unroll 1
    for (int c = 0; c < (left < kOctet ? left : kOctet); ++c) {
      const int col = octet * kOctet + c;
      float w[kW];
#pragma unroll
      for (int i = 0; i < kW; ++i) w[i] = LoadOperand(args_.w_type, w_[i], col);
#pragma unroll
      for (int r = 0; r < kX; ++r) {
        const float x = LoadOperand(args_.x_type, x_[r], col);
#pragma unroll
        for (int i = 0; i < kW; ++i) dots[r][i] = std::fma(x, w[i], dots[r][i]);
      }
    }
    float w_scale[kW];
    LoadWeightScales(octet, w_scale);
#pragma unroll
    for (int r = 0; r < kX; ++r) AddDots(octet, r, dots[r], w_scale);
  }

  __device__ void LoadWeightScales(int octet, float (&scales)[kW]) const {
#pragma unroll
    for (int i = 0; i < kW; ++i) {
      scales[i] = args_.block_scales
                      ? ScaleOrOne(args_.w_scales, w_row_[i], octet * kOctet)
                      : 1.0f;
    }
  }

  // Of row r of x.
  __forceinline__ __device__ void AddDots(int octet, int r,
                                          const float (&dots)[kW],
                                          const float (&w_scale)[kW]) {
    if (!args_.block_scales) {
#pragma unroll
      for (int i = 0; i < kW; ++i) sums_[r][i] += dots[i];
      return;
    }
    const float x_scale = ScaleOrOne(args_.x_scales, x_row_[r], octet * kOctet);
#pragma unroll
    for (int i = 0; i < kW; ++i) {
      sums_[r][i] += dots[i] * x_scale * w_scale[i];
    }
  }

  const GemmArgs& args_;
  const Epilogue& epilogue_;
  Fp8Decoder decode_x_;
  Fp8Decoder decode_w_;
  int64_t first_col_;  // of the results
  int first_row_;
  int lane_;
  int whole_;  // octets of a row that are moved whole
  int w_row_[kW];
  int x_row_[kX];
  const char* w_[kW];
  const char* x_[kX];
  RawOctet<kVariant.fp8> next_[kOctets][kW];
  float sums_[kX][kW] = {};
};

template <GeneralGemmVariant kVariant>
__device__ inline void RunGeneralGemm(const GeneralGemmArgs& args) {
  if constexpr (gpu::kWaveRunsHere<kVariant.wave_size>) {
    gpu::AllowDependents();
    const Epilogue epilogue(args.gemm.epilogue);
    const uint32_t block = static_cast<uint32_t>(gpu::BlockIndex());
    const uint32_t passes = static_cast<uint32_t>(args.passes);
    const int64_t cell = args.first_cell +
                         int64_t{block / passes} * kCellsPerBlock +
                         gpu::ThreadIndex() / kCellLanes;
    const int pass = static_cast<int>(block % passes);
    const int cols = epilogue.gated() ? kVariant.w_rows / 2 : kVariant.w_rows;
    Cell<kVariant> sums(args.gemm, epilogue, cell * cols,
                        pass * kVariant.x_rows,
                        gpu::ThreadIndex() % kCellLanes);
    sums.LoadFirst();
    gpu::WaitForPredecessor();
    sums.Sum();
    sums.Store();
  }
}

}  // namespace lamina::gemm_internal
