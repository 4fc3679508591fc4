// The short convolution of linear attention, each channel by itself, and its gradient. A thread takes one channel of
// every kTapLanes-th token: neighbours read each other's tokens again, out of the cache.
#pragma once

#include "elementwise.h"
#include "rows.h"
#include "sequences.h"

namespace rondo::devices::cuda {

inline constexpr int kTapChannels = 32;  // of a block
inline constexpr int kTapLanes = kMostThreads / kTapChannels;
inline constexpr int kTapRows = 64;    // tokens at a time
inline constexpr int kTapChunk = 512;  // tokens of a block of the gradient
inline constexpr int kTapSpan = kTapRows + kMostTaps - 1;
inline constexpr int kConvolutionShared = kTapRows * 4;
/// Sums of a tile's tokens and of those behind it; where their sequences begin and end.
inline constexpr int kConvolutionBackwardShared = 4 * (kTapSpan * kTapChannels + 2 * kTapSpan);
static_assert(kTapLanes * kTapChannels * kMostTaps <= kTapSpan * kTapChannels);  // the last sums lie in their place

using Taps = Array<float, static_cast<std::size_t>(kMostTaps)>;

/// A channel's weights, zero past the last.
template <typename T>
RONDO_KERNEL Taps load_taps(const ConvolutionParams& p, std::int64_t channel) {
  Taps taps;
  RONDO_UNROLL
  for (int i = 0; i < kMostTaps; ++i) {
    taps[i] = i < p.width ? load(static_cast<const T*>(p.w) + channel * p.width + i) : 0.0F;
  }
  return taps;
}

/// Runs body(i, token) for the taps i of a token, each with the token that it reads, which may lie before `first`.
template <typename Body>
RONDO_KERNEL void for_taps(const ConvolutionParams& p, std::int32_t token, Body body) {
  RONDO_UNROLL
  for (int i = 0; i < kMostTaps; ++i) {
    if (i < p.width) body(i, token - p.width + 1 + i);
  }
}

/// What stands before the SiLU; `before(from)` is read where `from` lies before the sequence's first token.
template <typename T, typename Before>
RONDO_KERNEL float convolved(const ConvolutionParams& p, Taps& taps, std::int32_t first, std::int32_t token,
                             std::int64_t channel, Before before) {
  float sum = 0;
  for_taps(p, token, [&](int i, std::int32_t from) {
    sum += taps[i] * (from >= first ? load(static_cast<const T*>(p.x) + from * p.channels + channel) : before(from));
  });
  return sum;
}

/// A block kTapChannels channels of kTapRows tokens.
template <typename T>
struct Convolution {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ConvolutionParams& p) {
    using Real = typename WideOf<T>::Type;
    auto* firsts = reinterpret_cast<std::int32_t*>(block.shared());  // [kTapRows]; -1: padding
    const auto begin = static_cast<std::int32_t>(block.y() * kTapRows);
    block.each([&](int thread) {
      if (thread >= kTapRows) return;
      const Span sequence = sequence_at(p.bounds, begin + thread);
      firsts[thread] = sequence.begin == sequence.end ? -1 : sequence.begin;
    });
    block.local([&](int thread) {
      const std::int64_t channel = block.x() * kTapChannels + thread % kTapChannels;
      if (channel >= p.channels) return;
      Taps taps = load_taps<T>(p, channel);
      const float bias = p.bias == nullptr ? 0.0F : load(static_cast<const T*>(p.bias) + channel);
      const bool goes_on = p.state != nullptr && p.positions[0] > 0;
      const auto before = [&](std::int32_t from) {
        if (!goes_on) return 0.0F;
        return load(static_cast<const T*>(p.state) + (p.width - 1 + from) * p.channels + channel);
      };
      for (int row = thread / kTapChannels; row < kTapRows && begin + row < p.tokens; row += kTapLanes) {
        const std::int32_t token = begin + row;
        T* const y = static_cast<T*>(p.y) + token * p.channels + channel;
        if (firsts[row] < 0) {
          store(y, 0.0F);
        } else {
          const auto sum = static_cast<Real>(convolved<T>(p, taps, firsts[row], token, channel, before) + bias);
          store(y, static_cast<float>(activate(p.activation, sum).value));
        }
      }
    });
  }
};

/// The last W - 1 tokens become the state, behind what it keeps of those before. A block kMostThreads channels.
template <typename T>
struct ConvolutionState {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ConvolutionParams& p) {
    const std::int32_t real = real_tokens(p.bounds);
    if (real == 0) return;
    block.local([&](int thread) {
      const std::int64_t channel = block.x() * block.threads() + thread;
      if (channel >= p.channels) return;
      T* const state = static_cast<T*>(p.state) + channel;
      // Rows come from behind their own place: in rising order none is read that has been written.
      for (std::int32_t row = 0; row < p.width - 1; ++row) {
        const std::int32_t token = real - (p.width - 1) + row;
        float x = 0;
        if (token >= 0) {
          x = load(static_cast<const T*>(p.x) + token * p.channels + channel);
        } else if (p.positions[0] > 0) {
          x = load(state + (real + row) * p.channels);
        }
        store(state + row * p.channels, x);
      }
    });
  }
};

/// A block kTapChannels channels of kTapChunk tokens, kTapRows of them at a time; ColumnTotals adds the chunks up.
template <typename T>
struct ConvolutionBackward {
  template <typename Block>
  RONDO_KERNEL static void run(Block& block, const ConvolutionParams& p) {
    auto* const sums = reinterpret_cast<float*>(block.shared());                           // [kTapSpan, kTapChannels]
    auto* const firsts = reinterpret_cast<std::int32_t*>(sums + kTapSpan * kTapChannels);  // [kTapSpan]
    auto* const ends = firsts + kTapSpan;                                                  // [kTapSpan]
    const std::int64_t chunk = block.y() * kTapChunk;
    const std::int64_t end = chunk + kTapChunk < p.tokens ? chunk + kTapChunk : p.tokens;
    typename Block::template Own<Taps> taps;
    typename Block::template Own<Taps> gradients;
    block.local([&](int thread) {
      const std::int64_t channel = channel_of(block, thread);
      gradients[thread] = {};
      if (channel < p.channels) taps[thread] = load_taps<T>(p, channel);
    });
    for (auto begin = static_cast<std::int32_t>(chunk); begin < end; begin += kTapRows) {
      block.each([&](int thread) {
        if (thread >= kTapSpan) return;
        const Span sequence = sequence_at(p.bounds, begin + thread);
        firsts[thread] = sequence.begin;
        ends[thread] = sequence.end;
      });
      block.each([&](int thread) { find_sums(block, p, begin, thread, taps[thread], sums, firsts, ends); });
      block.each(
          [&](int thread) { spread(block, p, begin, thread, taps[thread], gradients[thread], sums, firsts, ends); });
    }
    if (p.partial == nullptr) return;
    block.each([&](int thread) {
      for (int i = 0; i < p.width; ++i) sums[thread * p.width + i] = gradients[thread][i];
    });
    block.local([&](int thread) {
      const std::int64_t from = block.x() * kTapChannels * p.width;  // of the block's weights
      if (thread >= kTapChannels * p.width || from + thread >= p.channels * p.width) return;
      float sum = 0;
      for (int lane = 0; lane < kTapLanes; ++lane) sum += sums[lane * kTapChannels * p.width + thread];
      p.partial[block.y() * p.channels * p.width + from + thread] = sum;
    });
  }

 private:
  template <typename Block>
  RONDO_KERNEL static std::int64_t channel_of(Block& block, int thread) {
    return block.x() * kTapChannels + thread % kTapChannels;
  }
  /// The gradients of what stands before the SiLU, of the tile's tokens and of those that read them.
  template <typename Block>
  RONDO_KERNEL static void find_sums(Block& block, const ConvolutionParams& p, std::int32_t begin, int thread,
                                     Taps& taps, float* sums, const std::int32_t* firsts, const std::int32_t* ends) {
    using Real = typename WideOf<T>::Type;
    const std::int64_t channel = channel_of(block, thread);
    if (channel >= p.channels) return;
    for (int row = thread / kTapChannels; row < kTapRows + p.width - 1; row += kTapLanes) {
      const std::int32_t token = begin + row;
      float gradient = 0;
      if (firsts[row] < ends[row]) {
        const float sum = convolved<T>(p, taps, firsts[row], token, channel, [](std::int32_t) { return 0.0F; });
        const auto slope = activate(p.activation, static_cast<Real>(sum)).slope;
        const float dy = load(static_cast<const T*>(p.dy) + token * p.channels + channel);
        gradient = static_cast<float>(static_cast<Real>(dy) * slope);
      }
      sums[row * kTapChannels + thread % kTapChannels] = gradient;
    }
  }
  template <typename Block>
  RONDO_KERNEL static void spread(Block& block, const ConvolutionParams& p, std::int32_t begin, int thread, Taps& taps,
                                  Taps& gradients, const float* sums, const std::int32_t* firsts,
                                  const std::int32_t* ends) {
    const std::int64_t channel = channel_of(block, thread);
    if (channel >= p.channels) return;
    const float* const own = sums + thread % kTapChannels;
    for (int row = thread / kTapChannels; row < kTapRows && begin + row < p.tokens; row += kTapLanes) {
      const std::int32_t token = begin + row;
      float dx = 0;
      for_taps(p, token, [&](int i, std::int32_t from) {
        const int ahead = p.width - 1 - i;
        if (token + ahead < ends[row]) dx += taps[i] * own[(row + ahead) * kTapChannels];
        if (firsts[row] < ends[row] && from >= firsts[row]) {
          gradients[i] += own[row * kTapChannels] * load(static_cast<const T*>(p.x) + from * p.channels + channel);
        }
      });
      store(static_cast<T*>(p.y) + token * p.channels + channel, dx);
    }
  }
};

}  // namespace rondo::devices::cuda
