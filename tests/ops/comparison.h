// Compares what a device computed with the reference, within the bounds of tolerance.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "op_case.h"
#include "rondo/devices/encoding.h"
#include "tolerance.h"

namespace rondo::devices::testing {

struct Compared {
  const OpCase& op_case;
  const Op& op;
  bool narrow_products;
  bool narrow_attention = false;  // see narrow_softmax()
  bool short_sums = false;        // see short_sums()
};

/// Of what kEncode wrote: the elements that it stands for.
inline void expect_close_codes(const TensorDesc& desc, const std::byte* got, const std::byte* want) {
  const EncodedLayout layout(desc.encoding, desc.elements());
  for (std::int64_t i = 0; i < desc.elements(); ++i) {
    float scale = 0;
    std::memcpy(&scale, want + layout.scales + static_cast<Bytes>(i / kEncodedBlock) * sizeof(scale), sizeof(scale));
    const float expected = decoded_element(desc.encoding, layout, want, i);
    ASSERT_NEAR(decoded_element(desc.encoding, layout, got, i), expected, kHadamardCodes * static_cast<double>(scale))
        << "'" << desc.name << "' element " << i;
  }
}

/// Of moments in codes: where a number lies between two codes, its last digits decide.
inline void expect_close_moments(const TensorDesc& desc, const std::byte* got, const std::byte* want) {
  Bytes others = 0;
  for (Bytes i = 0; i < desc.bytes(); ++i) {
    const int apart = std::abs(static_cast<int>(got[i]) - static_cast<int>(want[i]));
    ASSERT_LE(apart, 1) << "'" << desc.name << "' code " << i;
    others += apart != 0 ? 1 : 0;
  }
  EXPECT_LE(others, desc.bytes() / 1000) << desc.name;
}

/// Of the elements `begin` to `end` of a tensor.
inline double rms_of(const CaseMemory& memory, TensorId id, std::int64_t begin, std::int64_t end) {
  double squares = 0;
  for (std::int64_t i = begin; i < end; ++i) squares += memory.get(id, i) * memory.get(id, i);
  return std::sqrt(squares / static_cast<double>(end - begin));
}

inline void expect_close(const Compared& compared, TensorId id, const CaseMemory& got, const CaseMemory& want) {
  const TensorDesc& desc = compared.op_case.list.tensors[id];
  if (is_hadamard(desc.encoding)) return expect_close_codes(desc, got.data(id), want.data(id));
  if (desc.dtype == DType::kInt32 && desc.role == TensorRole::kState)
    return expect_close_moments(desc, got.data(id), want.data(id));
  // Random numbers are the same on every device, and noise is added to them step by rounded step.
  const bool exact = compared.op.kind == OpKind::kNoise;
  if (exact || desc.dtype == DType::kInt32 || desc.encoding != Encoding::kPlain) {
    EXPECT_EQ(std::memcmp(got.data(id), want.data(id), desc.bytes()), 0) << desc.name;
    return;
  }
  const double rms = rms_of(want, id, 0, desc.elements());
  double absolute = units_of(compared.op) * 0x1.0p-24 * std::sqrt(static_cast<double>(compared.op_case.reduction));
  double of_itself = rounding_of(desc.dtype);
  if (compared.short_sums) {
    absolute += short_sums(compared.op_case.reduction);
    of_itself += kShortSum;
  }
  const OpKind kind = compared.op.kind;
  const bool entropy = kind == OpKind::kVocabularyLoss || kind == OpKind::kVocabularyGradient;
  const DType operands = compared.op_case.list.tensors[compared.op.reads[0]].dtype;
  if (entropy && compared.narrow_products) absolute += narrow_entropy_gradient(operands);
  if (kind == OpKind::kVocabularyLoss && desc.dtype != DType::kFloat64) {
    absolute +=
        (std::get<VocabularyAttributes>(compared.op.attributes).parts - 1) * kSumSoFar * rounding_of(desc.dtype);
  }
  double rest = 0;
  if (kind == OpKind::kAttentionBackward && id != compared.op.writes[2]) {
    rest = rest_of_slopes(desc.shape.back(), std::get<AttentionAttributes>(compared.op.attributes).scale);
  }
  // What softmax gives is judged by the head's own numbers: early keys are seen by many queries, and get sums of many
  // more terms than late ones.
  const bool attention = kind == OpKind::kAttention || kind == OpKind::kAttentionBackward;
  const bool narrow_attention = compared.narrow_attention && attention && desc.dtype == operands;
  double of_head = 0;
  for (std::int64_t i = 0; i < desc.elements(); ++i) {
    if (narrow_attention && i % desc.shape.back() == 0) of_head = rms_of(want, id, i, i + desc.shape.back());
    const double allowed = std::max(of_itself * std::abs(want.get(id, i)), least_unit_of(desc.dtype)) + absolute * rms +
                           rest + narrow_softmax(operands) * of_head;
    ASSERT_LE(std::abs(got.get(id, i) - want.get(id, i)), allowed)
        << name_of(compared.op.kind) << ": '" << desc.name << "' element " << i << " is " << got.get(id, i)
        << ", expected " << want.get(id, i) << " +- " << allowed << ", rms " << rms;
  }
}

}  // namespace rondo::devices::testing
