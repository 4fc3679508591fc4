// Products of eight bits, y = x w^T and dx = dy w, with what is added to them.
#pragma once

#include <cstdint>
#include <vector>

#include "op_case.h"

namespace rondo::devices::testing {

struct Fp8Case {
  const char* name;
  std::uint32_t tokens;
  std::int64_t outputs, inputs;
  bool bias, addend;
};

const std::vector<Fp8Case>& fp8_cases();

OpCase case_of(const Fp8Case& fp8_case, DType storage, Fp8Format format = Fp8Format::kE4m3);

/// Rows of eight tokens and of 1100 by 40 weights that are of unlike sizes, a token of zeros among them: a power of two
/// that was another row's, or of some of its numbers only, would leave others past the largest code.
inline constexpr Fp8Case kUnlike{"Unlike", 8, 1100, 40, false, false};
void make_unlike(const OpCase& op_case, CaseMemory& memory);

}  // namespace rondo::devices::testing
