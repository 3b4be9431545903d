// The decoder block against a plain double-precision block, and its contract:
// prefill equals decoding token by token, bit for bit; errors; concurrency.

#include "lamina/decoder_block/decoder_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/quant/quantize.h"
#include "tests/support/random.h"

namespace lamina {
namespace {

using ::lamina::testing::NormalVector;
using ::lamina::testing::Random;
using ::testing::HasSubstr;

// Odd sizes: no dimension is a multiple of a vector.
DecoderBlockConfig SmallConfig(DType weight_type = DType::kBF16) {
  DecoderBlockConfig config;
  config.hidden_dim = 78;
  config.ffn_dim = 101;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 14;
  config.weight_type = weight_type;
  config.kv_type = DType::kF32;
  config.max_tokens = 8;
  config.max_positions = 16;
  config.num_threads = 2;
  return config;
}

// Weights and cache of one block, with the memory behind them.
class TestBlock {
 public:
  explicit TestBlock(const DecoderBlockConfig& config, uint64_t seed = 1)
      : config_(config) {
    Random random(seed);
    attention_norm_ = NormalVector<float>(random, config.hidden_dim, 0.1f, 1);
    ffn_norm_ = NormalVector<float>(random, config.hidden_dim, 0.1f, 1);
    weights.attention_norm = Vector(
        static_cast<const float*>(attention_norm_.data()), config.hidden_dim);
    weights.ffn_norm =
        Vector(static_cast<const float*>(ffn_norm_.data()), config.hidden_dim);
    Fill(weights.qkv, 0, config.qkv_dim(), config.hidden_dim, random);
    Fill(weights.output, 1, config.hidden_dim, config.q_dim(), random);
    Fill(weights.gate_up, 2, 2 * config.ffn_dim, config.hidden_dim, random);
    Fill(weights.down, 3, config.hidden_dim, config.ffn_dim, random);
    table_.resize(static_cast<size_t>(config.max_positions * config.head_dim));
    EXPECT_TRUE(FillRopeTable({.rotary_dim = config.head_dim},
                              Matrix(table_.data(), config.max_positions,
                                     config.head_dim))
                    .ok());
    const auto plan = DecoderBlock::Plan(config, GetDeviceInfo(Device{}));
    EXPECT_TRUE(plan.ok()) << plan.status();
    block.emplace(*plan);
  }

  KvCacheView NewCache() {
    const size_t elements =
        static_cast<size_t>(2 * config_.max_positions * config_.kv_dim());
    caches_.push_back(std::vector<float>(elements, NAN));
    caches_.push_back(std::vector<float>(elements, NAN));
    return DenseKvCache(caches_[caches_.size() - 2].data(),
                        caches_.back().data(), config_.kv_type, 2,
                        config_.max_positions, config_.kv_heads,
                        config_.head_dim);
  }

  // Runs tokens at positions of one sequence; residual is updated and delta
  // returned.
  std::vector<float> Run(KvCacheView cache, std::vector<float>& residual,
                         int32_t first_position, int threads = 2) const {
    const int64_t tokens =
        static_cast<int64_t>(residual.size()) / config_.hidden_dim;
    std::vector<float> delta(residual.size(), NAN);
    // Poisoned: no operator may rely on what the workspace holds.
    auto workspace = Buffer::Allocate(Device{}, block->workspace_bytes());
    std::memset(workspace->data(), 0xff,
                static_cast<size_t>(workspace->bytes()));
    std::vector<int32_t> positions, sequences;
    for (int64_t t = 0; t < tokens; ++t) {
      positions.push_back(first_position + static_cast<int32_t>(t));
      sequences.push_back(1);
    }
    DecoderBlockArgs args;
    args.weights = &weights;
    args.cache = cache;
    args.rope_table = RopeTable();
    args.sequence_ids = sequences.data();
    args.positions = positions.data();
    args.max_position = positions.back();
    args.residual = Matrix(residual.data(), tokens, config_.hidden_dim);
    args.delta = Matrix(delta.data(), tokens, config_.hidden_dim);
    args.delta_is_zero = true;
    args.workspace = workspace->data();
    args.workspace_bytes = workspace->bytes();
    const absl::Status status = block->Decode(args, Stream::Cpu(threads));
    EXPECT_TRUE(status.ok()) << status;
    return delta;
  }

  ConstMatrixView RopeTable() const {
    return Matrix(table_.data(), config_.max_positions, config_.head_dim);
  }

  // Element (row, col) of a projection, dequantised.
  static double Weight(const LinearWeights& linear, int64_t row, int64_t col) {
    if (linear.w.dtype == DType::kBF16) {
      return ToFloat(linear.w.Row<BF16>(row)[col]);
    }
    const float scale = static_cast<const float*>(
        linear.w_scales.data)[linear.w_scales.Index(row, col)];
    return double{ToFloat(linear.w.Row<F8E4M3Fn>(row)[col])} * scale;
  }

  DecoderBlockWeights weights;
  std::optional<DecoderBlock> block;

 private:
  void Fill(LinearWeights& linear, size_t index, int64_t n, int64_t k,
            Random& random) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(k));
    bf16_[index] = NormalVector<BF16>(random, n * k, deviation);
    linear.w = Matrix(static_cast<const BF16*>(bf16_[index].data()), n, k);
    if (config_.weight_type == DType::kBF16) return;
    fp8_[index].resize(static_cast<size_t>(n * k));
    scales_[index].resize(static_cast<size_t>(n));
    QuantizedOutput out;
    out.codes = Matrix(fp8_[index].data(), n, k);
    out.scales = PerRow(scales_[index].data());
    out.dynamic = true;
    ASSERT_TRUE(Quantize({.x = linear.w, .out = out}, Stream::Cpu()).ok());
    linear.w = out.codes;
    linear.w_scales = PerRow(static_cast<const float*>(scales_[index].data()));
    linear.input_scale = &input_scale_;
  }

  DecoderBlockConfig config_;
  float input_scale_ = 0.02f;
  std::vector<float> attention_norm_, ffn_norm_, table_;
  std::vector<BF16> bf16_[4];
  std::vector<F8E4M3Fn> fp8_[4];
  std::vector<float> scales_[4];
  std::vector<std::vector<float>> caches_;
};

using Row = std::vector<double>;

// What one block does to the rows of one sequence, in double precision.
std::vector<Row> ReferenceBlock(const DecoderBlockConfig& config,
                                const DecoderBlockWeights& weights,
                                std::vector<Row>& residual) {
  const auto norm = [&](const Row& x, ConstVectorView weight) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + config.epsilon);
    Row y(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      y[i] = x[i] * scale * double{static_cast<const float*>(weight.data)[i]};
    }
    return y;
  };
  const auto project = [](const LinearWeights& linear, const Row& x) {
    Row y(static_cast<size_t>(linear.w.rows));
    for (int64_t n = 0; n < linear.w.rows; ++n) {
      for (int64_t k = 0; k < linear.w.cols; ++k) {
        y[static_cast<size_t>(n)] +=
            TestBlock::Weight(linear, n, k) * x[static_cast<size_t>(k)];
      }
    }
    return y;
  };
  const int64_t dim = config.head_dim;
  const auto rotate = [&](Row& qkv, int64_t head, int64_t position) {
    for (int64_t i = 0; i < dim / 2; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(10000.0, -2.0 * static_cast<double>(i) /
                                                 static_cast<double>(dim));
      double& a = qkv[static_cast<size_t>(head * dim + i)];
      double& b = qkv[static_cast<size_t>(head * dim + i + dim / 2)];
      const double rotated = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = rotated;
    }
  };
  std::vector<Row> qkv, deltas;
  for (size_t t = 0; t < residual.size(); ++t) {
    qkv.push_back(
        project(weights.qkv, norm(residual[t], weights.attention_norm)));
    for (int64_t h = 0; h < config.heads + config.kv_heads; ++h) {
      rotate(qkv[t], h, static_cast<int64_t>(t));
    }
    Row attended(static_cast<size_t>(config.q_dim()));
    for (int64_t h = 0; h < config.heads; ++h) {
      const int64_t kv_head = h / (config.heads / config.kv_heads);
      Row scores;
      for (size_t p = 0; p <= t; ++p) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          dot +=
              qkv[t][static_cast<size_t>(h * dim + d)] *
              qkv[p][static_cast<size_t>(config.q_dim() + kv_head * dim + d)];
        }
        scores.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
      }
      double total = 0;
      for (const double score : scores) total += score;
      for (size_t p = 0; p <= t; ++p) {
        for (int64_t d = 0; d < dim; ++d) {
          attended[static_cast<size_t>(h * dim + d)] +=
              scores[p] / total *
              qkv[p][static_cast<size_t>(config.q_dim() + config.kv_dim() +
                                         kv_head * dim + d)];
        }
      }
    }
    const Row output = project(weights.output, attended);
    for (size_t i = 0; i < output.size(); ++i) residual[t][i] += output[i];
    const Row gate_up =
        project(weights.gate_up, norm(residual[t], weights.ffn_norm));
    Row activated(static_cast<size_t>(config.ffn_dim));
    for (size_t i = 0; i < activated.size(); ++i) {
      const double gate = gate_up[i];
      activated[i] = gate / (1 + std::exp(-gate)) *
                     gate_up[i + static_cast<size_t>(config.ffn_dim)];
    }
    deltas.push_back(project(weights.down, activated));
  }
  return deltas;
}

std::vector<float> RandomResidual(int64_t tokens, int64_t hidden) {
  Random random(9);
  return NormalVector<float>(random, tokens * hidden);
}

class DecoderBlockReference
    : public ::testing::TestWithParam<std::pair<DType, InputQuantization>> {};

TEST_P(DecoderBlockReference, MatchesDoublePrecision) {
  const auto [weight_type, inputs] = GetParam();
  DecoderBlockConfig config = SmallConfig(weight_type);
  config.input_quantization = inputs;
  TestBlock test(config);
  std::vector<float> residual = RandomResidual(7, config.hidden_dim);
  std::vector<Row> want_residual(7);
  for (size_t i = 0; i < residual.size(); ++i) {
    want_residual[i / static_cast<size_t>(config.hidden_dim)].push_back(
        residual[i]);
  }
  const std::vector<Row> want =
      ReferenceBlock(config, test.weights, want_residual);
  const std::vector<float> delta = test.Run(test.NewCache(), residual, 0);
  // fp32 throughout, or FP8 inputs with a relative step of 2^-4.
  const double tolerance = inputs == InputQuantization::kNone ? 2e-5 : 0.25;
  for (size_t i = 0; i < delta.size(); ++i) {
    const size_t row = i / static_cast<size_t>(config.hidden_dim);
    const size_t col = i % static_cast<size_t>(config.hidden_dim);
    ASSERT_NEAR(delta[i], want[row][col], tolerance) << i;
    ASSERT_NEAR(residual[i], want_residual[row][col], tolerance) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    WeightsAndInputs, DecoderBlockReference,
    ::testing::Values(std::pair(DType::kBF16, InputQuantization::kNone),
                      std::pair(DType::kF8E4M3Fn, InputQuantization::kNone),
                      std::pair(DType::kF8E4M3Fn, InputQuantization::kPerRow),
                      std::pair(DType::kF8E4M3Fn, InputQuantization::kStatic)));

TEST(DecoderBlock, PrefillEqualsDecodingTokenByTokenBitForBit) {
  for (const InputQuantization inputs :
       {InputQuantization::kNone, InputQuantization::kPerRow}) {
    DecoderBlockConfig config = SmallConfig(DType::kF8E4M3Fn);
    config.input_quantization = inputs;
    TestBlock test(config);
    const size_t hidden = static_cast<size_t>(config.hidden_dim);
    std::vector<float> all = RandomResidual(8, config.hidden_dim);
    const std::vector<float> start = all;
    const std::vector<float> delta = test.Run(test.NewCache(), all, 0);
    const KvCacheView cache = test.NewCache();
    for (size_t t = 0; t < 8; ++t) {
      std::vector<float> one(
          start.begin() + static_cast<ptrdiff_t>(t * hidden),
          start.begin() + static_cast<ptrdiff_t>((t + 1) * hidden));
      // Any number of threads.
      const std::vector<float> one_delta =
          test.Run(cache, one, static_cast<int32_t>(t), t % 2 == 0 ? 1 : 2);
      ASSERT_EQ(std::memcmp(one_delta.data(), &delta[t * hidden],
                            hidden * sizeof(float)),
                0)
          << "token " << t;
      ASSERT_EQ(
          std::memcmp(one.data(), &all[t * hidden], hidden * sizeof(float)), 0)
          << "token " << t;
    }
  }
}

std::vector<float> Sum(const std::vector<float>& a,
                       const std::vector<float>& b) {
  std::vector<float> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
  return sum;
}

TEST(DecoderBlock, FusedStagesGiveTheSameBitsInF32) {
  for (const auto& [weights, inputs] :
       {std::pair(DType::kBF16, InputQuantization::kNone),
        std::pair(DType::kF8E4M3Fn, InputQuantization::kPerRow),
        std::pair(DType::kF8E4M3Fn, InputQuantization::kStatic)}) {
    DecoderBlockConfig config = SmallConfig(weights);
    config.input_quantization = inputs;
    TestBlock plain(config);
    std::vector<float> residual = RandomResidual(5, config.hidden_dim);
    const std::vector<float> start = residual;
    const std::vector<float> delta = plain.Run(plain.NewCache(), residual, 0);
    const std::vector<float> want = Sum(residual, delta);
    for (const BlockFusion fusion :
         {BlockFusion{.residual = true}, BlockFusion{.activation = true},
          BlockFusion{.residual = true, .activation = true}}) {
      SCOPED_TRACE(::testing::Message()
                   << Name(weights) << " residual " << fusion.residual
                   << " activation " << fusion.activation);
      config.fusion = fusion;
      TestBlock fused(config);
      std::vector<float> state = start;
      const std::vector<float> left = fused.Run(fused.NewCache(), state, 0);
      if (fusion.residual) {
        for (const float value : left) ASSERT_TRUE(std::isnan(value));
        EXPECT_EQ(state, want);
      } else {
        EXPECT_EQ(state, residual);
        EXPECT_EQ(left, delta);
      }
    }
  }
}

TEST(DecoderBlock, StagesOneByOneAreTheBlock) {
  const DecoderBlockConfig config = SmallConfig();
  TestBlock test(config);
  std::vector<float> residual = RandomResidual(1, config.hidden_dim);
  std::vector<float> state = residual;
  const std::vector<float> want = test.Run(test.NewCache(), residual, 0);
  std::vector<float> delta(state.size());
  const auto workspace =
      Buffer::Allocate(Device{}, test.block->workspace_bytes());
  const int32_t position = 0, sequence = 1;
  DecoderBlockArgs args;
  args.weights = &test.weights;
  args.cache = test.NewCache();
  args.rope_table = test.RopeTable();
  args.sequence_ids = &sequence;
  args.positions = &position;
  args.residual = Matrix(state.data(), 1, config.hidden_dim);
  args.delta = Matrix(delta.data(), 1, config.hidden_dim);
  args.delta_is_zero = true;
  args.workspace = workspace->data();
  args.workspace_bytes = workspace->bytes();
  for (int i = 0; i < kNumBlockStages; ++i) {
    args.first_stage = args.last_stage = static_cast<BlockStage>(i);
    ASSERT_TRUE(test.block->Decode(args, Stream::Cpu(1)).ok());
  }
  EXPECT_EQ(state, residual);
  EXPECT_EQ(delta, want);
}

TEST(DecoderBlock, TwoHostThreadsAtOnceGiveTheSameBits) {
  const DecoderBlockConfig config = SmallConfig();
  TestBlock test(config);
  const std::vector<float> start = RandomResidual(6, config.hidden_dim);
  std::vector<float> residual = start;
  const std::vector<float> want = test.Run(test.NewCache(), residual, 0);
  const KvCacheView caches[2] = {test.NewCache(), test.NewCache()};
  bool same[2] = {true, true};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<float> mine = start;
        if (test.Run(caches[i], mine, 0) != want) same[i] = false;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(same[0]);
  EXPECT_TRUE(same[1]);
}

TEST(DecoderBlock, RecordsAnEventAroundEachStage) {
  const DecoderBlockConfig config = SmallConfig();
  TestBlock test(config);
  std::vector<float> residual = RandomResidual(1, config.hidden_dim);
  std::vector<float> delta(residual.size());
  const auto workspace =
      Buffer::Allocate(Device{}, test.block->workspace_bytes());
  const int32_t position = 0;
  std::vector<Event> events(kNumBlockStages + 1);
  std::vector<BlockStage> observed;
  DecoderBlockArgs args;
  args.weights = &test.weights;
  args.cache = test.NewCache();
  args.rope_table = test.RopeTable();
  args.positions = &position;
  args.residual = Matrix(residual.data(), 1, config.hidden_dim);
  args.delta = Matrix(delta.data(), 1, config.hidden_dim);
  args.delta_is_zero = true;
  args.workspace = workspace->data();
  args.workspace_bytes = workspace->bytes();
  args.events = absl::MakeSpan(events);
  args.observe_input = [&](BlockStage stage, const ConstMatrixView& input) {
    observed.push_back(stage);
    EXPECT_EQ(input.rows, 1);
  };
  ASSERT_TRUE(test.block->Decode(args, Stream::Cpu(1)).ok());
  for (int i = 0; i < kNumBlockStages; ++i) {
    const auto us = Event::ElapsedMicros(events[i], events[i + 1]);
    ASSERT_TRUE(us.ok());
    EXPECT_GE(*us, 0);
  }
  EXPECT_THAT(observed,
              ::testing::ElementsAre(BlockStage::kQkv, BlockStage::kOutput,
                                     BlockStage::kGateUp, BlockStage::kDown));
}

TEST(DecoderBlock, CountsTheBytesOfEveryStage) {
  DecoderBlockConfig config = SmallConfig();
  const TestBlock test(config);
  const auto bytes = test.block->StageBytes(1, 10);
  // qkv: bf16 weights, fp32 input and output.
  EXPECT_EQ(bytes[static_cast<size_t>(BlockStage::kQkv)],
            2 * config.qkv_dim() * config.hidden_dim +
                4 * (config.hidden_dim + config.qkv_dim()));
  EXPECT_EQ(bytes[static_cast<size_t>(BlockStage::kAttention)],
            8 * config.q_dim() + 2 * 10 * 4 * config.kv_dim());
}

TEST(DecoderBlockErrors, NameTheArgumentAndWhatIsWanted) {
  const DecoderBlockConfig config = SmallConfig();
  TestBlock test(config);
  std::vector<float> residual = RandomResidual(2, config.hidden_dim);
  std::vector<float> delta(residual.size());
  const auto workspace =
      Buffer::Allocate(Device{}, test.block->workspace_bytes());
  const std::vector<int32_t> positions = {0, 0};
  DecoderBlockArgs good;
  good.weights = &test.weights;
  good.cache = test.NewCache();
  good.rope_table = test.RopeTable();
  good.positions = positions.data();
  good.residual = Matrix(residual.data(), 2, config.hidden_dim);
  good.delta = Matrix(delta.data(), 2, config.hidden_dim);
  good.delta_is_zero = true;
  good.workspace = workspace->data();
  good.workspace_bytes = workspace->bytes();
  const Stream stream = Stream::Cpu(1);
  ASSERT_TRUE(test.block->Decode(good, stream).ok());

  const auto expect = [&](auto change, const std::string& message) {
    DecoderBlockArgs bad = good;
    change(bad);
    const absl::Status status = test.block->Decode(bad, stream);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  };
  expect([](auto& a) { a.workspace_bytes -= 1; },
         "DecoderBlock: workspace_bytes: given ");
  expect([](auto& a) { a.workspace = nullptr; },
         "DecoderBlock: workspace_bytes: given 0, want >= ");
  expect([](auto& a) { a.weights = nullptr; }, "DecoderBlock: weights");
  expect([](auto& a) { a.delta.rows = 1; }, "DecoderBlock: delta.rows");
  expect([](auto& a) { a.residual.dtype = DType::kBF16; },
         "DecoderBlock: residual.dtype: given bf16, want f32");
  expect([](auto& a) { a.max_position = 16; },
         "DecoderBlock: max_position: given 16, want in [0, 16)");
  expect([](auto& a) { a.positions = nullptr; }, "rope_append");
  DecoderBlockWeights wrong = test.weights;
  wrong.down.w.cols -= 1;
  expect([&](auto& a) { a.weights = &wrong; },
         "DecoderBlock: weights.down.cols: given 100, want 101");
  std::vector<Event> few(3);
  expect([&](auto& a) { a.events = absl::MakeSpan(few); },
         "DecoderBlock: events: given 3, want none or 10");

  DecoderBlockArgs empty = good;
  empty.residual.rows = empty.delta.rows = 0;
  EXPECT_TRUE(test.block->Decode(empty, stream).ok());
}

TEST(DecoderBlockErrors, PlanChecksTheConfiguration) {
  const auto message = [](auto change) {
    DecoderBlockConfig config = SmallConfig();
    change(config);
    const auto plan = DecoderBlock::Plan(config, GetDeviceInfo(Device{}));
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(plan.status().message());
  };
  EXPECT_THAT(message([](auto& c) { c.heads = 5; }),
              HasSubstr("heads: given 5, want a multiple of kv_heads (2)"));
  EXPECT_THAT(message([](auto& c) { c.hidden_dim = 0; }),
              HasSubstr("hidden_dim: given 0"));
  EXPECT_THAT(message([](auto& c) { c.max_tokens = int64_t{1} << 40; }),
              HasSubstr("max_tokens"));
  EXPECT_THAT(message([](auto& c) { c.activation_type = DType::kI8; }),
              HasSubstr("activation_type: given i8, want f32, f16 or bf16"));
}

}  // namespace
}  // namespace lamina
