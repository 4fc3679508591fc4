// Replaying: pointers into the parameters, launches into the stream.
#include "program.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rondo/base/status.h"

namespace rondo::devices::cuda {
namespace {

/// Of the types that kernels read by 16 bytes.
bool has_numbers(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBfloat16 || dtype == DType::kFloat16;
}

}  // namespace

/// One replay.
class CardProgram::Run {
 public:
  Run(const CardProgram& program, const Bindings& bindings, const Surroundings& around, DevicePointer scratch)
      : program_(program), bindings_(bindings), around_(around), scratch_(scratch) {}

  absl::Status operator()(const LaunchStep& step) const {
    alignas(16) std::array<std::byte, kMostParams> params;
    std::memcpy(params.data(), step.params.data(), step.params.size());
    for (const Patch& patch : step.patches) {
      if (patch.place.kind == Place::Kind::kLayer) {
        std::memcpy(params.data() + patch.offset, &bindings_.layer, sizeof(bindings_.layer));
        continue;
      }
      const DevicePointer address = resolve(patch.place);
      std::memcpy(params.data() + patch.offset, &address, sizeof(address));
    }
    void* arguments[] = {params.data()};
    return around_.context.check(
        driver().launch(around_.context.function(step.kernel), step.grid_x, step.grid_y, 1, step.threads, 1, 1,
                        step.shared, around_.turn.stream, arguments, nullptr),
        "cuLaunchKernel");
  }

  absl::Status operator()(const ClearStep& step) const {
    if (step.size == 0) return absl::OkStatus();
    return around_.context.check(driver().set_bytes(resolve(step.to), 0, step.size, around_.turn.stream),
                                 "cuMemsetD8Async");
  }

  absl::Status operator()(const ProductStep& step) const {
    return around_.engine->run(
        step.plan,
        {resolve(step.a), resolve(step.b), resolve(step.bias), resolve(step.addend), resolve(step.c), step.alpha},
        around_.engine_workspace, around_.turn.stream);
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

  const CardProgram& program_;
  const Bindings& bindings_;
  const Surroundings& around_;
  const DevicePointer scratch_;
};

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
    if (has_numbers(tensor.dtype) && *address % kTensorAlignment != 0) {
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
  const Run run(*this, bindings, surroundings, scratch);
  const auto send = [&]() -> absl::Status {
    for (const Step& step : steps_.steps) RONDO_RETURN_IF_ERROR(std::visit(run, step));
    return absl::OkStatus();
  };
  constexpr std::size_t kMostWords = 256;
  const std::size_t words = 1 + steps_.roots.size();
  if (graphs_ == nullptr || !surroundings.may_replay || steps_.steps.size() < 2 || words > kMostWords) return send();
  std::array<std::uint64_t, kMostWords> key;
  key[0] = surroundings.engine != nullptr ? surroundings.engine_workspace : 0;
  std::ranges::transform(steps_.roots, key.begin() + 1, [&](const Place& root) { return run.resolve(root); });
  return graphs_->run({number_, steps_.steps.size(), {key.data(), words}}, surroundings.turn, send);
}

}  // namespace rondo::devices::cuda
