// Checkpoint::Open on files and directories.

#include "lamina/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/float16.h"
#include "tests/apps/temporary_directory.h"
#include "tests/support/model_files.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;
using testing::SafetensorsImage;
using testing::TemporaryDirectory;

std::string Message(const std::string& path, absl::StatusCode code) {
  const auto checkpoint = Checkpoint::Open(path);
  EXPECT_FALSE(checkpoint.ok()) << path;
  if (checkpoint.ok()) return "";
  EXPECT_EQ(checkpoint.status().code(), code) << checkpoint.status();
  return std::string(checkpoint.status().message());
}

TEST(Checkpoint, OpensGgufWhateverItsName) {
  const TemporaryDirectory directory;
  directory.Write("model", testing::TinyGguf().Build().bytes);
  auto opened = Checkpoint::Open(directory / "model");
  ASSERT_TRUE(opened.ok()) << opened.status();
  // Views outlive a move.
  const auto tensor = opened->Tensor("model.norm.weight");
  ASSERT_TRUE(tensor.ok());
  Checkpoint moved = *std::move(opened);
  EXPECT_EQ((*tensor)->shape, std::vector<int64_t>{32});
  float values[32];
  ASSERT_TRUE(ReadRows(**tensor, 0, Matrix(values, 1, 32), Stream::Cpu()).ok());
  EXPECT_EQ(values[31], 1.0f);

  EXPECT_EQ(moved.path(), directory / "model");
  EXPECT_EQ(static_cast<uintmax_t>(moved.file_bytes()),
            std::filesystem::file_size(directory / "model"));
  ASSERT_NE(moved.gguf_tokenizer(), nullptr);
  EXPECT_EQ(moved.hf_tokenizer(), nullptr);
  // Tied: the head is the embedding.
  EXPECT_EQ(moved.Tensor("lm_head.weight").value(),
            moved.Tensor("model.embed_tokens.weight").value());
  EXPECT_THAT(moved.Tensor("blk.0.attn_q.weight").status().ToString(),
              HasSubstr("NOT_FOUND"));
}

TEST(Checkpoint, OpensADirectoryWithOneGguf) {
  const TemporaryDirectory directory;
  directory.Write("a.gguf", testing::TinyGguf().Build().bytes);
  EXPECT_TRUE(Checkpoint::Open(directory.path()).ok());
  directory.Write("b.gguf", testing::TinyGguf().Build().bytes);
  EXPECT_THAT(Message(directory.path(), absl::StatusCode::kNotFound),
              HasSubstr("no config.json and 2 .gguf files"));
}

TEST(Checkpoint, OpensSafetensors) {
  const TemporaryDirectory directory;
  const auto entries = testing::TinySafetensors();
  directory.Write("model.safetensors", SafetensorsImage(entries).bytes);
  EXPECT_THAT(
      Message(directory / "model.safetensors", absl::StatusCode::kNotFound),
      HasSubstr("config.json: cannot open"));
  directory.Write("config.json", testing::TinyConfigJson());
  directory.Write("tokenizer.json", std::string("{\"t\":1}"));
  directory.Write("chat_template.jinja", std::string("{{ x }}"));
  for (const std::string& path :
       {directory.path(), directory / "model.safetensors"}) {
    const auto opened = Checkpoint::Open(path);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->gguf_tokenizer(), nullptr);
    ASSERT_NE(opened->hf_tokenizer(), nullptr);
    EXPECT_EQ(opened->hf_tokenizer()->directory, directory.path());
    EXPECT_EQ(opened->hf_tokenizer()->tokenizer_json, "{\"t\":1}");
    EXPECT_EQ(opened->hf_tokenizer()->tokenizer_config_json, "");
    EXPECT_EQ(opened->hf_tokenizer()->chat_template_jinja, "{{ x }}");
    const CheckpointTensor* embedding =
        opened->Tensor("model.embed_tokens.weight").value();
    EXPECT_EQ(std::vector<uint8_t>(embedding->data,
                                   embedding->data + embedding->bytes),
              entries[0].data);
  }
}

TEST(Checkpoint, OpensShards) {
  const TemporaryDirectory directory;
  auto entries = testing::TinySafetensors();
  directory.Write("config.json", testing::TinyConfigJson());
  EXPECT_THAT(Message(directory.path(), absl::StatusCode::kNotFound),
              HasSubstr("neither model.safetensors nor"));
  std::string index = "{\"weight_map\":{";
  for (size_t i = 0; i < entries.size(); ++i) {
    absl::StrAppend(&index, i > 0 ? ",\"" : "\"", entries[i].name, "\":\"",
                    i % 2 == 0 ? "even" : "odd", ".safetensors\"");
  }
  directory.Write("model.safetensors.index.json", index + "}}");
  std::vector<testing::SafetensorsEntry> shards[2];
  for (size_t i = 0; i < entries.size(); ++i) {
    shards[i % 2].push_back(std::move(entries[i]));
  }
  directory.Write("even.safetensors", SafetensorsImage(shards[0]).bytes);
  EXPECT_THAT(Message(directory.path(), absl::StatusCode::kNotFound),
              HasSubstr("odd.safetensors: cannot open"));
  directory.Write("odd.safetensors", SafetensorsImage(shards[1]).bytes);
  const auto opened = Checkpoint::Open(directory.path());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->tensors().size(), 20u);
}

TEST(Checkpoint, RefusesWhatIsNoModel) {
  const TemporaryDirectory directory;
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Message(directory / "absent", absl::StatusCode::kNotFound),
              HasSubstr("absent: cannot open"));
  EXPECT_THAT(Message(directory.path(), absl::StatusCode::kNotFound),
              HasSubstr("no config.json and 0 .gguf files"));
  directory.Write("empty", std::string());
  EXPECT_THAT(Message(directory / "empty", invalid),
              HasSubstr("the file is empty"));
  directory.Write("text", std::string("Hello, world. This is a text."));
  EXPECT_THAT(Message(directory / "text", invalid),
              HasSubstr("not a safetensors file?"));
  directory.Write("short", std::string("GGUF"));
  EXPECT_THAT(Message(directory / "short", invalid),
              HasSubstr("byte 4: version: needs 4 bytes, the file has 0 left"));
  ASSERT_EQ(mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(Message(directory / "pipe", invalid),
              HasSubstr("not a regular file"));
  EXPECT_THAT(Message("/dev/null", invalid), HasSubstr("not a regular file"));
  std::filesystem::create_symlink("loop", directory / "loop");
  EXPECT_FALSE(Checkpoint::Open(directory / "loop").ok());
  EXPECT_FALSE(Checkpoint::Open("").ok());
}

}  // namespace
}  // namespace lamina
