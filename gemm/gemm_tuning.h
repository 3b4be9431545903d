#pragma once

// Plans for SkinnyGemm that were measured on the user's card, instead of those
// of the built-in policy. `lamina tune` measures and writes the file.
//
//   std::string warning;
//   const GemmTuning tuning =
//       LoadGemmTuning("gemm_tuning.jsonl", GetDeviceInfo(device), &warning);
//   SkinnyGemmArgs args = {};
//   args.tuning = &tuning;
//
// On the bits of a result a plan has no influence: of those with other bits
// (how many warpgroups share K) there are none here.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "lamina/core/device.h"
#include "lamina/core/dtype.h"

namespace lamina {

// What a plan is for: sizes and types must be these, and m lie in the band.
struct GemmTuningKey {
  DType x_type = DType::kF8E4M3Fn;
  DType w_type = DType::kF8E4M3Fn;
  int64_t n = 0;  // rows of w
  int64_t k = 0;
  int64_t rows = 8;  // of x, at most: the band's 8, 16, 32 or 64
  bool gated = false;
  bool block_scales = false;
  bool overlap = false;  // Stream::overlap()

  friend bool operator==(const GemmTuningKey&, const GemmTuningKey&) = default;
};

// gemm/skinny_gemm/ring_gemm.cuh has what the parts are.
struct GemmTuningEntry {
  GemmTuningKey key = {};
  int64_t blocks = 0;
  int64_t ring_bytes = 0;
  int64_t x_ring_bytes = 0;
  bool tensor_copies = false;
  double us = 0;         // measured
  double policy_us = 0;  // of the built-in policy's plan

  friend bool operator==(const GemmTuningEntry&,
                         const GemmTuningEntry&) = default;
};

class GemmTuning {
 public:
  // Takes the place of an entry with the same key.
  void Add(const GemmTuningEntry& entry);
  const GemmTuningEntry* Find(const GemmTuningKey& key) const;
  const std::vector<GemmTuningEntry>& entries() const { return entries_; }

 private:
  std::vector<GemmTuningEntry> entries_;
};

// A line of JSON that names device and version, and a line for each entry.
std::string FormatGemmTuning(const GemmTuning& tuning,
                             const DeviceInfo& device);
// InvalidArgument: corrupt; FailedPrecondition: of another device or version.
absl::StatusOr<GemmTuning> ParseGemmTuning(const std::string& text,
                                           const DeviceInfo& device);

// Empty, with a warning that says why, when the file cannot be used.
GemmTuning LoadGemmTuning(const std::string& path, const DeviceInfo& device,
                          std::string* warning = nullptr);

// Plans worth measuring, the built-in policy's first; none where there are no
// kernels that can be planned (gemm/skinny_gemm.h: compute capability 9.0).
std::vector<GemmTuningEntry> GemmTuningCandidates(const GemmTuningKey& key,
                                                  const DeviceInfo& device);

}  // namespace lamina
