// Device, Stream, Buffer and Event on the CPU.

#include "lamina/core/device.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/event.h"
#include "lamina/core/stream.h"

namespace lamina {
namespace {

constexpr Device kCuda{Backend::kCuda, 0};

TEST(Device, TheCpuIsOne) {
  const std::vector<Device> devices = ListDevices();
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices[0], Device{});
  const DeviceInfo& info = GetDeviceInfo(Device{});
  EXPECT_EQ(info.device, Device{});
  EXPECT_FALSE(info.name.empty());
  EXPECT_FALSE(info.arch.empty());
  EXPECT_GE(info.num_units, 1);
  EXPECT_GT(info.memory_bytes, int64_t{64} << 20);
  EXPECT_EQ(&GetDeviceInfo(Device{}), &info);  // cached
  EXPECT_TRUE(GetDeviceInfo({Backend::kCpu, 1}).name.empty());
  EXPECT_TRUE(GetDeviceInfo(kCuda).name.empty());
  EXPECT_STREQ(Name(Backend::kHip), "hip");
}

TEST(CpuTarget, TheBestIsTheDefault) {
  const std::vector<std::string> names = CpuTargetNames();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(CpuTargetName(), names.front());
  EXPECT_EQ(names.back(), "SCALAR");  // the portable loop is always there
}

TEST(CpuTarget, CanBeForced) {
  const std::vector<std::string> names = CpuTargetNames();
  for (const std::string& name : names) {
    ASSERT_TRUE(ForceCpuTarget(name));
    EXPECT_EQ(CpuTargetName(), name);
    EXPECT_EQ(CpuTargetNames(), names);
    EXPECT_FALSE(ForceCpuTarget("MMX"));
    EXPECT_EQ(CpuTargetName(), name);  // unchanged
  }
  ASSERT_TRUE(ForceCpuTarget(""));
  EXPECT_EQ(CpuTargetName(), names.front());
}

TEST(MeasureReadBandwidth, IsPlausible) {
  const double bandwidth =
      MeasureReadBandwidth(Device{}, 1, int64_t{32} << 20, 2);
  EXPECT_GT(bandwidth, 1e8);
  EXPECT_LT(bandwidth, 1e13);
  EXPECT_EQ(MeasureReadBandwidth(kCuda), 0);
  EXPECT_GT(MeasureReadBandwidth(Device{}, 2, 1, 1), 0);  // less than a word
}

TEST(Stream, KnowsDeviceAndThreads) {
  EXPECT_EQ(Stream::Cpu(3).num_threads(), 3);
  EXPECT_EQ(Stream::Cpu().num_threads(), GetDeviceInfo(Device{}).num_units);
  EXPECT_EQ(Stream::Cpu(-1).num_threads(), Stream::Cpu().num_threads());
  EXPECT_EQ(Stream::Cpu().device(), Device{});
  int queue = 0;
  const Stream gpu = Stream::Gpu(kCuda, &queue);
  EXPECT_EQ(gpu.device(), kCuda);
  EXPECT_EQ(gpu.handle(), &queue);
  EXPECT_FALSE(gpu.overlap());
  EXPECT_TRUE(gpu.WithOverlap().overlap());
  EXPECT_EQ(gpu.WithOverlap().handle(), &queue);
  EXPECT_FALSE(gpu.WithOverlap().WithOverlap(false).overlap());
}

// ---- Buffer -----------------------------------------------------------------

static_assert(!std::is_copy_constructible_v<Buffer> &&
              !std::is_copy_assignable_v<Buffer> &&
              std::is_nothrow_move_constructible_v<Buffer> &&
              std::is_nothrow_move_assignable_v<Buffer>);

TEST(Buffer, IsAlignedAndWritable) {
  for (const int64_t bytes : {1, 255, 256, 257, 100000}) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device{}, bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(buffer->bytes(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 256, 0u);
    EXPECT_EQ(buffer->as<float>(), buffer->data());
    std::memset(buffer->data(), 0xff, static_cast<size_t>(bytes));
  }
}

TEST(Buffer, MayBeEmpty) {
  absl::StatusOr<Buffer> buffer = Buffer::Allocate(Device{}, 0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->bytes(), 0);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST(Buffer, MovesItsMemory) {
  Buffer a = *Buffer::Allocate(Device{}, 64);
  void* const data = a.data();
  Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.bytes(), 64);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(a.bytes(), 0);
  b = *Buffer::Allocate(Device{}, 128);
  EXPECT_EQ(b.bytes(), 128);
  Buffer& self = b;
  b = std::move(self);
  EXPECT_EQ(b.bytes(), 128);
  EXPECT_NE(b.data(), nullptr);
}

TEST(Buffer, Errors) {
  EXPECT_EQ(Buffer::Allocate(Device{}, -1).status().ToString(),
            "INVALID_ARGUMENT: Buffer: bytes: given -1, want >= 0");
  EXPECT_EQ(Buffer::Allocate(kCuda, 8).status().ToString(),
            "UNIMPLEMENTED: Buffer: device: this build has no cuda backend; "
            "built backends: cpu");
  // More than any allocator gives.
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Buffer::Allocate(Device{}, most).status().ToString(),
            "RESOURCE_EXHAUSTED: Buffer: cannot allocate 9223372036854775807 "
            "bytes on cpu");
}

// ---- Event ------------------------------------------------------------------

TEST(Event, MeasuresTime) {
  Event start, end;
  ASSERT_TRUE(start.Record(Stream::Cpu()).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(end.Record(Stream::Cpu()).ok());
  const absl::StatusOr<double> micros = Event::ElapsedMicros(start, end);
  ASSERT_TRUE(micros.ok());
  EXPECT_GE(*micros, 2000);
  EXPECT_LT(*micros, 60e6);
  EXPECT_LT(*Event::ElapsedMicros(end, start), 0);
}

TEST(Event, Errors) {
  Event recorded, fresh;
  ASSERT_TRUE(recorded.Record(Stream::Cpu()).ok());
  EXPECT_EQ(Event::ElapsedMicros(recorded, fresh).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Event::ElapsedMicros(fresh, recorded).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fresh.Record(Stream::Gpu(kCuda, nullptr)).ToString(),
            "UNIMPLEMENTED: Event: stream: this build has the cpu backend "
            "only");
}

}  // namespace
}  // namespace lamina
