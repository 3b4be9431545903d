// lamina_bench [--op NAME] [--json FILE] [--threads N] [--repeats N]

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/cases.h"

int main(int argc, char** argv) {
  lamina::bench::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (value != nullptr && flag == "--op") {
      options.op = value;
    } else if (value != nullptr && flag == "--json") {
      options.json = value;
    } else if (value != nullptr && flag == "--threads") {
      options.threads = std::atoi(value);
    } else if (value != nullptr && flag == "--repeats") {
      options.repeats = std::atoi(value);
    } else {
      std::fputs(
          "usage: lamina_bench [--op NAME] [--json FILE] [--threads N] "
          "[--repeats N]\n",
          stderr);
      return 2;
    }
  }
  return lamina::bench::RunCases(lamina::bench::AllCases(), options) ? 0 : 1;
}
