// The file of a data set's tokens, written once and mapped from then on.
//
//   "RONDOTOK" version:u32 zero:u32 samples:u64 codes:u64 report:u64    then
//   codes:    int32[codes]           as code_of() writes them, sample after sample
//   samples:  {index:u64 length:u32 targets:u32}[samples]
//   report:   the DataReport as JSON, `report` bytes
//   hash:     of all that stands before it, 32 hexadecimal digits (rondo/base/hash.h)
//
// Numbers are little-endian, as the machine has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/hash.h"
#include "rondo/data/samples.h"

namespace rondo::data {

/// Writes under another name in the same folder; the file is there, whole, after finish(), or not at all.
class TokenFileWriter {
 public:
  /// Makes the folder. Errors: Internal naming the file and the reason.
  static absl::StatusOr<TokenFileWriter> create(const std::filesystem::path& path);
  TokenFileWriter(TokenFileWriter&& other) noexcept;
  TokenFileWriter& operator=(TokenFileWriter&&) = delete;
  ~TokenFileWriter();

  /// Errors: Internal naming the file and the reason.
  absl::Status append(const Sample& sample);
  absl::Status finish(const DataReport& report);

 private:
  TokenFileWriter(std::filesystem::path path, std::filesystem::path aside, int descriptor);
  absl::Status put(std::span<const std::byte> bytes);
  absl::Status flush();
  absl::Status failure(const char* what) const;

  std::filesystem::path path_;
  std::filesystem::path aside_;
  int descriptor_ = -1;
  std::vector<std::byte> buffer_;
  std::vector<TokenId> codes_;  // of the sample at hand
  std::vector<SampleList::Place> places_;
  std::uint64_t codes_written_ = 0;
};

/// The data set in the file; nothing when there is none, or one that is not whole.
std::optional<Dataset> read_token_file(const std::filesystem::path& path);

}  // namespace rondo::data
