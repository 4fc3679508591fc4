// Telling the container by its first characters and cutting it into records.
#include "record_reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::data {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";
constexpr std::size_t kReleaseStep = 16U << 20U;

struct Signature {
  std::string_view bytes;
  std::string_view what;
};

// First bytes of files that are often handed over by mistake.
constexpr std::array<Signature, 7> kForeign = {{
    {"\xff\xfe", "UTF-16 text: save it as UTF-8"},
    {"\xfe\xff", "UTF-16 text: save it as UTF-8"},
    {"\x1f\x8b", "compressed with gzip: unpack it first"},
    {"\x28\xb5\x2f\xfd", "compressed with zstd: unpack it first"},
    {"PK\x03\x04", "a zip archive: unpack it first"},
    {"PAR1", "a Parquet file: convert it to JSON lines"},
    {"ARROW1", "an Arrow file: convert it to JSON lines"},
}};

bool is_blank(std::string_view text) { return text.find_first_not_of(kWhiteSpace) == std::string_view::npos; }

bool has_json_extension(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".json" || extension == ".jsonl" || extension == ".ndjson";
}

bool has_table_extension(const std::filesystem::path& path) {
  const std::string extension = path.extension().string();
  return extension == ".csv" || extension == ".tsv";
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

/// End of the array element that starts at `begin`: the comma or bracket after it, or the end of the text.
std::size_t element_end(std::string_view text, std::size_t begin) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      --depth;
    } else if (c == ',' && depth == 0) {
      return i;
    }
  }
  return text.size();
}

}  // namespace

std::string_view container_name(Container container) {
  switch (container) {
    case Container::kJsonLines:
      return "JSON lines";
    case Container::kJsonArray:
      return "JSON array";
    case Container::kText:
      break;
  }
  return "text";
}

absl::StatusOr<RecordReader> RecordReader::open(const std::filesystem::path& path, ContainerHint hint) {
  RONDO_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  RecordReader reader(std::move(file));
  RONDO_RETURN_IF_ERROR(reader.sniff(hint));
  return reader;
}

absl::Status RecordReader::sniff(ContainerHint hint) {
  const std::string name = file_.path().string();
  const auto bytes = file_.bytes();
  text_ = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  for (const Signature& foreign : kForeign) {
    if (text_.substr(0, foreign.bytes.size()) == foreign.bytes) return invalid_input("{}: is {}", name, foreign.what);
  }
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text_.substr(0, kByteOrderMark.size()) == kByteOrderMark) text_.remove_prefix(kByteOrderMark.size());
  const std::size_t start = text_.find_first_not_of(kWhiteSpace);
  if (start == std::string_view::npos) return invalid_input("{}: is empty, expected at least one record", name);
  if (text_.substr(0, 4096).find('\0') != std::string_view::npos) {
    return invalid_input("{}: holds zero bytes, expected UTF-8 text", name);
  }
  if (hint == ContainerHint::kText) return absl::OkStatus();  // container_ is kText
  const std::string_view body = text_.substr(start);
  const bool must_be_json = hint == ContainerHint::kJson || has_json_extension(file_.path());
  if (body.front() == '[') {
    const std::size_t inner = body.find_first_not_of(kWhiteSpace, 1);
    if (must_be_json || (inner != std::string_view::npos && body[inner] == '{')) container_ = Container::kJsonArray;
  } else if (body.front() == '{') {
    if (must_be_json || parse_json(first_line(body)).ok()) container_ = Container::kJsonLines;
  } else if (must_be_json) {
    return invalid_input(
        "{}: expected JSON lines (each starting with {{) or a JSON array (starting with [), found `{}`", name,
        body.substr(0, 1));
  }
  if (container_ == Container::kText && has_table_extension(file_.path())) {
    return invalid_input(
        "{}: is a table by its name: convert it to JSON lines, or set data_format: plain_text to learn its text as it "
        "is",
        name);
  }
  if (container_ == Container::kJsonArray) {
    line_ +=
        static_cast<std::size_t>(std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(start), '\n'));
    position_ = start + 1;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<RawRecord>> RecordReader::next() {
  release_read_pages();
  return container_ == Container::kJsonArray ? next_element() : next_line();
}

absl::StatusOr<std::optional<RawRecord>> RecordReader::next_line() {
  while (position_ < text_.size()) {
    const std::string_view line = first_line(text_.substr(position_));
    const std::string where = place();
    position_ += line.size() + 1;
    ++line_;
    if (is_blank(line)) continue;
    auto value = parse_json(line);
    if (!value.ok()) {
      const bool first = element_ == 0;
      return with_context(value.status(), first ? where + " (JSON lines hold one whole record a line)" : where);
    }
    ++element_;
    return RawRecord{*std::move(value), where};
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<RawRecord>> RecordReader::next_element() {
  if (position_ > text_.size()) return std::nullopt;
  skip_white_space();
  if (element_ == 0 && position_ < text_.size() && text_[position_] == ']') return end_of_array();
  ++element_;
  const std::string where = place();
  const std::size_t end = element_end(text_, position_);
  const std::string_view element = text_.substr(position_, end - position_);
  if (is_blank(element)) {
    return invalid_input("{}: expected a record, found {}", where,
                         end == text_.size() ? "the end of the file" : "none");
  }
  auto value = parse_json(element);
  if (!value.ok()) return with_context(value.status(), where);
  if (end == text_.size()) return invalid_input("{}: the list is not closed, expected `,` or `]` after it", where);
  line_ += static_cast<std::size_t>(std::count(element.begin(), element.end(), '\n'));
  position_ = end;
  if (text_[end] == ',') {
    ++position_;
  } else {
    auto closed = end_of_array();
    if (!closed.ok()) return closed;
  }
  return RawRecord{*std::move(value), where};
}

/// Takes the closing bracket; what follows must be blank. The position moves past the end: no more elements.
absl::StatusOr<std::optional<RawRecord>> RecordReader::end_of_array() {
  if (text_[position_] != ']') return invalid_input("{}: expected `]`, found `{}`", place(), text_[position_]);
  if (!is_blank(text_.substr(position_ + 1))) {
    return invalid_input("{}: text follows the closing ] of the list", file_.path().string());
  }
  position_ = text_.size() + 1;
  return std::nullopt;
}

std::string RecordReader::place() const {
  if (container_ == Container::kJsonLines) return fmt::format("{} line {}", file_.path().string(), line_);
  return fmt::format("{} element {} (line {})", file_.path().string(), element_, line_);
}

void RecordReader::skip_white_space() {
  while (position_ < text_.size() && kWhiteSpace.find(text_[position_]) != std::string_view::npos) {
    if (text_[position_] == '\n') ++line_;
    ++position_;
  }
}

void RecordReader::release_read_pages() {
  if (position_ < released_ + kReleaseStep || position_ > text_.size()) return;
  file_.release_pages(file_.bytes().subspan(text_begin() + released_, position_ - released_));
  released_ = position_;
}

}  // namespace rondo::data
