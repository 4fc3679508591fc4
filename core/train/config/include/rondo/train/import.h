// Configurations of other fine-tuning programs in this program's keys.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/train/config.h"

namespace rondo::train {

/// What became of one key of the other program.
struct ImportedKey {
  std::string key;
  int line = 0;         // 0: not in the file, a default of the other program
  std::string outcome;  // "taken", "changed", "left out", "not understood"
  std::string note;     // what it became, or why it is not there
};

struct ImportedConfig {
  std::string tool;  // "Axolotl", "LLaMA-Factory"
  std::string yaml;  // what `rondo train` reads
  std::vector<ImportedKey> keys;
  std::string missing;  // what `rondo train` would still refuse; empty: nothing
};

/// Reads config.file as a configuration of config.from. Every key that is written passes the checks of `rondo train`;
/// values that this build refuses are not written, but named. Errors: InvalidArgument when the file is no YAML map or
/// nothing tells whose it is.
absl::StatusOr<ImportedConfig> import_config(const Config& config);

}  // namespace rondo::train
