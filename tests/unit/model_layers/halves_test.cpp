// A backward program in halves: together they do what the whole one does, and the second needs nothing of the model but
// what the first has left.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "rondo/model/architecture.h"
#include "tiny_model.h"

namespace rondo::model {
namespace {

using devices::DType;
using devices::OpKind;
using devices::OpList;
using devices::TensorDesc;
using devices::TensorRole;

constexpr std::uint32_t kTokens = 16;

struct Method {
  const char* name;
  MethodSpec spec;
  bool q_norms = false;
  bool carries = false;  // inputs of each block, and keys and values that the last one shares
};

std::vector<Method> methods() {
  MethodSpec dora = tiny::lora(DType::kBfloat16);
  dora.lora->use_dora = true;
  MethodSpec codes = tiny::lora(DType::kBfloat16);
  codes.base_encoding = devices::Encoding::kNf4;
  MethodSpec last = tiny::full(DType::kBfloat16);
  last.trained_blocks = 1;
  MethodSpec narrow = tiny::full(DType::kBfloat16);
  narrow.boundary_encoding = devices::Encoding::kHadamard8;
  return {{"full", tiny::full(DType::kFloat32)},
          {"full_with_q_norms", tiny::full(DType::kBfloat16), true},
          {"last_block", last},
          {"lora", tiny::lora(DType::kBfloat16)},
          {"lora_of_codes", codes},
          {"dora", dora},
          {"coded_boundaries", narrow},
          {"carried", tiny::full(DType::kBfloat16), false, true},
          {"carried_lora", tiny::lora(DType::kBfloat16), true, true}};
}

class Halves : public testing::TestWithParam<Method> {
 protected:
  static Architecture make() {
    ModelConfig config = tiny::small_config();
    config.hidden_size = 128;
    config.intermediate_size = 192;
    config.qk_norm = GetParam().q_norms ? QkNorm::kHead : QkNorm::kNone;
    if (GetParam().carries) {
      config.block_inputs = {24, config.vocab_size};
      config.sharing_blocks = 1;
    }
    auto made = Architecture::make(config, GetParam().spec);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }
  /// Calls `check` with every layer that has a backward program of its own, and everything that may be kept.
  template <typename Check>
  void for_each(Check check) const {
    for (LayerIndex layer = 1; layer + 1 < model_.layers().size(); ++layer) {
      if (!model_.layers()[layer].has_backward) continue;
      for (const Keep keep : {Keep::kNothing, Keep::kSelective, Keep::kAll}) {
        SCOPED_TRACE(model_.layers()[layer].name + " keeping " + std::to_string(static_cast<int>(keep)));
        check(layer, keep);
      }
    }
  }
  OpList record(LayerIndex layer, Phase phase, Keep keep) const { return model_.record(layer, phase, keep, kTokens); }

  static std::map<OpKind, int> kinds(const OpList& list) {
    std::map<OpKind, int> counts;
    for (const devices::Op& op : list.ops) ++counts[op.kind];
    return counts;
  }
  /// Of the tensors in a role, written ones alone or all of them.
  static std::map<std::uint32_t, TensorDesc> in_role(const OpList& list, TensorRole role, bool written) {
    std::set<devices::TensorId> writes;
    for (const devices::Op& op : list.ops) writes.insert(op.writes.begin(), op.writes.end());
    std::map<std::uint32_t, TensorDesc> found;
    for (devices::TensorId id = 0; id < list.tensors.size(); ++id) {
      if (list.tensors[id].role != role || (written && !writes.contains(id))) continue;
      EXPECT_TRUE(found.try_emplace(list.tensors[id].index, list.tensors[id]).second) << list.tensors[id].name;
    }
    return found;
  }

  const Architecture model_ = make();
};

TEST_P(Halves, Together_AreTheWhole) {
  for_each([&](LayerIndex layer, Keep keep) {
    const OpList whole = record(layer, Phase::kBackward, keep);
    const OpList first = record(layer, Phase::kInputGradient, keep);
    const OpList second = record(layer, Phase::kWeightGradient, keep);
    EXPECT_TRUE(devices::validate(first).ok()) << devices::validate(first);
    EXPECT_TRUE(devices::validate(second).ok()) << devices::validate(second);
    std::map<OpKind, int> both = kinds(first);
    for (const auto& [kind, count] : kinds(second)) both[kind] += count;
    EXPECT_EQ(both, kinds(whole));
    auto gradients = in_role(first, TensorRole::kGradient, true);
    gradients.merge(in_role(second, TensorRole::kGradient, true));
    const auto wanted = in_role(whole, TensorRole::kGradient, true);
    EXPECT_EQ(gradients.size(), wanted.size());
    for (const auto& [index, desc] : wanted) EXPECT_EQ(gradients[index].name, desc.name);
    EXPECT_EQ(kinds(first).count(OpKind::kMatMulWeightGradient), 0U);
  });
}

TEST_P(Halves, SecondOne_NeedsOnlyWhatTheFirstHasLeft) {
  for_each([&](LayerIndex layer, Keep keep) {
    const OpList forward = record(layer, Phase::kForward, keep);
    const OpList first = record(layer, Phase::kInputGradient, keep);
    const OpList second = record(layer, Phase::kWeightGradient, keep);
    for (const TensorDesc& desc : second.tensors) {
      const bool from_above = desc.role == TensorRole::kInput && desc.index == 1;
      EXPECT_TRUE(from_above || desc.role == TensorRole::kHeld || desc.role == TensorRole::kGradient) << desc.name;
    }
    auto left = in_role(forward, TensorRole::kHeld, true);
    left.merge(in_role(first, TensorRole::kHeld, true));
    const auto held = model_.held(layer, keep, kTokens);
    EXPECT_EQ(left.size(), held.size());
    for (const auto& [index, desc] : in_role(second, TensorRole::kHeld, false)) {
      ASSERT_TRUE(left.contains(index)) << desc.name;
      EXPECT_EQ(left[index].name, desc.name);
      EXPECT_EQ(held[index].name, desc.name);
      EXPECT_EQ(left[index].bytes(), desc.bytes());
    }
    // Each program places what it holds by the sizes of what comes before.
    EXPECT_EQ(in_role(first, TensorRole::kHeld, false).size(), held.size());
  });
}

INSTANTIATE_TEST_SUITE_P(All, Halves, testing::ValuesIn(methods()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace rondo::model
