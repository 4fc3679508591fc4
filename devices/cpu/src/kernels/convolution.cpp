// The short convolution of linear attention with the SiLU behind it, and its gradient.
//
// A task has some channels of some tokens. Gradients of weights are summed by chunks of kTokenChunk tokens, each by one
// task in rising order; then the chunks are added in rising order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/convolution.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "kernels/delta.h"
#include "kernels/sequences.h"
#include "kernels/storage.h"
#include "kernels/vector-inl.h"

#ifndef RONDO_CPU_KERNELS_CONVOLUTION_ONCE
#define RONDO_CPU_KERNELS_CONVOLUTION_ONCE
namespace rondo::devices::cpu {

/// Channels of a task: what it keeps of them stays in a first-level cache.
inline constexpr std::int64_t kTaskChannels = 256;
/// Tokens whose slopes are kept: at least as many as any width has.
inline constexpr std::int64_t kRingRows = 8;
static_assert(kRingRows >= kMostConvolution);

/// Weights are turned to [width][channels] first, in scratch.
inline std::int64_t turned_weights(const ConvolutionShape& shape) { return shape.width * shape.channels; }
inline std::int64_t token_chunks(const ConvolutionShape& shape) { return divide_up(shape.tokens, kTokenChunk); }

}  // namespace rondo::devices::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace rondo::devices::cpu::HWY_NAMESPACE {

template <typename T>
struct ConvolutionProblem {
  ConvolutionShape shape;
  const T* x;
  const float* w;  // [width][channels]
  const T* bias;   // [channels] or null
  const std::int32_t* bounds;
  const T* before;  // [width - 1][channels]: tokens before the first one, null where these are zeros
};

template <typename T>
void turn_weights(const ConvolutionShape& shape, const T* w, float* turned) {
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t i = 0; i < shape.width; ++i) turned[i * shape.channels + c] = widened(w[c * shape.width + i]);
  }
}

/// What stands before the SiLU, at channel c and those beside it.
template <typename T, typename Extent>
HWY_INLINE Vector convolved(const ConvolutionProblem<T>& problem, std::int64_t first, std::int64_t token,
                            std::int64_t c, Extent extent) {
  const std::int64_t width = problem.shape.width;
  const std::int64_t channels = problem.shape.channels;
  auto sum = problem.bias == nullptr ? zero() : load(problem.bias + c, extent);
  for (std::int64_t i = 0; i < width; ++i) {
    const std::int64_t from = token - width + 1 + i;
    const T* row = problem.x + from * channels;
    if (from < first) {
      if (problem.before == nullptr) continue;
      row = problem.before + (width - 1 + from - first) * channels;
    }
    sum = hn::MulAdd(load(problem.w + i * channels + c, extent), load(row + c, extent), sum);
  }
  return sum;
}

struct Activated {
  Vector value;
  Vector slope;
};

/// x sigmoid(x) and its slope, without cancellation on either side; x and one where the SiLU is left out.
HWY_INLINE Activated activated(const ConvolutionShape& shape, Vector x) {
  if (!shape.silu) return {x, splat(1.0F)};
  const auto e = exp_of(hn::Neg(hn::Abs(x)));
  const auto large = hn::Div(splat(1.0F), hn::Add(splat(1.0F), e));
  const auto small = hn::Mul(e, large);
  const auto negative = hn::Lt(x, zero());
  const auto share = hn::IfThenElse(negative, small, large);
  const auto value = hn::Mul(x, share);
  return {value, hn::MulAdd(value, hn::IfThenElse(negative, large, small), share)};
}

template <typename T>
void convolve(ThreadPool& pool, const ConvolutionProblem<T>& problem, T* y) {
  const ConvolutionShape& shape = problem.shape;
  const std::int64_t step = task_rows(shape.channels);
  pool.parallel_for(divide_up(shape.tokens, step), [&](std::int64_t task, std::uint32_t) HWY_ATTR {
    const Sequences sequences(problem.bounds);
    for (std::int64_t token = task * step; token < HWY_MIN(shape.tokens, (task + 1) * step); ++token) {
      T* const to = y + token * shape.channels;
      if (token >= sequences.real_tokens()) {
        std::memset(to, 0, static_cast<std::size_t>(shape.channels) * sizeof(T));
        continue;
      }
      const std::int64_t first = sequences.at(token).begin;
      for_vectors(shape.channels, [&](std::int64_t c, auto extent) HWY_ATTR {
        store(activated(shape, convolved(problem, first, token, c, extent)).value, to + c, extent);
      });
    }
  });
}

/// The last tokens' rows become those that the next ones find before them.
template <typename T>
void keep_last(const ConvolutionShape& shape, const T* x, std::int64_t real, bool is_new, T* state) {
  const std::int64_t kept = shape.width - 1;
  const std::size_t bytes = static_cast<std::size_t>(shape.channels) * sizeof(T);
  for (std::int64_t row = 0; row < kept; ++row) {  // rising: each row comes from one further down
    T* const to = state + row * shape.channels;
    const std::int64_t token = real - kept + row;
    if (token >= 0) {
      std::memcpy(to, x + token * shape.channels, bytes);
    } else if (is_new) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, to + real * shape.channels, bytes);
    }
  }
}

/// Some channels of a chunk of tokens.
struct ConvolutionBlock {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t channel;
  std::int64_t count;
};

/// The gradient in front of the SiLU, of the last kRingRows tokens: rows of a ring in scratch.
struct SlopeRing {
  float* rows;  // [kRingRows][kTaskChannels]
  HWY_INLINE float* row(std::int64_t token) const { return rows + token % kRingRows * kTaskChannels; }
};

/// dx of a token, once the slopes of all those that read it are in the ring.
template <typename T>
HWY_INLINE void gather_slopes(const ConvolutionProblem<T>& problem, const ConvolutionBlock& block,
                              const SlopeRing& ring, std::int64_t token, std::int64_t last, T* dx) {
  const std::int64_t width = problem.shape.width;
  const std::int64_t channels = problem.shape.channels;
  for_vectors(block.count, [&](std::int64_t c, auto extent) HWY_ATTR {
    auto sum = zero();
    for (std::int64_t reader = token; reader < HWY_MIN(last, token + width); ++reader) {
      const float* const w = problem.w + (width - 1 - (reader - token)) * channels + block.channel;
      sum = hn::MulAdd(load(w + c, extent), load(ring.row(reader) + c), sum);
    }
    store(sum, dx + token * channels + block.channel + c, extent);
  });
}

/// The slopes of one token into the ring; where there is `dw` [width][channels] what they add to it.
template <typename T>
HWY_INLINE void find_ring_row(const ConvolutionProblem<T>& problem, const ConvolutionBlock& block, std::int64_t first,
                              std::int64_t token, const T* dy, const SlopeRing& ring, float* dw) {
  const std::int64_t width = problem.shape.width;
  const std::int64_t channels = problem.shape.channels;
  for_vectors(block.count, [&](std::int64_t c, auto extent) HWY_ATTR {
    const std::int64_t channel = block.channel + c;
    const auto slope = activated(problem.shape, convolved(problem, first, token, channel, extent)).slope;
    const auto dsum = hn::Mul(load(dy + token * channels + channel, extent), slope);
    store(dsum, ring.row(token) + c);
    if (dw == nullptr) return;
    for (std::int64_t i = HWY_MAX(0, width - 1 - (token - first)); i < width; ++i) {
      float* const sum = dw + i * channels + channel;
      const auto row = load(problem.x + (token - width + 1 + i) * channels + channel, extent);
      store(hn::MulAdd(dsum, row, load(sum, extent)), sum, extent);
    }
  });
}

/// dx of a block, and in `dw` [width][channels], if it is there, its sums.
template <typename T>
HWY_NOINLINE void backward_block(const ConvolutionProblem<T>& problem, const ConvolutionBlock& block, const T* dy,
                                 T* dx, float* dw, const SlopeRing& ring) {
  const std::int64_t channels = problem.shape.channels;
  const Sequences sequences(problem.bounds);
  for (std::int64_t i = 0; dw != nullptr && i < problem.shape.width; ++i) {
    std::memset(dw + i * channels + block.channel, 0, static_cast<std::size_t>(block.count) * sizeof(float));
  }
  for (std::int64_t token = block.begin; token < block.end;) {
    const TokenRange sequence = sequences.at(token);
    if (token >= sequences.real_tokens()) {
      for (; token < block.end; ++token) {
        std::memset(dx + token * channels + block.channel, 0, static_cast<std::size_t>(block.count) * sizeof(T));
      }
      return;
    }
    const std::int64_t end = HWY_MIN(block.end, sequence.end);
    std::int64_t known = token;
    for (; token < end; ++token) {
      for (; known < HWY_MIN(sequence.end, token + problem.shape.width); ++known) {
        find_ring_row(problem, block, sequence.begin, known, dy, ring, known < block.end ? dw : nullptr);
      }
      gather_slopes(problem, block, ring, token, sequence.end, dx);
    }
  }
}

/// dw [channels][width] += the chunks' sums [width][channels] in rising order.
void add_chunks(const ConvolutionShape& shape, const float* chunks, float* dw) {
  const std::int64_t count = token_chunks(shape);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    for (std::int64_t i = 0; i < shape.width; ++i) {
      float sum = dw[c * shape.width + i];
      for (std::int64_t chunk = 0; chunk < count; ++chunk)
        sum += chunks[(chunk * shape.width + i) * shape.channels + c];
      dw[c * shape.width + i] = sum;
    }
  }
}

void convolution_any(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x, const void* w,
                     const void* bias, const std::int32_t* bounds, const std::int32_t* positions, void* state, void* y,
                     float* turned) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    turn_weights(shape, static_cast<const T*>(w), turned);
    const bool continues = state != nullptr && positions[0] > 0;
    const ConvolutionProblem<T> problem{shape,  static_cast<const T*>(x),
                                        turned, static_cast<const T*>(bias),
                                        bounds, continues ? static_cast<const T*>(state) : nullptr};
    convolve(pool, problem, static_cast<T*>(y));
    const std::int64_t real = Sequences(bounds).real_tokens();
    if (state != nullptr && real > 0) keep_last(shape, problem.x, real, !continues, static_cast<T*>(state));
  });
}

void convolution_backward_any(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x,
                              const void* w, const std::int32_t* bounds, const void* dy, void* dx, float* dw,
                              float* scratch) {
  with_storage(storage, [&](auto type) {
    using T = decltype(type);
    turn_weights(shape, static_cast<const T*>(w), scratch);
    float* const chunks = scratch + turned_weights(shape);
    float* const rings = chunks + token_chunks(shape) * turned_weights(shape);
    const ConvolutionProblem<T> problem{shape, static_cast<const T*>(x), scratch, nullptr, bounds, nullptr};
    const std::int64_t blocks = divide_up(shape.channels, kTaskChannels);
    pool.parallel_for(token_chunks(shape) * blocks, [&](std::int64_t task, std::uint32_t member) HWY_ATTR {
      const std::int64_t chunk = task / blocks;
      const std::int64_t channel = task % blocks * kTaskChannels;
      const ConvolutionBlock block{chunk * kTokenChunk, HWY_MIN(shape.tokens, (chunk + 1) * kTokenChunk), channel,
                                   HWY_MIN(kTaskChannels, shape.channels - channel)};
      const SlopeRing ring{rings + member * kRingRows * kTaskChannels};
      backward_block(problem, block, static_cast<const T*>(dy), static_cast<T*>(dx),
                     dw == nullptr ? nullptr : chunks + chunk * turned_weights(shape), ring);
    });
    if (dw != nullptr) add_chunks(shape, chunks, dw);
  });
}

}  // namespace rondo::devices::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace rondo::devices::cpu {
HWY_EXPORT(convolution_any);
HWY_EXPORT(convolution_backward_any);

void convolution(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x, const void* w,
                 const void* bias, const std::int32_t* bounds, const std::int32_t* positions, void* state, void* y,
                 std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(convolution_any)
  (pool, storage, shape, x, w, bias, bounds, positions, state, y, reinterpret_cast<float*>(scratch));
}

std::size_t convolution_scratch(const ConvolutionShape& shape) {
  return static_cast<std::size_t>(turned_weights(shape)) * sizeof(float);
}

void convolution_backward(ThreadPool& pool, Storage storage, const ConvolutionShape& shape, const void* x,
                          const void* w, const std::int32_t* bounds, const void* dy, void* dx, float* dw,
                          std::byte* scratch) {
  HWY_DYNAMIC_DISPATCH(convolution_backward_any)
  (pool, storage, shape, x, w, bounds, dy, dx, dw, reinterpret_cast<float*>(scratch));
}

std::size_t convolution_backward_scratch(const ConvolutionShape& shape, std::uint32_t threads) {
  const std::int64_t floats = (1 + token_chunks(shape)) * turned_weights(shape) + threads * kRingRows * kTaskChannels;
  return static_cast<std::size_t>(floats) * sizeof(float);
}

}  // namespace rondo::devices::cpu
#endif  // HWY_ONCE
