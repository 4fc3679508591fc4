// The short convolution and its gradient against fp64, on every instruction set.
#include "kernels/delta.h"
#include "support.h"

namespace rondo::devices::cpu::testing {
namespace {

struct ConvolutionCase {
  std::vector<std::int32_t> sequences;
  ConvolutionShape shape;
};

std::vector<ConvolutionCase> convolution_cases() {
  return {{{1}, {1, 1, 1}},
          {{3, 1, 2}, {9, 37, 4}},
          {{2, 30}, {40, 300, 8}},  // shorter than the width; more than a task's channels
          {{500, 600}, {1110, 17, 4}}};
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

struct ConvolutionReference {
  std::vector<double> y, dx, dw;
};

ConvolutionReference reference(const ConvolutionCase& of, const Array& x, const Array& w, const Array& dy) {
  const auto channels = static_cast<std::size_t>(of.shape.channels);
  const auto width = static_cast<std::size_t>(of.shape.width);
  ConvolutionReference r{std::vector<double>(x.size()), std::vector<double>(x.size()), std::vector<double>(w.size())};
  std::size_t first = 0;
  for (const std::int32_t length : of.sequences) {
    for (std::size_t t = first; t < first + static_cast<std::size_t>(length); ++t) {
      for (std::size_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::size_t back = 0; back < width && t >= first + back; ++back) {
          sum += w[c * width + width - 1 - back] * x[(t - back) * channels + c];
        }
        const double share = sigmoid(sum);
        r.y[t * channels + c] = sum * share;
        const double dsum = dy[t * channels + c] * share * (1.0 + sum * (1.0 - share));
        for (std::size_t back = 0; back < width && t >= first + back; ++back) {
          r.dx[(t - back) * channels + c] += dsum * w[c * width + width - 1 - back];
          r.dw[c * width + width - 1 - back] += dsum * x[(t - back) * channels + c];
        }
      }
    }
    first += static_cast<std::size_t>(length);
  }
  return r;
}

struct ConvolutionInputs {
  ConvolutionInputs(const ConvolutionCase& of, Storage storage)
      : x(random_array(storage, of.shape.tokens * of.shape.channels, 1)),
        w(random_array(storage, of.shape.channels * of.shape.width, 2)),
        dy(random_array(storage, of.shape.tokens * of.shape.channels, 3)),
        batch(batch_of(of.sequences, static_cast<std::size_t>(of.shape.tokens))) {}
  Array x, w, dy;
  Batch batch;
};

TEST(Convolution, Forward_AgreesWithDouble) {
  for_each_storage([](Storage storage) {
    for (const ConvolutionCase& of : convolution_cases()) {
      const ConvolutionInputs in(of, storage);
      Array y(storage, in.x.size());
      std::vector<std::byte> scratch(convolution_scratch(of.shape));
      ThreadPool pool(2);
      convolution(pool, storage, of.shape, in.x.data(), in.w.data(), nullptr, in.batch.bounds.data(), nullptr, nullptr,
                  y.data(), scratch.data());
      expect_close(y, reference(of, in.x, in.w, in.dy).y, storage, 1e-6, 2e-6, "y");
    }
  });
}

TEST(ConvolutionBackward, Gradients_AgreeWithDouble) {
  for_each_storage([](Storage storage) {
    for (const ConvolutionCase& of : convolution_cases()) {
      const ConvolutionInputs in(of, storage);
      Array dx(storage, in.x.size());
      std::vector<float> dw(in.w.size(), 0.5F);
      std::vector<std::byte> scratch(convolution_backward_scratch(of.shape, 2));
      ThreadPool pool(2);
      convolution_backward(pool, storage, of.shape, in.x.data(), in.w.data(), in.batch.bounds.data(), in.dy.data(),
                           dx.data(), dw.data(), scratch.data());
      ConvolutionReference want = reference(of, in.x, in.w, in.dy);
      for (double& sum : want.dw) sum += 0.5;
      expect_close(dx, want.dx, storage, 1e-6, 5e-6, "dx");
      expect_close(Array(Storage::kFloat32, dw), want.dw, Storage::kFloat32, 1e-6, 1e-4, "dw");
    }
  });
}

/// Without SiLU what the bias adds is all that it does.
TEST(Convolution, WithABias_AddsIt) {
  for_each_storage([](Storage storage) {
    for (const ConvolutionCase& with_silu : convolution_cases()) {
      ConvolutionCase of = with_silu;
      of.shape.silu = false;
      const ConvolutionInputs in(of, storage);
      const Array bias = random_array(storage, of.shape.channels, 4);
      std::vector<std::byte> scratch(convolution_scratch(of.shape));
      ThreadPool pool(2);
      const auto run = [&](const void* b, Storage to, const Array& x, const Array& w) {
        Array y(to, x.size());
        convolution(pool, to, of.shape, x.data(), w.data(), b, in.batch.bounds.data(), nullptr, nullptr, y.data(),
                    scratch.data());
        return y;
      };
      const auto widened = [](const Array& narrow) {
        std::vector<float> numbers;
        for (std::size_t i = 0; i < narrow.size(); ++i) numbers.push_back(static_cast<float>(narrow[i]));
        return Array(Storage::kFloat32, numbers);
      };
      const Array without = run(nullptr, Storage::kFloat32, widened(in.x), widened(in.w));
      std::vector<double> want;
      const auto real = static_cast<std::size_t>(in.batch.bounds[static_cast<std::size_t>(in.batch.bounds[0]) + 1]);
      const auto channels = static_cast<std::size_t>(of.shape.channels);
      for (std::size_t i = 0; i < without.size(); ++i) {
        want.push_back(i / channels < real ? without[i] + bias[i % channels] : 0.0);
      }
      expect_close(run(bias.data(), storage, in.x, in.w), want, storage, 1e-6, 2e-6, "y");
    }
  });
}

/// A sequence in two parts, the second shorter than what the state holds, is as the sequence whole.
TEST(Convolution, FromAState_GoesOn) {
  for_each_storage([](Storage storage) {
    const ConvolutionCase whole{{9}, {9, 21, 4}};
    const ConvolutionInputs in(whole, storage);
    Array state = random_array(storage, 3 * 21, 9);  // of another sequence, to be forgotten
    std::vector<double> got;
    ThreadPool pool(2);
    std::vector<std::byte> scratch(convolution_scratch(whole.shape));
    std::int32_t begin = 0;
    for (const std::int32_t count : {2, 1, 5, 1}) {
      const auto at = static_cast<std::size_t>(begin) * 21;
      const Array part = in.x.slice(at, static_cast<std::size_t>(count) * 21);
      const ConvolutionShape shape{count, 21, 4};
      const Batch batch = batch_of({count}, static_cast<std::size_t>(count));
      Array y(storage, part.size());
      convolution(pool, storage, shape, part.data(), in.w.data(), nullptr, batch.bounds.data(), &begin, state.data(),
                  y.data(), scratch.data());
      for (std::size_t i = 0; i < y.size(); ++i) got.push_back(y[i]);
      begin += count;
    }
    std::vector<float> all(got.begin(), got.end());
    expect_close(Array(storage, all), reference(whole, in.x, in.w, in.dy).y, storage, 1e-6, 2e-6, "y");
    EXPECT_TRUE(state.same_bits(in.x.slice(6 * 21, 3 * 21)));
  });
}

}  // namespace
}  // namespace rondo::devices::cpu::testing
