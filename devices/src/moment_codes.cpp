// A number's code is found by its leading bits: a table gives the lowest code of all numbers with these, from which the
// nearest one is a step or two away.
#include "rondo/devices/moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <vector>

#include "rondo/devices/update.h"

namespace rondo::devices {
namespace {

constexpr int kDecades = 7;

/// The least second moment, as a part of its block's scale, whose code is not that of 0. A number that some processors
/// take for 0 is below.
constexpr float kLeastSecondMoment = 0x1p-125F;

/// The values at the middles of `parts` equal parts of [0.1, 1], in fp32 as PyTorch's linspace has them.
std::vector<float> middles_of(int parts, float decade) {
  const float step = (1.0F - 0.1F) / static_cast<float>(parts);
  const auto boundary = [&](int i) {
    return i < (parts + 1) / 2 ? 0.1F + step * static_cast<float>(i) : 1.0F - step * static_cast<float>(parts - i);
  };
  std::vector<float> values;
  for (int i = 0; i < parts; ++i) {
    values.push_back(decade * ((boundary(i) + boundary(i + 1)) / 2.0F));
  }
  return values;
}

/// Codes from `zero` on, upwards or (direction -1) downwards. What is more than `least_number` has another code than
/// 0's.
void fill(MomentSide& side, std::span<const float, 256> values, std::uint32_t zero, int direction,
          std::optional<float> least_number = std::nullopt) {
  std::ranges::fill(side.middles, 2.0F);
  const auto count = static_cast<int>(direction > 0 ? 256 - zero : zero + 1);
  const auto magnitude = [&](int i) {
    const int at = static_cast<int>(zero) + direction * i;
    return std::abs(values[static_cast<std::size_t>(at)]);
  };
  for (int i = 0; i + 1 < count; ++i) side.middles[i] = (magnitude(i) + magnitude(i + 1)) / 2.0F;
  if (least_number) side.middles[0] = *least_number;
  std::uint8_t code = 0;
  for (std::uint32_t key = 0; key < kMomentKeys; ++key) {
    const float least = key == 0 ? 0.0F : std::bit_cast<float>((key + kLowestMoment) << kMomentShift);
    while (least > side.middles[code]) ++code;
    side.first[key] = code;
  }
}

void fill_values(float (&to)[256], bool is_signed) {
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kDecades; ++i) {
    const auto decade = static_cast<float>(std::pow(10.0, i - (kDecades - 1)));
    for (const float value : middles_of(1 << (is_signed ? i : i + 1), decade)) {
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  std::ranges::copy(values, to);
}

MomentTables make_tables() {
  MomentTables tables{};
  fill_values(tables.values[0], true);
  fill_values(tables.values[1], false);
  fill(tables.sides[0], std::span<const float, 256>(tables.values[0]), kSignedZero, 1);
  fill(tables.sides[1], std::span<const float, 256>(tables.values[0]), kSignedZero, -1);
  fill(tables.sides[2], std::span<const float, 256>(tables.values[1]), 0, 1, kLeastSecondMoment);
  return tables;
}

}  // namespace

const MomentTables& moment_tables() {
  static const MomentTables tables = make_tables();
  return tables;
}

void decode_moments(std::span<const std::uint8_t> codes, float scale, bool is_signed, std::span<float> values) {
  const auto table = moment_values(is_signed);
  for (std::size_t i = 0; i < codes.size(); ++i) values[i] = table[codes[i]] * scale;
}

float encode_moments(std::span<const float> values, bool is_signed, std::span<std::uint8_t> codes) {
  const MomentTables& tables = moment_tables();
  float scale = 0;
  for (const float value : values) scale = std::max(scale, std::abs(value));
  const float divisor = scale > 0 ? scale : 1.0F;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float x = values[i] / divisor;
    const auto bits = std::bit_cast<std::uint32_t>(std::abs(x));
    codes[i] = static_cast<std::uint8_t>(is_signed ? signed_moment_code(tables, x, bits)
                                                   : unsigned_moment_code(tables, x, bits));
  }
  return scale;
}

void adamw_coded(const UpdateArrays& arrays, const CodedMoments& moments, std::size_t n, const StepFactors& factors,
                 std::uint32_t rounding_key) {
  float decoded[2][kMomentBlock];
  for (std::size_t done = 0; done < n; done += kMomentBlock) {
    const std::size_t count = std::min(kMomentBlock, n - done);
    const auto codes_of = [&](std::size_t i) { return std::span(moments.codes[i] + done, count); };
    const auto scale_of = [&](std::size_t i) { return moments.scales[i] + done / kMomentBlock; };
    for (const std::size_t i : {0U, 1U}) decode_moments(codes_of(i), *scale_of(i), i == 0, {decoded[i], count});
    adamw({arrays.master + done, decoded[0], decoded[1], arrays.gradient + done,
           arrays.published == nullptr ? nullptr : arrays.published + done, arrays.narrow},
          count, factors, rounding_key_from(rounding_key, done));
    for (const std::size_t i : {0U, 1U}) *scale_of(i) = encode_moments({decoded[i], count}, i == 0, codes_of(i));
  }
}

}  // namespace rondo::devices
