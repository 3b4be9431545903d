#pragma once

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lamina/core/buffer.h"
#include "lamina/core/stream.h"

namespace lamina {

namespace persistent_internal {
struct ChainArgs;
}  // namespace persistent_internal

// A chain of operators as one kernel that stays on the GPU: while the operators
// wait for one another, the weights of the next projections keep arriving.
//
//   LAMINA_ASSIGN_OR_RETURN(
//       PersistentChain chain,
//       PersistentChain::Make(stream, [&](const Stream& recording) {
//         return block.Decode(args, recording);
//       }));
//   absl::Status status = chain.Run(stream);  // as often as wanted
//
// Results have the bits of the operators' own launches: the same plans, the
// same device functions. Pointers and sizes are those of the recording, as with
// a Graph; Run may be captured into one.
//
// Taken are chains of, in any order and number, with bf16 activations,
//
//   SkinnyGemm        at least one; bf16 or FP8 (E4M3Fn) operands, all of the
//                     same types and rows (8, 16 or 32 at most; bf16 by FP8
//                     weights: 8), by the ring kernels; any epilogue but
//                     dynamic scales
//   RmsNorm, AddRmsNorm   rows of 257 to 8192 columns; y, or codes with a
//                     static scale
//   RopeAppend        rows that can be moved by octets
//   DecodeAttention   head_dim up to 128, up to 64 with 8 rows only; up to 8
//                     query heads a KV head; a bf16 cache; tokens of sequences
//                     of their own
//   Quantize, GatedActivation (SwiGLU)   y, or codes with a static scale
//
// on GPUs of compute capability 9.0. Each stage waits for all of the one before
// it. Movable; must outlive what it has enqueued.
class PersistentChain {
 public:
  // Records what `body` enqueues on the stream it is given; nothing runs.
  // Unimplemented, with the operator that is in the way, for other chains and
  // devices.
  static absl::StatusOr<PersistentChain> Make(
      const Stream& stream,
      absl::FunctionRef<absl::Status(const Stream&)> body);

  // Enqueues one launch of as many blocks as the GPU has units, which it must
  // have free at the same time. Runs of one chain follow each other. A run that
  // cannot go on, which would be a defect, ends with an error after some ten
  // seconds.
  [[nodiscard]] absl::Status Run(const Stream& stream) const;

  // Launches that it takes the place of.
  int64_t stages() const;

 private:
  PersistentChain() = default;

  Buffer memory_;  // the schedule, and what blocks tell each other
  std::shared_ptr<const persistent_internal::ChainArgs> args_;
};

}  // namespace lamina
