// Checkpoints: everything that a run needs to go on bit for bit, whole or absent.
//
//   checkpoint-<step>/  the result as it would be written at the end (a model or an adapter) and the tokenizer files
//     optimizer.safetensors   of trained parameters, fp32: <parameter> (master), and what the optimizer keeps:
//                             <parameter>.exp_avg, <parameter>.exp_avg_sq (momentum buffers are exp_avg); moments in
//                             8 bits are <parameter>.exp_avg.blocks8 and so on, four bytes to a number
//     stale_weights.safetensors  at staleness 1: the trained weights that the next step computes on, in their dtype
//     branch                  a number in decimal digits: how many runs before it left newer checkpoints in
//                             output_dir than the one that they went on from, or began anew beside some; none: 0
//     trainer_state.json      written last: the folder is a checkpoint only with it (trainer_state.h)
//
// trainer_state.json has the hash of the names and numbers of each of the files above in their order
// (rondo/base/hash.h), so that a disk's errors do not go into a run.
//
// A checkpoint is built in .checkpoint-<step>.part beside its place, synced, and changes places with the one that it
// replaces, if there is one (checkpoint_folders.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/documents.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/train/trainer_state.h"

namespace rondo::train {

/// Replaces one of the same step. Errors: Internal naming the path (a full disk): nothing is left then but what was
/// there before.
absl::Status write_checkpoint(const std::filesystem::path& output_dir, const TrainerState& state,
                              const model::Architecture& model, offload::ParameterStore& store, const Documents& base);

/// Reads masters, moments and state. Errors: InvalidArgument naming file and tensor or key, or a file whose contents
/// are not what was saved; the store is half filled then.
absl::StatusOr<TrainerState> read_checkpoint(const std::filesystem::path& folder, const model::Architecture& model,
                                             offload::ParameterStore& store);

/// Of the checkpoints of the last branch, the one with the largest step: checkpoint-<step> with its trainer_state.json.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& output_dir);

bool is_newest(const std::filesystem::path& output_dir, const std::filesystem::path& checkpoint);

/// The number of a checkpoint's branch; one that cannot be read counts as 0.
std::uint64_t branch_of(const std::filesystem::path& checkpoint);

/// The branch of a run that goes on from `resumed_from` (empty: from nothing) and leaves its checkpoints in output_dir:
/// that of the newest one when it goes on from there, else one of its own, so that what others have left counts as
/// older.
std::uint64_t branch_of_run(const std::filesystem::path& output_dir, const std::filesystem::path& resumed_from);

/// The one that came before `checkpoint`, a folder of output_dir: of those of smaller steps the newest.
std::optional<std::filesystem::path> checkpoint_before(const std::filesystem::path& output_dir,
                                                       const std::filesystem::path& checkpoint);

/// Renames into place what an interrupted write has left whole: a checkpoint whose place has none. To be called before
/// newest_checkpoint(). Errors: Internal naming the place.
absl::Status recover_checkpoints(const std::filesystem::path& output_dir);

/// Keeps the newest checkpoint, that of step `best` (0: none) and as many of the newest others as make `limit` (0:
/// all); removes the rest, and what an interrupted write left behind, unless that is to be recovered. Errors: Internal
/// naming what could not be removed first; the others are gone, and nothing else is lost.
absl::Status prune_checkpoints(const std::filesystem::path& output_dir, std::uint64_t limit, std::uint64_t best = 0);

}  // namespace rondo::train
