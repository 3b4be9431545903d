#include "apps/lamina/support.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lamina/core/device.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/status.h"

namespace lamina::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      return kCannotRunHere;
    case absl::StatusCode::kInternal:
      return kCheckFailed;
    default:
      return kUsageError;
  }
}

absl::StatusOr<Device> ChooseDevice(const CommonOptions& options) {
  Device device;
  for (const Backend backend : {Backend::kCuda, Backend::kHip}) {
    if (options.backend == Name(backend)) device.backend = backend;
  }
  if (!IsBuilt(device.backend)) {
    return absl::UnavailableError(absl::StrCat(
        "--backend ", options.backend, ": this build has the backends ",
        kBuiltBackends, "; use --backend cpu"));
  }
  LAMINA_RETURN_IF_ERROR(
      CheckDevice("--backend", Name(device.backend), device));
  return device;
}

absl::StatusOr<ChosenStream> ChooseStream(const CommonOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Device device, ChooseDevice(options));
  LAMINA_ASSIGN_OR_RETURN(OwnedStream owned, OwnedStream::Create(device));
  const Stream stream = device.backend == Backend::kCpu
                            ? Stream::Cpu(options.threads)
                            : owned.stream();
  return ChosenStream{std::move(owned), stream};
}

std::string KernelsName(Device device) {
  return device.backend == Backend::kCpu ? CpuTargetName()
                                         : GetDeviceInfo(device).arch;
}

absl::StatusOr<Stream> MakeStream(const CommonOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const Device device, ChooseDevice(options));
  if (device.backend != Backend::kCpu) {
    return absl::UnavailableError(
        absl::StrCat("--backend ", options.backend,
                     ": this command runs on the cpu in this version"));
  }
  return Stream::Cpu(options.threads);
}

absl::Status GpuStatus() {
  for (const Backend backend : {Backend::kCuda, Backend::kHip}) {
    if (IsBuilt(backend)) {
      return CheckDevice("lamina", Name(backend), {backend, 0});
    }
  }
  return absl::OkStatus();
}

DType WeightType(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  return name == "fp8" ? DType::kF8E4M3Fn : DType::kBF16;
}

GemmTuning TuningOf(const std::string& path, Device device) {
  if (path.empty()) return {};
  std::string warning;
  GemmTuning tuning = LoadGemmTuning(path, GetDeviceInfo(device), &warning);
  if (!warning.empty()) std::fprintf(stderr, "lamina: %s\n", warning.c_str());
  return tuning;
}

BlockFusion FusionOf(const std::string& name) {
  return {.residual = name == "residual" || name == "all",
          .activation = name == "activation" || name == "all"};
}

bool IsRegularFile(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{64} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot open: ", std::strerror(errno)));
  }
  // Read to its end, whatever its size is said to be: it may be a pipe.
  std::string text;
  std::vector<char> chunk(size_t{1} << 16);
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())),
         file.gcount() > 0) {
    text.append(chunk.data(), static_cast<size_t>(file.gcount()));
    if (text.size() > kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": not a text file of at most 64 MiB"));
    }
  }
  if (file.bad()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot read: ", std::strerror(errno)));
  }
  return text;
}

// Ctrl-C and the like are not heard until a file has its name.
// NOTE: a mask would not do: threads of OpenMP would hear them.
class IgnoreInterrupts {
 public:
  IgnoreInterrupts() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      before_[i] = std::signal(kSignals[i], SIG_IGN);
    }
  }
  ~IgnoreInterrupts() {
    for (size_t i = 0; i < kSignals.size(); ++i) {
      std::signal(kSignals[i], before_[i]);
    }
  }
  IgnoreInterrupts(const IgnoreInterrupts&) = delete;
  IgnoreInterrupts& operator=(const IgnoreInterrupts&) = delete;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<void (*)(int), kSignals.size()> before_;
};

absl::Status WriteTextFile(const std::string& path, const std::string& text) {
  // NOTE: a device, a pipe or a link is written through. Renamed over, it would
  // be gone: as root, /dev/null for the whole machine.
  struct stat info = {};
  const bool replace = lstat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
  std::optional<IgnoreInterrupts> ignore;
  if (replace) ignore.emplace();
  const std::string target =
      replace ? absl::StrCat(path, ".tmp", getpid()) : path;
  std::ofstream file(target, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file || (replace && std::rename(target.c_str(), path.c_str()) != 0)) {
    const std::string reason = std::strerror(errno);
    if (replace) std::remove(target.c_str());
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot write: ", reason));
  }
  return absl::OkStatus();
}

absl::Status CheckCanWrite(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) folder = ".";
  struct stat info = {};
  const bool exists = stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
  } else if (access(exists ? path.c_str() : folder.c_str(), W_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": cannot write: ", std::strerror(errno)));
}

absl::Status CheckPersistent(bool persistent, const Device& device) {
  if (!persistent || device.backend != Backend::kCpu) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--persistent: a kernel of a GPU; give --backend cuda, or leave it out");
}

std::string HumanBytes(int64_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B")
                   : absl::StrFormat("%.1f %s", value, units[unit]);
}

Progress::Progress(std::string label)
    : label_(std::move(label)), on_terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_percent_ >= 0) std::fprintf(stderr, "\r\033[K");
}

void Progress::Update(double fraction) {
  constexpr int kWidth = 30;
  const int percent = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * 100);
  if (!on_terminal_ || percent == drawn_percent_) return;
  drawn_percent_ = percent;
  std::string bar(static_cast<size_t>(percent * kWidth / 100), '=');
  bar.resize(kWidth, ' ');
  std::fprintf(stderr, "\r%s [%s] %3d %%", label_.c_str(), bar.c_str(),
               percent);
  std::fflush(stderr);
}

}  // namespace lamina::cli
