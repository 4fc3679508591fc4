// A number's code is found by its leading bits: a table gives the lowest code of all numbers with these, from which the
// nearest one is a step or two away.
#include "moment_codes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace rondo::offload {
namespace {

constexpr int kDecades = 7;
constexpr std::uint32_t kKeptBits = 7;  // of the fraction
constexpr std::uint32_t kShift = 23 - kKeptBits;
constexpr std::uint32_t kLowest = (127U - 23U) << kKeptBits;  // 2^-23: below it the nearest code is that of 0
constexpr std::uint32_t kKeys = (23U << kKeptBits) + 2;

/// Of numbers from 0 to 1 in rising order.
struct Magnitudes {
  std::array<float, 256> middles{};  // between value i and the next; beyond the last: more than any number
  std::array<std::uint8_t, kKeys> first{};
  std::uint8_t zero = 0;  // the code of 0: the table begins there
};

struct Table {
  CodeValues values{};
  Magnitudes up;    // codes from that of 0 to the last
  Magnitudes down;  // the same of negative numbers: code zero - i
};

std::uint32_t key_of(float x) {
  const std::uint32_t key = std::bit_cast<std::uint32_t>(x) >> kShift;
  return key <= kLowest ? 0 : key - kLowest;
}

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

Magnitudes magnitudes_of(const CodeValues& values, std::uint8_t zero, int direction) {
  Magnitudes found;
  found.zero = zero;
  found.middles.fill(2.0F);
  const int count = direction > 0 ? 256 - zero : zero + 1;
  const auto magnitude = [&](int i) {
    const int at = zero + direction * i;
    return std::abs(values[static_cast<std::size_t>(at)]);
  };
  for (int i = 0; i + 1 < count; ++i) {
    found.middles[static_cast<std::size_t>(i)] = (magnitude(i) + magnitude(i + 1)) / 2.0F;
  }
  std::uint8_t code = 0;
  for (std::uint32_t key = 0; key < kKeys; ++key) {
    const float least = key == 0 ? 0.0F : std::bit_cast<float>((key + kLowest) << kShift);
    while (least > found.middles[code]) ++code;
    found.first[key] = code;
  }
  return found;
}

Table make_table(bool is_signed) {
  std::vector<float> values = {0.0F, 1.0F};
  for (int i = 0; i < kDecades; ++i) {
    const auto decade = static_cast<float>(std::pow(10.0, i - (kDecades - 1)));
    for (const float value : middles_of(1 << (is_signed ? i : i + 1), decade)) {
      values.push_back(value);
      if (is_signed) values.push_back(-value);
    }
  }
  std::ranges::sort(values);
  Table table;
  std::ranges::copy(values, table.values.begin());
  const auto zero = static_cast<std::uint8_t>(std::ranges::find(values, 0.0F) - values.begin());
  table.up = magnitudes_of(table.values, zero, 1);
  table.down = magnitudes_of(table.values, zero, -1);
  return table;
}

const Table& table_of(bool is_signed) {
  static const Table with_sign = make_table(true);
  static const Table without = make_table(false);
  return is_signed ? with_sign : without;
}

/// Steps from the code of 0 to the one nearest to a magnitude of at most 1.
std::uint8_t steps_to(const Magnitudes& table, float x) {
  std::uint8_t steps = table.first[key_of(x)];
  while (x > table.middles[steps]) ++steps;
  return steps;
}

}  // namespace

const CodeValues& signed_code_values() { return table_of(true).values; }
const CodeValues& unsigned_code_values() { return table_of(false).values; }

void decode_moments(std::span<const std::uint8_t> codes, float scale, bool is_signed, std::span<float> values) {
  const CodeValues& table = table_of(is_signed).values;
  for (std::size_t i = 0; i < codes.size(); ++i) values[i] = table[codes[i]] * scale;
}

float encode_moments(std::span<const float> values, bool is_signed, std::span<std::uint8_t> codes) {
  const Table& table = table_of(is_signed);
  float scale = 0;
  for (const float value : values) scale = std::max(scale, std::abs(value));
  const float divisor = scale > 0 ? scale : 1.0F;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const float x = values[i] / divisor;
    const Magnitudes& side = x < 0 ? table.down : table.up;
    const std::uint8_t steps = steps_to(side, std::abs(x));
    // The code of 0 counts as positive: a negative number goes on to the next.
    if (x < 0)
      codes[i] = static_cast<std::uint8_t>(side.zero - std::max<std::uint8_t>(steps, 1));
    else
      codes[i] = static_cast<std::uint8_t>(side.zero + steps);
  }
  return scale;
}

}  // namespace rondo::offload
