// Cached attention: a prompt, then token after token, gives the rows of attention over the whole sequence.
#include "attention_support.h"
#include "kernels.h"

namespace rondo::devices::cpu::testing {
namespace {

constexpr std::int64_t kBucket = 16;  // of a generation step: one real token and padding

/// Caches and outputs of a sequence fed in pieces of the given lengths.
struct Generation {
  Array k_cache, v_cache, o, lse;
};

void copy_rows(Storage storage, const Array& from, std::size_t from_row, Array& to, std::size_t to_row,
               std::size_t rows, std::size_t width) {
  const std::size_t size = storage == Storage::kFloat32 ? 4 : 2;
  std::memcpy(static_cast<std::byte*>(to.data()) + to_row * width * size,
              static_cast<const std::byte*>(from.data()) + from_row * width * size, rows * width * size);
}

void feed(ThreadPool& pool, Arithmetic arithmetic, const AttentionCase& whole, const AttentionInputs& in,
          std::int64_t first, std::int64_t length, std::int64_t capacity, Generation& generation) {
  const auto [storage, units] = arithmetic;
  AttentionShape shape = whole.shape;
  shape.tokens = (length + kBucket - 1) / kBucket * kBucket;
  Batch batch = batch_of({static_cast<std::int32_t>(length)}, static_cast<std::size_t>(shape.tokens));
  for (std::int32_t& position : batch.positions) position += static_cast<std::int32_t>(first);
  const auto q_width = static_cast<std::size_t>(shape.heads * shape.head_dim);
  const auto k_width = static_cast<std::size_t>(shape.kv_heads * shape.head_dim);
  const auto at = static_cast<std::size_t>(first);
  const auto rows = static_cast<std::size_t>(length);
  const auto filled = [&, type = storage](std::size_t width) {
    return random_array(type, shape.tokens * static_cast<std::int64_t>(width), 50);
  };
  Array q = filled(q_width);
  Array k = filled(k_width);
  Array v = filled(k_width);
  Array o = filled(q_width);
  copy_rows(storage, in.q, at, q, 0, rows, q_width);
  copy_rows(storage, in.k, at, k, 0, rows, k_width);
  copy_rows(storage, in.v, at, v, 0, rows, k_width);
  std::vector<std::byte> scratch(cached_attention_scratch(shape, units, capacity, pool.threads()), std::byte{0xFF});
  const auto heads = static_cast<std::size_t>(shape.heads);
  std::vector<float> lse(static_cast<std::size_t>(shape.tokens) * heads, 1.0F);
  cached_attention(pool, storage, units, shape, whole.attributes, q.data(), k.data(), v.data(), batch.positions.data(),
                   batch.bounds.data(), generation.k_cache.data(), generation.v_cache.data(), o.data(), lse.data(),
                   scratch.data());
  std::copy_n(lse.begin(), rows * heads, static_cast<float*>(generation.lse.data()) + at * heads);
  for (std::size_t i = rows * heads; i < lse.size(); ++i) ASSERT_EQ(lse[i], 0.0F) << "padding";
  copy_rows(storage, o, 0, generation.o, at, rows, q_width);
  for (std::size_t i = rows * q_width; i < o.size(); ++i) ASSERT_EQ(o[i], 0.0) << "padding";
}

Generation generate(ThreadPool& pool, Arithmetic arithmetic, const AttentionCase& c, const AttentionInputs& in,
                    const std::vector<std::int64_t>& pieces) {
  const Storage storage = arithmetic.storage;
  const std::int64_t capacity = c.shape.tokens + 5;
  const std::int64_t cache = capacity * c.shape.kv_heads * c.shape.head_dim;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  // Rows that nothing was written to must not be read.
  const Array unwritten(storage, std::vector<float>(static_cast<std::size_t>(cache), 1.0F));
  const auto places = static_cast<std::size_t>(c.shape.tokens * c.shape.heads);
  Generation generation{unwritten, unwritten, Array(storage, in.q.size()), Array(Storage::kFloat32, places)};
  for (Array* array : {&generation.k_cache, &generation.v_cache}) {
    if (storage == Storage::kFloat32) {
      std::fill_n(static_cast<float*>(array->data()), cache, nan);
    } else {
      std::fill_n(static_cast<std::uint16_t*>(array->data()), cache, std::uint16_t{0x7FC0});
    }
  }
  std::int64_t first = 0;
  for (const std::int64_t piece : pieces) {
    feed(pool, arithmetic, c, in, first, piece, capacity, generation);
    first += piece;
  }
  return generation;
}

void check(const AttentionCase& c, Arithmetic arithmetic, const std::vector<std::int64_t>& pieces) {
  const AttentionInputs in = attention_inputs(arithmetic.storage, c.shape);
  ThreadPool pool(2);
  const Generation generation = generate(pool, arithmetic, c, in, pieces);
  const AttentionReference want = attention_reference(c, in, generation.o);
  if (arithmetic.units == nullptr) {
    expect_close(generation.o, want.o.values, arithmetic.storage, 2e-6, 4e-6, "o");
  } else {
    expect_sums(generation.o, want.o, 2e-6, 4e-6, "o");
  }
  expect_close(generation.lse, want.lse, Storage::kFloat32, 1e-6, 4e-6, "lse");
  EXPECT_TRUE(generation.k_cache.slice(0, in.k.size()).same_bits(in.k));
  EXPECT_TRUE(generation.v_cache.slice(0, in.v.size()).same_bits(in.v));
}

TEST(CachedAttention, PromptThenTokens_AgreesWithTheWholeSequence) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    check(attention_case({75}, 75, 9, 3, 64), arithmetic, {70, 1, 1, 1, 1, 1});
    check(attention_case({57}, 57, 5, 1, 20), arithmetic, {2, 5, 50});
    check(attention_case({50}, 50, 7, 1, 7), arithmetic, {48, 2});
    check(attention_case({45}, 45, 2, 2, 256), arithmetic, {4, 37, 3, 1});
  });
}

TEST(CachedAttention, SeveralChunksOfKeys_AgreeWithTheWholeSequence) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    check(attention_case({600}, 600, 3, 1, 8), arithmetic, {510, 1, 3, 85, 1});
  });
}

TEST(CachedAttention, Windows_SkipWholeChunks) {
  for_each_arithmetic([](Arithmetic arithmetic) {
    for (const std::uint32_t window : {1U, 30U, 260U}) {
      check(attention_case({600}, 600, 2, 1, 8, window), arithmetic, {520, 1, 1, 78});
    }
  });
}

TEST(CachedAttention, Threads_DoNotMatter) {
  const AttentionCase c = attention_case({600}, 600, 4, 2, 16);
  const AttentionInputs in = attention_inputs(Storage::kBfloat16, c.shape);
  for_each_arithmetic([&](Arithmetic arithmetic) {
    if (arithmetic.storage != Storage::kBfloat16) return;
    expect_same_with_any_threads([&](ThreadPool& pool) { return generate(pool, arithmetic, c, in, {590, 1, 2, 7}).o; });
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
