#include "rondo/train/host_account.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/devices/host_memory.h"
#include "rondo/offload/optimizer_state.h"
#include "rondo/schedule/batch.h"
#include "rondo/schedule/programs.h"
#include "rondo/train/calibration.h"
#include "rondo/train/weights.h"

namespace rondo::train {
namespace {

/// What a process comes to hold beside all that is planned: stacks, heaps.
constexpr Bytes kThreadsAndCaches = 640_KiB;
/// The same for each device that computes with the processor, and more where products are prepared. Seen, with the
/// above: about 1 MiB for one device, 0.2 to 0.5 for each other.
constexpr Bytes kOfDevice = 256_KiB;
constexpr Bytes kOfPreparing = 128_KiB;
/// Threads that carry over a card's link. Seen of pools of 16 and 20 cards.
constexpr Bytes kOfLink = 40_KiB;
/// oneDNN's code for fp32 products, on processors with AVX2; with AVX-512 DeviceCaps::library_bytes more.
constexpr Bytes kFloatProducts = 1536_KiB;

constexpr const char* kBesideProgram = "threads and caches";

/// Names and places of a tensor, what knows of it while a step runs, and what is put in order to write it; seen over
/// models of 384 to 6,144 tensors, full and LoRA.
constexpr Bytes kTensor = 400;
constexpr Bytes kTrainedTensor = 870;
constexpr Bytes kMoment = 330;
constexpr Bytes kWrittenTensor = 370;

/// Half a block in plans, programs' chains and what is in order to be written; seen over models of 2 to 96 small
/// blocks, full and LoRA: 17 to 22 KiB.
constexpr Bytes kLayer = 22_KiB;

/// Of what LoRA's products take: without it there are fewer of them, with experts more, whose products are prepared for
/// any number of rows, and with adapters of these still more. Seen.
Bytes of_products(const model::Architecture& model, Bytes bytes) {
  if (model.method().trains_expert_factors()) return 4 * bytes;
  if (model.config().experts) return bytes + bytes / 4;
  return model.method().lora ? bytes : bytes / 2;
}

using LayerScratch = std::vector<std::array<Bytes, 2>>;  // partition::ProcessorMemory::scratch_of_layers

/// Of the longest microbatches. Each of a layer's two is seen on a device of its own.
absl::StatusOr<LayerScratch> scratch_of_layers(const model::Architecture& model, const Loader::Lengths& lengths,
                                               devices::ThreadPool& threads) {
  std::map<std::uint32_t, std::array<Bytes, 2>> of_class;
  LayerScratch scratch;
  for (model::LayerIndex layer = 0; layer < model.layers().size(); ++layer) {
    const auto [entry, is_new] = of_class.try_emplace(model.layers()[layer].program_class);
    for (std::size_t back = 0; is_new && back < 2; ++back) {
      const Bytes before = devices::host_memory_account()[devices::kProcessorScratch].now;
      RONDO_ASSIGN_OR_RETURN(const auto pool, devices::open_pool({"cpu", ""}, threads));
      RONDO_RETURN_IF_ERROR(schedule::try_layer(*pool.front().device, model, layer, back == 1, lengths.buckets.back(),
                                                lengths.longest_sequence));
      entry->second[back] = devices::host_memory_account()[devices::kProcessorScratch].now - before;
    }
    scratch.push_back(entry->second);
  }
  return scratch;
}

/// What computing with the processor takes beside a device's memory is the host's, for each device that the plan uses,
/// and follows from the microbatches: where the processor multiplies bf16 as it is the products that are prepared, and
/// scratch, which follows from a device's layers too (`of_layers`; empty: whatever `programs` take). Looked up on a
/// device of its own. `libraries`: what is loaded once for fp32 products, whatever the number of devices; becomes what
/// is loaded for those of the run, of which some are in fp32 (`also_float`) or none.
absl::Status count_scratch(const model::Architecture& model, const Loader::Lengths& lengths,
                           const TryPrograms& programs, LayerScratch of_layers, bool also_float, Machine& machine,
                           Bytes& libraries) {
  const partition::MemoryTable before = host_account(machine);
  RONDO_ASSIGN_OR_RETURN(const auto pool, devices::open_pool({"cpu", ""}, *machine.threads));
  const std::string& kernels = pool.front().device->caps().numerics_class;
  std::vector<std::size_t> computing;
  for (std::size_t i = 0; i < machine.pool.size(); ++i) {
    const devices::DeviceCaps& caps = machine.pool[i].device->caps();
    machine.shape.devices[i].host_taken = nullptr;
    if (caps.does_arithmetic && caps.numerics_class == kernels) computing.push_back(i);
  }
  if (computing.empty()) return absl::OkStatus();
  partition::ProcessorMemory taken;
  taken.always = {{kBesideProgram, kOfDevice}};
  taken.scratch_of_layers = std::move(of_layers);
  taken.scratch_purpose = devices::kProcessorScratch;
  const devices::DeviceCaps& caps = pool.front().device->caps();
  const std::span<const std::uint32_t> buckets = lengths.buckets;
  const bool prepares =
      model.method().dtype == devices::DType::kBfloat16 && caps.multiplies_by_units(devices::DType::kBfloat16);
  // Scratch follows from the longest, what is prepared from all.
  for (const std::uint32_t tokens : buckets.last(prepares ? buckets.size() : 1)) {
    RONDO_RETURN_IF_ERROR(programs(*pool.front().device, tokens));
  }
  // Of each bucket two fifths of what was tried, where a plan keeps one kind of activations.
  const Bytes tried = devices::host_memory_account()[devices::kPrograms].peak;
  taken.always.emplace_back(devices::kPrograms, tried * 2 / 5 * buckets.size());
  if (prepares) {
    taken.always.front().second += kOfPreparing;
    libraries = also_float ? libraries : 0;
    libraries += of_products(model, caps.product_code_bytes + caps.more_product_code_bytes * (buckets.size() - 1));
  }
  for (const auto& [purpose, bytes] : host_account(machine)) {
    const auto entry = std::ranges::find(before, purpose, [](const auto& one) { return one.first; });
    const Bytes had = entry == before.end() ? 0 : entry->second;
    if (purpose == devices::kCodeOfProducts) {
      machine.shape.host_taken.emplace_back(purpose, bytes);
    } else if (bytes > had && (purpose != devices::kProcessorScratch || taken.scratch_of_layers.empty())) {
      taken.always.emplace_back(purpose, bytes - had);
    }
  }
  const auto of_each = std::make_shared<const partition::ProcessorMemory>(taken);
  taken.always.front().second += kOfLink;
  const auto of_cards = std::make_shared<const partition::ProcessorMemory>(std::move(taken));
  for (const std::size_t i : computing) {
    partition::DeviceShape& device = machine.shape.devices[i];
    device.host_taken = device.unified_memory ? of_each : of_cards;
  }
  return absl::OkStatus();
}

/// What drivers hold of main memory for the cards and for the programs of microbatches of `lengths`, and where a card
/// is a processor also what its programs work in beside its memory. Seen on the pool's own cards, which keep what was
/// made of a program: the run's are there before it is planned. Bytes of the process's growth, whatever the driver.
absl::StatusOr<Bytes> count_drivers(const Loader::Lengths& lengths, const TryPrograms& programs,
                                    const Machine& machine) {
  if (std::ranges::none_of(machine.pool, &devices::PoolMember::has_driver)) return 0;
  devices::reset_process_peak();  // gives back what is free, so that it is not what programs are made in
  const Bytes before = own_memory();
  for (const devices::PoolMember& member : machine.pool) {
    if (!member.has_driver()) continue;
    for (const std::uint32_t tokens : lengths.buckets) {
      RONDO_RETURN_IF_ERROR(programs(*member.device, tokens));
    }
  }
  devices::reset_process_peak();  // compilers take more for a moment
  const Bytes now = own_memory();
  return machine.opened_drivers + now - std::min(now, before);
}

/// What models of thousands of small tensors (experts'), or of many blocks, take beside their numbers.
Bytes of_tensors(const Config& config, const model::Architecture& model) {
  const offload::OptimizerSettings optimizer = optimizer_of(config);
  Bytes bytes = kLayer * model.layers().size();
  for (const model::Parameter& parameter : model.parameters()) {
    bytes += parameter.trained ? kTrainedTensor : kTensor;
    if (!parameter.trained) continue;
    const offload::StateLayout state = offload::state_layout(optimizer, parameter.elements());
    std::uint64_t written = 1 + config.staleness;
    for (const offload::MomentFormat moment : {state.first, state.second}) {
      if (moment == offload::MomentFormat::kNone) continue;
      bytes += kMoment;
      ++written;
    }
    bytes += kWrittenTensor * written;
  }
  return bytes;
}

/// Of the microbatches of the steps under way and of the one that is made meanwhile.
Bytes tokens_of_steps(const Config& config, const Loader::Lengths& lengths) {
  const double tokens = (2.0 + config.staleness) * config.gradient_accumulation_steps * lengths.mean;
  return static_cast<Bytes>(tokens * schedule::Microbatch::kBytesPerToken);
}

}  // namespace

Bytes own_memory() {
  const Bytes all = devices::process_memory().now;
  return all - std::min(all, devices::program_memory());
}

Bytes memory_beside_drivers(const Machine& machine) {
  const Bytes all = own_memory();
  return all - std::min(all, machine.opened_drivers);
}

partition::MemoryTable host_account(const Machine& machine) {
  partition::MemoryTable table;
  for (const auto& [purpose, use] : devices::host_memory_account()) {
    const bool of_device = std::ranges::any_of(machine.pool, [&name = purpose](const devices::PoolMember& member) {
      return member.device->caps().name == name;
    });
    if (!purpose.empty() && !of_device && use.now > 0) table.emplace_back(purpose, use.now);
  }
  return table;
}

absl::Status count_host_taken(const Config& config, const model::Architecture& model, const Loader::Lengths& lengths,
                              Bytes text_and_data, Machine& machine, const TryPrograms& programs) {
  if (machine.phantom) return absl::OkStatus();
  const auto of_steps = [&](devices::Device& device, std::uint32_t tokens) {
    return schedule::try_programs(device, model, tokens, lengths.longest_sequence);
  };
  const TryPrograms tried = programs != nullptr ? programs : of_steps;
  machine.shape.host_taken.clear();
  RONDO_ASSIGN_OR_RETURN(const Bytes drivers, count_drivers(lengths, tried, machine));
  if (drivers > 0) machine.shape.host_taken.emplace_back("drivers", drivers);
  const Bytes of_data = text_and_data + tokens_of_steps(config, lengths);
  if (of_data > 0) machine.shape.host_taken.emplace_back("tokenizer and data", of_data);
  if (const Bytes writing = written_at_once(model); writing > 0) {
    machine.shape.host_taken.emplace_back(kWriting, writing);
  }
  machine.shape.host_taken.emplace_back("names of tensors", of_tensors(config, model));
  Bytes libraries = 0;
  for (const devices::PoolMember& member : machine.pool) {
    libraries = std::max(libraries, member.device->caps().library_bytes);
  }
  libraries += kFloatProducts;
  LayerScratch scratch;
  if (programs == nullptr) {
    RONDO_ASSIGN_OR_RETURN(scratch, scratch_of_layers(model, lengths, *machine.threads));
  }
  const absl::Status counted =
      count_scratch(model, lengths, tried, std::move(scratch), chooses_codes(config), machine, libraries);
  libraries += watching_bytes(model, config.gradient_accumulation_steps, machine);
  machine.shape.host_taken.emplace_back(kBesideProgram, kThreadsAndCaches + libraries);
  return counted;
}

}  // namespace rondo::train
