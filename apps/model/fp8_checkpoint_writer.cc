#include "lamina/model/fp8_checkpoint_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/float16.h"
#include "lamina/core/math.h"
#include "lamina/core/parallel.h"
#include "lamina/core/status.h"
#include "lamina/model/file_error.h"
#include "lamina/model/hf_config.h"
#include "lamina/model/safetensors.h"
#include "lamina/quant/quantize.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using model_internal::Quoted;

constexpr const char* kOp = "Fp8CheckpointWriter";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kConfig = "config.json";
// Elements that are converted at a time.
constexpr int64_t kChunkElements = int64_t{1} << 20;

// A full disk, a quota and a file-size limit are one thing to the caller.
absl::Status FileError(int error, const std::string& path, const char* what) {
  const std::string message = absl::StrCat(path, ": ", what);
  if (error == EFBIG || error == ENOSPC || error == EDQUOT) {
    return absl::ResourceExhaustedError(
        absl::StrCat(message, ": ", std::strerror(error)));
  }
  return absl::ErrnoToStatus(error, message);
}

// An owned file descriptor of a new file.
class OutputFile {
 public:
  static absl::StatusOr<OutputFile> Create(std::string path) {
    OutputFile file;
    file.fd_ =
        open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.fd_ < 0) return FileError(errno, path, "cannot create");
    file.path_ = std::move(path);
    return file;
  }
  OutputFile() = default;
  OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }
  OutputFile& operator=(OutputFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
  }
  ~OutputFile() {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Reserve(int64_t bytes) {
    const int error = posix_fallocate(fd_, 0, bytes);
    if (error == 0) return absl::OkStatus();
    return FileError(error, path_,
                     absl::StrCat("cannot reserve ", bytes, " bytes").c_str());
  }
  absl::Status WriteAt(int64_t offset, const void* data, int64_t bytes) {
    const char* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written =
          pwrite(fd_, from, static_cast<size_t>(bytes), offset);
      if (written < 0) {
        if (errno == EINTR) continue;
        return FileError(errno, path_, "cannot write");
      }
      from += written;
      offset += written;
      bytes -= written;
    }
    return absl::OkStatus();
  }
  // NOTE: some file systems report a failed write only here.
  absl::Status FlushAndClose() {
    const int synced = fsync(fd_);
    const int sync_error = errno;
    const int closed = close(std::exchange(fd_, -1));
    if (synced != 0) return FileError(sync_error, path_, "cannot flush");
    if (closed != 0) return FileError(errno, path_, "cannot close");
    return absl::OkStatus();
  }

 private:
  int fd_ = -1;
  std::string path_;
};

absl::Status FlushDirectory(const fs::path& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, path.string(), "cannot open");
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  // Not every file system can flush a directory.
  if (result == 0 || error == EINVAL) return absl::OkStatus();
  return FileError(error, path.string(), "cannot flush");
}

// Where one tensor of the model goes: offsets from the start of the file.
struct Slot {
  ExpectedTensor tensor;
  int64_t values = 0;       // F8 codes or bf16
  int64_t scales = 0;       // f32 [out], projections
  int64_t input_scale = 0;  // f32, projections with static activations
  bool added = false;
};

int64_t ElementsOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  return count;
}

std::string WithoutWeight(const std::string& name) {
  constexpr std::string_view kSuffix = ".weight";
  return name.substr(0, name.size() - kSuffix.size());
}

// The header, and the slots with their offsets set. Wide elements come first,
// so that each tensor is aligned to its elements.
struct Layout {
  std::string header;  // with its length in front
  int64_t file_bytes = 0;
};
Layout LayOut(std::vector<Slot>& slots, bool static_inputs) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t end = 0;
  const auto place = [&](const std::string& name, StorageType type,
                         const std::vector<int64_t>& shape) {
    const int64_t begin = end;
    end += ElementsOf(shape) * BlockBytes(type);
    header[name] = {{"dtype", model_internal::SafetensorsFile::TypeName(type)},
                    {"shape", shape},
                    {"data_offsets", {begin, end}}};
    return begin;
  };
  for (Slot& slot : slots) {
    if (!slot.tensor.is_linear) continue;
    const std::string module = WithoutWeight(slot.tensor.name);
    slot.scales = place(module + ".weight_scale", StorageType::kF32,
                        {slot.tensor.shape[0], 1});
    if (static_inputs) {
      slot.input_scale = place(module + ".input_scale", StorageType::kF32, {1});
    }
  }
  for (const bool is_linear : {false, true}) {
    for (Slot& slot : slots) {
      if (slot.tensor.is_linear != is_linear) continue;
      slot.values = place(slot.tensor.name,
                          is_linear ? StorageType::kF8E4M3 : StorageType::kBF16,
                          slot.tensor.shape);
    }
  }

  std::string text = header.dump();
  const int64_t padded = RoundUp(8 + static_cast<int64_t>(text.size()), 64);
  text.resize(static_cast<size_t>(padded - 8), ' ');
  const uint64_t length = text.size();
  Layout layout;
  layout.header.assign(reinterpret_cast<const char*>(&length), sizeof(length));
  layout.header += text;
  for (Slot& slot : slots) {
    slot.values += padded;
    slot.scales += padded;
    slot.input_scale += padded;
  }
  layout.file_bytes = padded + end;
  return layout;
}

// One row as bf16.
void ToBf16(const ConstMatrixView& values, int64_t row, BF16* out) {
  const auto convert = [&](const auto* from) {
    for (int64_t i = 0; i < values.cols; ++i) {
      out[i] = FromFloat<BF16>(ToFloat(from[i]));
    }
  };
  switch (values.dtype) {
    case DType::kF32:
      return convert(values.Row<float>(row));
    case DType::kF16:
      return convert(values.Row<F16>(row));
    default:
      return convert(values.Row<BF16>(row));
  }
}

ConstMatrixView RowsOf(ConstMatrixView view, int64_t first, int64_t rows) {
  view.data = static_cast<const uint8_t*>(view.data) +
              BytesFor(view.dtype, first * view.row_stride);
  view.rows = rows;
  return view;
}

bool IsPlainName(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

struct Fp8CheckpointWriter::Impl {
  fs::path directory;
  fs::path temporary;  // empty once it is renamed
  ModelConfig config;
  Fp8CheckpointOptions options;
  std::vector<Slot> slots;
  std::map<std::string, size_t, std::less<>> slot_of;
  OutputFile weights;
  // After a failed write the writer is of no use; every call says why.
  absl::Status failure;

  ~Impl() {
    if (temporary.empty()) return;
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
  }

  absl::Status Keep(absl::Status status) {
    if (!status.ok() && failure.ok()) failure = status;
    return status;
  }

  // A hidden directory beside the destination: on the same file system, so
  // that it can be renamed.
  absl::Status MakeTemporary() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      const fs::path path = directory.parent_path() /
                            absl::StrCat(".", directory.filename().string(),
                                         ".", getpid(), "-", attempt);
      if (mkdir(path.c_str(), 0777) == 0) {
        temporary = path;
        return absl::OkStatus();
      }
      if (errno != EEXIST) {
        return FileError(errno, directory.string(), "cannot create");
      }
    }
    return absl::AlreadyExistsError(
        absl::StrCat(directory.string(), ": too many unfinished copies"));
  }

  absl::Status WriteFile(std::string_view name, std::string_view contents) {
    LAMINA_ASSIGN_OR_RETURN(
        OutputFile file,
        OutputFile::Create((temporary / std::string(name)).string()));
    LAMINA_RETURN_IF_ERROR(file.WriteAt(0, contents.data(),
                                        static_cast<int64_t>(contents.size())));
    return file.FlushAndClose();
  }

  absl::Status WriteLinear(const Slot& slot, const ConstMatrixView& values,
                           Stream stream) {
    const int64_t cols = values.cols;
    const int64_t step = std::max<int64_t>(1, kChunkElements / cols);
    std::vector<F8E4M3Fn> codes(static_cast<size_t>(step * cols));
    std::vector<float> scales(static_cast<size_t>(step));
    for (int64_t row = 0; row < values.rows; row += step) {
      const int64_t rows = std::min(step, values.rows - row);
      QuantizedOutput out;
      out.codes = Matrix(codes.data(), rows, cols);
      out.scales = PerRow(scales.data());
      out.dynamic = true;
      LAMINA_RETURN_IF_ERROR(
          Quantize({.x = RowsOf(values, row, rows), .out = out}, stream));
      LAMINA_RETURN_IF_ERROR(
          weights.WriteAt(slot.values + row * cols, codes.data(), rows * cols));
      LAMINA_RETURN_IF_ERROR(
          weights.WriteAt(slot.scales + row * 4, scales.data(), rows * 4));
    }
    return absl::OkStatus();
  }

  absl::Status WriteBf16(const Slot& slot, const ConstMatrixView& values,
                         Stream stream) {
    const int64_t cols = values.cols;
    const int64_t step = std::max<int64_t>(1, kChunkElements / cols);
    std::vector<BF16> rounded(static_cast<size_t>(step * cols));
    for (int64_t row = 0; row < values.rows; row += step) {
      const int64_t rows = std::min(step, values.rows - row);
      ParallelFor(stream, rows, std::max<int64_t>(1, 65536 / cols),
                  [&](int64_t begin, int64_t end, int /*thread*/) {
                    for (int64_t r = begin; r < end; ++r) {
                      ToBf16(values, row + r, rounded.data() + r * cols);
                    }
                  });
      LAMINA_RETURN_IF_ERROR(weights.WriteAt(slot.values + row * cols * 2,
                                             rounded.data(), rows * cols * 2));
    }
    return absl::OkStatus();
  }
};

Fp8CheckpointWriter::Fp8CheckpointWriter(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
Fp8CheckpointWriter::Fp8CheckpointWriter(Fp8CheckpointWriter&&) noexcept =
    default;
Fp8CheckpointWriter& Fp8CheckpointWriter::operator=(
    Fp8CheckpointWriter&&) noexcept = default;
Fp8CheckpointWriter::~Fp8CheckpointWriter() = default;

absl::StatusOr<Fp8CheckpointWriter> Fp8CheckpointWriter::Create(
    const std::string& directory, const ModelConfig& config,
    const Fp8CheckpointOptions& options) {
  LAMINA_RETURN_IF_ERROR(CheckConfig(config));
  if (config.architecture != "llama" && config.architecture != "mistral") {
    return InvalidArgument(kOp, "config.architecture",
                           Quoted(config.architecture), "llama or mistral");
  }
  if (config.rope_pairing != RopePairing::kHalfSplit) {
    return InvalidArgument(kOp, "config.rope_pairing", std::string("adjacent"),
                           "half split (reorder the rows of q_proj and k_proj "
                           "by AdjacentRow)");
  }
  std::error_code error;
  fs::path path = fs::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (error || directory.empty() || !path.has_filename()) {
    return InvalidArgument(kOp, "directory", Quoted(directory),
                           "the path of a new directory");
  }
  const fs::file_status found = fs::symlink_status(path, error);
  if (fs::exists(found) &&
      !(fs::is_directory(found) && fs::is_empty(path, error) && !error)) {
    return absl::AlreadyExistsError(
        absl::StrCat(path.string(),
                     ": is there and not an empty directory; "
                     "give the path of a new one"));
  }

  auto impl = std::make_unique<Impl>();
  impl->directory = std::move(path);
  impl->config = config;
  impl->options = options;
  for (ExpectedTensor& tensor : ExpectedTensors(config)) {
    impl->slot_of.emplace(tensor.name, impl->slots.size());
    Slot slot;
    slot.tensor = std::move(tensor);
    impl->slots.push_back(std::move(slot));
  }
  const Layout layout =
      LayOut(impl->slots, options.activations == ActivationScheme::kStatic);
  LAMINA_RETURN_IF_ERROR(impl->MakeTemporary());
  LAMINA_ASSIGN_OR_RETURN(
      impl->weights, OutputFile::Create((impl->temporary / kWeights).string()));
  LAMINA_RETURN_IF_ERROR(impl->weights.Reserve(layout.file_bytes));
  LAMINA_RETURN_IF_ERROR(impl->weights.WriteAt(
      0, layout.header.data(), static_cast<int64_t>(layout.header.size())));
  return Fp8CheckpointWriter(std::move(impl));
}

absl::Status Fp8CheckpointWriter::Add(std::string_view name,
                                      ConstMatrixView values,
                                      std::optional<float> input_scale,
                                      Stream stream) {
  LAMINA_RETURN_IF_ERROR(impl_->failure);
  LAMINA_RETURN_IF_ERROR(CheckCpuStream(kOp, stream));
  const auto found = impl_->slot_of.find(name);
  if (found == impl_->slot_of.end()) {
    return InvalidArgument(kOp, "name", Quoted(name),
                           "a tensor of the configuration");
  }
  Slot& slot = impl_->slots[found->second];
  if (slot.added) {
    return InvalidArgument(kOp, "name", Quoted(name), "each tensor once");
  }
  if (values.dtype != DType::kF32 && values.dtype != DType::kF16 &&
      values.dtype != DType::kBF16) {
    return InvalidArgument(kOp, "values.dtype", std::string(Name(values.dtype)),
                           "f32, f16 or bf16");
  }
  const std::vector<int64_t>& shape = slot.tensor.shape;
  LAMINA_RETURN_IF_ERROR(CheckShape(kOp, slot.tensor.name.c_str(), values, 1,
                                    shape.size() == 2 ? shape[0] : 1,
                                    shape.back()));
  const bool wants_scale =
      slot.tensor.is_linear &&
      impl_->options.activations == ActivationScheme::kStatic;
  if (input_scale.has_value() != wants_scale ||
      (input_scale && !(std::isfinite(*input_scale) && *input_scale > 0))) {
    return InvalidArgument(
        kOp, absl::StrCat(slot.tensor.name, ": input_scale").c_str(),
        input_scale ? absl::StrCat(*input_scale) : std::string("none"),
        wants_scale ? "a finite number above 0"
                    : "none (static activations of projections only)");
  }

  LAMINA_RETURN_IF_ERROR(impl_->Keep(
      slot.tensor.is_linear ? impl_->WriteLinear(slot, values, stream)
                            : impl_->WriteBf16(slot, values, stream)));
  if (input_scale) {
    LAMINA_RETURN_IF_ERROR(impl_->Keep(
        impl_->weights.WriteAt(slot.input_scale, &*input_scale, 4)));
  }
  slot.added = true;
  return absl::OkStatus();
}

absl::Status Fp8CheckpointWriter::AddFile(std::string_view file_name,
                                          std::string_view contents) {
  LAMINA_RETURN_IF_ERROR(impl_->failure);
  if (!IsPlainName(file_name) || file_name == kWeights ||
      file_name == kConfig) {
    return InvalidArgument(kOp, "file_name", Quoted(file_name),
                           "a plain name other than the checkpoint's own");
  }
  return impl_->Keep(impl_->WriteFile(file_name, contents));
}

absl::Status Fp8CheckpointWriter::Finish() {
  LAMINA_RETURN_IF_ERROR(impl_->failure);
  for (const Slot& slot : impl_->slots) {
    if (slot.added) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        kOp, ": Finish: tensor ", Quoted(slot.tensor.name), " was not added"));
  }
  const fs::path& directory = impl_->directory;
  const auto finish = [&]() -> absl::Status {
    LAMINA_RETURN_IF_ERROR(impl_->weights.FlushAndClose());
    LAMINA_RETURN_IF_ERROR(impl_->WriteFile(
        kConfig, model_internal::Fp8HfConfigText(impl_->config,
                                                 impl_->options.activations)));
    LAMINA_RETURN_IF_ERROR(FlushDirectory(impl_->temporary));
    // Replaces an empty directory, and fails on one that has filled since.
    if (rename(impl_->temporary.c_str(), directory.c_str()) != 0) {
      return FileError(errno, directory.string(), "cannot rename to");
    }
    impl_->temporary.clear();
    return FlushDirectory(directory.parent_path());
  };
  const absl::Status status = impl_->Keep(finish());
  if (status.ok()) {
    impl_->failure = absl::FailedPreconditionError(
        absl::StrCat(kOp, ": the checkpoint is finished"));
  }
  return status;
}

}  // namespace lamina
