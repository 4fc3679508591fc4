// The factor by which an fp16 run multiplies the gradient of its loss, and what else a step leaves to the next ones
// beside weights.
//
// PyTorch's GradScaler: the scale halves when a gradient of a step is not finite, which is then skipped, and doubles
// after kGoodSteps others in a row. Like there it is the scale of the mean loss: gradients here are sums over a step's
// target tokens, so what multiplies is the scale over their number, that taken down to a power of two. Both are powers
// of two: multiplying and dividing by them rounds nothing that fp16 does not round anyway. At staleness 1 a step is
// begun before the one before it has ended; what it computes with then is what that one itself saw, and where its scale
// is no longer the newest it cannot halve it once more. All of it follows from steps alone, never from the pool.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace rondo::schedule {

inline constexpr double kFirstLossScale = 65536;
inline constexpr double kLargestLossScale = 0x1p24;
/// Where gradients are not finite at this scale a smaller one would not help.
inline constexpr double kLeastLossScale = 1;
inline constexpr std::uint32_t kGoodSteps = 2000;

/// After some step.
struct Course {
  std::uint64_t updates = 0;
  double loss_scale = kFirstLossScale;
  std::uint32_t good_steps = 0;  // in a row since the scale was set

  friend bool operator==(const Course&, const Course&) = default;
};

/// After the last step, and after the one before it: on which the next step computes at staleness 1. Steps without
/// targets do not count.
struct RunCourse {
  Course now;
  Course before;
};

/// What gradients of a step are multiplied by. REQUIRES: it has targets.
inline double multiplier_of(double loss_scale, std::uint64_t target_tokens) {
  return loss_scale / static_cast<double>(std::bit_floor(target_tokens));
}

/// After an update.
inline Course after_update(Course course) {
  ++course.updates;
  if (++course.good_steps < kGoodSteps) return course;
  course.loss_scale = std::max(course.loss_scale, std::min(2 * course.loss_scale, kLargestLossScale));
  course.good_steps = 0;
  return course;
}

/// After a step that was skipped because it overflowed at `loss_scale`.
inline Course after_overflow(Course course, double loss_scale) {
  course.loss_scale = std::max(kLeastLossScale, std::min(course.loss_scale, loss_scale / 2));
  course.good_steps = 0;
  return course;
}

}  // namespace rondo::schedule
