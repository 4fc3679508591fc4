// Rows of queries and keys where rotary embedding turns neighbouring channels of a head, 2 i and 2 i + 1: those of
// ERNIE 4.5 and GLM 4. Devices turn the channels i and i + R / 2 of the first R. So these rows, of the weights of
// q_proj and k_proj, of their biases, of an adapter's B and of DoRA's magnitudes, are put in the devices' order when
// they are read and back when they are written: of each head first the even ones, then the odd ones, then those that do
// not turn. Scores are the same, as queries and keys are put in one order.
//
// Of attention by a latent a head's channels that turn come last in files, and first on devices. Its rows are those of
// q_proj or q_b_proj, and of the part of kv_a_proj_with_mqa that turns, which is one head (fused_linears.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/model/adapter.h"
#include "rondo/model/config.h"
#include "rondo/model/stored_weights.h"

namespace rondo::model {

struct PairedTensor {
  std::string name;
  std::uint32_t head_dim = 0;  // rows of a head
  std::uint32_t turned = 0;    // of these, on devices the first
  std::uint32_t before = 0;    // rows of a head that files have before these
  bool neighbours = true;      // files have pairs side by side
};
/// Of a model's files; none where channels are not paired so.
std::vector<PairedTensor> paired_weights(const ModelConfig& config);
/// Of an adapter's.
std::vector<PairedTensor> paired_factors(const ModelConfig& config, const LoraConfig& lora);

/// Puts a view in the devices' order in the place of each that is there.
void part_pairs(const std::vector<PairedTensor>& paired, TensorFiles& files);

/// The other way round; a tensor is held whole for a moment.
WritePlan pair_rows(const std::vector<PairedTensor>& paired, WritePlan plan);

}  // namespace rondo::model
