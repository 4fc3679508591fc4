// The layers of decoder-only models of the Llama kind, written once.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "carried.h"
#include "rondo/model/architecture.h"

namespace rondo::model {

/// One linear module of a layer: y [out] = x [in] W^T (+ bias), perhaps with an adapter.
struct LinearUse {
  std::string module;  // "model.layers.3.self_attn.q_proj"
  std::int64_t out = 0;
  std::int64_t in = 0;
  // Parts of a layer that is fused have one site and one lora_a.
  std::uint32_t site = 0;                                     // of dropout's random numbers within the layer
  std::optional<std::uint32_t> weight, bias, lora_a, lora_b;  // index among the layer's parameters
  std::optional<std::uint32_t> magnitude;                     // of DoRA
  std::int64_t rank = 0;                                      // of the adapter
  double scale = 0;
  bool exact = false;   // LinearModule::exact
  double factor = 1.0;  // LinearModule::factor
};

/// An adapter's factors in a mixture of experts: indices of weights.
struct ExpertAdapter {
  std::uint32_t a = 0;  // [E, rank, in]; gate and up have one
  std::uint32_t b = 0;  // [E, out, rank]
  std::int64_t rank = 0;
  double scale = 0;
};

/// One linear layer of each expert: indices of weights.
struct ExpertLinears {
  std::vector<std::uint32_t> weights;  // by expert
  std::optional<std::uint32_t> bias;   // of all
  std::optional<ExpertAdapter> adapter;
};

/// A mixture of experts in the place of an MLP, or beside one.
struct ExpertParts {
  std::uint32_t router = 0;  // where it is no linear layer of the half
  std::optional<std::uint32_t> router_bias;
  std::optional<std::uint32_t> choice_bias;
  std::optional<ExpertAdapter> router_adapter;  // a [rank, in], b [E, rank]
  ExpertLinears gate, up, down;
};

/// Of a mixture beside an MLP: indices of weights.
struct BesideParts {
  std::uint32_t router_scale = 0;
  std::uint32_t expert_scale = 0;
  std::uint32_t mlp_output = 0;  // norms, here and below
  std::uint32_t experts_input = 0;
  std::uint32_t experts_output = 0;
};

/// Of a block's inputs: indices of weights and linear layers. `projection`: rows of a matrix of all blocks.
struct InputParts {
  std::uint32_t projection = 0;
  std::uint32_t projection_norm = 0;
  LinearUse gate, output;
  std::optional<std::uint32_t> output_norm;
};

/// A norm over the hidden size: indices of its weight and bias, where it has them.
struct NormUse {
  std::optional<std::uint32_t> weight;
  std::optional<std::uint32_t> bias;
};
/// Of one whose parameters begin with index `first`.
NormUse norm_use(const ModelConfig& config, std::uint32_t first);

/// Of linear attention, beside its linear layers: indices of weights.
struct LinearAttentionParts {
  std::vector<std::uint32_t> convolutions;  // of q, k and v
  std::uint32_t rates = 0;
  std::uint32_t rate_bias = 0;
  std::uint32_t gain = 0;  // of the norm of what each head gives
};

/// Of a state space, beside its linear layers: indices of weights.
struct StateSpaceParts {
  std::vector<std::uint32_t> convolutions;  // of x, b and c
  std::vector<std::uint32_t> biases;        // of these, or none
  std::uint32_t rates = 0;
  std::uint32_t step_bias = 0;
  std::uint32_t passed = 0;  // what of x each head gives beside what it reads
  std::uint32_t gain = 0;    // of the norm of what all heads give
};

/// The parameters of one layer in order, and where its modules find them.
struct LayerParts {
  std::vector<Parameter> parameters;
  /// Attention: q, [its gate], [k, v,] o; by a latent: q or its latent and q, the latent, channels of keys that turn,
  /// other channels of keys, v, o; linear attention: q, k, v, z, b, a, out; a state space: z, x, b, c, dt, out;
  /// convolution: b, c, x, out; MLP: [gate,] up,
  /// down, and where that is the one that all tokens share beside experts, perhaps the gate of what it gives; the
  /// router where that is a linear layer.
  std::vector<LinearUse> linears;
  std::optional<ExpertParts> experts;
  std::optional<BesideParts> beside;
  std::optional<InputParts> inputs;
  std::optional<NormUse> input_norm, output_norm;
  std::optional<std::uint32_t> q_norm, k_norm;
  std::vector<std::uint32_t> latent_norms;  // of attention by a latent: [that of queries,] that of keys and values
  std::optional<std::uint32_t> sinks;       // of attention
  std::optional<std::uint32_t> scale;       // of what the block gives
  std::optional<LinearAttentionParts> linear_attention;
  std::optional<StateSpaceParts> state_space;
  std::optional<std::uint32_t> convolution;  // where that stands in attention's place: its weight
};

LayerParts attention_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block);
LayerParts mlp_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block);

/// Of a block in parallel, which is one layer: the parameters of its MLP come behind those of its attention.
struct ParallelParts {
  LayerParts attention;
  LayerParts mlp;
  std::vector<Parameter> parameters() const;
};
ParallelParts parallel_parts(const ModelConfig& config, const MethodSpec& method, std::uint32_t block);

/// A norm with the family's gain, times `factor`, which is 1 where there is a bias.
TensorId record_norm(Recorder& recorder, TensorId x, std::optional<TensorId> weight, std::optional<TensorId> bias,
                     const ModelConfig& config, const std::string& name, double factor = 1.0);

/// What comes between the linear layers of an MLP.
devices::GatedActivationAttributes activation_of(const ModelConfig& config);

/// Of each of these x is the stream of what is carried. Records the attention half: y = x + factor *
/// norm(o_proj(attention(rope(q), rope(k), v))), from norm(x); each of the two norms where the model has it. `rope`:
/// null for a layer without. capacity > 0: with a cache.
TensorId record_attention(Recorder& recorder, Carried& carried, const LayerParts& parts, const ModelConfig& config,
                          const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                          std::uint32_t capacity);
/// Records a block in parallel: y = x + o_proj(attention of norm(x)) + down(...) of the same norm(x), or of one of the
/// MLP's own.
TensorId record_parallel(Recorder& recorder, Carried& carried, const ParallelParts& parts, const ModelConfig& config,
                         const MethodSpec& method, const devices::RopeAttributes* rope, std::uint32_t block,
                         std::uint32_t capacity);
/// Records the MLP half: y = x + factor * norm(down(activation(gate) * up)), or down(activation(up)), likewise; then
/// what the block makes of its inputs, and at its end times a number of the block's own, where the model has these.
TensorId record_mlp(Recorder& recorder, Carried& carried, const LayerParts& parts, const ModelConfig& config,
                    const MethodSpec& method);

}  // namespace rondo::model
