// The file of a data set's tokens, written once and mapped from then on.
//
//   codes:    int32[codes]           as code_of() writes them, sample after sample
//   samples:  {index:u64 length:u32 targets:u32}[samples]
//   report:   the DataReport as JSON, `report` bytes
//   "RONDOTOK" version:u32 zero:u32 samples:u64 codes:u64 report:u64
//   hash:     of all that stands before it, 32 hexadecimal digits (rondo/base/hash.h)
//
// Numbers are little-endian, as the machine has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/atomic_file.h"
#include "rondo/base/hash.h"
#include "rondo/data/samples.h"

namespace rondo::data {

/// The file is there, whole, after finish(), or not at all.
class TokenFileWriter {
 public:
  /// Makes the folder. Errors here and below: Internal naming the file and the reason.
  static absl::StatusOr<TokenFileWriter> create(const std::filesystem::path& path);

  absl::Status append(const Sample& sample, std::uint32_t targets);
  absl::Status finish(const DataReport& report);

 private:
  explicit TokenFileWriter(AtomicFile file);
  absl::Status put(std::span<const std::byte> bytes);
  absl::Status flush();

  AtomicFile file_;
  ContentHash hash_;
  std::vector<std::byte> buffer_;
  std::vector<TokenId> codes_;  // of the sample at hand
  std::vector<SampleList::Place> places_;
  std::uint64_t codes_written_ = 0;
};

/// The data set in the file; nothing when there is none, or one that is not whole.
std::optional<Dataset> read_token_file(const std::filesystem::path& path);

}  // namespace rondo::data
