#pragma once

// The benchmark cases of each operator, from bench/<library>/<op>_bench.cc:
// those of a decoder's shapes for the CPU, those of the performance tables for
// a GPU (none where an operator has no kernels for it).

#include <vector>

#include "bench/support/harness.h"
#include "lamina/core/device.h"

namespace lamina::bench {

std::vector<Case> ReduceRowsCases(Backend backend);
std::vector<Case> QuantizeCases(Backend backend);
std::vector<Case> RmsNormCases(Backend backend);
std::vector<Case> AddRmsNormCases(Backend backend);
std::vector<Case> GatedActivationCases(Backend backend);
std::vector<Case> SkinnyGemmCases(Backend backend);
std::vector<Case> DecodeAttentionCases(Backend backend);

// All of them, in the order of the libraries.
std::vector<Case> AllCases(Backend backend);

}  // namespace lamina::bench
