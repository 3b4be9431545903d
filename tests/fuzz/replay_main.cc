// Runs a fuzz target over a corpus and over mutations of it, without libFuzzer.
//
//   replay DIRECTORY [ROUNDS [SEED]]
//
// The same rounds and seed give the same inputs. Before a mutated input runs it
// is written to crash-input in the working directory when KEEP_INPUT is set, so
// that what crashed can be had.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  size_t Below(size_t bound) { return bound == 0 ? 0 : Bits() % bound; }

 private:
  uint64_t state_;
};

void Mutate(Bytes& bytes, const std::vector<Bytes>& corpus, Random& random) {
  constexpr uint64_t kNasty[] = {0,
                                 1,
                                 0x7f,
                                 0xff,
                                 0x7fff,
                                 0xffff,
                                 0x7fffffff,
                                 0xffffffff,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 62,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0}};
  const size_t at = random.Below(bytes.size());
  switch (random.Below(7)) {
    case 0:  // flip a bit
      if (!bytes.empty()) {
        bytes[at] ^= static_cast<uint8_t>(1u << random.Below(8));
      }
      break;
    case 1:  // any byte
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(random.Bits());
      break;
    case 2: {  // an integer that breaks arithmetic
      const uint64_t value = kNasty[random.Below(std::size(kNasty))];
      const size_t width = size_t{1} << random.Below(4);
      for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
        bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
      }
      break;
    }
    case 3:  // cut off the end
      bytes.resize(at);
      break;
    case 4: {  // leave out a piece
      const size_t end = std::min(bytes.size(), at + 1 + random.Below(16));
      bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                  bytes.begin() + static_cast<std::ptrdiff_t>(end));
      break;
    }
    case 5: {  // repeat a piece
      const size_t end = std::min(bytes.size(), at + 1 + random.Below(64));
      const Bytes piece(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                        bytes.begin() + static_cast<std::ptrdiff_t>(end));
      const size_t to = random.Below(bytes.size() + 1);
      bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(to),
                   piece.begin(), piece.end());
      break;
    }
    default: {  // a piece of another input
      const Bytes& other = corpus[random.Below(corpus.size())];
      const size_t from = random.Below(other.size());
      const size_t count = std::min(other.size() - from, random.Below(64));
      for (size_t i = 0; i < count && at + i < bytes.size(); ++i) {
        bytes[at + i] = other[from + i];
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [ROUNDS [SEED]]\n", argv[0]);
    return 2;
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(corpus.back().data(), corpus.back().size());
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no files\n", argv[1]);
    return 1;
  }
  const uint64_t rounds = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 0;
  Random random(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  const bool keep = std::getenv("KEEP_INPUT") != nullptr;
  for (uint64_t round = 0; round < rounds; ++round) {
    Bytes bytes = corpus[random.Below(corpus.size())];
    for (size_t n = 1 + random.Below(4); n > 0; --n) {
      Mutate(bytes, corpus, random);
    }
    if (keep) {
      std::ofstream("crash-input", std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu files, %llu mutations\n", corpus.size(),
              static_cast<unsigned long long>(rounds));
  return 0;
}
