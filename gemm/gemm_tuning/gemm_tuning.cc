#include "lamina/gemm/gemm_tuning.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lamina/core/status.h"
#include "lamina/core/version.h"
#include "lamina/gemm/gemm_tuning/ring_plans.h"
#include "lamina/gemm/skinny_gemm/wave_gemm_policy.h"

namespace lamina {
namespace {

using gemm_internal::ChoiceOf;
using gemm_internal::MakeRingGemmPlan;
using gemm_internal::RingArch;
using gemm_internal::RingGemmChoice;
using gemm_internal::RingGemmPlan;
using gemm_internal::RingGemmProblem;

// ---- Lines ------------------------------------------------------------------

// An object of JSON without nesting, whose strings are free of , : " and \.
using Fields = std::map<std::string, std::string>;

std::optional<Fields> ParseLine(std::string_view line) {
  if (line.size() < 2 || line.front() != '{' || line.back() != '}') {
    return std::nullopt;
  }
  line = line.substr(1, line.size() - 2);
  Fields fields;
  for (const absl::string_view field :
       absl::StrSplit(absl::string_view(line.data(), line.size()), ", ")) {
    const std::vector<std::string> parts =
        absl::StrSplit(absl::string_view(field.data(), field.size()),
                       absl::MaxSplits(": ", 1));
    if (parts.size() != 2 || parts[0].size() < 3 || parts[0].front() != '"' ||
        parts[0].back() != '"') {
      return std::nullopt;
    }
    if (!fields.emplace(parts[0].substr(1, parts[0].size() - 2), parts[1])
             .second) {
      return std::nullopt;
    }
  }
  return fields;
}

std::string Quoted(std::string text) {
  for (char& c : text) {
    if (c == ',' || c == ':' || c == '"' || c == '\\' || c < ' ') c = ' ';
  }
  return absl::StrCat("\"", text, "\"");
}

std::string Bool(bool value) { return value ? "true" : "false"; }

std::string Header(const DeviceInfo& device) {
  return absl::StrCat("{\"lamina_gemm_tuning\": 1, \"version\": \"",
                      kVersionMajor, ".", kVersionMinor, ".", kVersionPatch,
                      "\", \"device\": ", Quoted(device.name),
                      ", \"arch\": ", Quoted(device.arch),
                      ", \"units\": ", device.num_units, "}");
}

std::string Line(const GemmTuningEntry& entry) {
  const GemmTuningKey& key = entry.key;
  return absl::StrCat(
      "{\"x\": ", Quoted(Name(key.x_type)),
      ", \"w\": ", Quoted(Name(key.w_type)), ", \"n\": ", key.n,
      ", \"k\": ", key.k, ", \"rows\": ", key.rows,
      ", \"gated\": ", Bool(key.gated),
      ", \"block_scales\": ", Bool(key.block_scales),
      ", \"overlap\": ", Bool(key.overlap), ", \"blocks\": ", entry.blocks,
      ", \"ring_bytes\": ", entry.ring_bytes,
      ", \"x_ring_bytes\": ", entry.x_ring_bytes,
      ", \"tensor_copies\": ", Bool(entry.tensor_copies),
      ", \"us\": ", entry.us, ", \"policy_us\": ", entry.policy_us, "}");
}

// Takes the fields of an entry out of a line; `ok` until one is missing or not
// what it has to be.
class Reader {
 public:
  explicit Reader(const Fields& fields) : fields_(fields) {}
  bool ok() const { return ok_ && read_ == fields_.size(); }

  void Read(const char* name, DType& value) {
    const std::string text = Take(name);
    for (const DType type : {DType::kF16, DType::kBF16, DType::kF8E4M3Fn}) {
      if (text == Quoted(Name(type))) {
        value = type;
        return;
      }
    }
    ok_ = false;
  }
  void Read(const char* name, int64_t& value) {
    ok_ = absl::SimpleAtoi(Take(name), &value) && value > 0 && ok_;
  }
  void Read(const char* name, double& value) {
    ok_ = absl::SimpleAtod(Take(name), &value) && value >= 0 && ok_;
  }
  void Read(const char* name, bool& value) {
    const std::string text = Take(name);
    value = text == "true";
    ok_ = ok_ && (value || text == "false");
  }

 private:
  std::string Take(const char* name) {
    const auto found = fields_.find(name);
    if (found == fields_.end()) {
      ok_ = false;
      return "";
    }
    ++read_;
    return found->second;
  }

  const Fields& fields_;
  size_t read_ = 0;
  bool ok_ = true;
};

std::optional<GemmTuningEntry> ParseEntry(std::string_view line,
                                          const DeviceInfo& device) {
  const std::optional<Fields> fields = ParseLine(line);
  if (!fields.has_value()) return std::nullopt;
  GemmTuningEntry entry;
  Reader reader(*fields);
  reader.Read("x", entry.key.x_type);
  reader.Read("w", entry.key.w_type);
  reader.Read("n", entry.key.n);
  reader.Read("k", entry.key.k);
  reader.Read("rows", entry.key.rows);
  reader.Read("gated", entry.key.gated);
  reader.Read("block_scales", entry.key.block_scales);
  reader.Read("overlap", entry.key.overlap);
  reader.Read("blocks", entry.blocks);
  reader.Read("ring_bytes", entry.ring_bytes);
  reader.Read("x_ring_bytes", entry.x_ring_bytes);
  reader.Read("tensor_copies", entry.tensor_copies);
  reader.Read("us", entry.us);
  reader.Read("policy_us", entry.policy_us);
  const int64_t rows = entry.key.rows;
  const bool band = rows == 8 || rows == 16 || rows == 32 || rows == 64;
  if (!reader.ok() || !band || entry.blocks > device.num_units ||
      entry.ring_bytes > device.shared_memory_bytes ||
      entry.x_ring_bytes > device.shared_memory_bytes ||
      !ChoiceOf(entry, device).has_value()) {
    return std::nullopt;
  }
  return entry;
}

bool HasRings(const DeviceInfo& device) {
  return device.device.backend == Backend::kCuda &&
         (device.arch == "sm_90" || device.arch == "simt");
}

}  // namespace

void GemmTuning::Add(const GemmTuningEntry& entry) {
  for (GemmTuningEntry& known : entries_) {
    if (known.key == entry.key) {
      known = entry;
      return;
    }
  }
  entries_.push_back(entry);
}

const GemmTuningEntry* GemmTuning::Find(const GemmTuningKey& key) const {
  for (const GemmTuningEntry& entry : entries_) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

std::string FormatGemmTuning(const GemmTuning& tuning,
                             const DeviceInfo& device) {
  std::string text = absl::StrCat(Header(device), "\n");
  for (const GemmTuningEntry& entry : tuning.entries()) {
    absl::StrAppend(&text, Line(entry), "\n");
  }
  return text;
}

absl::StatusOr<GemmTuning> ParseGemmTuning(const std::string& text,
                                           const DeviceInfo& device) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::optional<Fields> header = ParseLine(lines[0]);
  if (!header.has_value() || header->count("lamina_gemm_tuning") == 0) {
    return absl::InvalidArgumentError("not a file of `lamina tune`");
  }
  if (lines[0] != Header(device)) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is for ", lines[0], ", want ", Header(device)));
  }
  GemmTuning tuning;
  for (size_t i = 1; i < lines.size(); ++i) {
    if (lines[i].empty() && i + 1 == lines.size()) break;
    const std::optional<GemmTuningEntry> entry = ParseEntry(lines[i], device);
    if (!entry.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", i + 1, " is corrupt"));
    }
    tuning.Add(*entry);
  }
  return tuning;
}

GemmTuning LoadGemmTuning(const std::string& path, const DeviceInfo& device,
                          std::string* warning) {
  const auto ignored = [&](std::string_view why) {
    if (warning != nullptr) {
      *warning = absl::StrCat(
          path, ": ignored: ", absl::string_view(why.data(), why.size()));
    }
    return GemmTuning();
  };
  const std::ifstream file(path, std::ios::binary);
  if (!file) return ignored("cannot be read");
  std::ostringstream text;
  text << file.rdbuf();
  absl::StatusOr<GemmTuning> tuning = ParseGemmTuning(text.str(), device);
  if (!tuning.ok()) return ignored(std::string(tuning.status().message()));
  return *std::move(tuning);
}

std::vector<GemmTuningEntry> GemmTuningCandidates(const GemmTuningKey& key,
                                                  const DeviceInfo& device) {
  const std::optional<RingGemmProblem> problem =
      gemm_internal::RingProblemOf(key);
  if (!HasRings(device) || !problem.has_value() ||
      gemm_internal::PrefersWaveGemm({.m = key.rows,
                                      .k = key.k,
                                      .x_type = key.x_type,
                                      .w_type = key.w_type},
                                     key.n)) {
    return {};
  }
  const RingArch arch = gemm_internal::RingArchOf(device);
  const RingGemmChoice policy = SelectRingGemmChoice(*problem, arch);
  std::vector<GemmTuningEntry> entries;
  std::vector<RingGemmPlan> plans;
  const auto add = [&](int64_t blocks, int64_t ring, int64_t x_ring,
                       bool copies) {
    const GemmTuningEntry entry = {.key = key,
                                   .blocks = blocks,
                                   .ring_bytes = ring,
                                   .x_ring_bytes = x_ring,
                                   .tensor_copies = copies};
    const std::optional<RingGemmChoice> choice = ChoiceOf(entry, device);
    if (!choice.has_value() || blocks < 1) return;
    const RingGemmPlan plan = *MakeRingGemmPlan(*problem, *choice, arch);
    if (std::find(plans.begin(), plans.end(), plan) != plans.end()) return;
    plans.push_back(plan);
    entries.push_back(entry);
  };
  add(policy.blocks, policy.ring_bytes, policy.x_ring_bytes,
      policy.tensor_copies);
  for (const bool copies : {policy.tensor_copies, !policy.tensor_copies}) {
    for (const int64_t blocks :
         {policy.blocks, int64_t{arch.units}, int64_t{arch.units} - 4}) {
      for (const int64_t ring : {policy.ring_bytes, int64_t{96} << 10,
                                 int64_t{128} << 10, int64_t{160} << 10}) {
        for (const int64_t x_ring :
             {policy.x_ring_bytes, policy.x_ring_bytes / 2,
              policy.x_ring_bytes * 2}) {
          add(blocks, ring, x_ring, copies);
        }
      }
    }
  }
  return entries;
}

}  // namespace lamina
