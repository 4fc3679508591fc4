// An SQLite file and its statements, as the program's own lists and caches use them.
//
// Several processes may use a file at once: who finds it locked waits a second at most. Objects are used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace rondo::sqlite {

class Database {
 public:
  enum class Access : std::uint8_t { kRead, kWrite };
  /// kWrite makes file and folder where they are missing. Errors: InvalidArgument naming the file and what is wrong
  /// with it; what it holds shows when it is first used.
  static absl::StatusOr<Database> open(const std::filesystem::path& path, Access access);

  /// Runs SQL without results. Errors: as fault().
  absl::Status run(const std::string& sql);
  /// InvalidArgument: file and last error.
  absl::Status fault() const;
  /// The last error says that the file is no database or a damaged one, rather than locked or out of reach.
  bool broken() const;
  std::int64_t last_row() const;
  sqlite3* handle() const { return handle_.get(); }

 private:
  struct Closer {
    void operator()(sqlite3* handle) const;
  };
  Database(std::unique_ptr<sqlite3, Closer> handle, std::string path)
      : handle_(std::move(handle)), path_(std::move(path)) {}
  std::unique_ptr<sqlite3, Closer> handle_;
  std::string path_;
};

/// One SQL statement: bound from 1 in order, read by column from 0.
class Statement {
 public:
  Statement(const Database& database, const std::string& sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  /// False when the text was refused.
  bool ok() const { return statement_ != nullptr; }
  void bind(const std::string& text);
  void bind(double number);
  void bind(std::int64_t number);
  void bind(std::optional<double> number);

  enum class Step : std::uint8_t { kRow, kDone, kError };
  Step step();
  /// For other values.
  void restart();

  std::string text(int column) const;
  double number(int column) const;
  std::int64_t whole(int column) const;
  std::optional<double> optional(int column) const;

 private:
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0;
};

}  // namespace rondo::sqlite
