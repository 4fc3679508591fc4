#include "rondo/offload/optimizer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "rondo/base/status.h"

namespace rondo::offload {
namespace {

using devices::adamw;
using devices::kUpdateBlock;
using devices::UpdateArrays;

using Kernel = void (*)(const UpdateArrays&, std::size_t, const StepFactors&, std::uint32_t);

Kernel kernel_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd:
      return devices::sgd;
    case OptimizerKind::kLion:
      return devices::lion;
    case OptimizerKind::kAdamW:
    case OptimizerKind::kAdamW8Bit:
      return adamw;
  }
  return adamw;
}

/// Of a range's moments in codes, as moment_bytes() lays them out: where those from an element on lie.
devices::CodedMoments coded_from(std::byte* first, std::byte* second, std::uint64_t elements, std::size_t begin) {
  devices::CodedMoments moments;
  std::byte* const arrays[] = {first, second};
  for (const std::size_t i : {0U, 1U}) {
    moments.codes[i] = reinterpret_cast<std::uint8_t*>(arrays[i]) + begin;
    moments.scales[i] = reinterpret_cast<float*>(arrays[i] + round_up(elements, 4)) + begin / kMomentBlock;
  }
  return moments;
}

}  // namespace

StateLayout state_layout(const OptimizerSettings& settings, std::uint64_t elements) {
  switch (settings.kind) {
    case OptimizerKind::kSgd:
      return {settings.momentum > 0 ? MomentFormat::kFloat32 : MomentFormat::kNone, MomentFormat::kNone};
    case OptimizerKind::kLion:
      return {MomentFormat::kFloat32, MomentFormat::kNone};
    case OptimizerKind::kAdamW8Bit:
      if (elements >= kLeastBlocks8) return {MomentFormat::kBlocks8, MomentFormat::kBlocks8};
      break;
    case OptimizerKind::kAdamW:
      break;
  }
  return {};
}

std::vector<MomentFormat> disk_arrays(const StateLayout& state, bool separate_master) {
  std::vector<MomentFormat> arrays;
  if (separate_master) arrays.push_back(MomentFormat::kFloat32);
  for (const MomentFormat format : {state.first, state.second}) {
    if (format != MomentFormat::kNone) arrays.push_back(format);
  }
  return arrays;
}

StepFactors make_factors(const OptimizerSettings& settings, double learning_rate, std::uint64_t update,
                         double gradient_factor) {
  const auto t = static_cast<double>(update);
  StepFactors factors;
  factors.gradient_factor = static_cast<float>(gradient_factor);
  factors.learning_rate = static_cast<float>(learning_rate);
  factors.beta1 = static_cast<float>(settings.beta1);
  factors.beta2 = static_cast<float>(settings.beta2);
  factors.rest1 = static_cast<float>(1.0 - settings.beta1);
  factors.rest2 = static_cast<float>(1.0 - settings.beta2);
  factors.epsilon = static_cast<float>(settings.epsilon);
  factors.step_size = static_cast<float>(learning_rate / (1.0 - std::pow(settings.beta1, t)));
  factors.inverse_correction2 = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t)));
  factors.momentum = static_cast<float>(settings.momentum);
  return factors;
}

StepFactors factors_of(const ParameterSpec& parameter, const OptimizerSettings& settings, const StepFactors& shared) {
  return shared.of_parameter(parameter.rate_factor,
                             parameter.decays ? static_cast<float>(settings.weight_decay) : 0.0F);
}

HostOptimizer::HostOptimizer(const OptimizerSettings& settings, ParameterStore& parameters, GradientHome& gradients,
                             devices::ThreadPool& threads, const devices::HostProfile& timing)
    : settings_(settings), parameters_(parameters), gradients_(gradients), threads_(threads), timing_(timing) {}

/// Of a machine that is not there. A sleep ends late by some 60 us: what is shorter is put off, and what a sleep was
/// too long is taken from the next one.
void HostOptimizer::take_time(ParameterId id) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kShortest(100);
  constexpr std::chrono::milliseconds kLate(1);

  const ParameterSpec& spec = parameters_.specs()[id];
  double seconds = timing_.update_seconds(static_cast<double>(spec.elements));
  if (parameters_.on_disk(id) && timing_.disk_bandwidth > 0) {
    const auto arrays = disk_arrays(spec.state, parameters_.dtype() != devices::DType::kFloat32);
    const auto carried = 2.0 * static_cast<double>(DiskTier::bytes_for(spec.elements, arrays));
    seconds = std::max(seconds, carried / timing_.disk_bandwidth);
  }
  const Clock::time_point now = Clock::now();
  if (now - busy_until_ > kLate) busy_until_ = now;
  busy_until_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  if (busy_until_ - now > kShortest) std::this_thread::sleep_until(busy_until_);
}

absl::Status HostOptimizer::update(ParameterId id, const StepFactors& shared, std::uint64_t version) {
  if (parameters_.phantom()) {
    take_time(id);
    return absl::OkStatus();
  }
  const ParameterSpec& spec = parameters_.specs()[id];
  const StepFactors factors = factors_of(spec, settings_, shared);
  if (parameters_.on_disk(id)) return update_on_disk(id, factors, version);
  update_range(id,
               {0, spec.elements, parameters_.master(id).data(), parameters_.state(id, StateArray::kFirstMoment).data(),
                parameters_.state(id, StateArray::kSecondMoment).data()},
               factors, version);
  return absl::OkStatus();
}

absl::Status HostOptimizer::update_on_disk(ParameterId id, const StepFactors& factors, std::uint64_t version) {
  DiskTier& disk = *parameters_.disk();
  const auto at = [&](StateArray which) { return parameters_.disk_array(id, which); };
  for (std::uint64_t done = 0; done < parameters_.specs()[id].elements;) {
    RONDO_ASSIGN_OR_RETURN(const DiskTier::Chunk* chunk, disk.next());
    const auto place = [&](StateArray which) {
      return at(which) < 0 ? nullptr : chunk->arrays[static_cast<std::size_t>(at(which))].data();
    };
    Range range{chunk->first, chunk->elements, reinterpret_cast<float*>(place(StateArray::kMaster)),
                place(StateArray::kFirstMoment), place(StateArray::kSecondMoment)};
    if (range.master == nullptr) range.master = parameters_.master(id).data() + chunk->first;
    update_range(id, range, factors, version);
    done += range.elements;
    disk.done();
  }
  return absl::OkStatus();
}

void HostOptimizer::update_range(ParameterId id, const Range& range, const StepFactors& factors,
                                 std::uint64_t version) {
  const ParameterSpec& spec = parameters_.specs()[id];
  const float* gradient = gradients_.gradient(id).data() + range.first;
  auto* published = parameters_.dtype_of(id) == devices::DType::kFloat32
                        ? nullptr
                        : reinterpret_cast<std::uint16_t*>(parameters_.published(id, version).host()) + range.first;
  // In fp32 the master is what is published, unless two versions are, or the others' masters lie apart.
  const bool apart = parameters_.published_versions() > 1 || parameters_.dtype() != devices::DType::kFloat32;
  const bool copies = published == nullptr && apart;
  auto* copy = reinterpret_cast<float*>(parameters_.published(id, version).host()) + range.first;
  const std::size_t first_block = static_cast<std::size_t>(range.first) / kUpdateBlock;
  const bool coded = spec.state.first == MomentFormat::kBlocks8;
  const std::uint64_t version_key = devices::version_key(id, version);
  const Kernel kernel = kernel_of(settings_.kind);
  const auto moment = [](std::byte* array, std::size_t begin) {
    return array == nullptr ? nullptr : reinterpret_cast<float*>(array) + begin;
  };
  threads_.parallel_for(
      static_cast<std::int64_t>((range.elements + kUpdateBlock - 1) / kUpdateBlock),
      [&](std::int64_t task, std::uint32_t) {
        const auto block = static_cast<std::size_t>(task);
        const std::size_t begin = block * kUpdateBlock;
        const std::size_t n = std::min(kUpdateBlock, static_cast<std::size_t>(range.elements) - begin);
        const std::uint32_t key = devices::rounding_key(version_key, first_block + block);
        UpdateArrays arrays;
        arrays.master = range.master + begin;
        arrays.gradient = gradient + begin;
        if (published != nullptr) arrays.published = published + begin;
        arrays.narrow = devices::narrow_of(parameters_.dtype());
        if (coded) {
          devices::adamw_coded(arrays, coded_from(range.first_moment, range.second_moment, range.elements, begin), n,
                               factors, key);
        } else {
          arrays.first = moment(range.first_moment, begin);
          arrays.second = moment(range.second_moment, begin);
          kernel(arrays, n, factors, key);
        }
        if (copies) std::memcpy(copy + begin, range.master + begin, n * sizeof(float));
      });
}

}  // namespace rondo::offload
