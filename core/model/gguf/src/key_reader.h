// Typed access to a file's keys. The first thing that is wrong is kept; what is read after it means nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "stored_file.h"

namespace rondo::gguf {

class KeyReader {
 public:
  /// `file` must outlive this.
  explicit KeyReader(const StoredFile& file) : file_(file) {}

  bool has(std::string_view key) const { return file_.keys.contains(key); }
  bool is_list(std::string_view key) const;

  /// Of any integer type. Without a fallback an absent key is an error.
  std::uint32_t integer(const std::string& key, std::uint32_t low, std::uint32_t high,
                        std::optional<std::uint32_t> fallback = std::nullopt);
  /// Of a floating type; the shortest decimal that gives the same fp32 number: 1e-05, as it stood in config.json.
  double number(const std::string& key, double low, double high, std::optional<double> fallback = std::nullopt);
  std::string text(const std::string& key, const std::optional<std::string>& fallback = std::nullopt);
  bool flag(const std::string& key, bool fallback);
  /// Each of these is empty when the key is absent. Texts are UTF-8.
  std::vector<std::string_view> texts(const std::string& key);
  std::vector<float> floats(const std::string& key);
  std::vector<std::int32_t> integers(const std::string& key);
  std::vector<bool> flags(const std::string& key);

  /// The file, the key and what is wrong with it.
  void refuse(std::string_view key, std::string_view what);
  const absl::Status& status() const { return status_; }

 private:
  /// Null when absent or of another form, which is then refused.
  const Value* find(const std::string& key, bool is_array, std::string_view wanted, bool (*suits)(ValueType));

  const StoredFile& file_;
  absl::Status status_;
};

}  // namespace rondo::gguf
