// A compiled OpList of a card: its steps, replayed with the pointers of a run.
#pragma once

#include <memory>

#include "context.h"
#include "products.h"
#include "steps.h"

namespace rondo::devices::cuda {

class CardProgram final : public Program {
 public:
  CardProgram(OpList list, ArenaLayout layout, Steps steps)
      : list_(std::move(list)), layout_(std::move(layout)), steps_(std::move(steps)) {}

  const OpList& ops() const override { return list_; }
  Bytes workspace_bytes() const { return steps_.workspace; }
  bool may_fault() const { return steps_.may_fault; }

  /// What a run is given beside its bindings.
  struct Surroundings {
    Context& context;
    ProductEngine* engine = nullptr;
    StreamHandle stream = nullptr;
    DevicePointer workspace = 0;         // of workspace_bytes()
    DevicePointer engine_workspace = 0;  // of the engine's workspace_bytes()
    DevicePointer fault = 0;             // a record that is left to its run
  };
  /// Sends the steps to the stream. Errors: Internal naming the tensor whose binding is wrong; the driver's.
  absl::Status enqueue(const Bindings& bindings, const Surroundings& surroundings) const;

 private:
  class Run;
  absl::Status check(const Bindings& bindings, const Context& context) const;

  const OpList list_;
  const ArenaLayout layout_;
  const Steps steps_;
};

}  // namespace rondo::devices::cuda
