// Norms and the bias gradient against fp64.
#include <gmock/gmock.h>

#include "kernels.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

struct NormReference {
  std::vector<double> y, dx, dw;
};

/// A bias is the weight once more.
NormReference reference(const Array& x, const Array& w, const Array& dy, const Array* addend, std::size_t rows,
                        std::size_t width, const NormAttributes& norm) {
  NormReference r{std::vector<double>(rows * width), std::vector<double>(rows * width), std::vector<double>(width)};
  const auto gain = [&](std::size_t i) {
    return static_cast<double>(norm.weight_factor) * w[i] + static_cast<double>(norm.weight_offset);
  };
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t at = row * width;
    const auto count = static_cast<double>(width);
    double mean = 0;
    double slope = 0;
    for (std::size_t i = 0; i < width && norm.centred; ++i) {
      mean += x[at + i] / count;
      slope += gain(i) * dy[at + i] / count;
    }
    double squares = 0;
    double product = 0;
    for (std::size_t i = 0; i < width; ++i) {
      squares += (x[at + i] - mean) * (x[at + i] - mean);
      product += (x[at + i] - mean) * gain(i) * dy[at + i];
    }
    const double rms = std::sqrt(squares / count + static_cast<double>(norm.epsilon));
    for (std::size_t i = 0; i < width; ++i) {
      const double normal = (x[at + i] - mean) / rms;
      r.y[at + i] = normal * gain(i) + (norm.has_bias ? w[i] : 0.0);
      r.dx[at + i] = (gain(i) * dy[at + i] - slope - normal * product / (rms * count)) / rms +
                     (addend == nullptr ? 0.0 : (*addend)[at + i]);
      r.dw[i] += static_cast<double>(norm.weight_factor) * dy[at + i] * normal;
    }
  }
  return r;
}

struct NormCase {
  std::int64_t rows, width;
};
/// As Llama has it, with a weight that is scaled and added to one, and centred with a bias and without.
constexpr NormAttributes kNorms[] = {{1e-5F},
                                     {.epsilon = 1e-5F, .weight_factor = 0.625F, .weight_offset = 1.0F},
                                     {.epsilon = 1e-5F, .centred = true},
                                     {.epsilon = 1e-5F, .centred = true, .has_bias = true}};
constexpr NormCase kNormCases[] = {{1, 1}, {3, 20}, {65, 64}, {700, 37}, {1100, 576}, {2, 20000}};

/// A handful of roundings, and those of an fp32 sum over the row.
double relative_error(std::int64_t width) { return 5e-7 + 1e-10 * static_cast<double>(width); }

TEST(Norm, Forward_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    for (const auto [rows, width] : kNormCases) {
      const Array x = random_array(storage, rows * width, 1, 3.0F);
      const Array w = random_array(storage, width, 2);
      Array y(storage, x.size());
      ThreadPool pool(2);
      for (const NormAttributes& norm : kNorms) {
        norm_forward(pool, storage, x.data(), w.data(), norm.has_bias ? w.data() : nullptr, y.data(), rows, width,
                     norm);
        const auto want =
            reference(x, w, x, nullptr, static_cast<std::size_t>(rows), static_cast<std::size_t>(width), norm);
        // Relative to the terms that cancel: of the gain, of the row and its mean, of the product and the bias.
        const bool cancels = norm.weight_offset != 0.0F || norm.centred;
        expect_close(y, want.y, storage, relative_error(width), cancels ? 1e-5 : 0.0, "y");
      }
    }
  });
}

TEST(NormBackward, GradientsWithAddend_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const auto [rows, width] : kNormCases) {
      const auto n = rows * width;
      const Array x = random_array(storage, n, 1, 3.0F);
      const Array w = random_array(storage, width, 2);
      const Array dy = random_array(storage, n, 3);
      const Array addend = random_array(storage, n, 4);
      Array dx(storage, x.size());
      std::vector<std::byte> scratch(norm_backward_scratch(rows, width));
      ThreadPool pool(2);
      for (const NormAttributes& norm : kNorms) {
        std::vector<float> dw(w.size(), 0.5F);
        norm_backward(pool, storage, x.data(), w.data(), dy.data(), addend.data(), dx.data(), dw.data(), rows, width,
                      norm, scratch.data());
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

TEST(Norm, CentredFarFromZero_LosesNothing) {
  constexpr std::int64_t kWidth = 515;
  Array x = random_array(Storage::kFloat32, 3 * kWidth, 1);
  auto* values = static_cast<float*>(x.data());
  for (std::size_t i = 0; i < x.size(); ++i) values[i] += 1024.0F;
  const Array w = random_array(Storage::kFloat32, kWidth, 2);
  Array y(Storage::kFloat32, x.size());
  ThreadPool pool(2);
  const NormAttributes norm{.epsilon = 1e-5F, .centred = true};
  norm_forward(pool, Storage::kFloat32, x.data(), w.data(), nullptr, y.data(), 3, kWidth, norm);
  // An ulp of the mean is 6e-5 of the row's spread; the difference of squares would be off by 0.1.
  expect_close(y, reference(x, w, x, nullptr, 3, kWidth, norm).y, Storage::kFloat32, 1e-5, 1e-3, "y");
}

TEST(Norm, WithoutWeight_IsTheOffsetsAlone) {
  const Array x = random_array(Storage::kFloat32, 70 * 37, 1);
  Array ones(Storage::kFloat32, 37);
  for (std::size_t i = 0; i < ones.size(); ++i) static_cast<float*>(ones.data())[i] = 1.0F;
  Array with(Storage::kFloat32, x.size());
  Array without(Storage::kFloat32, x.size());
  std::vector<std::byte> scratch(norm_backward_scratch(70, 37));
  ThreadPool pool(2);
  const NormAttributes weighted{.epsilon = 1e-5F, .centred = true};
  const NormAttributes plain{.epsilon = 1e-5F, .weight_factor = 0.0F, .weight_offset = 1.0F, .centred = true};
  norm_forward(pool, Storage::kFloat32, x.data(), ones.data(), nullptr, with.data(), 70, 37, weighted);
  norm_forward(pool, Storage::kFloat32, x.data(), nullptr, nullptr, without.data(), 70, 37, plain);
  EXPECT_TRUE(with.same_bits(without));
  norm_backward(pool, Storage::kFloat32, x.data(), ones.data(), x.data(), nullptr, with.data(), nullptr, 70, 37,
                weighted, scratch.data());
  norm_backward(pool, Storage::kFloat32, x.data(), nullptr, x.data(), nullptr, without.data(), nullptr, 70, 37, plain,
                scratch.data());
  EXPECT_TRUE(with.same_bits(without));
}

TEST(NormBackward, WithoutAddendOrWeightGradient_GivesTheSameDx) {
  const Array x = random_array(Storage::kFloat32, 100 * 48, 1);
  const Array w = random_array(Storage::kFloat32, 48, 2);
  const Array zeros(Storage::kFloat32, x.size());
  Array with(Storage::kFloat32, x.size());
  Array without(Storage::kFloat32, x.size());
  std::vector<float> dw(48);
  std::vector<std::byte> scratch(norm_backward_scratch(100, 48));
  ThreadPool pool(2);
  norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), zeros.data(), with.data(), dw.data(), 100, 48,
                NormAttributes{1e-6F}, scratch.data());
  norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), nullptr, without.data(), nullptr, 100, 48,
                NormAttributes{1e-6F}, scratch.data());
  EXPECT_TRUE(with.same_bits(without));
}

TEST(NormBackward, Threads_DoNotMatter) {
  constexpr std::int64_t kRows = 1300;
  constexpr std::int64_t kWidth = 75;
  const Array x = random_array(Storage::kFloat32, kRows * kWidth, 1);
  const Array w = random_array(Storage::kFloat32, kWidth, 2);
  expect_same_with_any_threads([&](ThreadPool& pool) {
    Array dx(Storage::kFloat32, x.size());
    Array dw(Storage::kFloat32, w.size());
    std::vector<std::byte> scratch(norm_backward_scratch(kRows, kWidth));
    norm_backward(pool, Storage::kFloat32, x.data(), w.data(), x.data(), nullptr, dx.data(),
                  static_cast<float*>(dw.data()), kRows, kWidth, NormAttributes{1e-6F}, scratch.data());
    return dw;
  });
}

TEST(NormBackward, ChunksApart_GiveTheSameBits) {
  // Two whole chunks in one call or in two: the gradient receives the same sums in the same order.
  constexpr std::int64_t kWidth = 40;
  constexpr std::int64_t kHalf = kTokenChunk * kWidth;
  const Array x = random_array(Storage::kFloat32, 2 * kHalf, 1);
  const Array w = random_array(Storage::kFloat32, kWidth, 2);
  std::vector<float> together(kWidth);
  std::vector<float> apart(kWidth);
  std::vector<float> dx(x.size());
  std::vector<std::byte> scratch(norm_backward_scratch(2 * kTokenChunk, kWidth));
  ThreadPool pool(2);
  const auto* from = static_cast<const float*>(x.data());
  norm_backward(pool, Storage::kFloat32, from, w.data(), from, nullptr, dx.data(), together.data(), 2 * kTokenChunk,
                kWidth, NormAttributes{1e-6F}, scratch.data());
  for (const std::int64_t at : {std::int64_t{0}, kHalf}) {
    norm_backward(pool, Storage::kFloat32, from + at, w.data(), from + at, nullptr, dx.data(), apart.data(),
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
