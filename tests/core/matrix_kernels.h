#pragma once

// Kernels that are the tests of core/device/matrix.cuh.

#include <cstdint>

#include "lamina/core/dtype.h"
#include "lamina/core/launch.h"

namespace lamina::testing {

inline constexpr int kMatrixBytes = 128;  // of a row of a and b
inline constexpr int kMatrixRows = 64;    // of a

enum class Operands {
  kSwizzled,
  kRegisters,    // a in registers
  kPlain,        // b without swizzle
  kOverlapping,  // b as one row: only column 0 of the result has a meaning
};

// What a kernel can do wrong, on host SIMT.
struct WarpgroupFaults {
  bool no_swizzle = false;
  bool no_publish = false;
  bool no_fence = false;
  bool no_wait = false;
  bool read_early = false;      // a result
  bool write_early = false;     // a result
  bool change_operand = false;  // before the wait
  bool past_the_end = false;    // of shared memory
  bool one_wave_less = false;
};

// d[64, columns] = a[64, 128 bytes] * b[columns, 128 bytes]^T: the products of
// the two halves of the rows are under way together and then added.
struct WarpgroupArgs {
  DType type = DType::kF8E4M3Fn;
  int columns = 8;
  Operands operands = Operands::kSwizzled;
  const uint8_t* a = nullptr;
  const uint8_t* b = nullptr;
  float* d = nullptr;
  bool copied = false;  // to shared memory by CopyAsync16
  WarpgroupFaults faults = {};
};
gpu::Error LaunchWarpgroup(const WarpgroupArgs& args,
                           const gpu::LaunchTarget& target);

// d[16, 8] += a[16, 32 bytes] * b[8, 32 bytes]^T
struct WaveArgs {
  DType type = DType::kBF16;
  const uint8_t* a = nullptr;
  const uint8_t* b = nullptr;
  float* d = nullptr;
};
gpu::Error LaunchWave(const WaveArgs& args, const gpu::LaunchTarget& target);

}  // namespace lamina::testing
