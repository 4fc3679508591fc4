// Rotary embedding against fp64 on the same fp32 angles.
#include "kernels.h"
#include "kernels/sequences.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

RopeAttributes attributes_for(std::int64_t head_dim) {
  RopeAttributes attributes;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    attributes.frequencies.push_back(
        static_cast<float>(std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim))));
  }
  return attributes;
}

Array rotate(ThreadPool& pool, Storage storage, const Array& x, const Batch& batch, std::int64_t heads,
             std::int64_t head_dim, const RopeAttributes& attributes) {
  const auto tokens = static_cast<std::int64_t>(batch.positions.size());
  Array y(storage, x.size());
  std::vector<std::byte> scratch(static_cast<std::size_t>(tokens * head_dim) * sizeof(float));
  rope(pool, storage, x.data(), batch.positions.data(), batch.bounds.data(), y.data(), tokens, heads, head_dim,
       attributes, scratch.data());
  return y;
}

std::vector<double> reference(const Array& x, const Batch& batch, std::size_t heads, std::size_t head_dim,
                              const RopeAttributes& attributes) {
  std::vector<double> y(x.size());
  const std::size_t half = head_dim / 2;
  for (std::size_t row = 0; row < x.size() / head_dim; ++row) {
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(batch.positions[row / heads]) * attributes.frequencies[i];
      const double cosine = std::cos(static_cast<double>(angle)) * static_cast<double>(attributes.amplitude);
      const double sine =
          std::sin(static_cast<double>(angle)) * static_cast<double>(attributes.amplitude * attributes.direction);
      const std::size_t at = row * head_dim + i;
      y[at] = x[at] * cosine - x[at + half] * sine;
      y[at + half] = x[at + half] * cosine + x[at] * sine;
    }
  }
  return y;
}

TEST(Rope, OddShapes_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const std::int64_t head_dim : {2, 16, 20, 64, 80, 256, 300}) {
      const Batch batch = batch_of({70, 1, 33}, 120);
      RopeAttributes attributes = attributes_for(head_dim);
      attributes.amplitude = 1.2079441541679836F;
      const Array x = random_array(storage, 120 * 3 * head_dim, 1);
      for (const float direction : {1.0F, -1.0F}) {
        attributes.direction = direction;
        ThreadPool pool(2);
        const Array y = rotate(pool, storage, x, batch, 3, head_dim, attributes);
        expect_close(y, reference(x, batch, 3, static_cast<std::size_t>(head_dim), attributes), storage, 3e-7, 1e-6,
                     "head size " + std::to_string(head_dim));
      }
    }
  });
}

TEST(Rope, LargePositions_AgreeWithDouble) {
  for_each_target([] {
    Batch batch = batch_of({40}, 40);
    for (std::size_t i = 0; i < 40; ++i) batch.positions[i] = static_cast<std::int32_t>(i * i * i * 250);
    const RopeAttributes attributes = attributes_for(64);
    const Array x = random_array(Storage::kFloat32, 40 * 64, 1);
    ThreadPool pool(1);
    const Array y = rotate(pool, Storage::kFloat32, x, batch, 1, 64, attributes);
    expect_close(y, reference(x, batch, 1, 64, attributes), Storage::kFloat32, 3e-7, 1e-6, "y");
  });
}

TEST(Rope, DynamicScaling_FollowsEachSequencesLength) {
  // theta 10000, factor 2, 64 positions: frequencies as transformers computes them for a sequence of 150 tokens.
  for_each_target([] {
    const std::int64_t head_dim = 16;
    RopeAttributes attributes = attributes_for(head_dim);
    attributes.dynamic_from = 64;
    attributes.factor = 2.0;
    const Batch batch = batch_of({64, 150, 10}, 256);
    const Array x = random_array(Storage::kFloat32, 256 * 2 * head_dim, 1);
    ThreadPool pool(2);
    const Array y = rotate(pool, Storage::kFloat32, x, batch, 2, head_dim, attributes);
    RopeAttributes stretched = attributes;
    const double base = 10000.0 * std::pow(2.0 * 150 / 64 - 1.0, 16.0 / 14.0);
    for (std::size_t i = 0; i < 8; ++i) {
      stretched.frequencies[i] = 1.0F / std::pow(static_cast<float>(base), static_cast<float>(i) / 8.0F);
    }
    std::vector<double> want = reference(x, batch, 2, 16, attributes);
    const std::vector<double> middle = reference(x, batch, 2, 16, stretched);
    std::copy(middle.begin() + 64 * 32, middle.begin() + 214 * 32, want.begin() + 64 * 32);
    // A unit in the last place of a frequency is 150 * 6e-8 of angle.
    expect_close(y, want, Storage::kFloat32, 3e-7, 3e-5, "y");
  });
}

TEST(Rope, Inverse_UndoesIt) {
  const Batch batch = batch_of({100}, 100);
  RopeAttributes attributes = attributes_for(24);
  const Array x = random_array(Storage::kFloat32, 100 * 24, 1);
  ThreadPool pool(2);
  const Array y = rotate(pool, Storage::kFloat32, x, batch, 1, 24, attributes);
  attributes.direction = -1.0F;
  const Array back = rotate(pool, Storage::kFloat32, y, batch, 1, 24, attributes);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], 1e-6);
}

TEST(Rope, PackedAndThreads_DoNotMatter) {
  const Batch batch = batch_of({70, 91}, 176);
  RopeAttributes attributes = attributes_for(20);
  attributes.dynamic_from = 80;
  attributes.factor = 4.0;
  const Array x = random_array(Storage::kBfloat16, 176 * 40, 1);
  expect_same_with_any_threads(
      [&](ThreadPool& pool) { return rotate(pool, Storage::kBfloat16, x, batch, 2, 20, attributes); });
  ThreadPool pool(2);
  const Array packed = rotate(pool, Storage::kBfloat16, x, batch, 2, 20, attributes);
  const Array alone =
      rotate(pool, Storage::kBfloat16, x.slice(70 * 40, 91 * 40), batch_of({91}, 91), 2, 20, attributes);
  EXPECT_TRUE(packed.slice(70 * 40, 91 * 40).same_bits(alone));
}

TEST(Sequences, At_FindsTheRangeThatHoldsAToken) {
  const Batch batch = batch_of({2, 3}, 8);
  const Sequences sequences(batch.bounds.data());
  EXPECT_EQ(sequences.real_tokens(), 5);
  EXPECT_EQ(sequences.at(1).end, 2);
  EXPECT_EQ(sequences.at(2).begin, 2);
  EXPECT_EQ(sequences.at(4).length(), 3);
  EXPECT_EQ(sequences.at(5).length(), 0);
  EXPECT_EQ(sequences.index_at(5), 2);
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
