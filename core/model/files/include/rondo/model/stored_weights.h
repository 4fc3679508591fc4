// Weights as files have them, and under the names of model_parameters(): some families' files have several in one
// tensor (stacked_experts.h, fused_linears.h), or rows in another order (paired_rows.h).
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/units.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {

/// A model directory's tensors under the names of model_parameters(). Errors: those of TensorFiles::open_model;
/// InvalidArgument naming a tensor of several that has another shape than the configuration's. Whether all are there
/// check_model_tensors() says.
absl::StatusOr<TensorFiles> open_weights(const ModelConfig& config, const std::filesystem::path& folder);

/// An adapter's tensors under the names of adapter_parameters(), likewise: see check_adapter_tensors().
absl::StatusOr<TensorFiles> open_factors(const ModelConfig& config, const LoraConfig& lora,
                                         const std::filesystem::path& file);

/// Tensors and where their bytes come from.
struct WritePlan {
  std::vector<TensorToWrite> tensors;
  TensorProducer produce;
  Bytes held = 0;  // of what files have in another order, the most that `produce` holds at once
};

/// The same numbers as files of the model have them, under names of name_in_text_model(). REQUIRES: all of
/// model_parameters() are there.
WritePlan stored_weights(const ModelConfig& config, WritePlan plan);
/// As those of an adapter have them.
WritePlan stored_factors(const ModelConfig& config, const LoraConfig& lora, WritePlan plan);

}  // namespace rondo::model
