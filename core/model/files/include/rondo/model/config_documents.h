// The configuration out of documents: a folder's files, or what another format was turned into.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/documents.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// The same as of a folder (config.h), which is one kind of documents.
absl::StatusOr<ModelConfig> load_config(const Documents& documents);
absl::StatusOr<std::vector<std::int32_t>> load_stop_ids(const Documents& documents, const ModelConfig& config);

}  // namespace rondo::model
