// From an architecture to the plain numbers that the partitioner works on.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rondo/devices/device.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/gradient_home.h"
#include "rondo/offload/parameter_store.h"
#include "rondo/partition/plan.h"
#include "rondo/transfer/engine.h"

namespace rondo::schedule {

/// `tokens`: of the longest microbatch (its bucket is taken); `sequence_length`: of its sequences, for attention's
/// costs; `staleness`: 1 takes weights and gradients of two steps on the host; `optimizer`: for what it keeps of
/// trained parameters; `buckets`: of the other microbatches, whose programs use the same arenas.
partition::ModelShape describe_model(const model::Architecture& model, std::uint32_t tokens,
                                     std::uint32_t sequence_length, std::uint32_t staleness = 0,
                                     const offload::OptimizerSettings& optimizer = {},
                                     const std::vector<std::uint32_t>& buckets = {});

partition::Workload describe_workload(const model::Architecture& model, std::uint32_t tokens, double mean_tokens,
                                      std::uint32_t microbatches, std::uint32_t reduction_group);

/// An update of a piece of what a model trains, as a device that holds the state runs it: what its rate is measured
/// with. Empty for moments in codes, which are taken for as fast as memory, and for optimizers that devices do not
/// have.
devices::OpList update_probe(const model::Architecture& model, const offload::OptimizerSettings& optimizer);

/// Trained parameters as they are updated: from the shallowest layer on, a tied one with its first use.
std::vector<model::ParameterId> update_order(const model::Architecture& model);
/// Of these, the ones whose state the plan keeps on disk.
std::vector<model::ParameterId> parameters_on_disk(const model::Architecture& model, const partition::Plan& plan);

/// The rows that a layer uses of a parameter, of a view of all its elements.
devices::BufferView rows_of(const model::Architecture& model, const model::ParameterUse& use,
                            devices::BufferView whole);

/// Parameters in the order of model.parameters().
std::vector<offload::ParameterSpec> parameter_specs(const model::Architecture& model,
                                                    const offload::OptimizerSettings& optimizer = {});
/// Of the trained ones.
std::vector<offload::GradientSpec> gradient_specs(const model::Architecture& model);

/// Threads that keep up with a link of so many bytes a second, a quarter of the processors at most.
std::uint32_t copiers_for(double bytes_per_second, std::uint32_t processors);

/// Whether a pool of so many goes on when it loses one.
constexpr bool can_recover(std::size_t devices) { return devices > 1; }

/// How the executor moves bytes to and from a device. `recovers`: the run goes on when the device is lost; `longest`:
/// of the transfers, up and down.
transfer::EngineOptions link_options(const devices::DeviceProfile& profile, bool recovers, bool verifies,
                                     const std::array<Bytes, 2>& longest);

/// Bytes of one parameter's weights as they lie on a device.
Bytes device_bytes(const model::Architecture& model, const model::ParameterUse& use);

}  // namespace rondo::schedule
