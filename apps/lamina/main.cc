// lamina: the command line. This file says which flags there are; each
// command lives in <name>_command.cc.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <string>
#include <tuple>

#include "CLI/App.hpp"
#include "CLI/Config.hpp"
#include "CLI/Formatter.hpp"
#include "absl/strings/str_cat.h"
#include "apps/lamina/options.h"
#include "lamina/core/version.h"

namespace lamina::cli {
namespace {

const CLI::IsMember kBackends({"cpu", "cuda", "hip"});
const CLI::IsMember kWeightTypes({"bf16", "fp8"});
const CLI::IsMember kActivationTypes({"f32", "bf16", "f16"});
const CLI::IsMember kFusions({"none", "residual", "activation", "all"});

// CLI::Range lets NaN through: it is neither below nor above.
std::string RefuseNan(const std::string& text) {
  const bool is_nan = std::isnan(std::strtod(text.c_str(), nullptr));
  return is_nan ? "want a number, given " + text : "";
}

// Unsigned options would take -1, and what is too large, for the largest
// number.
std::string RefuseBeyondUnsigned(const std::string& text) {
  if (text.find('-') != std::string::npos) {
    return "want 0 or more, given " + text;
  }
  errno = 0;
  std::strtoull(text.c_str(), nullptr, 0);
  return errno == ERANGE ? "want less than 2^64, given " + text : "";
}

// What a script gives whose variable is not set.
std::string RefuseEmpty(const std::string& text) {
  return text.empty() ? "want a name, given an empty text" : "";
}

// Rows or columns of lamina tune's weights.
constexpr int64_t kMostTunedSize = int64_t{1} << 30;

class CommandLine {
 public:
  CommandLine()
      : app_("Fused kernels for LLM decoding: demo and tools.", "lamina") {
    app_.require_subcommand(1);
    app_.set_help_flag("-h,--help", "Print this help and exit");
    app_.set_version_flag("--version",
                          absl::StrCat("lamina ", kVersionMajor, ".",
                                       kVersionMinor, ".", kVersionPatch),
                          "Print the version and exit");
    app_.footer(
        "Examples:\n"
        "  lamina devices\n"
        "  lamina generate --model model.gguf --prompt 'Why is the sky blue?'\n"
        "  lamina block --shape llama3-8b --weights fp8\n"
        "Exit codes: 0 done, 1 a check failed, 2 usage or input error,\n"
        "            3 this machine cannot do it");
    AddDevices();
    AddBlock();
    AddGenerate();
    AddTokenize();
    AddVerify();
    AddConvert();
    AddBench();
    AddTune();
  }

  int Run(int argc, char** argv) {
    const auto is_named = [&](CLI::App* command) {
      return command->get_name() == argv[1];
    };
    if (argc > 1 && argv[1][0] != '-' &&
        app_.get_subcommands(is_named).empty()) {
      std::fprintf(stderr, "lamina: no command '%s' (see lamina --help)\n",
                   OneLine(argv[1]).c_str());
      return kUsageError;
    }
    try {
      app_.parse(argc, argv);
    } catch (const CLI::Success& help) {
      app_.exit(help);
      return Written("lamina", kDone);
    } catch (const CLI::ParseError& error) {
      std::string command = "lamina";
      if (argc > 1 && app_.get_subcommands().empty()) {
        std::fprintf(stderr, "lamina: no command '%s' (see lamina --help)\n",
                     OneLine(argv[1]).c_str());
        return kUsageError;
      }
      for (const CLI::App* chosen : app_.get_subcommands()) {
        command += " " + chosen->get_name();
      }
      std::fprintf(stderr, "%s: %s (see %s --help)\n", command.c_str(),
                   OneLine(error.what()).c_str(), command.c_str());
      return kUsageError;
    }
    const CLI::App* chosen = app_.get_subcommands().front();
    const std::string command = absl::StrCat("lamina ", chosen->get_name());
    absl::StatusOr<int> result = absl::ResourceExhaustedError(
        "too little memory; this machine or its limits (ulimit) have no more");
    try {
      result = run_();
    } catch (const std::bad_alloc&) {
    }
    if (result.ok()) return Written(command, *result);
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %s\n", command.c_str(),
                 OneLine(std::string(result.status().message())).c_str());
    return ExitCodeOf(result.status());
  }

 private:
  // `code`, unless what was printed did not arrive.
  static int Written(const std::string& command, int code) {
    const bool failed = std::ferror(stdout) != 0;
    if (std::fflush(stdout) == 0 && !failed) return code;
    std::fprintf(
        stderr, "%s: cannot write to standard output: closed, or a full disk\n",
        command.c_str());
    return kUsageError;
  }

  static std::string OneLine(std::string text) {
    for (char& c : text) {
      if (c == '\n' || c == '\r') c = ' ';
    }
    return text;
  }

  // A subcommand whose options are `options` and that runs `run`.
  template <class Options>
  CLI::App* Add(const char* name, const char* help, Options& options,
                absl::StatusOr<int> (*run)(const Options&)) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->add_flag("--json", options.json, "Print one JSON object instead");
    command
        ->add_option("--backend", options.backend,
                     "Where to run: cpu, cuda or hip")
        ->check(kBackends)
        ->capture_default_str();
    command
        ->add_option("--threads", options.threads,
                     "CPU threads; 0: all usable cores")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    command->callback([this, run, &options] {
      run_ = [run, &options] { return run(options); };
    });
    return command;
  }

  // Of the commands that run decoder blocks.
  template <class Options>
  static void AddBlockSwitches(CLI::App* c, Options& options) {
    c->add_option("--activation-type", options.activation_type,
                  "Between the stages: f32, bf16 or f16; default: f32 on the "
                  "CPU, bf16 on a GPU")
        ->check(kActivationTypes);
    c->add_option("--fuse", options.fuse,
                  "Stages that run as one: the residual's addition, the "
                  "gated activation, all, none")
        ->check(kFusions)
        ->capture_default_str();
    c->add_flag("--persistent", options.persistent,
                "On a GPU: all blocks of a step as one kernel");
    c->add_option("--tuning", options.tuning,
                  "On a GPU: what lamina tune has written")
        ->check(RefuseEmpty);
  }

  void AddDevices() {
    Add("devices", "What this machine has, and its measured memory bandwidth",
        devices_, RunDevices);
  }

  void AddBlock() {
    CLI::App* c = Add("block", "Time one decoder block, stage by stage", block_,
                      RunBlock);
    auto* shape = c->add_option("--shape", block_.shape,
                                "llama3-8b, llama3-70b, llama3-405b-tp8 or "
                                "smollm2-135m: random weights of that shape")
                      ->capture_default_str();
    auto* inputs =
        c->add_option("--inputs", block_.inputs,
                      "Quantise the projections' inputs: none, per_row or "
                      "static")
            ->check(CLI::IsMember({"none", "per_row", "static"}))
            ->capture_default_str();
    c->add_option("--model", block_.model,
                  "A .gguf or .safetensors file or a directory: the model's "
                  "own first layer")
        ->check(RefuseEmpty)
        ->excludes(shape)
        ->excludes(inputs);
    c->add_option("--weights", block_.weights, "bf16 or fp8")
        ->check(kWeightTypes)
        ->capture_default_str();
    c->add_option("--kv", block_.kv, "KV cache: bf16 or fp8")
        ->check(kWeightTypes)
        ->capture_default_str();
    AddBlockSwitches(c, block_);
    c->add_option("--layers", block_.layers,
                  "Layers to go round; 0: enough to keep the caches cold")
        ->check(CLI::Range(0, 1000))
        ->excludes("--model");
    c->add_flag("--lm-head", block_.lm_head,
                "Also time a decoding step of a model of these layers, with "
                "embedding, final norm, output matrix and greedy choice");
    c->add_option("--batch", block_.batch, "Sequences, one token each")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    c->add_option("--context", block_.context, "Tokens already in the cache")
        ->check(CLI::Range(0, 1000000))
        ->capture_default_str();
    c->add_option("--iterations", block_.iterations,
                  "Repetitions; 0: about a second's worth")
        ->check(CLI::Range(0, 1000000))
        ->capture_default_str();
    c->add_option("--trace", block_.trace, "Write a Chrome trace to this file")
        ->check(RefuseEmpty);
  }

  void AddGenerate() {
    CLI::App* c =
        Add("generate", "Generate text from a model", generate_, RunGenerate);
    c->add_option("--model", generate_.model,
                  "A .gguf or .safetensors file, or a model directory")
        ->required()
        ->check(RefuseEmpty);
    auto* prompt = c->add_option("--prompt", generate_.prompt, "The text");
    c->add_option("--prompt-file", generate_.prompt_file,
                  "Read the prompt from this file")
        ->check(RefuseEmpty)
        ->excludes(prompt);
    auto* system =
        c->add_option("--system", generate_.system,
                      "System message, which may be empty; default: the "
                      "model's own")
            ->each([this](const std::string&) { generate_.has_system = true; });
    c->add_flag("--raw", generate_.raw,
                "Continue the text as it is, without the chat template")
        ->excludes(system);
    c->add_option("--max-tokens", generate_.max_tokens, "New tokens at most")
        ->check(CLI::Range(1, 1000000))
        ->capture_default_str();
    c->add_option("--weights", generate_.weights,
                  "bf16 or fp8; default: fp8 for an FP8 checkpoint, else bf16")
        ->check(kWeightTypes);
    c->add_option("--kv", generate_.kv, "KV cache: bf16 or fp8")
        ->check(kWeightTypes)
        ->capture_default_str();
    AddBlockSwitches(c, generate_);
    c->add_flag("--cublaslt", generate_.cublaslt,
                "On a GPU: run the prompt through cuBLASLt");
    c->add_option("--batch", generate_.batch,
                  "Decode this many copies of the prompt at once")
        ->check(CLI::Range(1, 256))
        ->capture_default_str();
    c->add_option("--temperature", generate_.temperature, "0: greedy")
        ->check(CLI::Range(0.0, 100.0))
        ->check(RefuseNan)
        ->capture_default_str();
    c->add_option("--top-k", generate_.top_k,
                  "Sample among this many likeliest tokens; 0: all")
        ->check(CLI::Range(0, 1 << 22))
        ->capture_default_str();
    for (const auto& [name, value, what] :
         {std::tuple("--top-p", &generate_.top_p,
                     "Sample among the likeliest tokens that make up this "
                     "probability"),
          std::tuple("--min-p", &generate_.min_p,
                     "Sample among tokens at least this likely, relative to "
                     "the likeliest")}) {
      c->add_option(name, *value, what)
          ->check(CLI::Range(0.0, 1.0))
          ->check(RefuseNan)
          ->capture_default_str();
    }
    c->add_option("--seed", generate_.seed,
                  "Seed of the sampler: the same tokens on every backend, for "
                  "the same logits")
        ->check(RefuseBeyondUnsigned)
        ->capture_default_str();
    c->add_flag("--ignore-eos", generate_.ignore_eos,
                "Do not stop at end-of-text tokens");
    c->add_option("--trace", generate_.trace,
                  "Write a Chrome trace to this file")
        ->check(RefuseEmpty);
  }

  void AddTokenize() {
    CLI::App* c =
        Add("tokenize", "Print the tokens of a text", tokenize_, RunTokenize);
    c->add_option("--model", tokenize_.model, "Whose tokenizer")
        ->required()
        ->check(RefuseEmpty);
    auto* text =
        c->add_option("--text", tokenize_.text, "The text")
            ->each([this](const std::string&) { tokenize_.has_text = true; });
    c->add_option("--file", tokenize_.file, "Texts, one a line")
        ->check(RefuseEmpty)
        ->excludes(text);
    c->add_flag("--special", tokenize_.special,
                "Names of control tokens in the text become those tokens");
  }

  void AddVerify() {
    CLI::App* c = Add("verify",
                      "Check operators against double precision; with --model "
                      "and --text-file, FP8 weights against bf16",
                      verify_, RunVerify);
    auto* op = c->add_option("--op", verify_.op, "One operator; default: all");
    auto* text = c->add_option("--text-file", verify_.text_file,
                               "Text whose likelihood is compared")
                     ->check(RefuseEmpty)
                     ->excludes(op);
    c->add_option("--model", verify_.model, "Whose weights")
        ->check(RefuseEmpty)
        ->needs(text);
    c->add_option("--seed", verify_.seed, "Seed of the data")
        ->check(RefuseBeyondUnsigned)
        ->capture_default_str();
  }

  void AddConvert() {
    CLI::App* c = Add("convert", "Write an FP8 safetensors checkpoint",
                      convert_, RunConvert);
    c->add_option("--model", convert_.model, "What to convert")
        ->required()
        ->check(RefuseEmpty);
    c->add_option("--output", convert_.output, "Directory to write")
        ->required()
        ->check(RefuseEmpty);
    c->add_option("--activations", convert_.activations,
                  "Projection inputs: dynamic (a scale a row), static "
                  "(calibrated) or none (stay unquantised)")
        ->check(CLI::IsMember({"dynamic", "static", "none"}))
        ->capture_default_str();
    c->add_option("--calibration-file", convert_.calibration_file,
                  "Text to calibrate static scales on")
        ->check(RefuseEmpty);
  }

  void AddBench() {
    CLI::App* c = Add("bench", "Time the operators beside their limits", bench_,
                      RunBench);
    // Here --json takes a file, to which lines are appended.
    c->remove_option(c->get_option("--json"));
    c->add_option("--json", bench_.json_file,
                  "Append one JSON object a line to this file")
        ->check(RefuseEmpty);
    c->add_option("--op", bench_.op, "One operator; default: all");
    c->add_option("--filter", bench_.filter,
                  "Only the cases whose name has this in it");
  }

  void AddTune() {
    CLI::App* c =
        Add("tune", "Measure SkinnyGemm's plans for a shape and keep what wins",
            tune_, RunTune);
    c->add_option("--n", tune_.n, "Rows of the weights")
        ->check(CLI::Range(int64_t{1}, kMostTunedSize))
        ->capture_default_str();
    c->add_option("--k", tune_.k, "Columns of the weights")
        ->check(CLI::Range(int64_t{1}, kMostTunedSize))
        ->capture_default_str();
    for (const auto& [name, type, what] :
         {std::tuple("--weights", &tune_.weights, "Type of the weights"),
          std::tuple("--activations", &tune_.activations,
                     "Type of the activations")}) {
      c->add_option(name, *type, what)
          ->check(CLI::IsMember({"fp8", "bf16", "f16"}))
          ->capture_default_str();
    }
    c->add_option("--output", tune_.output,
                  "File to add to, for LoadGemmTuning")
        ->check(RefuseEmpty)
        ->capture_default_str();
  }

  CLI::App app_;
  std::function<absl::StatusOr<int>()> run_;
  DevicesOptions devices_;
  BlockOptions block_;
  GenerateOptions generate_;
  TokenizeOptions tokenize_;
  VerifyOptions verify_;
  ConvertOptions convert_;
  BenchOptions bench_;
  TuneOptions tune_;
};

}  // namespace
}  // namespace lamina::cli

int main(int argc, char** argv) {
  // Standard streams that are closed: the next file would take their place.
  int file = 0;
  do file = open("/dev/null", O_RDONLY);
  while (file >= 0 && file <= STDERR_FILENO);
  if (file >= 0) close(file);
  // A file that grows past its limit is then an error like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return lamina::cli::CommandLine().Run(argc, argv);
}
