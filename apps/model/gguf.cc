#include "lamina/model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lamina/core/status.h"
#include "lamina/model/file_error.h"

namespace lamina::model_internal {
namespace {

constexpr uint64_t kMaxNameBytes = 65535;  // the format's limit for keys
constexpr uint32_t kMaxDims = 4;
constexpr uint32_t kMaxAlignment = 1u << 20;
constexpr int kMaxArrayDepth = 4;

// The smallest entries there can be: one-byte names, one-byte value, one dim.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

absl::string_view Absl(std::string_view text) {
  return {text.data(), text.size()};
}

// Bytes of a value of fixed size; 0 for strings and arrays.
uint64_t SizeOf(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool:
      return 1;
    case GgufType::kU16:
    case GgufType::kI16:
      return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32:
      return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

// ggml's numbers for tensor types.
std::optional<StorageType> TensorType(uint32_t type) {
  switch (type) {
    case 0:
      return StorageType::kF32;
    case 1:
      return StorageType::kF16;
    case 2:
      return StorageType::kQ4_0;
    case 3:
      return StorageType::kQ4_1;
    case 6:
      return StorageType::kQ5_0;
    case 7:
      return StorageType::kQ5_1;
    case 8:
      return StorageType::kQ8_0;
    case 12:
      return StorageType::kQ4_K;
    case 13:
      return StorageType::kQ5_K;
    case 14:
      return StorageType::kQ6_K;
    case 24:
      return StorageType::kI8;
    case 25:
      return StorageType::kI16;
    case 26:
      return StorageType::kI32;
    case 27:
      return StorageType::kI64;
    case 28:
      return StorageType::kF64;
    case 30:
      return StorageType::kBF16;
    default:
      return std::nullopt;
  }
}
// Those that exist, but not here.
const char* UnsupportedTensorType(uint32_t type) {
  switch (type) {
    case 10:
      return "Q2_K";
    case 11:
      return "Q3_K";
    case 15:
      return "Q8_K";
    case 16:
      return "IQ2_XXS";
    case 17:
      return "IQ2_XS";
    case 18:
      return "IQ3_XXS";
    case 19:
      return "IQ1_S";
    case 20:
      return "IQ4_NL";
    case 21:
      return "IQ3_S";
    case 22:
      return "IQ2_S";
    case 23:
      return "IQ4_XS";
    case 29:
      return "IQ1_M";
    case 34:
      return "TQ1_0";
    case 35:
      return "TQ2_0";
    case 39:
      return "MXFP4";
    default:
      return nullptr;
  }
}

// A position in the file. Every read is checked against the file's end first.
class Cursor {
 public:
  explicit Cursor(const MappedFile& file) : file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return file_.size() - position_; }

  absl::Status Error(std::string_view message) const {
    return BadFile(file_.path(), position_, message);
  }
  absl::Status Need(uint64_t bytes, std::string_view what) const {
    if (bytes <= left()) return absl::OkStatus();
    return Error(absl::StrCat(Absl(what), ": needs ", bytes,
                              " bytes, the file has ", left(), " left"));
  }
  absl::Status Skip(uint64_t bytes, std::string_view what) {
    LAMINA_RETURN_IF_ERROR(Need(bytes, what));
    position_ += bytes;
    return absl::OkStatus();
  }
  template <class T>
  absl::StatusOr<T> Read(std::string_view what) {
    LAMINA_RETURN_IF_ERROR(Need(sizeof(T), what));
    T value;
    std::memcpy(&value, file_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }
  absl::StatusOr<std::string_view> String(std::string_view what,
                                          uint64_t max_bytes) {
    const uint64_t start = position_;
    LAMINA_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(what));
    if (length > max_bytes) {
      return BadFile(file_.path(), start,
                     absl::StrCat(Absl(what), ": a string of ", length,
                                  " bytes, at most ", max_bytes, " allowed"));
    }
    LAMINA_RETURN_IF_ERROR(Need(length, what));
    const std::string_view text = file_.text().substr(position_, length);
    if (!IsUtf8(text)) {
      return Error(absl::StrCat(Absl(what), ": not valid UTF-8"));
    }
    position_ += length;
    return text;
  }
  absl::StatusOr<GgufType> Type(std::string_view what) {
    const uint64_t start = position_;
    LAMINA_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>(what));
    if (type >= kNumGgufTypes) {
      return BadFile(
          file_.path(), start,
          absl::StrCat(Absl(what), ": value type ", type, " does not exist"));
    }
    return static_cast<GgufType>(type);
  }

  // Past one value of the given type, with everything in it checked.
  absl::Status SkipValue(GgufType type, std::string_view what) {
    if (type == GgufType::kString) {
      return String(what, std::numeric_limits<uint64_t>::max()).status();
    }
    if (type == GgufType::kBool) {
      const uint64_t start = position_;
      LAMINA_ASSIGN_OR_RETURN(const uint8_t value, Read<uint8_t>(what));
      if (value <= 1) return absl::OkStatus();
      return BadFile(file_.path(), start,
                     absl::StrCat(Absl(what), ": a bool of value ", value));
    }
    return Skip(SizeOf(type), what);
  }

  // Past an array's header and elements; fills element, count and begin.
  absl::Status SkipArray(std::string_view what, int depth, GgufValue* value) {
    if (depth > kMaxArrayDepth) {
      return Error(absl::StrCat(Absl(what), ": arrays nested more than ",
                                kMaxArrayDepth, " deep"));
    }
    LAMINA_ASSIGN_OR_RETURN(value->element, Type(what));
    const uint64_t start = position_;
    LAMINA_ASSIGN_OR_RETURN(value->count, Read<uint64_t>(what));
    value->begin = position_;
    // A string takes 8 bytes or more, an array 12.
    const uint64_t least = value->element == GgufType::kString ? 8
                           : value->element == GgufType::kArray
                               ? 12
                               : SizeOf(value->element);
    if (value->count > left() / least) {
      return BadFile(
          file_.path(), start,
          absl::StrCat(Absl(what), ": an array of ", value->count, " ",
                       Name(value->element), ", more than the file can hold"));
    }
    if (SizeOf(value->element) != 0 && value->element != GgufType::kBool) {
      return Skip(value->count * SizeOf(value->element), what);
    }
    for (uint64_t i = 0; i < value->count; ++i) {
      GgufValue inner;
      LAMINA_RETURN_IF_ERROR(value->element == GgufType::kArray
                                 ? SkipArray(what, depth + 1, &inner)
                                 : SkipValue(value->element, what));
    }
    return absl::OkStatus();
  }

 private:
  const MappedFile& file_;
  uint64_t position_ = 0;
};

bool HasControlBytes(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
}

absl::StatusOr<std::string_view> ReadName(Cursor& cursor,
                                          std::string_view what) {
  LAMINA_ASSIGN_OR_RETURN(const std::string_view name,
                          cursor.String(what, kMaxNameBytes));
  if (name.empty()) return cursor.Error(absl::StrCat(Absl(what), ": empty"));
  if (HasControlBytes(name)) {
    return cursor.Error(
        absl::StrCat(Absl(what), " ", Quoted(name), ": control characters"));
  }
  return name;
}

struct TensorEntry {
  GgufTensor tensor;
  uint64_t offset = 0;
};

// Entry of the tensor table. `data` is not set yet.
absl::StatusOr<TensorEntry> ReadTensorEntry(Cursor& cursor,
                                            const MappedFile& file) {
  TensorEntry entry;
  GgufTensor& tensor = entry.tensor;
  tensor.entry = cursor.position();
  LAMINA_ASSIGN_OR_RETURN(const std::string_view name,
                          ReadName(cursor, "tensor name"));
  tensor.name = std::string(name);
  const std::string what = absl::StrCat("tensor ", Quoted(name));
  const auto error = [&](uint64_t byte, auto... parts) {
    return BadFile(file.path(), byte, absl::StrCat(what, ": ", parts...));
  };

  const uint64_t dims_at = cursor.position();
  LAMINA_ASSIGN_OR_RETURN(const uint32_t dims, cursor.Read<uint32_t>(what));
  if (dims < 1 || dims > kMaxDims) {
    return error(dims_at, dims, " dimensions, 1 to ", kMaxDims, " allowed");
  }
  // Elements, bounded so that bytes (at most 8 an element) fit 63 bits.
  constexpr uint64_t kMaxElements = uint64_t{1} << 59;
  uint64_t elements = 1;
  for (uint32_t i = 0; i < dims; ++i) {
    const uint64_t dim_at = cursor.position();
    LAMINA_ASSIGN_OR_RETURN(const uint64_t dim, cursor.Read<uint64_t>(what));
    if (dim == 0) return error(dim_at, "dimension ", i, " is zero");
    if (dim > kMaxElements / elements) {
      return error(dim_at, "dimension ", i, " is ", dim, ": too many elements");
    }
    elements *= dim;
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(dim));
  }
  const uint64_t type_at = cursor.position();
  LAMINA_ASSIGN_OR_RETURN(const uint32_t type, cursor.Read<uint32_t>(what));
  const std::optional<StorageType> storage = TensorType(type);
  if (!storage) {
    if (const char* type_name = UnsupportedTensorType(type)) {
      return NotSupported(
          file.path(),
          absl::StrCat("byte ", type_at, ": ", what, ": type ", type_name,
                       " is not supported; supported: F32, F16, BF16, Q4_0, "
                       "Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K"));
    }
    return error(type_at, "type ", type, " does not exist");
  }
  tensor.type = *storage;
  const int64_t block = BlockElements(tensor.type);
  if (tensor.shape.back() % block != 0) {
    return error(type_at, "rows of ", tensor.shape.back(),
                 " elements, not whole blocks of ", block, " (",
                 Name(tensor.type), ")");
  }
  tensor.bytes = static_cast<int64_t>(elements) / block * BlockBytes(*storage);
  LAMINA_ASSIGN_OR_RETURN(entry.offset, cursor.Read<uint64_t>(what));
  return entry;
}

// Sets the data of every tensor, checking that they tile the data section.
absl::Status PlaceTensors(std::vector<TensorEntry>& entries,
                          uint64_t data_begin, uint64_t alignment,
                          const MappedFile& file) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return entries[a].offset < entries[b].offset;
  });
  const uint64_t room = file.size() - data_begin;
  uint64_t expected = 0;  // offset of the next tensor
  uint64_t end = 0;       // of the last tensor, without padding
  for (const size_t index : order) {
    TensorEntry& entry = entries[index];
    GgufTensor& tensor = entry.tensor;
    const auto error = [&](auto... parts) {
      return BadFile(
          file.path(), tensor.entry,
          absl::StrCat("tensor ", Quoted(tensor.name), ": ", parts...));
    };
    if (entry.offset % alignment != 0) {
      return error("offset ", entry.offset, " is not a multiple of ", alignment,
                   " (alignment)");
    }
    if (entry.offset != expected) {
      return error("offset ", entry.offset,
                   entry.offset < expected ? " overlaps the tensor before; "
                                           : " leaves a gap; ",
                   expected, " expected");
    }
    const uint64_t bytes = static_cast<uint64_t>(tensor.bytes);
    if (entry.offset > room || bytes > room - entry.offset) {
      return error("ends ", bytes, " bytes after offset ", entry.offset,
                   ", beyond the ", room, " bytes of data in the file");
    }
    tensor.data = file.data() + data_begin + entry.offset;
    end = entry.offset + bytes;
    expected = (end + alignment - 1) / alignment * alignment;
  }
  if (room > expected) {
    return BadFile(
        file.path(), data_begin + end,
        absl::StrCat(room - end, " bytes after the last tensor's data"));
  }
  return absl::OkStatus();
}

}  // namespace

const char* Name(GgufType type) {
  constexpr const char* kNames[] = {"u8",  "i8",  "u16",  "i16",    "u32",
                                    "i32", "f32", "bool", "string", "array",
                                    "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}

bool GgufFile::IsGguf(const MappedFile& file) {
  return file.text().substr(0, 4) == "GGUF";
}

absl::StatusOr<GgufFile> GgufFile::Parse(
    std::shared_ptr<const MappedFile> mapped) {
  const MappedFile& file = *mapped;
  Cursor cursor(file);
  if (!IsGguf(file)) return cursor.Error("not a GGUF file (no magic)");
  LAMINA_RETURN_IF_ERROR(cursor.Skip(4, "magic"));

  GgufFile gguf;
  LAMINA_ASSIGN_OR_RETURN(gguf.version_, cursor.Read<uint32_t>("version"));
  if (gguf.version_ != 2 && gguf.version_ != 3) {
    // Swapped bytes: the version of a big-endian file.
    return NotSupported(
        file.path(),
        absl::StrCat("byte 4: ",
                     (gguf.version_ & 0xffffu) == 0 && gguf.version_ != 0
                         ? "a big-endian GGUF file"
                         : absl::StrCat("GGUF version ", gguf.version_),
                     ", supported: little-endian version 2 and 3"));
  }
  LAMINA_ASSIGN_OR_RETURN(const uint64_t num_tensors,
                          cursor.Read<uint64_t>("tensor count"));
  LAMINA_ASSIGN_OR_RETURN(const uint64_t num_keys,
                          cursor.Read<uint64_t>("key count"));
  if (num_tensors > cursor.left() / kMinTensorBytes) {
    return BadFile(file.path(), 8,
                   absl::StrCat("tensor count ", num_tensors,
                                ": more than the file can hold"));
  }
  if (num_keys > cursor.left() / kMinKeyBytes) {
    return BadFile(
        file.path(), 16,
        absl::StrCat("key count ", num_keys, ": more than the file can hold"));
  }

  for (uint64_t i = 0; i < num_keys; ++i) {
    const uint64_t start = cursor.position();
    LAMINA_ASSIGN_OR_RETURN(const std::string_view key,
                            ReadName(cursor, "metadata key"));
    const std::string what = absl::StrCat("key ", Quoted(key));
    GgufValue value;
    LAMINA_ASSIGN_OR_RETURN(value.type, cursor.Type(what));
    value.begin = cursor.position();
    LAMINA_RETURN_IF_ERROR(value.type == GgufType::kArray
                               ? cursor.SkipArray(what, 1, &value)
                               : cursor.SkipValue(value.type, what));
    if (!gguf.metadata_.emplace(std::string(key), value).second) {
      return BadFile(file.path(), start, absl::StrCat(what, " occurs twice"));
    }
  }
  gguf.file_ = mapped;

  if (const GgufValue* value = gguf.Find("general.alignment")) {
    LAMINA_ASSIGN_OR_RETURN(const std::optional<int64_t> alignment,
                            gguf.Integer("general.alignment"));
    if (*alignment < 1 || *alignment > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
      return BadFile(
          file.path(), value->begin,
          absl::StrCat("general.alignment: given ", *alignment,
                       ", want a power of two up to ", kMaxAlignment));
    }
    gguf.alignment_ = static_cast<uint32_t>(*alignment);
  }

  std::vector<TensorEntry> entries;
  entries.reserve(num_tensors);
  std::unordered_set<std::string> names;
  for (uint64_t i = 0; i < num_tensors; ++i) {
    LAMINA_ASSIGN_OR_RETURN(TensorEntry entry, ReadTensorEntry(cursor, file));
    if (!names.insert(entry.tensor.name).second) {
      return BadFile(
          file.path(), entry.tensor.entry,
          absl::StrCat("tensor ", Quoted(entry.tensor.name), " occurs twice"));
    }
    entries.push_back(std::move(entry));
  }

  const uint64_t alignment = gguf.alignment_;
  const uint64_t padding =
      (alignment - cursor.position() % alignment) % alignment;
  if (num_tensors > 0 || cursor.left() > 0) {
    LAMINA_RETURN_IF_ERROR(cursor.Skip(padding, "padding before the data"));
  }
  LAMINA_RETURN_IF_ERROR(
      PlaceTensors(entries, cursor.position(), alignment, file));
  gguf.tensors_.reserve(entries.size());
  for (TensorEntry& entry : entries) {
    gguf.tensors_.push_back(std::move(entry.tensor));
  }
  return gguf;
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = metadata_.find(key);
  return found == metadata_.end() ? nullptr : &found->second;
}

absl::Status GgufFile::TypeError(std::string_view key, const GgufValue& value,
                                 std::string_view want) const {
  const std::string given =
      value.type == GgufType::kArray
          ? absl::StrCat("an array of ", Name(value.element))
          : std::string(Name(value.type));
  return BadFile(file_->path(), value.begin,
                 absl::StrCat("key ", Quoted(key), ": given ", given, ", want ",
                              Absl(want)));
}

namespace {

template <class T>
T LoadAt(const MappedFile& file, uint64_t position) {
  T value;
  std::memcpy(&value, file.data() + position, sizeof(T));
  return value;
}

std::string_view StringAt(const MappedFile& file, uint64_t position) {
  return file.text().substr(position + 8, LoadAt<uint64_t>(file, position));
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> GgufFile::Integer(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<int64_t>();
  const auto load = [&]<class T>(T) {
    return std::optional<int64_t>(
        static_cast<int64_t>(LoadAt<T>(*file_, value->begin)));
  };
  switch (value->type) {
    case GgufType::kU8:
      return load(uint8_t{});
    case GgufType::kI8:
      return load(int8_t{});
    case GgufType::kU16:
      return load(uint16_t{});
    case GgufType::kI16:
      return load(int16_t{});
    case GgufType::kU32:
      return load(uint32_t{});
    case GgufType::kI32:
      return load(int32_t{});
    case GgufType::kI64:
      return load(int64_t{});
    case GgufType::kU64:
      if (LoadAt<uint64_t>(*file_, value->begin) > uint64_t{1} << 62) {
        return TypeError(key, *value, "an integer below 2^62");
      }
      return load(uint64_t{});
    default:
      return TypeError(key, *value, "an integer");
  }
}

absl::StatusOr<std::optional<double>> GgufFile::Real(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<double>();
  if (value->type == GgufType::kF32) {
    return std::optional<double>(LoadAt<float>(*file_, value->begin));
  }
  if (value->type == GgufType::kF64) {
    return std::optional<double>(LoadAt<double>(*file_, value->begin));
  }
  return TypeError(key, *value, "a floating-point number");
}

absl::StatusOr<std::optional<bool>> GgufFile::Bool(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<bool>();
  if (value->type != GgufType::kBool) return TypeError(key, *value, "a bool");
  return std::optional<bool>(LoadAt<uint8_t>(*file_, value->begin) != 0);
}

absl::StatusOr<std::optional<std::string_view>> GgufFile::String(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::optional<std::string_view>();
  if (value->type != GgufType::kString) {
    return TypeError(key, *value, "a string");
  }
  return std::optional<std::string_view>(StringAt(*file_, value->begin));
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::Strings(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  if (value->type != GgufType::kArray || value->element != GgufType::kString) {
    return TypeError(key, *value, "an array of strings");
  }
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  uint64_t position = value->begin;
  for (uint64_t i = 0; i < value->count; ++i) {
    strings.push_back(StringAt(*file_, position));
    position += 8 + strings.back().size();
  }
  return strings;
}

absl::StatusOr<std::vector<int32_t>> GgufFile::Int32s(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<int32_t>();
  if (value->type != GgufType::kArray ||
      (value->element != GgufType::kI32 && value->element != GgufType::kU32)) {
    return TypeError(key, *value, "an array of i32");
  }
  std::vector<int32_t> values(value->count);
  if (!values.empty()) {
    std::memcpy(values.data(), file_->data() + value->begin,
                values.size() * sizeof(int32_t));
  }
  return values;
}

absl::StatusOr<std::vector<float>> GgufFile::Floats(
    std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<float>();
  if (value->type != GgufType::kArray || value->element != GgufType::kF32) {
    return TypeError(key, *value, "an array of f32");
  }
  std::vector<float> values(value->count);
  if (!values.empty()) {
    std::memcpy(values.data(), file_->data() + value->begin,
                values.size() * sizeof(float));
  }
  return values;
}

}  // namespace lamina::model_internal
