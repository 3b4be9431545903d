#include "lamina/model/safetensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/file_error.h"
#include "lamina/model/json_reader.h"

namespace lamina::model_internal {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 8;

struct TypeRow {
  const char* name;
  StorageType type;
};
constexpr TypeRow kTypes[] = {
    {"F32", StorageType::kF32},        {"F16", StorageType::kF16},
    {"BF16", StorageType::kBF16},      {"F64", StorageType::kF64},
    {"F8_E4M3", StorageType::kF8E4M3}, {"F8_E5M2", StorageType::kF8E5M2},
    {"F8_E8M0", StorageType::kF8E8M0}, {"BOOL", StorageType::kBool},
    {"I8", StorageType::kI8},          {"U8", StorageType::kU8},
    {"I16", StorageType::kI16},        {"U16", StorageType::kU16},
    {"I32", StorageType::kI32},        {"U32", StorageType::kU32},
    {"I64", StorageType::kI64},        {"U64", StorageType::kU64},
};

std::optional<StorageType> TypeOf(std::string_view name) {
  for (const TypeRow& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

bool HasControlBytes(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

struct TensorEntry {
  SafetensorsTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Everything but the data pointer, from the JSON of one tensor.
absl::StatusOr<TensorEntry> ReadEntry(const std::string& file,
                                      const std::string& name,
                                      const nlohmann::json& fields,
                                      uint64_t position) {
  TensorEntry entry;
  SafetensorsTensor& tensor = entry.tensor;
  tensor.name = name;
  tensor.entry = position;
  const auto error = [&](auto... parts) {
    return BadFile(file, position,
                   absl::StrCat("tensor ", Quoted(name), ": ", parts...));
  };
  if (name.empty() || HasControlBytes(name)) {
    return error("a name must have characters, none of them control ones");
  }
  if (!fields.is_object()) return error("not an object");
  const auto dtype = fields.find("dtype");
  const auto shape = fields.find("shape");
  const auto offsets = fields.find("data_offsets");
  if (dtype == fields.end() || shape == fields.end() ||
      offsets == fields.end() || fields.size() != 3) {
    return error("its fields must be dtype, shape and data_offsets");
  }

  if (!dtype->is_string()) return error("dtype is not a string");
  const auto& type_name = *dtype->get_ptr<const std::string*>();
  const std::optional<StorageType> type = TypeOf(type_name);
  if (!type) return error("dtype ", Quoted(type_name), " is not known");
  tensor.type = *type;

  // Counts that are what they should be: non-negative integers.
  const auto unsigned_at = [](const nlohmann::json& value) {
    const auto* number = value.get_ptr<const uint64_t*>();
    return number == nullptr ? std::nullopt : std::optional<uint64_t>(*number);
  };
  if (!shape->is_array()) return error("shape is not a list");
  if (shape->size() > kMaxDims) {
    return error(shape->size(), " dimensions, at most ", kMaxDims, " allowed");
  }
  constexpr uint64_t kMaxElements = uint64_t{1} << 59;
  uint64_t elements = 1;
  for (const nlohmann::json& element : *shape) {
    const std::optional<uint64_t> dim = unsigned_at(element);
    if (!dim || *dim > kMaxElements) {
      return error("a dimension is not an integer from 0 to 2^59");
    }
    if (*dim != 0 && elements > kMaxElements / *dim) {
      return error("shape: too many elements");
    }
    elements *= *dim;
    tensor.shape.push_back(static_cast<int64_t>(*dim));
  }

  if (!offsets->is_array() || offsets->size() != 2) {
    return error("data_offsets is not a list of two");
  }
  const std::optional<uint64_t> begin = unsigned_at((*offsets)[0]);
  const std::optional<uint64_t> end = unsigned_at((*offsets)[1]);
  if (!begin || !end || *begin > *end) {
    return error("data_offsets are not two integers in ascending order");
  }
  const uint64_t bytes =
      elements * static_cast<uint64_t>(BlockBytes(tensor.type));
  if (*end - *begin != bytes) {
    return error("data_offsets span ", *end - *begin, " bytes, ", type_name,
                 " ", ShapeText(tensor.shape.data(), tensor.shape.size()),
                 " takes ", bytes);
  }
  tensor.bytes = static_cast<int64_t>(bytes);
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

// Sets the data pointers, checking that the tensors tile the data.
absl::Status PlaceTensors(std::vector<TensorEntry>& entries,
                          uint64_t data_begin, const MappedFile& file) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const TensorEntry& x = entries[a];
    const TensorEntry& y = entries[b];
    return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
  });
  const uint64_t room = file.size() - data_begin;
  uint64_t expected = 0;
  for (const size_t index : order) {
    TensorEntry& entry = entries[index];
    const auto error = [&](auto... parts) {
      return BadFile(
          file.path(), entry.tensor.entry,
          absl::StrCat("tensor ", Quoted(entry.tensor.name), ": ", parts...));
    };
    if (entry.begin != expected) {
      return error("begins at ", entry.begin,
                   entry.begin < expected ? ", overlapping the one before; "
                                          : ", leaving a gap; ",
                   expected, " expected");
    }
    if (entry.end > room) {
      return error("ends at ", entry.end, ", beyond the ", room,
                   " bytes of data in the file");
    }
    entry.tensor.data = file.data() + data_begin + entry.begin;
    expected = entry.end;
  }
  if (expected != room) {
    return BadFile(
        file.path(), data_begin + expected,
        absl::StrCat(room - expected, " bytes after the last tensor's data"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* SafetensorsFile::TypeName(StorageType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row.name;
  }
  return nullptr;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(
    std::shared_ptr<const MappedFile> mapped) {
  const MappedFile& file = *mapped;
  if (file.size() < 8) {
    return BadFile(file.path(), 0,
                   absl::StrCat("a safetensors file of ", file.size(),
                                " bytes has no header"));
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return BadFile(
        file.path(), 0,
        absl::StrCat("header of ", header_bytes, " bytes, at most ",
                     kMaxHeaderBytes, " allowed (not a safetensors file?)"));
  }
  if (header_bytes > file.size() - 8) {
    return BadFile(
        file.path(), 0,
        absl::StrCat("header of ", header_bytes, " bytes, the file has ",
                     file.size() - 8, " left"));
  }
  const std::string_view text = file.text().substr(8, header_bytes);
  if (text.empty() || text.front() != '{') {
    return BadFile(file.path(), 8, "the header does not begin with {");
  }
  std::map<std::string, uint64_t, std::less<>> positions;
  LAMINA_ASSIGN_OR_RETURN(
      const nlohmann::json header,
      ParseJson(file.path(), text, {.bytes = kMaxHeaderBytes, .depth = 8}, 8,
                &positions));

  std::vector<TensorEntry> entries;
  for (const auto& [name, fields] : header.items()) {
    const uint64_t position = positions.find(name)->second;
    if (name == "__metadata__") {
      const bool strings =
          fields.is_object() &&
          std::all_of(fields.begin(), fields.end(),
                      [](const nlohmann::json& v) { return v.is_string(); });
      if (strings) continue;
      return BadFile(file.path(), position,
                     "__metadata__ is not an object of strings");
    }
    LAMINA_ASSIGN_OR_RETURN(TensorEntry entry,
                            ReadEntry(file.path(), name, fields, position));
    entries.push_back(std::move(entry));
  }
  LAMINA_RETURN_IF_ERROR(PlaceTensors(entries, 8 + header_bytes, file));

  SafetensorsFile result;
  result.file_ = std::move(mapped);
  result.tensors_.reserve(entries.size());
  for (TensorEntry& entry : entries) {
    result.tensors_.push_back(std::move(entry.tensor));
  }
  return result;
}

absl::StatusOr<std::map<std::string, std::string, std::less<>>>
ParseSafetensorsIndex(std::string_view file, std::string_view text) {
  LAMINA_ASSIGN_OR_RETURN(
      const nlohmann::json index,
      ParseJson(file, text, {.bytes = uint64_t{64} << 20, .depth = 8}));
  if (!index.is_object()) return BadFile(file, "not a JSON object");
  LAMINA_ASSIGN_OR_RETURN(const nlohmann::json* weight_map,
                          JsonFields(file, index).Object("weight_map"));
  if (weight_map == nullptr || weight_map->empty()) {
    return BadFile(file, "weight_map: given nothing, want an object");
  }
  std::map<std::string, std::string, std::less<>> shards;
  for (const auto& [name, shard] : weight_map->items()) {
    const auto* shard_name = shard.get_ptr<const std::string*>();
    // NOTE: a plain name, so that no file outside the directory is read.
    if (shard_name == nullptr || HasControlBytes(*shard_name) ||
        shard_name->find('/') != std::string::npos ||
        !absl::EndsWith(*shard_name, ".safetensors")) {
      return BadFile(file,
                     absl::StrCat("weight_map: the shard of ", Quoted(name),
                                  " is not a plain name that ends in "
                                  ".safetensors"));
    }
    shards.emplace(name, *shard_name);
  }
  return shards;
}

}  // namespace lamina::model_internal
