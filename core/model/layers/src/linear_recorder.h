// Linear layers of one half of a block, perhaps with adapters, and what stands around them: norms and the residual sum.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "block.h"

namespace rondo::model {

/// Finds or makes weight tensors of a layer.
class WeightSource {
 public:
  /// `first`: which of the layer's weights the first of these parts is.
  WeightSource(Recorder& recorder, const LayerParts& parts, std::uint32_t first = 0)
      : recorder_(recorder), parts_(parts), first_(first) {}
  TensorId get(std::uint32_t index) { return get(index, parts_.parameters[index].shape); }
  /// Of as many elements in another shape.
  TensorId get(std::uint32_t index, const devices::Shape& shape);

 private:
  Recorder& recorder_;
  const LayerParts& parts_;
  const std::uint32_t first_;
};

/// One of the layer's norms, times `factor`.
TensorId record_norm(Recorder& recorder, WeightSource& weights, TensorId x, const NormUse& use,
                     const ModelConfig& config, const std::string& name, double factor = 1.0);

/// What becomes of a linear layer's product: it is multiplied by `factor` and added to `addend`.
struct Residual {
  std::optional<TensorId> addend;
  double factor = 1.0;  // 1 where the layer has a bias
};

/// Parts of a fused layer share what its adapter makes of their input.
class LinearRecorder {
 public:
  LinearRecorder(Recorder& recorder, WeightSource& weights, const MethodSpec& method)
      : recorder_(recorder), weights_(weights), method_(method) {}

  /// y = factor (x W^T (+ scale B A dropout(x))) (+ b) (+ addend), times the layer's own factor. PEFT: the adapter's
  /// input is dropped out, the base's is not.
  TensorId record(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape);

 private:
  struct Shared {
    TensorId input;                // dropped out
    std::optional<TensorId> rest;  // what dropping takes from x, of DoRA
    TensorId low;
  };

  /// y = factor (x' W^T + m / |W + scale B A| * (W + scale B A) dropout(x)) (+ b) (+ addend), x' being what dropping
  /// takes from x: PEFT drops out the input of all that the magnitude scales, beyond what the base gives unscaled.
  TensorId record_dora(const LinearUse& use, TensorId x, Residual residual, const devices::Shape& shape);
  const Shared& shared_of(const LinearUse& use, TensorId x);
  std::optional<TensorId> bias_of(const LinearUse& use) {
    return use.bias ? std::optional(weights_.get(*use.bias)) : std::nullopt;
  }
  devices::Fp8Format fp8_of(const LinearUse& use) const { return use.exact ? devices::Fp8Format::kNone : method_.fp8; }
  static std::string word_of(const LinearUse& use) { return use.module.substr(use.module.rfind('.') + 1); }

  Recorder& recorder_;
  WeightSource& weights_;
  const MethodSpec& method_;
  std::map<std::uint32_t, Shared> shared_;  // by lora_a
};

/// What the first linear layers of a half of a block read.
TensorId record_input(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId x,
                      const ModelConfig& config);

/// What a half of a block adds to the residual stream `x`, normed first where the model does that. `last(residual)`
/// records what comes before.
template <typename Last>
TensorId record_sum(Recorder& recorder, WeightSource& weights, const LayerParts& parts, TensorId x,
                    const ModelConfig& config, const Last& last) {
  if (!parts.output_norm) return last(Residual{x, config.residual_multiplier});
  const TensorId normed = record_norm(recorder, weights, last(Residual{}), *parts.output_norm, config, "output_normed",
                                      config.residual_multiplier);
  return recorder.add(x, normed, "sum");
}

/// The same of the last linear layer.
TensorId record_output(Recorder& recorder, WeightSource& weights, LinearRecorder& linears, const LayerParts& parts,
                       TensorId inner, TensorId x, const ModelConfig& config);

}  // namespace rondo::model
