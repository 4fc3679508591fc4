// The delta rule, state spaces and their gates in sizes that the descriptions of all backends have not: heads of
// several blocks, more sequences than share a grid, a gradient of several segments.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

#include "op_case.h"

namespace rondo::devices::testing {

struct RuleCase {
  const char* name;
  std::uint32_t tokens;
  std::vector<std::int32_t> sequences;
  std::int64_t key_heads, heads, size, width;
  bool far_gates = false;
  bool state_space = false;
};
inline void PrintTo(const RuleCase& rule, std::ostream* stream) { *stream << rule.name; }

inline const std::vector<RuleCase> kRuleCases = {
    {"LargeHeads", 160, {110, 1, 46}, 1, 2, 128, 128},
    {"HeadsOfAPartMore", 100, {65, 32}, 2, 2, 72, 40},
    {"SegmentsOfAChunk", 200, {30, 120, 46}, 43, 129, 5, 6},
    {"SegmentsOfTwoChunks", 150, {20, 125}, 32, 128, 3, 4},
    {"ManySequences", 80, std::vector<std::int32_t>(70, 1), 1, 2, 9, 33},
    {"FarGates", 130, {128}, 1, 3, 16, 8, true},
    {"PaddingAlone", 70, {}, 1, 2, 4, 4},
    {"SpacesOfLargeHeads", 160, {110, 1, 46}, 1, 2, 128, 64, false, true},
    {"SpacesOfManyHeads", 150, {20, 125}, 1, 130, 9, 33, false, true},
    {"SpacesOfFarGates", 130, {128}, 1, 3, 16, 8, true, true},
};

struct RuleOps {
  OpCase op_case;
  TensorId a;
  TensorId rates;
};

/// The gates, the rule and its gradient.
inline RuleOps case_of(const RuleCase& rule, DType storage) {
  CaseBuilder b(storage, rule.tokens);
  b.sequences(rule.sequences);
  const Shape keys = {rule.tokens, rule.key_heads, rule.size};
  const Shape values = {rule.tokens, rule.heads, rule.width};
  const Shape gates = {rule.tokens, rule.heads};
  const TensorId q = b.input("q", keys), k = b.input("k", keys), v = b.input("v", values), d_o = b.input("do", values);
  const TensorId a = b.input("a", gates), rates = b.wide_weight("rates", {rule.heads});
  const TensorId g = b.saved_wide("g", gates), beta = b.saved_wide("beta", gates);
  DeltaAttributes attributes;
  if (rule.state_space) attributes.recurrence = Recurrence::kStateSpace;
  std::vector<TensorId> reads = {a};
  if (!rule.state_space) reads.push_back(b.input("b", gates));
  reads.push_back(rates);
  reads.push_back(b.wide_weight("bias", {rule.heads}));
  b.op(OpKind::kDecay, reads, {g, beta}, attributes);
  const TensorId checkpoints =
      b.saved_wide("checkpoints", {(rule.tokens + kDeltaChunk - 1) / kDeltaChunk, rule.heads, rule.size, rule.width});
  b.op(OpKind::kDeltaRule, {q, k, v, g, beta, b.bounds()}, {b.output("o", values), checkpoints}, attributes);
  b.op(OpKind::kDeltaRuleBackward, {q, k, v, g, beta, checkpoints, b.bounds(), d_o},
       {b.output("dq", keys), b.output("dk", keys), b.output("dv", values), b.saved_wide("dg", gates),
        b.saved_wide("dbeta", gates)},
       attributes);
  b.result().reduction = rule.tokens;
  return {b.result(), a, rates};
}

/// Some tokens keep all of the state, others nothing: what is summed up of g is far more than most of it.
inline void set_far_gates(const RuleCase& rule, const RuleOps& ops, CaseMemory& memory) {
  for (std::int64_t h = 0; h < rule.heads; ++h) memory.set(ops.rates, h, 5);
  for (std::int64_t i = 0; i < rule.tokens * rule.heads; ++i) {
    memory.set(ops.a, i, i / rule.heads % 5 == 0 ? 9 : -9);
  }
}

/// The gates, or steps of a state space, and their gradient, of several chunks of tokens and more than 32 heads.
inline OpCase gates_case(DType storage, Recurrence recurrence) {
  constexpr std::uint32_t kTokens = 1040;
  constexpr std::int64_t kHeads = 37;
  CaseBuilder b(storage, kTokens);
  const Shape gates = {kTokens, kHeads};
  const TensorId a = b.input("a", gates), of_beta = b.input("b", gates);
  const TensorId rates = b.wide_weight("rates", {kHeads}), bias = b.wide_weight("bias", {kHeads});
  const TensorId dg = b.wide_input("dg", gates), dbeta = b.wide_input("dbeta", gates);
  DeltaAttributes attributes;
  attributes.recurrence = recurrence;
  std::vector<TensorId> reads = {a, of_beta, rates, bias};
  std::vector<TensorId> writes = {b.output("da", gates), b.output("db", gates), b.gradient("drates", {kHeads}),
                                  b.gradient("dbias", {kHeads})};
  if (attributes.is_state_space()) {
    reads.erase(reads.begin() + 1);
    writes.erase(writes.begin() + 1);
  }
  b.op(OpKind::kDecay, reads, {b.saved_wide("g", gates), b.saved_wide("beta", gates)}, attributes);
  attributes.has_weight_gradient = true;
  reads.insert(reads.end(), {dg, dbeta});
  b.op(OpKind::kDecayBackward, reads, writes, attributes);
  b.result().reduction = kTokens;
  return b.result();
}

}  // namespace rondo::devices::testing
