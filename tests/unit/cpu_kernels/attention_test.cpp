// Attention forward and backward against plain loops in fp64; equal bits whatever the threads and the company. In
// vectors, and by matrix units: the processor's where it has them, and their stand-in in loops everywhere.
#include "attention_support.h"
#include "kernels.h"

namespace rondo::devices::cpu::testing {
namespace {

// Lengths around the blocks of 48 keys (tiles: 128 and 32) and of 64, 96, 128 or 4 tokens (tiles: up to 512); sequences
// of one token; no padding and some.
std::vector<AttentionCase> cases() {
  return {
      attention_case({1}, 1, 1, 1, 4),
      attention_case({50, 1, 7}, 64, 3, 1, 16),
      attention_case({48, 49}, 112, 4, 2, 20),
      attention_case({150, 3}, 160, 9, 3, 64),
      attention_case({129}, 192, 2, 2, 80),
      attention_case({70}, 80, 2, 1, 24),
      attention_case({65, 31}, 96, 1, 1, 96),
      attention_case({60}, 64, 5, 1, 128),
      attention_case({20, 40}, 64, 2, 2, 256),
      attention_case({30}, 32, 64, 1, 8),
      attention_case({33, 2}, 48, 3, 3, 7),
      attention_case({260, 128, 127}, 528, 2, 1, 32),
      attention_case({513, 32, 31}, 576, 1, 1, 16),
  };
}

std::string describe(const AttentionCase& c) {
  return std::to_string(c.shape.tokens) + " tokens, " + std::to_string(c.shape.heads) + "/" +
         std::to_string(c.shape.kv_heads) + " heads of " + std::to_string(c.shape.head_dim) + ", window " +
         std::to_string(c.attributes.window);
}

void check(const AttentionCase& c, Arithmetic arithmetic) {
  SCOPED_TRACE(describe(c));
  const auto [storage, units] = arithmetic;
  const AttentionInputs in = attention_inputs(storage, c.shape);
  ThreadPool pool(2);
  const AttentionForward forward = run_forward(pool, storage, c, in, units);
  const AttentionReference want = attention_reference(c, in, forward.o);
  // Scores are sums of up to 256 products, a few units in size: 2e-6 each, and so is a weight's relative error.
  // Gradients are sums of terms of either sign over keys, or over queries and the heads of a group.
  expect_close(forward.lse, want.lse, Storage::kFloat32, 1e-6, 4e-6, "lse");
  const AttentionGradients gradients = run_backward(pool, storage, c, in, forward, units);
  if (units == nullptr) {
    expect_close(forward.o, want.o.values, storage, 2e-6, 4e-6, "o");
    expect_close(gradients.dq, want.dq.values, storage, 1e-5, 3e-5, "dq");
    expect_close(gradients.dk, want.dk.values, storage, 1e-5, 3e-5, "dk");
    expect_close(gradients.dv, want.dv.values, storage, 1e-5, 3e-5, "dv");
    return;
  }
  expect_sums(forward.o, want.o, 2e-6, 4e-6, "o");
  expect_sums(gradients.dq, want.dq, 1e-5, 3e-5, "dq");
  expect_sums(gradients.dk, want.dk, 1e-5, 3e-5, "dk");
  expect_sums(gradients.dv, want.dv, 1e-5, 3e-5, "dv");
}

TEST(Attention, ShapesAndPadding_AgreeWithDouble) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    for (const AttentionCase& c : cases()) check(c, arithmetic);
  });
}

TEST(Attention, Windows_AgreeWithDouble) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    for (const std::uint32_t window : {1U, 2U, 17U, 48U, 100U, 1000U}) {
      check(attention_case({150, 13}, 176, 3, 1, 16, window), arithmetic);
    }
    check(attention_case({400}, 400, 1, 1, 16, 130), arithmetic);
  });
}

TEST(Attention, LargeScores_StayFinite) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    AttentionCase c = attention_case({70}, 70, 2, 1, 16);
    c.attributes.scale = 1000.0F;
    const AttentionInputs in = attention_inputs(arithmetic.storage, c.shape);
    ThreadPool pool(1);
    const AttentionForward forward = run_forward(pool, arithmetic.storage, c, in, arithmetic.units);
    const AttentionGradients gradients = run_backward(pool, arithmetic.storage, c, in, forward, arithmetic.units);
    for (std::size_t i = 0; i < in.q.size(); ++i) {
      ASSERT_TRUE(std::isfinite(forward.o[i])) << i;
      // In fp16 a gradient may well be larger than what it holds.
      ASSERT_TRUE(arithmetic.storage == Storage::kFloat16 || std::isfinite(gradients.dq[i])) << i;
    }
  });
}

TEST(Attention, NaNInAKey_ReachesTheQueriesThatSeeIt) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    const AttentionCase c = attention_case({60}, 60, 1, 1, 8);
    AttentionInputs in = attention_inputs(arithmetic.storage, c.shape);
    std::vector<float> keys(in.k.size());
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<float>(in.k[i]);
    keys[50 * 8] = std::numeric_limits<float>::quiet_NaN();
    in.k = Array(arithmetic.storage, keys);
    ThreadPool pool(1);
    const AttentionForward forward = run_forward(pool, arithmetic.storage, c, in, arithmetic.units);
    const AttentionGradients gradients = run_backward(pool, arithmetic.storage, c, in, forward, arithmetic.units);
    for (std::size_t token = 0; token < 60; ++token) {
      EXPECT_EQ(std::isnan(forward.o[token * 8]), token >= 50) << token;
      // A gradient also where others of its block see the key: zero times NaN.
      EXPECT_TRUE(token < 50 || std::isnan(gradients.dq[token * 8])) << token;
    }
  });
}

// With one key head and one sequence the backward pass goes by sequence on one thread, by block on more.
TEST(Attention, Threads_DoNotMatter) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    const auto [storage, units] = arithmetic;
    for (const AttentionCase& c :
         {attention_case({500, 0, 3}, 512, 3, 1, 20), attention_case({300, 200}, 512, 4, 2, 64, 77),
          attention_case({40, 1, 50, 49, 48, 47, 3}, 256, 9, 3, 16)}) {
      SCOPED_TRACE(describe(c));
      const AttentionInputs in = attention_inputs(storage, c.shape);
      ThreadPool one(1);
      const AttentionForward forward = run_forward(one, storage, c, in, units);
      const AttentionGradients gradients = run_backward(one, storage, c, in, forward, units);
      for (const std::uint32_t threads : {2U, 3U, 8U}) {
        ThreadPool pool(threads);
        const AttentionForward again = run_forward(pool, storage, c, in, units);
        EXPECT_TRUE(again.o.same_bits(forward.o));
        EXPECT_TRUE(again.lse.same_bits(forward.lse));
        const AttentionGradients others = run_backward(pool, storage, c, in, forward, units);
        EXPECT_TRUE(others.dq.same_bits(gradients.dq)) << threads << " threads";
        EXPECT_TRUE(others.dk.same_bits(gradients.dk)) << threads << " threads";
        EXPECT_TRUE(others.dv.same_bits(gradients.dv)) << threads << " threads";
      }
    }
  });
}

TEST(Attention, PackedAndApart_GiveTheSameBits) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    const auto [storage, units] = arithmetic;
    for (const std::uint32_t window : {0U, 60U}) {
      const std::vector<std::int32_t> lengths = {5, 130, 64, 1, 99};
      const AttentionCase packed = attention_case(lengths, 320, 6, 2, 20, window);
      const AttentionInputs in = attention_inputs(storage, packed.shape);
      ThreadPool pool(2);
      const AttentionForward forward = run_forward(pool, storage, packed, in, units);
      const AttentionGradients gradients = run_backward(pool, storage, packed, in, forward, units);
      std::size_t begin = 0;
      for (const std::int32_t length : lengths) {
        const auto n = static_cast<std::size_t>(length);
        const auto q_part = [&](const Array& a) { return a.slice(begin * 120, n * 120); };
        const auto k_part = [&](const Array& a) { return a.slice(begin * 40, n * 40); };
        const AttentionCase apart = attention_case({length}, length, 6, 2, 20, window);
        const AttentionInputs own{q_part(in.q), k_part(in.k), k_part(in.v), q_part(in.d_o)};
        const AttentionForward alone = run_forward(pool, storage, apart, own, units);
        const AttentionGradients theirs = run_backward(pool, storage, apart, own, alone, units);
        EXPECT_TRUE(alone.o.same_bits(q_part(forward.o))) << length;
        EXPECT_TRUE(alone.lse.same_bits(forward.lse.slice(begin * 6, n * 6))) << length;
        EXPECT_TRUE(theirs.dq.same_bits(q_part(gradients.dq))) << length;
        EXPECT_TRUE(theirs.dk.same_bits(k_part(gradients.dk))) << length;
        EXPECT_TRUE(theirs.dv.same_bits(k_part(gradients.dv))) << length;
        begin += n;
      }
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
