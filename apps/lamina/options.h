#pragma once

// What the command line says, as plain values: main.cc fills these, the
// commands read them. Exit codes are DESIGN's: see ExitCode.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lamina::cli {

enum ExitCode : int {
  kDone = 0,
  kCheckFailed = 1,
  kUsageError = 2,     // a wrong flag, a bad input file
  kCannotRunHere = 3,  // no such device, too little memory
};

// The exit code that tells a status from the others.
ExitCode ExitCodeOf(const absl::Status& status);

struct CommonOptions {
  bool json = false;
  std::string backend = "cpu";
  int threads = 0;
};

struct DevicesOptions : CommonOptions {};

struct BlockOptions : CommonOptions {
  std::string shape = "llama3-8b";
  std::string model;
  std::string weights = "bf16";
  std::string kv = "bf16";
  std::string inputs = "none";  // quantised: none, per_row, static
  std::string activation_type;  // empty: f32 on the CPU, bf16 on a GPU
  std::string fuse = "none";
  bool persistent = false;  // all blocks as one kernel
  std::string tuning;       // a file of `lamina tune`
  int64_t layers = 0;       // 0: enough to keep the caches cold
  bool lm_head = false;     // a whole model of these layers, too
  int64_t batch = 1;
  int64_t context = 1024;
  int iterations = 0;  // 0: about a second's worth
  std::string trace;
};

struct GenerateOptions : CommonOptions {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  std::string system;
  bool has_system = false;  // an empty one is one, too
  bool raw = false;
  int64_t max_tokens = 256;
  std::string weights;  // empty: as the file has them
  std::string kv = "bf16";
  std::string activation_type;  // empty: f32 on the CPU, bf16 on a GPU
  std::string fuse = "none";
  bool persistent = false;  // all blocks as one kernel
  std::string tuning;       // a file of `lamina tune`
  bool cublaslt = false;
  int64_t batch = 1;
  double temperature = 0;
  int64_t top_k = 0;  // 0: all tokens
  double top_p = 1;
  double min_p = 0;
  uint64_t seed = 0;
  bool ignore_eos = false;
  std::string trace;
};

struct TokenizeOptions : CommonOptions {
  std::string model;
  std::string text;
  bool has_text = false;  // an empty text is one, too
  std::string file;       // one text a line
  bool special = false;
};

struct VerifyOptions : CommonOptions {
  std::string op;     // empty: all
  std::string model;  // with text_file: the model's likelihood check
  std::string text_file;
  uint64_t seed = 1;
};

struct ConvertOptions : CommonOptions {
  std::string model;
  std::string output;
  std::string activations = "dynamic";  // dynamic, static, none
  std::string calibration_file;
};

struct BenchOptions : CommonOptions {
  std::string op;
  std::string filter;
  std::string json_file;
};

struct TuneOptions : CommonOptions {
  int64_t n = 4096;  // of SkinnyGemm's weights
  int64_t k = 4096;
  std::string weights = "fp8";      // fp8, bf16, f16
  std::string activations = "fp8";  // fp8, bf16, f16
  std::string output = "gemm_tuning.jsonl";
};

absl::StatusOr<int> RunDevices(const DevicesOptions& options);
absl::StatusOr<int> RunBlock(const BlockOptions& options);
absl::StatusOr<int> RunGenerate(const GenerateOptions& options);
absl::StatusOr<int> RunTokenize(const TokenizeOptions& options);
absl::StatusOr<int> RunVerify(const VerifyOptions& options);
absl::StatusOr<int> RunConvert(const ConvertOptions& options);
absl::StatusOr<int> RunBench(const BenchOptions& options);
absl::StatusOr<int> RunTune(const TuneOptions& options);

}  // namespace lamina::cli
