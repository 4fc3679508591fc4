// What says how much there is stands at the end, where it is known, so that the file is written from front to back.
#include "token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "rondo/base/file.h"
#include "rondo/base/status.h"

namespace rondo::data {
namespace {

constexpr std::array<char, 8> kMagic = {'R', 'O', 'N', 'D', 'O', 'T', 'O', 'K'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kBuffer = 1U << 20U;
constexpr std::size_t kHashDigits = 32;

struct Trailer {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  std::uint64_t samples = 0;
  std::uint64_t codes = 0;
  std::uint64_t report = 0;
};
struct SamplePlace {
  std::uint64_t index = 0;
  std::uint32_t length = 0;
  std::uint32_t targets = 0;
};
static_assert(sizeof(Trailer) == 40 && sizeof(SamplePlace) == 16 && sizeof(TokenId) == 4);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::string report_text(const DataReport& report) {
  const nlohmann::ordered_json json = {{"format", report.format},
                                       {"container", report.container},
                                       {"records", report.records},
                                       {"kept", report.kept},
                                       {"truncated", report.truncated},
                                       {"without_target", report.without_target},
                                       {"tokens", report.tokens},
                                       {"target_tokens", report.target_tokens},
                                       {"dropped_symbols", report.dropped_symbols},
                                       {"longest", report.longest},
                                       {"largest_token", report.largest_token},
                                       {"largest_token_record", report.largest_token_record},
                                       {"first_without_target", report.first_without_target}};
  return json.dump();
}

/// What report_text() has written: the hash was right, so the fields are there.
DataReport report_of(std::string_view text) {
  const auto json = nlohmann::json::parse(text);
  DataReport report;
  report.format = json["format"];
  report.container = json["container"];
  report.records = json["records"];
  report.kept = json["kept"];
  report.truncated = json["truncated"];
  report.without_target = json["without_target"];
  report.tokens = json["tokens"];
  report.target_tokens = json["target_tokens"];
  report.dropped_symbols = json["dropped_symbols"];
  report.longest = json["longest"];
  report.largest_token = json["largest_token"];
  report.largest_token_record = json["largest_token_record"];
  report.first_without_target = json["first_without_target"].get<std::vector<std::uint64_t>>();
  return report;
}

/// Hash of the first `size` bytes, whose pages are given back on the way.
std::string hash_of(const MappedFile& file, std::size_t size) {
  ContentHash hash;
  for (std::size_t at = 0; at < size; at += kBuffer) {
    const auto piece = file.bytes().subspan(at, std::min(kBuffer, size - at));
    hash.add(piece);
    file.release_pages(piece);
  }
  return hash.hex();
}

}  // namespace

absl::StatusOr<TokenFileWriter> TokenFileWriter::create(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) return internal_error("{}: cannot be made: {}", path.parent_path().string(), error.message());
  remove_abandoned_files(path.parent_path());
  RONDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  return TokenFileWriter(std::move(file));
}

TokenFileWriter::TokenFileWriter(AtomicFile file) : file_(std::move(file)) { buffer_.reserve(kBuffer); }

absl::Status TokenFileWriter::flush() {
  hash_.add(buffer_);
  const absl::Status written = file_.write(buffer_);
  buffer_.clear();
  if (written.ok()) return written;
  return absl::Status(written.code(), message_of(written) +
                                          "; dataset_prepared_path names another folder, none keeps tokens in memory");
}

absl::Status TokenFileWriter::put(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return buffer_.size() < kBuffer ? absl::OkStatus() : flush();
}

absl::Status TokenFileWriter::append(const Sample& sample, std::uint32_t targets) {
  codes_.clear();
  for (std::size_t t = 0; t < sample.ids.size(); ++t) codes_.push_back(code_of(sample.ids[t], sample.labels[t]));
  places_.push_back({codes_written_, sample.index, static_cast<std::uint32_t>(codes_.size()), targets});
  codes_written_ += codes_.size();
  return put(std::as_bytes(std::span(codes_)));
}

absl::Status TokenFileWriter::finish(const DataReport& report) {
  for (const SampleList::Place& place : places_) {
    RONDO_RETURN_IF_ERROR(put(bytes_of(SamplePlace{place.index, place.length, place.targets})));
  }
  const std::string text = report_text(report);
  RONDO_RETURN_IF_ERROR(put(std::as_bytes(std::span(text))));
  Trailer trailer;
  trailer.samples = places_.size();
  trailer.codes = codes_written_;
  trailer.report = text.size();
  RONDO_RETURN_IF_ERROR(put(bytes_of(trailer)));
  RONDO_RETURN_IF_ERROR(flush());
  const std::string hash = hash_.hex();
  RONDO_RETURN_IF_ERROR(put(std::as_bytes(std::span(hash))));
  RONDO_RETURN_IF_ERROR(flush());
  return file_.commit();
}

std::optional<Dataset> read_token_file(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return std::nullopt;
  const auto bytes = file->bytes();
  Trailer trailer;
  if (bytes.size() < sizeof(trailer) + kHashDigits) return std::nullopt;
  const std::size_t hashed = bytes.size() - kHashDigits;
  const std::size_t body = hashed - sizeof(trailer);
  std::memcpy(&trailer, bytes.data() + body, sizeof(trailer));
  const std::uint64_t most = body / sizeof(TokenId);  // keeps the sum below from running over
  if (trailer.magic != kMagic || trailer.version != kVersion || trailer.codes > most || trailer.samples > most ||
      trailer.report > body ||
      trailer.codes * sizeof(TokenId) + trailer.samples * sizeof(SamplePlace) + trailer.report != body) {
    return std::nullopt;
  }
  const auto text_at = [bytes](std::size_t at, std::size_t size) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + at, size);
  };
  if (text_at(hashed, kHashDigits) != hash_of(*file, hashed)) return std::nullopt;
  std::vector<SampleList::Place> places(static_cast<std::size_t>(trailer.samples));
  const std::byte* records = bytes.data() + trailer.codes * sizeof(TokenId);
  std::uint64_t first = 0;
  for (SampleList::Place& place : places) {
    SamplePlace record;
    std::memcpy(&record, records, sizeof(record));
    records += sizeof(record);
    place = {first, record.index, record.length, record.targets};
    first += record.length;
  }
  if (first != trailer.codes) return std::nullopt;
  Dataset dataset;
  dataset.report = report_of(text_at(body - static_cast<std::size_t>(trailer.report), trailer.report));
  file->release_pages(bytes);
  dataset.samples = SampleList::of_file(*std::move(file), places);
  return dataset;
}

}  // namespace rondo::data
