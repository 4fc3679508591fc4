// Elementwise kernels against fp64: conversions, add, the soft cap, gated activations, dropout.
#include <cmath>
#include <limits>

#include "kernels.h"
#include "rondo/devices/random.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

constexpr std::int64_t kOdd = 3 * 16384 + 77;  // several tasks, and a rest that fills no vector of any width

double activation_of(ActivationKind kind, double x) {
  const double z = std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1.0 + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::kGeluTanh:
      return x / (1.0 + std::exp(-2.0 * z));
    case ActivationKind::kSigmoid:
      return 1.0 / (1.0 + std::exp(-x));
    case ActivationKind::kIdentity:
      return x;
    case ActivationKind::kRelu:
      return std::max(x, 0.0);
    case ActivationKind::kClampedSwiglu:
      break;  // not of the gate alone
  }
  return 0;
}

double slope_of(ActivationKind kind, double x) {
  if (kind == ActivationKind::kRelu) return x > 0 ? 1.0 : 0.0;  // a difference across its bend is neither
  const double h = 1e-5;
  return (activation_of(kind, x + h) - activation_of(kind, x - h)) / (2 * h);
}

constexpr ActivationKind kActivations[] = {ActivationKind::kSilu,    ActivationKind::kGelu, ActivationKind::kGeluTanh,
                                           ActivationKind::kSigmoid, ActivationKind::kRelu, ActivationKind::kIdentity};

TEST(Convert, ToBfloat16_RoundsToNearestEven) {
  for_each_target([] {
    std::vector<float> values = random_values(1037, 1, 100.0F);
    for (const std::uint32_t bits : {0x3F808000U, 0x3F818000U, 0x3F80FFFFU, 0x3F807FFFU, 0xBF808000U, 0x00000001U,
                                     0x80000000U, 0x7F7F7FFFU, 0x00018000U}) {
      values.push_back(std::bit_cast<float>(bits));
    }
    std::vector<std::uint16_t> got(values.size());
    ThreadPool pool(2);
    from_float32(pool, values.data(), Storage::kBfloat16, got.data(), static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(got[i], narrow(values[i])) << values[i];
  });
}

TEST(Convert, ToBfloat16_KeepsInfinitiesAndNaN) {
  for_each_target([] {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> values = {infinity, -infinity, std::bit_cast<float>(0x7F800001U),
                                       std::bit_cast<float>(0xFFFFFFFFU), std::numeric_limits<float>::max()};
    std::vector<std::uint16_t> got(values.size());
    ThreadPool pool(1);
    from_float32(pool, values.data(), Storage::kBfloat16, got.data(), 5);
    EXPECT_EQ(widen(got[0]), infinity);
    EXPECT_EQ(widen(got[1]), -infinity);
    EXPECT_TRUE(std::isnan(widen(got[2])));
    EXPECT_TRUE(std::isnan(widen(got[3])));
    EXPECT_EQ(widen(got[4]), infinity);
  });
}

TEST(Convert, ToFloat32_IsExactForEveryBfloat16) {
  for_each_target([] {
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> got(all.size());
    ThreadPool pool(2);
    to_float32(pool, Storage::kBfloat16, all.data(), got.data(), 65536);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), static_cast<std::uint32_t>(i) << 16U);
    }
  });
}

TEST(Convert, ToFloat32_IsExactForEveryFloat16) {
  for_each_target([] {
    std::vector<std::uint16_t> all(65536 + 3);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> got(all.size());
    ThreadPool pool(2);
    to_float32(pool, Storage::kFloat16, all.data(), got.data(), static_cast<std::int64_t>(all.size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const float want = from_float16(all[i]);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got[i])) << i;
      } else {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(want)) << i;
      }
    }
  });
}

/// Every number, the middle of every two neighbours, and the next numbers on both sides of it.
TEST(Convert, ToFloat16_RoundsToNearestEvenDownToTheLeastAndUpToInfinity) {
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float value = from_float16(static_cast<std::uint16_t>(bits));
    const float next = bits == 0x7BFF ? 65536.0F : from_float16(static_cast<std::uint16_t>(bits + 1));
    const float middle = value + (next - value) / 2;
    for (const float one : {value, middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
      values.insert(values.end(), {one, -one});
    }
  }
  const float infinity = std::numeric_limits<float>::infinity();
  values.insert(values.end(), {1e30F, infinity, -infinity, std::bit_cast<float>(0x7F800001U), -1e-30F, 1e-45F});
  for_each_target([&] {
    std::vector<std::uint16_t> got(values.size());
    ThreadPool pool(2);
    from_float32(pool, values.data(), Storage::kFloat16, got.data(), static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(got[i], to_float16(values[i])) << std::hexfloat << values[i];
    }
  });
}

TEST(Add, OddSizes_RoundsOnce) {
  for_each_storage([](Storage storage) {
    for (const std::int64_t n : {1L, 3L, 16L, 31L, kOdd}) {
      const Array a = random_array(storage, n, 1);
      const Array b = random_array(storage, n, 2);
      Array y(storage, a.size());
      ThreadPool pool(2);
      add(pool, storage, a.data(), b.data(), y.data(), n);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float sum = static_cast<float>(a[i]) + static_cast<float>(b[i]);
        const Array want(storage, std::vector<float>{sum});
        ASSERT_EQ(y[i], want[0]) << i;
      }
    }
  });
}

/// Of small numbers nothing is lost, far from zero it is the cap itself.
TEST(SoftCap, WideRange_AgreesWithDouble) {
  for_each_target([] {
    constexpr float kCap = 30.0F;
    std::vector<float> values = random_values(kOdd, 7, 60.0F);
    for (const float small : {0.0F, 1e-30F, -1e-6F, 3e-3F, 0.9F}) values.push_back(small);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float far : {400.0F, -1e9F, infinity, -infinity}) values.push_back(far);
    values.push_back(std::numeric_limits<float>::quiet_NaN());
    std::vector<float> got(values.size());
    ThreadPool pool(2);
    soft_cap(pool, Storage::kFloat32, kCap, values.data(), got.data(), static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i + 1 < values.size(); ++i) {
      const double want = 30.0 * std::tanh(static_cast<double>(values[i]) / 30.0);
      ASSERT_NEAR(static_cast<double>(got[i]), want, 4 * 0x1.0p-23 * std::abs(want)) << values[i];
    }
    EXPECT_TRUE(std::isnan(got.back()));
  });
}

TEST(GatedActivation, WideRange_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    std::vector<float> grid;
    for (int i = -6000; i <= 6000; ++i) grid.push_back(static_cast<float>(i) * 0.002F);
    const Array gate(storage, grid);
    const Array up = random_array(storage, static_cast<std::int64_t>(grid.size()), 3);
    for (const ActivationKind kind : kActivations) {
      Array y(storage, grid.size());
      ThreadPool pool(2);
      gated_activation(pool, storage, {kind}, gate.data(), up.data(), y.data(), static_cast<std::int64_t>(grid.size()));
      std::vector<double> want(grid.size());
      for (std::size_t i = 0; i < want.size(); ++i) want[i] = activation_of(kind, gate[i]) * up[i];
      // A few roundings of 6e-8 each, and in the tail e^-a turns three roundings of a into a relative 2e-7 a; past
      // a = 8 the result is so small that an absolute 2e-10 covers it.
      expect_close(y, want, storage, 2e-6, 2e-10, "activation " + std::to_string(static_cast<int>(kind)));
    }
  });
}

TEST(GatedActivation, Clamped_AgreesWithDouble) {
  const double alpha = 1.75;
  const double limit = 5.0;
  for_each_storage([&](Storage storage) {
    std::vector<float> grid;
    for (int i = -6000; i <= 6000; ++i) grid.push_back(static_cast<float>(i) * 0.002F);
    const auto n = static_cast<std::int64_t>(grid.size());
    const Array gate(storage, grid);
    std::vector<float> backwards(grid.rbegin(), grid.rend());
    const Array up(storage, backwards);
    Array y(storage, grid.size());
    ThreadPool pool(2);
    const GatedActivationAttributes clamped{ActivationKind::kClampedSwiglu, 1.75F, 5.0F};
    gated_activation(pool, storage, clamped, gate.data(), up.data(), y.data(), n);
    std::vector<double> want;
    for (std::size_t i = 0; i < grid.size(); ++i) {
      const double g = std::min<double>(gate[i], limit);
      want.push_back(g / (1.0 + std::exp(-alpha * g)) * (std::clamp<double>(up[i], -limit, limit) + 1.0));
    }
    expect_close(y, want, storage, 2e-6, 2e-10, "clamped");
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> gates = {infinity, -infinity, -1e30F, 1e30F, nan, 1.0F};
    const std::vector<float> ups = {infinity, 1.0F, -1e30F, -infinity, 1.0F, nan};
    std::vector<float> got(gates.size());
    gated_activation(pool, Storage::kFloat32, clamped, gates.data(), ups.data(), got.data(), 6);
    EXPECT_NEAR(got[0], 30.0F, 0.01F);
    EXPECT_NEAR(got[2], 0.0F, 1e-30F);
    EXPECT_NEAR(got[3], -20.0F, 0.01F);
    EXPECT_TRUE(std::isnan(got[4]));
    EXPECT_TRUE(std::isnan(got[5]));
  });
}

TEST(GatedActivation, LargeMagnitudes_StayFinite) {
  for_each_target([] {
    const std::vector<float> gate = {-1e30F, -200.0F, -89.0F, -0.0F, 89.0F, 200.0F, 1e9F};
    const std::vector<float> ones(gate.size(), 1.0F);
    for (const ActivationKind kind : kActivations) {
      std::vector<float> y(gate.size());
      ThreadPool pool(1);
      gated_activation(pool, Storage::kFloat32, {kind}, gate.data(), ones.data(), y.data(), 7);
      if (kind == ActivationKind::kIdentity) {
        EXPECT_EQ(y, gate);
        continue;
      }
      const bool is_share = kind == ActivationKind::kSigmoid;
      EXPECT_EQ(y, (is_share ? std::vector<float>{0, 0, y[2], 0.5F, 1, 1, 1}
                             : std::vector<float>{0, 0, y[2], 0, 89.0F, 200.0F, 1e9F}));
      EXPECT_NEAR(y[2], 0.0F, 1e-36F);
    }
  });
}

TEST(GatedActivation, NaN_StaysNaN) {
  for_each_target([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float one = 1.0F;
    for (const ActivationKind kind : kActivations) {
      float y = 0;
      ThreadPool pool(1);
      gated_activation(pool, Storage::kFloat32, {kind}, &nan, &one, &y, 1);
      EXPECT_TRUE(std::isnan(y));
    }
  });
}

TEST(GatedActivationBackward, WideRange_AgreesWithDifferences) {
  for_each_storage([](Storage storage) {
    std::vector<float> grid;
    for (int i = -2000; i <= 2001; ++i) grid.push_back(static_cast<float>(i) * 0.004F);
    const auto n = static_cast<std::int64_t>(grid.size());
    const Array gate(storage, grid);
    const Array up = random_array(storage, n, 3);
    const Array dy = random_array(storage, n, 4);
    for (const ActivationKind kind : kActivations) {
      Array dgate(storage, grid.size());
      Array dup(storage, grid.size());
      ThreadPool pool(2);
      gated_activation_backward(pool, storage, {kind}, gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), n);
      std::vector<double> want_gate(grid.size());
      std::vector<double> want_up(grid.size());
      for (std::size_t i = 0; i < grid.size(); ++i) {
        want_gate[i] = dy[i] * up[i] * slope_of(kind, gate[i]);
        want_up[i] = dy[i] * activation_of(kind, gate[i]);
      }
      // The slope passes through zero and its reference is a difference quotient with an error of 1e-9.
      expect_close(dgate, want_gate, storage, 1e-6, 2e-6, "dgate");
      expect_close(dup, want_up, storage, 2e-6, 2e-10, "dup");
    }
  });
}

TEST(GatedActivation, Threads_DoNotMatter) {
  const Array gate = random_array(Storage::kBfloat16, kOdd, 5);
  const Array up = random_array(Storage::kBfloat16, kOdd, 6);
  expect_same_with_any_threads([&](ThreadPool& pool) {
    Array y(Storage::kBfloat16, gate.size());
    gated_activation(pool, Storage::kBfloat16, {ActivationKind::kSilu}, gate.data(), up.data(), y.data(), kOdd);
    return y;
  });
}

TEST(Dropout, Decisions_AreThoseOfRandomH) {
  for_each_storage([](Storage storage) {
    constexpr std::int64_t kTokens = 37;
    constexpr std::int64_t kWidth = 83;
    const Array x = random_array(storage, kTokens * kWidth, 7);
    std::vector<std::uint64_t> keys;
    for (std::uint64_t t = 0; t < kTokens; ++t) keys.push_back(mix64(t + 99));
    for (const float probability : {0.0F, 0.1F, 0.5F, 0.9375F}) {
      Array y(storage, x.size());
      ThreadPool pool(2);
      dropout(pool, storage, x.data(), keys.data(), y.data(), kTokens, kWidth, 5, {probability, 3});
      std::vector<double> want(x.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        const bool keeps = dropout_keeps(keys[i / kWidth], 5, 3, i % kWidth, probability);
        want[i] = keeps ? x[i] / (1.0 - static_cast<double>(probability)) : 0.0;
      }
      expect_close(y, want, storage, 3e-7, 0, "dropout");
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
