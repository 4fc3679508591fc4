#include "run_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "rondo/base/atomic_file.h"
#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/train/checkpoint.h"
#include "rondo/train/trainer_state.h"
#include "tensorboard.h"

namespace rondo::train {
namespace {

constexpr const char* kMetrics = "metrics.jsonl";

/// Lines of an earlier part of the run up to `step`; `evaluated`: with the evaluation after it.
absl::StatusOr<std::string> lines_up_to(const std::filesystem::path& path, std::uint64_t step, bool evaluated) {
  const auto is_kept = [step, evaluated](const nlohmann::json& line) {
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_unsigned()) return false;
    const auto of_line = line["step"].get<std::uint64_t>();
    return of_line < step || (of_line == step && (evaluated || line.value("kind", nlohmann::json()) != "eval"));
  };
  std::string kept;
  std::error_code error;  // any other than that it is missing is told by who reads it
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return kept;
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const auto line = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (is_kept(line)) kept += text.substr(begin, end + 1 - begin);
    begin = end + 1;
  }
  return kept;
}

}  // namespace

absl::StatusOr<MetricsFile> MetricsFile::open(const std::filesystem::path& output_dir, std::uint64_t resumed_step,
                                              bool evaluated) {
  MetricsFile metrics;
  metrics.path_ = output_dir / kMetrics;
  std::string kept;
  if (resumed_step > 0) {
    RONDO_ASSIGN_OR_RETURN(kept, lines_up_to(metrics.path_, resumed_step, evaluated));
  }
  RONDO_RETURN_IF_ERROR(write_file_atomically(metrics.path_, kept));
  metrics.file_.reset(std::fopen(metrics.path_.c_str(), "a"));
  if (metrics.file_ == nullptr) {
    return internal_error("{}: cannot be written: {}", metrics.path_.string(), std::strerror(errno));
  }
  return metrics;
}

absl::Status MetricsFile::write(const nlohmann::ordered_json& line) {
  const std::string text = line.dump() + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0) {
    return internal_error("{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::Status check_apart_from_model(const Config& config, const std::filesystem::path& model) {
  std::error_code ignored;  // a folder that is not there is another one
  if (config.finetuning_type == "lora" || !std::filesystem::equivalent(config.output_dir, model, ignored)) {
    return absl::OkStatus();
  }
  return invalid_input(
      "output_dir: {} is the folder of the model to train, whose weights the result would replace: "
      "name another folder",
      config.output_dir);
}

absl::Status check_output_dir(const Config& config, FolderLock& lock) {
  const std::filesystem::path folder = config.output_dir;
  std::error_code error;
  if (std::filesystem::exists(folder, error) && !std::filesystem::is_directory(folder, error)) {
    return invalid_input("output_dir: {} is a file, expected a folder", config.output_dir);
  }
  // First: of what a run at work has in its folder nothing is to be said.
  RONDO_RETURN_IF_ERROR(lock.take(folder));
  if (config.resume_from_checkpoint.empty() && !config.overwrite_output_dir) {
    for (const char* name : {"trainer_state.json", "adapter_model.safetensors", "model.safetensors",
                             "model.safetensors.index.json", "config.json", "metrics.jsonl"}) {
      if (!std::filesystem::exists(folder / name, error)) continue;
      return invalid_input(
          "output_dir: {} holds {} of another run: name another folder, or set resume_from_checkpoint: auto or "
          "overwrite_output_dir: true",
          config.output_dir, name);
    }
  }
  return absl::OkStatus();
}

absl::Status prepare_output_dir(const Config& config, FolderLock& lock, bool begins) {
  const std::filesystem::path folder = config.output_dir;
  std::error_code error;
  // Before output_dir, so that a refused run leaves nothing there.
  if (reports_to_tensorboard(config) && !config.logging_dir.empty()) {
    std::filesystem::create_directories(config.logging_dir, error);
    if (error) return invalid_input("logging_dir: {} cannot be made: {}", config.logging_dir, error.message());
  }
  std::filesystem::create_directories(folder, error);
  if (error) return invalid_input("output_dir: {} cannot be made: {}", config.output_dir, error.message());
  // A folder that was not there before could not be taken before.
  RONDO_RETURN_IF_ERROR(check_output_dir(config, lock));
  if (begins && config.resume_from_checkpoint == "auto" && newest_checkpoint(folder)) {
    return invalid_input("output_dir: another run has left a checkpoint in {} meanwhile: start again to go on from it",
                         config.output_dir);
  }
  if (lock.is_held()) remove_unfinished_files(folder);
  // It says that the run has come to its end.
  std::filesystem::remove(folder / kStateFile, error);
  const absl::Status writable = write_file_atomically(folder / "config.resolved.yaml", format_resolved(config));
  if (!writable.ok()) return absl::InvalidArgumentError("output_dir: " + message_of(writable));
  return absl::OkStatus();
}

}  // namespace rondo::train
