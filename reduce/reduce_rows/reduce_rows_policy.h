#pragma once

#include "lamina/core/dispatch.h"
#include "lamina/core/stream.h"
#include "lamina/reduce/reduce_rows.h"

namespace lamina {

// {x, y}.
using ReduceRowsTable =
    Table<Types<float, float>, Types<F16, float>, Types<BF16, float>>;
using ArgMaxRowsTable =
    Table<Types<float, int64_t>, Types<F16, int64_t>, Types<BF16, int64_t>>;

namespace reduce_internal {

// Backends. The arguments are valid and there is something to do.
void ReduceRowsCpu(const ReduceRowsArgs& args, const Stream& stream);

}  // namespace reduce_internal
}  // namespace lamina
