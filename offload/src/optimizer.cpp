#include "rondo/offload/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "optimizer_kernels.h"

namespace rondo::offload {

StepFactors make_factors(const AdamWSettings& settings, double learning_rate, std::uint64_t update,
                         double gradient_factor) {
  const auto t = static_cast<double>(update);
  StepFactors factors;
  factors.gradient_factor = static_cast<float>(gradient_factor);
  factors.learning_rate = static_cast<float>(learning_rate);
  factors.beta2 = static_cast<float>(settings.beta2);
  factors.rest1 = static_cast<float>(1.0 - settings.beta1);
  factors.rest2 = static_cast<float>(1.0 - settings.beta2);
  factors.epsilon = static_cast<float>(settings.epsilon);
  factors.step_size = static_cast<float>(learning_rate / (1.0 - std::pow(settings.beta1, t)));
  factors.inverse_correction2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t)));
  return factors;
}

HostOptimizer::HostOptimizer(const AdamWSettings& settings, ParameterStore& parameters, GradientHome& gradients,
                             devices::ThreadPool& threads, const devices::HostProfile& timing)
    : settings_(settings), parameters_(parameters), gradients_(gradients), threads_(threads), timing_(timing) {}

void HostOptimizer::update(ParameterId id, const StepFactors& factors, std::uint64_t version) {
  const ParameterSpec& spec = parameters_.specs()[id];
  if (parameters_.phantom()) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(timing_.update_seconds(static_cast<double>(spec.elements))));
    return;
  }
  const std::span<const float> gradient = gradients_.gradient(id);
  float* master = parameters_.master(id).data();
  float* first = parameters_.first_moment(id).data();
  float* second = parameters_.second_moment(id).data();
  auto* published = parameters_.dtype() == devices::DType::kFloat32
                        ? nullptr
                        : reinterpret_cast<std::uint16_t*>(parameters_.published(id).host());
  const float decay = spec.decays ? static_cast<float>(settings_.weight_decay) : 0.0F;
  threads_.parallel_for(static_cast<std::int64_t>((spec.elements + kUpdateBlock - 1) / kUpdateBlock),
                        [&](std::int64_t task, std::uint32_t) {
                          const auto block = static_cast<std::size_t>(task);
                          const std::size_t begin = block * kUpdateBlock;
                          const std::size_t n = std::min(kUpdateBlock, static_cast<std::size_t>(spec.elements) - begin);
                          adamw(master + begin, first + begin, second + begin, gradient.data() + begin,
                                published == nullptr ? nullptr : published + begin, n, factors, decay,
                                rounding_key(id, version, block));
                        });
}

}  // namespace rondo::offload
