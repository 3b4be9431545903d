#pragma once

// Small things that the commands share: choosing the stream, files, numbers
// for people, a progress bar.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "apps/lamina/options.h"
#include "lamina/core/device.h"
#include "lamina/core/dtype.h"
#include "lamina/core/stream.h"
#include "lamina/decoder_block/decoder_block.h"

namespace lamina::cli {

// The device that --backend asks for: the first of its kind. Unavailable when
// this build or machine has no such device.
absl::StatusOr<Device> ChooseDevice(const CommonOptions& options);

// The stream that --backend and --threads ask for.
struct ChosenStream {
  OwnedStream owned;
  Stream stream;
};
absl::StatusOr<ChosenStream> ChooseStream(const CommonOptions& options);

// The same for the commands that run on the CPU.
absl::StatusOr<Stream> MakeStream(const CommonOptions& options);

// What a report says of the kernels: the CPU's SIMD target, a GPU's
// architecture.
std::string KernelsName(Device device);

// OK when this build has no GPU backend or finds a GPU; else why it finds none.
absl::Status GpuStatus();

// "bf16" -> kBF16, "fp8" -> kF8E4M3Fn, "f32" -> kF32, "f16" -> kF16.
DType WeightType(const std::string& name);
// The plans of --tuning: none, and a warning on stderr, when the file cannot be
// used; none for "".
GemmTuning TuningOf(const std::string& path, Device device);

// "none", "residual", "activation", "all".
BlockFusion FusionOf(const std::string& name);

// Whether there is a file of this name, not a device or a pipe.
bool IsRegularFile(const std::string& path);

// The whole file or pipe; NotFound or InvalidArgument name it. At most 64 MiB.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// Writes the whole file, or nothing: a temporary file is renamed over it. What
// is there and not a regular file (a device, a pipe, a link) is written
// through.
absl::Status WriteTextFile(const std::string& path, const std::string& text);

// Whether WriteTextFile will find a place for the file: to be asked before a
// long run. OK for "", which is no file.
absl::Status CheckCanWrite(const std::string& path);

// --persistent is for GPUs.
absl::Status CheckPersistent(bool persistent, const Device& device);

std::string HumanBytes(int64_t bytes);  // "1.5 GiB"

// A bar on stderr, on a terminal only.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void Update(double fraction);

 private:
  std::string label_;
  bool on_terminal_;
  int drawn_percent_ = -1;
};

}  // namespace lamina::cli
