// Mixture of experts: where tokens go, and the ways there and back.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/storage.h"
#include "prepared_op.h"
#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

/// An op with a task for each token.
class TokenOp : public PreparedOp {
 public:
  /// Of the rows of `along`, whose width says how many of them make a task.
  TokenOp(const Preparation& preparation, const TensorDesc& along)
      : op_(preparation.op),
        list_(preparation.list),
        tokens_(rows_of(along)),
        width_(columns_of(along)),
        floats_(width_) {}
  Bytes scratch_bytes(std::uint32_t members) const override {
    return static_cast<Bytes>(members) * member_floats() * sizeof(float);
  }

 protected:
  const TensorDesc& read(std::size_t i) const { return list_.tensors[op_.reads[i]]; }
  const TensorDesc& write(std::size_t i) const { return list_.tensors[op_.writes[i]]; }
  Bytes member_floats() const { return round_up(static_cast<Bytes>(floats_), 16); }

  /// fn(token, scratch): `floats_` of the thread's own.
  template <typename Function>
  void for_tokens(const RunContext& context, const Function& fn) const {
    auto* const scratch = reinterpret_cast<float*>(context.scratch);
    const std::int64_t step = task_rows(width_);
    context.pool.parallel_for(divide_up(tokens_, step), [&](std::int64_t task, std::uint32_t member) {
      for (std::int64_t t = task * step; t < std::min(tokens_, (task + 1) * step); ++t) {
        fn(t, scratch + member * member_floats());
      }
    });
  }

  const Op& op_;
  const OpList& list_;
  const std::int64_t tokens_;
  const std::int64_t width_;
  std::int64_t floats_;
};

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }

/// Turns logits into exp(logit - largest); their sum.
float exponentials(float* logits, std::int64_t count) {
  const float largest = *std::max_element(logits, logits + count);
  float sum = 0;
  for (std::int64_t e = 0; e < count; ++e) {
    logits[e] = std::exp(logits[e] - largest);
    sum += logits[e];
  }
  return sum;
}

class Route final : public TokenOp {
 public:
  explicit Route(const Preparation& preparation)
      : TokenOp(preparation, preparation.read(0)),
        choices_(columns_of(preparation.write(0))),
        attributes_(std::get<RouteAttributes>(preparation.op.attributes)) {
    if (attributes_.compares_scores()) floats_ = 2 * width_;
  }

  absl::Status run(const RunContext& context) const override {
    const auto* bounds = context.as<std::int32_t>(op_.reads[1]);
    const std::int64_t real = bounds[bounds[0] + 1];
    for_tokens(context, [&](std::int64_t token, float* logits) { choose(context, token, token < real, logits); });
    lay_out(context, real * choices_);
    return absl::OkStatus();
  }

 private:
  void choose(const RunContext& context, std::int64_t token, bool is_real, float* logits) const {
    float* shares = context.as<float>(op_.writes[0]) + token * choices_;
    auto* experts = context.as<std::int32_t>(op_.writes[1]) + token * choices_;
    if (!is_real) {
      std::fill_n(shares, choices_, 0.0F);
      std::fill_n(experts, choices_, 0);
      return;
    }
    convert_row(context.array(op_.reads[0]).at(token * width_), {logits}, width_);
    if (!attributes_.compares_scores()) choose_by(logits, experts);
    const float whole = turn_to_scores(logits);
    if (attributes_.compares_scores()) {
      float* compared = logits + width_;
      const float* bias = attributes_.has_bias ? context.as<float>(op_.reads[2]) : nullptr;
      for (std::int64_t e = 0; e < width_; ++e) compared[e] = logits[e] / whole + (bias != nullptr ? bias[e] : 0.0F);
      if (attributes_.groups > 1) mask_groups(compared);
      choose_by(compared, experts);
    }
    float sum = attributes_.normalised ? 0 : whole;
    for (std::int64_t j = 0; j < choices_; ++j) sum += attributes_.normalised ? logits[experts[j]] : 0;
    if (attributes_.normalised) sum += attributes_.added * whole;
    for (std::int64_t j = 0; j < choices_; ++j) shares[j] = attributes_.factor * (logits[experts[j]] / sum);
  }

  /// Scores are these numbers over what it returns.
  float turn_to_scores(float* logits) const {
    if (!attributes_.sigmoid) return exponentials(logits, width_);
    std::transform(logits, logits + width_, logits, sigmoid);
    return 1;
  }

  void choose_by(const float* compared, std::int32_t* experts) const {
    for (std::int64_t j = 0; j < choices_; ++j) experts[j] = best_besides(compared, experts, j);
  }

  /// The two largest of a group together.
  static float sum_of_two(const float* group, std::int64_t size) {
    float first = group[0];
    float second = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 1; i < size; ++i) {
      second = std::max(second, std::min(first, group[i]));
      first = std::max(first, group[i]);
    }
    return first + second;
  }

  /// Leaves only the experts of the chosen groups something to be compared by.
  void mask_groups(float* compared) const {
    const std::int64_t size = width_ / attributes_.groups;
    std::array<float, kMostExperts> sums{};
    for (std::int32_t g = 0; g < attributes_.groups; ++g) {
      sums[static_cast<std::size_t>(g)] = sum_of_two(compared + g * size, size);
    }
    for (std::int32_t g = 0; g < attributes_.groups; ++g) {
      std::int32_t before = 0;
      for (std::int32_t other = 0; other < attributes_.groups; ++other) {
        const float own = sums[static_cast<std::size_t>(g)];
        const float theirs = sums[static_cast<std::size_t>(other)];
        if (theirs > own || (theirs == own && other < g)) ++before;
      }
      if (before < attributes_.chosen_groups) continue;
      std::fill_n(compared + g * size, size, -std::numeric_limits<float>::infinity());
    }
  }

  /// The first of the largest numbers that are not among the `count` of `taken`.
  std::int32_t best_besides(const float* numbers, const std::int32_t* taken, std::int64_t count) const {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < width_; ++e) {
      if (best >= 0 && !(numbers[e] > numbers[best])) continue;
      if (std::find(taken, taken + count, e) == taken + count) best = e;
    }
    return best;
  }

  /// `count`: choices of real tokens.
  void lay_out(const RunContext& context, std::int64_t count) const {
    const auto* experts = context.as<std::int32_t>(op_.writes[1]);
    auto* rows = context.as<std::int32_t>(op_.writes[2]);
    auto* offsets = context.as<std::int32_t>(op_.writes[3]);
    std::array<std::int32_t, kMostExperts> next{};
    for (std::int64_t i = 0; i < count; ++i) ++next[static_cast<std::size_t>(experts[i])];
    std::int32_t first = 0;
    for (std::int64_t e = 0; e < width_; ++e) {
      offsets[e] = first;
      first += std::exchange(next[static_cast<std::size_t>(e)], first);
    }
    offsets[width_] = first;
    for (std::int64_t i = 0; i < count; ++i) rows[i] = next[static_cast<std::size_t>(experts[i])]++;
    for (std::int64_t i = count; i < tokens_ * choices_; ++i) rows[i] = static_cast<std::int32_t>(i);
  }

  const std::int64_t choices_;
  const RouteAttributes attributes_;
};

class RouteBackward final : public TokenOp {
 public:
  explicit RouteBackward(const Preparation& preparation)
      : TokenOp(preparation, preparation.read(0)),
        choices_(columns_of(preparation.read(1))),
        attributes_(std::get<RouteAttributes>(preparation.op.attributes)) {}

  absl::Status run(const RunContext& context) const override {
    for_tokens(context, [&](std::int64_t token, float* gradient) {
      const float* shares = context.as<float>(op_.reads[1]) + token * choices_;
      const auto* experts = context.as<std::int32_t>(op_.reads[2]) + token * choices_;
      const float* dshares = context.as<float>(op_.reads[3]) + token * choices_;
      float mean = 0;
      for (std::int64_t j = 0; j < choices_; ++j) mean += shares[j] * dshares[j];
      convert_row(context.array(op_.reads[0]).at(token * width_), {gradient}, width_);
      std::array<float, kMostChoices> slopes{};  // of scores, over these
      for (std::int64_t j = 0; j < choices_; ++j) {
        slopes[static_cast<std::size_t>(j)] = attributes_.sigmoid ? sigmoid(-gradient[experts[j]]) : 1.0F;
      }
      if (attributes_.normalised || attributes_.sigmoid) {
        std::fill_n(gradient, width_, 0.0F);
      } else {
        const float factor = -mean / exponentials(gradient, width_);
        for (std::int64_t e = 0; e < width_; ++e) gradient[e] *= factor;
      }
      const float common = attributes_.normalised ? mean / attributes_.factor : 0.0F;
      for (std::int64_t j = 0; j < choices_; ++j) {
        gradient[experts[j]] += shares[j] * ((dshares[j] - common) * slopes[static_cast<std::size_t>(j)]);
      }
      convert_row({gradient}, context.out(op_.writes[0]).at(token * width_), width_);
    });
    return absl::OkStatus();
  }

 private:
  const std::int64_t choices_;
  const RouteAttributes attributes_;
};

/// Few numbers: one thread has them all, chunk by chunk of tokens.
class ShareScale final : public TokenOp {
 public:
  explicit ShareScale(const Preparation& preparation) : TokenOp(preparation, preparation.read(0)) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const bool backward = op_.kind == OpKind::kShareScaleBackward;
    const auto* shares = context.as<float>(op_.reads[0]);
    const auto* experts = context.as<std::int32_t>(op_.reads[1]);
    const auto* scale = context.as<float>(op_.reads[2]);
    const float* scaled = backward ? context.as<float>(op_.reads[3]) : shares;
    auto* y = context.as<float>(op_.writes[0]);
    const std::int64_t count = tokens_ * width_;
    for (std::int64_t i = 0; i < count; ++i) y[i] = scaled[i] * scale[experts[i]];
    if (op_.writes.size() == 1) return absl::OkStatus();
    auto* gradient = context.as<float>(op_.writes[1]);
    const std::int64_t numbers = rows_of(read(2));
    for (std::int64_t first = 0; first < count; first += kTokenChunk * width_) {
      std::array<float, kMostExperts> sums{};
      for (std::int64_t i = first; i < std::min(count, first + kTokenChunk * width_); ++i) {
        sums[static_cast<std::size_t>(experts[i])] += scaled[i] * shares[i];
      }
      for (std::int64_t e = 0; e < numbers; ++e) gradient[e] += sums[static_cast<std::size_t>(e)];
    }
    return absl::OkStatus();
  }
};

class Dispatch final : public TokenOp {
 public:
  explicit Dispatch(const Preparation& preparation) : TokenOp(preparation, preparation.read(0)) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const std::int64_t choices = columns_of(read(1));
    const ConstArray x = context.array(op_.reads[0]);
    const Array y = context.out(op_.writes[0]);
    const auto* rows = context.as<std::int32_t>(op_.reads[1]);
    for_tokens(context, [&](std::int64_t token, float*) {
      for (std::int64_t j = token * choices; j < (token + 1) * choices; ++j) {
        std::memcpy(y.at(rows[j] * width_).data, x.at(token * width_).data,
                    static_cast<std::size_t>(width_ * size_of(x.storage)));
      }
    });
    return absl::OkStatus();
  }
};

class Combine final : public TokenOp {
 public:
  explicit Combine(const Preparation& preparation)
      : TokenOp(preparation, preparation.write(0)),
        attributes_(std::get<CombineAttributes>(preparation.op.attributes)) {}

  absl::Status run(const RunContext& context) const override {
    const std::int64_t choices = columns_of(read(1));
    const ConstArray x = context.array(op_.reads[0]);
    const auto* rows = context.as<std::int32_t>(op_.reads[1]);
    const float* shares = attributes_.has_shares ? context.as<float>(op_.reads[2]) : nullptr;
    Finish finish;
    finish.alpha = attributes_.alpha;
    if (attributes_.has_addend) finish.addend = context.array(op_.reads.back());
    finish.out = context.out(op_.writes[0]);
    for_tokens(context, [&](std::int64_t token, float* sum) {
      std::fill_n(sum, width_, 0.0F);
      for (std::int64_t j = token * choices; j < (token + 1) * choices; ++j) {
        add_scaled_row(x.at(rows[j] * width_), shares != nullptr ? shares[j] : 1.0F, sum, width_);
      }
      finish_tile(finish, sum, width_, token, 0, 1, width_, width_);
    });
    return absl::OkStatus();
  }

 private:
  const CombineAttributes attributes_;
};

class CombineBackward final : public TokenOp {
 public:
  explicit CombineBackward(const Preparation& preparation)
      : TokenOp(preparation, preparation.read(0)),
        alpha_(std::get<CombineAttributes>(preparation.op.attributes).alpha) {}
  Bytes scratch_bytes(std::uint32_t) const override { return 0; }

  absl::Status run(const RunContext& context) const override {
    const std::int64_t choices = columns_of(read(2));
    const ConstArray dy = context.array(op_.reads[0]);
    const ConstArray x = context.array(op_.reads[1]);
    const auto* rows = context.as<std::int32_t>(op_.reads[2]);
    const auto* shares = context.as<float>(op_.reads[3]);
    const Array dx = context.out(op_.writes[0]);
    auto* dshares = context.as<float>(op_.writes[1]);
    for_tokens(context, [&](std::int64_t token, float*) {
      const ConstArray row = dy.at(token * width_);
      for (std::int64_t j = token * choices; j < (token + 1) * choices; ++j) {
        convert_row(row, dx.at(rows[j] * width_), width_, alpha_ * shares[j]);
        dshares[j] = alpha_ * dot_of_rows(row, x.at(rows[j] * width_), width_);
      }
    });
    return absl::OkStatus();
  }

 private:
  const float alpha_;
};

/// A task for some rows, which find their expert.
class GroupedBias final : public TokenOp {
 public:
  explicit GroupedBias(const Preparation& preparation) : TokenOp(preparation, preparation.read(0)) {}

  absl::Status run(const RunContext& context) const override {
    const ConstArray x = context.array(op_.reads[0]);
    const auto* offsets = context.as<std::int32_t>(op_.reads[1]);
    const auto* end = offsets + rows_of(read(2)) + 1;
    const Array y = context.out(op_.writes[0]);
    Finish finish;
    finish.out = y;
    for_tokens(context, [&](std::int64_t row, float* sum) {
      const auto* behind = std::upper_bound(offsets, end, row);
      if (behind == end) {
        std::memset(y.at(row * width_).data, 0, static_cast<std::size_t>(width_ * size_of(y.storage)));
        return;
      }
      convert_row(x.at(row * width_), {sum}, width_);
      Finish biased = finish;
      biased.bias = context.array(op_.reads[2]).at((behind - offsets - 1) * width_);
      finish_tile(biased, sum, width_, row, 0, 1, width_, width_);
    });
    return absl::OkStatus();
  }
};

/// A task for some columns of an expert.
class GroupedBiasGradient final : public TokenOp {
 public:
  explicit GroupedBiasGradient(const Preparation& preparation) : TokenOp(preparation, preparation.read(0)) {}

  absl::Status run(const RunContext& context) const override {
    const ConstArray dy = context.array(op_.reads[0]);
    const auto* offsets = context.as<std::int32_t>(op_.reads[1]);
    auto* const gradient = context.as<float>(op_.writes[0]);
    auto* const scratch = reinterpret_cast<float*>(context.scratch);
    const std::int64_t blocks = divide_up(width_, kBlock);
    context.pool.parallel_for(rows_of(write(0)) * blocks, [&](std::int64_t task, std::uint32_t member) {
      const std::int64_t expert = task / blocks;
      const std::int64_t first = task % blocks * kBlock;
      const std::int64_t columns = std::min(kBlock, width_ - first);
      float* sum = scratch + member * member_floats();
      for (std::int64_t row = offsets[expert]; row < offsets[expert + 1]; row += kTokenChunk) {
        std::fill_n(sum, columns, 0.0F);
        for (std::int64_t r = row; r < std::min<std::int64_t>(offsets[expert + 1], row + kTokenChunk); ++r) {
          add_row(dy.at(r * width_ + first), sum, columns);
        }
        add_row({sum}, gradient + expert * width_ + first, columns);
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr std::int64_t kBlock = 512;
};

}  // namespace

PreparedOr prepare_route_op(const Preparation& preparation) {
  switch (preparation.op.kind) {
    case OpKind::kRoute:
      return std::make_unique<Route>(preparation);
    case OpKind::kRouteBackward:
      return std::make_unique<RouteBackward>(preparation);
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
      return std::make_unique<ShareScale>(preparation);
    case OpKind::kDispatch:
      return std::make_unique<Dispatch>(preparation);
    case OpKind::kCombine:
      return std::make_unique<Combine>(preparation);
    case OpKind::kGroupedBias:
      return std::make_unique<GroupedBias>(preparation);
    case OpKind::kGroupedBiasGradient:
      return std::make_unique<GroupedBiasGradient>(preparation);
    default:
      return std::make_unique<CombineBackward>(preparation);
  }
}

}  // namespace rondo::devices::cpu
