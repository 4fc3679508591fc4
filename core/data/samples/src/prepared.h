// Which file of tokens belongs to a data set, and how long such files are kept.
#pragma once

#include <filesystem>
#include <span>

#include "absl/status/statusor.h"
#include "rondo/data/samples.h"

namespace rondo::data {

/// Whether the tokens of these files go into a file: reading them takes longer than that, and all of them are wanted.
bool worth_preparing(std::span<const std::filesystem::path> files, const Renderer& renderer,
                     const DataOptions& options);

/// The file in options.prepared that holds what these files become: its name follows from all that the tokens depend
/// on. Reads the files. Errors: those of reading.
absl::StatusOr<std::filesystem::path> prepared_file(std::span<const std::filesystem::path> files,
                                                    const Renderer& renderer, const DataOptions& options);

/// Says that `file` was used now and deletes the files of tokens in its folder that were used longest ago, until they
/// take no more than `most` bytes together; `file` stays. What cannot be deleted stays too.
void note_use(const std::filesystem::path& file, std::uintmax_t most);

}  // namespace rondo::data
