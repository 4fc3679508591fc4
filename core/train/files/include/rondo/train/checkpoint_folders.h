// The folders of checkpoints in output_dir, how a whole one takes its place, and what an interrupted write leaves.
//
//   checkpoint-<step>         with its trainer_state.json, which is written last and removed first: a checkpoint
//   .checkpoint-<step>.part   one that is being built, and then the one that it has replaced
//   .checkpoint-<step>.old    the one that is being replaced, where folders cannot change places at once
//   .checkpoint-<step>.gone   one that is being removed
//
// At every moment one of the first three is a checkpoint if there was one of that step before.
#pragma once

#include <cstdint>
#include <filesystem>

#include "absl/status/status.h"

namespace rondo::train {

inline constexpr const char* kBranchFile = "branch";  // checkpoint.h

std::filesystem::path checkpoint_folder(const std::filesystem::path& output_dir, std::uint64_t step);
std::filesystem::path part_folder(const std::filesystem::path& output_dir, std::uint64_t step);

/// Renames the folder `aside`, which is whole and synced, to `place`, syncs the folder that both lie in and removes
/// what was there before. Errors: Internal naming `place`; one of them is then a checkpoint still.
absl::Status put_in_place(const std::filesystem::path& aside, const std::filesystem::path& place);

/// The same in several steps, for file systems on which folders cannot change places at once.
absl::Status put_in_place_by_renaming(const std::filesystem::path& aside, const std::filesystem::path& place);

/// Removes a folder so that no half of it passes for a checkpoint. Errors: Internal naming it.
absl::Status discard(const std::filesystem::path& folder);

}  // namespace rondo::train
