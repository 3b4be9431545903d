#pragma once

// A backend that the build under test does not have, and what operators say of
// it.

#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/stream.h"

namespace lamina::testing {

inline constexpr Device kMissingBackend = {
    kHasHip ? Backend::kCuda : Backend::kHip, 0};

inline Stream MissingStream() { return Stream::Gpu(kMissingBackend, nullptr); }

// The message of `where`: "Op: stream".
inline std::string NoBackend(const char* where) {
  return absl::StrCat(where, ": this build has no ",
                      Name(kMissingBackend.backend),
                      " backend; built backends: ", kBuiltBackends);
}

}  // namespace lamina::testing
