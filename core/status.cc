#include "lamina/core/status.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "lamina/core/device/built_backends.h"
#include "lamina/core/device/runtime.h"
#include "lamina/core/math.h"

namespace lamina {
namespace {

absl::Status Shape(const char* op, const char* argument, const char* field,
                   int64_t given, int64_t want) {
  return InvalidArgument(op, absl::StrCat(argument, ".", field).c_str(), given,
                         absl::StrCat(want));
}

// First and one-past-last byte that the view can touch.
struct ByteRange {
  uintptr_t begin;
  uintptr_t end;
};

ByteRange RangeOf(const ConstMatrixView& view) {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(view.data);
  if (view.rows == 0 || view.cols == 0 || view.batch == 0) {
    return {begin, begin};
  }
  const int64_t last = (view.batch - 1) * view.batch_stride * (view.batch > 1) +
                       (view.rows - 1) * view.row_stride * (view.rows > 1) +
                       view.cols;
  return {begin, begin + static_cast<uintptr_t>(BytesFor(view.dtype, last))};
}

// Modulo `pitch` bytes, every byte of the view lies in [0, width) from
// view.data. Returns that width; a larger one than the pitch says nothing.
int64_t WidthModulo(const ConstMatrixView& view, int64_t pitch) {
  int64_t width = BytesFor(view.dtype, view.cols);
  const auto add = [&](int64_t size, int64_t stride) {
    const int64_t bytes = BytesFor(view.dtype, stride);
    if (size > 1 && bytes % pitch != 0) width += (size - 1) * bytes;
  };
  add(view.rows, view.row_stride);
  add(view.batch, view.batch_stride);
  return width;
}

// True when some pitch shows that the views touch different bytes: columns of
// one matrix, heads of one token, interleaved rows.
bool Interleaved(const ConstMatrixView& a, const ConstMatrixView& b) {
  if (BitsOf(a.dtype) < 8 || BitsOf(b.dtype) < 8) return false;
  const int64_t offset =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(b.data) -
                           reinterpret_cast<uintptr_t>(a.data));
  const auto apart = [&](int64_t size, int64_t stride, DType dtype) {
    const int64_t pitch = BytesFor(dtype, stride);
    if (size <= 1 || pitch <= 0) return false;
    const int64_t phase = ((offset % pitch) + pitch) % pitch;
    return phase >= WidthModulo(a, pitch) &&
           WidthModulo(b, pitch) <= pitch - phase;
  };
  return apart(a.rows, a.row_stride, a.dtype) ||
         apart(a.batch, a.batch_stride, a.dtype) ||
         apart(b.rows, b.row_stride, b.dtype) ||
         apart(b.batch, b.batch_stride, b.dtype);
}

}  // namespace

absl::Status InvalidArgument(const char* op, const char* argument,
                             const std::string& given,
                             const std::string& want) {
  return absl::InvalidArgumentError(
      absl::StrCat(op, ": ", argument, ": given ", given, ", want ", want));
}

absl::Status InvalidArgument(const char* op, const char* argument,
                             int64_t given, const std::string& want) {
  return InvalidArgument(op, argument, absl::StrCat(given), want);
}

absl::Status CheckMatrix(const char* op, const char* argument,
                         const ConstMatrixView& view) {
  const auto field = [&](const char* name) {
    return absl::StrCat(argument, ".", name);
  };
  if (static_cast<int>(view.dtype) >= kNumDTypes) {
    return InvalidArgument(op, field("dtype").c_str(),
                           static_cast<int64_t>(view.dtype), "a DType");
  }
  if (view.rows < 0) {
    return InvalidArgument(op, field("rows").c_str(), view.rows, ">= 0");
  }
  if (view.cols < 0) {
    return InvalidArgument(op, field("cols").c_str(), view.cols, ">= 0");
  }
  if (view.batch < 0) {
    return InvalidArgument(op, field("batch").c_str(), view.batch, ">= 0");
  }
  if (view.rows == 0 || view.cols == 0 || view.batch == 0) {
    return absl::OkStatus();
  }
  if (view.data == nullptr) {
    return InvalidArgument(op, field("data").c_str(), std::string("null"),
                           "a pointer");
  }
  if (view.rows > 1 && view.row_stride < view.cols) {
    return InvalidArgument(op, field("row_stride").c_str(), view.row_stride,
                           absl::StrCat(">= ", view.cols, " (cols)"));
  }
  // Extents in elements, checked before they are multiplied.
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 16;
  if (view.cols > kMax) {
    return InvalidArgument(op, field("cols").c_str(), view.cols,
                           "an extent that fits 64 bits");
  }
  const int64_t row_stride = view.rows > 1 ? view.row_stride : 0;
  if (row_stride > 0 && view.rows - 1 > (kMax - view.cols) / row_stride) {
    return InvalidArgument(op, argument, std::string("rows * row_stride"),
                           "an extent that fits 64 bits");
  }
  const int64_t matrix = (view.rows - 1) * row_stride + view.cols;
  if (view.batch > 1) {
    // One matrix after the other, or, as the heads of [tokens, heads, dim]
    // seen as [heads, tokens, dim], side by side within a row pitch.
    const bool in_sequence = view.batch_stride >= matrix;
    const bool side_by_side =
        view.rows > 1 && view.batch_stride >= view.cols &&
        (view.row_stride - view.cols) / view.batch_stride >= view.batch - 1;
    if (!in_sequence && !side_by_side) {
      return InvalidArgument(
          op, field("batch_stride").c_str(), view.batch_stride,
          absl::StrCat(">= ", matrix, " (one matrix), or matrices ",
                       "side by side within a row pitch"));
    }
    if (view.batch - 1 > (kMax - matrix) / view.batch_stride) {
      return InvalidArgument(op, argument, std::string("batch * batch_stride"),
                             "an extent that fits 64 bits");
    }
  }
  const int64_t align = BitsOf(view.dtype) >= 8 ? BitsOf(view.dtype) / 8 : 1;
  if (reinterpret_cast<uintptr_t>(view.data) % align != 0) {
    return InvalidArgument(op, field("data").c_str(),
                           std::string("a misaligned pointer"),
                           absl::StrCat("alignment of one ", Name(view.dtype),
                                        " (", align, " bytes)"));
  }
  return absl::OkStatus();
}

absl::Status CheckVector(const char* op, const char* argument,
                         const ConstVectorView& view, int64_t size) {
  if (view.size != size) return Shape(op, argument, "size", view.size, size);
  return CheckMatrix(op, argument,
                     ConstMatrixView{.data = view.data,
                                     .dtype = view.dtype,
                                     .rows = 1,
                                     .cols = view.size,
                                     .row_stride = view.size});
}

absl::Status CheckShape(const char* op, const char* argument,
                        const ConstMatrixView& view, int64_t batch,
                        int64_t rows, int64_t cols) {
  if (view.batch != batch) {
    return Shape(op, argument, "batch", view.batch, batch);
  }
  if (view.rows != rows) return Shape(op, argument, "rows", view.rows, rows);
  if (view.cols != cols) return Shape(op, argument, "cols", view.cols, cols);
  return CheckMatrix(op, argument, view);
}

absl::Status CheckDType(const char* op, const char* argument, DType given,
                        DType want) {
  if (given == want) return absl::OkStatus();
  return InvalidArgument(op, absl::StrCat(argument, ".dtype").c_str(),
                         std::string(Name(given)), Name(want));
}

absl::Status CheckOverlap(const char* op, const char* out_name,
                          const ConstMatrixView& out, const char* in_name,
                          const ConstMatrixView& in, bool in_place_ok) {
  const ByteRange a = RangeOf(out);
  const ByteRange b = RangeOf(in);
  if (a.begin == a.end || b.begin == b.end) return absl::OkStatus();
  if (a.end <= b.begin || b.end <= a.begin) return absl::OkStatus();
  const bool same =
      out.data == in.data && BitsOf(out.dtype) == BitsOf(in.dtype) &&
      out.rows == in.rows && out.cols == in.cols && out.batch == in.batch &&
      (out.rows <= 1 || out.row_stride == in.row_stride) &&
      (out.batch <= 1 || out.batch_stride == in.batch_stride);
  if (same && in_place_ok) return absl::OkStatus();
  if (!same && Interleaved(out, in)) return absl::OkStatus();
  return InvalidArgument(
      op, out_name, absl::StrCat("memory that overlaps ", in_name),
      in_place_ok ? absl::StrCat("the very view of ", in_name,
                                 " (in place) or other memory")
                  : std::string("other memory"));
}

absl::Status CheckNoByteOverlap(const char* op, const char* a_name,
                                const void* a, int64_t a_bytes,
                                const char* b_name, const void* b,
                                int64_t b_bytes) {
  const uintptr_t a_begin = reinterpret_cast<uintptr_t>(a);
  const uintptr_t b_begin = reinterpret_cast<uintptr_t>(b);
  if (a_bytes <= 0 || b_bytes <= 0 || a == nullptr || b == nullptr ||
      a_begin + a_bytes <= b_begin || b_begin + b_bytes <= a_begin) {
    return absl::OkStatus();
  }
  return InvalidArgument(op, a_name,
                         absl::StrCat("memory that overlaps ", b_name),
                         "other memory");
}

absl::Status CheckGateSpec(const char* op, const char* argument,
                           const GateSpec& spec) {
  const auto error = [&](const char* field, const std::string& given,
                         const char* want) {
    return InvalidArgument(op, absl::StrCat(argument, ".", field).c_str(),
                           given, want);
  };
  if (static_cast<int>(spec.kind) >= kNumActivationKinds) {
    return error("kind", absl::StrCat(static_cast<int>(spec.kind)),
                 "an ActivationKind");
  }
  if (static_cast<int>(spec.layout) >= kNumGateLayouts) {
    return error("layout", absl::StrCat(static_cast<int>(spec.layout)),
                 "a GateLayout");
  }
  if (!spec.clamped) return absl::OkStatus();
  if (!std::isfinite(spec.alpha)) {
    return error("alpha", absl::StrCat(spec.alpha), "a finite number");
  }
  if (!(spec.limit >= 0)) {
    return error("limit", absl::StrCat(spec.limit), ">= 0 (0: no clamp)");
  }
  if (!std::isfinite(spec.up_offset)) {
    return error("up_offset", absl::StrCat(spec.up_offset), "a finite number");
  }
  return absl::OkStatus();
}

absl::Status CheckDevice(const char* op, const char* argument, Device device) {
  if (device.backend == Backend::kCpu) return absl::OkStatus();
  const char* const backend = Name(device.backend);
  if (!IsBuilt(device.backend)) {
    return absl::UnimplementedError(
        absl::StrCat(op, ": ", argument, ": this build has no ", backend,
                     " backend; built backends: ", kBuiltBackends));
  }
  if (!GetDeviceInfo(device).name.empty()) return absl::OkStatus();
  if constexpr (kHasGpu) {
    const std::string none = absl::StrCat(op, ": ", argument, ": no ", backend,
                                          " device on this machine");
    LAMINA_RETURN_IF_ERROR(ToStatus(none.c_str(), gpu_runtime::DeviceError()));
  }
  return InvalidArgument(op, absl::StrCat(argument, ".index").c_str(),
                         device.index,
                         absl::StrCat("the index of a ", backend, " device"));
}

absl::Status CheckStream(const char* op, const Stream& stream) {
  return CheckDevice(op, "stream", stream.device());
}

absl::Status CheckCpuStream(const char* op, const Stream& stream) {
  if (stream.device().backend == Backend::kCpu) return absl::OkStatus();
  LAMINA_RETURN_IF_ERROR(CheckStream(op, stream));
  return absl::UnimplementedError(absl::StrCat(
      op, ": stream: no ", Name(stream.device().backend),
      " kernels for this operator in this version; it runs on: cpu"));
}

}  // namespace lamina
