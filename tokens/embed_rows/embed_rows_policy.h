#pragma once

#include "lamina/core/dispatch.h"
#include "lamina/core/stream.h"
#include "lamina/tokens/embed_rows.h"

namespace lamina {

// {table, y}.
using EmbedRowsTable =
    Table<Types<float, float>, Types<float, F16>, Types<float, BF16>,
          Types<F16, float>, Types<F16, F16>, Types<F16, BF16>,
          Types<BF16, float>, Types<BF16, F16>, Types<BF16, BF16>>;

namespace tokens_internal {

// Backend. The arguments are valid and there is something to do.
void EmbedRowsCpu(const EmbedRowsArgs& args, const Stream& stream);

}  // namespace tokens_internal
}  // namespace lamina
