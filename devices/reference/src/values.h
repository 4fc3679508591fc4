// Tensors as the reference sees them: numbers in double, whatever they are stored as, and the sequences of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rondo/base/float16.h"
#include "rondo/devices/device.h"
#include "rondo/devices/op.h"

namespace rondo::devices::reference {

/// A tensor's elements. Floating storage only; see integers() and keys() for the others.
class Values {
 public:
  Values(const TensorDesc& desc, std::byte* data) : desc_(&desc), data_(data) {}

  std::int64_t size() const { return desc_->elements(); }
  std::int64_t extent(std::size_t dimension) const { return desc_->shape[dimension]; }
  /// As a matrix: [first, product of the others].
  std::int64_t rows() const { return desc_->shape[0]; }
  std::int64_t columns() const { return rows() == 0 ? 0 : size() / rows(); }

  double operator[](std::int64_t i) const {
    switch (desc_->dtype) {
      case DType::kFloat64:
        return element<double>(i);
      case DType::kBfloat16:
        return static_cast<double>(from_bfloat16(element<std::uint16_t>(i)));
      case DType::kFloat16:
        return static_cast<double>(from_float16(element<std::uint16_t>(i)));
      default:
        return static_cast<double>(element<float>(i));
    }
  }
  void set(std::int64_t i, double value) {
    switch (desc_->dtype) {
      case DType::kFloat64:
        return put(i, value);
      case DType::kBfloat16:
        return put(i, to_bfloat16(static_cast<float>(value)));
      case DType::kFloat16:
        return put(i, to_float16(static_cast<float>(value)));
      default:
        return put(i, static_cast<float>(value));
    }
  }
  void add(std::int64_t i, double value) { set(i, (*this)[i] + value); }
  void fill(double value) {
    for (std::int64_t i = 0; i < size(); ++i) set(i, value);
  }

  std::int32_t* integers() const { return reinterpret_cast<std::int32_t*>(data_); }
  const std::byte* bytes() const { return data_; }
  std::byte* bytes() { return data_; }
  const std::uint64_t* keys() const { return reinterpret_cast<const std::uint64_t*>(data_); }

 private:
  template <typename T>
  T element(std::int64_t i) const {
    T value;
    std::memcpy(&value, data_ + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  template <typename T>
  void put(std::int64_t i, T value) {
    std::memcpy(data_ + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }

  const TensorDesc* desc_;
  std::byte* data_;
};

/// BatchTensor::kBounds.
class Sequences {
 public:
  explicit Sequences(const Values& bounds) : bounds_(bounds.integers()) {}
  std::int64_t count() const { return bounds_[0]; }
  std::int64_t begin(std::int64_t sequence) const { return bounds_[1 + sequence]; }
  std::int64_t end(std::int64_t sequence) const { return bounds_[2 + sequence]; }
  std::int64_t real_tokens() const { return bounds_[1 + count()]; }
  /// Length of the sequence that holds `token`, 0 for padding.
  std::int64_t length_at(std::int64_t token) const {
    for (std::int64_t s = 0; s < count(); ++s) {
      if (token >= begin(s) && token < end(s)) return end(s) - begin(s);
    }
    return 0;
  }

 private:
  const std::int32_t* bounds_;
};

/// One op with its tensors.
struct Call {
  const OpList& list;
  const Op& op;
  const Bindings& bindings;
  const ArenaLayout& layout;

  Values in(std::size_t i) const { return at(op.reads[i]); }
  Values out(std::size_t i) const { return at(op.writes[i]); }
  template <typename Attributes>
  const Attributes& attributes() const {
    return std::get<Attributes>(op.attributes);
  }
  Values at(TensorId id) const {
    const TensorDesc& desc = list.tensors[id];
    return {desc, desc.role == TensorRole::kScratch ? bindings.scratch.host() + layout.offsets[id]
                                                    : bindings.tensors[id].host()};
  }
};

void embedding(const Call& call);
void embedding_backward(const Call& call);
void select_last(const Call& call);
void norm(const Call& call);
void norm_backward(const Call& call);
void rope(const Call& call);
void gated_activation(const Call& call);
void gated_activation_backward(const Call& call);
void add(const Call& call);
void soft_cap(const Call& call);
void dropout(const Call& call);
void noise(const Call& call);
void magnitude_scale(const Call& call);
void column_scale(const Call& call);
void column_scale_backward(const Call& call);
void head_scale_gradient(const Call& call);
void matmul(const Call& call);
void matmul_input_gradient(const Call& call);
void matmul_weight_gradient(const Call& call);
void bias_gradient(const Call& call);
void vocabulary_statistics(const Call& call);
void vocabulary_loss(const Call& call);
void vocabulary_gradient(const Call& call);
void attention(const Call& call);
void attention_backward(const Call& call);
void cached_attention(const Call& call);
void attention_sink(const Call& call);
void attention_sink_gradient(const Call& call);
void join_heads(const Call& call);
void join_heads_backward(const Call& call);
void convolution(const Call& call);
void convolution_backward(const Call& call);
void decay(const Call& call);
void decay_backward(const Call& call);
void delta_rule(const Call& call);
void delta_rule_backward(const Call& call);
void route(const Call& call);
void route_backward(const Call& call);
void share_scale(const Call& call);
void share_scale_backward(const Call& call);
void dispatch(const Call& call);
void combine(const Call& call);
void combine_backward(const Call& call);
void grouped_matmul(const Call& call);
void grouped_matmul_input_gradient(const Call& call);
void grouped_matmul_weight_gradient(const Call& call);
void grouped_bias(const Call& call);
void grouped_bias_gradient(const Call& call);
void expand(const Call& call);
void encode(const Call& call);
void add_rows(const Call& call);
void sum_of_squares(const Call& call);
void adamw(const Call& call);

}  // namespace rondo::devices::reference
