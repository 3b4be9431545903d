// The operators on a GPU's streams: two at once, twenty times, and recorded,
// with memory taken in between. What they compute is tested elsewhere; here
// the first result stands for it.

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "lamina/activation/gated_activation.h"
#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/graph.h"
#include "lamina/core/stream.h"
#include "lamina/norm/add_rms_norm.h"
#include "lamina/norm/layer_norm.h"
#include "lamina/norm/rms_norm.h"
#include "lamina/quant/quantize.h"
#include "lamina/reduce/reduce_rows.h"
#include "tests/support/random.h"
#include "tests/support/test_device.h"

namespace lamina {
namespace {

// An operator with inputs and outputs of its own.
struct Case {
  std::string name;
  std::function<absl::Status(const Stream&)> run;
  std::vector<std::vector<uint8_t>> outputs;
  // What `run` reads.
  std::vector<std::vector<BF16>> inputs;
  std::vector<float> scale = {0.05f};

  uint8_t* Output(int64_t bytes) {
    outputs.emplace_back(static_cast<size_t>(bytes));
    return outputs.back().data();
  }
  const BF16* Input(testing::Random& random, int64_t size) {
    inputs.push_back(testing::NormalVector<BF16>(random, size));
    return inputs.back().data();
  }
  void Poison() {
    for (auto& output : outputs) {
      std::memset(output.data(), 0xff, output.size());
    }
  }
};
using Cases = std::vector<std::unique_ptr<Case>>;

// Rows for a block, a cluster, loops over rows; every kind of scale.
Cases AllCases(uint64_t seed) {
  testing::Random random(seed);
  Cases cases;
  const auto add = [&](const char* name) -> Case* {
    cases.push_back(std::make_unique<Case>());
    cases.back()->name = name;
    return cases.back().get();
  };
  const auto codes = [](Case* c, int64_t rows, int64_t cols) {
    return Matrix(reinterpret_cast<F8E4M3Fn*>(c->Output(rows * cols)), rows,
                  cols);
  };
  const auto floats = [](Case* c, int64_t size) {
    return reinterpret_cast<float*>(c->Output(size * 4));
  };
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 4096}, {3, 8192}, {2, 16384}, {255, 4096}, {300, 8200}}) {
    Case* const c = add("AddRmsNorm, a scale a row");
    const RmsNormArgs base{
        .x = Matrix(c->Input(random, rows * cols), rows, cols),
        .weight = Vector(c->Input(random, cols), cols)};
    const AddRmsNormArgs args{
        .x = base.x,
        .residual = Matrix(c->Input(random, rows * cols), rows, cols),
        .residual_out = Matrix(
            reinterpret_cast<BF16*>(c->Output(rows * cols * 2)), rows, cols),
        .weight = base.weight,
        .quantized = {.codes = codes(c, rows, cols),
                      .scales = PerRow(floats(c, rows)),
                      .dynamic = true}};
    c->run = [args](const Stream& stream) { return AddRmsNorm(args, stream); };
  }
  {
    Case* const c = add("LayerNorm");
    const LayerNormArgs args{
        .x = Matrix(c->Input(random, 33 * 1001), 33, 1001),
        .y = Matrix(reinterpret_cast<BF16*>(c->Output(33 * 1001 * 2)), 33,
                    1001)};
    c->run = [args](const Stream& stream) { return LayerNorm(args, stream); };
  }
  for (const int64_t rows : {int64_t{1}, int64_t{40}, int64_t{700}}) {
    Case* const c = add("GatedActivation, a scale a block");
    const int64_t cols = 14336;
    const GatedActivationArgs args{
        .x = Matrix(c->Input(random, rows * 2 * cols), rows, 2 * cols),
        .quantized = {
            .codes = codes(c, rows, cols),
            .scales = PerBlock(floats(c, rows * cols / 128), cols, 128),
            .dynamic = true}};
    c->run = [args](const Stream& stream) {
      return GatedActivation(args, stream);
    };
  }
  for (const int64_t cols : {int64_t{4096}, int64_t{28672}}) {
    Case* const c = add("Quantize, a scale a row");
    const QuantizeArgs args{
        .x = Matrix(c->Input(random, 257 * cols), 257, cols),
        .out = {.codes = codes(c, 257, cols),
                .scales = PerRow(floats(c, 257)),
                .dynamic = true}};
    c->run = [args](const Stream& stream) { return Quantize(args, stream); };
  }
  {
    Case* const c = add("ReduceRows, arg-max");
    const ReduceRowsArgs args{
        .x = Matrix(c->Input(random, 3 * 128256), 3, 128256),
        .reduction = RowReduction::kArgMax,
        .y = Vector(reinterpret_cast<int64_t*>(c->Output(3 * 8)), 3)};
    c->run = [args](const Stream& stream) { return ReduceRows(args, stream); };
  }
  return cases;
}

class Streams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::OnCpu() || testing::OnSimt()) GTEST_SKIP() << "no GPU";
  }
  static OwnedStream NewStream() {
    return *OwnedStream::Create(testing::TestStream().device());
  }
  // The outputs that are right.
  static std::vector<std::vector<uint8_t>> Expected(Case& c) {
    c.Poison();
    EXPECT_TRUE(c.run(testing::TestStream()).ok()) << c.name;
    return c.outputs;
  }
};

TEST_F(Streams, TwoAtOnceTwentyTimes) {
  int differences[2] = {0, 0};
  const auto repeat = [](uint64_t seed, int* found) {
    Cases cases = AllCases(seed);
    std::vector<std::vector<std::vector<uint8_t>>> expected;
    for (auto& c : cases) expected.push_back(Expected(*c));
    const OwnedStream owned = NewStream();
    const Stream stream = owned.stream().WithOverlap();
    for (int i = 0; i < 20; ++i) {
      for (auto& c : cases) {
        c->Poison();
        if (!c->run(stream).ok()) ++*found;
      }
      if (!Synchronize(stream).ok()) ++*found;
      for (size_t k = 0; k < cases.size(); ++k) {
        if (cases[k]->outputs != expected[k]) ++*found;
      }
    }
  };
  std::thread other(repeat, 2, &differences[1]);
  repeat(1, &differences[0]);
  other.join();
  EXPECT_EQ(differences[0], 0);
  EXPECT_EQ(differences[1], 0);
}

TEST_F(Streams, TwoRecordingsAndMemoryInBetween) {
  const OwnedStream owned[2] = {NewStream(), NewStream()};
  Cases cases[2] = {AllCases(3), AllCases(4)};
  std::vector<std::vector<std::vector<uint8_t>>> expected[2];
  std::optional<Graph> graphs[2];
  std::vector<Buffer> between;
  for (int g = 0; g < 2; ++g) {
    for (auto& c : cases[g]) expected[g].push_back(Expected(*c));
    const Stream stream = owned[g].stream().WithOverlap();
    absl::StatusOr<Graph> graph = Graph::Capture(stream, [&] {
      absl::Status status;
      for (auto& c : cases[g]) status.Update(c->run(stream));
      return status;
    });
    ASSERT_TRUE(graph.ok()) << graph.status();
    graphs[g] = *std::move(graph);
    between.push_back(*Buffer::Allocate(stream.device(), 64 << 20));
    ASSERT_TRUE(
        EnqueueFill(between.back().data(), 0xff, 64 << 20, stream).ok());
  }
  for (int i = 0; i < 3; ++i) {
    for (auto& set : cases) {
      for (auto& c : set) c->Poison();
    }
    for (int g = 0; g < 2; ++g) {
      ASSERT_TRUE(graphs[g]->Launch(owned[g].stream()).ok());
    }
    for (const OwnedStream& stream : owned) {
      ASSERT_TRUE(Synchronize(stream.stream()).ok());
    }
    for (int g = 0; g < 2; ++g) {
      for (size_t k = 0; k < cases[g].size(); ++k) {
        EXPECT_EQ(cases[g][k]->outputs, expected[g][k]) << cases[g][k]->name;
      }
    }
  }
}

}  // namespace
}  // namespace lamina
