#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::testing::CheckContents(lamina::model_internal::ReadGgufCheckpoint(
      lamina::testing::FuzzedFile(data, size)));
  return 0;
}
