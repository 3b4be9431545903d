#pragma once

#include <array>

#include "absl/status/status.h"
#include "lamina/core/dispatch.h"
#include "lamina/core/dtype.h"
#include "lamina/quant/convert_fp8_dialect.h"

namespace lamina::quant_internal {

// codes, out_codes.
using ConvertFp8DialectTable =
    Table<Types<F8E4M3Fn, F8E4M3Fnuz>, Types<F8E4M3Fnuz, F8E4M3Fn>,
          Types<F8E5M2, F8E5M2Fnuz>, Types<F8E5M2Fnuz, F8E5M2>,
          Types<F8E4M3Fn, F8E4M3Fn>, Types<F8E4M3Fnuz, F8E4M3Fnuz>,
          Types<F8E5M2, F8E5M2>, Types<F8E5M2Fnuz, F8E5M2Fnuz>>;

struct Fp8FormatPair {
  Fp8Format from;
  Fp8Format to;
};
// The formats of checked arguments.
inline Fp8FormatPair FormatsOf(const ConvertFp8DialectArgs& args) {
  Fp8FormatPair formats{};
  Dispatch(ConvertFp8DialectTable{},
           std::array{args.codes.dtype, args.out_codes.dtype},
           [&]<class From, class To>(Types<From, To>) {
             formats = {Fp8FormatOf<From>::value, Fp8FormatOf<To>::value};
           });
  return formats;
}

// Backends; the arguments have been checked.
void ConvertFp8DialectCpu(const ConvertFp8DialectArgs& args,
                          const Stream& stream);
absl::Status ConvertFp8DialectGpu(const ConvertFp8DialectArgs& args,
                                  const Stream& stream);

}  // namespace lamina::quant_internal
