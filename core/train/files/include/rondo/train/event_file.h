// TensorBoard's event files, written by hand.
//
//   file    = record*                                                          (TFRecord framing, little endian)
//   record  = length:u64  masked_crc32c(length):u32  data:byte[length]  masked_crc32c(data):u32
//   masked_crc32c(x) = rotate_right(crc32c(x), 15) + 0xA282EAD8                 (crc32c: Castagnoli's polynomial)
//   data    = Event as protobuf: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary, 7 session_log
//   summary = 1 value*;  value = 1 tag string, 2 simple_value float
//   session_log = 1 status enum (1: START): steps from this event's on take the place of those of earlier files
//
// The first event is file_version "brain.Event:2". Source: TensorFlow's record_writer, event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rondo::train {

using Scalars = std::vector<std::pair<std::string, double>>;

std::uint32_t crc32c(std::string_view bytes);
std::string frame_record(std::string_view data);

/// Events as protobuf; `wall_time` in seconds since 1970.
std::string encode_version(double wall_time);
std::string encode_session_start(double wall_time, std::int64_t step);
std::string encode_scalars(double wall_time, std::int64_t step, const Scalars& scalars);

/// A file of events, flushed after each.
class EventFile {
 public:
  /// Makes `folder` and a file of its own in it; `first_step`: of the run's first event. Errors: InvalidArgument naming
  /// the path.
  static absl::StatusOr<EventFile> open(const std::filesystem::path& folder, std::int64_t first_step);
  absl::Status write(std::int64_t step, const Scalars& scalars);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  absl::Status append(std::string_view event);
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

}  // namespace rondo::train
