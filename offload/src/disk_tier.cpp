#include "rondo/offload/disk_tier.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"

namespace rondo::offload {
namespace {

Bytes section_bytes(std::uint64_t elements) { return round_up(elements * sizeof(float), kDiskBlock); }

}  // namespace

Bytes DiskTier::bytes_for(std::uint64_t elements, std::uint32_t arrays) {
  const std::uint64_t chunk = DiskTierOptions().chunk_elements;
  return (elements / chunk * section_bytes(chunk) + section_bytes(elements % chunk)) * arrays;
}

Bytes DiskTier::buffer_bytes(std::uint32_t arrays) {
  const DiskTierOptions defaults;
  return (section_bytes(defaults.chunk_elements) * arrays + kDiskBlock) * defaults.depth +
         section_bytes(defaults.chunk_elements) + kDiskBlock;
}

void DiskTier::cut() {
  Bytes offset = 0;
  for (std::size_t parameter = 0; parameter < options_.elements.size(); ++parameter) {
    first_piece_.push_back(pieces_.size());
    const std::uint64_t elements = options_.elements[parameter];
    for (std::uint64_t first = 0; first < elements; first += options_.chunk_elements) {
      const std::uint64_t n = std::min(options_.chunk_elements, elements - first);
      pieces_.push_back({parameter, first, n, offset, section_bytes(n)});
      offset += pieces_.back().section * options_.arrays;
    }
  }
}

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::make(const DiskTierOptions& options) {
  auto tier = std::unique_ptr<DiskTier>(new DiskTier(options));
  tier->cut();
  const Bytes size =
      tier->pieces_.empty() ? 0 : tier->pieces_.back().offset + tier->pieces_.back().section * options.arrays;
  RONDO_ASSIGN_OR_RETURN(tier->file_, ScratchFile::make(options.folder, size));
  const Bytes section = section_bytes(options.chunk_elements);
  RONDO_ASSIGN_OR_RETURN(tier->copy_, allocate_disk_buffer(section));
  const MutexLock lock(tier->mutex_);
  for (std::uint32_t i = 0; i < options.depth; ++i) {
    Slot& slot = tier->slots_.emplace_back();
    RONDO_ASSIGN_OR_RETURN(slot.memory, allocate_disk_buffer(section * options.arrays));
    slot.chunk.arrays.resize(options.arrays);
  }
  return tier;
}

DiskTier::~DiskTier() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::size_t DiskTier::piece_of(std::size_t parameter, std::uint64_t first) const {
  return first_piece_[parameter] + static_cast<std::size_t>(first / options_.chunk_elements);
}

absl::Status DiskTier::read(std::size_t parameter, std::uint32_t array, std::uint64_t first, std::span<float> to) {
  while (!to.empty()) {
    const Piece& part = pieces_[piece_of(parameter, first)];
    RONDO_RETURN_IF_ERROR(file_->read(part.offset + array * part.section, copy_.bytes.first(part.section)));
    const std::uint64_t within = first - part.first;
    const std::size_t n = std::min<std::size_t>(to.size(), part.elements - within);
    std::memcpy(to.data(), copy_.bytes.data() + within * sizeof(float), n * sizeof(float));
    to = to.subspan(n);
    first += n;
  }
  return absl::OkStatus();
}

absl::Status DiskTier::write(std::size_t parameter, std::uint32_t array, std::uint64_t first,
                             std::span<const float> from) {
  while (!from.empty()) {
    const Piece& part = pieces_[piece_of(parameter, first)];
    const Bytes offset = part.offset + array * part.section;
    const std::span<std::byte> memory = copy_.bytes.first(part.section);
    const std::uint64_t within = first - part.first;
    const std::size_t n = std::min<std::size_t>(from.size(), part.elements - within);
    if (n < part.elements) RONDO_RETURN_IF_ERROR(file_->read(offset, memory));
    std::memcpy(memory.data() + within * sizeof(float), from.data(), n * sizeof(float));
    RONDO_RETURN_IF_ERROR(file_->write(offset, memory));
    from = from.subspan(n);
    first += n;
  }
  return absl::OkStatus();
}

void DiskTier::start() {
  if (pieces_.empty() || !threads_.empty()) return;
  for (std::uint32_t i = 0; i < options_.requests; ++i) threads_.emplace_back([this] { work_loop(); });
}

/// Its slot is free, and what the pass before has made of this piece is on disk.
bool DiskTier::may_read(std::uint64_t number) const {
  if (slots_[number % slots_.size()].state != State::kFree) return false;
  return std::ranges::none_of(
      slots_, [&](const Slot& slot) { return slot.state != State::kFree && slot.number + pieces_.size() == number; });
}

/// Writing goes first: it makes room.
DiskTier::Slot* DiskTier::take_work() {
  Slot* oldest = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == State::kToWrite && (oldest == nullptr || slot.number < oldest->number)) oldest = &slot;
  }
  if (oldest != nullptr) {
    oldest->state = State::kWriting;
    return oldest;
  }
  if (!error_.ok() || !may_read(next_read_)) return nullptr;
  Slot& slot = slots_[next_read_ % slots_.size()];
  slot.number = next_read_++;
  slot.state = State::kReading;
  return &slot;
}

void DiskTier::work_loop() {
  for (;;) {
    Slot* slot = nullptr;
    bool writes = false;
    {
      const MutexLock lock(mutex_);
      while ((slot = take_work()) == nullptr) {
        if (stopping_) return;
        changed_.wait(mutex_);
      }
      writes = slot->state == State::kWriting;
      if (stopping_ && !writes) return;
    }
    const Piece& part = piece(slot->number);
    const std::span<std::byte> memory = memory_of(*slot, part);
    const absl::Status status = writes ? file_->write(part.offset, memory) : file_->read(part.offset, memory);
    if (status.ok() && !writes) {
      slot->chunk.first = part.first;
      for (std::uint32_t i = 0; i < options_.arrays; ++i) {
        slot->chunk.arrays[i] = {reinterpret_cast<float*>(memory.data() + i * part.section), part.elements};
      }
    }
    const MutexLock lock(mutex_);
    if (!status.ok() && error_.ok()) error_ = status;
    slot->state = writes ? State::kFree : State::kReady;
    changed_.notify_all();
  }
}

absl::StatusOr<const DiskTier::Chunk*> DiskTier::next() {
  const MutexLock lock(mutex_);
  Slot& slot = slots_[next_use_ % slots_.size()];
  while (error_.ok() && !(slot.state == State::kReady && slot.number == next_use_)) changed_.wait(mutex_);
  if (!error_.ok()) return error_;
  slot.state = State::kInUse;
  return &slot.chunk;
}

void DiskTier::done() {
  const MutexLock lock(mutex_);
  slots_[next_use_ % slots_.size()].state = State::kToWrite;
  ++next_use_;
  changed_.notify_all();
}

absl::Status DiskTier::drain_and_wait() {
  const MutexLock lock(mutex_);
  const auto at_rest = [](const Slot& slot) { return slot.state == State::kFree || slot.state == State::kReady; };
  while (!std::ranges::all_of(slots_, at_rest)) changed_.wait(mutex_);
  return error_;
}

absl::Status DiskTier::status() const {
  const MutexLock lock(mutex_);
  return error_;
}

}  // namespace rondo::offload
