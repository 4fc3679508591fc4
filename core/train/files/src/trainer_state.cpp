#include "rondo/train/trainer_state.h"

#include <span>
#include <string_view>

#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kLogHistory = "log_history";

Json to_json(const LogEntry& entry) {
  if (entry.of_evaluation) return {{"epoch", entry.epoch}, {"eval_loss", entry.loss}, {"step", entry.step}};
  return {{"epoch", entry.epoch},
          {"grad_norm", entry.grad_norm},
          {"learning_rate", entry.learning_rate},
          {"loss", entry.loss},
          {"step", entry.step}};
}

/// What is no entry of ours gives one without a step.
LogEntry log_entry_of(const Json& json) {
  const auto number = [&json](const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  LogEntry entry;
  entry.of_evaluation = json.contains("eval_loss");
  if (!entry.of_evaluation && !json.contains("loss")) return entry;
  if (const auto step = json.find("step"); step != json.end() && step->is_number_unsigned()) {
    entry.step = step->get<std::uint64_t>();
  }
  entry.epoch = number("epoch");
  entry.loss = number(entry.of_evaluation ? "eval_loss" : "loss");
  entry.grad_norm = number("grad_norm");
  entry.learning_rate = number("learning_rate");
  return entry;
}

/// The file's text without its history, of which no more than an entry is a tree of values at a time.
Json parse_state(const std::string& text, std::deque<LogEntry>& history) {
  std::string key;  // of the whole object's
  return Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& parsed) {
        if (depth == 1 && event == Json::parse_event_t::key) key = parsed.get<std::string>();
        if (depth != 2 || event != Json::parse_event_t::object_end || key != kLogHistory) return true;
        const LogEntry entry = log_entry_of(parsed);
        if (entry.step > 0) history.push_back(entry);
        return false;
      },
      false);
}

/// transformers takes no key that it does not know, but any callback.
Json callbacks_json(const TrainerState& state) {
  Json own = {{"updates", state.course.now.updates},
              {"skipped_steps", state.skipped_steps},
              {"samples", state.samples},
              {"evaluations_not_better", state.best.not_better},
              {"numerics_class", state.numerics_class},
              {"settings", state.settings}};
  if (!state.plan.is_null()) own["plan"] = state.plan;
  if (!state.contents.empty()) own["contents"] = state.contents;
  if (!state.base_weights.empty()) own["base"] = {{"model", state.base_model}, {"weights", state.base_weights}};
  if (state.scales_loss) {
    own["overflowed_steps"] = state.overflowed_steps;
    own["loss_scale"] = state.course.now.loss_scale;
    own["good_steps"] = state.course.now.good_steps;
    own["updates_before"] = state.course.before.updates;
    own["loss_scale_before"] = state.course.before.loss_scale;
  }
  Json callbacks = {{"Rondo", {{"args", Json::object()}, {"attributes", std::move(own)}}}};
  if (state.early_stopping.patience > 0) {
    callbacks["EarlyStoppingCallback"] = {{"args",
                                           {{"early_stopping_patience", state.early_stopping.patience},
                                            {"early_stopping_threshold", state.early_stopping.threshold}}},
                                          {"attributes", {{"early_stopping_patience_counter", state.best.not_better}}}};
  }
  return callbacks;
}

Json to_json(const TrainerState& state) {
  const BestEvaluation& best = state.best;
  return {{"best_global_step", best.step != 0 ? Json(best.step) : Json()},
          {"best_metric", best.metric ? Json(*best.metric) : Json()},
          {"best_model_checkpoint", best.checkpoint.empty() ? Json() : Json(best.checkpoint)},
          {"epoch", state.epoch},
          {"eval_steps", state.eval_steps},
          {"global_step", state.global_step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {kLogHistory, Json::array()},  // written entry by entry
          {"logging_steps", state.logging_steps},
          {"max_steps", state.max_steps},
          {"num_train_epochs", state.num_train_epochs},
          {"save_steps", state.save_steps},
          {"stateful_callbacks", callbacks_json(state)},
          {"train_batch_size", state.train_batch_size}};
}

const Json* member(const Json* object, const char* key) {
  if (object == nullptr || !object->is_object()) return nullptr;
  const auto found = object->find(key);
  return found == object->end() ? nullptr : &*found;
}

/// What only this program writes; early versions wrote it under a key of its own. Null: there is none.
const Json* own_part(const Json& json) {
  const Json* own = member(member(member(&json, "stateful_callbacks"), "Rondo"), "attributes");
  if (own == nullptr) own = member(&json, "rondo");
  return own != nullptr && own->is_object() ? own : nullptr;
}

/// A missing key and null are 0; anything but a number that is not negative is refused.
absl::StatusOr<std::uint64_t> optional_number(const std::string& path, const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return 0;
  if (!found->is_number_unsigned())
    return invalid_input("{}: key {}: expected a number that is not negative", path, key);
  return found->get<std::uint64_t>();
}

absl::StatusOr<BestEvaluation> read_best(const std::string& path, const Json& json, const Json& own) {
  BestEvaluation best;
  RONDO_ASSIGN_OR_RETURN(best.step, optional_number(path, json, "best_global_step"));
  RONDO_ASSIGN_OR_RETURN(best.not_better, optional_number(path, own, "evaluations_not_better"));
  if (const auto metric = json.find("best_metric"); metric != json.end() && !metric->is_null()) {
    if (!metric->is_number()) return invalid_input("{}: key best_metric: expected a number or null", path);
    best.metric = metric->get<double>();
  }
  if (const auto folder = json.find("best_model_checkpoint"); folder != json.end() && folder->is_string()) {
    best.checkpoint = folder->get<std::string>();
  }
  return best;
}

/// Runs in other dtypes than fp16 have but the updates.
absl::StatusOr<schedule::RunCourse> read_course(const std::string& path, const Json& own) {
  schedule::RunCourse course;
  if (!own.contains("updates") || own["updates"].is_null())
    return invalid_input("{}: key updates: expected a number that is not negative", path);
  RONDO_ASSIGN_OR_RETURN(course.now.updates, optional_number(path, own, "updates"));
  course.before.updates = course.now.updates > 0 ? course.now.updates - 1 : 0;
  if (!own.contains("loss_scale")) return course;
  const auto scale = [&](const char* key) -> absl::StatusOr<double> {
    const Json* found = member(&own, key);
    const double value = found != nullptr && found->is_number() ? found->get<double>() : 0;
    if (value < schedule::kLeastLossScale || value > schedule::kLargestLossScale) {
      return invalid_input("{}: key {}: expected a number from {} to {}", path, key, schedule::kLeastLossScale,
                           schedule::kLargestLossScale);
    }
    return value;
  };
  RONDO_ASSIGN_OR_RETURN(course.now.loss_scale, scale("loss_scale"));
  RONDO_ASSIGN_OR_RETURN(course.before.loss_scale, scale("loss_scale_before"));
  RONDO_ASSIGN_OR_RETURN(course.before.updates, optional_number(path, own, "updates_before"));
  RONDO_ASSIGN_OR_RETURN(const std::uint64_t good, optional_number(path, own, "good_steps"));
  if (good >= schedule::kGoodSteps || course.before.updates > course.now.updates ||
      course.now.updates - course.before.updates > 1) {
    return invalid_input("{}: keys updates, updates_before and good_steps: not of a checkpoint of this program", path);
  }
  course.now.good_steps = static_cast<std::uint32_t>(good);
  return course;
}

}  // namespace

void take_evaluation(TrainerState& state, double eval_loss, std::uint64_t step) {
  BestEvaluation& best = state.best;
  const bool better = !best.metric || *best.metric - eval_loss > state.early_stopping.threshold;
  best.not_better = better ? 0 : best.not_better + 1;
  if (best.metric && eval_loss >= *best.metric) return;
  best.metric = eval_loss;
  best.step = step;
  best.checkpoint.clear();
}

bool is_stopped_early(const TrainerState& state) {
  return state.early_stopping.patience > 0 && state.best.not_better >= state.early_stopping.patience;
}

bool is_evaluated(const TrainerState& state, std::uint64_t step) {
  for (auto entry = state.log_history.rbegin(); entry != state.log_history.rend(); ++entry) {
    if (entry->step != step) return false;
    if (entry->of_evaluation) return true;
  }
  return false;
}

absl::Status write_trainer_state(const std::filesystem::path& folder, const TrainerState& state) {
  const std::string text = to_json(state).dump(2) + "\n";
  const std::string empty = fmt::format("\"{}\": [", kLogHistory);
  const std::size_t begin = text.find(empty) + empty.size();
  RONDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(folder / kStateFile));
  const auto write = [&file](std::string_view part) { return file.write(std::as_bytes(std::span(part))); };
  RONDO_RETURN_IF_ERROR(write(std::string_view(text).substr(0, begin)));
  constexpr std::size_t kPiece = 1U << 16U;
  std::string piece;
  for (std::size_t i = 0; i < state.log_history.size(); ++i) {
    piece += i == 0 ? "\n    " : ",\n    ";
    for (const char c : to_json(state.log_history[i]).dump(2)) {
      piece += c;
      if (c == '\n') piece += "    ";
    }
    if (piece.size() < kPiece && i + 1 < state.log_history.size()) continue;
    RONDO_RETURN_IF_ERROR(write(piece));
    piece.clear();
  }
  if (!state.log_history.empty()) RONDO_RETURN_IF_ERROR(write("\n  "));
  RONDO_RETURN_IF_ERROR(write(std::string_view(text).substr(begin)));
  return file.commit();
}

absl::StatusOr<TrainerState> read_trainer_state(const std::filesystem::path& folder) {
  const std::string path = (folder / kStateFile).string();
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  TrainerState state;
  const auto json = parse_state(text, state.log_history);
  if (!json.is_object()) return invalid_input("{}: not a JSON object", path);
  const Json* own = own_part(json);
  if (own == nullptr) {
    return invalid_input("{}: key stateful_callbacks.Rondo is missing: not a checkpoint of this program", path);
  }
  const auto number = [&](const Json& object, const char* key) -> absl::StatusOr<std::uint64_t> {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_unsigned()) {
      return invalid_input("{}: key {}: expected a number that is not negative", path, key);
    }
    return found->get<std::uint64_t>();
  };
  RONDO_ASSIGN_OR_RETURN(state.global_step, number(json, "global_step"));
  RONDO_ASSIGN_OR_RETURN(state.max_steps, number(json, "max_steps"));
  RONDO_ASSIGN_OR_RETURN(state.course, read_course(path, *own));
  RONDO_ASSIGN_OR_RETURN(state.overflowed_steps, optional_number(path, *own, "overflowed_steps"));
  RONDO_ASSIGN_OR_RETURN(state.skipped_steps, number(*own, "skipped_steps"));
  RONDO_ASSIGN_OR_RETURN(state.samples, number(*own, "samples"));
  RONDO_ASSIGN_OR_RETURN(state.best, read_best(path, json, *own));
  if (json.contains("epoch") && json["epoch"].is_number()) state.epoch = json["epoch"].get<double>();
  if (own->contains("settings")) state.settings = (*own)["settings"];
  if (own->contains("plan")) state.plan = (*own)["plan"];
  if (const Json* contents = member(own, "contents"); contents != nullptr && contents->is_object()) {
    for (const auto& [file, hash] : contents->items()) {
      if (!hash.is_string()) return invalid_input("{}: key contents.{}: expected text", path, file);
      state.contents[file] = hash.get<std::string>();
    }
  }
  const auto base_text = [base = member(own, "base")](const char* key) {
    const Json* found = member(base, key);
    return found != nullptr && found->is_string() ? found->get<std::string>() : std::string();
  };
  state.base_model = base_text("model");
  state.base_weights = base_text("weights");
  if (own->contains("numerics_class") && (*own)["numerics_class"].is_string()) {
    state.numerics_class = (*own)["numerics_class"].get<std::string>();
  }
  return state;
}

}  // namespace rondo::train
