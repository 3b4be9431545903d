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

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/event.h"
#include "lamina/core/graph.h"
#include "lamina/core/stream.h"

namespace lamina {
namespace {

// A backend that this build does not have.
constexpr Device kMissing{Backend::kHip, 0};
std::string NoBackend(const char* where) {
  return absl::StrCat(
      "UNIMPLEMENTED: ", where,
      ": this build has no hip backend; built backends: ", kBuiltBackends);
}

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
  EXPECT_TRUE(GetDeviceInfo(kMissing).name.empty());
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
  EXPECT_EQ(MeasureReadBandwidth(kMissing), 0);
  EXPECT_GT(MeasureReadBandwidth(Device{}, 2, 1, 1), 0);  // less than a word
}

TEST(Stream, KnowsDeviceAndThreads) {
  EXPECT_EQ(Stream::Cpu(3).num_threads(), 3);
  EXPECT_EQ(Stream::Cpu().num_threads(), GetDeviceInfo(Device{}).num_units);
  EXPECT_EQ(Stream::Cpu(-1).num_threads(), Stream::Cpu().num_threads());
  EXPECT_EQ(Stream::Cpu().device(), Device{});
  int queue = 0;
  const Stream gpu = Stream::Gpu(kMissing, &queue);
  EXPECT_EQ(gpu.device(), kMissing);
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
  EXPECT_EQ(Buffer::Allocate(kMissing, 8).status().ToString(),
            NoBackend("Buffer: device"));
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
  EXPECT_EQ(fresh.Wait().code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(recorded.Record(Stream::Cpu()).ok());
  EXPECT_EQ(Event::ElapsedMicros(recorded, fresh).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Event::ElapsedMicros(fresh, recorded).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fresh.Record(Stream::Gpu(kMissing, nullptr)).ToString(),
            NoBackend("Event: stream"));
}

TEST(Event, MovesWhatItRecorded) {
  Event start, end;
  ASSERT_TRUE(start.Record(Stream::Cpu()).ok());
  ASSERT_TRUE(end.Record(Stream::Cpu()).ok());
  const double micros = *Event::ElapsedMicros(start, end);
  Event moved = std::move(start);
  EXPECT_EQ(*Event::ElapsedMicros(moved, end), micros);
  EXPECT_EQ(Event::ElapsedMicros(start, end)  // NOLINT(bugprone-use-after-move)
                .status()
                .code(),
            absl::StatusCode::kFailedPrecondition);
}

// ---- Copies, streams of one's own, graphs -----------------------------------

TEST(Copy, CopiesAndFills) {
  const Stream stream = Stream::Cpu();
  const std::string from = "lamina";
  char to[8] = "-------";
  ASSERT_TRUE(Copy(to, from.data(), 6, stream).ok());
  EXPECT_STREQ(to, "lamina-");
  ASSERT_TRUE(EnqueueFill(to + 1, 'x', 2, stream).ok());
  EXPECT_STREQ(to, "lxxina-");
  EXPECT_TRUE(EnqueueCopy(nullptr, nullptr, 0, stream).ok());
}

TEST(Copy, Errors) {
  char byte = 0;
  EXPECT_EQ(Copy(&byte, &byte, -1, Stream::Cpu()).message(),
            "Copy: bytes: given -1, want >= 0");
  EXPECT_EQ(Copy(nullptr, &byte, 1, Stream::Cpu()).message(),
            "Copy: to: given null, want a pointer");
  EXPECT_EQ(Copy(&byte, nullptr, 1, Stream::Cpu()).message(),
            "Copy: from: given null, want a pointer");
  EXPECT_EQ(EnqueueFill(nullptr, 0, 1, Stream::Cpu()).message(),
            "Fill: to: given null, want a pointer");
  EXPECT_EQ(Copy(&byte, &byte, 1, Stream::Gpu(kMissing, nullptr)).ToString(),
            NoBackend("Copy: stream"));
}

TEST(OwnedStream, OnTheCpuIsAnOrdinaryStream) {
  absl::StatusOr<OwnedStream> stream = OwnedStream::Create(Device{});
  ASSERT_TRUE(stream.ok());
  EXPECT_EQ(stream->stream().device(), Device{});
  EXPECT_TRUE(Synchronize(stream->stream()).ok());
  EXPECT_EQ(OwnedStream::Create(kMissing).status().ToString(),
            NoBackend("OwnedStream: device"));
  EXPECT_EQ(Synchronize(Stream::Gpu(kMissing, nullptr)).ToString(),
            NoBackend("Synchronize: stream"));
}

TEST(Graph, NeedsAGpu) {
  bool ran = false;
  const auto body = [&] {
    ran = true;
    return absl::OkStatus();
  };
  EXPECT_EQ(Graph::Capture(Stream::Cpu(), body).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(
      Graph::Capture(Stream::Gpu(kMissing, nullptr), body).status().ToString(),
      NoBackend("Graph: stream"));
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace lamina
