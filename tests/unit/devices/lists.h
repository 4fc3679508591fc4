// Small op lists for the tests of the floor.
#pragma once

#include <string>
#include <utility>

#include "rondo/devices/op.h"

namespace rondo::devices::testing_lists {

inline TensorId tensor(OpList& list, std::string name, Shape shape, DType dtype, TensorRole role,
                       std::uint32_t index = 0) {
  list.tensors.push_back({std::move(name), std::move(shape), dtype, role, index});
  return static_cast<TensorId>(list.tensors.size() - 1);
}

/// y = a chain of `adds` additions x + x, (x + x) + x, ... over [tokens, width]; scratch between, output last.
inline OpList chain_of_adds(std::int64_t tokens, std::int64_t width, int adds, DType dtype = DType::kFloat32) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  const TensorId x = tensor(list, "x", {tokens, width}, dtype, TensorRole::kInput);
  TensorId last = x;
  for (int i = 0; i < adds; ++i) {
    const bool final = i + 1 == adds;
    const TensorId y = tensor(list, final ? "y" : "t" + std::to_string(i), {tokens, width}, dtype,
                              final ? TensorRole::kOutput : TensorRole::kScratch);
    list.ops.push_back({OpKind::kAdd, NoAttributes{}, {last, x}, {y}});
    last = y;
  }
  return list;
}

/// y [T, N] = x [T, K] w^T.
inline OpList one_matmul(std::int64_t tokens, std::int64_t k, std::int64_t n, DType dtype = DType::kFloat32) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  const TensorId x = tensor(list, "x", {tokens, k}, dtype, TensorRole::kInput);
  const TensorId w = tensor(list, "w", {n, k}, dtype, TensorRole::kWeight);
  const TensorId y = tensor(list, "y", {tokens, n}, dtype, TensorRole::kOutput);
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{}, {x, w}, {y}});
  return list;
}

/// o, lse = attention(q, k, v) with the heads of all three alike.
inline OpList one_attention(std::int64_t tokens, std::int64_t heads, std::int64_t head_dim, std::uint32_t window = 0) {
  OpList list;
  list.tokens = static_cast<std::uint32_t>(tokens);
  const Shape shape{tokens, heads, head_dim};
  const TensorId q = tensor(list, "q", shape, DType::kBfloat16, TensorRole::kInput);
  const TensorId k = tensor(list, "k", shape, DType::kBfloat16, TensorRole::kInput, 1);
  const TensorId v = tensor(list, "v", shape, DType::kBfloat16, TensorRole::kInput, 2);
  const TensorId bounds = tensor(list, "bounds", {tokens + 2}, DType::kInt32, TensorRole::kBatch,
                                 static_cast<std::uint32_t>(BatchTensor::kBounds));
  const TensorId o = tensor(list, "o", shape, DType::kBfloat16, TensorRole::kOutput);
  const TensorId lse = tensor(list, "lse", {tokens, heads}, DType::kFloat32, TensorRole::kSaved);
  AttentionAttributes attributes;
  attributes.window = window;
  list.ops.push_back({OpKind::kAttention, attributes, {q, k, v, bounds}, {o, lse}});
  return list;
}

}  // namespace rondo::devices::testing_lists
