#pragma once

// The benchmark cases of each operator, from bench/<library>/<op>_bench.cc.

#include <vector>

#include "bench/support/harness.h"

namespace lamina::bench {

std::vector<Case> ReduceRowsCases();
std::vector<Case> QuantizeCases();
std::vector<Case> RmsNormCases();
std::vector<Case> AddRmsNormCases();
std::vector<Case> GatedActivationCases();
std::vector<Case> SkinnyGemmCases();
std::vector<Case> DecodeAttentionCases();

// All of them, in the order of the libraries.
std::vector<Case> AllCases();

}  // namespace lamina::bench
