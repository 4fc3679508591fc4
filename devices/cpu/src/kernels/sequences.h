// The sequences of a microbatch, read from BatchTensor::kBounds: a count, the first token of each sequence, the number
// of real tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace rondo::devices::cpu {

/// Tokens begin ... end - 1.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t length() const { return end - begin; }
};

class Sequences {
 public:
  explicit Sequences(const std::int32_t* bounds) : bounds_(bounds) {}

  std::int64_t count() const { return bounds_[0]; }
  std::int64_t real_tokens() const { return bounds_[1 + count()]; }
  TokenRange operator[](std::int64_t i) const { return {bounds_[1 + i], bounds_[2 + i]}; }

  /// Index of the first sequence that ends past `token`; count() when there is none.
  std::int64_t index_at(std::int64_t token) const {
    const std::int32_t* ends = bounds_ + 2;
    const auto past = [](std::int64_t value, std::int32_t end) { return value < end; };
    return std::upper_bound(ends, ends + count(), token, past) - ends;
  }

  /// The sequence that holds `token`; for a padding token an empty range that ends with the last token there can be.
  TokenRange at(std::int64_t token) const {
    const std::int64_t i = index_at(token);
    if (i < count()) return (*this)[i];
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    return {kNever, kNever};
  }

 private:
  const std::int32_t* bounds_;
};

}  // namespace rondo::devices::cpu
