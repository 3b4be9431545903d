#pragma once

// Products of small matrices on the tensor cores, fp32 sums. Part of the
// vocabulary of core/device/intrinsics.cuh; HIP has none of it.
//
// A warpgroup is four waves, the first of which has a number divisible by 4.
// Lane l of its wave w holds, of the result d[64, kN], in d[4 * i + 2 * h + j]
// row 16 * w + l / 4 + 8 * h and column 8 * i + 2 * (l % 4) + j.
//
// Operands     in shared memory, rows of 32 bytes (32 values of F8E4M3Fn, 16 of
//              BF16 or F16) along K, named by a descriptor. Further along K:
//              descriptor + bytes / 16, within the 128 bytes of a row.
//              SwizzledTile(shared): rows of 128 bytes, groups of 8 rows 1024
//              bytes apart; the 16-byte column c of row r lies at column
//              c ^ (r % 8). `shared` is a multiple of 1024.
//              PlainTile(shared, column_bytes, group_bytes): the 16-byte column
//              c of row r lies at (r % 8) * 16 + r / 8 * group_bytes +
//              c * column_bytes; columns may overlap
// Products     WarpgroupMma<T, kN>(d, a, b, accumulate): d = a * b^T, plus d;
//              a has 64 rows, b has kN: 8, 16, 32 or 64.
//              WarpgroupMmaFromRegisters: a[i] holds 4 bytes along K: of row
//              16 * w + l / 4 + 8 * (i % 2), from byte 4 * (l % 4) + 16 * (i /
//              2)
// Their order  WarpgroupFence before the first product and after other uses of
//              registers that products use; WarpgroupCommit closes a group;
//              WarpgroupWait<kPending>: until at most so many groups are under
//              way. Until then d must not be touched and operands not change.
//              Settle(d[i]) after the wait keeps the compiler from moving it
// One wave     WaveMma<T>(d, a, b): d[16, 8] += a[16, 16] * b[8, 16]^T of BF16
//              or F16. a as above, with w = 0; b[i] holds 4 bytes of row l / 4,
//              from byte 4 * (l % 4) + 16 * i; d as above
//              LoadMatrices(r, row): four 8 x 8 matrices of 16-bit values from
//              shared memory; lane l names row l % 8 of matrix l / 8, 16 bytes,
//              and gets, of matrix i in r[i], the 4 bytes of row l / 4 from
//              byte 4 * (l % 4). LoadMatricesTransposed: the two values of
//              column l / 4 in rows 2 * (l % 4) and the next one.
//              TransposeMatrix(r): the one matrix that the lanes hold so,
//              transposed
// Compiled     kHasWaveMma: the functions of one wave are there;
//              kHasWgmma: warpgroups' products run on this pass's architecture.
//              Where they do not they stop the kernel.
//
// NOTE: the sums of FP8 products have about 14 bits on sm_90 (DeepSeek-V3, 3.3;
// measured): add them up in fp32 registers every 128 of K.

#if defined(LAMINA_SIMT)
#include "lamina/core/device/simt/matrix.cuh"
#elif defined(__HIP__)
namespace lamina::gpu {
inline constexpr bool kHasWaveMma = false;
inline constexpr bool kHasWgmma = false;
}  // namespace lamina::gpu
#else
#include "lamina/core/device/cuda/matrix.cuh"
#endif
