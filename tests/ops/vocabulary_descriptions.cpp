#include "vocabulary_descriptions.h"

#include <algorithm>

#include "case_sizes.h"

namespace rondo::devices::testing {
namespace {

OpCase entropy_case(DType storage, Scale scale, bool input_gradient, bool weight_gradient, std::uint32_t tokens,
                    bool scaled = false, float cap = 0.0F) {
  Sizes s = sizes_of(scale);
  if (tokens > 0) s.tokens = tokens;
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId w = b.weight("w", {s.vocabulary, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> writes = {b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss)};
  if (input_gradient) {
    writes.push_back(b.output("dx", {s.tokens, s.hidden}));
    b.result().gradients.push_back({x, writes.back()});
  }
  if (weight_gradient) {
    writes.push_back(b.gradient("dw", {s.vocabulary, s.hidden}));
    b.result().gradients.push_back({w, writes.back()});
  }
  std::vector<TensorId> reads = {x, targets, w};
  if (scaled) reads.push_back(b.loss_scale(0.5));
  b.op(OpKind::kVocabularyLoss, reads, writes,
       VocabularyAttributes{s.vocabulary, 0, 1, input_gradient, weight_gradient, scaled, cap});
  b.result().projections = {{writes[0], writes[0]}};  // the loss itself
  b.result().reduction = std::max(s.vocabulary, static_cast<std::int64_t>(s.tokens));
  return b.result();
}

/// A vocabulary in three parts: the first by itself, the last two in one op, and the gradient of the first.
OpCase vocabulary_case(DType storage, Scale scale, bool weight_gradient, std::uint32_t tokens, bool scaled = false,
                       float cap = 0.0F) {
  Sizes s = sizes_of(scale);
  if (tokens > 0) s.tokens = tokens;
  CaseBuilder b(storage, s.tokens);
  const std::int64_t rows[3] = {s.vocabulary / 2, s.vocabulary / 4, s.vocabulary - s.vocabulary / 2 - s.vocabulary / 4};
  const Shape shape = {s.tokens, s.hidden};
  const TensorId x = b.input("x", shape);
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> w, dw;
  for (const std::int64_t part : rows) {
    w.push_back(b.weight("w", {part, s.hidden}, 2 * inverse_root(s.hidden)));
    if (!weight_gradient) continue;
    dw.push_back(b.gradient("dw", {part, s.hidden}));
    b.result().gradients.push_back({w.back(), dw.back()});
  }
  const TensorId statistics = b.saved_wide("statistics", {s.tokens, 3}), passed = b.saved("passed", shape);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId above = b.saved("dx of the parts above", shape);
  const TensorId normalisers = b.saved_wide("normalisers", {s.tokens, 2});
  const TensorId dx = b.output("dx", shape);
  VocabularyAttributes attributes{s.vocabulary, 0, 1, false, false, false, cap};
  b.op(OpKind::kVocabularyStatistics, {x, targets, w[0]}, {statistics, passed}, attributes);
  attributes = {s.vocabulary, rows[0], 2, true, weight_gradient, scaled, cap};
  std::vector<TensorId> reads = {passed, targets, w[1], w[2], statistics};
  if (scaled) reads.push_back(b.loss_scale(0.5));
  std::vector<TensorId> writes = {loss, above, normalisers};
  if (weight_gradient) writes.insert(writes.end(), {dw[1], dw[2]});
  b.op(OpKind::kVocabularyLoss, reads, writes, attributes);
  attributes = {s.vocabulary, 0, 1, true, weight_gradient, scaled, cap};
  const TensorId last = reads.back();
  reads = {passed, targets, w[0], normalisers, above};
  if (scaled) reads.push_back(last);
  writes = {dx};
  if (weight_gradient) writes.push_back(dw[0]);
  b.op(OpKind::kVocabularyGradient, reads, writes, attributes);
  b.result().gradients.push_back({x, dx});
  b.result().projections = {{loss, loss}};
  b.result().reduction = std::max(s.vocabulary, static_cast<std::int64_t>(s.tokens));
  return b.result();
}

}  // namespace

OpCase entropy_whole(DType storage, Scale scale) { return entropy_case(storage, scale, true, true, 0); }
OpCase entropy_frozen_head(DType storage, Scale scale) { return entropy_case(storage, scale, true, false, 0); }
OpCase entropy_loss(DType storage, Scale scale) { return entropy_case(storage, scale, false, false, 0); }
/// More targets than a chunk holds, the last chunk not full.
OpCase entropy_chunks(DType storage, Scale scale) {
  return entropy_case(storage, scale, true, true, scale == Scale::kOdd ? 832 : 2048);
}

/// Its finite differences are those of the loss without the scale, which the others have been held to.
OpCase entropy_scaled(DType storage, Scale scale) { return entropy_case(storage, scale, true, true, 0, true); }
/// The largest logits come near the cap.
OpCase entropy_cap(DType storage, Scale scale) { return entropy_case(storage, scale, true, true, 0, false, 8.0F); }
OpCase vocabulary_whole(DType storage, Scale scale) { return vocabulary_case(storage, scale, true, 0); }
OpCase vocabulary_frozen(DType storage, Scale scale) { return vocabulary_case(storage, scale, false, 0); }
OpCase vocabulary_chunks(DType storage, Scale scale) {
  return vocabulary_case(storage, scale, true, scale == Scale::kOdd ? 832 : 2048);
}
OpCase vocabulary_scaled(DType storage, Scale scale) { return vocabulary_case(storage, scale, true, 0, true); }
OpCase vocabulary_cap(DType storage, Scale scale) { return vocabulary_case(storage, scale, true, 0, false, 8.0F); }
/// Each of three parts by itself.
OpCase vocabulary_each(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const Shape shape = {s.tokens, s.hidden};
  const std::int64_t third = s.vocabulary / 3;
  const TensorId x = b.input("x", shape);
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  std::vector<TensorId> w, dw, statistics, dx, normalisers;
  for (std::int64_t part = 0; part < 3; ++part) {
    const Shape rows = {part == 2 ? s.vocabulary - 2 * third : third, s.hidden};
    w.push_back(b.weight("w", rows, 2 * inverse_root(s.hidden)));
    dw.push_back(b.gradient("dw", rows));
    dx.push_back(b.output("dx", shape));
    normalisers.push_back(b.saved_wide("normalisers", {s.tokens, 2}));
    statistics.push_back(b.saved_wide("statistics", {s.tokens, 3}));
    b.result().gradients.push_back({w.back(), dw.back()});
  }
  const TensorId passed = b.saved("passed", shape), again = b.saved("passed again", shape);
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const auto of = [&](std::int64_t part, bool back) {
    return VocabularyAttributes{s.vocabulary, part * third, 1, back, back};
  };
  b.op(OpKind::kVocabularyStatistics, {x, targets, w[0]}, {statistics[0], passed}, of(0, false));
  b.op(OpKind::kVocabularyStatistics, {passed, targets, w[1], statistics[0]}, {statistics[1], again}, of(1, false));
  b.op(OpKind::kVocabularyLoss, {again, targets, w[2], statistics[1]}, {loss, dx[2], normalisers[2], dw[2]},
       of(2, true));
  b.op(OpKind::kVocabularyGradient, {x, targets, w[1], normalisers[2], dx[2]}, {dx[1], normalisers[1], dw[1]},
       of(1, true));
  b.op(OpKind::kVocabularyGradient, {x, targets, w[0], normalisers[1], dx[1]}, {dx[0], dw[0]}, of(0, true));
  b.result().gradients.push_back({x, dx[0]});
  b.result().projections = {{loss, loss}};
  b.result().reduction = s.vocabulary;
  return b.result();
}
/// All parts at once, and the same without gradients.
OpCase vocabulary_at_once(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  const TensorId x = b.input("x", {s.tokens, s.hidden});
  const TensorId targets =
      b.integers("targets", BatchTensor::kTargets, some_ids(s.tokens, s.vocabulary, scale == Scale::kOdd));
  const std::int64_t half = s.vocabulary / 2;
  const TensorId low = b.weight("low", {half, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId high = b.weight("high", {s.vocabulary - half, s.hidden}, 2 * inverse_root(s.hidden));
  const TensorId loss = b.output("loss", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId alone = b.output("loss alone", {1}, DType::kFloat64, TensorRole::kLoss);
  const TensorId dx = b.output("dx", {s.tokens, s.hidden});
  b.op(OpKind::kVocabularyLoss, {x, targets, low, high}, {loss, dx}, VocabularyAttributes{s.vocabulary, 0, 2, true});
  b.op(OpKind::kVocabularyLoss, {x, targets, low, high}, {alone}, VocabularyAttributes{s.vocabulary, 0, 2});
  b.result().gradients = {{x, dx}};
  b.result().projections = {{loss, loss}};
  b.result().reduction = s.vocabulary;
  return b.result();
}

}  // namespace rondo::devices::testing
