// The list of this user's runs: an SQLite file that `rondo train` writes a line into at a run's start and end.
//
// It lies where RONDO_RUNS_DB says ("none": no list is kept), else in $XDG_STATE_HOME/rondo/runs.sqlite or
// $HOME/.local/state/rondo/runs.sqlite. One line a folder: a run that is resumed goes on with its line, one that
// overwrites a folder replaces it.
//
//   CREATE TABLE runs(id INTEGER PRIMARY KEY AUTOINCREMENT, output_dir TEXT UNIQUE, model, method, data, started REAL,
//     ended REAL, status, process, steps, total_steps, final_loss, best_eval_loss, tokens_per_second)
//
// Several processes may use the file at once; an object is used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/sqlite/database.h"

namespace rondo::train {

struct StoredRun {
  std::int64_t id = 0;  // 0: not in the store
  std::string output_dir;
  std::string model;
  std::string method;
  std::string data;
  double started = 0;  // seconds since 1970; 0: unknown
  double ended = 0;    // 0: not yet, or unknown
  std::string status;  // running, done, interrupted, failed, crashed (its process is gone)
  std::string process;
  std::uint64_t steps = 0;
  std::uint64_t total_steps = 0;  // 0: unknown
  std::optional<double> final_loss;
  std::optional<double> best_eval_loss;
  std::optional<double> tokens_per_second;
};

/// Empty: none is kept.
std::filesystem::path run_store_path();

/// This process, told apart from a later one of the same number.
std::string this_process();
/// That process of this_process() has ended; false when it is one of another machine.
bool is_gone(const std::string& process);

class RunStore {
 public:
  /// Makes file and folder where they are missing. Errors: InvalidArgument naming the file and what is wrong with it.
  static absl::StatusOr<RunStore> open(const std::filesystem::path& path);
  /// Reads only: a missing file is an empty list.
  static absl::StatusOr<std::vector<StoredRun>> list(const std::filesystem::path& path);

  /// Writes the line of run.output_dir. With `resumed` the line that is there keeps its id, start and numbers;
  /// returns the line as it now stands.
  absl::StatusOr<StoredRun> begin(const StoredRun& run, bool resumed);
  /// Writes everything but id and folder of run `run.id`.
  absl::Status update(const StoredRun& run);

 private:
  explicit RunStore(sqlite::Database database) : database_(std::move(database)) {}

  sqlite::Database database_;
};

}  // namespace rondo::train
