// What the descriptions of ops share: sizes, sequences, ids.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "op_case.h"

namespace rondo::devices::testing {

inline constexpr std::uint32_t kOddTokens = 48;
inline const std::vector<std::int32_t> kOddSequences = {19, 1, 23};  // 43 tokens and 5 of padding

struct Sizes {
  std::uint32_t tokens = kOddTokens;
  std::int64_t hidden = 75;
  std::int64_t inner = 101;
  std::int64_t heads = 6;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 20;
  std::int64_t vocabulary = 131;
};

inline Sizes sizes_of(Scale scale) {
  if (scale == Scale::kOdd) return {};
  return {512, 576, 1536, 9, 3, 64, 49152};
}

inline void add_sequences(CaseBuilder& b, Scale scale) {
  b.sequences(scale == Scale::kOdd ? kOddSequences : std::vector<std::int32_t>{200, 312});
}

/// `with_negative`: targets, of which some are none.
inline std::vector<std::int32_t> some_ids(std::uint32_t tokens, std::int64_t vocabulary, bool with_negative) {
  std::vector<std::int32_t> ids;
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const auto id = static_cast<std::int32_t>((t * t * 7 + 3 * t) % static_cast<std::uint32_t>(vocabulary));
    ids.push_back(with_negative && t % 5 == 2 ? -100 : id);  // squares: some ids come several times
  }
  return ids;
}

inline double inverse_root(std::int64_t n) { return 1.0 / std::sqrt(static_cast<double>(n)); }

}  // namespace rondo::devices::testing
