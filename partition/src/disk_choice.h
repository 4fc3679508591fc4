// What goes to disk, for the files of this room.
#pragma once

#include "rondo/partition/plan.h"

namespace rondo::partition {

/// Takes the state of layer `first` and all deeper ones out of the host's table, and adds what it passes through.
void move_to_disk(const ModelShape& model, LayerIndex first, MemoryTable& table);

}  // namespace rondo::partition
