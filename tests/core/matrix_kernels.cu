#include "tests/core/matrix_kernels.h"

#include "lamina/core/device/async.cuh"
#include "lamina/core/device/intrinsics.cuh"
#include "lamina/core/device/matrix.cuh"
#include "lamina/core/launch.cuh"

namespace lamina::testing {
namespace {

using namespace gpu;  // NOLINT: the kernels are written in its vocabulary

constexpr int kThreads = 128;
constexpr int kStepBytes = 32;
constexpr int kSteps = kMatrixBytes / kStepBytes;
constexpr int kUnit = 16;
constexpr int kUnits = kMatrixBytes / kUnit;  // of a row

__device__ uint32_t Word(const uint8_t* p) {
  return *reinterpret_cast<const uint32_t*>(p);
}

// NOTE: not on a GPU: what a kernel may do wrong makes the compiler wait for
// each product.
#if defined(LAMINA_SIMT)
constexpr bool kMayBeWrong = true;
#else
constexpr bool kMayBeWrong = false;
#endif

// Rows of 128 bytes to where a descriptor will look for them.
template <class Place>
__device__ void LoadRows(const WarpgroupArgs& args, uint8_t* to,
                         const uint8_t* from, int rows, Place place) {
  for (int i = ThreadIndex(); i < rows * kUnits; i += BlockThreads()) {
    uint8_t* const unit = to + place(i / kUnits, i % kUnits);
    if (args.copied) {
      CopyAsync16(unit, from + i * kUnit);
    } else {
      *reinterpret_cast<Bits128*>(unit) = Load128(from + i * kUnit);
    }
  }
}

template <class T, int kN, bool kRegisters>
__global__ void __launch_bounds__(kThreads)
    WarpgroupKernel(WarpgroupArgs args) {
  uint8_t* const a = SharedMemory<uint8_t>();
  uint8_t* const b = a + kMatrixRows * kMatrixBytes;
  const int thread = ThreadIndex(), wave = thread / 32, lane = thread % 32;
  const WarpgroupFaults faults = kMayBeWrong ? args.faults : WarpgroupFaults{};
  const auto swizzled = [&](int row, int unit) {
    const int column = faults.no_swizzle ? unit : unit ^ row % 8;
    return row * kMatrixBytes + column * kUnit;
  };
  const bool plain = args.operands == Operands::kPlain;
  const bool overlapping = args.operands == Operands::kOverlapping;
  LoadRows(args, a, args.a, kMatrixRows, swizzled);
  if (plain) {
    LoadRows(args, b, args.b, kN,
             [](int row, int unit) { return row * kUnit + unit * kN * kUnit; });
  } else if (overlapping) {
    LoadRows(args, b, args.b, 1, [](int, int unit) { return unit * kUnit; });
  } else {
    LoadRows(args, b, args.b, kN, swizzled);
  }
  WaitAsyncCopies();
  if (!faults.no_publish) PublishToAsync();
  BlockSync();

  if constexpr (kHasWgmma) {
    const uint64_t a_tile = SwizzledTile(a);
    const uint64_t b_tile = plain         ? PlainTile(b, kN * kUnit, 8 * kUnit)
                            : overlapping ? PlainTile(b, kUnit, 8 * kUnit)
                                          : SwizzledTile(b);
    const int a_step = (faults.past_the_end ? 1 << 17 : kStepBytes) / 16;
    const int b_step = plain ? 2 * kN : kStepBytes / 16;
    float d[kN / 2], e[kN / 2];  // of the first and the second half
    for (int i = 0; i < kN / 2; ++i) d[i] = e[i] = 1.0f;  // not added to
    uint32_t registers[kSteps][4];
    for (int step = 0; kRegisters && step < kSteps; ++step) {
      for (int i = 0; i < 4; ++i) {
        const int row = 16 * wave + lane / 4 + 8 * (i % 2);
        const int byte = step * kStepBytes + 4 * (lane % 4) + 16 * (i / 2);
        registers[step][i] = Word(args.a + row * kMatrixBytes + byte);
      }
    }
    const auto product = [&](float(&sums)[kN / 2], int step, bool accumulate) {
      if constexpr (kRegisters) {
        WarpgroupMmaFromRegisters<T, kN>(sums, registers[step],
                                         b_tile + step * b_step, accumulate);
      } else {
        WarpgroupMma<T, kN>(sums, a_tile + step * a_step,
                            b_tile + step * b_step, accumulate);
      }
    };
    if (!faults.no_fence) WarpgroupFence();
    product(d, 0, false);
    product(d, 1, true);
    WarpgroupCommit();
    product(e, 2, false);
    if (!(faults.one_wave_less && wave == 3)) product(e, 3, true);
    WarpgroupCommit();
    if (faults.write_early) d[0] = 0.0f;
    if (!faults.no_wait) WarpgroupWait<1>();
    float sums[kN / 2];
    for (int i = 0; i < kN / 2; ++i) sums[i] = d[i];
    if (faults.read_early) {
      for (int i = 0; i < kN / 2; ++i) sums[i] += e[i];
    }
    if (faults.change_operand) b[2 * kStepBytes] = 0;  // of row 0
    if (!faults.no_wait) WarpgroupWait<0>();
    for (int i = 0; i < kN / 2; ++i) {
      const int row = 16 * wave + lane / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
      args.d[row * kN + column] = sums[i] + e[i];
    }
  }
}

template <class T>
__global__ void __launch_bounds__(32) WaveKernel(WaveArgs args) {
  const int lane = ThreadIndex();
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i % 2);
    a[i] = Word(args.a + row * kStepBytes + 4 * (lane % 4) + 16 * (i / 2));
    d[i] = args.d[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2];
  }
  for (int i = 0; i < 2; ++i) {
    b[i] = Word(args.b + lane / 4 * kStepBytes + 4 * (lane % 4) + 16 * i);
  }
  WaveMma<T>(d, a, b);
  for (int i = 0; i < 4; ++i) {
    args.d[(lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2] = d[i];
  }
}

template <class T, int kN>
gpu::Error LaunchColumns(const WarpgroupArgs& args,
                         const gpu::LaunchTarget& target) {
  const gpu::LaunchShape shape{
      .blocks = 1,
      .threads = kThreads,
      // Overlapping rows reach seven units further.
      .shared_bytes = (kMatrixRows + kN + 1) * kMatrixBytes};
  return args.operands == Operands::kRegisters
             ? Launch(WarpgroupKernel<T, kN, true>, shape, target, args)
             : Launch(WarpgroupKernel<T, kN, false>, shape, target, args);
}
template <class T>
gpu::Error LaunchType(const WarpgroupArgs& args,
                      const gpu::LaunchTarget& target) {
  switch (args.columns) {
    case 8:
      return LaunchColumns<T, 8>(args, target);
    case 16:
      return LaunchColumns<T, 16>(args, target);
    case 32:
      return LaunchColumns<T, 32>(args, target);
    default:
      return LaunchColumns<T, 64>(args, target);
  }
}

}  // namespace

gpu::Error LaunchWarpgroup(const WarpgroupArgs& args,
                           const gpu::LaunchTarget& target) {
  switch (args.type) {
    case DType::kF8E4M3Fn:
      return LaunchType<F8E4M3Fn>(args, target);
    case DType::kBF16:
      return LaunchType<BF16>(args, target);
    default:
      return LaunchType<F16>(args, target);
  }
}

gpu::Error LaunchWave(const WaveArgs& args, const gpu::LaunchTarget& target) {
  const gpu::LaunchShape shape{.blocks = 1, .threads = 32};
  return args.type == DType::kBF16
             ? Launch(WaveKernel<BF16>, shape, target, args)
             : Launch(WaveKernel<F16>, shape, target, args);
}

}  // namespace lamina::testing
