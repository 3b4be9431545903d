// Memory, copies, events and graphs on the GPU that the tests run on; host SIMT
// has all but graphs. On the CPU there is nothing to test.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/status.h"
#include "lamina/core/streaming/streaming.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

class GpuRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::OnCpu()) GTEST_SKIP() << "nothing of the CPU's";
    device_ = testing::TestStream().device();
  }
  // A stream that can be recorded.
  OwnedStream NewStream() const { return *OwnedStream::Create(device_); }
  Buffer NewBuffer(int64_t bytes) const {
    return *Buffer::Allocate(device_, bytes);
  }

  Device device_;
};

TEST_F(GpuRuntime, KnowsTheDevice) {
  const DeviceInfo& info = GetDeviceInfo(device_);
  EXPECT_EQ(info.device, device_);
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.arch.empty());
  EXPECT_TRUE(info.wave_size == 32 || info.wave_size == 64);
  EXPECT_GE(info.num_units, 1);
  EXPECT_GT(info.memory_bytes, int64_t{64} << 20);
  EXPECT_GE(info.shared_memory_bytes, 48 << 10);
  EXPECT_TRUE(CheckDevice("Op", "stream", device_).ok());
  EXPECT_EQ(CheckDevice("Op", "stream", {device_.backend, 99}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckDevice("Op", "stream", {device_.backend, -1}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(GpuRuntime, CopiesThereAndBack) {
  const OwnedStream stream = NewStream();
  const Buffer a = NewBuffer(1000), b = NewBuffer(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 16, 0u);
  std::vector<uint8_t> host(1000), back(1000);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint8_t>(i);
  ASSERT_TRUE(Copy(a.data(), host.data(), 1000, stream.stream()).ok());
  ASSERT_TRUE(EnqueueCopy(b.data(), a.data(), 1000, stream.stream()).ok());
  ASSERT_TRUE(EnqueueFill(b.data(), 7, 10, stream.stream()).ok());
  ASSERT_TRUE(Copy(back.data(), b.data(), 1000, stream.stream()).ok());
  for (size_t i = 0; i < 10; ++i) host[i] = 7;
  EXPECT_EQ(back, host);
}

TEST_F(GpuRuntime, TooMuchMemoryIsAnErrorAndNothingElse) {
  const absl::Status status =
      Buffer::Allocate(device_, int64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_NE(status.message().find("1152921504606846976 bytes"),
            std::string::npos)
      << status;
  // Not left behind for the next call.
  const OwnedStream stream = NewStream();
  EXPECT_TRUE(Synchronize(stream.stream()).ok());
  EXPECT_TRUE(Buffer::Allocate(device_, 16).ok());
}

TEST_F(GpuRuntime, EventsMeasureTime) {
  const OwnedStream stream = NewStream();
  const Buffer buffer = NewBuffer(1 << 20);
  Event start, end;
  for (int repeat = 0; repeat < 2; ++repeat) {
    ASSERT_TRUE(start.Record(stream.stream()).ok());
    ASSERT_TRUE(
        EnqueueFill(buffer.data(), 1, buffer.bytes(), stream.stream()).ok());
    ASSERT_TRUE(end.Record(stream.stream()).ok());
    const absl::StatusOr<double> us = Event::ElapsedMicros(start, end);
    ASSERT_TRUE(us.ok()) << us.status();
    EXPECT_GT(*us, 0);
    EXPECT_LT(*us, 1e7);
  }
  Event on_cpu;
  ASSERT_TRUE(on_cpu.Record(Stream::Cpu()).ok());
  EXPECT_EQ(Event::ElapsedMicros(start, on_cpu).status().code(),
            absl::StatusCode::kInvalidArgument);
}

class GpuGraph : public GpuRuntime {
 protected:
  void SetUp() override {
    GpuRuntime::SetUp();
    if (testing::OnSimt()) GTEST_SKIP() << "host SIMT has no graphs";
  }
};

TEST_F(GpuGraph, RecordsNowAndRunsLater) {
  const OwnedStream owned = NewStream();
  const Stream& stream = owned.stream();
  const Buffer buffer = NewBuffer(64);
  ASSERT_TRUE(EnqueueFill(buffer.data(), 1, 64, stream).ok());
  const absl::StatusOr<Graph> graph = Graph::Capture(
      stream, [&] { return EnqueueFill(buffer.data(), 2, 32, stream); });
  ASSERT_TRUE(graph.ok()) << graph.status();
  std::vector<uint8_t> host(64);
  ASSERT_TRUE(Copy(host.data(), buffer.data(), 64, stream).ok());
  EXPECT_EQ(host[0], 1);  // recorded, not executed
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_TRUE(EnqueueFill(buffer.data(), 1, 64, stream).ok());
    ASSERT_TRUE(graph->Launch(stream).ok());
    ASSERT_TRUE(Copy(host.data(), buffer.data(), 64, stream).ok());
    EXPECT_EQ(host[31], 2);
    EXPECT_EQ(host[32], 1);
  }
}

TEST_F(GpuGraph, KernelsCanOverlapInIt) {
  const OwnedStream owned = NewStream();
  const Stream stream = owned.stream().WithOverlap();
  constexpr int64_t kUnits = 1000;
  const Buffer a = NewBuffer(16 * kUnits), b = NewBuffer(16 * kUnits);
  ASSERT_TRUE(EnqueueFill(a.data(), 3, a.bytes(), stream).ok());
  // Each kernel copies what the one before has written.
  const auto copy = [&](const Buffer& from, const Buffer& to) {
    return EnqueueStreaming(
        {.reads = 1, .writes16 = true},
        {.read = {from.data()}, .write16 = to.data(), .units = kUnits},
        {.threads = 128, .blocks = 8, .unroll = 1}, stream);
  };
  const absl::StatusOr<Graph> graph = Graph::Capture(stream, [&] {
    for (int i = 0; i < 10; ++i) {
      LAMINA_RETURN_IF_ERROR(copy(a, b));
      LAMINA_RETURN_IF_ERROR(copy(b, a));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_TRUE(graph->Launch(stream).ok());
  std::vector<uint8_t> host(16 * kUnits), want(16 * kUnits, 3);
  ASSERT_TRUE(Copy(host.data(), b.data(), b.bytes(), stream).ok());
  EXPECT_EQ(host, want);
}

TEST_F(GpuGraph, ErrorsLeaveTheStreamUsable) {
  const OwnedStream owned = NewStream();
  const Stream& stream = owned.stream();
  const Buffer buffer = NewBuffer(64);
  const auto is_usable = [&] {
    std::vector<uint8_t> host(64);
    return EnqueueFill(buffer.data(), 9, 64, stream).ok() &&
           Copy(host.data(), buffer.data(), 64, stream).ok() && host[63] == 9;
  };
  // The body's own error comes back.
  EXPECT_EQ(Graph::Capture(stream, [] { return absl::AbortedError("mine"); })
                .status()
                .ToString(),
            "ABORTED: mine");
  EXPECT_TRUE(is_usable());
  // A wait within a recording is an error of the vendor's.
  const absl::StatusOr<Graph> waited =
      Graph::Capture(stream, [&] { return Synchronize(stream); });
  EXPECT_EQ(waited.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(is_usable());
  // So is one that the body ignores.
  const absl::StatusOr<Graph> ignored = Graph::Capture(stream, [&] {
    (void)Synchronize(stream);
    return absl::OkStatus();
  });
  EXPECT_EQ(ignored.status().code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(is_usable());
  EXPECT_EQ(Graph::Capture(Stream::Gpu(device_, nullptr),
                           [] { return absl::OkStatus(); })
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(GpuGraph, AFailedLaunchLeavesNoErrorBehind) {
  const OwnedStream owned = NewStream();
  const Buffer buffer = NewBuffer(64);
  const absl::Status status = EnqueueStreaming(
      {.reads = 1}, {.read = {buffer.data()}, .units = 1},
      {.threads = 4096, .blocks = 1, .unroll = 1}, owned.stream());
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_EQ(status.message().find("Streaming: "), 0u) << status;
  EXPECT_TRUE(Synchronize(owned.stream()).ok());
  EXPECT_TRUE(EnqueueStreaming({.reads = 1},
                               {.read = {buffer.data()}, .units = 0},
                               {.threads = 64}, owned.stream())
                  .ok());
}

TEST_F(GpuGraph, ReadBandwidthIsPlausible) {
  const double bandwidth = MeasureReadBandwidth(device_, 0, 1 << 20, 2);
  EXPECT_GT(bandwidth, 1e10);
  EXPECT_LT(bandwidth, 1e14);
}

}  // namespace
}  // namespace lamina
