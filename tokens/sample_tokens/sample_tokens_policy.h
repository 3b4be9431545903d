#pragma once

#include "lamina/core/dispatch.h"
#include "lamina/core/stream.h"
#include "lamina/tokens/sample_tokens.h"
#include "lamina/tokens/sample_tokens/sample_tokens_args.h"

namespace lamina {

// {logits}.
using SampleTokensTable = Table<Types<float>, Types<F16>, Types<BF16>>;

namespace tokens_internal {

// Backend. The arguments are valid and there is something to do.
void SampleTokensCpu(const SampleTokensKernelArgs& args, const Stream& stream);

}  // namespace tokens_internal
}  // namespace lamina
