// The verbs runs and report: which runs there are, and the ones that a user names.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <system_error>

#include "rondo/base/folder.h"
#include "rondo/base/status.h"
#include "rondo/train/run.h"
#include "rondo/train/run_history.h"
#include "rondo/train/run_store.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Folders below a named one that are looked into.
constexpr int kDepth = 3;

std::string full_path(const fs::path& path) {
  std::error_code error;
  const fs::path full = fs::weakly_canonical(path, error);
  return error ? path.string() : full.string();
}

Json time_json(double seconds) {
  if (seconds <= 0) return nullptr;
  const auto whole = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32];
  if (::gmtime_r(&whole, &parts) == nullptr || std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0) {
    return nullptr;
  }
  return text;
}

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

/// What the files say; of a run of which the store does not know the end, or anything.
void take_from_files(StoredRun& run) {
  const absl::StatusOr<RunHistory> history = read_run(run.output_dir);
  if (!history.ok()) return;
  run.steps = std::max(run.steps, history->steps());
  if (!history->train.empty()) run.final_loss = finite(history->train.back().loss);
  if (const auto best = finite(best_eval_loss(*history)); best) run.best_eval_loss = best;
  if (const auto speed = finite(mean_tokens_per_second(*history)); speed) run.tokens_per_second = speed;
  if (run.id != 0) return;
  run.model = setting(*history, "model_name_or_path");
  run.method = setting(*history, "finetuning_type");
  run.data = setting(*history, "dataset");
  run.total_steps = history->total_steps;
  run.status = history->has_result ? "done" : "unfinished";
}

absl::StatusOr<std::vector<StoredRun>> stored_runs() {
  RONDO_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, RunStore::list(run_store_path()));
  for (StoredRun& run : runs) {
    if (run.status != "running") continue;
    if (is_gone(run.process)) run.status = "crashed";
    take_from_files(run);
  }
  return runs;
}

bool lies_in(const std::string& path, const std::string& folder) {
  return path == folder || folder == "/" || path.starts_with(folder + "/");
}

/// Runs in `folder` and kDepth levels below it that are not in `runs` yet. Errors: InvalidArgument when `folder` cannot
/// be looked into; what cannot be below it is passed over.
absl::Status find_below(const fs::path& folder, std::vector<StoredRun>& runs) {
  const auto consider = [&](const fs::path& path) {
    const std::string name = full_path(path);
    if (!is_run(path) || std::ranges::any_of(runs, [&](const StoredRun& run) { return run.output_dir == name; }))
      return;
    StoredRun run;
    run.output_dir = name;
    take_from_files(run);
    runs.push_back(std::move(run));
  };
  consider(folder);
  std::error_code error;
  if (entries_of(folder, error); error)
    return invalid_input("{}: cannot be read: {}", folder.string(), error.message());
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!entry->is_directory(error)) continue;
    if (entry.depth() + 1 >= kDepth) entry.disable_recursion_pending();
    consider(entry->path());
  }
  return absl::OkStatus();
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json run_json(const StoredRun& run) {
  return {{"id", run.id != 0 ? Json(run.id) : Json()},
          {"output_dir", run.output_dir},
          {"exists", is_run(run.output_dir)},
          {"status", run.status},
          {"model", run.model},
          {"method", run.method},
          {"data", run.data},
          {"started", time_json(run.started)},
          {"ended", time_json(run.ended)},
          {"steps", run.steps},
          {"total_steps", run.total_steps != 0 ? Json(run.total_steps) : Json()},
          {"final_loss", or_null(run.final_loss)},
          {"best_eval_loss", or_null(run.best_eval_loss)},
          {"tokens_per_second", or_null(run.tokens_per_second)}};
}

/// The folder of a run by its number in the store; empty when there is none.
absl::StatusOr<std::string> folder_of(const std::string& name, const std::vector<StoredRun>& runs) {
  std::int64_t id = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), id);
  if (read.ec != std::errc() || read.ptr != name.data() + name.size()) return std::string();
  for (const StoredRun& run : runs) {
    if (run.id == id) return run.output_dir;
  }
  return invalid_input("{}: no run of this number; `rondo runs` lists those that there are", name);
}

}  // namespace

absl::StatusOr<Json> run_runs(const Config& config) {
  RONDO_ASSIGN_OR_RETURN(std::vector<StoredRun> runs, stored_runs());
  if (!config.run_names.empty()) {
    std::vector<StoredRun> chosen;
    for (const std::string& name : config.run_names) {
      std::error_code ignored;
      if (!fs::is_directory(name, ignored)) return invalid_input("{}: no such folder", name);
      const std::string folder = full_path(name);
      for (const StoredRun& run : runs) {
        const bool known = std::ranges::any_of(chosen, [&](const StoredRun& other) { return other.id == run.id; });
        if (!known && lies_in(run.output_dir, folder)) chosen.push_back(run);
      }
      RONDO_RETURN_IF_ERROR(find_below(folder, chosen));
    }
    runs = std::move(chosen);
  }
  Json list = Json::array();
  for (const StoredRun& run : runs) list.push_back(run_json(run));
  return Json::object({{"runs", std::move(list)}});
}

absl::StatusOr<std::vector<RunHistory>> open_runs(const Config& config) {
  // A store that cannot be read is no reason not to show a folder.
  const absl::StatusOr<std::vector<StoredRun>> stored = stored_runs();
  const std::vector<StoredRun> runs = stored.ok() ? *stored : std::vector<StoredRun>();
  std::vector<RunHistory> histories;
  for (const std::string& name : config.run_names) {
    fs::path folder = name;
    if (!is_run(folder)) {
      RONDO_ASSIGN_OR_RETURN(const std::string by_number, folder_of(name, runs));
      if (!by_number.empty()) folder = by_number;
    }
    RONDO_ASSIGN_OR_RETURN(RunHistory history, read_run(folder));
    history.status = history.has_result ? "done" : "unfinished";
    for (const StoredRun& run : runs) {
      if (run.output_dir == full_path(folder)) history.status = run.status;
    }
    histories.push_back(std::move(history));
  }
  return histories;
}

}  // namespace rondo::train
