// The SIMD targets of the CPU kernels, and the streaming read that measures
// the memory limit.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lamina/core/cpu_target.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "lamina/core/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lamina {
namespace HWY_NAMESPACE {

int64_t CompiledTarget() { return HWY_TARGET; }

// Exclusive or of the words: as little work per byte as there can be.
// NOTE: four streams far apart. With one, the CPU's prefetchers keep too few
// lines in flight: 13.1 instead of 17.0 GB/s on 2 threads in 4 KiB pages, 18.8
// instead of 19.6 in huge ones (AMD EPYC, 2026-11-29).
uint64_t ReadAll(const uint64_t* data, int64_t words) {
  const hn::ScalableTag<uint64_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t step = 4 * lanes;
  const int64_t quarter = words / 4 / step * step;
  const uint64_t* const b_data = data + quarter;
  const uint64_t* const c_data = b_data + quarter;
  const uint64_t* const d_data = c_data + quarter;
  auto a = hn::Zero(d);
  auto b = a;
  auto c = a;
  auto e = a;
  for (int64_t i = 0; i < quarter; i += step) {
    for (int64_t j = i; j < i + step; j += lanes) {
      a = hn::Xor(a, hn::LoadU(d, data + j));
      b = hn::Xor(b, hn::LoadU(d, b_data + j));
      c = hn::Xor(c, hn::LoadU(d, c_data + j));
      e = hn::Xor(e, hn::LoadU(d, d_data + j));
    }
  }
  HWY_ALIGN uint64_t buffer[hn::MaxLanes(hn::ScalableTag<uint64_t>())];
  hn::Store(hn::Xor(hn::Xor(a, b), hn::Xor(c, e)), d, buffer);
  uint64_t result = 0;
  for (int64_t lane = 0; lane < lanes; ++lane) result ^= buffer[lane];
  for (int64_t i = 4 * quarter; i < words; ++i) result ^= data[i];
  return result;
}

}  // namespace HWY_NAMESPACE
}  // namespace lamina
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <atomic>
#include <chrono>

#include "lamina/core/buffer.h"
#include "lamina/core/device.h"
#include "lamina/core/parallel.h"
#include "lamina/core/streaming/streaming.h"

namespace lamina {

HWY_EXPORT(CompiledTarget);
HWY_EXPORT(ReadAll);

const char* CpuTargetName() {
  return hwy::TargetName(HWY_DYNAMIC_DISPATCH(CompiledTarget)());
}

namespace {
// One bit a target, the best lowest; what ForceCpuTarget chose does not matter.
int64_t UsableTargets() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}
}  // namespace

std::vector<std::string> CpuTargetNames() {
  std::vector<std::string> names;
  for (int64_t rest = UsableTargets(); rest != 0; rest &= rest - 1) {
    names.push_back(hwy::TargetName(rest & -rest));
  }
  return names;
}

bool ForceCpuTarget(const std::string& name) {
  int64_t chosen = 0;  // 0: all
  for (int64_t rest = UsableTargets(); rest != 0; rest &= rest - 1) {
    if (name == hwy::TargetName(rest & -rest)) chosen = rest & -rest;
  }
  if (chosen == 0 && !name.empty()) return false;
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return true;
}

double MeasureReadBandwidth(Device device, int threads, int64_t bytes,
                            int repeats) {
  if (device.backend != Backend::kCpu) {
    return MeasureGpuReadBandwidth(device, bytes, repeats);
  }
  const Stream stream = Stream::Cpu(threads);
  const int64_t words = std::max<int64_t>(1, bytes / 8);
  const absl::StatusOr<Buffer> buffer = Buffer::Allocate(device, words * 8);
  if (!buffer.ok()) return 0;
  uint64_t* const data = buffer->as<uint64_t>();
  ParallelFor(stream, words, 1 << 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      data[i] = static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;
    }
  });
  std::atomic<uint64_t> sink = 0;
  double best = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    ParallelFor(stream, words, 1 << 16, [&](int64_t begin, int64_t end, int) {
      sink ^= HWY_DYNAMIC_DISPATCH(ReadAll)(data + begin, end - begin);
    });
    const std::chrono::duration<double> elapsed =
        std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(words) * 8 / elapsed.count());
  }
  return best;
}

}  // namespace lamina
#endif  // HWY_ONCE
