// The kernel that only moves bytes moves all of them, to the right place.

#include "lamina/core/streaming/streaming.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/random.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

constexpr int64_t kGuard = 4;
constexpr uint32_t kPoison = 0xa5a5a5a5u;

// `units` times `words` random words, and guards that nobody may write.
std::vector<uint32_t> Words(int64_t units, int words, testing::Random* random) {
  std::vector<uint32_t> data(static_cast<size_t>(units * words + kGuard),
                             kPoison);
  for (size_t i = 0; random != nullptr && i + kGuard < data.size(); ++i) {
    data[i] = static_cast<uint32_t>(random->Bits());
  }
  return data;
}

void CheckStreaming(const StreamingTraffic& traffic, int64_t units,
                    const StreamingPlan& plan) {
  testing::Random random(static_cast<uint64_t>(units));
  const std::vector<uint32_t> a = Words(units, 4, &random);
  const std::vector<uint32_t> b = Words(units, 4, &random);
  std::vector<uint32_t> write16 = Words(units, 4, nullptr);
  std::vector<uint32_t> write8 = Words(units, 2, nullptr);
  std::vector<uint32_t> sink(8);

  std::vector<uint32_t> want16 = write16, want8 = write8;
  for (size_t u = 0; u < static_cast<size_t>(units); ++u) {
    uint32_t word[4];
    for (size_t i = 0; i < 4; ++i) {
      word[i] = a[4 * u + i] ^ (traffic.reads == 2 ? b[4 * u + i] : 0);
      if (traffic.writes16) want16[4 * u + i] = word[i];
    }
    for (size_t i = 0; i < 2 && traffic.writes8; ++i) {
      want8[2 * u + i] = word[i] ^ word[i + 2];
    }
  }
  const absl::Status status = EnqueueStreaming(traffic,
                                               {.read = {a.data(), b.data()},
                                                .write16 = write16.data(),
                                                .write8 = write8.data(),
                                                .sink = sink.data(),
                                                .units = units},
                                               plan, testing::TestStream());
  if (testing::OnCpu()) {
    EXPECT_EQ(status.ToString(),
              "UNIMPLEMENTED: Streaming: stream: runs on GPUs only");
    return;
  }
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(write16, want16);
  EXPECT_EQ(write8, want8);
  EXPECT_EQ(sink, std::vector<uint32_t>(8));
}

TEST(Streaming, MovesEveryUnit) {
  for (const StreamingTraffic& traffic : kStreamingTraffic) {
    for (const int unroll : kStreamingUnroll) {
      for (const int64_t units : {0, 1, 63, 64, 65, 500}) {
        SCOPED_TRACE(::testing::Message()
                     << traffic.reads << traffic.writes16 << traffic.writes8
                     << " unroll " << unroll << " units " << units);
        CheckStreaming(traffic, units,
                       {.threads = 64, .blocks = 1, .unroll = unroll});
        CheckStreaming(traffic, units,
                       {.threads = 64, .blocks = 3, .unroll = unroll});
      }
    }
  }
}

TEST(StreamingPlans, CoverSmallAndLarge) {
  DeviceInfo gpu;
  gpu.num_units = 132;
  for (const int64_t units : {int64_t{1}, int64_t{512}, int64_t{1} << 27}) {
    const std::vector<StreamingPlan> plans = StreamingPlans(units, gpu);
    EXPECT_FALSE(plans.empty());
    for (const StreamingPlan& plan : plans) {
      EXPECT_GE(plan.blocks, 1);
      EXPECT_LE(plan.threads, 512);
    }
  }
}

}  // namespace
}  // namespace lamina
