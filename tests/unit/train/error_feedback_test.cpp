// Codes chosen with error feedback, against GPTQ as it is published: one column after the other, what is left of the
// row made good by the inverse of H, in double precision.
#include "rondo/train/error_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "rondo/devices/encoding.h"

namespace rondo::train {
namespace {

using devices::Encoding;
using ::testing::HasSubstr;
using Matrix = std::vector<std::vector<double>>;

constexpr std::size_t kTokens = 700;

constexpr std::int64_t signed_of(std::size_t x) { return static_cast<std::int64_t>(x); }

/// Inputs that depend on one another: 12 hidden ones and a little noise.
std::vector<float> moments_of(std::size_t width, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  constexpr std::size_t kHidden = 12;
  std::vector<double> mix(kHidden * width);
  for (double& one : mix) one = normal(random);
  std::vector<double> sums(width * width);
  std::vector<double> x(width);
  for (std::size_t token = 0; token < kTokens; ++token) {
    for (double& one : x) one = 0.5 * normal(random);
    for (std::size_t h = 0; h < kHidden; ++h) {
      const double hidden = normal(random);
      for (std::size_t k = 0; k < width; ++k) x[k] += 0.3 * hidden * mix[h * width + k];
    }
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t j = 0; j < width; ++j) sums[i * width + j] += x[i] * x[j];
    }
  }
  return {sums.begin(), sums.end()};
}

std::vector<float> weights_of(std::size_t rows, std::size_t width, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> weights(rows * width);
  for (float& one : weights) one = normal(random);
  return weights;
}

std::vector<std::byte> nearest(Encoding encoding, const std::vector<float>& weights) {
  const std::size_t elements = static_cast<std::size_t>(weights.size());
  std::vector<std::byte> codes(devices::encoded_bytes(encoding, signed_of(elements)));
  devices::BlockEncoder encoder(encoding, signed_of(elements), codes);
  encoder.append(weights);
  encoder.finish();
  return codes;
}

std::vector<double> numbers(Encoding encoding, const std::vector<std::byte>& codes, std::size_t elements) {
  const devices::EncodedLayout layout(encoding, signed_of(elements));
  std::vector<double> values;
  for (std::size_t i = 0; i < elements; ++i) {
    values.push_back(static_cast<double>(devices::decoded_element(encoding, layout, codes.data(), signed_of(i))));
  }
  return values;
}

/// tr((W - Q) H (W - Q)^T).
double cost(const std::vector<float>& weights, const std::vector<double>& codes, const std::vector<float>& moments,
            std::size_t width) {
  double sum = 0;
  for (std::size_t row = 0; row < weights.size() / width; ++row) {
    std::vector<double> error;
    for (std::size_t k = 0; k < width; ++k) {
      const std::size_t at = row * width + k;
      error.push_back(static_cast<double>(weights[at]) - codes[at]);
    }
    for (std::size_t i = 0; i < width; ++i) {
      for (std::size_t j = 0; j < width; ++j) sum += error[i] * static_cast<double>(moments[i * width + j]) * error[j];
    }
  }
  return sum;
}

Matrix damped(const std::vector<float>& moments, std::size_t width) {
  Matrix h(width, std::vector<double>(width));
  double trace = 0;
  for (std::size_t i = 0; i < width; ++i) trace += static_cast<double>(moments[i * width + i]);
  for (std::size_t i = 0; i < width; ++i) {
    for (std::size_t j = 0; j < width; ++j) h[i][j] = static_cast<double>(moments[i * width + j]);
    h[i][i] += ErrorFeedback::kDamping * trace / static_cast<double>(width);
  }
  return h;
}

/// Gauss and Jordan; H is positive definite.
Matrix inverse(Matrix h) {
  const std::size_t n = h.size();
  Matrix result(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i) result[i][i] = 1;
  for (std::size_t k = 0; k < n; ++k) {
    const double pivot = h[k][k];
    for (std::size_t j = 0; j < n; ++j) {
      h[k][j] /= pivot;
      result[k][j] /= pivot;
    }
    for (std::size_t i = 0; i < n; ++i) {
      const double factor = h[i][k];
      if (i == k || factor == 0) continue;
      for (std::size_t j = 0; j < n; ++j) {
        h[i][j] -= factor * h[k][j];
        result[i][j] -= factor * result[k][j];
      }
    }
  }
  return result;
}

/// GPTQ's loop. After column k the inverse loses its row and column k.
std::vector<std::byte> published(Encoding encoding, const std::vector<float>& weights,
                                 const std::vector<float>& moments, std::size_t width) {
  const std::size_t elements = static_cast<std::size_t>(weights.size());
  std::vector<std::byte> codes = nearest(encoding, weights);
  const devices::EncodedLayout layout(encoding, signed_of(elements));
  Matrix left = inverse(damped(moments, width));
  std::vector<double> rest(weights.begin(), weights.end());
  const std::size_t rows = elements / width;
  for (std::size_t k = 0; k < width; ++k) {
    const double pivot = left[k][k];
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t at = row * width + k;
      const float number =
          devices::choose_code(encoding, layout, codes.data(), signed_of(at), static_cast<float>(rest[at]));
      const double error = (rest[at] - static_cast<double>(number)) / pivot;
      for (std::size_t j = k + 1; j < width; ++j) rest[row * width + j] -= error * left[k][j];
    }
    for (std::size_t i = k + 1; i < width; ++i) {
      const double factor = left[i][k] / pivot;
      for (std::size_t j = k + 1; j < width; ++j) left[i][j] -= factor * left[k][j];
    }
  }
  return codes;
}

struct Case {
  const char* name;
  Encoding encoding;
  std::size_t rows;
  std::size_t width;
};
void PrintTo(const Case& one, std::ostream* stream) { *stream << one.name; }

class Feedback : public testing::TestWithParam<Case> {
 protected:
  std::vector<std::byte> chosen(const std::vector<float>& moments, std::uint32_t threads = 2) const {
    devices::ThreadPool pool(threads);
    devices::cpu::CpuExecutor executor(pool);
    std::vector<std::byte> codes = nearest(GetParam().encoding, weights_);
    auto feedback = ErrorFeedback::make(executor, pool, moments, signed_of(GetParam().width));
    EXPECT_EQ(feedback.status(), absl::OkStatus());
    if (!feedback.ok()) return codes;
    const auto read = [this](std::uint64_t first, std::span<float> values) {
      std::copy_n(weights_.begin() + static_cast<std::ptrdiff_t>(first), values.size(), values.begin());
    };
    EXPECT_EQ(feedback->choose(GetParam().encoding, signed_of(GetParam().rows), read, codes), absl::OkStatus());
    return codes;
  }
  double cost_of(const std::vector<std::byte>& codes) const {
    return cost(weights_, numbers(GetParam().encoding, codes, weights_.size()), moments_, GetParam().width);
  }

  const std::vector<float> weights_ = weights_of(GetParam().rows, GetParam().width, 3);
  const std::vector<float> moments_ = moments_of(GetParam().width, 5);
};

TEST_P(Feedback, Codes_AreThoseOfThePublishedLoop) {
  const std::vector<double> want = numbers(
      GetParam().encoding, published(GetParam().encoding, weights_, moments_, GetParam().width), weights_.size());
  const std::vector<double> have = numbers(GetParam().encoding, chosen(moments_), weights_.size());
  // A sum between two codes may round to either; then the rest of that row goes another way.
  std::size_t rows_alike = 0;
  for (std::size_t row = 0; row < GetParam().rows; ++row) {
    const std::int64_t first = signed_of(row * GetParam().width);
    if (std::equal(want.begin() + first, want.begin() + first + signed_of(GetParam().width), have.begin() + first)) {
      ++rows_alike;
    }
  }
  EXPECT_GE(rows_alike, GetParam().rows * 9 / 10);
}

TEST_P(Feedback, Error_IsFarBelowThatOfTheNearestCodes) {
  EXPECT_LT(cost_of(chosen(moments_)), 0.5 * cost_of(nearest(GetParam().encoding, weights_)));
}

TEST_P(Feedback, Codes_DoNotDependOnThreads) { EXPECT_EQ(chosen(moments_, 1), chosen(moments_, 3)); }

TEST_P(Feedback, OfInputsThatAreStrangers_TakesTheNearestCodes) {
  const std::size_t width = GetParam().width;
  std::vector<float> identity(width * width);
  for (std::size_t k = 0; k < width; ++k) identity[k * width + k] = 3.0F;
  const std::size_t elements = weights_.size();
  std::vector<std::byte> want = nearest(GetParam().encoding, weights_);
  const devices::EncodedLayout layout(GetParam().encoding, signed_of(elements));
  for (std::size_t i = 0; i < elements; ++i) {
    devices::choose_code(GetParam().encoding, layout, want.data(), signed_of(i), weights_[i]);
  }
  EXPECT_EQ(chosen(identity), want);
  EXPECT_EQ(chosen(std::vector<float>(identity.size())), want) << "of inputs that are zero";
}

TEST_P(Feedback, InputsThatAreNotFinite_AreRefused) {
  devices::ThreadPool pool(1);
  devices::cpu::CpuExecutor executor(pool);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> moments = moments_;
    moments[1] = bad;
    const absl::Status status = ErrorFeedback::make(executor, pool, moments, signed_of(GetParam().width)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("inputs"));
  }
}

// Widths within a tile, of several tiles, and where blocks of codes go from one row into the next.
INSTANTIATE_TEST_SUITE_P(, Feedback,
                         testing::Values(Case{"nf4_narrow", Encoding::kNf4, 20, 64},
                                         Case{"nf4_odd", Encoding::kNf4, 21, 99},
                                         Case{"nf4_tiles", Encoding::kNf4, 30, 576},
                                         Case{"nf4_rows", Encoding::kNf4, 300, 320},
                                         Case{"int8", Encoding::kInt8, 20, 320}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace rondo::train
