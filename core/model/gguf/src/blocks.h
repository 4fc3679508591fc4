// The number types of tensors in a GGUF file, and rows of fp32 numbers put as such.
//
// q8_0: blocks of 32 numbers, each the scale d as fp16 (largest magnitude / 127), then 32 signed bytes, the number over
// d rounded half away from zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "rondo/model/config.h"

namespace rondo::gguf {

/// The values are the format's own.
enum class TensorType : std::uint32_t { kF32 = 0, kF16 = 1, kQ8_0 = 8, kBf16 = 30 };

constexpr std::size_t kBlock = 32;  // numbers of a q8_0 block

std::string_view type_name(TensorType type);  // f32, f16, q8_0, bf16
TensorType plain_type(model::WeightType type);

/// Bytes of a row of `width` numbers; for q8_0 a multiple of kBlock.
std::size_t row_bytes(TensorType type, std::size_t width);

/// Puts a row. False when a number is not finite or too large for the type; `out` then holds anything.
bool put_row(std::span<const float> values, TensorType type, std::span<std::byte> out);

}  // namespace rondo::gguf
