// Scratch tensors share memory only when they are never alive together.
#include <gtest/gtest.h>

#include <algorithm>

#include "lists.h"
#include "rondo/devices/random.h"

namespace rondo::devices {
namespace {

using testing_lists::chain_of_adds;
using testing_lists::tensor;

bool overlap(const OpList& list, const ArenaLayout& layout, TensorId a, TensorId b) {
  return layout.offsets[a] < layout.offsets[b] + list.tensors[b].bytes() &&
         layout.offsets[b] < layout.offsets[a] + list.tensors[a].bytes();
}

TEST(PlanArena, LongChain_NeedsTwoTensors) {
  const OpList list = chain_of_adds(16, 64, 10);
  EXPECT_EQ(plan_arena(list).size, 2 * list.tensors[1].bytes());
}

TEST(PlanArena, NoScratch_NeedsNothing) { EXPECT_EQ(plan_arena(chain_of_adds(16, 64, 1)).size, 0U); }

TEST(PlanArena, OutputsAndInputsOfAnOp_NeverOverlap) {
  const OpList list = chain_of_adds(16, 3, 10);
  const ArenaLayout layout = plan_arena(list);
  for (const Op& op : list.ops) {
    for (const TensorId read : op.reads) {
      for (const TensorId write : op.writes) {
        if (list.tensors[read].role != TensorRole::kScratch || list.tensors[write].role != TensorRole::kScratch)
          continue;
        EXPECT_FALSE(overlap(list, layout, read, write)) << read << " " << write;
      }
    }
  }
}

/// A random list: every op reads one or two earlier tensors and writes a new one of random size.
OpList random_list(std::uint64_t seed) {
  OpList list;
  list.tokens = 1;
  tensor(list, "x", {1, 7}, DType::kFloat32, TensorRole::kInput);
  for (std::uint64_t i = 0; i < 40; ++i) {
    const auto draw = [&](std::uint64_t what, std::uint64_t n) {
      return combine_keys(combine_keys(seed, i), what) % n;
    };
    const auto y =
        tensor(list, "t", {1, static_cast<std::int64_t>(1 + draw(0, 300))}, DType::kFloat32, TensorRole::kScratch);
    list.ops.push_back(
        {OpKind::kAdd, NoAttributes{}, {static_cast<TensorId>(draw(1, y)), static_cast<TensorId>(draw(2, y))}, {y}});
  }
  return list;
}

TEST(PlanArena, RandomLists_KeepWhatIsAliveApart) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const OpList list = random_list(seed);
    const ArenaLayout layout = plan_arena(list);
    std::vector<std::size_t> first(list.tensors.size(), list.ops.size());
    std::vector<std::size_t> last(list.tensors.size(), 0);
    for (std::size_t i = 0; i < list.ops.size(); ++i) {
      for (const auto* ids : {&list.ops[i].reads}) {
        for (const TensorId id : *ids) last[id] = std::max(last[id], i);
      }
      first[list.ops[i].writes[0]] = i;
      last[list.ops[i].writes[0]] = std::max(last[list.ops[i].writes[0]], i);
    }
    for (TensorId a = 1; a < list.tensors.size(); ++a) {
      EXPECT_EQ(layout.offsets[a] % 64, 0U);
      EXPECT_LE(layout.offsets[a] + list.tensors[a].bytes(), layout.size);
      for (TensorId b = a + 1; b < list.tensors.size(); ++b) {
        if (first[a] <= last[b] && first[b] <= last[a]) {
          EXPECT_FALSE(overlap(list, layout, a, b)) << "seed " << seed << ": " << a << " and " << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace rondo::devices
