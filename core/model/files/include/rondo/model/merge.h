// A LoRA adapter folded into its base: W' = W + scale_of() (B A), computed in fp32, stored in the base's number type.
//
// The sum over the rank is taken first, in the order of the rank, then scaled, then added; each number is rounded once,
// when it is stored. PEFT's merge_and_unload() of the base loaded in fp32 agrees within fp32's rounding.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "rondo/base/units.h"
#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {

/// Writes the weights below `folder`, which exists, as write_sharded_safetensors() does. Every tensor keeps the type
/// that it has in `base`; a head beside a tied embedding is left out. No second copy of the model exists in memory.
/// Both files were checked against `config` before. Errors: InvalidArgument naming file and tensor of a number that is
/// not finite, or that the merged weights' type cannot hold.
absl::Status write_merged_weights(const ModelConfig& config, const TensorFiles& base, const LoraConfig& lora,
                                  const TensorFiles& adapter, const std::filesystem::path& folder,
                                  Bytes max_shard_bytes = kDefaultShardBytes);

}  // namespace rondo::model
