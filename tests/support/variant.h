// Ways of training the small model, as parameters of tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "rondo/model/architecture.h"
#include "tiny_model.h"

namespace rondo::tiny {

struct Variant {
  const char* name;
  bool lora = false;
  devices::DType dtype = devices::DType::kBfloat16;
  bool tied = false;
  std::uint32_t group = 16;  // reduction_group, where a test sets it
  bool dora = false;         // with lora
  devices::Encoding boundaries = devices::Encoding::kPlain;
  std::uint32_t head_part_rows = model::kHeadPartRows;
  devices::Fp8Format fp8 = devices::Fp8Format::kNone;
};
inline void PrintTo(const Variant& variant, std::ostream* stream) { *stream << variant.name; }

/// One of each: tied and all weights in bf16, untied and all weights in fp32, adapters.
inline auto usual_variants() {
  return testing::Values(Variant{"full_bf16_tied", false, devices::DType::kBfloat16, true},
                         Variant{"full_fp32", false, devices::DType::kFloat32, false}, Variant{"lora_bf16", true});
}

inline model::Architecture model_of(const Variant& variant) {
  model::MethodSpec method = variant.lora ? lora(variant.dtype) : full(variant.dtype);
  if (variant.dora) method.lora->use_dora = true;
  method.boundary_encoding = variant.boundaries;
  method.head_part_rows = variant.head_part_rows;
  method.fp8 = variant.fp8;
  model::ModelConfig config = small_config(variant.tied);
  if (variant.boundaries != devices::Encoding::kPlain) config.hidden_size = 2 * devices::kEncodedBlock;
  return *model::Architecture::make(config, method);
}

}  // namespace rondo::tiny
