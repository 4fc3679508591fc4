// RMSNorm and the bias gradient against fp64.
#include <gmock/gmock.h>

#include "kernels.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

struct NormReference {
  std::vector<double> y, dx, dw;
};

NormReference reference(const Array& x, const Array& w, const Array& dy, const Array* addend, std::size_t rows,
                        std::size_t width, const NormAttributes& norm) {
  NormReference r{std::vector<double>(rows * width), std::vector<double>(rows * width), std::vector<double>(width)};
  const auto gain = [&](std::size_t i) {
    return static_cast<double>(norm.weight_factor) * w[i] + static_cast<double>(norm.weight_offset);
  };
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * width;
    double squares = 0;
    double product = 0;
    for (std::size_t i = 0; i < width; ++i) {
      squares += x[at + i] * x[at + i];
      product += x[at + i] * gain(i) * dy[at + i];
    }
    const double rms = std::sqrt(squares / static_cast<double>(width) + static_cast<double>(norm.epsilon));
    for (std::size_t i = 0; i < width; ++i) {
      r.y[at + i] = x[at + i] / rms * gain(i);
      r.dx[at + i] = (gain(i) * dy[at + i] - x[at + i] * product / (rms * rms * static_cast<double>(width))) / rms +
                     (addend == nullptr ? 0.0 : (*addend)[at + i]);
      r.dw[i] += static_cast<double>(norm.weight_factor) * dy[at + i] * x[at + i] / rms;
    }
  }
  return r;
}

struct NormCase {
  std::int64_t rows, width;
};
/// As Llama has it, and with a weight that is scaled and added to one.
constexpr NormAttributes kNorms[] = {{1e-5F}, {1e-5F, false, false, 0.625F, 1.0F}};
constexpr NormCase kNormCases[] = {{1, 1}, {3, 20}, {65, 64}, {700, 37}, {1100, 576}, {2, 20000}};

/// A handful of roundings, and those of an fp32 sum over the row.
double relative_error(std::int64_t width) { return 5e-7 + 1e-10 * static_cast<double>(width); }

TEST(RmsNorm, Forward_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    for (const auto [rows, width] : kNormCases) {
      const Array x = random_array(storage, rows * width, 1, 3.0F);
      const Array w = random_array(storage, width, 2);
      Array y(storage, x.size());
      ThreadPool pool(2);
      for (const NormAttributes& norm : kNorms) {
        rms_norm(pool, storage, x.data(), w.data(), y.data(), rows, width, norm);
        const auto want =
            reference(x, w, x, nullptr, static_cast<std::size_t>(rows), static_cast<std::size_t>(width), norm);
        // Relative to the gain's terms where they cancel.
        expect_close(y, want.y, storage, relative_error(width), norm.weight_offset == 0.0F ? 0.0 : 1e-5, "y");
      }
    }
  });
}

TEST(RmsNormBackward, GradientsWithAddend_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const auto [rows, width] : kNormCases) {
      const auto n = rows * width;
      const Array x = random_array(storage, n, 1, 3.0F);
      const Array w = random_array(storage, width, 2);
      const Array dy = random_array(storage, n, 3);
      const Array addend = random_array(storage, n, 4);
      Array dx(storage, x.size());
      std::vector<std::byte> scratch(rms_norm_backward_scratch(rows, width));
      ThreadPool pool(2);
      for (const NormAttributes& norm : kNorms) {
        std::vector<float> dw(w.size(), 0.5F);
        rms_norm_backward(pool, storage, x.data(), w.data(), dy.data(), addend.data(), dx.data(), dw.data(), rows,
                          width, norm, scratch.data());
        const auto want =
            reference(x, w, dy, &addend, static_cast<std::size_t>(rows), static_cast<std::size_t>(width), norm);
        expect_close(dx, want.dx, storage, relative_error(width), 3e-6, "dx");
        for (std::size_t i = 0; i < dw.size(); ++i) {
          // An fp32 sum over rows of terms that are 10 at most, each with the relative error of its row's root mean
          // square.
          const double allowed = relative_error(width) * 10 + 2e-7 * static_cast<double>(rows);
          ASSERT_NEAR(static_cast<double>(dw[i]), want.dw[i] + 0.5, allowed) << i;
        }
      }
    }
  });
}

TEST(RmsNormBackward, WithoutAddendOrWeightGradient_GivesTheSameDx) {
  const Array x = random_array(Storage::kFloat32, 100 * 48, 1);
  const Array w = random_array(Storage::kFloat32, 48, 2);
  const Array zeros(Storage::kFloat32, x.size());
  Array with(Storage::kFloat32, x.size());
  Array without(Storage::kFloat32, x.size());
  std::vector<float> dw(48);
  std::vector<std::byte> scratch(rms_norm_backward_scratch(100, 48));
  ThreadPool pool(2);
  rms_norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), zeros.data(), with.data(), dw.data(), 100,
                    48, NormAttributes{1e-6F}, scratch.data());
  rms_norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), nullptr, without.data(), nullptr, 100, 48,
                    NormAttributes{1e-6F}, scratch.data());
  EXPECT_TRUE(with.same_bits(without));
}

TEST(RmsNormBackward, Threads_DoNotMatter) {
  constexpr std::int64_t kRows = 1300;
  constexpr std::int64_t kWidth = 75;
  const Array x = random_array(Storage::kFloat32, kRows * kWidth, 1);
  const Array w = random_array(Storage::kFloat32, kWidth, 2);
  expect_same_with_any_threads([&](ThreadPool& pool) {
    Array dx(Storage::kFloat32, x.size());
    Array dw(Storage::kFloat32, w.size());
    std::vector<std::byte> scratch(rms_norm_backward_scratch(kRows, kWidth));
    rms_norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), nullptr, dx.data(),
                      static_cast<float*>(dw.data()), kRows, kWidth, NormAttributes{1e-6F}, scratch.data());
    return dw;
  });
}

TEST(RmsNormBackward, ChunksApart_GiveTheSameBits) {
  // Two whole chunks in one call or in two: the gradient receives the same sums in the same order.
  constexpr std::int64_t kWidth = 40;
  constexpr std::int64_t kHalf = kTokenChunk * kWidth;
  const Array x = random_array(Storage::kFloat32, 2 * kHalf, 1);
  const Array w = random_array(Storage::kFloat32, kWidth, 2);
  std::vector<float> together(kWidth);
  std::vector<float> apart(kWidth);
  std::vector<float> dx(x.size());
  std::vector<std::byte> scratch(rms_norm_backward_scratch(2 * kTokenChunk, kWidth));
  ThreadPool pool(2);
  const auto* from = static_cast<const float*>(x.data());
  rms_norm_backward(pool, Storage::kFloat32, from, w.data(), from, nullptr, dx.data(), together.data(), 2 * kTokenChunk,
                    kWidth, NormAttributes{1e-6F}, scratch.data());
  for (const std::int64_t at : {std::int64_t{0}, kHalf}) {
    rms_norm_backward(pool, Storage::kFloat32, from + at, w.data(), from + at, nullptr, dx.data(), apart.data(),
                      kTokenChunk, kWidth, NormAttributes{1e-6F}, scratch.data());
  }
  EXPECT_EQ(together, apart);
}

TEST(BiasGradient, SumsOverTokens_AddedToWhatIsThere) {
  for_each_storage([](Storage storage) {
    for (const auto [tokens, width] : kNormCases) {
      const Array dy = random_array(storage, tokens * width, 8);
      std::vector<float> db(static_cast<std::size_t>(width), 2.0F);
      std::vector<std::byte> scratch(bias_gradient_scratch(tokens, width));
      ThreadPool pool(3);
      bias_gradient(pool, storage, dy.data(), db.data(), tokens, width, scratch.data());
      for (std::size_t i = 0; i < db.size(); ++i) {
        double want = 2.0;
        for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) want += dy[t * db.size() + i];
        ASSERT_NEAR(static_cast<double>(db[i]), want, 1e-7 * static_cast<double>(tokens) + 1e-6) << i;
      }
    }
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
