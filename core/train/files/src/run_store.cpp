#include "rondo/train/run_store.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "rondo/base/status.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using sqlite::Database;
using sqlite::Statement;
using Step = Statement::Step;

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS runs(id INTEGER PRIMARY KEY AUTOINCREMENT, output_dir TEXT NOT NULL UNIQUE, "
    "model TEXT NOT NULL, method TEXT NOT NULL, data TEXT NOT NULL, started REAL NOT NULL, ended REAL NOT NULL, "
    "status TEXT NOT NULL, process TEXT NOT NULL, steps INTEGER NOT NULL, total_steps INTEGER NOT NULL, "
    "final_loss REAL, best_eval_loss REAL, tokens_per_second REAL)";
constexpr const char* kColumns =
    "id, output_dir, model, method, data, started, ended, status, process, steps, total_steps, final_loss, "
    "best_eval_loss, tokens_per_second";

StoredRun row_of(const Statement& row) {
  StoredRun run;
  run.id = row.whole(0);
  run.output_dir = row.text(1);
  run.model = row.text(2);
  run.method = row.text(3);
  run.data = row.text(4);
  run.started = row.number(5);
  run.ended = row.number(6);
  run.status = row.text(7);
  run.process = row.text(8);
  run.steps = static_cast<std::uint64_t>(row.whole(9));
  run.total_steps = static_cast<std::uint64_t>(row.whole(10));
  run.final_loss = row.optional(11);
  run.best_eval_loss = row.optional(12);
  run.tokens_per_second = row.optional(13);
  return run;
}

/// Everything behind output_dir, in the order of kColumns.
void bind_rest(const StoredRun& run, Statement& statement) {
  statement.bind(run.model);
  statement.bind(run.method);
  statement.bind(run.data);
  statement.bind(run.started);
  statement.bind(run.ended);
  statement.bind(run.status);
  statement.bind(run.process);
  statement.bind(static_cast<std::int64_t>(run.steps));
  statement.bind(static_cast<std::int64_t>(run.total_steps));
  statement.bind(run.final_loss);
  statement.bind(run.best_eval_loss);
  statement.bind(run.tokens_per_second);
}

/// Files of /proc have no size: they are read to their end. Empty when there is none.
std::string read_proc(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Field 22 of /proc/<pid>/stat, the time of its start; the name in field 2 may hold anything but ends with ')'.
std::string start_of(const std::string& pid) {
  const std::string stat = read_proc(fs::path("/proc") / pid / "stat");
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return {};
  return stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string();
}

std::string boot() {
  const std::string id = read_proc("/proc/sys/kernel/random/boot_id");
  return id.substr(0, id.find('\n'));
}

}  // namespace

fs::path run_store_path() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return fs::path(value != nullptr ? value : "");
  };
  const fs::path named = variable("RONDO_RUNS_DB");
  if (named == "none") return {};
  if (!named.empty()) return named;
  if (const fs::path state = variable("XDG_STATE_HOME"); state.is_absolute()) return state / "rondo" / "runs.sqlite";
  if (const fs::path home = variable("HOME"); home.is_absolute()) {
    return home / ".local" / "state" / "rondo" / "runs.sqlite";
  }
  return {};
}

std::string this_process() {
  const std::string pid = std::to_string(::getpid());
  return fmt::format("{} {} {} {}", pid, start_of(pid), boot(), host_name());
}

bool is_gone(const std::string& process) {
  std::array<std::string, 4> parts;  // pid, start, boot, host (the rest, whatever it holds)
  std::size_t begin = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t end = process.find(' ', begin);
    if (end == std::string::npos) return true;
    parts[i] = process.substr(begin, end - begin);
    begin = end + 1;
  }
  parts[3] = process.substr(begin);
  if (parts[3] != host_name()) return false;
  return parts[2] != boot() || parts[1].empty() || start_of(parts[0]) != parts[1];
}

absl::StatusOr<RunStore> RunStore::open(const fs::path& path) {
  RONDO_ASSIGN_OR_RETURN(Database database, Database::open(path, Database::Access::kWrite));
  RONDO_RETURN_IF_ERROR(database.run(kSchema));
  return RunStore(std::move(database));
}

absl::StatusOr<std::vector<StoredRun>> RunStore::list(const fs::path& path) {
  std::vector<StoredRun> runs;
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return runs;
  if (fs::is_regular_file(path, ignored) && fs::is_empty(path, ignored)) return runs;  // made on a full disk
  RONDO_ASSIGN_OR_RETURN(const Database database, Database::open(path, Database::Access::kRead));
  Statement rows(database, fmt::format("SELECT {} FROM runs ORDER BY started, id", kColumns));
  if (!rows.ok()) return database.fault();
  Step state = Step::kRow;
  while ((state = rows.step()) == Step::kRow) runs.push_back(row_of(rows));
  if (state != Step::kDone) return database.fault();
  return runs;
}

absl::StatusOr<StoredRun> RunStore::begin(const StoredRun& run, bool resumed) {
  StoredRun line = run;
  if (resumed) {
    Statement found(database_, fmt::format("SELECT {} FROM runs WHERE output_dir = ?", kColumns));
    if (!found.ok()) return database_.fault();
    found.bind(run.output_dir);
    const Step state = found.step();
    if (state == Step::kRow) {
      const StoredRun before = row_of(found);
      line.id = before.id;
      line.started = before.started;
      line.final_loss = before.final_loss;
      line.best_eval_loss = before.best_eval_loss;
      line.tokens_per_second = before.tokens_per_second;
    } else if (state != Step::kDone) {
      return database_.fault();
    }
  }
  if (line.id != 0) {
    RONDO_RETURN_IF_ERROR(update(line));
    return line;
  }
  Statement insert(database_,
                   "INSERT OR REPLACE INTO runs(output_dir, model, method, data, started, ended, status, "
                   "process, steps, total_steps, final_loss, best_eval_loss, tokens_per_second) "
                   "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  if (!insert.ok()) return database_.fault();
  insert.bind(line.output_dir);
  bind_rest(line, insert);
  if (insert.step() != Step::kDone) return database_.fault();
  line.id = database_.last_row();
  return line;
}

absl::Status RunStore::update(const StoredRun& run) {
  Statement change(database_,
                   "UPDATE runs SET model = ?, method = ?, data = ?, started = ?, ended = ?, status = ?, "
                   "process = ?, steps = ?, total_steps = ?, final_loss = ?, best_eval_loss = ?, "
                   "tokens_per_second = ? WHERE id = ?");
  if (!change.ok()) return database_.fault();
  bind_rest(run, change);
  change.bind(run.id);
  if (change.step() != Step::kDone) return database_.fault();
  return absl::OkStatus();
}

}  // namespace rondo::train
