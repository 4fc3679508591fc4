// The parameters of a layer, one after another, and where its modules find them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "block.h"
#include "rondo/model/parameters.h"

namespace rondo::model {

class PartsBuilder {
 public:
  PartsBuilder(const ModelConfig& config, const MethodSpec& method, std::uint32_t block);
  /// Of the model's own weights: trained where those of the block are.
  std::uint32_t add(std::string name, devices::Shape shape, WeightKind kind);
  std::uint32_t norm(const std::string& module, std::int64_t width) {
    return add(module + ".weight", {width}, WeightKind::kNorm);
  }
  /// Over the hidden size. `name`: null for none.
  std::optional<NormUse> norm_if(const ModelConfig& config, const std::string& prefix, const char* name);
  void linear(const LinearModule& module);
  /// `prefix`: of the block. The router's weight is never encoded: it decides by small differences.
  void experts(const std::string& prefix, const ModelConfig& config);
  LayerParts& parts() { return parts_; }

 private:
  std::uint32_t matrix(const std::string& module, std::int64_t out, std::int64_t in);
  std::uint32_t matrix_of_expert(const std::string& module, std::int64_t out, std::int64_t in);
  std::uint32_t factor(std::string name, devices::Shape shape, WeightKind kind, double rate);
  void expert_adapters(const ModelConfig& config, ExpertParts& parts);

  const MethodSpec& method_;
  const std::uint32_t block_;
  const bool trains_;
  LayerParts parts_;
};

}  // namespace rondo::model
