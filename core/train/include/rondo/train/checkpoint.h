// Checkpoints: everything that a run needs to go on bit for bit, whole or absent.
//
//   checkpoint-<step>/  the result as it would be written at the end (a model or an adapter) and the tokenizer files
//     optimizer.safetensors   of trained parameters, fp32: <parameter> (master), and what the optimizer keeps:
//                             <parameter>.exp_avg, <parameter>.exp_avg_sq (momentum buffers are exp_avg); moments in
//                             8 bits are <parameter>.exp_avg.blocks8 and so on, four bytes to a number
//     trainer_state.json      written last: the folder is a checkpoint only with it. global_step, epoch, log_history
//                             and further keys as transformers writes them; "rondo": {updates, seed, numerics_class,
//                             settings}
//
// A checkpoint is built in .checkpoint-<step>.part beside its place, synced and renamed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/parameter_store.h"

namespace rondo::train {

/// What is stored beside tensors.
struct TrainerState {
  std::uint64_t global_step = 0;
  std::uint64_t updates = 0;  // steps that changed weights: global_step less the skipped ones
  std::uint64_t skipped_steps = 0;
  double epoch = 0;
  std::uint64_t max_steps = 0;
  double num_train_epochs = 0;
  std::uint64_t samples = 0;  // in the training set: a resumed run must have as many
  nlohmann::ordered_json log_history = nlohmann::ordered_json::array();
  nlohmann::ordered_json settings;  // what the course of the run depends on
  std::string numerics_class;
};

/// Errors: Internal naming the path (a full disk): nothing is left then but what was there before.
absl::Status write_checkpoint(const std::filesystem::path& output_dir, const TrainerState& state,
                              const model::Architecture& model, offload::ParameterStore& store,
                              const std::filesystem::path& base_model);

/// Reads masters, moments and state. Errors: InvalidArgument naming file and tensor or key.
absl::StatusOr<TrainerState> read_checkpoint(const std::filesystem::path& folder, const model::Architecture& model,
                                             offload::ParameterStore& store);

/// Reads trainer_state.json alone.
absl::StatusOr<TrainerState> read_trainer_state(const std::filesystem::path& folder);

/// The checkpoint-<step> with the largest step that has a trainer_state.json.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& output_dir);

/// Deletes the oldest checkpoints beyond `limit` (0: none), and what an interrupted write left behind.
absl::Status prune_checkpoints(const std::filesystem::path& output_dir, std::uint64_t limit);

}  // namespace rondo::train
