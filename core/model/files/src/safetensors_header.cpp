// Grammar: see rondo/model/safetensors.h. Reading trusts nothing: sizes are compared before they are added, offsets
// before they are used.
#include "safetensors_header.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "json_reader.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::size_t kSizeField = 8;
constexpr std::size_t kUsualEntryBytes = 160;  // a name, a dtype, a shape, two offsets
constexpr std::size_t kMaxDimensions = 8;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kCodes = "U8";
constexpr std::array<WeightType, 3> kTypes = {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kFloat16};

struct Entry {
  TensorView view;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::optional<std::vector<std::uint64_t>> unsigned_list(const Json& value, std::size_t most) {
  if (!value.is_array() || value.size() > most) return std::nullopt;
  std::vector<std::uint64_t> numbers;
  for (const Json& number : value) {
    if (!number.is_number_unsigned()) return std::nullopt;
    numbers.push_back(number.get<std::uint64_t>());
  }
  return numbers;
}

/// `contents` holds at least the size field.
std::uint64_t size_field(std::span<const std::byte> contents) {
  std::uint64_t size = 0;
  for (std::size_t i = kSizeField; i-- > 0;) size = size << 8U | std::to_integer<std::uint64_t>(contents[i]);
  return size;
}

/// The value of `key`, null when absent.
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

/// Nothing where they do not fit in 64 bits.
std::optional<std::uint64_t> bytes_of(std::uint64_t element, std::span<const std::uint64_t> shape) {
  std::uint64_t bytes = element;
  for (const std::uint64_t size : shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

absl::StatusOr<Entry> parse_entry(const std::string& name, const Json& value, const std::string& file, bool codes) {
  const auto wrong = [&](const char* key, const char* expected, const Json& found) {
    return invalid_input("{}: tensor {}: {}: expected {}, found {}", file, quoted_name(name), key, expected,
                         excerpt(found));
  };
  if (!value.is_object()) {
    return invalid_input("{}: tensor {}: expected an object, found {}", file, quoted_name(name), excerpt(value));
  }
  Entry entry;
  entry.view.name = name;
  entry.view.file = file;
  const Json& dtype = member(value, "dtype");
  const auto* type = std::find_if(kTypes.begin(), kTypes.end(), [&](WeightType t) { return dtype == stored_name(t); });
  entry.view.codes = codes && dtype == kCodes;
  if (type == kTypes.end() && !entry.view.codes) return wrong("dtype", "F32, BF16 or F16", dtype);
  if (type != kTypes.end()) entry.view.type = *type;

  const auto shape = unsigned_list(member(value, "shape"), kMaxDimensions);
  if (!shape) return wrong("shape", "a list of at most 8 sizes", member(value, "shape"));
  entry.view.shape = *shape;
  const auto offsets = unsigned_list(member(value, "data_offsets"), 2);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return wrong("data_offsets", "[begin, end] with begin <= end", member(value, "data_offsets"));
  }
  entry.begin = (*offsets)[0];
  entry.end = (*offsets)[1];
  const auto bytes = bytes_of(entry.view.codes ? 1 : weight_type_size(entry.view.type), entry.view.shape);
  if (!bytes || *bytes != entry.end - entry.begin) {
    return invalid_input("{}: tensor {}: shape {} of {} and data_offsets {} disagree: expected {} bytes, found {}",
                         file, quoted_name(name), excerpt(Json(entry.view.shape)), excerpt(dtype),
                         excerpt(Json(*offsets)), bytes ? std::to_string(*bytes) : "fewer than 2^64",
                         entry.end - entry.begin);
  }
  return entry;
}

/// Sorted by place, each tensor must begin where the one before it ended, and the last end with the file.
absl::Status check_places(std::vector<Entry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t reached = 0;
  for (const Entry& entry : entries) {
    if (entry.end > data_bytes) {
      return invalid_input("{}: tensor {}: ends at byte {} of the data, but the file holds {}; the file is cut short",
                           file, quoted_name(entry.view.name), entry.end, data_bytes);
    }
    if (entry.begin != reached) {
      return invalid_input("{}: tensor {}: {}: expected it to begin at byte {} of the data, found {}", file,
                           quoted_name(entry.view.name),
                           entry.begin < reached ? "overlaps another tensor" : "leaves a hole", reached, entry.begin);
    }
    reached = entry.end;
  }
  if (reached != data_bytes) {
    return invalid_input("{}: expected {} bytes of data as the header says, found {}", file, reached, data_bytes);
  }
  return absl::OkStatus();
}

absl::Status check_metadata(const Json& metadata, const std::string& file) {
  bool good = metadata.is_object();
  if (good) good = std::all_of(metadata.begin(), metadata.end(), [](const Json& value) { return value.is_string(); });
  if (good) return absl::OkStatus();
  return invalid_input("{}: {}: expected an object of strings, found {}", file, kMetadata, excerpt(metadata));
}

absl::StatusOr<Json> parse_header_text(std::span<const std::byte> contents, const std::string& file) {
  if (contents.size() < kSizeField) {
    return invalid_input("{}: expected a safetensors file, found only {} bytes", file, contents.size());
  }
  const std::uint64_t size = size_field(contents);
  if (size > kMaxHeaderBytes) {
    return invalid_input("{}: expected a header of at most {} bytes, found {}; this is no safetensors file", file,
                         kMaxHeaderBytes, size);
  }
  if (size > contents.size() - kSizeField) {
    return invalid_input("{}: the header of {} bytes ends past the file of {}; the file is cut short", file, size,
                         contents.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(contents.data()) + kSizeField, size);
  if (text.empty() || text.front() != '{') return invalid_input("{}: the header does not begin with an object", file);
  return parse_json(text, file + ": header");
}

}  // namespace

std::string_view stored_name(WeightType type) {
  switch (type) {
    case WeightType::kFloat32:
      return "F32";
    case WeightType::kBfloat16:
      return "BF16";
    case WeightType::kFloat16:
      return "F16";
  }
  return "";
}

std::optional<std::uint64_t> tensor_bytes(WeightType type, std::span<const std::uint64_t> shape) {
  return bytes_of(weight_type_size(type), shape);
}

absl::StatusOr<std::vector<TensorView>> read_header(std::span<const std::byte> contents, const std::string& file,
                                                    bool codes) {
  RONDO_ASSIGN_OR_RETURN(const Json header, parse_header_text(contents, file));
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == kMetadata) {
      RONDO_RETURN_IF_ERROR(check_metadata(value, file));
      continue;
    }
    RONDO_ASSIGN_OR_RETURN(Entry entry, parse_entry(name, value, file, codes));
    entries.push_back(std::move(entry));
  }
  const std::span<const std::byte> data = contents.subspan(kSizeField + size_field(contents));
  RONDO_RETURN_IF_ERROR(check_places(entries, data.size(), file));
  std::vector<TensorView> views;
  views.reserve(entries.size());
  for (Entry& entry : entries) {
    entry.view.data = data.subspan(entry.begin, entry.end - entry.begin);
    views.push_back(std::move(entry.view));
  }
  return views;
}

absl::StatusOr<std::string> make_header(const std::vector<TensorToWrite>& tensors,
                                        const std::map<std::string, std::string>& metadata, const std::string& file) {
  const auto text = [](const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  // Assembled by hand: the tensors stand in the order given, which a JSON object does not keep.
  std::string header(kSizeField, '\0');
  header.reserve(kSizeField + kUsualEntryBytes * tensors.size());  // growing would have it twice for a moment
  header += '{';
  if (!metadata.empty()) header += fmt::format("\"{}\":{},", kMetadata, text(Json(metadata)));
  std::set<std::string_view> names;
  std::uint64_t offset = 0;
  for (const TensorToWrite& tensor : tensors) {
    if (tensor.name == kMetadata || !names.insert(tensor.name).second) {
      return internal_error("{}: tensor {}: the name is reserved or stands twice", file, quoted_name(tensor.name));
    }
    const auto bytes = tensor_bytes(tensor.type, tensor.shape);
    std::uint64_t end = 0;
    if (!bytes || __builtin_add_overflow(offset, *bytes, &end)) {
      return internal_error("{}: tensor {}: shape {} is too large", file, quoted_name(tensor.name),
                            excerpt(Json(tensor.shape)));
    }
    header += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},", text(Json(tensor.name)),
                          stored_name(tensor.type), text(Json(tensor.shape)), offset, end);
    offset = end;
  }
  if (header.back() == ',') header.pop_back();
  header += '}';
  // The data begins at a multiple of 8, so that a mapped file can be read in place.
  header.resize((header.size() + kSizeField - 1) / kSizeField * kSizeField, ' ');
  const std::uint64_t bytes = header.size() - kSizeField;
  if (bytes > kMaxHeaderBytes) {
    return internal_error("{}: a header of {} bytes is more than readers accept ({})", file, bytes, kMaxHeaderBytes);
  }
  for (std::size_t i = 0; i < kSizeField; ++i) header[i] = static_cast<char>(bytes >> (8 * i) & 0xffU);
  return header;
}

}  // namespace rondo::model
