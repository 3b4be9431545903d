#pragma once

// A fuzz target is one function over any bytes:
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
//
// It aborts when a rule is broken; the sanitizers find the rest. Built with
// clang and LAMINA_FUZZ it is a libFuzzer program, otherwise a program that
// replays the corpus and seeded mutations of it (replay_main.cc).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "lamina/model/checkpoint_contents.h"
#include "lamina/model/mapped_file.h"

namespace lamina::testing {

inline std::shared_ptr<const model_internal::MappedFile> FuzzedFile(
    const uint8_t* data, size_t size) {
  // A copy of exactly this size, so that reading past it is seen.
  return model_internal::MappedFile::FromBytes(
      "fuzzed", std::vector<uint8_t>(data, data + size));
}

// OK, or one line about the file.
inline void CheckStatus(const absl::Status& status) {
  if (status.ok()) return;
  const std::string message(status.message());
  if (message.find("fuzzed: ") != 0 || message.size() > 1000 ||
      message.find('\n') != std::string::npos) {
    std::fprintf(stderr, "unclear error: %s\n", status.ToString().c_str());
    std::abort();
  }
}

// Whatever was accepted can be used.
inline void CheckContents(
    const absl::StatusOr<model_internal::CheckpointContents>& contents) {
  CheckStatus(contents.status());
  if (!contents.ok()) return;
  if (!CheckConfig(contents->config).ok()) std::abort();
  for (const ExpectedTensor& want : ExpectedTensors(contents->config)) {
    const auto found = contents->tensors.find(want.name);
    if (found == contents->tensors.end() || found->second.shape != want.shape) {
      std::abort();
    }
    const CheckpointTensor& tensor = found->second;
    std::vector<float> row(static_cast<size_t>(tensor.cols()));
    for (const int64_t r : {int64_t{0}, tensor.rows() - 1}) {
      if (!ReadRows(tensor, r, Matrix(row.data(), 1, tensor.cols()),
                    Stream::Cpu(1))
               .ok()) {
        std::abort();
      }
    }
  }
}

}  // namespace lamina::testing
