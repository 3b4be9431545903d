#include "lamina/core/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace lamina {
namespace {

struct Range {
  int64_t begin;
  int64_t end;
  int index;
};

std::vector<Range> RangesOf(int threads, int64_t count, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  ParallelFor(Stream::Cpu(threads), count, grain,
              [&](int64_t begin, int64_t end, int index) {
                const std::lock_guard<std::mutex> lock(mutex);
                ranges.push_back({begin, end, index});
              });
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

TEST(ParallelFor, PartitionsExactly) {
  for (const int threads : {1, 2, 3, 7, 16}) {
    for (const int64_t grain : {-1, 0, 1, 5, 64}) {
      for (const int64_t count :
           {1, 2, 3, 4, 5, 6, 9, 10, 11, 63, 64, 65, 127, 128, 129, 1000}) {
        const std::vector<Range> ranges = RangesOf(threads, count, grain);
        ASSERT_FALSE(ranges.empty());
        EXPECT_LE(static_cast<int>(ranges.size()), threads);
        const int64_t least = std::max<int64_t>(1, grain);
        if (count >= threads * least) {
          EXPECT_EQ(static_cast<int>(ranges.size()), threads);
        }
        int64_t position = 0;
        int64_t smallest = count, largest = 0;
        for (size_t i = 0; i < ranges.size(); ++i) {
          EXPECT_EQ(ranges[i].begin, position);
          EXPECT_EQ(ranges[i].index, static_cast<int>(i));
          position = ranges[i].end;
          smallest = std::min(smallest, ranges[i].end - ranges[i].begin);
          largest = std::max(largest, ranges[i].end - ranges[i].begin);
        }
        EXPECT_EQ(position, count);
        EXPECT_LE(largest - smallest, 1);
        if (ranges.size() > 1) {
          EXPECT_GE(smallest, least);
        }
      }
    }
  }
}

TEST(ParallelFor, NothingToDo) {
  EXPECT_TRUE(RangesOf(4, 0, 1).empty());
  EXPECT_TRUE(RangesOf(4, -5, 1).empty());
}

TEST(ParallelFor, HugeCountsDoNotOverflow) {
  const int64_t count = int64_t{1} << 62;
  const std::vector<Range> ranges = RangesOf(3, count, int64_t{1} << 40);
  ASSERT_EQ(ranges.size(), 3u);
  EXPECT_EQ(ranges[2].end, count);
  EXPECT_EQ(ranges[1].begin, ranges[0].end);
}

TEST(ParallelFor, SmallWorkStaysOnTheCallingThread) {
  const std::thread::id caller = std::this_thread::get_id();
  std::thread::id used;
  ParallelFor(Stream::Cpu(4), 9, 5, [&](int64_t, int64_t, int) {
    used = std::this_thread::get_id();
  });
  EXPECT_EQ(used, caller);
}

TEST(ParallelFor, UsesSeveralThreads) {
  std::atomic<int> inside = 0;
  std::atomic<bool> met = false;
  ParallelFor(Stream::Cpu(2), 2, 1, [&](int64_t, int64_t, int) {
    inside.fetch_add(1);
    for (int64_t i = 0; i < int64_t{1} << 34 && !met; ++i) {
      if (inside.load() == 2) met = true;
    }
  });
  EXPECT_TRUE(met);
}

TEST(ParallelFor, NestedCallsCoverEverything) {
  std::vector<std::atomic<int>> hits(60);
  ParallelFor(Stream::Cpu(3), 6, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      ParallelFor(Stream::Cpu(4), 10, 1,
                  [&](int64_t inner_begin, int64_t inner_end, int index) {
                    EXPECT_LT(index, 4);
                    for (int64_t j = inner_begin; j < inner_end; ++j) {
                      hits[static_cast<size_t>(i * 10 + j)].fetch_add(1);
                    }
                  });
    }
  });
  for (const std::atomic<int>& hit : hits) EXPECT_EQ(hit, 1);
}

TEST(ParallelFor, TwoHostThreadsAtOnce) {
  const auto work = [](std::vector<int>* hits) {
    for (int repeat = 0; repeat < 200; ++repeat) {
      ParallelFor(Stream::Cpu(3), static_cast<int64_t>(hits->size()), 1,
                  [&](int64_t begin, int64_t end, int) {
                    for (int64_t i = begin; i < end; ++i) {
                      ++(*hits)[static_cast<size_t>(i)];
                    }
                  });
    }
  };
  std::vector<int> a(31), b(17);
  std::thread other(work, &b);
  work(&a);
  other.join();
  for (const int hit : a) EXPECT_EQ(hit, 200);
  for (const int hit : b) EXPECT_EQ(hit, 200);
}

}  // namespace
}  // namespace lamina
