// AdvanceTokens: what is noted where, and that positions stop at the last.

#include "lamina/tokens/advance_tokens.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::TestStream;
using ::testing::HasSubstr;

TEST(AdvanceTokens, NotesIdsInTurnAndStopsAtTheLastPosition) {
  for (const int64_t sequences : {int64_t{1}, int64_t{3}, int64_t{300}}) {
    constexpr int64_t kSlots = 3, kPitch = 301, kNone = -9;
    constexpr int32_t kLast = 12;
    const auto size = static_cast<size_t>(sequences);
    std::vector<int64_t> ids(size), history(kSlots * kPitch, kNone);
    std::vector<int32_t> positions(size + 1, 9);  // one more: not touched
    int64_t* const step = new int64_t(4);
    for (size_t t = 0; t < size; ++t)
      positions[t] += static_cast<int32_t>(t % 4);
    std::vector<int64_t> want_history = history;
    std::vector<int32_t> want_positions = positions;
    for (int64_t i = 4; i < 9; ++i) {
      for (size_t t = 0; t < size; ++t) {
        ids[t] = i * 1000 + static_cast<int64_t>(t) + (int64_t{1} << 33);
        want_history[static_cast<size_t>(i % kSlots * kPitch) + t] = ids[t];
        want_positions[t] = std::min(want_positions[t] + 1, kLast);
      }
      const absl::Status status = AdvanceTokens(
          {.ids = Vector(ids.data(), sequences),
           .positions = Vector(positions.data(), sequences),
           .last_position = kLast,
           .history = Matrix(history.data(), kSlots, sequences, kPitch),
           .step = step},
          TestStream());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(history, want_history);
      EXPECT_EQ(positions, want_positions);
      EXPECT_EQ(*step, i + 1);
    }
    delete step;
  }
}

TEST(AdvanceTokensErrors, NameTheArgument) {
  std::vector<int64_t> ids(2), history(4);
  std::vector<int32_t> positions(2);
  int64_t step = 0;
  const AdvanceTokensArgs good{.ids = Vector(ids.data(), 2),
                               .positions = Vector(positions.data(), 2),
                               .last_position = 9,
                               .history = Matrix(history.data(), 2, 2),
                               .step = &step};
  ASSERT_TRUE(AdvanceTokens(good, Stream::Cpu()).ok());
  const auto expect = [&](const char* text, auto&& change) {
    AdvanceTokensArgs args = good;
    change(args);
    const absl::Status status = AdvanceTokens(args, Stream::Cpu());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect("ids", [](auto& a) { a.ids.dtype = DType::kI32; });
  expect("positions", [](auto& a) { a.positions.size = 1; });
  expect("positions", [](auto& a) { a.positions.data = nullptr; });
  expect("history.cols", [](auto& a) { a.history.cols = 1; });
  expect("history.rows", [](auto& a) { a.history.rows = 0; });
  expect("last_position", [](auto& a) { a.last_position = -1; });
  expect("step", [](auto& a) { a.step = nullptr; });
  expect("ids", [](auto& a) {
    a.history =
        Matrix(static_cast<int64_t*>(const_cast<void*>(a.ids.data)), 1, 2);
  });
}

}  // namespace
}  // namespace lamina
