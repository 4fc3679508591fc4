// The header is written last, in place of the zeros that held its room: only then is it known how much there is. The
// hash at the end is taken by reading the file again, which a page cache answers.
#include "token_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
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

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t zero = 0;
  std::uint64_t samples = 0;
  std::uint64_t codes = 0;
  std::uint64_t report = 0;
};
struct Record {
  std::uint64_t index = 0;
  std::uint32_t length = 0;
  std::uint32_t targets = 0;
};
static_assert(sizeof(Header) == 40 && sizeof(Record) == 16 && sizeof(TokenId) == 4);

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
  std::string aside = (path.parent_path() / ("." + path.filename().string() + ".XXXXXX")).string();
  const int descriptor = ::mkostemp(aside.data(), O_CLOEXEC);
  if (descriptor < 0) return internal_error("{}: cannot be written: {}", path.string(), std::strerror(errno));
  TokenFileWriter writer(path, aside, descriptor);
  RONDO_RETURN_IF_ERROR(writer.put(bytes_of(Header())));
  return writer;
}

TokenFileWriter::TokenFileWriter(std::filesystem::path path, std::filesystem::path aside, int descriptor)
    : path_(std::move(path)), aside_(std::move(aside)), descriptor_(descriptor) {
  buffer_.reserve(kBuffer);
}

TokenFileWriter::TokenFileWriter(TokenFileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      aside_(std::move(other.aside_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      buffer_(std::move(other.buffer_)),
      codes_(std::move(other.codes_)),
      places_(std::move(other.places_)),
      codes_written_(other.codes_written_) {}

TokenFileWriter::~TokenFileWriter() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(aside_.c_str());
}

absl::Status TokenFileWriter::failure(const char* what) const {
  return internal_error("{}: cannot be {}: {}; dataset_prepared_path names another folder, none keeps tokens in memory",
                        path_.string(), what, std::strerror(errno));
}

absl::Status TokenFileWriter::flush() {
  for (std::size_t done = 0; done < buffer_.size();) {
    const ssize_t n = ::write(descriptor_, buffer_.data() + done, buffer_.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure("written");
    done += static_cast<std::size_t>(n);
  }
  buffer_.clear();
  return absl::OkStatus();
}

absl::Status TokenFileWriter::put(std::span<const std::byte> bytes) {
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  return buffer_.size() < kBuffer ? absl::OkStatus() : flush();
}

absl::Status TokenFileWriter::append(const Sample& sample) {
  codes_.clear();
  for (std::size_t t = 0; t < sample.ids.size(); ++t) codes_.push_back(code_of(sample.ids[t], sample.labels[t]));
  places_.push_back({codes_written_, sample.index, static_cast<std::uint32_t>(codes_.size()), count_targets(sample)});
  codes_written_ += codes_.size();
  return put(std::as_bytes(std::span(codes_)));
}

absl::Status TokenFileWriter::finish(const DataReport& report) {
  for (const SampleList::Place& place : places_) {
    RONDO_RETURN_IF_ERROR(put(bytes_of(Record{place.index, place.length, place.targets})));
  }
  const std::string text = report_text(report);
  RONDO_RETURN_IF_ERROR(put(std::as_bytes(std::span(text))));
  RONDO_RETURN_IF_ERROR(flush());
  Header header;
  header.samples = places_.size();
  header.codes = codes_written_;
  header.report = text.size();
  if (::pwrite(descriptor_, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) {
    return failure("written");
  }
  RONDO_ASSIGN_OR_RETURN(const MappedFile written, MappedFile::open(aside_));
  const std::string hash = hash_of(written, written.bytes().size());
  RONDO_RETURN_IF_ERROR(put(std::as_bytes(std::span(hash))));
  RONDO_RETURN_IF_ERROR(flush());
  if (::fsync(descriptor_) != 0) return failure("synced");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) return failure("renamed into place");
  ::close(std::exchange(descriptor_, -1));
  return absl::OkStatus();
}

std::optional<Dataset> read_token_file(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file.ok()) return std::nullopt;
  const auto bytes = file->bytes();
  Header header;
  if (bytes.size() < sizeof(header) + kHashDigits) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::size_t body = bytes.size() - kHashDigits;
  const std::uint64_t most = body / sizeof(TokenId);  // keeps the sum below from running over
  if (header.magic != kMagic || header.version != kVersion || header.codes > most || header.samples > most ||
      header.report > body ||
      sizeof(header) + header.codes * sizeof(TokenId) + header.samples * sizeof(Record) + header.report != body) {
    return std::nullopt;
  }
  const auto text_at = [bytes](std::size_t at, std::size_t size) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + at, size);
  };
  if (text_at(body, kHashDigits) != hash_of(*file, body)) return std::nullopt;
  std::vector<SampleList::Place> places(static_cast<std::size_t>(header.samples));
  const std::byte* records = bytes.data() + sizeof(header) + header.codes * sizeof(TokenId);
  std::uint64_t first = 0;
  for (SampleList::Place& place : places) {
    Record record;
    std::memcpy(&record, records, sizeof(record));
    records += sizeof(record);
    place = {first, record.index, record.length, record.targets};
    first += record.length;
  }
  if (first != header.codes) return std::nullopt;
  Dataset dataset;
  dataset.report = report_of(text_at(body - static_cast<std::size_t>(header.report), header.report));
  file->release_pages(bytes);
  dataset.samples = SampleList::of_file(*std::move(file), sizeof(header), places);
  return dataset;
}

}  // namespace rondo::data
