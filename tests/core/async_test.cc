// core/device/async.cuh on host SIMT or the GPU; the faults that host SIMT
// finds in kernels that use it.

#include "tests/core/async_kernels.h"

#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/core/vocabulary_test.h"

namespace lamina {
namespace {

using testing::BoxArgs;
using testing::DeviceArray;
using ::testing::Each;
using testing::GroupsArgs;
using testing::GroupSyncArgs;
using testing::kGroups;
using testing::kPending;
using testing::kStageBytes;
using testing::kStages;
using testing::OwnCopiesArgs;
using testing::RingArgs;

std::vector<uint8_t> RandomBytes(size_t count) {
  std::mt19937 random(7);
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

class Async : public testing::VocabularyTest {};

// ---- Own copies -------------------------------------------------------------

TEST_F(Async, CopiesSomeBytesAndZeros) {
  const std::vector<uint8_t> bytes = RandomBytes(17 * 16);
  std::vector<uint8_t> want(bytes.size(), 0);
  for (size_t unit = 0; unit <= 16; ++unit) {
    std::memcpy(&want[unit * 16], &bytes[unit * 16], unit);
  }
  for (const bool once : {false, true}) {
    const DeviceArray<uint8_t> from = OnDevice(bytes);
    DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(17 * 16, 1));
    const OwnCopiesArgs args{
        .from = from.data(), .to = to.data(), .once = once};
    ASSERT_TRUE(testing::LaunchOwnCopies(args, target()).ok());
    EXPECT_EQ(to.Back(), want);
  }
}

TEST_F(Async, WaitsForGroups) {
  const std::vector<uint8_t> bytes = RandomBytes(kGroups * 32 * 16);
  const DeviceArray<uint8_t> from = OnDevice(bytes);
  DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(bytes.size(), 1));
  ASSERT_TRUE(
      testing::LaunchGroups({.from = from.data(), .to = to.data()}, target())
          .ok());
  std::vector<uint8_t> want = bytes;
  for (size_t i = (kGroups - kPending) * 32 * 16; i < want.size(); ++i) {
    want[i] = 1;
  }
  EXPECT_EQ(to.Back(), want);
}

// ---- The ring ---------------------------------------------------------------

class Ring : public testing::VocabularyTest {
 protected:
  static constexpr int kBlocks = 9;
  // NaN is 255 here: sums of poison are larger than any other.
  static constexpr uint32_t kPoisonSum = 255 * kStageBytes / 32;

  std::vector<uint32_t> Run(RingArgs args) {
    std::vector<uint8_t> bytes =
        RandomBytes(size_t{kBlocks} * kStages * kStageBytes);
    for (uint8_t& byte : bytes) byte /= 2;
    want_.assign(size_t{kBlocks} * kStages * 32, 0);
    for (size_t i = 0; i < bytes.size(); ++i) {
      want_[i / (kStageBytes / 32)] += bytes[i];
    }
    const DeviceArray<uint8_t> from = OnDevice(bytes);
    DeviceArray<uint32_t> sums =
        OnDevice(std::vector<uint32_t>(want_.size(), 1));
    args.from = from.data();
    args.sums = sums.data();
    EXPECT_TRUE(testing::LaunchRing(args, kBlocks, target()).ok());
    return sums.Back();
  }
  const std::vector<uint32_t>& want() const { return want_; }

 private:
  std::vector<uint32_t> want_;
};

TEST_F(Ring, OwnCopiesArriveAtPhasers) { EXPECT_EQ(Run({}), want()); }
TEST_F(Ring, BulkCopiesBringTheirBytes) {
  EXPECT_EQ(Run({.bulk = true}), want());
}

// ---- Boxes ------------------------------------------------------------------

class Box : public testing::VocabularyTest {
 protected:
  static constexpr int kCols = 37, kRows = 11, kPitch = 208;

  gpu_runtime::TensorMapArgs MapArgs(const uint8_t* base, int element_bytes) {
    return {.base = base,
            .element_bytes = element_bytes,
            .cols = kCols,
            .rows = kRows,
            .pitch_bytes = kPitch,
            .box_cols = 128 / element_bytes,
            .box_rows = 16};
  }
  static std::vector<uint8_t> Want(const std::vector<uint8_t>& matrix,
                                   int element_bytes, int col, int row) {
    std::vector<uint8_t> box(16 * 128, 0);
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < 128; ++c) {
        const int y = row + r, x = col * element_bytes + c;
        if (y < 0 || y >= kRows || x < 0 || x >= kCols * element_bytes) {
          continue;
        }
        const int place = r * 128 + ((c / 16) ^ (r % 8)) * 16 + c % 16;
        box[static_cast<size_t>(place)] =
            matrix[static_cast<size_t>(y * kPitch + x)];
      }
    }
    return box;
  }
};

TEST_F(Box, IsSwizzledAndZeroOutside) {
  const std::vector<uint8_t> bytes = RandomBytes(kRows * kPitch);
  const DeviceArray<uint8_t> matrix = OnDevice(bytes);
  for (const int element_bytes : {1, 2, 4}) {
    BoxArgs args{.rows = 16};
    ASSERT_TRUE(gpu_runtime::MakeTensorMap(
                    MapArgs(matrix.data(), element_bytes), &args.map)
                    .ok());
    for (const int col_bytes : {0, 16, 32, 128, -16, -112, 1024}) {
      const int col = col_bytes / element_bytes;
      for (const int row : {0, 3, 10, 11, -2, -100}) {
        DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(16 * 128, 1));
        args.col = col;
        args.row = row;
        args.to = to.data();
        ASSERT_TRUE(testing::LaunchBox(args, target()).ok());
        ASSERT_EQ(to.Back(), Want(bytes, element_bytes, col, row))
            << element_bytes << " bytes at " << col << ", " << row;
      }
    }
  }
}

TEST_F(Box, MapsAreChecked) {
  const DeviceArray<uint8_t> matrix =
      OnDevice(std::vector<uint8_t>(kRows * kPitch));
  const gpu_runtime::TensorMapArgs good = MapArgs(matrix.data(), 2);
  gpu::TensorMap map;
  EXPECT_TRUE(gpu_runtime::MakeTensorMap(good, &map).ok());
  for (const auto& change :
       std::vector<std::function<void(gpu_runtime::TensorMapArgs&)>>{
           [](auto& args) {
             args.base = static_cast<const char*>(args.base) + 8;
           },
           [](auto& args) { args.pitch_bytes += 8; },
           [](auto& args) { args.rows = 0; },
           [](auto& args) { args.box_rows = 257; },
           [](auto& args) { args.box_cols = 65; }}) {
    gpu_runtime::TensorMapArgs args = good;
    change(args);
    EXPECT_FALSE(gpu_runtime::MakeTensorMap(args, &map).ok());
  }
}

// ---- Waves ------------------------------------------------------------------

TEST_F(Async, ElectsOneAndSynchronisesGroups) {
  DeviceArray<int> elected = OnDevice(std::vector<int>(4, 0));
  DeviceArray<int> sums = OnDevice(std::vector<int>(128, -1));
  const GroupSyncArgs args{.elected = elected.data(), .sums = sums.data()};
  ASSERT_TRUE(testing::LaunchGroupSync(args, target()).ok());
  EXPECT_THAT(elected.Back(), Each(1));
  const std::vector<int> got = sums.Back();
  for (int thread = 0; thread < 128; ++thread) {
    EXPECT_EQ(got[static_cast<size_t>(thread)], thread + 19 * 20 / 2);
  }
}

#if defined(LAMINA_SIMT)
// ---- What host SIMT finds ---------------------------------------------------

using AsyncDeathTest = Async;
using RingDeathTest = Ring;
using BoxDeathTest = Box;

TEST_F(Async, WithoutAWaitThereIsPoison) {
  const DeviceArray<uint8_t> from = OnDevice(RandomBytes(17 * 16));
  DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(17 * 16, 1));
  ASSERT_TRUE(
      testing::LaunchOwnCopies(
          {.from = from.data(), .to = to.data(), .wait = false}, target())
          .ok());
  EXPECT_THAT(to.Back(), Each(0xFF));
}

TEST_F(Async, GroupsThatAreNotWaitedForArePoison) {
  const std::vector<uint8_t> bytes = RandomBytes(kGroups * 32 * 16);
  const DeviceArray<uint8_t> from = OnDevice(bytes);
  DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(bytes.size(), 1));
  ASSERT_TRUE(
      testing::LaunchGroups(
          {.from = from.data(), .to = to.data(), .copied_back = kGroups},
          target())
          .ok());
  const std::vector<uint8_t> got = to.Back();
  EXPECT_THAT(std::vector<uint8_t>(got.begin() + (kGroups - kPending) * 32 * 16,
                                   got.end()),
              Each(0xFF));
}

TEST_F(AsyncDeathTest, Copies) {
  const DeviceArray<uint8_t> from = OnDevice(RandomBytes(18 * 16));
  DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(17 * 16, 1));
  const auto run = [&](OwnCopiesArgs args) {
    args.to = to.data();
    if (args.from == nullptr) args.from = from.data();
    (void)testing::LaunchOwnCopies(args, target());
  };
  EXPECT_DEATH(run({.twice = true}), "two copies are under way to byte 0");
  EXPECT_DEATH(run({.shift = 8}), "a copy to a misaligned place");
  EXPECT_DEATH(run({.from = from.data() + 8}), "from a misaligned place");
  EXPECT_DEATH(run({.shift = 1 << 20}),
               "what a copy writes to is not in the block's shared memory");
}

TEST_F(Ring, WithoutAwaitThereIsPoison) {
  RingArgs args{.stages = testing::kRingStages, .await_empty = false};
  args.await_full = false;
  EXPECT_EQ(Run(args)[0], kPoisonSum);
  args.await_full = true;
  args.parity = 1;
  EXPECT_EQ(Run(args)[0], kPoisonSum);
}

std::vector<uint32_t> PassedOn(int blocks, int rounds) {
  std::vector<uint32_t> values(static_cast<size_t>(blocks));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<uint32_t>(i * i + 1);
  }
  for (int round = 0; round < rounds; ++round) {
    const std::vector<uint32_t> before = values;
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = before[i] + before[(i + 1) % before.size()];
    }
  }
  return values;
}

// Counters that wrap, too.
TEST_F(Async, BlocksSignalEachOther) {
  constexpr int kBlocks = 9, kRounds = 6;
  for (const uint32_t first : {0u, 0xfffffffcu}) {
    std::vector<uint32_t> initial = PassedOn(kBlocks, 0);
    initial.resize(2 * kBlocks);
    DeviceArray<uint32_t> values = OnDevice(initial);
    DeviceArray<uint32_t> signals =
        OnDevice(std::vector<uint32_t>(kRounds, first));
    ASSERT_TRUE(testing::LaunchSignals({.values = values.data(),
                                        .signals = signals.data(),
                                        .first = first,
                                        .rounds = kRounds},
                                       kBlocks, target())
                    .ok());
    std::vector<uint32_t> got = values.Back();
    got.resize(kBlocks);
    EXPECT_EQ(got, PassedOn(kBlocks, kRounds));
    EXPECT_THAT(signals.Back(), Each(first + kBlocks));
  }
}

TEST_F(AsyncDeathTest, SignalsThatDoNotCome) {
  DeviceArray<uint32_t> values = OnDevice(std::vector<uint32_t>(8));
  DeviceArray<uint32_t> signals = OnDevice(std::vector<uint32_t>(4));
  EXPECT_DEATH((void)testing::LaunchSignals({.values = values.data(),
                                             .signals = signals.data(),
                                             .rounds = 4,
                                             .silent_block = 2},
                                            4, target()),
               "lanes wait for ever: stage 1 is not signalled: 1 signals are "
               "missing");
}

TEST_F(RingDeathTest, Phasers) {
  EXPECT_DEATH(Run({.full_arrivals = 1}),
               "lanes wait for ever: phaser at byte 3072, phase 0 lacks 1 of "
               "65 arrivals and 0 bytes \\(block 0, wave 0\\)");
  EXPECT_DEATH(Run({.await_full = false}), "lanes wait for ever: phaser");
  EXPECT_DEATH(Run({.parity = 1}),
               "lanes wait for ever: phaser|two copies are under way");
  EXPECT_DEATH(Run({.await_empty = false}), "two copies are under way");
  EXPECT_DEATH(Run({.initialise = false}),
               "a phaser that has not been initialised");
  EXPECT_DEATH(Run({.publish = false}), "a phaser that has not been published");
}

TEST_F(RingDeathTest, BulkCopies) {
  EXPECT_DEATH(Run({.bulk = true, .expect_bytes = false}),
               "two copies are under way to byte 0 of shared memory");
  EXPECT_DEATH(Run({.bulk = true,
                    .stages = testing::kRingStages,
                    .await_full = false,
                    .await_empty = false}),
               "a bulk copy is under way when its block ends");
}

TEST_F(BoxDeathTest, Boxes) {
  const DeviceArray<uint8_t> matrix =
      OnDevice(std::vector<uint8_t>(kRows * kPitch));
  DeviceArray<uint8_t> to = OnDevice(std::vector<uint8_t>(16 * 128));
  BoxArgs args{.rows = 16, .to = to.data()};
  EXPECT_DEATH((void)testing::LaunchBox(args, target()),
               "a tensor map that nobody made");
  ASSERT_TRUE(
      gpu_runtime::MakeTensorMap(MapArgs(matrix.data(), 1), &args.map).ok());
  args.shift = 128;
  EXPECT_DEATH((void)testing::LaunchBox(args, target()),
               "a copy to a misaligned place");
  args.shift = 0;
  args.col = 8;
  EXPECT_DEATH((void)testing::LaunchBox(args, target()),
               "a box that begins at a misaligned column");
  // Fewer bytes are expected than the box brings.
  args.col = 0;
  args.rows = 8;
  EXPECT_DEATH((void)testing::LaunchBox(args, target()),
               "what a copy writes to is not in the block's shared memory");
}

TEST_F(AsyncDeathTest, BarriersOfSomeWaves) {
  DeviceArray<int> elected = OnDevice(std::vector<int>(4, 0));
  DeviceArray<int> sums = OnDevice(std::vector<int>(128, -1));
  const auto run = [&](int threads) {
    (void)testing::LaunchGroupSync(
        {.elected = elected.data(), .sums = sums.data(), .threads = threads},
        target());
  };
  EXPECT_DEATH(run(96), "barrier 1 has 64 of its 96 threads");
  EXPECT_DEATH(run(32), "more lanes at a barrier than it is for");
  EXPECT_DEATH(run(48), "no barrier of whole waves");
}
#endif

}  // namespace
}  // namespace lamina
