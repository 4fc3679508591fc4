#include "rondo/devices/encoding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "rondo/base/float16.h"

namespace rondo::devices {
namespace {

/// Index of the nearest of the rising `values`; of two as near, the lower.
template <std::size_t kCount>
std::size_t nearest(const std::array<float, kCount>& values, float x) {
  const auto above = std::ranges::lower_bound(values, x);
  if (above == values.begin()) return 0;
  const auto index = static_cast<std::size_t>(above - values.begin());
  if (above == values.end()) return kCount - 1;
  return x - values[index - 1] <= values[index] - x ? index - 1 : index;
}

/// Halfway between neighbours: what lies above takes the upper one. Rounded down, so that a number which is above the
/// middle is above the bound.
std::array<float, 15> nf4_bounds() {
  std::array<float, 15> bounds{};
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const double middle = (static_cast<double>(kNf4Values[i]) + static_cast<double>(kNf4Values[i + 1])) / 2;
    bounds[i] = static_cast<float>(middle);
    if (static_cast<double>(bounds[i]) > middle) bounds[i] = std::nextafter(bounds[i], -1.0F);
  }
  return bounds;
}

unsigned nf4_code(float x) {
  static const std::array<float, 15> kBounds = nf4_bounds();
  unsigned code = 0;
  for (const float bound : kBounds) code += x > bound ? 1U : 0U;  // no branch: a vector of comparisons
  return code;
}

float largest_magnitude(std::span<const float> values) {
  float most = 0;
  for (const float value : values) most = std::max(most, std::abs(value));
  return most;
}

template <typename T>
void put(std::span<std::byte> out, Bytes section, std::int64_t index, T value) {
  std::memcpy(out.data() + section + static_cast<Bytes>(index) * sizeof(T), &value, sizeof(T));
}

template <typename T>
T get(const std::byte* encoded, Bytes section, std::int64_t index) {
  T value;
  std::memcpy(&value, encoded + section + static_cast<Bytes>(index) * sizeof(T), sizeof(T));
  return value;
}

/// The encoded magnitude of a block of kNf4.
float decoded_magnitude(const EncodedLayout& layout, const std::byte* encoded, std::int64_t block) {
  const float share = dynamic_map()[get<std::uint8_t>(encoded, layout.block_codes, block)];
  const float scaled = share * get<float>(encoded, layout.block_scales, block / kScaleBlock);
  return scaled + get<float>(encoded, layout.offset, 0);
}

/// The magnitudes of MXFP4's codes without their sign, doubled, and what lies halfway between two.
constexpr std::array<float, 7> kMxfp4Bounds = {0.5F, 1.5F, 2.5F, 3.5F, 5.0F, 7.0F, 10.0F};

/// `doubled`: twice the number, over its scale.
std::uint8_t mxfp4_code(float doubled) {
  const float magnitude = std::abs(doubled);
  unsigned code = 0;
  // A tie goes up where the code above is the even one.
  for (std::size_t i = 0; i < kMxfp4Bounds.size(); ++i) {
    code += magnitude > kMxfp4Bounds[i] || (magnitude == kMxfp4Bounds[i] && i % 2 == 1) ? 1U : 0U;
  }
  return static_cast<std::uint8_t>(code | (std::signbit(doubled) ? 8U : 0U));
}

/// To the nearest whole number within the range of int8 codes.
float int8_code(float x) { return std::clamp(std::nearbyint(x), -127.0F, 127.0F); }

/// Code of element `i` of 4-bit codes in two's complement.
int signed_nibble(std::uint8_t pair, std::int64_t i) {
  const int code = i % 2 == 0 ? pair >> 4U : pair & 15U;
  return code < 8 ? code : code - 16;
}

Bytes padded(Bytes bytes) { return round_up(bytes, 64); }

}  // namespace

const std::array<float, 256>& dynamic_map() {
  static const std::array<float, 256> map = [] {
    std::array<float, 256> values{};
    std::size_t next = 0;
    for (int decade = 0; decade < 7; ++decade) {
      const double parts = std::ldexp(1.0, decade);
      const double scale = std::pow(10.0, decade - 6);
      for (double part = 0; part < parts; ++part) {
        const double middle = 0.1 + 0.9 * (part + 0.5) / parts;
        const auto value = static_cast<float>(scale * middle);
        values[next++] = value;
        values[next++] = -value;
      }
    }
    values[next++] = 0.0F;
    values[next++] = 1.0F;
    std::ranges::sort(values);
    return values;
  }();
  return map;
}

EncodedLayout::EncodedLayout(Encoding encoding, std::int64_t elements)
    : blocks((elements + kEncodedBlock - 1) / kEncodedBlock), size(encoded_bytes(encoding, elements)) {
  const auto count = static_cast<Bytes>(elements);
  const auto block_count = static_cast<Bytes>(blocks);
  if (encoding == Encoding::kInt8) scales = padded(count);
  if (encoding == Encoding::kMxfp4) scales = padded((count + 1) / 2);
  if (encoding == Encoding::kHadamard8) scales = padded(block_count * kEncodedBlock);
  if (encoding == Encoding::kHadamard4) scales = padded(block_count * kEncodedBlock / 2);
  if (encoding != Encoding::kNf4) return;
  block_codes = padded((count + 1) / 2);
  block_scales = block_codes + padded(block_count);
  offset = block_scales + padded((block_count + kScaleBlock - 1) / kScaleBlock * sizeof(float));
}

float decoded_element(Encoding encoding, const EncodedLayout& layout, const std::byte* encoded, std::int64_t i) {
  const std::int64_t block = i / kEncodedBlock;
  if (encoding == Encoding::kInt8) {
    return static_cast<float>(get<std::int8_t>(encoded, layout.codes, i)) * get<float>(encoded, layout.scales, block);
  }
  if (is_hadamard(encoding)) {
    int sum = 0;
    for (std::int64_t k = 0; k < kEncodedBlock; ++k) {
      const std::int64_t place = block * kEncodedBlock + k;
      const int code = encoding == Encoding::kHadamard8
                           ? get<std::int8_t>(encoded, layout.codes, place)
                           : signed_nibble(get<std::uint8_t>(encoded, layout.codes, place / 2), place);
      const auto common = static_cast<std::uint64_t>(i % kEncodedBlock & k);
      sum += std::popcount(common) % 2 == 0 ? code : -code;
    }
    return static_cast<float>(sum) * get<float>(encoded, layout.scales, block);
  }
  const auto pair = get<std::uint8_t>(encoded, layout.codes, i / 2);
  if (encoding == Encoding::kMxfp4) {
    const auto scale = get<std::uint8_t>(encoded, layout.scales, i / kMxfp4Block);
    return from_mxfp4(i % 2 == 0 ? pair & 15U : pair >> 4U, scale);
  }
  return kNf4Values[i % 2 == 0 ? pair >> 4U : pair & 15U] * decoded_magnitude(layout, encoded, block);
}

float choose_code(Encoding encoding, const EncodedLayout& layout, std::byte* encoded, std::int64_t i, float x) {
  const std::span<std::byte> out(encoded, layout.size);
  const std::int64_t block = i / kEncodedBlock;
  if (encoding == Encoding::kInt8) {
    const float scale = get<float>(encoded, layout.scales, block);
    const float code = scale == 0 ? 0.0F : int8_code(x / scale);
    put(out, layout.codes, i, static_cast<std::int8_t>(code));
    return code * scale;
  }
  const float magnitude = decoded_magnitude(layout, encoded, block);
  const unsigned code = nf4_code(magnitude == 0 ? 0.0F : x / magnitude);
  const auto pair = get<std::uint8_t>(encoded, layout.codes, i / 2);
  const unsigned both = i % 2 == 0 ? (code << 4U | (pair & 15U)) : ((pair & 0xF0U) | code);
  put(out, layout.codes, i / 2, static_cast<std::uint8_t>(both));
  return kNf4Values[code] * magnitude;
}

BlockEncoder::BlockEncoder(Encoding encoding, std::int64_t elements, std::span<std::byte> out)
    : encoding_(encoding), layout_(encoding, elements), out_(out.first(layout_.size)) {
  std::ranges::fill(out_, std::byte{0});
  if (encoding == Encoding::kNf4) magnitudes_.reserve(static_cast<std::size_t>(layout_.blocks));
}

void BlockEncoder::append(std::span<const float> values) {
  while (!values.empty()) {
    const std::span<const float> block = values.first(std::min<std::size_t>(values.size(), kEncodedBlock));
    if (encoding_ == Encoding::kInt8) {
      append_int8(block);
    } else if (is_hadamard(encoding_)) {
      append_hadamard(block);
    } else if (encoding_ == Encoding::kMxfp4) {
      append_mxfp4(block);
    } else {
      append_nf4(block);
    }
    ++next_block_;
    values = values.subspan(block.size());
  }
}

void BlockEncoder::append_int8(std::span<const float> block) {
  const float scale = largest_magnitude(block) / 127.0F;
  put(out_, layout_.scales, next_block_, scale);
  if (scale == 0) return;
  for (std::size_t i = 0; i < block.size(); ++i) {
    put(out_, layout_.codes, next_block_ * kEncodedBlock + static_cast<std::int64_t>(i),
        static_cast<std::int8_t>(int8_code(block[i] / scale)));
  }
}

void BlockEncoder::append_hadamard(std::span<const float> block) {
  std::array<float, kEncodedBlock> c{};
  std::ranges::copy(block, c.begin());
  for (const int stride : kHadamardStrides) {
    const auto distance = static_cast<std::size_t>(stride);
    for (std::size_t i = 0; i < c.size(); ++i) {
      if ((i & distance) != 0) continue;
      const float sum = c[i] + c[i + distance];
      c[i + distance] = c[i] - c[i + distance];
      c[i] = sum;
    }
  }
  const float limit = hadamard_limit(encoding_);
  const float most = largest_magnitude(c);
  if (!std::ranges::all_of(c, [](float x) { return std::isfinite(x); })) {
    return put(out_, layout_.scales, next_block_, std::numeric_limits<float>::quiet_NaN());
  }
  if (most < kLeastHadamard) return;
  put(out_, layout_.scales, next_block_, most * hadamard_share(encoding_));
  const float inverse = limit / most;
  std::array<int, kEncodedBlock> codes{};
  for (std::size_t i = 0; i < c.size(); ++i) codes[i] = static_cast<int>(std::nearbyint(c[i] * inverse));
  const std::int64_t first = next_block_ * kEncodedBlock;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::int64_t place = first + static_cast<std::int64_t>(i);
    if (encoding_ == Encoding::kHadamard8) {
      put(out_, layout_.codes, place, static_cast<std::int8_t>(codes[i]));
    } else if (i % 2 == 0) {
      put(out_, layout_.codes, place / 2, static_cast<std::uint8_t>((codes[i] & 15) << 4 | (codes[i + 1] & 15)));
    }
  }
}

void BlockEncoder::append_nf4(std::span<const float> block) {
  const float magnitude = largest_magnitude(block);
  magnitudes_.push_back(magnitude);
  std::array<std::uint8_t, kEncodedBlock> codes{};
  codes.fill(static_cast<std::uint8_t>(nf4_code(0.0F)));
  for (std::size_t i = 0; i < block.size() && magnitude > 0; ++i) {
    codes[i] = static_cast<std::uint8_t>(nf4_code(block[i] / magnitude));
  }
  for (std::size_t i = 0; i < block.size(); i += 2) put_pair(i, unsigned{codes[i]} << 4U | codes[i + 1]);
}

void BlockEncoder::append_mxfp4(std::span<const float> block) {
  constexpr int kLeastScale = 2;  // below it, it would be no normal number
  std::array<std::uint8_t, kEncodedBlock> codes{};
  for (std::size_t first = 0; first < block.size(); first += kMxfp4Block) {
    const std::span<const float> part = block.subspan(first, std::min<std::size_t>(kMxfp4Block, block.size() - first));
    const float most = largest_magnitude(part);
    const int exponent = most > 0 ? std::max(std::ilogb(most) - 2 + 127, kLeastScale) : kLeastScale;
    const std::int64_t place = (next_block_ * kEncodedBlock + static_cast<std::int64_t>(first)) / kMxfp4Block;
    put(out_, layout_.scales, place, static_cast<std::uint8_t>(exponent));
    // By a power of two, in double: the quotient may be past fp32.
    for (std::size_t i = 0; i < part.size(); ++i) {
      codes[first + i] = mxfp4_code(static_cast<float>(std::ldexp(static_cast<double>(part[i]), 128 - exponent)));
    }
  }
  for (std::size_t i = 0; i < block.size(); i += 2) put_pair(i, codes[i] | unsigned{codes[i + 1]} << 4U);
}

void BlockEncoder::put_pair(std::size_t i, unsigned pair) {
  put(out_, layout_.codes, next_block_ * (kEncodedBlock / 2) + static_cast<std::int64_t>(i / 2),
      static_cast<std::uint8_t>(pair));
}

void BlockEncoder::finish() {
  if (encoding_ != Encoding::kNf4 || magnitudes_.empty()) return;
  const double sum = std::accumulate(magnitudes_.begin(), magnitudes_.end(), 0.0);
  const auto offset = static_cast<float>(sum / static_cast<double>(magnitudes_.size()));
  put(out_, layout_.offset, 0, offset);
  for (std::size_t first = 0; first < magnitudes_.size(); first += kScaleBlock) {
    const std::span<float> group =
        std::span(magnitudes_).subspan(first, std::min<std::size_t>(kScaleBlock, magnitudes_.size() - first));
    for (float& magnitude : group) magnitude -= offset;
    const float scale = largest_magnitude(group);
    put(out_, layout_.block_scales, static_cast<std::int64_t>(first / kScaleBlock), scale);
    for (std::size_t i = 0; i < group.size(); ++i) {
      const float share = scale > 0 ? group[i] / scale : 0.0F;
      put(out_, layout_.block_codes, static_cast<std::int64_t>(first + i),
          static_cast<std::uint8_t>(nearest(dynamic_map(), share)));
    }
  }
}

}  // namespace rondo::devices
