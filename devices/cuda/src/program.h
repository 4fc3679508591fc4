// A compiled OpList of a card: its steps, replayed with the pointers of a run.
#pragma once

#include <memory>

#include "context.h"
#include "graphs.h"
#include "products.h"
#include "steps.h"
#include "turn.h"

namespace rondo::devices::cuda {

class CardProgram final : public Program {
 public:
  /// `graphs` may be null: then every run is sent step by step.
  CardProgram(OpList list, ArenaLayout layout, Steps steps, std::shared_ptr<Graphs> graphs)
      : list_(std::move(list)),
        layout_(std::move(layout)),
        steps_(std::move(steps)),
        graphs_(std::move(graphs)),
        number_(graphs_ != nullptr ? graphs_->add_program() : 0) {}
  ~CardProgram() override {
    if (graphs_ != nullptr) graphs_->forget(number_);
  }
  CardProgram(const CardProgram&) = delete;
  CardProgram& operator=(const CardProgram&) = delete;

  const OpList& ops() const override { return list_; }
  Bytes workspace_bytes() const { return steps_.workspace; }
  bool may_fault() const { return steps_.may_fault; }

  /// What a run is given beside its bindings.
  struct Surroundings {
    Context& context;
    ProductEngine* engine = nullptr;
    Turn turn;
    bool may_replay = false;      // the turn is of the queue whose runs become graphs
    DevicePointer workspace = 0;  // of workspace_bytes()
  };
  /// Sends the run to the turn's stream. Errors: Internal naming the tensor whose binding is wrong; the driver's.
  absl::Status enqueue(const Bindings& bindings, const Surroundings& surroundings) const;

 private:
  class Run;
  absl::Status check(const Bindings& bindings, const Context& context) const;

  const OpList list_;
  const ArenaLayout layout_;
  const Steps steps_;
  const std::shared_ptr<Graphs> graphs_;  // it may outlive the device
  const std::uint32_t number_;
};

}  // namespace rondo::devices::cuda
