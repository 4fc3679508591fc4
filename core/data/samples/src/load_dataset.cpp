// Reading a file or a folder of files into samples, counting what becomes of every record.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "counting.h"
#include "prepared.h"
#include "record_format.h"
#include "record_reader.h"
#include "rondo/base/folder.h"
#include "rondo/base/status.h"
#include "rondo/data/samples.h"
#include "sample_builder.h"
#include "token_file.h"

namespace rondo::data {
namespace {

constexpr std::size_t kNamedWithoutTarget = 10;
constexpr std::uintmax_t kMostPrepared = 20ULL << 30U;  // bytes of all files of tokens together

absl::StatusOr<std::vector<std::filesystem::path>> data_files(const std::filesystem::path& path) {
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) {
    return invalid_input("{}: there is no such file or folder", path.string());
  }
  if (kind != std::filesystem::file_type::directory) return std::vector<std::filesystem::path>{path};
  constexpr std::array<std::string_view, 4> kExtensions = {".json", ".jsonl", ".ndjson", ".txt"};
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& entry : entries_of(path, error)) {
    const std::string extension = entry.extension().string();
    std::error_code ignored;                                   // an entry that cannot be examined is no data file
    if (entry.filename().string().starts_with('.')) continue;  // what editors and file managers leave
    if (std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end() &&
        std::filesystem::is_regular_file(entry, ignored)) {
      files.push_back(entry);
    }
  }
  if (error) return invalid_input("{}: {}", path.string(), error.message());
  if (files.empty()) {
    return invalid_input("{}: the folder holds no data file, expected .json, .jsonl, .ndjson or .txt", path.string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

ContainerHint hint_of(DataFormat format) {
  if (format == DataFormat::kAuto) return ContainerHint::kUnknown;
  return format == DataFormat::kPlainText ? ContainerHint::kText : ContainerHint::kJson;
}

/// Records on their way into a data set: into memory, or through `file` when there is one.
class Loader {
 public:
  Loader(const std::filesystem::path& path, const Renderer& renderer, const DataOptions& options,
         std::optional<TokenFileWriter> file)
      : options_(options), format_(options.format), builder_(renderer, options), file_(std::move(file)) {
    dataset_.report.path = path.string();
  }

  absl::Status read(const std::filesystem::path& file);
  bool full() const { return options_.max_samples != 0 && dataset_.report.records >= options_.max_samples; }
  /// What was read. Of a set that goes into a file only the report is there: the samples are in the file.
  absl::StatusOr<Dataset> finish();

 private:
  absl::Status read_text(const RecordReader& reader);
  absl::Status read_records(RecordReader& reader);
  absl::Status settle_format(DataFormat found, std::string_view place);
  absl::Status no_targets() const;
  absl::Status take(BuiltSample built);
  absl::Status keep(const Sample& sample, std::uint32_t targets);

  DataOptions options_;
  DataFormat format_;  // kAuto until the first record tells
  SampleBuilder builder_;
  std::optional<TokenFileWriter> file_;
  Dataset dataset_;
  std::string first_place_;  // of the record that told the format
  std::uint64_t without_assistant_ = 0;
  std::uint64_t weigh_nothing_ = 0;
  std::uint64_t not_written_ = 0;
  std::uint64_t cut_off_ = 0;
};

absl::Status Loader::read(const std::filesystem::path& file) {
  RONDO_ASSIGN_OR_RETURN(RecordReader reader, RecordReader::open(file, hint_of(options_.format)));
  dataset_.report.container = container_name(reader.container());
  if (reader.container() == Container::kText) {
    RONDO_RETURN_IF_ERROR(settle_format(DataFormat::kPlainText, file.string()));
    return read_text(reader);
  }
  return read_records(reader);
}

absl::Status Loader::settle_format(DataFormat found, std::string_view place) {
  if (format_ == DataFormat::kAuto) {
    format_ = found;
    first_place_ = place;
  }
  const bool mixed = (format_ == DataFormat::kPlainText) != (found == DataFormat::kPlainText);
  if (!mixed) return absl::OkStatus();
  return invalid_input("{}: is {}, but {} is {}; one format a data set", place, format_name(found), first_place_,
                       format_name(format_));
}

absl::Status Loader::read_text(const RecordReader& reader) {
  absl::Status status;
  const LongText read = builder_.build_windows(reader.text(), [&](const Sample& window) {
    BuiltSample built;
    built.sample = window;
    status = take(std::move(built));
    return status.ok() && !full();
  });
  dataset_.report.dropped_symbols += read.dropped;
  if (!read.not_utf8_at) return status;
  // Training would go on with U+FFFD in its place.
  return invalid_input("{}: not UTF-8 at byte {} (0x{:02x}): save it as UTF-8", reader.path().string(),
                       reader.text_begin() + *read.not_utf8_at + 1,
                       static_cast<unsigned char>(reader.text()[*read.not_utf8_at]));
}

absl::Status Loader::read_records(RecordReader& reader) {
  while (!full()) {
    RONDO_ASSIGN_OR_RETURN(std::optional<RawRecord> raw, reader.next());
    if (!raw) break;
    if (options_.format == DataFormat::kAuto) {
      const bool first = format_ == DataFormat::kAuto;
      auto found = infer_format(raw->value);
      // A later record that has another format's keys is told by what it lacks of the first one's.
      if (!found.ok() && first) return with_context(found.status(), raw->place);
      if (first) RONDO_RETURN_IF_ERROR(settle_format(*found, raw->place));
      if (format_ == DataFormat::kPlainText) return settle_format(found.ok() ? *found : DataFormat::kText, raw->place);
    }
    auto record = parse_record(raw->value, format_);
    if (!record.ok()) return with_context(record.status(), fmt::format("{} ({})", raw->place, format_name(format_)));
    auto built = builder_.build(*record);
    if (!built.ok()) return with_context(built.status(), raw->place);
    RONDO_RETURN_IF_ERROR(take(*std::move(built)));
  }
  return absl::OkStatus();
}

absl::Status Loader::take(BuiltSample built) {
  DataReport& report = dataset_.report;
  built.sample.index = report.records++;
  report.dropped_symbols += built.dropped_symbols;
  if (const std::uint32_t targets = count_targets(built.sample); targets > 0) {
    report.truncated += built.truncated ? 1U : 0U;
    return keep(built.sample, targets);
  }
  ++report.without_target;
  without_assistant_ += built.without_assistant ? 1U : 0U;
  not_written_ += built.answers_not_written ? 1U : 0U;
  weigh_nothing_ += built.answers_weigh_nothing ? 1U : 0U;
  cut_off_ += built.targets_cut_off ? 1U : 0U;
  if (report.first_without_target.size() < kNamedWithoutTarget)
    report.first_without_target.push_back(built.sample.index);
  return absl::OkStatus();
}

absl::Status Loader::keep(const Sample& sample, std::uint32_t targets) {
  DataReport& report = dataset_.report;
  count_kept(report, static_cast<std::uint32_t>(sample.ids.size()), targets);
  const TokenId largest = *std::max_element(sample.ids.begin(), sample.ids.end());
  if (largest > report.largest_token) {
    report.largest_token = largest;
    report.largest_token_record = sample.index;
  }
  if (file_) return file_->append(sample, targets);
  dataset_.samples.push_back(sample, targets);
  return absl::OkStatus();
}

absl::Status Loader::no_targets() const {
  const DataReport& report = dataset_.report;
  std::string why;
  if (without_assistant_ > 0) why += fmt::format(", {} have no message with the role assistant", without_assistant_);
  if (not_written_ > 0) why += fmt::format(", of {} the chat template writes no answer", not_written_);
  if (cut_off_ > 0) {
    why += fmt::format(", in {} every target lies beyond cutoff_len {}, so raise it", cut_off_, options_.cutoff_len);
  }
  if (weigh_nothing_ > 0) why += fmt::format(", of {} every answer to learn has weight 0", weigh_nothing_);
  const std::uint64_t others = report.records - without_assistant_ - not_written_ - weigh_nothing_ - cut_off_;
  if (others > 0) why += fmt::format(", {} have no text to learn", others);
  return invalid_input("{}: none of the {} records ({}) has a target token{}", report.path, report.records,
                       report.format, why);
}

absl::StatusOr<Dataset> Loader::finish() {
  dataset_.report.format = format_name(format_);
  if (dataset_.report.records == 0) return invalid_input("{}: holds no records", dataset_.report.path);
  if (dataset_.report.kept == 0) return no_targets();
  if (file_) RONDO_RETURN_IF_ERROR(file_->finish(dataset_.report));
  return std::move(dataset_);
}

absl::StatusOr<Dataset> read_all(const std::filesystem::path& path, std::span<const std::filesystem::path> files,
                                 const Renderer& renderer, const DataOptions& options,
                                 std::optional<TokenFileWriter> into) {
  Loader loader(path, renderer, options, std::move(into));
  for (const auto& file : files) {
    if (loader.full()) break;
    RONDO_RETURN_IF_ERROR(loader.read(file));
  }
  return loader.finish();
}

/// The set out of its file of tokens, which is made first unless it is there.
absl::StatusOr<Dataset> read_prepared(const std::filesystem::path& path, std::span<const std::filesystem::path> files,
                                      const Renderer& renderer, const DataOptions& options) {
  RONDO_ASSIGN_OR_RETURN(const std::filesystem::path prepared, prepared_file(files, renderer, options));
  std::optional<Dataset> dataset = read_token_file(prepared);
  const bool reused = dataset.has_value();
  if (!reused) {
    auto writer = TokenFileWriter::create(prepared);
    // A folder that cannot be written costs time and memory, not the run.
    if (!writer.ok()) return read_all(path, files, renderer, options, std::nullopt);
    RONDO_RETURN_IF_ERROR(read_all(path, files, renderer, options, *std::move(writer)).status());
    dataset = read_token_file(prepared);
    if (!dataset) return internal_error("{}: is not as it was written", prepared.string());
  }
  note_use(prepared, kMostPrepared);
  dataset->report.path = path.string();
  dataset->report.prepared = prepared.string();
  dataset->report.reused = reused;
  return *std::move(dataset);
}

}  // namespace

absl::StatusOr<Dataset> load_dataset(const std::filesystem::path& path, const Renderer& renderer,
                                     const DataOptions& options) {
  if (options.cutoff_len < 2) {
    return invalid_input("cutoff_len is {}, expected at least 2: labels are shifted by one", options.cutoff_len);
  }
  RONDO_ASSIGN_OR_RETURN(const auto files, data_files(path));
  if (worth_preparing(files, renderer, options)) return read_prepared(path, files, renderer, options);
  return read_all(path, files, renderer, options, std::nullopt);
}

}  // namespace rondo::data
