#pragma once

// How operators report errors: absl::Status whose message names the operator,
// the argument, what was given and what is wanted, e.g.
//   "RmsNorm: y.cols: given 64, want 128 (x.cols)".

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/device.h"
#include "lamina/core/gate.h"
#include "lamina/core/stream.h"
#include "lamina/core/views.h"

// Two of the project's three macros.
#define LAMINA_RETURN_IF_ERROR(expression)           \
  do {                                               \
    absl::Status lamina_status_ = (expression);      \
    if (!lamina_status_.ok()) return lamina_status_; \
  } while (false)

#define LAMINA_CONCAT_INNER_(a, b) a##b
#define LAMINA_CONCAT_(a, b) LAMINA_CONCAT_INNER_(a, b)
#define LAMINA_ASSIGN_OR_RETURN(declaration, expression)              \
  LAMINA_ASSIGN_OR_RETURN_IMPL_(LAMINA_CONCAT_(lamina_or_, __LINE__), \
                                declaration, expression)
#define LAMINA_ASSIGN_OR_RETURN_IMPL_(temporary, declaration, expression) \
  auto temporary = (expression);                                          \
  if (!temporary.ok()) return std::move(temporary).status();              \
  declaration = *std::move(temporary)

namespace lamina {

// InvalidArgument "op: argument: given …, want …".
absl::Status InvalidArgument(const char* op, const char* argument,
                             const std::string& given, const std::string& want);
absl::Status InvalidArgument(const char* op, const char* argument,
                             int64_t given, const std::string& want);

// Checks that the view can be addressed and that its elements are distinct:
//   rows, cols, batch >= 0; nothing more when one of them is 0;
//   data not null, aligned to one element;
//   row_stride >= cols                       (rows > 1);
//   the matrices of a batch lie one after the other (batch_stride >= extent of
//   one matrix) or side by side within a row pitch, as the heads of
//   [tokens, heads, head_dim] do when seen as [heads, tokens, head_dim]
//                                            (batch > 1);
//   every element's byte offset fits int64.
// Strides of dimensions of size 1 are not read.
absl::Status CheckMatrix(const char* op, const char* argument,
                         const ConstMatrixView& view);
// The same for a vector, whose size must be `size`.
absl::Status CheckVector(const char* op, const char* argument,
                         const ConstVectorView& view, int64_t size);
// As CheckMatrix, and the shape equals [batch, rows, cols].
absl::Status CheckShape(const char* op, const char* argument,
                        const ConstMatrixView& view, int64_t batch,
                        int64_t rows, int64_t cols);
absl::Status CheckDType(const char* op, const char* argument, DType given,
                        DType want);

// An error when the bytes of `out` and `in` overlap, unless both are the very
// same view (same data, element size, strides) and `in_place_ok`. Gaps between
// rows count as not touched: two column ranges of one matrix, or the query and
// key heads of one QKV matrix, do not overlap. Views that no common pitch
// tells apart count as overlapping. Both have been checked by CheckMatrix.
absl::Status CheckOverlap(const char* op, const char* out_name,
                          const ConstMatrixView& out, const char* in_name,
                          const ConstMatrixView& in, bool in_place_ok);
// The same for flat memory (vectors, scales, workspaces).
absl::Status CheckNoByteOverlap(const char* op, const char* a_name,
                                const void* a, int64_t a_bytes,
                                const char* b_name, const void* b,
                                int64_t b_bytes);

// Kind and layout are enumerators; alpha and up_offset are finite and limit is
// >= 0 when they are used.
absl::Status CheckGateSpec(const char* op, const char* argument,
                           const GateSpec& spec);

// Unimplemented when this build does not have the device's backend, Unavailable
// with the vendor's reason when the machine has no such device at all,
// InvalidArgument when it has others only.
absl::Status CheckDevice(const char* op, const char* argument, Device device);
// The same for an operator with GPU kernels.
absl::Status CheckStream(const char* op, const Stream& stream);
// For an operator without them: Unimplemented for any GPU.
absl::Status CheckCpuStream(const char* op, const Stream& stream);

}  // namespace lamina
