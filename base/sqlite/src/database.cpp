#include "rondo/sqlite/database.h"

#include <sqlite3.h>

#include <system_error>

#include "rondo/base/status.h"

namespace rondo::sqlite {
namespace {

/// Another process writes for moments only: who waits longer than this waits for something else.
constexpr int kPatienceMilliseconds = 1000;

}  // namespace

void Database::Closer::operator()(sqlite3* handle) const { sqlite3_close(handle); }

absl::StatusOr<Database> Database::open(const std::filesystem::path& path, Access access) {
  std::error_code error;
  if (access == Access::kWrite && path.has_parent_path()) {
    std::filesystem::create_directories(path.parent_path(), error);
  }
  if (error) return invalid_input("{}: cannot be made: {}", path.parent_path().string(), error.message());
  const int flags = access == Access::kWrite ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  sqlite3* handle = nullptr;
  const int opened = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  Database database(std::unique_ptr<sqlite3, Closer>(handle), path.string());
  if (opened != SQLITE_OK) return database.fault();
  sqlite3_busy_timeout(handle, kPatienceMilliseconds);
  return database;
}

absl::Status Database::run(const std::string& sql) {
  if (sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK) return fault();
  return absl::OkStatus();
}

absl::Status Database::fault() const {
  return invalid_input("{}: {}", path_, handle_ != nullptr ? sqlite3_errmsg(handle_.get()) : "no memory to open it");
}

bool Database::broken() const {
  const int code = sqlite3_errcode(handle_.get());
  return code == SQLITE_NOTADB || code == SQLITE_CORRUPT;
}

std::int64_t Database::last_row() const { return sqlite3_last_insert_rowid(handle_.get()); }

Statement::Statement(const Database& database, const std::string& sql) {
  sqlite3_prepare_v2(database.handle(), sql.c_str(), -1, &statement_, nullptr);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

void Statement::bind(const std::string& text) {
  sqlite3_bind_text(statement_, ++bound_, text.c_str(), static_cast<int>(text.size()), SQLITE_TRANSIENT);
}
void Statement::bind(double number) { sqlite3_bind_double(statement_, ++bound_, number); }
void Statement::bind(std::int64_t number) { sqlite3_bind_int64(statement_, ++bound_, number); }
void Statement::bind(std::optional<double> number) {
  if (number) return bind(*number);
  sqlite3_bind_null(statement_, ++bound_);
}

Statement::Step Statement::step() {
  const int state = sqlite3_step(statement_);
  return state == SQLITE_ROW ? Step::kRow : state == SQLITE_DONE ? Step::kDone : Step::kError;
}

void Statement::restart() {
  sqlite3_reset(statement_);
  bound_ = 0;
}

std::string Statement::text(int column) const {
  const unsigned char* bytes = sqlite3_column_text(statement_, column);
  return bytes == nullptr ? "" : reinterpret_cast<const char*>(bytes);
}
double Statement::number(int column) const { return sqlite3_column_double(statement_, column); }
std::int64_t Statement::whole(int column) const { return sqlite3_column_int64(statement_, column); }
std::optional<double> Statement::optional(int column) const {
  if (sqlite3_column_type(statement_, column) == SQLITE_NULL) return std::nullopt;
  return number(column);
}

}  // namespace rondo::sqlite
