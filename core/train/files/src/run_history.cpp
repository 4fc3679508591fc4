#include "rondo/train/run_history.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/train/trainer_state.h"
#include "rondo/yaml/document.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number(const nlohmann::json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : kNone;
}

TrainPoint train_point(const nlohmann::json& line, std::uint64_t step) {
  TrainPoint point;
  point.step = step;
  point.loss = number(line, "loss");
  point.learning_rate = number(line, "learning_rate");
  point.grad_norm = number(line, "grad_norm");
  point.tokens = number(line, "tokens");
  point.tokens_per_second = number(line, "tokens_per_second");
  point.step_seconds = number(line, "step_seconds");
  point.elapsed_seconds = number(line, "elapsed_seconds");
  point.sol = number(line, "sol");
  point.bubble = number(line, "bubble");
  point.skipped_steps = number(line, "skipped_steps");
  point.retries = number(line, "retries");
  point.lost_devices = number(line, "lost_devices");
  if (const auto memory = line.find("memory"); memory != line.end() && memory->is_object()) {
    for (const auto& [name, bytes] : memory->items()) {
      if (bytes.is_number()) point.memory[name] = bytes.get<double>();
    }
  }
  return point;
}

/// False when it is no line of this file.
bool take_line(std::string_view text, RunHistory& run) {
  const nlohmann::json line = nlohmann::json::parse(text, nullptr, false);
  if (!line.is_object()) return false;
  const auto kind = line.find("kind");
  const auto step = line.find("step");
  if (kind == line.end() || !kind->is_string() || step == line.end() || !step->is_number_unsigned()) return false;
  if (*kind == "train") {
    run.train.push_back(train_point(line, step->get<std::uint64_t>()));
    return true;
  }
  const double loss = number(line, "eval_loss");
  if (*kind != "eval" || !std::isfinite(loss)) return false;
  run.evaluations.push_back({step->get<std::uint64_t>(), loss});
  return true;
}

/// The last line counts only with its line feed: without, it may be half of one.
void take_metrics(std::string_view text, RunHistory& run) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;
    if (end > begin && !take_line(text.substr(begin, end - begin), run)) ++run.ignored_lines;
    begin = end + 1;
  }
  if (begin < text.size()) ++run.ignored_lines;
}

using Settings = std::vector<std::pair<std::string, std::string>>;

/// A file that is none gives no settings.
Settings read_settings(const fs::path& path) {
  const auto read = yaml::read_document(path.string(), [](const YAML::Node& document) -> absl::StatusOr<Settings> {
    Settings settings;
    if (!document.IsMap()) return settings;
    for (const auto& entry : document) {
      if (entry.first.IsScalar() && entry.second.IsScalar()) {
        settings.emplace_back(entry.first.Scalar(), entry.second.Scalar());
      }
    }
    return settings;
  });
  return read.value_or(Settings());
}

double modified_at(const fs::path& path) {
  std::error_code error;
  const fs::file_time_type time = fs::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time);
  return std::chrono::duration<double>(system.time_since_epoch()).count();
}

}  // namespace

bool is_run(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "metrics.jsonl", ignored);
}

absl::StatusOr<RunHistory> read_run(const fs::path& folder) {
  if (!is_run(folder)) {
    std::error_code ignored;
    return invalid_input(
        "{}: {}; expected the output_dir of a run", folder.string(),
        fs::is_directory(folder, ignored) ? "there is no metrics.jsonl in it" : "there is no such folder");
  }
  RunHistory run;
  run.folder = folder;
  RONDO_ASSIGN_OR_RETURN(const std::string metrics, read_file(folder / "metrics.jsonl"));
  take_metrics(metrics, run);
  run.modified = modified_at(folder / "metrics.jsonl");
  run.settings = read_settings(folder / "config.resolved.yaml");
  // Written when the run has come to its end.
  if (const auto state = read_trainer_state(folder); state.ok()) {
    run.total_steps = state->max_steps;
    run.has_result = true;
  }
  return run;
}

double mean_tokens_per_second(const RunHistory& run) {
  double tokens = 0;
  double seconds = 0;
  for (const TrainPoint& point : run.train) {
    if (!std::isfinite(point.tokens) || !std::isfinite(point.step_seconds)) continue;
    tokens += point.tokens;
    seconds += point.step_seconds;
  }
  return seconds > 0 ? tokens / seconds : kNone;
}

double best_eval_loss(const RunHistory& run) {
  double best = kNone;
  for (const EvaluationPoint& point : run.evaluations) best = std::fmin(best, point.eval_loss);
  return best;
}

std::string setting(const RunHistory& run, const std::string& key) {
  for (const auto& [name, value] : run.settings) {
    if (name == key) return value;
  }
  return {};
}

}  // namespace rondo::train
