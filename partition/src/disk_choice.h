// What goes to disk, for the files of this room.
#pragma once

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Takes the state of layer `first` and all deeper ones out of the host's table, and adds what it passes through.
void move_to_disk(const ModelShape& model, LayerIndex first, MemoryTable& table);

/// What a plan asks of the host when as much of it as helps lies on the disk: a smaller budget finds no choice that
/// fits. `host`: as of choose_disk().
Bytes least_host_bytes(const ModelShape& model, const Workload& work, const MachineShape& machine,
                       const std::vector<Slot>& slots, const std::vector<Round>& rounds, const MemoryTable& host);

}  // namespace rondo::partition
