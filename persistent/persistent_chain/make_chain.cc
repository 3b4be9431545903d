#include "lamina/persistent/persistent_chain/make_chain.h"

#include <algorithm>
#include <any>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/attention/decode_attention/tensor_attention_args.h"
#include "lamina/attention/rope_append/rope_append_kernel_args.h"
#include "lamina/core/copy.h"
#include "lamina/core/device.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"
#include "lamina/core/status.h"
#include "lamina/norm/lean_norm_args.h"
#include "lamina/persistent/persistent_chain/chain_policy.h"
#include "lamina/quant/lean_rows_args.h"

namespace lamina::persistent_internal {
namespace {

using attention_internal::AttentionKernelArgs;
using attention_internal::FoldSplitsArgs;
using attention_internal::RopeAppendKernelArgs;
using attention_internal::TensorAttentionArgs;
using gemm_internal::RingGemmArgs;
using gemm_internal::RingTypes;
using norm_internal::LeanNormArgs;
using quant_internal::LeanRowsArgs;

constexpr char kOp[] = "PersistentChain";
constexpr int64_t kAlignment = 256;
// A row of a norm, in the registers of a stand-in.
constexpr int kMostNormColumns = 32 * kStandInThreads;
constexpr int64_t kMostRows = attention_internal::kTensorRows;

template <class T>
const T* Get(const gpu::RecordedLaunch& launch) {
  return std::any_cast<T>(&launch.args);
}

class Builder {
 public:
  Builder(const gpu::Recording& recording, const DeviceInfo& device)
      : recording_(recording), device_(device) {}

  absl::Status Build() {
    LAMINA_RETURN_IF_ERROR(FindVariant());
    for (const gpu::RecordedLaunch& launch : recording_.launches) {
      LAMINA_RETURN_IF_ERROR(Add(launch));
    }
    return LayOut();
  }

  absl::StatusOr<std::shared_ptr<const ChainArgs>> Place(const Stream& stream,
                                                         Buffer* memory) {
    int64_t end = 0;
    const auto reserve = [&end](int64_t bytes) {
      const int64_t offset = end;
      end += RoundUp(bytes, kAlignment);
      return offset;
    };
    const auto count = static_cast<int64_t>(stages_.size());
    const int64_t stage_bytes = count * int64_t{sizeof(Stage)};
    const int64_t schedule = reserve(stage_bytes);
    const int64_t counters = reserve(4 * (count + 1 + arrivals_));
    const int64_t partials = reserve(partial_bytes_);
    LAMINA_ASSIGN_OR_RETURN(*memory, Buffer::Allocate(stream.device(), end));
    auto* const base = memory->as<uint8_t>();
    for (const auto& [index, attention] : attentions_) {
      TensorAttentionArgs args = attention;
      args.attention.partials = reinterpret_cast<float*>(base + partials);
      stages_[index].Set(args);
    }
    LAMINA_RETURN_IF_ERROR(
        EnqueueFill(base + counters, 0, partials - counters, stream));
    LAMINA_RETURN_IF_ERROR(
        Copy(base + schedule, stages_.data(), stage_bytes, stream));
    auto args = std::make_shared<ChainArgs>();
    args->variant = variant_;
    args->layout = layout_;
    args->stages = reinterpret_cast<const Stage*>(base + schedule);
    args->count = static_cast<int32_t>(count);
    args->blocks = blocks();
    auto* const counter = reinterpret_cast<uint32_t*>(base + counters);
    args->rounds = counter;
    args->signals = counter + 1;
    args->arrivals = counter + 1 + count;
    return args;
  }

 private:
  int blocks() const { return device_.num_units; }

  // Why a launch is not taken.
  absl::Status Refuse(const char* op, const std::string& what) const {
    return absl::UnimplementedError(
        absl::StrCat(kOp, ": launch ", stages_.size(), ", ", op, ": ", what));
  }

  absl::Status FindVariant() {
    bool found = false;
    for (const gpu::RecordedLaunch& launch : recording_.launches) {
      const auto* const gemm = Get<RingGemmArgs>(launch);
      if (gemm != nullptr && !found) {
        found = true;
        variant_.types = gemm->plan.variant.types;
        variant_.rows = gemm->plan.variant.rows;
      }
      if (const auto* const it = Get<TensorAttentionArgs>(launch)) {
        variant_.dims = DimsOf(*it);
      }
    }
    if (!found) {
      return absl::UnimplementedError(
          absl::StrCat(kOp, ": no SkinnyGemm in the chain that has the ring"));
    }
    if (!HasChainKernel(variant_)) {
      return Refuse("SkinnyGemm",
                    absl::StrCat("no kernel for these types, ", variant_.rows,
                                 " rows and heads of ", variant_.dims));
    }
    return absl::OkStatus();
  }

  absl::Status Add(const gpu::RecordedLaunch& launch) {
    if (const auto* const args = Get<RingGemmArgs>(launch)) {
      return AddGemm(*args);
    }
    if (const auto* const args = Get<LeanNormArgs>(launch)) {
      return AddNorm(*args);
    }
    if (const auto* const args = Get<RopeAppendKernelArgs>(launch)) {
      return AddRopeAppend(*args, launch.shape);
    }
    if (const auto* const args = Get<TensorAttentionArgs>(launch)) {
      return AddAttention(*args, launch.shape);
    }
    if (const auto* const args = Get<LeanRowsArgs>(launch)) {
      return AddRows(*args);
    }
    // What attention's stage does itself.
    if (Get<FoldSplitsArgs>(launch) != nullptr) return absl::OkStatus();
    return Refuse("a kernel", "one that chains do not have");
  }

  template <class T>
  void Append(StageKind kind, const T& args, int64_t blocks_of_launch) {
    Stage stage;
    stage.Set(args);
    stage.kind = kind;
    stage.blocks = static_cast<int32_t>(blocks_of_launch);
    stage.workers =
        static_cast<int32_t>(std::min<int64_t>(blocks_of_launch, blocks()));
    stages_.push_back(stage);
  }

  absl::Status AddGemm(const RingGemmArgs& args) {
    const gemm_internal::RingGemmVariant& variant = args.plan.variant;
    if (variant.types != variant_.types || variant.rows != variant_.rows ||
        variant.block_scales) {
      return Refuse("SkinnyGemm",
                    "types, rows or block scales that others do not have");
    }
    if (args.gemm.epilogue.values != nullptr) {
      return Refuse("SkinnyGemm", "results with dynamic scales");
    }
    gemms_.push_back(stages_.size());
    Append(StageKind::kGemm, args, blocks());
    return absl::OkStatus();
  }

  absl::Status AddNorm(LeanNormArgs args) {
    const LeanOutput output =
        variant_.types == RingTypes::kF8 ? LeanOutput::kStatic : LeanOutput::kY;
    if (args.type != DType::kBF16 || args.output != output ||
        args.cols > kMostNormColumns) {
      return Refuse("RmsNorm",
                    absl::StrCat("bf16 rows of up to ", kMostNormColumns,
                                 " columns to what the GEMMs take, with a "
                                 "static scale, are all it takes"));
    }
    args.lanes = kStandInThreads;
    Append(StageKind::kNorm, args, args.rows);
    return absl::OkStatus();
  }

  absl::Status AddRopeAppend(RopeAppendKernelArgs args,
                             const gpu::LaunchShape& shape) {
    if (args.q.dtype != DType::kBF16 || !args.octets) {
      return Refuse("RopeAppend", "bf16 rows by octets are all it takes");
    }
    const int64_t tokens = shape.blocks / args.blocks.divisor;
    const int64_t units =
        (args.q.rows + args.k.rows + args.v.rows) * args.units.divisor;
    const int64_t blocks_of_token = CeilDiv(units, kStandInThreads);
    args.blocks = MakeFastDivisor(blocks_of_token);
    Append(StageKind::kRopeAppend, args, tokens * blocks_of_token);
    return absl::OkStatus();
  }

  absl::Status AddAttention(TensorAttentionArgs args,
                            const gpu::LaunchShape& shape) {
    const AttentionKernelArgs& attention = args.attention;
    if (attention.q.dtype != DType::kBF16 ||
        attention.cache.dtype != DType::kBF16 || args.run_tokens > 1 ||
        args.group_rows > attention_internal::kFewTensorRows ||
        DimsOf(args) != variant_.dims) {
      return Refuse("DecodeAttention",
                    "bf16 queries and cache, heads of one size, up to 8 "
                    "queries a KV head and tokens of sequences of their own "
                    "are all it takes");
    }
    const int64_t heads = shape.blocks / args.slots.divisor;  // of all tokens
    const int64_t slots = ContextSlots(heads, args.max_splits, blocks());
    args.cluster_blocks = 1;
    args.slice_shift = variant_.dims == 64 ? 6 : 7;
    args.stages = 1;
    args.run_ahead = false;
    args.prefetch_rows = slots == args.max_splits ? kPrefetchRows : 0;
    args.slots = MakeFastDivisor(slots);
    if (slots > 1) {
      const int64_t tokens = args.last_token - attention.first_token;
      arrivals_ = std::max(arrivals_, heads);
      partial_bytes_ = std::max(
          partial_bytes_, tokens * attention.q.rows * args.max_splits *
                              attention_internal::SplitSize(attention.q.cols) *
                              int64_t{sizeof(float)});
    }
    attention_bytes_ =
        std::max(attention_bytes_,
                 attention_internal::TensorLayoutOf(
                     {.dims = variant_.dims,
                      .rows = args.group_rows,
                      .run_ahead = false,
                      .received_splits = slots == 1 ? args.max_splits : 0,
                      .received_columns = slots == 1 ? variant_.dims : 0})
                     .bytes);
    attentions_.emplace_back(stages_.size(), args);
    Append(StageKind::kAttention, args, heads * slots);
    return absl::OkStatus();
  }
  static int DimsOf(const TensorAttentionArgs& args) {
    return args.attention.q.cols <= 64 ? 64 : 128;
  }

  absl::Status AddRows(LeanRowsArgs args) {
    const bool gated = args.up != nullptr;
    if (args.type != DType::kBF16 ||
        (args.output != LeanOutput::kStatic &&
         !(gated && args.output == LeanOutput::kY))) {
      return Refuse("Quantize or GatedActivation",
                    "bf16 to codes with a static scale, or SwiGLU to bf16, is "
                    "all it takes");
    }
    if (QuantizesAttention(args)) {
      stages_.back().quantizes = true;
      stages_.back().Set(args, kSecondArgs);
      return absl::OkStatus();
    }
    args.blocks_log2 = RowBlocksLog2(args.cols);
    args.blocks_mask = (1u << args.blocks_log2) - 1;
    Append(StageKind::kRows, args, int64_t{args.rows} << args.blocks_log2);
    return absl::OkStatus();
  }

  // Whether it is the results of the stage before, attention's, that it
  // quantizes: the block that has them does it at once.
  bool QuantizesAttention(const LeanRowsArgs& args) const {
    static_assert(sizeof(TensorAttentionArgs) <= kSecondArgs);
    static_assert(kSecondArgs + sizeof(LeanRowsArgs) <= kStageArgsBytes);
    if (args.up != nullptr || attentions_.empty() || stages_.empty() ||
        stages_.back().kind != StageKind::kAttention ||
        stages_.back().quantizes) {
      return false;
    }
    const TensorAttentionArgs& attention = attentions_.back().second;
    const MatrixView& y = attention.attention.y;
    // NOTE: many tokens are several launches.
    return attention.attention.first_token == 0 &&
           attention.last_token == y.batch && args.x == y.data &&
           args.cols == y.rows * y.cols && y.row_stride == y.cols &&
           y.batch == args.rows &&
           args.x_pitch == y.batch_stride * int64_t{sizeof(BF16)} &&
           y.cols % 8 == 0 && y.cols * kMostRows <= kStandInThreads * 8;
  }

  // Stages of w as small as the GEMMs allow: more of them keep the share of
  // each block even. What cannot be cut further says how small.
  absl::Status LayOut() {
    constexpr int kLeastStageBytes = 16 << 10;
    constexpr int kMostStageBytes = 64 << 10;
    constexpr int kStep = 1 << 10;
    const int work = static_cast<int>(attention_bytes_);
    for (int bytes = kLeastStageBytes; bytes <= kMostStageBytes;
         bytes += kStep) {
      if (!Fits(bytes)) continue;
      const std::optional<ChainLayout> layout =
          LayoutFor(variant_, bytes, work, device_.shared_memory_bytes);
      if (!layout.has_value()) break;
      layout_ = *layout;
      for (const std::size_t index : gemms_) {
        const RingGemmArgs args = stages_[index].As<RingGemmArgs>();
        const ChainSplit split = *SplitOf(args, blocks(), bytes);
        stages_[index].Set(GemmStage(args, split, layout_, variant_, bytes));
        stages_[index].workers = split.blocks;
      }
      return absl::OkStatus();
    }
    return absl::UnimplementedError(absl::StrCat(
        kOp, ": a SkinnyGemm has more columns than blocks can share"));
  }
  bool Fits(int stage_bytes) const {
    return std::all_of(gemms_.begin(), gemms_.end(), [&](std::size_t index) {
      return SplitOf(stages_[index].As<RingGemmArgs>(), blocks(), stage_bytes)
          .has_value();
    });
  }

  const gpu::Recording& recording_;
  const DeviceInfo& device_;
  ChainVariant variant_;
  ChainLayout layout_;
  std::vector<Stage> stages_;
  std::vector<std::size_t> gemms_;
  std::vector<std::pair<std::size_t, TensorAttentionArgs>> attentions_;
  int64_t attention_bytes_ = 0;
  int64_t arrivals_ = 0;
  int64_t partial_bytes_ = 0;
};

}  // namespace

// NOTE: code for sm_90a runs on devices of compute capability 9.0 alone.
bool HasChains(const Stream& stream) {
  if (stream.device().backend != Backend::kCuda) return false;
  const std::string& arch = GetDeviceInfo(stream.device()).arch;
  return arch == "sm_90" || arch == "simt";
}

absl::StatusOr<std::shared_ptr<const ChainArgs>> MakeChain(
    const gpu::Recording& recording, const Stream& stream, Buffer* memory) {
  Builder builder(recording, GetDeviceInfo(stream.device()));
  LAMINA_RETURN_IF_ERROR(builder.Build());
  return builder.Place(stream, memory);
}

absl::Status RunChain(const ChainArgs& args, const Stream& stream) {
  const gpu::LaunchTarget target = TargetOf(stream.WithOverlap(false));
  switch (args.variant.types) {
    case RingTypes::kF8:
      return ToStatus(kOp, LaunchChainF8(args, target));
    case RingTypes::kBF16:
      return ToStatus(kOp, LaunchChainBF16(args, target));
    case RingTypes::kF8BF16:
      return ToStatus(kOp, LaunchChainF8BF16(args, target));
    case RingTypes::kF16:
      break;
  }
  return ToStatus(kOp, gpu::kNoKernel);
}

}  // namespace lamina::persistent_internal
