#pragma once

// What the kernel of PersistentChain takes: a schedule of stages, each of which
// stands for a launch and has that launch's arguments.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lamina/core/launch.h"
#include "lamina/gemm/skinny_gemm/ring_gemm_args.h"

namespace lamina::persistent_internal {

enum class StageKind : uint8_t {
  kGemm,        // RingGemmArgs
  kNorm,        // LeanNormArgs
  kRopeAppend,  // RopeAppendKernelArgs
  kAttention,   // TensorAttentionArgs; LeanRowsArgs if it quantizes
  kRows,        // LeanRowsArgs
};

inline constexpr int kStageArgsBytes = 1008;
// Where the arguments of a second operator are.
inline constexpr int kSecondArgs = 512;

struct alignas(128) Stage {
  // NOTE: first, for the maps in there are aligned.
  unsigned char args[kStageArgsBytes] = {};
  StageKind kind = StageKind::kGemm;
  int32_t blocks = 0;   // of the launch that it stands for
  int32_t workers = 0;  // blocks of the kernel that have a part in it
  bool quantizes = false;

  template <class T>
  LAMINA_HD const T& As(int at = 0) const {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(sizeof(T) <= kStageArgsBytes && alignof(T) <= 128);
    return *reinterpret_cast<const T*>(args + at);
  }
  template <class T>
  void Set(const T& value, int at = 0) {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(sizeof(T) <= kStageArgsBytes);
    std::memcpy(args + at, &value, sizeof(T));
  }
};
static_assert(sizeof(Stage) == 1024);

// What a kernel is compiled for.
struct ChainVariant {
  gemm_internal::RingTypes types = gemm_internal::RingTypes::kF8;
  int rows = 8;    // of the GEMMs' x
  int dims = 128;  // of attention: 64, 128
  int wave_size = 32;

  constexpr bool CompiledFor(bool clusters) const {
    return clusters && wave_size == 32;
  }
  constexpr gemm_internal::RingGemmVariant gemm() const {
    return {.types = types, .rows = rows};
  }
  friend constexpr bool operator==(const ChainVariant&,
                                   const ChainVariant&) = default;
};

// The kernels of a pair of types.
// NOTE: of widened weights, shared memory does not hold more rows of x.
template <gemm_internal::RingTypes kTypes>
inline constexpr std::array kChainVariants = {
    ChainVariant{.types = kTypes, .rows = 8, .dims = 64},
    ChainVariant{.types = kTypes, .rows = 8, .dims = 128},
    ChainVariant{.types = kTypes, .rows = 16, .dims = 128},
    ChainVariant{.types = kTypes, .rows = 32, .dims = 128}};
template <>
inline constexpr std::array kChainVariants<gemm_internal::RingTypes::kF8BF16> =
    {ChainVariant{
         .types = gemm_internal::RingTypes::kF8BF16, .rows = 8, .dims = 64},
     ChainVariant{
         .types = gemm_internal::RingTypes::kF8BF16, .rows = 8, .dims = 128}};
template <>
inline constexpr std::array kChainVariants<gemm_internal::RingTypes::kF16> =
    std::array<ChainVariant, 0>{};

constexpr bool HasChainKernel(const ChainVariant& variant) {
  const auto in = [&](const auto& variants) {
    return std::find(variants.begin(), variants.end(), variant) !=
           variants.end();
  };
  switch (variant.types) {
    case gemm_internal::RingTypes::kF8:
      return in(kChainVariants<gemm_internal::RingTypes::kF8>);
    case gemm_internal::RingTypes::kBF16:
      return in(kChainVariants<gemm_internal::RingTypes::kBF16>);
    case gemm_internal::RingTypes::kF16:
      return in(kChainVariants<gemm_internal::RingTypes::kF16>);
    case gemm_internal::RingTypes::kF8BF16:
      return in(kChainVariants<gemm_internal::RingTypes::kF8BF16>);
  }
  return false;
}

// Warpgroups that compute.
constexpr int Consumers(gemm_internal::RingTypes types) {
  return types == gemm_internal::RingTypes::kF8BF16 ? 4 : 2;
}
// Threads that stand for a launch's block outside of GEMMs.
inline constexpr int kStandInThreads = 256;
// Stages of the schedule that a block has at hand.
inline constexpr int kScheduleStages = 8;

// A block's shared memory: the stages of w, memory for the stage at hand (x of
// a GEMM, or what another operator has), the schedule, phasers.
struct ChainLayout {
  int stages = 0;  // of w
  int x_stages = 0;
  int work = 0;  // bytes from the start
  int schedule = 0;
  int phasers = 0;  // the GEMMs', then two a stage of the schedule
  int bytes = 0;
};

struct ChainArgs {
  ChainVariant variant = {};
  ChainLayout layout = {};
  const Stage* stages = nullptr;
  int32_t count = 0;
  int32_t blocks = 0;
  uint32_t* signals = nullptr;   // [count], never reset
  uint32_t* rounds = nullptr;    // runs that have ended
  uint32_t* arrivals = nullptr;  // of attention's blocks; 0 between stages
};

gpu::Error LaunchChainF8(const ChainArgs& args,
                         const gpu::LaunchTarget& target);
gpu::Error LaunchChainBF16(const ChainArgs& args,
                           const gpu::LaunchTarget& target);
gpu::Error LaunchChainF8BF16(const ChainArgs& args,
                             const gpu::LaunchTarget& target);

}  // namespace lamina::persistent_internal
