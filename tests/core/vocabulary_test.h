#pragma once

// What the tests of the vocabulary share: they launch kernels of their own, on
// host SIMT or on the GPU of the build.

#include <cstdint>
#include <optional>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/stream.h"

namespace lamina::testing {

// Memory of the device with a copy on the host.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const std::vector<T>& values, const Stream& stream)
      : values_(values), stream_(stream) {
    buffer_ = *Buffer::Allocate(stream.device(), bytes());
    EXPECT_TRUE(Copy(buffer_.data(), values_.data(), bytes(), stream_).ok());
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  // As the kernels before have left it.
  std::vector<T> Back() {
    EXPECT_TRUE(Copy(values_.data(), buffer_.data(), bytes(), stream_).ok());
    return values_;
  }

 private:
  int64_t bytes() const {
    return static_cast<int64_t>(values_.size() * sizeof(T));
  }
  std::vector<T> values_;
  const Stream& stream_;
  Buffer buffer_;
};

// Skipped where there is no device.
class VocabularyTest : public ::testing::Test {
 protected:
  static constexpr Device kDevice{Backend::kCuda, 0};

  void SetUp() override {
    if (GetDeviceInfo(kDevice).name.empty()) GTEST_SKIP() << "no device";
    stream_.emplace(*OwnedStream::Create(kDevice));
  }
  const Stream& stream() const { return stream_->stream(); }
  gpu::LaunchTarget target() const { return TargetOf(stream()); }
  template <class T>
  DeviceArray<T> OnDevice(const std::vector<T>& values) const {
    return DeviceArray<T>(values, stream());
  }

 private:
  std::optional<OwnedStream> stream_;
};

}  // namespace lamina::testing
