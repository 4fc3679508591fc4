// A sample of numbers that come one by one, spread evenly over all that came, of bounded size.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rondo::train {

class SpreadSample {
 public:
  /// The first kMost, then each second, then each fourth, ...
  void add(double number) {
    if (seen_++ % stride_ != 0) return;
    if (kept_.size() == kMost) {
      for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
      kept_.resize(kMost / 2);
      stride_ *= 2;
      if ((seen_ - 1) % stride_ != 0) return;
    }
    kept_.push_back(number);
  }

  std::size_t seen() const { return seen_; }
  const std::vector<double>& kept() const { return kept_; }
  /// Of what was kept. REQUIRES: something was seen.
  double median() const {
    std::vector<double> numbers = kept_;
    const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
    std::nth_element(numbers.begin(), middle, numbers.end());
    return *middle;
  }

  static constexpr std::size_t kMost = 512;

 private:
  std::size_t seen_ = 0;
  std::size_t stride_ = 1;
  std::vector<double> kept_;
};

}  // namespace rondo::train
