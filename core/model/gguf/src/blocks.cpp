// Encoding rows: plain types by the conversions of safetensors.h, q8_0 here.
#include "blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "rondo/model/safetensors.h"

namespace rondo::gguf {
namespace {

constexpr std::size_t kScaleBytes = 2;
constexpr std::size_t kBlockBytes = kScaleBytes + kBlock;
constexpr float kSteps = 127.0F;
constexpr float kTooLargeForF16 = 65520.0F;      // rounds to infinity
constexpr float kTooLargeForBf16 = 0x1.ffp127F;  // likewise

void put_block(std::span<const float> values, std::byte* out) {
  float largest = 0.0F;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  const float scale = largest / kSteps;
  const float inverse = scale != 0.0F ? 1.0F / scale : 0.0F;
  model::store_float32(std::span(&scale, 1), model::WeightType::kFloat16, {out, kScaleBytes});
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto code = static_cast<std::int8_t>(std::round(values[i] * inverse));
    std::memcpy(out + kScaleBytes + i, &code, 1);
  }
}

float bound_of(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return HUGE_VALF;
    case TensorType::kF16:
      return kTooLargeForF16;
    case TensorType::kBf16:
      return kTooLargeForBf16;
    case TensorType::kQ8_0:
      return kTooLargeForF16 * kSteps;
  }
  return 0.0F;
}

}  // namespace

std::string_view type_name(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return "f32";
    case TensorType::kF16:
      return "f16";
    case TensorType::kBf16:
      return "bf16";
    case TensorType::kQ8_0:
      return "q8_0";
  }
  return "";
}

TensorType plain_type(model::WeightType type) {
  switch (type) {
    case model::WeightType::kFloat32:
      return TensorType::kF32;
    case model::WeightType::kFloat16:
      return TensorType::kF16;
    case model::WeightType::kBfloat16:
      return TensorType::kBf16;
  }
  return TensorType::kF32;
}

std::size_t row_bytes(TensorType type, std::size_t width) {
  if (type == TensorType::kQ8_0) return width / kBlock * kBlockBytes;
  return width * (type == TensorType::kF32 ? 4 : 2);
}

bool put_row(std::span<const float> values, TensorType type, std::span<std::byte> out) {
  const float bound = bound_of(type);
  // Written so that a NaN fails too.
  if (!std::all_of(values.begin(), values.end(), [&](float value) { return std::abs(value) < bound; })) return false;
  switch (type) {
    case TensorType::kF32:
      model::store_float32(values, model::WeightType::kFloat32, out);
      return true;
    case TensorType::kF16:
      model::store_float32(values, model::WeightType::kFloat16, out);
      return true;
    case TensorType::kBf16:
      model::store_float32(values, model::WeightType::kBfloat16, out);
      return true;
    case TensorType::kQ8_0:
      for (std::size_t i = 0; i < values.size() / kBlock; ++i) {
        put_block(values.subspan(i * kBlock, kBlock), out.data() + i * kBlockBytes);
      }
      return true;
  }
  return false;
}

}  // namespace rondo::gguf
