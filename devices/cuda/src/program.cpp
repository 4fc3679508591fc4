// Replaying: pointers into the parameters, launches into the stream.
#include "program.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lanes.h"
#include "rondo/base/status.h"

namespace rondo::devices::cuda {

/// One replay.
class CardProgram::Run {
 public:
  Run(const CardProgram& program, const Bindings& bindings, const Surroundings& around, DevicePointer scratch)
      : program_(program), bindings_(bindings), around_(around), scratch_(scratch), stream_(around.turn.stream) {}

  /// All steps in their order.
  absl::Status send() {
    RONDO_RETURN_IF_ERROR(clear_gradients());
    return send(0, program_.steps_.steps.size());
  }
  /// Each op when what it meets in memory is through. REQUIRES: the turn's stream captures.
  absl::Status send_in(const LaneStreams& lanes);

  absl::Status operator()(const LaunchStep& step) const {
    alignas(16) std::array<std::byte, kMostParams> params;
    std::memcpy(params.data(), step.params.data(), step.params.size());
    for (std::size_t i = 0; i < step.patches.size(); ++i) {
      const Patch& patch = step.patches[i];
      if (bindings_.sets_gradients && step.sum == i) continue;  // null
      if (patch.place.kind == Place::Kind::kLayer) {
        std::memcpy(params.data() + patch.offset, &bindings_.layer, sizeof(bindings_.layer));
        continue;
      }
      const DevicePointer address = resolve(patch.place);
      std::memcpy(params.data() + patch.offset, &address, sizeof(address));
    }
    void* arguments[] = {params.data()};
    return around_.context.check(driver().launch(around_.context.function(step.kernel), step.grid_x, step.grid_y, 1,
                                                 step.threads, 1, 1, step.shared, stream_, arguments, nullptr),
                                 "cuLaunchKernel");
  }

  absl::Status operator()(const ClearStep& step) const {
    if (step.size == 0) return absl::OkStatus();
    return around_.context.check(driver().set_bytes(resolve(step.to), 0, step.size, stream_), "cuMemsetD8Async");
  }

  absl::Status operator()(const ProductStep& step) const {
    return around_.engine->run(
        step.plan,
        {resolve(step.a), resolve(step.b), resolve(step.bias), resolve(step.addend), resolve(step.row_scales),
         resolve(step.column_scales), resolve(step.c), step.alpha, bindings_.sets_gradients && step.sets},
        resolve(step.workspace), stream_);
  }

  std::uint64_t resolve(const Place& place) const {
    switch (place.kind) {
      case Place::Kind::kTensor: {
        if (program_.list_.tensors[place.tensor].role == TensorRole::kScratch) {
          return scratch_ + program_.layout_.offsets[place.tensor] + place.offset;
        }
        // check() has seen that it is the card's.
        const BufferView& view = bindings_.tensors[place.tensor];
        return static_cast<const CardMemory*>(view.memory)->address() + view.offset + place.offset;
      }
      case Place::Kind::kWorkspace:
        return around_.workspace + place.offset;
      case Place::Kind::kFault:
        return around_.turn.fault;
      case Place::Kind::kLayer:
        return bindings_.layer;
      case Place::Kind::kNull:
        break;
    }
    return 0;
  }

 private:
  const Driver& driver() const { return around_.context.driver(); }
  absl::Status send(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) RONDO_RETURN_IF_ERROR(std::visit(*this, program_.steps_.steps[i]));
    return absl::OkStatus();
  }
  absl::Status clear_gradients() const {
    if (!bindings_.sets_gradients) return absl::OkStatus();
    for (const ClearStep& step : program_.steps_.unset) RONDO_RETURN_IF_ERROR((*this)(step));
    return absl::OkStatus();
  }
  Piece piece_of(const OpSteps& steps) const;
  absl::Status record(EventHandle event) const {
    return around_.context.check(driver().event_record(event, stream_), "cuEventRecord");
  }
  absl::Status await(EventHandle event) const {
    return around_.context.check(driver().stream_wait(stream_, event, 0), "cuStreamWaitEvent");
  }

  const CardProgram& program_;
  const Bindings& bindings_;
  const Surroundings& around_;
  const DevicePointer scratch_;
  StreamHandle stream_;  // where steps go
};

/// By addresses, since tensors that a run is bound to may lie over each other.
Piece CardProgram::Run::piece_of(const OpSteps& steps) const {
  const OpList& list = program_.list_;
  Piece piece;
  piece.weight = steps.weight;
  const auto touch = [&](const Place& place, Bytes size, bool writes) {
    if (size > 0) piece.touches.push_back({resolve(place), size, writes});
  };
  for_touched(list, list.ops[steps.op], [&](TensorId id, bool writes) {
    touch({Place::Kind::kTensor, id, 0}, list.tensors[id].bytes(), writes);
  });
  if (steps.first) {  // its result is not written
    for (const TensorId id : list.ops[*steps.first].reads) {
      touch({Place::Kind::kTensor, id, 0}, list.tensors[id].bytes(), false);
    }
  }
  touch({Place::Kind::kWorkspace, 0, steps.workspace_begin}, steps.workspace_end - steps.workspace_begin, true);
  if (steps.may_fault) touch({Place::Kind::kFault, 0, 0}, sizeof(Fault), true);
  return piece;
}

absl::Status CardProgram::Run::send_in(const LaneStreams& lanes) {
  const Steps& steps = program_.steps_;
  std::vector<Piece> pieces;
  for (const OpSteps& op : steps.ops) pieces.push_back(piece_of(op));
  const std::vector<LaneTurn> turns = deal_to_lanes(pieces, lanes.side.size() + 1);
  const StreamHandle first = stream_;
  const EventHandle begun = lanes.events[turns.size()];
  std::array<std::size_t, kMostLanes> last;  // the piece of each lane, none so far
  last.fill(turns.size());
  RONDO_RETURN_IF_ERROR(clear_gradients());
  RONDO_RETURN_IF_ERROR(send(0, steps.ops.empty() ? steps.steps.size() : steps.ops.front().begin));
  RONDO_RETURN_IF_ERROR(record(begun));
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const LaneTurn& turn = turns[i];
    stream_ = turn.lane == 0 ? first : lanes.side[turn.lane - 1];
    // A stream captures from when it waits for one that does.
    if (turn.lane != 0 && last[turn.lane] == turns.size()) RONDO_RETURN_IF_ERROR(await(begun));
    for (const std::size_t before : turn.after) RONDO_RETURN_IF_ERROR(await(lanes.events[before]));
    RONDO_RETURN_IF_ERROR(send(steps.ops[i].begin, steps.ops[i].end));
    if (turn.awaited) RONDO_RETURN_IF_ERROR(record(lanes.events[i]));
    last[turn.lane] = i;
  }
  for (std::size_t lane = 1; lane < kMostLanes; ++lane) {
    if (last[lane] == turns.size()) continue;
    stream_ = lanes.side[lane - 1];
    if (!turns[last[lane]].awaited) RONDO_RETURN_IF_ERROR(record(lanes.events[last[lane]]));
    stream_ = first;
    RONDO_RETURN_IF_ERROR(await(lanes.events[last[lane]]));
  }
  stream_ = first;
  return absl::OkStatus();
}

absl::Status CardProgram::check(const Bindings& bindings, const Context& context) const {
  if (bindings.tensors.size() < list_.tensors.size()) {
    return internal_error("{} tensors bound, the program has {}", bindings.tensors.size(), list_.tensors.size());
  }
  if (layout_.size > 0) {
    const absl::StatusOr<DevicePointer> scratch = address_of(bindings.scratch, context);
    if (!scratch.ok()) return with_context(scratch.status(), "scratch");
    if (*scratch % kTensorAlignment != 0) {
      return internal_error("scratch lies at an address that is no multiple of {}", kTensorAlignment);
    }
    if (bindings.scratch.size < layout_.size) {
      return internal_error("scratch of {} bytes bound, the program needs {}", bindings.scratch.size, layout_.size);
    }
  }
  for (std::size_t id = 0; id < list_.tensors.size(); ++id) {
    const TensorDesc& tensor = list_.tensors[id];
    if (tensor.role == TensorRole::kScratch) continue;
    const BufferView& view = bindings.tensors[id];
    const absl::StatusOr<DevicePointer> address = address_of(view, context);
    if (!address.ok()) return with_context(address.status(), fmt::format("tensor '{}'", tensor.name));
    if (is_floating(tensor.dtype) && *address % kTensorAlignment != 0) {
      return internal_error("tensor '{}' lies at an address that is no multiple of {}", tensor.name, kTensorAlignment);
    }
    if (view.size < tensor.bytes()) {
      return internal_error("tensor '{}' is bound to {} bytes, it needs {}", tensor.name, view.size, tensor.bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status CardProgram::enqueue(const Bindings& bindings, const Surroundings& surroundings) const {
  RONDO_RETURN_IF_ERROR(check(bindings, surroundings.context));
  DevicePointer scratch = 0;
  if (layout_.size > 0) {
    RONDO_ASSIGN_OR_RETURN(scratch, address_of(bindings.scratch, surroundings.context));
  }
  Run run(*this, bindings, surroundings, scratch);
  constexpr std::size_t kMostWords = 4096;  // a layer of kMostExperts has six matrices for each
  const std::size_t words = steps_.roots.size() + 1;
  if (graphs_ == nullptr || !surroundings.may_replay || steps_.steps.size() < 2 || words > kMostWords) {
    return run.send();
  }
  std::array<std::uint64_t, kMostWords> key;
  std::ranges::transform(steps_.roots, key.begin(), [&](const Place& root) { return run.resolve(root); });
  key[words - 1] = bindings.sets_gradients ? 1 : 0;
  const std::size_t steps = steps_.steps.size() + (bindings.sets_gradients ? steps_.unset.size() : 0);
  const auto send = [&](const LaneStreams* lanes) { return lanes != nullptr ? run.send_in(*lanes) : run.send(); };
  return graphs_->run({number_, steps, {key.data(), words}}, surroundings.turn, send);
}

}  // namespace rondo::devices::cuda
