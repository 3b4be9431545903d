// The transformer and its decoding loop on the device at hand
// (tests/support/test_device.h), with models of two layers: what the loader
// brings to the device, logits beside the CPU's, tokens of recorded steps,
// batches of continuous lengths, too little memory.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"
#include "tests/apps/temporary_directory.h"
#include "tests/support/model_files.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

using ::lamina::testing::OnCpu;
using ::testing::HasSubstr;

// On a GPU a stream that can be recorded.
class DeviceStream {
 public:
  DeviceStream()
      : owned_(*OwnedStream::Create(testing::TestStream().device())) {}
  Stream get() const { return OnCpu() ? Stream::Cpu(2) : owned_.stream(); }

 private:
  OwnedStream owned_;
};

template <class T>
std::vector<T> Fetch(const void* from, int64_t count, const Stream& stream) {
  std::vector<T> values(static_cast<size_t>(count));
  const absl::Status status = Copy(
      values.data(), from, count * static_cast<int64_t>(sizeof(T)), stream);
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

int32_t ArgMax(const std::vector<float>& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

ModelConfig SmallModel() {
  ModelConfig config;
  config.hidden_dim = 64;
  config.num_layers = 2;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 32;
  config.ffn_dim = 96;
  config.vocab_size = 301;
  config.max_positions = 4096;
  config.epsilon = 1e-5f;
  config.rope = {.theta = 1e4, .rotary_dim = 32};
  return config;
}

TransformerOptions SmallOptions() {
  return {.weight_type = DType::kBF16,
          .activation_type = DType::kF32,
          .sequences = 3,
          .max_positions = 64,
          .max_tokens = 8,
          .max_logits = 3};
}

Transformer MakeRandom(const TransformerOptions& options,
                       InputQuantization inputs, const Stream& stream) {
  absl::StatusOr<Transformer> model =
      Transformer::Random(SmallModel(), options, inputs, 5, stream);
  EXPECT_TRUE(model.ok()) << model.status();
  return *std::move(model);
}

// Logits of the last token, without a loop.
std::vector<float> Logits(Transformer& model, const std::vector<int32_t>& ids,
                          int32_t sequence, const Stream& stream) {
  const int64_t vocab = model.config().vocab_size;
  const Buffer logits = *Buffer::Allocate(stream.device(), 4 * vocab);
  const size_t most = static_cast<size_t>(model.max_tokens());
  for (size_t begin = 0; begin < ids.size(); begin += most) {
    const size_t end = std::min(begin + most, ids.size());
    std::vector<int32_t> positions;
    for (size_t i = begin; i < end; ++i) {
      positions.push_back(static_cast<int32_t>(i));
    }
    const std::vector<int32_t> sequences(positions.size(), sequence);
    const absl::Status status = model.Forward(
        {.tokens = absl::MakeConstSpan(ids).subspan(begin, end - begin),
         .sequence_ids = sequences,
         .positions = positions,
         .logits = Matrix(logits.as<float>(), 1, vocab)},
        stream);
    EXPECT_TRUE(status.ok()) << status;
  }
  return Fetch<float>(logits.data(), vocab, stream);
}

// What each sequence goes on with, every step computed anew from its start.
std::vector<int32_t> Continue(Transformer& model, std::vector<int32_t> ids,
                              int count, const Stream& stream) {
  std::vector<int32_t> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(ArgMax(Logits(model, ids, 0, stream)));
    ids.push_back(made.back());
  }
  return made;
}

// The same by a loop, all sequences at once; by sequence.
std::vector<std::vector<int32_t>> Loop(
    Transformer& model, const std::vector<std::vector<int32_t>>& prompts,
    int count, const Stream& stream, DecodeLoopOptions options = {}) {
  options.batch = static_cast<int64_t>(prompts.size());
  absl::StatusOr<DecodeLoop> loop = DecodeLoop::Create(model, options, stream);
  EXPECT_TRUE(loop.ok()) << loop.status();
  for (size_t s = 0; s < prompts.size(); ++s) {
    const absl::Status status =
        loop->Prefill(static_cast<int64_t>(s), prompts[s]);
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_TRUE(loop->Start().ok());
  std::vector<std::vector<int32_t>> made(prompts.size());
  std::vector<int32_t> tokens(prompts.size());
  std::vector<float> logits(prompts.size() *
                            static_cast<size_t>(model.config().vocab_size));
  for (int i = 0; i < count; ++i) {
    if (!options.choose) {
      EXPECT_TRUE(loop->ReadLogits(absl::MakeSpan(logits)).ok());
      for (size_t s = 0; s < prompts.size(); ++s) {
        const auto row = logits.begin() +
                         static_cast<ptrdiff_t>(s) * model.config().vocab_size;
        tokens[s] = ArgMax({row, row + model.config().vocab_size});
      }
      EXPECT_TRUE(loop->Choose(tokens).ok());
    }
    // A step ahead where that is possible.
    if (i + 1 < count) {
      const absl::Status status = loop->Step();
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(loop->recorded(), options.record && !testing::OnSimt() &&
                                      i > 0 &&
                                      stream.device().backend != Backend::kCpu);
    }
    const absl::Status status = loop->ReadTokens(i, absl::MakeSpan(tokens));
    EXPECT_TRUE(status.ok()) << status;
    for (size_t s = 0; s < prompts.size(); ++s) made[s].push_back(tokens[s]);
  }
  EXPECT_TRUE(Synchronize(stream).ok());
  return made;
}

const std::vector<std::vector<int32_t>> kPrompts = {
    {3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {17}, {200, 300, 0, 7}};

class TransformerDevice : public ::testing::Test {
 protected:
  Stream stream() const { return stream_.get(); }

 private:
  DeviceStream stream_;
};

struct Variant {
  const char* name;
  DType weights, activations, kv;
  InputQuantization inputs = InputQuantization::kNone;
  BlockFusion fusion = {};
};
constexpr BlockFusion kFused{.residual = true, .activation = true};

class TransformerLoops : public ::testing::TestWithParam<Variant> {};

TEST_P(TransformerLoops, GiveTheTokensOfStepsFromTheStart) {
  const DeviceStream device;
  const Stream stream = device.get();
  const Variant& variant = GetParam();
  TransformerOptions options = SmallOptions();
  options.weight_type = variant.weights;
  options.activation_type = variant.activations;
  options.kv_type = variant.kv;
  options.fusion = variant.fusion;
  Transformer model = MakeRandom(options, variant.inputs, stream);
  // NOTE: on host SIMT matrix units take seconds a step.
  const bool slow = testing::OnSimt() && variant.activations != DType::kF32;
  const std::vector<std::vector<int32_t>> prompts =
      slow ? std::vector<std::vector<int32_t>>{{17}, {200, 7}} : kPrompts;
  const int count = slow ? 2 : 6;
  const auto together = Loop(model, prompts, count, stream);
  if (!slow) {
    EXPECT_NE(together[0], together[2]);
  }
  for (size_t s = 0; s < prompts.size(); ++s) {
    EXPECT_EQ(together[s], Continue(model, prompts[s], count, stream))
        << "sequence " << s;
  }
  if (slow) return;
  EXPECT_EQ(Loop(model, prompts, count, stream, {.choose = false}), together);
  EXPECT_EQ(
      Loop(model, prompts, count, stream, {.record = false, .overlap = false}),
      together);
}

INSTANTIATE_TEST_SUITE_P(
    Types, TransformerLoops,
    ::testing::Values(
        Variant{"f32", DType::kBF16, DType::kF32, DType::kBF16},
        Variant{"bf16", DType::kBF16, DType::kBF16, DType::kBF16},
        Variant{"fp8", DType::kF8E4M3Fn, DType::kBF16, DType::kF8E4M3Fn},
        Variant{"fp8_per_row", DType::kF8E4M3Fn, DType::kBF16, DType::kBF16,
                InputQuantization::kPerRow},
        Variant{"fp8_static_fused", DType::kF8E4M3Fn, DType::kBF16,
                DType::kBF16, InputQuantization::kStatic, kFused},
        Variant{"bf16_fused", DType::kBF16, DType::kBF16, DType::kBF16,
                InputQuantization::kNone, kFused}),
    [](const auto& test) { return test.param.name; });

// What the device samples is what SampleTokens gives for the logits that the
// caller reads; the tokens of a sequence depend on its place in the batch, the
// seed and its own past.
TEST_F(TransformerDevice, SampledTokensAreThoseOfTheLogits) {
  Transformer model =
      MakeRandom(SmallOptions(), InputQuantization::kNone, stream());
  const int64_t vocab = model.config().vocab_size;
  constexpr int kCount = 5;
  for (const Sampling& sampling :
       {Sampling{.temperature = 1, .seed = 3},
        Sampling{.temperature = 0.8f, .top_k = 20, .top_p = 0.9f, .seed = 4}}) {
    const auto sampled =
        Loop(model, kPrompts, kCount, stream(), {.sampling = sampling});
    EXPECT_EQ(Loop(model, kPrompts, kCount, stream(),
                   {.sampling = sampling, .record = false, .overlap = false}),
              sampled);
    EXPECT_EQ(
        Loop(model, {kPrompts[0]}, kCount, stream(), {.sampling = sampling})[0],
        sampled[0]);
    for (size_t s = 0; s < kPrompts.size(); ++s) {
      std::vector<int32_t> ids = kPrompts[s];
      for (int i = 0; i < kCount; ++i) {
        const std::vector<float> logits = Logits(model, ids, 0, stream());
        const auto position = static_cast<int32_t>(ids.size()) - 1;
        const auto sequence = static_cast<int32_t>(s);
        int64_t token = -1;
        ASSERT_TRUE(SampleTokens({.logits = Matrix(logits.data(), 1, vocab),
                                  .positions = Vector(&position, 1),
                                  .sequence_ids = Vector(&sequence, 1),
                                  .sampling = sampling,
                                  .tokens = Vector(&token, 1)},
                                 Stream::Cpu(1))
                        .ok());
        ids.push_back(static_cast<int32_t>(token));
        EXPECT_EQ(sampled[s][static_cast<size_t>(i)], token)
            << "sequence " << s << ", choice " << i;
      }
    }
    Sampling other = sampling;
    ++other.seed;
    EXPECT_NE(Loop(model, kPrompts, kCount, stream(), {.sampling = other}),
              sampled);
  }
  absl::StatusOr<DecodeLoop> loop =
      DecodeLoop::Create(model, {.sampling = {.temperature = -1}}, stream());
  ASSERT_TRUE(loop.ok());
  ASSERT_TRUE(loop->Prefill(0, kPrompts[0]).ok());
  EXPECT_THAT(std::string(loop->Start().message()),
              HasSubstr("SampleTokens: temperature: given -1"));
  EXPECT_TRUE(Synchronize(stream()).ok());
}

TEST_F(TransformerDevice, FusedStagesGiveTheSameTokensInF32) {
  TransformerOptions options = SmallOptions();
  Transformer plain = MakeRandom(options, InputQuantization::kNone, stream());
  options.fusion = {.residual = true, .activation = true};
  Transformer fused = MakeRandom(options, InputQuantization::kNone, stream());
  EXPECT_EQ(Logits(fused, kPrompts[0], 1, stream()),
            Logits(plain, kPrompts[0], 1, stream()));
}

TEST_F(TransformerDevice, LogitsAreNearTheCpus) {
  const TransformerOptions options = SmallOptions();
  Transformer here = MakeRandom(options, InputQuantization::kNone, stream());
  Transformer cpu =
      MakeRandom(options, InputQuantization::kNone, Stream::Cpu(2));
  const std::vector<float> got = Logits(here, kPrompts[0], 2, stream());
  const std::vector<float> want = Logits(cpu, kPrompts[0], 2, Stream::Cpu(2));
  float most = 0;
  for (const float value : want) most = std::max(most, std::abs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-3f * most) << i;
  }
}

// Another recording is made when positions pass a bound.
TEST_F(TransformerDevice, RecordingsPassTheirBounds) {
  EXPECT_EQ(PositionBound(0, 4096), 1024);
  EXPECT_EQ(PositionBound(1023, 4096), 1024);
  EXPECT_EQ(PositionBound(1024, 4096), 2048);
  EXPECT_EQ(PositionBound(1024, 1500), 1500);
  EXPECT_EQ(PositionBound(9000, 1 << 20), 10240);
  EXPECT_EQ(PositionBound(16384, 1 << 20), 20480);

  TransformerOptions options = SmallOptions();
  options.sequences = options.max_logits = 1;
  options.max_positions = 1200;
  Transformer model = MakeRandom(options, InputQuantization::kNone, stream());
  for (int64_t layer = 0; layer < 2; ++layer) {
    const KvCacheView cache = model.layer_cache(layer);
    for (void* const half : {cache.k, cache.v}) {
      ASSERT_TRUE(transformer_internal::FillRandom(
                      half, cache.dtype, 1200 * 64, 1.0f,
                      static_cast<uint64_t>(layer), stream())
                      .ok());
    }
  }
  std::vector<std::vector<int32_t>> runs;
  std::vector<std::vector<float>> logits_of_steps;
  for (const bool record : {true, false}) {
    absl::StatusOr<DecodeLoop> loop =
        DecodeLoop::Create(model, {.record = record}, stream());
    ASSERT_TRUE(loop.ok()) << loop.status();
    ASSERT_TRUE(loop->Assume(0, 1021).ok());
    ASSERT_TRUE(loop->Start().ok());
    std::vector<int32_t> made;
    for (int i = 0; i < 7; ++i) {
      int32_t token = -1;
      ASSERT_TRUE(loop->Step().ok());
      ASSERT_TRUE(loop->ReadTokens(i + 1, absl::MakeSpan(&token, 1)).ok());
      made.push_back(token);
      logits_of_steps.emplace_back(301);
      ASSERT_TRUE(
          loop->ReadLogits(absl::MakeSpan(logits_of_steps.back())).ok());
    }
    runs.push_back(made);
  }
  EXPECT_EQ(runs[0], runs[1]);
  // Step by step, each with its own position as the largest.
  const Buffer logits = *Buffer::Allocate(stream().device(), 4 * 301);
  int32_t token = 0;  // the first of equal logits
  for (int32_t i = 0; i < 7; ++i) {
    const int32_t position = 1021 + i;
    ASSERT_TRUE(model
                    .Forward({.tokens = {&token, 1},
                              .positions = {&position, 1},
                              .logits = Matrix(logits.as<float>(), 1, 301)},
                             stream())
                    .ok());
    const std::vector<float> want = Fetch<float>(logits.data(), 301, stream());
    EXPECT_EQ(logits_of_steps[static_cast<size_t>(i)], want) << position;
    token = ArgMax(want);
    EXPECT_EQ(runs[0][static_cast<size_t>(i)], token) << position;
  }
}

TEST_F(TransformerDevice, WhatIsLoadedIsWhatTheCpuLoads) {
  const testing::TemporaryDirectory folder;
  folder.Write("tiny.gguf", testing::TinyGguf().Build().bytes);
  const absl::StatusOr<Checkpoint> file =
      Checkpoint::Open(folder / "tiny.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  for (const DType weights : {DType::kBF16, DType::kF8E4M3Fn}) {
    SCOPED_TRACE(Name(weights));
    const TransformerOptions options{.weight_type = weights,
                                     .activation_type = DType::kF32,
                                     .max_positions = 16,
                                     .max_tokens = 4};
    auto here = Transformer::Load(*file, options, stream());
    auto cpu = Transformer::Load(*file, options, Stream::Cpu(1));
    ASSERT_TRUE(here.ok()) << here.status();
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    for (int64_t layer = 0; layer < 2; ++layer) {
      const DecoderBlockWeights& a = here->layer(layer);
      const DecoderBlockWeights& b = cpu->layer(layer);
      const LinearWeights* const pairs[][2] = {{&a.qkv, &b.qkv},
                                               {&a.output, &b.output},
                                               {&a.gate_up, &b.gate_up},
                                               {&a.down, &b.down}};
      for (const auto& [mine, theirs] : pairs) {
        ASSERT_EQ(mine->w.rows, theirs->w.rows);
        const int64_t bytes = BytesFor(weights, mine->w.rows * mine->w.cols);
        EXPECT_EQ(Fetch<uint8_t>(mine->w.data, bytes, stream()),
                  Fetch<uint8_t>(theirs->w.data, bytes, Stream::Cpu()));
        if (weights == DType::kBF16) continue;
        EXPECT_EQ(
            Fetch<float>(mine->w_scales.data, mine->w.rows, stream()),
            Fetch<float>(theirs->w_scales.data, mine->w.rows, Stream::Cpu()));
      }
      ASSERT_EQ(a.ffn_norm.dtype, DType::kF32);
      EXPECT_EQ(Fetch<float>(a.ffn_norm.data, a.ffn_norm.size, stream()),
                Fetch<float>(b.ffn_norm.data, a.ffn_norm.size, Stream::Cpu()));
    }
    const std::vector<int32_t> prompt = {1, 2, 3, 39, 5};
    EXPECT_EQ(Loop(*here, {prompt}, 8, stream()),
              Loop(*cpu, {prompt}, 8, Stream::Cpu(1)));
  }
}

TEST_F(TransformerDevice, TooLittleMemoryIsSaidBeforeItIsTaken) {
  TransformerOptions options = SmallOptions();
  options.sequences = 1 << 20;
  options.max_positions = 4096;
  const absl::StatusOr<Transformer> model = Transformer::Random(
      SmallModel(), options, InputQuantization::kNone, 1, stream());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(model.status().message()),
              HasSubstr("too little memory: the model needs "));
}

// Nothing outside the model's memory is touched, and nobody goes on from a
// prompt that was refused.
TEST_F(TransformerDevice, ForwardChecksWhatItCanSee) {
  Transformer model =
      MakeRandom(SmallOptions(), InputQuantization::kNone, stream());
  const int32_t token = 7;
  const int32_t position = 0;
  const int32_t sequence = 3;  // of three
  absl::Status status = model.Forward({.tokens = {&token, 1},
                                       .sequence_ids = {&sequence, 1},
                                       .positions = {&position, 1}},
                                      stream());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("sequence_ids: given 3"));
  status = model.ForwardOnDevice({.tokens = 9}, stream());
  EXPECT_THAT(status.message(), HasSubstr("tokens: given 9"));
  status =
      model.ForwardOnDevice({.tokens = 1, .logits = {.rows = 2}}, stream());
  EXPECT_THAT(status.message(), HasSubstr("logits.rows: given 2"));

  const std::vector<std::vector<int32_t>> want =
      Loop(model, {{1, 2, 3}}, 4, stream());
  absl::StatusOr<DecodeLoop> loop =
      DecodeLoop::Create(model, {.batch = 1}, stream());
  ASSERT_TRUE(loop.ok()) << loop.status();
  EXPECT_FALSE(loop->Prefill(0, std::vector<int32_t>{1, 301}).ok());
  ASSERT_TRUE(loop->Prefill(0, std::vector<int32_t>{1, 2, 3}).ok());
  ASSERT_TRUE(loop->Start().ok());
  EXPECT_FALSE(loop->Assume(0, 5).ok());
  std::vector<int32_t> tokens(1);
  for (int i = 0; i < 4; ++i) {
    if (i < 3) {
      ASSERT_TRUE(loop->Step().ok());
    }
    ASSERT_TRUE(loop->ReadTokens(i, absl::MakeSpan(tokens)).ok());
    EXPECT_EQ(tokens[0], want[0][static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(Synchronize(stream()).ok());
}

TEST_F(TransformerDevice, LoopsSayWhatIsWrong) {
  TransformerOptions options = SmallOptions();
  options.max_positions = 4;
  Transformer model = MakeRandom(options, InputQuantization::kNone, stream());
  EXPECT_THAT(
      std::string(
          DecodeLoop::Create(model, {.batch = 4}, stream()).status().message()),
      HasSubstr("DecodeLoop: batch: given 4, want in [1, 3]"));
  absl::StatusOr<DecodeLoop> loop =
      DecodeLoop::Create(model, {.batch = 1}, stream());
  ASSERT_TRUE(loop.ok());
  const std::vector<int32_t> prompt = {1, 2}, bad = {301};
  EXPECT_EQ(loop->Start().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop->Step().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(loop->Prefill(1, prompt).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loop->Prefill(0, bad).message()),
              HasSubstr("Transformer: tokens: given 301"));
  ASSERT_TRUE(loop->Assume(0, 1).ok());  // forgets the failed part
  ASSERT_TRUE(loop->Start().ok());
  EXPECT_EQ(loop->Choose({1}).code(), absl::StatusCode::kFailedPrecondition);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(loop->Step().ok()) << i;
  EXPECT_FALSE(loop->has_room());
  EXPECT_EQ(loop->Step().code(), absl::StatusCode::kOutOfRange);
  int32_t token = 0;
  EXPECT_TRUE(loop->ReadTokens(3, absl::MakeSpan(&token, 1)).ok());
  EXPECT_EQ(loop->ReadTokens(4, absl::MakeSpan(&token, 1)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Synchronize(stream()).ok());
}

}  // namespace
}  // namespace lamina
