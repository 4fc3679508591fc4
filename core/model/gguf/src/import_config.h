// From the keys and tensor names of an architecture to the configuration that transformers would have.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/model/config.h"
#include "stored_file.h"

namespace rondo::gguf {

/// llama (Mistral where the file slides a window, or where heads do not divide the width), qwen2, qwen3. `weight_type`
/// is fp32, fp16 or bf16 as the embedding has it, bf16 where it is quantized. Errors: InvalidArgument naming the key of
/// what is missing, out of range or not supported.
absl::StatusOr<model::ModelConfig> import_config(const StoredFile& file);

/// The llama3 scaling whose frequency divisors (one for each pair of a head of 2 * divisors.size()) these are. All of
/// them 1: no scaling. Nothing when no setting gives them.
std::optional<model::RopeConfig> rope_of_divisors(const std::vector<float>& divisors, double theta,
                                                  std::uint32_t max_positions);

}  // namespace rondo::gguf
