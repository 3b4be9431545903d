// Prints docs/support.md from the typed tables of the operators.

#include <cstdio>
#include <string>
#include <vector>

#include "lamina/activation/activation/activation_policy.h"
#include "lamina/activation/gated_activation/gated_activation_policy.h"
#include "lamina/attention/decode_attention/decode_attention_policy.h"
#include "lamina/attention/kv_cache/kv_cache_policy.h"
#include "lamina/attention/rope/rope_policy.h"
#include "lamina/core/dispatch.h"
#include "lamina/gemm/skinny_gemm/skinny_gemm_policy.h"
#include "lamina/norm/add_rms_norm/add_rms_norm_policy.h"
#include "lamina/norm/layer_norm/layer_norm_policy.h"
#include "lamina/norm/rms_norm/rms_norm_policy.h"
#include "lamina/quant/convert_fp8_dialect/convert_fp8_dialect_policy.h"
#include "lamina/quant/dequantize/dequantize_policy.h"
#include "lamina/quant/quantize/quantize_policy.h"
#include "lamina/quant/scale.h"
#include "lamina/reduce/reduce_rows/reduce_rows_policy.h"
#include "lamina/tokens/embed_rows/embed_rows_policy.h"
#include "lamina/tokens/sample_tokens/sample_tokens_policy.h"

namespace lamina {
namespace {

using Names = std::vector<std::string>;

// Table rows whose types differ in the last column only become one line.
template <class... Row>
std::vector<Names> Lines(Table<Row...> table) {
  std::vector<Names> lines;
  ForEachRow(table, [&]<class Types>(Types) {
    Names names;
    for (const DType type : Types::kKey) names.emplace_back(Name(type));
    const Names head(names.begin(), names.end() - 1);
    if (!lines.empty() &&
        head == Names(lines.back().begin(), lines.back().end() - 1)) {
      lines.back().back() += ", " + names.back();
    } else {
      lines.push_back(std::move(names));
    }
  });
  return lines;
}

std::string Cells(const Names& names) {
  std::string line = "|";
  for (const std::string& name : names) line += " " + name + " |";
  return line + "\n";
}

// One operator: a column for each argument, then the lines of its table.
template <class T>
void Section(const char* op, const Names& arguments, T table,
             const char* remark = "") {
  std::string text = std::string("\n## ") + op + "\n\n" + Cells(arguments);
  text += Cells(Names(arguments.size(), "---"));
  for (const Names& line : Lines(table)) text += Cells(line);
  if (*remark != 0) text += std::string("\n") + remark + "\n";
  std::fputs(text.c_str(), stdout);
}

constexpr const char* kQuantised =
    "Each also with a quantised output, of every type below \"Codes\".";

void WriteDocument() {
  std::puts(
      "# Supported element types\n"
      "\n"
      "Written by `scripts/update_support_table` from the operators' typed "
      "tables; a\n"
      "test compares. Each line is supported by the CPU backend, on every SIMD "
      "target,\n"
      "and by the GPU backends.");
  Section("ReduceRows", {"x", "y"}, ReduceRowsTable{});
  Section("ReduceRows, index of the maximum", {"x", "y"}, ArgMaxRowsTable{});
  Section("Codes", {"quantised output"}, CodeTable{});
  Section("Quantize", {"x", "codes"}, quant_internal::QuantizeTable{});
  Section("Dequantize", {"codes", "y"}, quant_internal::DequantizeTable{});
  Section("ConvertFp8Dialect", {"codes", "converted codes"},
          quant_internal::ConvertFp8DialectTable{});
  Section("RmsNorm", {"x and y", "weight"}, RmsNormTable{}, kQuantised);
  Section("AddRmsNorm", {"x, residual and y", "weight"}, AddRmsNormTable{},
          kQuantised);
  Section("LayerNorm", {"x and y", "weight and bias"}, LayerNormTable{},
          kQuantised);
  Section("Activation", {"x and y"}, ActivationTable{}, kQuantised);
  Section("GatedActivation", {"x and y"}, GatedActivationTable{}, kQuantised);
  Section("SkinnyGemm, activations", {"x"}, gemm_internal::XTable{});
  Section("SkinnyGemm, weights", {"w"}, gemm_internal::WTable{});
  Section("SkinnyGemm, results", {"y"}, gemm_internal::YTable{},
          "Every combination of the three. Each also with a quantised output, "
          "of every\ntype below \"Codes\".");
  Section("Rope", {"x and y"}, RopeTable{});
  Section("RopeAppend", {"q, k and v"}, RopeTable{},
          "Into a cache of every type below \"KV cache\".");
  Section("KvAppend", {"keys and values"}, KvAppendTable{},
          "Into a cache of every type below \"KV cache\".");
  Section("KV cache", {"cache"}, KvCacheTable{});
  Section("DecodeAttention", {"queries and output"}, DecodeAttentionTable{},
          "From a cache of every type below \"KV cache\".");
  Section("EmbedRows", {"table", "y"}, EmbedRowsTable{});
  Section("SampleTokens", {"logits"}, SampleTokensTable{});
}

}  // namespace
}  // namespace lamina

int main() { lamina::WriteDocument(); }
