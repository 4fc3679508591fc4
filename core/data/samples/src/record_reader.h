// Records of one data file, one after another: JSON lines, the elements of a JSON array, or one plain text.
//
//   JSON lines  record LF record LF ...   only LF ends a line; a CR before it is white space; empty lines are skipped
//   JSON array  [ record , record ... ]
// The file is mapped and parsed record by record: memory follows the largest record, not the file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "json_text.h"
#include "rondo/base/file.h"

namespace rondo::data {

enum class Container { kJsonLines, kJsonArray, kText };

/// What the caller knows of the container before it is looked at.
enum class ContainerHint { kUnknown, kJson, kText };

/// "JSON lines", "JSON array", "text".
std::string_view container_name(Container container);

struct RawRecord {
  Json value;
  std::string place;  // "data.jsonl line 3", "data.json element 2 (line 9)": elements and lines count from 1
};

class RecordReader {
 public:
  /// Errors: InvalidArgument naming the path when it cannot be read, is empty, or is no UTF-8 text.
  static absl::StatusOr<RecordReader> open(const std::filesystem::path& path, ContainerHint hint);

  Container container() const { return container_; }
  /// The whole text without a byte order mark; only for Container::kText.
  std::string_view text() const { return text_; }
  /// The byte of the file that `text()` begins at.
  std::size_t text_begin() const { return file_.bytes().size() - text_.size(); }
  const std::filesystem::path& path() const { return file_.path(); }
  /// The next record, nothing at the end. Errors: InvalidArgument with the place and what is wrong with the JSON.
  absl::StatusOr<std::optional<RawRecord>> next();

 private:
  explicit RecordReader(MappedFile file) : file_(std::move(file)) {}
  absl::Status sniff(ContainerHint hint);
  absl::StatusOr<std::optional<RawRecord>> next_line();
  absl::StatusOr<std::optional<RawRecord>> next_element();
  absl::StatusOr<std::optional<RawRecord>> end_of_array();
  std::string place() const;
  void skip_white_space();
  void release_read_pages();

  MappedFile file_;
  std::string_view text_;
  Container container_ = Container::kText;
  std::size_t position_ = 0;  // in text_
  std::size_t released_ = 0;  // pages before this were given back
  std::size_t line_ = 1;      // of position_
  std::size_t element_ = 0;   // elements returned
};

}  // namespace rondo::data
