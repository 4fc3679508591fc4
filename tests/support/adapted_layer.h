// A linear layer and its adapter as backends lower them.
#pragma once

#include "rondo/devices/op.h"

namespace rondo::test {

/// Tensors of adapted_layer().
enum AdaptedIds : devices::TensorId { kLayerX, kLayerW, kLayerLow, kLayerB, kLayerY, kLayerMore, kLayerZ };

/// y = x w^T + more, z = 2 low b^T + y: 32 tokens, 320 inputs, 48 outputs, rank 8.
inline devices::OpList adapted_layer(devices::DType storage, devices::Fp8Format format = devices::Fp8Format::kNone) {
  using devices::MatMulAttributes;
  using devices::OpKind;
  using devices::TensorRole;
  devices::OpList list;
  list.tokens = 32;
  list.tensors = {{"x", {32, 320}, storage, TensorRole::kInput, 0},  {"w", {48, 320}, storage, TensorRole::kWeight, 0},
                  {"low", {32, 8}, storage, TensorRole::kInput, 1},  {"b", {48, 8}, storage, TensorRole::kWeight, 1},
                  {"y", {32, 48}, storage, TensorRole::kScratch, 0}, {"more", {32, 48}, storage, TensorRole::kInput, 2},
                  {"z", {32, 48}, storage, TensorRole::kOutput, 0}};
  list.ops = {{OpKind::kMatMul, MatMulAttributes{1.0F, false, true, format}, {kLayerX, kLayerW, kLayerMore}, {kLayerY}},
              {OpKind::kMatMul, MatMulAttributes{2.0F, false, true}, {kLayerLow, kLayerB, kLayerY}, {kLayerZ}}};
  return list;
}

}  // namespace rondo::test
