#include "bench/cases.h"

#include <utility>

namespace lamina::bench {

std::vector<Case> AllCases(Backend backend) {
  std::vector<Case> all;
  for (const auto& cases :
       {ReduceRowsCases, QuantizeCases, RmsNormCases, AddRmsNormCases,
        GatedActivationCases, SkinnyGemmCases, DecodeAttentionCases}) {
    for (Case& c : cases(backend)) all.push_back(std::move(c));
  }
  return all;
}

}  // namespace lamina::bench
