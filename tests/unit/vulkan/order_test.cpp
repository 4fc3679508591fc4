// Which dispatches of a program may be under way at the same time.
#include "order.h"

#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "tiny_model.h"

namespace rondo::devices::vulkan {
namespace {

/// Ops by what they read and write, lowered to `dispatches` each.
class Ops {
 public:
  TensorId tensor(TensorRole role, Bytes offset = 0) {
    const auto id = static_cast<TensorId>(list_.tensors.size());
    list_.tensors.push_back({"t", {16}, DType::kFloat32, role, id});
    layout_.offsets.push_back(offset);
    return id;
  }
  void give_index(TensorId to, TensorId from) { list_.tensors[to].index = list_.tensors[from].index; }
  void beside_the_one_before(std::size_t dispatch) { dispatches_[dispatch].beside = true; }
  void op(std::initializer_list<TensorId> reads, std::initializer_list<TensorId> writes, std::size_t dispatches = 1,
          bool shares = false) {
    for (std::size_t i = 0; i < dispatches; ++i) {
      dispatches_.emplace_back();
      dispatches_.back().op = list_.ops.size();
      dispatches_.back().shares = shares;
      dispatches_.back().push.sizes[0] = static_cast<std::uint32_t>(i);  // tells dispatches of an op apart
    }
    Op& added = list_.ops.emplace_back();
    added.reads.assign(reads.begin(), reads.end());
    added.writes.assign(writes.begin(), writes.end());
  }
  /// "0 1 | 2": ops by levels.
  std::string levels(bool backwards = false) const {
    std::string text;
    std::size_t level = 0;
    for (const Dispatch& dispatch : by_levels(list_, layout_, dispatches_, backwards)) {
      EXPECT_LE(dispatch.level, level + 1);
      if (dispatch.level != level) text += "| ";
      level = dispatch.level;
      text += std::to_string(dispatch.op) + " ";
    }
    return text;
  }

 private:
  OpList list_;
  ArenaLayout layout_;
  std::vector<Dispatch> dispatches_;
};

TEST(Order, WhatReadsTheSame_GoesTogether) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), a = ops.tensor(TensorRole::kScratch, 0),
                 b = ops.tensor(TensorRole::kScratch, 64), c = ops.tensor(TensorRole::kScratch, 128);
  ops.op({x}, {a});
  ops.op({a}, {c});
  ops.op({x}, {b});
  ops.op({b, c}, {x});
  EXPECT_EQ(ops.levels(), "0 2 | 1 | 3 ");
  EXPECT_EQ(ops.levels(true), "2 0 | 1 | 3 ");
}

TEST(Order, BytesOfTheArena_AreKeptUntilTheyAreRead) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), y = ops.tensor(TensorRole::kSaved),
                 a = ops.tensor(TensorRole::kScratch, 0), b = ops.tensor(TensorRole::kScratch, 32),
                 c = ops.tensor(TensorRole::kScratch, 64);
  ops.op({x}, {a});
  ops.op({a}, {y});
  ops.op({x}, {b});  // the second half of a
  ops.op({x}, {c});  // the second half of b, and nothing of a
  EXPECT_EQ(ops.levels(), "0 | 1 | 2 | 3 ");
}

/// Two names of one gradient.
TEST(Order, TensorsOfOneRoleAndIndex_AreOne) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), a = ops.tensor(TensorRole::kGradient),
                 b = ops.tensor(TensorRole::kGradient), c = ops.tensor(TensorRole::kGradient);
  ops.give_index(b, a);
  ops.op({x}, {a});
  ops.op({x}, {b});
  ops.op({x}, {c});
  EXPECT_EQ(ops.levels(), "0 2 | 1 ");
}

TEST(Order, AnOpsOwnDispatches_StayInOrder) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), y = ops.tensor(TensorRole::kSaved),
                 z = ops.tensor(TensorRole::kSaved), u = ops.tensor(TensorRole::kSaved);
  ops.op({x}, {y}, 3);
  ops.op({x}, {z});
  ops.op({y}, {u});
  EXPECT_EQ(ops.levels(), "0 1 | 0 | 0 | 2 ");
}

/// As the two halves of attention's gradient, behind what both read.
TEST(Order, ADispatchBesideTheOneBefore_IsBehindAllOthersOfItsOp) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), y = ops.tensor(TensorRole::kSaved);
  ops.op({x}, {y}, 4, true);
  ops.beside_the_one_before(2);
  EXPECT_EQ(ops.levels(), "0 | 0 0 | 0 ");
}

TEST(Order, WhatWorksInTheWorkspace_GoesAlone) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kSaved), y = ops.tensor(TensorRole::kSaved),
                 z = ops.tensor(TensorRole::kSaved), u = ops.tensor(TensorRole::kSaved);
  ops.op({x}, {y}, 1, true);
  ops.op({x}, {z}, 1, true);
  ops.op({x}, {u});
  EXPECT_EQ(ops.levels(), "0 2 | 1 ");
}

/// What comes and what goes may lie in one place, and a cache that is read is written too.
TEST(Order, OfWhatIsBound_FollowsItsRole) {
  Ops ops;
  const TensorId x = ops.tensor(TensorRole::kInput), y = ops.tensor(TensorRole::kOutput),
                 cache = ops.tensor(TensorRole::kState), a = ops.tensor(TensorRole::kSaved),
                 b = ops.tensor(TensorRole::kSaved), w = ops.tensor(TensorRole::kWeight);
  ops.op({x, w}, {a});
  ops.op({w}, {y});
  ops.op({cache, w}, {b});
  ops.op({cache}, {});
  EXPECT_EQ(ops.levels(), "0 2 | 1 3 ");
}

struct Counted {
  std::size_t dispatches = 0;
  std::size_t levels = 0;
};

/// Of a layer's program as cards have it.
Counted counted(const model::Architecture& model, model::LayerIndex layer, model::Phase phase) {
  const OpList list = model.record(layer, phase, model::Keep::kNothing, 64);
  Lowering lowering(list, {});
  EXPECT_TRUE(lowering.lower_all().ok());
  const std::vector<Dispatch> dispatches = by_levels(list, plan_arena(list), lowering.dispatches());
  return {dispatches.size(), dispatches.back().level + 1};
}

/// Forward and backward of a block's two halves. What they save in barriers is the point of it all.
TEST(Order, OfABlock_HasTwoThirdsAsManyLevelsAsDispatches) {
  for (const model::MethodSpec& method : {tiny::lora(DType::kBfloat16, 0), tiny::full(DType::kBfloat16)}) {
    const model::Architecture model = *model::Architecture::make(tiny::small_config(), method);
    Counted all;
    for (const model::LayerIndex layer : {1U, 2U}) {
      for (const model::Phase phase : {model::Phase::kForward, model::Phase::kBackward}) {
        const Counted found = counted(model, layer, phase);
        all.dispatches += found.dispatches;
        all.levels += found.levels;
      }
    }
    std::cout << (method.train_weights ? "full" : "LoRA") << ": " << all.dispatches << " dispatches, " << all.levels
              << " levels\n";
    EXPECT_LE(3 * all.levels, 2 * all.dispatches);
  }
}

}  // namespace
}  // namespace rondo::devices::vulkan
