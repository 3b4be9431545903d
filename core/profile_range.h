#pragma once

// ProfileRange: a named stretch of host code that enqueues work on a GPU, as
// profilers show it (CUDA: NVTX, in Nsight Systems). Ranges nest. Without a
// profiler it costs some ns, on other backends nothing.
//
//   const ProfileRange range(stream, "qkv");
//   absl::Status status = SkinnyGemm(args, stream);

#include "lamina/core/stream.h"

namespace lamina {

class ProfileRange {
 public:
  // The name is copied.
  ProfileRange(const Stream& stream, const char* name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

 private:
  bool open_;
};

}  // namespace lamina
