// What keys and tensors say of attention by a latent: see names_latent.h.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "key_reader.h"
#include "rondo/model/config.h"
#include "rondo/model/safetensors.h"
#include "stored_file.h"

namespace rondo::gguf {

/// Sets `config.latent_attention` and its heads; the number of heads of queries must be set. Errors land in `keys`.
void read_latent_attention(KeyReader& keys, const std::string& prefix, model::ModelConfig& config);

/// Of yarn, which stretches by `factor`: 0 counts as absent, and absent is refused where that is more than 1.
void read_tenth_of_mscale(KeyReader& keys, const std::string& prefix, double factor, model::ModelConfig& config);

/// Which of the families that share the architecture's name it is; experts must be set, if there are any.
model::Family family_by_scores(const model::ModelConfig& config);

/// The scores that readers take where a file does not say.
std::uint32_t usual_scores(const model::ModelConfig& config);

/// A view of a tensor that is_by_heads(), under the model's name and in its shape. Errors: InvalidArgument naming file
/// and tensor when it is not of the configuration's sizes.
absl::Status add_matrices_of_heads(const model::ModelConfig& config, const StoredTensor& tensor, model::TensorView view,
                                   std::vector<model::TensorView>& views);

}  // namespace rondo::gguf
