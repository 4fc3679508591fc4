// Models of a few thousand parameters, their weights and their data, all from seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/data/samples.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/schedule/batch.h"

namespace rondo::tiny {

/// Three blocks (8 layers) with biases on q, k and v, grouped heads, and a vocabulary that is no power of two.
model::ModelConfig small_config(bool tied = false);

/// Four blocks of one half each (6 layers): a state space in groups of heads, experts without a gate, attention, an
/// MLP.
void as_nemotron_h(model::ModelConfig& config);

/// State spaces beside attention in all blocks, in groups of heads; states that are two, and factors of linear layers.
void as_falcon_h1(model::ModelConfig& config);

/// Full fine-tuning.
model::MethodSpec full(devices::DType dtype);
/// LoRA of rank 3 on all linear layers of the blocks, with dropout.
model::MethodSpec lora(devices::DType dtype, double dropout = 0.1);

/// Full fine-tuning of the last block alone.
model::MethodSpec last_block(devices::DType dtype);
/// LoRA in bf16 with table and head trained whole.
model::MethodSpec lora_with_ends();

/// Fills every weight by (seed, name): norms around 1, biases around 0, factors of an adapter away from 0.
void fill_weights(const model::Architecture& model, std::uint64_t seed, offload::ParameterStore& store);

/// `count` samples of 2 to `longest` tokens; all, a tail, or (each seventh) none of them are targets.
data::Dataset random_samples(std::uint32_t vocabulary, std::uint64_t seed, std::size_t count, std::uint32_t longest);

/// Samples first, first + 1, ... as one microbatch of `step`.
schedule::Microbatch microbatch_of(const data::Dataset& dataset, std::uint32_t first, std::uint32_t samples,
                                   std::uint64_t step);

/// Steps of the given numbers of microbatches, each of 1 to 3 samples, from the front of the data on.
std::vector<std::vector<schedule::Microbatch>> steps_of(const data::Dataset& dataset,
                                                        const std::vector<std::uint32_t>& microbatches);

/// All bytes that last: weights as devices read them, masters and moments, in the order of parameters.
std::string bytes_of(const model::Architecture& model, offload::ParameterStore& store);
/// Name of the first parameter in which two such strings differ, empty when they are equal.
std::string first_difference(const model::Architecture& model, offload::ParameterStore& store, const std::string& a,
                             const std::string& b);

/// A card of a YAML file, its links and memory `speed` and its arithmetic `compute` times too quick to be waited for.
std::string card_entry(const std::string& name, double speed, double compute, const std::string& fail_at = "",
                       bool weights_in_place = false);
/// A file of the cards `fast`, `slow` (a quarter of its speed) and `extra`; one for each process and content.
std::filesystem::path card_file(const std::string& extra = "");
/// `count` emulated cards `fast`, or `slow`, as a pool.
std::string fast_cards(int count);
std::string slow_cards(int count);

}  // namespace rondo::tiny
