// SampleTokens against its rule as plain loops over a sorted row, token for
// token; the distribution it gives; edge cases by hand.

#include "lamina/tokens/sample_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/elementary.h"
#include "lamina/core/float16.h"
#include "lamina/tokens/sample_tokens/sample_tokens_policy.h"
#include "lamina/tokens/sample_tokens/sample_tokens_rule.h"
#include "tests/support/memory.h"
#include "tests/support/random.h"
#include "tests/support/targets.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::GuardedMatrix;
using ::lamina::testing::NormalVector;
using ::lamina::testing::OnCpu;
using ::lamina::testing::OnSimt;
using ::lamina::testing::Random;
using ::lamina::testing::TestStream;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The header's rule, word by word.
int64_t ModelToken(const std::vector<float>& x, const Sampling& sampling,
                   int64_t sequence, int32_t position) {
  using Wide = unsigned __int128;
  const size_t size = x.size();
  for (size_t i = 0; i < size; ++i) {
    if (std::isnan(x[i])) return static_cast<int64_t>(i);
  }
  const float largest = *std::max_element(x.begin(), x.end());
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return x[a] > x[b]; });
  if (sampling.temperature == 0) return static_cast<int64_t>(order[0]);
  std::vector<uint64_t> weights(size);
  const float inverse = 1.0f / sampling.temperature;
  for (size_t i = 0; i < size; ++i) {
    const float d = x[i] == largest ? 0.0f : (x[i] - largest) * inverse;
    weights[i] = static_cast<uint64_t>(std::floor(double{Exp(d)} * 0x1p40));
    if (static_cast<double>(weights[i]) < double{sampling.min_p} * 0x1p40) {
      weights[i] = 0;
    }
  }
  if (sampling.top_k > 0 && static_cast<size_t>(sampling.top_k) < size) {
    order.resize(static_cast<size_t>(sampling.top_k));
  }
  Wide whole = 0;
  for (const size_t i : order) whole += weights[i];
  const auto portion =
      static_cast<Wide>(std::nearbyint(double{sampling.top_p} * 0x1p32));
  const Wide goal = whole * portion >> 32;
  Wide kept = 0;
  size_t count = 0;
  while (count == 0 || (count < order.size() && kept < goal)) {
    kept += weights[order[count++]];
  }
  order.resize(count);
  std::sort(order.begin(), order.end());
  const Wide target =
      kept * tokens_internal::RandomBits(sampling.seed, sequence, position) >>
      64;
  Wide sum = 0;
  for (const size_t i : order) {
    sum += weights[i];
    if (sum > target) return static_cast<int64_t>(i);
  }
  return -1;
}

// One row's token, position and sequence 0 unless said.
template <class T = float>
int64_t Token(const std::vector<T>& row, const Sampling& sampling,
              int32_t position = 0) {
  int64_t token = -1;
  const absl::Status status = SampleTokens(
      {.logits = Matrix(row.data(), 1, static_cast<int64_t>(row.size())),
       .positions = Vector(&position, 1),
       .sampling = sampling,
       .tokens = Vector(&token, 1)},
      TestStream(1));
  EXPECT_TRUE(status.ok()) << status;
  return token;
}

struct Shape {
  int64_t sequences, vocabulary;
  int64_t pitch_more = 0, offset = 0;
};

template <class T>
void ExpectModel(const Shape& shape, float spread,
                 const std::vector<Sampling>& samplings) {
  SCOPED_TRACE(::testing::Message()
               << shape.sequences << " x " << shape.vocabulary << ", +"
               << shape.pitch_more << ", @" << shape.offset << ", spread "
               << spread);
  Random random(static_cast<uint32_t>(shape.vocabulary));
  const GuardedMatrix logits(DTypeOf<T>::value, shape.sequences,
                             shape.vocabulary,
                             shape.vocabulary + shape.pitch_more, shape.offset);
  logits.Fill(
      NormalVector<T>(random, shape.sequences * shape.vocabulary, spread));
  std::vector<int32_t> positions, ids;
  for (int64_t s = 0; s < shape.sequences; ++s) {
    positions.push_back(static_cast<int32_t>(7 * s));
    ids.push_back(static_cast<int32_t>(100 - s));
  }
  for (const Sampling& sampling : samplings) {
    SCOPED_TRACE(::testing::Message()
                 << "temperature " << sampling.temperature << ", top_k "
                 << sampling.top_k << ", top_p " << sampling.top_p << ", min_p "
                 << sampling.min_p);
    for (const bool named : {false, true}) {
      const GuardedMatrix tokens(DType::kI64, 1, shape.sequences);
      const absl::Status status = SampleTokens(
          {.logits = logits.view(),
           .positions = Vector(static_cast<const int32_t*>(positions.data()),
                               shape.sequences),
           .sequence_ids = named ? ConstVectorView(Vector(
                                       static_cast<const int32_t*>(ids.data()),
                                       shape.sequences))
                                 : ConstVectorView{},
           .sampling = sampling,
           .tokens = Vector(tokens.Row<int64_t>(0), shape.sequences)},
          TestStream(3));
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t s = 0; s < shape.sequences; ++s) {
        std::vector<float> row;
        for (int64_t i = 0; i < shape.vocabulary; ++i) {
          row.push_back(ToFloat(logits.At<T>(s, i)));
        }
        const size_t at = static_cast<size_t>(s);
        ASSERT_EQ(tokens.At<int64_t>(0, s),
                  ModelToken(row, sampling, named ? ids[at] : s, positions[at]))
            << "sequence " << s;
      }
      EXPECT_TRUE(tokens.GuardsIntact());
    }
    EXPECT_TRUE(logits.GuardsIntact());
  }
}

std::vector<Sampling> Samplings() {
  std::vector<Sampling> all;
  for (const Sampling& sampling :
       {Sampling{}, Sampling{.temperature = 1}, Sampling{.temperature = 0.01f},
        Sampling{.temperature = 50}, Sampling{.temperature = 1, .top_k = 1},
        Sampling{.temperature = 1, .top_k = 40},
        Sampling{.temperature = 2, .top_k = 1000000},
        Sampling{.temperature = 0.8f, .top_p = 0.95f},
        Sampling{.temperature = 3, .top_p = 0.5f},
        Sampling{.temperature = 1, .top_p = 0},
        Sampling{.temperature = 1, .top_p = 1e-6f},
        Sampling{.temperature = 1, .top_p = 0.999999f},
        Sampling{.temperature = 1, .min_p = 0.05f},
        Sampling{.temperature = 1, .min_p = 1},
        Sampling{
            .temperature = 1.5f, .top_k = 50, .top_p = 0.9f, .min_p = 0.01f}}) {
    all.push_back(sampling);
    all.back().seed = 0x1234567890abcdefu + all.size();
  }
  return all;
}

TEST(SampleTokens, FollowTheRule) {
  testing::ForEachTarget([] {
    for (const Shape& shape : {Shape{1, 1}, Shape{3, 2}, Shape{2, 77},
                               Shape{2, 1025, 3}, Shape{1, 4100, 0, 1}}) {
      ExpectModel<float>(shape, 3, Samplings());
    }
    ExpectModel<BF16>({2, 1000, 5, 3}, 4, Samplings());
    ExpectModel<F16>({2, 999, 9}, 4, Samplings());
  });
}

TEST(SampleTokens, FollowTheRuleInLongRows) {
  const std::vector<Sampling> all = Samplings();
  // NOTE: on host SIMT a row of a cluster takes some tenths of a second.
  const std::vector<Sampling> few = {all[1], all[5], all[8], all.back()};
  ExpectModel<float>({1, 49152}, 3, OnSimt() ? few : all);
  ExpectModel<BF16>({1, 128256, 0, 1}, 2, few);
  if (!OnSimt()) {
    ExpectModel<float>({2, 262144 - 1, 5}, 4, few);
    ExpectModel<float>({64, 4097}, 3, few);
  }
}

// Many tokens with the same logit, and rows whose logits lie so close that
// they fall into one bin.
TEST(SampleTokens, EqualsGoByTheirIds) {
  std::vector<float> row(3000);
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(i * 7919 % 3000 / 1000);  // 0, 1, 2
  }
  row[17] = -0.0f;
  std::vector<float> close(700);
  for (size_t i = 0; i < close.size(); ++i) {
    close[i] = 1.0f + static_cast<float>(i * 37 % 100) * 0x1p-23f;
  }
  const std::vector<float> same(5000, -3.0f);
  for (const std::vector<float>& logits : {row, close, same}) {
    for (const int64_t top_k : {int64_t{0}, int64_t{1}, int64_t{5},
                                int64_t{600}, int64_t{1100}, int64_t{2500}}) {
      for (const float top_p : {1.0f, 0.7f, 0.1f}) {
        for (int32_t position = 0; position < (OnSimt() ? 2 : 8); ++position) {
          const Sampling sampling{
              .temperature = 0.9f, .top_k = top_k, .top_p = top_p, .seed = 5};
          ASSERT_EQ(Token(logits, sampling, position),
                    ModelToken(logits, sampling, 0, position))
              << "top_k " << top_k << ", top_p " << top_p;
        }
      }
    }
  }
}

TEST(SampleTokens, ValuesThatAreNotFinite) {
  const Sampling warm{.temperature = 1, .seed = 3};
  for (const Sampling& sampling :
       {Sampling{}, warm,
        Sampling{.temperature = 1, .top_k = 2, .top_p = 0.5f}}) {
    EXPECT_EQ(Token<float>({1, kNan, 5, kNan, kInf}, sampling), 1);
    EXPECT_EQ(Token<float>({1, -kInf, 5e3f, -kInf}, sampling), 2);
    EXPECT_EQ(Token<float>({1, 3e38f, kInf, -3e38f}, sampling), 2);
    EXPECT_EQ(Token<float>({-3e38f, 3e38f}, sampling), 1);
    for (const std::vector<float>& row : {std::vector<float>{kInf, 1, kInf, 1},
                                          {-kInf, -kInf, -kInf},
                                          {3e38f, 3e38f, 2.9e38f},
                                          {1e-40f, 2e-40f, 0.0f}}) {
      for (int32_t position = 0; position < 4; ++position) {
        EXPECT_EQ(Token(row, sampling, position),
                  ModelToken(row, sampling, 0, position));
      }
    }
  }
  for (const float temperature :
       {1e-45f, 1e-38f, 3e38f, std::numeric_limits<float>::denorm_min()}) {
    const Sampling sampling{.temperature = temperature, .top_p = 0.9f};
    const std::vector<float> row = {1, 2, -5, 2, 3e38f, 1e38f, 2.99e38f};
    EXPECT_EQ(Token(row, sampling), ModelToken(row, sampling, 0, 0));
  }
}

// Chi-square of tokens of one row at 20,000 positions, or fewer, against their
// probabilities in double precision.
TEST(SampleTokens, AreDistributedAsTheLogitsSay) {
  const int64_t draws = OnSimt() ? 1500 : 20000;
  std::vector<float> row;
  for (int i = 0; i < 24; ++i) {
    row.push_back(static_cast<float>(i * 11 % 24) * 0.15f);
  }
  struct Case {
    Sampling sampling;
    size_t kept;  // most likely tokens
  };
  for (const Case& c :
       {Case{{.temperature = 1, .seed = 11}, 24},
        Case{{.temperature = 0.7f, .seed = 12}, 24},
        Case{{.temperature = 1, .top_k = 10, .seed = 13}, 10},
        // exp(-0.15 * 9) = 0.26, exp(-0.15 * 10) = 0.22.
        Case{{.temperature = 1, .min_p = 0.24f, .seed = 14}, 10}}) {
    const auto rows = static_cast<size_t>(draws);
    std::vector<int32_t> positions(rows), ids(rows);
    for (size_t i = 0; i < rows; ++i) {
      positions[i] = static_cast<int32_t>(i / 100);
      ids[i] = static_cast<int32_t>(i % 100);
    }
    std::vector<int64_t> tokens(rows, -1);
    std::vector<float> all;
    for (size_t i = 0; i < rows; ++i) {
      all.insert(all.end(), row.begin(), row.end());
    }
    ASSERT_TRUE(SampleTokens({.logits = Matrix(all.data(), draws, 24),
                              .positions = Vector(positions.data(), draws),
                              .sequence_ids = Vector(ids.data(), draws),
                              .sampling = c.sampling,
                              .tokens = Vector(tokens.data(), draws)},
                             TestStream())
                    .ok());
    std::vector<double> want(24);
    std::vector<float> sorted = row;
    std::sort(sorted.rbegin(), sorted.rend());
    double total = 0;
    for (size_t i = 0; i < 24; ++i) {
      if (row[i] < sorted[c.kept - 1]) continue;
      want[i] = std::exp(double{row[i]} / double{c.sampling.temperature});
      total += want[i];
    }
    std::vector<int64_t> counts(24);
    for (const int64_t token : tokens) ++counts.at(static_cast<size_t>(token));
    double chi_square = 0;
    for (size_t i = 0; i < 24; ++i) {
      const double expected = want[i] / total * static_cast<double>(draws);
      if (expected == 0) {
        EXPECT_EQ(counts[i], 0) << i;
        continue;
      }
      const double off = static_cast<double>(counts[i]) - expected;
      chi_square += off * off / expected;
    }
    // The mean is kept - 1, the deviation sqrt(2 (kept - 1)).
    const double degrees = static_cast<double>(c.kept - 1);
    EXPECT_LT(chi_square, degrees + 4 * std::sqrt(2 * degrees)) << c.kept;
    EXPECT_GT(chi_square, degrees / 8) << c.kept;
  }
}

// The published vectors of Philox4x32-10, and halves of the bits.
TEST(SampleTokens, RandomBitsArePhilox) {
  using tokens_internal::Philox4x32;
  using tokens_internal::PhiloxWords;
  const auto expect = [](PhiloxWords counter, uint64_t key,
                         const std::array<uint32_t, 4>& want) {
    const PhiloxWords words = Philox4x32(counter, key);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(words.v[i], want[i]) << i;
  };
  expect({{0, 0, 0, 0}}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffffffffffffu, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0x299f31d0a4093822u, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  EXPECT_EQ(tokens_internal::RandomBits(0, 0, 0), 0xe169c58d6627e8d5u);
  EXPECT_NE(tokens_internal::RandomBits(0, 1, 0),
            tokens_internal::RandomBits(0, 0, 1));
  Random random(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t a = tokens_internal::RandomBits(1, i, 0);
    const uint64_t b = tokens_internal::RandomBits(2, i, 0);
    EXPECT_EQ(
        tokens_internal::MultiplyHigh(a, b),
        static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64));
  }
}

TEST(SampleTokens, SeedsSequencesAndPositionsMatter) {
  const std::vector<float> row(1000, 1.0f);
  Sampling sampling{.temperature = 1, .seed = 1};
  std::vector<int64_t> seen = {Token(row, sampling), Token(row, sampling, 1)};
  sampling.seed = 1 + (uint64_t{1} << 40);
  seen.push_back(Token(row, sampling));
  sampling.seed = std::numeric_limits<uint64_t>::max();
  seen.push_back(Token(row, sampling));
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// A row alone, and among others whose split over the device is another.
TEST(SampleTokens, ARowDoesNotDependOnTheOthers) {
  Random random(3);
  const int64_t cols = OnSimt() ? 8200 : 33000;
  const int64_t rows = OnSimt() ? 9 : 64;
  const std::vector<float> logits =
      NormalVector<float>(random, rows * cols, 2.0f);
  const std::vector<int32_t> positions(static_cast<size_t>(rows), 5);
  const Sampling sampling{
      .temperature = 1, .top_k = 300, .top_p = 0.9f, .seed = 9};
  std::vector<int64_t> together(static_cast<size_t>(rows), -1);
  ASSERT_TRUE(SampleTokens({.logits = Matrix(logits.data(), rows, cols),
                            .positions = Vector(positions.data(), rows),
                            .sampling = sampling,
                            .tokens = Vector(together.data(), rows)},
                           TestStream(4))
                  .ok());
  for (const int32_t row : {0, 1, static_cast<int32_t>(rows) - 1}) {
    int64_t token = -1;
    ASSERT_TRUE(
        SampleTokens({.logits = Matrix(logits.data() + row * cols, 1, cols),
                      .positions = Vector(positions.data(), 1),
                      .sequence_ids = Vector(&row, 1),
                      .sampling = sampling,
                      .tokens = Vector(&token, 1)},
                     TestStream(1))
            .ok());
    EXPECT_EQ(token, together[static_cast<size_t>(row)]) << row;
  }
}

TEST(SampleTokens, NothingToDo) {
  EXPECT_TRUE(SampleTokens(
                  {.logits = Matrix(static_cast<const float*>(nullptr), 0, 8),
                   .positions = Vector(static_cast<const int32_t*>(nullptr), 0),
                   .tokens = Vector(static_cast<int64_t*>(nullptr), 0)},
                  TestStream())
                  .ok());
}

TEST(SampleTokensErrors, NameTheArgument) {
  std::vector<float> logits(12);
  std::vector<int32_t> positions(3), ids(3);
  std::vector<int64_t> tokens(3);
  const SampleTokensArgs good{.logits = Matrix(logits.data(), 3, 4),
                              .positions = Vector(positions.data(), 3),
                              .sequence_ids = Vector(ids.data(), 3),
                              .tokens = Vector(tokens.data(), 3)};
  ASSERT_TRUE(SampleTokens(good, Stream::Cpu()).ok());
  const auto expect = [&](const char* text, auto&& change,
                          absl::StatusCode code =
                              absl::StatusCode::kInvalidArgument) {
    SampleTokensArgs args = good;
    change(args);
    const absl::Status status = SampleTokens(args, Stream::Cpu());
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), HasSubstr(text));
  };
  expect("logits.cols", [](auto& a) { a.logits.cols = 0; });
  expect("logits.cols",
         [](auto& a) { a.logits.cols = a.logits.row_stride = (1 << 22) + 1; });
  expect("logits", [](auto& a) { a.logits.data = nullptr; });
  expect("logits.batch", [](auto& a) {
    a.logits.batch = 3;
    a.logits.rows = 1;
    a.logits.batch_stride = 4;
  });
  expect("positions", [](auto& a) { a.positions.size = 2; });
  expect("positions", [](auto& a) { a.positions.dtype = DType::kI64; });
  expect("positions", [](auto& a) { a.positions.data = nullptr; });
  expect("sequence_ids", [](auto& a) { a.sequence_ids.size = 4; });
  expect("sequence_ids", [](auto& a) { a.sequence_ids.dtype = DType::kF32; });
  expect("tokens", [](auto& a) { a.tokens.dtype = DType::kI32; });
  expect("tokens", [](auto& a) { a.tokens.data = nullptr; });
  expect("tokens",
         [](auto& a) { a.tokens.data = const_cast<void*>(a.logits.data); });
  for (const float bad : {-1.0f, kInf, kNan}) {
    expect("temperature", [&](auto& a) { a.sampling.temperature = bad; });
  }
  for (const float bad : {-0.1f, 1.1f, kNan}) {
    expect("top_p", [&](auto& a) { a.sampling.top_p = bad; });
    expect("min_p", [&](auto& a) { a.sampling.min_p = bad; });
  }
  expect("top_k", [](auto& a) { a.sampling.top_k = -1; });
  expect(
      "supported", [](auto& a) { a.logits.dtype = DType::kF8E4M3Fn; },
      absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace lamina
