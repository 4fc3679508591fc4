#include "rondo/offload/packed_memory.h"

#include <map>

#include "rondo/base/status.h"

namespace rondo::offload {

std::size_t PackedMemory::add(std::uint32_t group, Bytes size) {
  things_.push_back({group, size, 0, 0});
  return things_.size() - 1;
}

absl::Status PackedMemory::allocate(const char* purpose, bool phantom) {
  std::vector<Bytes> sizes;                     // of buffers
  std::map<std::uint32_t, std::size_t> shared;  // by group
  for (Thing& thing : things_) {
    thing.buffer = sizes.size();
    if (thing.size > kLongest) {
      sizes.push_back(thing.size);
      continue;
    }
    const auto [place, fresh] = shared.emplace(thing.group, thing.buffer);
    if (fresh) sizes.push_back(0);
    thing.buffer = place->second;
    thing.offset = round_up(sizes[thing.buffer], kAlignment);
    sizes[thing.buffer] = thing.offset + thing.size;
  }
  for (const Bytes size : sizes) {
    if (phantom) {
      buffers_.push_back(devices::phantom_host(size));
      continue;
    }
    RONDO_ASSIGN_OR_RETURN(buffers_.emplace_back(), devices::allocate_host_pages(size, purpose));
  }
  return absl::OkStatus();
}

devices::BufferView PackedMemory::view(std::size_t thing) const {
  const Thing& one = things_[thing];
  return buffers_[one.buffer].view().part(one.offset, one.size);
}

bool follows(devices::BufferView view, devices::BufferView next) {
  return view.memory != nullptr && view.memory == next.memory &&
         next.offset == round_up(view.offset + view.size, PackedMemory::kAlignment);
}

devices::BufferView joined(devices::BufferView view, devices::BufferView next) {
  return {view.memory, view.offset, next.offset + next.size - view.offset};
}

}  // namespace rondo::offload
