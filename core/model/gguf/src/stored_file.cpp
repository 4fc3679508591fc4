#include "stored_file.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "load_number.h"
#include "rondo/base/status.h"

namespace rondo::gguf {
namespace {

constexpr std::uint32_t kMagic = 0x46554747;  // GGUF
constexpr std::uint64_t kMostKeys = 1U << 16U;
constexpr std::uint64_t kMostTensors = 1U << 20U;
constexpr std::uint64_t kLongestName = 65535;
constexpr std::uint32_t kMostDimensions = 4;
constexpr std::uint32_t kMostAlignment = 1U << 20U;
constexpr int kDeepest = 4;  // arrays within arrays

/// Reads front to back and never past the end.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, std::string origin) : bytes_(bytes), origin_(std::move(origin)) {}

  /// What is being read, for messages: "key \"general.name\"".
  void now(std::string what) { what_ = std::move(what); }
  std::size_t position() const { return position_; }
  std::uint64_t left() const { return bytes_.size() - position_; }

  absl::StatusOr<std::span<const std::byte>> take(std::uint64_t size) {
    if (size > left()) {
      return invalid_input("{}: {}: needs {} bytes at byte {}, the file has {} more; is it complete?", origin_, what_,
                           size, position_, left());
    }
    const auto taken = bytes_.subspan(position_, size);
    position_ += size;
    return taken;
  }

  template <typename Number>
  absl::StatusOr<Number> number() {
    RONDO_ASSIGN_OR_RETURN(const auto bytes, take(sizeof(Number)));
    return load_number<Number>(bytes.data());
  }

  absl::StatusOr<std::string_view> text() {
    RONDO_ASSIGN_OR_RETURN(const auto size, number<std::uint64_t>());
    RONDO_ASSIGN_OR_RETURN(const auto bytes, take(size));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  absl::StatusOr<std::string> name() {
    RONDO_ASSIGN_OR_RETURN(const std::string_view read, text());
    if (read.empty() || read.size() > kLongestName) {
      return invalid_input("{}: {}: expected a name of 1 to {} bytes, found {}", origin_, what_, kLongestName,
                           read.size());
    }
    return std::string(read);
  }

  template <typename... Args>
  absl::Status error(fmt::format_string<Args...> format, Args&&... args) const {
    return invalid_input("{}: {}: {}", origin_, what_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  std::string origin_;
  std::string what_ = "header";
  std::size_t position_ = 0;
};

/// Bytes of a number or truth value, 0 for every other type.
std::uint64_t size_of(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

absl::StatusOr<ValueType> read_type(Cursor& in) {
  RONDO_ASSIGN_OR_RETURN(const auto type, in.number<std::uint32_t>());
  if (type > static_cast<std::uint32_t>(ValueType::kFloat64))
    return in.error("expected a type below 13, found {}", type);
  return static_cast<ValueType>(type);
}

absl::StatusOr<Value> read_value(Cursor& in, int depth) {
  Value value;
  RONDO_ASSIGN_OR_RETURN(value.type, read_type(in));
  if (value.type == ValueType::kArray) {
    if (depth == kDeepest) return in.error("arrays are nested more than {} deep", kDeepest);
    value.is_array = true;
    RONDO_ASSIGN_OR_RETURN(value.type, read_type(in));
    RONDO_ASSIGN_OR_RETURN(value.count, in.number<std::uint64_t>());
    // A text takes eight bytes at least, an array twelve: a count that cannot be is found before memory is taken.
    const std::uint64_t least = value.type == ValueType::kArray ? 12 : std::max<std::uint64_t>(size_of(value.type), 1);
    if (value.count > in.left() / (value.type == ValueType::kString ? 8 : least)) {
      return in.error("an array of {} elements does not fit in the {} bytes that the file has left", value.count,
                      in.left());
    }
  }
  if (value.type == ValueType::kString) {
    value.texts.reserve(value.count);
    for (std::uint64_t i = 0; i < value.count; ++i) {
      RONDO_ASSIGN_OR_RETURN(const std::string_view text, in.text());
      value.texts.push_back(text);
    }
  } else if (value.type == ValueType::kArray) {
    for (std::uint64_t i = 0; i < value.count; ++i) RONDO_RETURN_IF_ERROR(read_value(in, depth + 1).status());
  } else {
    RONDO_ASSIGN_OR_RETURN(value.bytes, in.take(value.count * size_of(value.type)));
  }
  return value;
}

absl::Status read_keys(Cursor& in, std::uint64_t count, StoredFile& out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    in.now(fmt::format("key {} of {}", i + 1, count));
    RONDO_ASSIGN_OR_RETURN(std::string name, in.name());
    in.now(fmt::format("key {}", name_in_quotes(name)));
    RONDO_ASSIGN_OR_RETURN(Value value, read_value(in, 0));
    if (!out.keys.emplace(std::move(name), std::move(value)).second) return in.error("stands twice; expected it once");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::uint64_t> read_alignment(Cursor& in, const StoredFile& out) {
  constexpr std::uint64_t kDefault = 32;
  const auto found = out.keys.find("general.alignment");
  if (found == out.keys.end()) return kDefault;
  in.now("key \"general.alignment\"");
  const Value& value = found->second;
  if (value.type != ValueType::kUint32 || value.is_array) return in.error("expected a 32-bit number");
  const auto alignment = load_number<std::uint32_t>(value.bytes.data());
  if (!std::has_single_bit(alignment) || alignment > kMostAlignment) {
    return in.error("expected a power of two up to {}, found {}", kMostAlignment, alignment);
  }
  return alignment;
}

struct Place {
  StoredTensor tensor;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

absl::StatusOr<Place> read_place(Cursor& in, std::uint64_t alignment) {
  Place place;
  RONDO_ASSIGN_OR_RETURN(place.tensor.name, in.name());
  in.now(fmt::format("tensor {}", name_in_quotes(place.tensor.name)));
  RONDO_ASSIGN_OR_RETURN(const auto dimensions, in.number<std::uint32_t>());
  if (dimensions == 0 || dimensions > kMostDimensions) {
    return in.error("expected 1 to {} dimensions, found {}", kMostDimensions, dimensions);
  }
  std::uint64_t elements = 1;
  for (std::uint32_t i = 0; i < dimensions; ++i) {
    RONDO_ASSIGN_OR_RETURN(const auto size, in.number<std::uint64_t>());
    // Four bytes a number must not overflow either.
    if (size == 0 || size > std::numeric_limits<std::uint64_t>::max() / 8 / elements) {
      return in.error("dimension {} of {} numbers is empty or too large", i + 1, size);
    }
    elements *= size;
    place.tensor.shape.insert(place.tensor.shape.begin(), size);
  }
  RONDO_ASSIGN_OR_RETURN(const auto type, in.number<std::uint32_t>());
  place.tensor.coding = find_coding(type);
  if (place.tensor.coding == nullptr) {
    return in.error("{} is not supported; supported: {}", type_in_words(type), readable_types());
  }
  const Coding& coding = *place.tensor.coding;
  if (place.tensor.shape.back() % coding.block_numbers != 0) {
    return in.error("rows of {} numbers are no whole blocks of {}, as {} has them", place.tensor.shape.back(),
                    coding.block_numbers, coding.name);
  }
  place.bytes = elements / coding.block_numbers * coding.block_bytes;
  RONDO_ASSIGN_OR_RETURN(place.offset, in.number<std::uint64_t>());
  if (place.offset % alignment != 0) {
    return in.error("offset {} is no multiple of the file's alignment {}", place.offset, alignment);
  }
  return place;
}

/// Tensors lie within `data` and nowhere on each other.
absl::Status place_tensors(const std::string& origin, std::span<const std::byte> data, std::vector<Place> places,
                           StoredFile& out) {
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.offset < b.offset; });
  for (std::size_t i = 0; i < places.size(); ++i) {
    Place& place = places[i];
    const std::string name = name_in_quotes(place.tensor.name);
    if (place.offset > data.size() || place.bytes > data.size() - place.offset) {
      return invalid_input("{}: tensor {}: needs {} bytes at offset {}, the file has {} bytes of data; is it complete?",
                           origin, name, place.bytes, place.offset, data.size());
    }
    if (i + 1 < places.size() && place.offset + place.bytes > places[i + 1].offset) {
      return invalid_input("{}: tensor {}: lies on tensor {}: {} bytes at offset {}, the other begins at {}", origin,
                           name, name_in_quotes(places[i + 1].tensor.name), place.bytes, place.offset,
                           places[i + 1].offset);
    }
    place.tensor.data = data.subspan(place.offset, place.bytes);
    const std::string key = place.tensor.name;
    if (!out.tensors.emplace(key, std::move(place.tensor)).second) {
      return invalid_input("{}: tensor {}: stands twice; expected it once", origin, name);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string name_in_quotes(std::string_view name) {
  constexpr std::size_t kLongest = 120;
  const std::string text = nlohmann::json(std::string(name.substr(0, kLongest)))
                               .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return name.size() > kLongest ? text + "..." : text;
}

absl::StatusOr<StoredFile> open_stored_file(const std::filesystem::path& path) {
  RONDO_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  StoredFile out{std::move(mapped), {}, {}, {}};
  const std::string origin = out.origin();
  const std::span<const std::byte> bytes = out.file.bytes();
  Cursor in(bytes, origin);
  RONDO_ASSIGN_OR_RETURN(const auto magic, in.number<std::uint32_t>());
  if (magic != kMagic) return invalid_input("{}: expected a GGUF file, found another beginning", origin);
  RONDO_ASSIGN_OR_RETURN(const auto version, in.number<std::uint32_t>());
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffffU) == 0;
    return invalid_input("{}: version: expected 2 or 3, found {}{}", origin, version,
                         swapped ? "; a big-endian file is not supported" : "");
  }
  RONDO_ASSIGN_OR_RETURN(const auto tensors, in.number<std::uint64_t>());
  RONDO_ASSIGN_OR_RETURN(const auto keys, in.number<std::uint64_t>());
  if (keys > kMostKeys) return in.error("expected at most {} keys, found {}", kMostKeys, keys);
  if (tensors > kMostTensors) return in.error("expected at most {} tensors, found {}", kMostTensors, tensors);
  RONDO_RETURN_IF_ERROR(read_keys(in, keys, out));
  RONDO_ASSIGN_OR_RETURN(const std::uint64_t alignment, read_alignment(in, out));
  std::vector<Place> places;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    in.now(fmt::format("tensor {} of {}", i + 1, tensors));
    RONDO_ASSIGN_OR_RETURN(Place place, read_place(in, alignment));
    places.push_back(std::move(place));
  }
  const std::size_t begin = std::min(bytes.size(), (in.position() + alignment - 1) / alignment * alignment);
  out.head = bytes.first(begin);
  RONDO_RETURN_IF_ERROR(place_tensors(origin, bytes.subspan(begin), std::move(places), out));
  return out;
}

}  // namespace rondo::gguf
