#include "rondo/offload/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "optimizer_kernels.h"
#include "rondo/base/status.h"

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

/// Of a machine that is not there. A sleep ends late by some 60 us: what is shorter is put off, and what a sleep was
/// too long is taken from the next one.
void HostOptimizer::take_time(ParameterId id) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kShortest(100);
  constexpr std::chrono::milliseconds kLate(1);

  const std::uint64_t elements = parameters_.specs()[id].elements;
  double seconds = timing_.update_seconds(static_cast<double>(elements));
  if (parameters_.on_disk(id) && timing_.disk_bandwidth > 0) {
    const std::uint32_t arrays = parameters_.dtype() == devices::DType::kFloat32 ? 2 : 3;
    const auto carried = 2.0 * static_cast<double>(DiskTier::bytes_for(elements, arrays));
    seconds = std::max(seconds, carried / timing_.disk_bandwidth);
  }
  const Clock::time_point now = Clock::now();
  if (now - busy_until_ > kLate) busy_until_ = now;
  busy_until_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (busy_until_ - now > kShortest) std::this_thread::sleep_until(busy_until_);
}

absl::Status HostOptimizer::update(ParameterId id, const StepFactors& factors, std::uint64_t version) {
  if (parameters_.phantom()) {
    take_time(id);
    return absl::OkStatus();
  }
  if (parameters_.on_disk(id)) return update_on_disk(id, factors, version);
  update_range(id,
               {0, parameters_.specs()[id].elements, parameters_.master(id).data(), parameters_.first_moment(id).data(),
                parameters_.second_moment(id).data()},
               factors, version);
  return absl::OkStatus();
}

absl::Status HostOptimizer::update_on_disk(ParameterId id, const StepFactors& factors, std::uint64_t version) {
  DiskTier& disk = *parameters_.disk();
  const bool master_in_memory = parameters_.dtype() == devices::DType::kFloat32;
  for (std::uint64_t done = 0; done < parameters_.specs()[id].elements;) {
    RONDO_ASSIGN_OR_RETURN(const DiskTier::Chunk* chunk, disk.next());
    const std::size_t moments = chunk->arrays.size() - 2;
    Range range{chunk->first, chunk->arrays[0].size(), chunk->arrays[0].data(), chunk->arrays[moments].data(),
                chunk->arrays[moments + 1].data()};
    if (master_in_memory) range.master = parameters_.master(id).data() + chunk->first;
    update_range(id, range, factors, version);
    done += range.elements;
    disk.done();
  }
  return absl::OkStatus();
}

void HostOptimizer::update_range(ParameterId id, const Range& range, const StepFactors& factors,
                                 std::uint64_t version) {
  const float* gradient = gradients_.gradient(id).data() + range.first;
  auto* published = parameters_.dtype() == devices::DType::kFloat32
                        ? nullptr
                        : reinterpret_cast<std::uint16_t*>(parameters_.published(id, version).host()) + range.first;
  // fp32 with two published versions: the master is none of them.
  const bool copies = published == nullptr && parameters_.published_versions() > 1;
  auto* copy = reinterpret_cast<float*>(parameters_.published(id, version).host()) + range.first;
  const float decay = parameters_.specs()[id].decays ? static_cast<float>(settings_.weight_decay) : 0.0F;
  const std::size_t first_block = static_cast<std::size_t>(range.first) / kUpdateBlock;
  threads_.parallel_for(static_cast<std::int64_t>((range.elements + kUpdateBlock - 1) / kUpdateBlock),
                        [&](std::int64_t task, std::uint32_t) {
                          const auto block = static_cast<std::size_t>(task);
                          const std::size_t begin = block * kUpdateBlock;
                          const std::size_t n =
                              std::min(kUpdateBlock, static_cast<std::size_t>(range.elements) - begin);
                          adamw(range.master + begin, range.first_moment + begin, range.second_moment + begin,
                                gradient + begin, published == nullptr ? nullptr : published + begin, n, factors, decay,
                                rounding_key(id, version, first_block + block));
                          if (copies) std::memcpy(copy + begin, range.master + begin, n * sizeof(float));
                        });
}

}  // namespace rondo::offload
