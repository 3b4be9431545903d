// Weights from a checkpoint.

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "lamina/core/buffer.h"
#include "lamina/core/copy.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/quant/quantize.h"
#include "lamina/transformer/weights.h"

namespace lamina::transformer_internal {
namespace {

constexpr int64_t kStagingBytes = int64_t{64} << 20;
constexpr int64_t kScratchElements = int64_t{4} << 20;

class CheckpointSource : public WeightSource {
 public:
  // `widest`: columns of the widest matrix.
  static absl::StatusOr<CheckpointSource> Create(const Checkpoint& checkpoint,
                                                 int64_t widest,
                                                 Stream stream) {
    CheckpointSource source(checkpoint, stream);
    LAMINA_ASSIGN_OR_RETURN(
        source.scratch_,
        Buffer::Allocate(Device{}, 4 * std::max(kScratchElements, widest)));
    if (!source.on_host()) {
      LAMINA_ASSIGN_OR_RETURN(
          source.staging_,
          Buffer::Allocate(Device{}, std::max(kStagingBytes, 4 * widest)));
    }
    return source;
  }

  absl::Status Fill(const std::string& name, VectorView to) override {
    LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                            checkpoint_.Tensor(name));
    return Read(*tensor, {.data = to.data,
                          .dtype = to.dtype,
                          .rows = 1,
                          .cols = to.size,
                          .row_stride = to.size});
  }

  absl::Status FillBf16(const std::vector<std::string>& names,
                        MatrixView to) override {
    BF16* data = static_cast<BF16*>(to.data);
    for (const std::string& name : names) {
      LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                              checkpoint_.Tensor(name));
      LAMINA_RETURN_IF_ERROR(
          Read(*tensor, Matrix(data, tensor->rows(), to.cols)));
      data += tensor->rows() * to.cols;
    }
    return absl::OkStatus();
  }

  absl::Status FillFp8(const std::vector<std::string>& names, MatrixView codes,
                       float* scales, float* input_scale) override {
    F8E4M3Fn* data = static_cast<F8E4M3Fn*>(codes.data);
    for (const std::string& name : names) {
      LAMINA_ASSIGN_OR_RETURN(const CheckpointTensor* tensor,
                              checkpoint_.Tensor(name));
      LAMINA_RETURN_IF_ERROR(ReadFp8(*tensor, data, scales));
      data += tensor->rows() * codes.cols;
      scales += tensor->rows();
      // One input feeds all parts: the widest of their ranges.
      *input_scale = std::max(*input_scale, tensor->input_scale.value_or(0));
    }
    return absl::OkStatus();
  }

 private:
  CheckpointSource(const Checkpoint& checkpoint, Stream stream)
      : checkpoint_(checkpoint),
        stream_(stream),
        host_(on_host() ? stream : Stream::Cpu()) {}

  bool on_host() const { return stream_.device().backend == Backend::kCpu; }

  // The whole tensor into `to`, which is the device's.
  absl::Status Read(const CheckpointTensor& tensor, MatrixView to) {
    if (on_host()) return ReadRows(tensor, 0, to, stream_);
    const int64_t row_bytes = BytesFor(to.dtype, to.cols);
    const int64_t step = std::max<int64_t>(1, staging_.bytes() / row_bytes);
    for (int64_t row = 0; row < to.rows; row += step) {
      MatrixView part = to;
      part.data = staging_.data();
      part.rows = std::min(step, to.rows - row);
      LAMINA_RETURN_IF_ERROR(ReadRows(tensor, row, part, host_));
      LAMINA_RETURN_IF_ERROR(Copy(static_cast<char*>(to.data) + row * row_bytes,
                                  part.data, part.rows * row_bytes, stream_));
    }
    return absl::OkStatus();
  }

  // FP8 codes with a scale a row: the file's own, or made here.
  absl::Status ReadFp8(const CheckpointTensor& tensor, F8E4M3Fn* codes,
                       float* scales) {
    const bool by_row =
        tensor.scales.granularity == ScaleGranularity::kPerRow ||
        tensor.scales.granularity == ScaleGranularity::kPerTensor;
    if (tensor.type == StorageType::kF8E4M3 && tensor.scales.has_value() &&
        by_row) {
      std::vector<float> rows;
      for (int64_t row = 0; row < tensor.rows(); ++row) {
        rows.push_back(LoadScale(tensor.scales, row, 0));
      }
      LAMINA_RETURN_IF_ERROR(Copy(codes, tensor.data, tensor.bytes, stream_));
      return Copy(scales, rows.data(), 4 * tensor.rows(), stream_);
    }
    return MakeFp8(tensor, codes, scales);
  }

  absl::Status MakeFp8(const CheckpointTensor& tensor, F8E4M3Fn* codes,
                       float* scales) {
    const int64_t cols = tensor.cols();
    const int64_t step = std::max<int64_t>(1, kScratchElements / cols);
    std::vector<float> host_scales(static_cast<size_t>(step));
    for (int64_t row = 0; row < tensor.rows(); row += step) {
      const int64_t rows = std::min(step, tensor.rows() - row);
      const MatrixView values = Matrix(scratch_.as<float>(), rows, cols);
      LAMINA_RETURN_IF_ERROR(ReadRows(tensor, row, values, host_));
      F8E4M3Fn* const to = codes + row * cols;
      QuantizedOutput out;
      out.codes = Matrix(on_host() ? to : staging_.as<F8E4M3Fn>(), rows, cols);
      out.scales = PerRow(on_host() ? scales + row : host_scales.data());
      out.dynamic = true;
      LAMINA_RETURN_IF_ERROR(Quantize({.x = values, .out = out}, host_));
      if (on_host()) continue;
      LAMINA_RETURN_IF_ERROR(Copy(to, out.codes.data, rows * cols, stream_));
      LAMINA_RETURN_IF_ERROR(
          Copy(scales + row, host_scales.data(), 4 * rows, stream_));
    }
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  Stream stream_;
  Stream host_;     // where values are converted
  Buffer scratch_;  // fp32 rows on their way to FP8
  Buffer staging_;  // rows on their way to a GPU
};

}  // namespace

absl::StatusOr<ModelWeights> LoadWeights(const WeightsPlan& plan,
                                         const Checkpoint& checkpoint,
                                         Stream stream) {
  const ModelConfig& config = plan.config;
  LAMINA_ASSIGN_OR_RETURN(
      CheckpointSource source,
      CheckpointSource::Create(
          checkpoint,
          std::max({config.hidden_dim, config.q_dim(), config.ffn_dim}),
          stream));
  return MakeWeights(plan, source, stream);
}

}  // namespace lamina::transformer_internal
