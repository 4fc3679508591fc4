// The files of a run other than checkpoints: metrics.jsonl, config.resolved.yaml, the final result.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/train/config.h"
#include "rondo/train/folder_lock.h"

namespace rondo::train {

/// metrics.jsonl, a line at a time, flushed at once.
class MetricsFile {
 public:
  /// A new file, or one whose lines past `resumed_step` are cut off; without `evaluated` an evaluation after that step
  /// too, which the run that goes on makes again.
  static absl::StatusOr<MetricsFile> open(const std::filesystem::path& output_dir, std::uint64_t resumed_step,
                                          bool evaluated);
  absl::Status write(const nlohmann::ordered_json& line);

 private:
  struct Closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Closer> file_;
};

/// Errors: InvalidArgument when the result is a model, and its folder that of `model`, the one that is trained.
absl::Status check_apart_from_model(const Config& config, const std::filesystem::path& model);

/// Takes the folder, if it exists. Errors: InvalidArgument when it is a file, another run is at work in it, or it holds
/// another run's results and neither resume_from_checkpoint nor overwrite_output_dir is set.
absl::Status check_output_dir(const Config& config, FolderLock& lock);

/// Makes the folder, takes it and removes what processes that were killed have left half written. `begins`: no
/// checkpoint was found to go on from. Errors: those of check_output_dir, for another run may have been there since;
/// InvalidArgument when it cannot be made or written to.
absl::Status prepare_output_dir(const Config& config, FolderLock& lock, bool begins);

}  // namespace rondo::train
