// The small texts that describe a model (config.json, tokenizer.json, ...), wherever they come from: the files of a
// folder, or texts that were made from another format and stand for such files.
//
// Immutable: may be read from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace rondo {

class Documents {
 public:
  /// A folder's files, read when they are asked for.
  explicit Documents(std::filesystem::path folder) : origin_(std::move(folder)) {}
  /// `texts` by name, made from the file `origin`.
  Documents(std::filesystem::path origin, std::map<std::string, std::string> texts)
      : origin_(std::move(origin)), texts_(std::move(texts)), made_(true) {}
  Documents() : made_(true) {}

  bool has(const std::string& name) const;
  /// Errors: InvalidArgument naming the place and the reason, also when there are more than `limit` bytes.
  absl::StatusOr<std::string> read(const std::string& name,
                                   std::size_t limit = std::numeric_limits<std::size_t>::max()) const;
  /// How messages call a document: "folder/config.json", "model.gguf as config.json".
  std::string place(const std::string& name) const;
  /// The folder, or the file that the texts were made from.
  const std::filesystem::path& origin() const { return origin_; }
  /// Whether the texts are no files of their own.
  bool made() const { return made_; }

 private:
  std::filesystem::path origin_;
  std::map<std::string, std::string> texts_;
  bool made_ = false;
};

}  // namespace rondo
