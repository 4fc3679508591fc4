// Behind vulkan_case.h.
#include "vulkan_case.h"

#include <gtest/gtest.h>

#include "patience.h"
#include "rondo/base/status.h"

namespace rondo::devices::testing {
namespace {

using std::chrono::steady_clock;

/// Waits for each piece of work before the next is enqueued.
class OneByOne {
 public:
  explicit OneByOne(std::unique_ptr<Timeline> timeline) : timeline_(std::move(timeline)) {}
  template <typename Enqueue>
  absl::Status run(Enqueue enqueue) {
    enqueue(Point{timeline_.get(), ++value_});
    return timeline_->wait(value_, test::patience());
  }

 private:
  std::unique_ptr<Timeline> timeline_;
  std::uint64_t value_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> open_card(const vulkan::CardInfo& card, bool validated,
                                                  vulkan::VulkanOptions options) {
  options.index = card.index;
  if (validated) options.on_complaint = [](const std::string& message) { ADD_FAILURE() << message; };
  return vulkan::open_vulkan(options);
}

absl::Status run_on_card(Device& device, const OpList& list, const CaseMemory& memory) {
  const ArenaLayout layout = plan_arena(list);
  RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, device.compile(list, layout));
  RONDO_ASSIGN_OR_RETURN(std::unique_ptr<Timeline> timeline, device.timeline());
  OneByOne work(std::move(timeline));
  Bindings bindings;
  bindings.layer = memory.bindings().layer;
  std::vector<Buffer> buffers;
  for (const BufferView& home : memory.bindings().tensors) {
    RONDO_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(home.size, MemoryKind::kDevice));
    RONDO_RETURN_IF_ERROR(
        work.run([&](Point done) { device.queue(QueueRole::kUp).copy(home, buffer.view(), {}, done, {"op case"}); }));
    bindings.tensors.push_back(buffer.view());
    buffers.push_back(std::move(buffer));
  }
  Buffer scratch;
  if (layout.size > 0) {
    RONDO_ASSIGN_OR_RETURN(scratch, device.allocate(layout.size, MemoryKind::kDevice));
    bindings.scratch = scratch.view();
  }
  RONDO_RETURN_IF_ERROR(
      work.run([&](Point done) { device.queue(QueueRole::kCompute).run(*program, bindings, {}, done, {"op case"}); }));
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    RONDO_RETURN_IF_ERROR(work.run([&](Point done) {
      device.queue(QueueRole::kDown).copy(buffers[i].view(), memory.bindings().tensors[i], {}, done, {"op case"});
    }));
  }
  return absl::OkStatus();
}

}  // namespace rondo::devices::testing
