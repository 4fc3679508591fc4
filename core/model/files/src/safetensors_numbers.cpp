// Conversions between fp32, bf16 and fp16. Files hold little-endian numbers at any address, so that every access goes
// through a copy of its bytes (which compilers turn into plain loads).
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "rondo/base/float16.h"
#include "rondo/model/safetensors.h"

namespace rondo::model {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and are read without swapping");

constexpr std::size_t kPiece = 1U << 16U;  // numbers decoded at a time

template <typename Number>
Number load(const std::byte* data, std::size_t index) {
  Number number;
  std::memcpy(&number, data + index * sizeof(Number), sizeof(Number));
  return number;
}

template <typename Number>
void store(std::byte* data, std::size_t index, Number number) {
  std::memcpy(data + index * sizeof(Number), &number, sizeof(Number));
}

}  // namespace

void TensorFiles::read_as_float32(const TensorView& tensor, std::span<float> out) {
  assert(out.size() == tensor.elements());
  read_as_float32(tensor, 0, out);
}

void TensorFiles::read_as_float32(const TensorView& tensor, std::uint64_t first, std::span<float> out) {
  assert(first + out.size() <= tensor.elements());
  if (tensor.decode) return tensor.decode(first, out);
  const std::byte* data = tensor.data.data() + first * weight_type_size(tensor.type);
  switch (tensor.type) {
    case WeightType::kFloat32:
      if (!out.empty()) std::memcpy(out.data(), data, out.size_bytes());
      return;
    case WeightType::kBfloat16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = from_bfloat16(load<std::uint16_t>(data, i));
      return;
    case WeightType::kFloat16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = from_float16(load<std::uint16_t>(data, i));
      return;
  }
}

void TensorFiles::read_as_bfloat16(const TensorView& tensor, std::span<std::uint16_t> out) {
  assert(out.size() == tensor.elements());
  if (tensor.decode) {
    std::vector<float> piece;
    for (std::size_t first = 0; first < out.size(); first += piece.size()) {
      piece.resize(std::min(kPiece, out.size() - first));
      tensor.decode(first, piece);
      for (std::size_t i = 0; i < piece.size(); ++i) out[first + i] = to_bfloat16(piece[i]);
    }
    return;
  }
  const std::byte* data = tensor.data.data();
  switch (tensor.type) {
    case WeightType::kFloat32:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_bfloat16(load<float>(data, i));
      return;
    case WeightType::kBfloat16:
      if (!out.empty()) std::memcpy(out.data(), data, out.size_bytes());
      return;
    case WeightType::kFloat16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_bfloat16(from_float16(load<std::uint16_t>(data, i)));
      return;
  }
}

void store_float32(std::span<const float> values, WeightType type, std::span<std::byte> out) {
  assert(out.size() == values.size() * weight_type_size(type));
  switch (type) {
    case WeightType::kFloat32:
      if (!values.empty()) std::memcpy(out.data(), values.data(), values.size_bytes());
      return;
    case WeightType::kBfloat16:
      for (std::size_t i = 0; i < values.size(); ++i) store(out.data(), i, to_bfloat16(values[i]));
      return;
    case WeightType::kFloat16:
      for (std::size_t i = 0; i < values.size(); ++i) store(out.data(), i, to_float16(values[i]));
      return;
  }
}

}  // namespace rondo::model
