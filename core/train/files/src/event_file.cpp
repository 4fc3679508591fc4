#include "rondo/train/event_file.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "rondo/base/status.h"

namespace rondo::train {
namespace {

constexpr std::uint32_t kCastagnoli = 0x82F63B78U;  // reflected
constexpr std::uint32_t kMask = 0xA282EAD8U;
constexpr std::int64_t kSessionStart = 1;

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1U) ^ ((value & 1U) != 0 ? kCastagnoli : 0U);
    table[i] = value;
  }
  return table;
}
constexpr std::array<std::uint32_t, 256> kTable = make_table();

std::uint32_t masked(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + kMask; }

template <typename Word>
std::string little_endian(Word word) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof word; ++i) bytes += static_cast<char>((word >> (8 * i)) & 0xFFU);
  return bytes;
}

// Protobuf: a field is its number and wire type, then its value.
enum WireType : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}
std::string key(std::uint64_t field, WireType type) { return varint((field << 3U) | type); }
std::string number_field(std::uint64_t field, std::int64_t value) {
  return key(field, kVarint) + varint(static_cast<std::uint64_t>(value));
}
std::string double_field(std::uint64_t field, double value) {
  return key(field, kFixed64) + little_endian(std::bit_cast<std::uint64_t>(value));
}
std::string float_field(std::uint64_t field, float value) {
  return key(field, kFixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
}
std::string bytes_field(std::uint64_t field, std::string_view value) {
  return key(field, kBytes) + varint(value.size()) + std::string(value);
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFU];
  return ~crc;
}

std::string frame_record(std::string_view data) {
  const std::string length = little_endian(static_cast<std::uint64_t>(data.size()));
  return length + little_endian(masked(length)) + std::string(data) + little_endian(masked(data));
}

std::string encode_version(double wall_time) { return double_field(1, wall_time) + bytes_field(3, "brain.Event:2"); }

std::string encode_session_start(double wall_time, std::int64_t step) {
  return double_field(1, wall_time) + number_field(2, step) + bytes_field(7, number_field(1, kSessionStart));
}

std::string encode_scalars(double wall_time, std::int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
  }
  return double_field(1, wall_time) + number_field(2, step) + bytes_field(5, summary);
}

absl::StatusOr<EventFile> EventFile::open(const std::filesystem::path& folder, std::int64_t first_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return invalid_input("{}: cannot be made: {}", folder.string(), error.message());
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  EventFile file;
  // TensorBoard takes files in the order of their names: the time has to come first, of one width.
  file.path_ =
      folder / fmt::format("events.out.tfevents.{:010.0f}.{}.{}.{}", now(), host.data(), ::getpid(), first_step);
  file.file_.reset(std::fopen(file.path_.c_str(), "wb"));
  if (file.file_ == nullptr) {
    return invalid_input("{}: cannot be written: {}", file.path_.string(), std::strerror(errno));
  }
  RONDO_RETURN_IF_ERROR(file.append(encode_version(now())));
  RONDO_RETURN_IF_ERROR(file.append(encode_session_start(now(), first_step)));
  return file;
}

absl::Status EventFile::write(std::int64_t step, const Scalars& scalars) {
  return append(encode_scalars(now(), step, scalars));
}

absl::Status EventFile::append(std::string_view event) {
  const std::string record = frame_record(event);
  if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() || std::fflush(file_.get()) != 0) {
    return internal_error("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  return absl::OkStatus();
}

}  // namespace rondo::train
