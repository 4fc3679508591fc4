#include "rondo/offload/disk_tier.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/base/thread.h"

namespace rondo::offload {
namespace {

Bytes section_bytes(MomentFormat format, std::uint64_t elements) {
  return round_up(moment_bytes(format, elements), kDiskBlock);
}

Bytes sections_bytes(const std::vector<MomentFormat>& arrays, std::uint64_t elements) {
  Bytes bytes = 0;
  for (const MomentFormat format : arrays) bytes += section_bytes(format, elements);
  return bytes;
}

}  // namespace

Bytes DiskTier::bytes_for(std::uint64_t elements, const std::vector<MomentFormat>& arrays) {
  const std::uint64_t chunk = DiskTierOptions().chunk_elements;
  return elements / chunk * sections_bytes(arrays, chunk) + sections_bytes(arrays, elements % chunk);
}

Bytes DiskTier::buffer_bytes(const std::vector<MomentFormat>& arrays) {
  const DiskTierOptions defaults;
  return (sections_bytes(arrays, defaults.chunk_elements) + kDiskBlock) * defaults.depth +
         section_bytes(MomentFormat::kFloat32, defaults.chunk_elements) + kDiskBlock;
}

void DiskTier::cut() {
  Bytes offset = 0;
  for (std::size_t parameter = 0; parameter < options_.elements.size(); ++parameter) {
    first_piece_.push_back(pieces_.size());
    const std::uint64_t elements = options_.elements[parameter];
    for (std::uint64_t first = 0; first < elements; first += options_.chunk_elements) {
      const std::uint64_t n = std::min(options_.chunk_elements, elements - first);
      pieces_.push_back({parameter, first, n, offset, sections_bytes(options_.arrays[parameter], n)});
      offset += pieces_.back().size;
    }
  }
}

Bytes DiskTier::offset_of(const Piece& piece, std::size_t array) const {
  const std::vector<MomentFormat>& arrays = options_.arrays[piece.parameter];
  return sections_bytes({arrays.begin(), arrays.begin() + static_cast<std::ptrdiff_t>(array)}, piece.elements);
}

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::make(const DiskTierOptions& options) {
  auto tier = std::unique_ptr<DiskTier>(new DiskTier(options));
  tier->cut();
  const Bytes size = tier->pieces_.empty() ? 0 : tier->pieces_.back().offset + tier->pieces_.back().size;
  RONDO_ASSIGN_OR_RETURN(tier->file_, ScratchFile::make(options.folder, size));
  RONDO_ASSIGN_OR_RETURN(tier->copy_,
                         allocate_disk_buffer(section_bytes(MomentFormat::kFloat32, options.chunk_elements)));
  Bytes largest = 0;
  std::size_t most = 0;
  for (const std::vector<MomentFormat>& arrays : options.arrays) {
    largest = std::max(largest, sections_bytes(arrays, options.chunk_elements));
    most = std::max(most, arrays.size());
  }
  const MutexLock lock(tier->mutex_);
  for (std::uint32_t i = 0; i < options.depth; ++i) {
    Slot& slot = tier->slots_.emplace_back();
    RONDO_ASSIGN_OR_RETURN(slot.memory, allocate_disk_buffer(largest));
    slot.chunk.arrays.reserve(most);
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

std::span<std::byte> DiskTier::section_of(const Piece& piece, std::uint32_t array) const {
  return copy_.bytes.first(section_bytes(options_.arrays[piece.parameter][array], piece.elements));
}

absl::Status DiskTier::read_piece(const Piece& piece, std::uint32_t array) {
  return file_->read(piece.offset + offset_of(piece, array), section_of(piece, array));
}

absl::Status DiskTier::write_piece(const Piece& piece, std::uint32_t array) {
  return file_->write(piece.offset + offset_of(piece, array), section_of(piece, array));
}

absl::Status DiskTier::write(std::size_t parameter, std::uint32_t array, std::uint64_t first,
                             std::span<const float> from) {
  while (!from.empty()) {
    const Piece& part = pieces_[piece_of(parameter, first)];
    const std::uint64_t within = first - part.first;
    const std::size_t n = std::min<std::size_t>(from.size(), part.elements - within);
    if (n < part.elements) RONDO_RETURN_IF_ERROR(read_piece(part, array));
    std::memcpy(copy_.bytes.data() + within * sizeof(float), from.data(), n * sizeof(float));
    RONDO_RETURN_IF_ERROR(write_piece(part, array));
    from = from.subspan(n);
    first += n;
  }
  return absl::OkStatus();
}

std::vector<DiskTier::Part> DiskTier::parts_of(const Piece& piece, MomentFormat format) const {
  if (format != MomentFormat::kBlocks8) {
    return {{0, piece.first * sizeof(float), piece.elements * sizeof(float)}};
  }
  const Bytes codes = round_up(piece.elements, 4);
  const Bytes scales = moment_bytes(format, piece.elements) - codes;
  const Bytes all_codes = round_up(options_.elements[piece.parameter], 4);
  return {{0, piece.first, piece.elements}, {codes, all_codes + piece.first / kMomentBlock * sizeof(float), scales}};
}

absl::Status DiskTier::read(std::size_t parameter, std::uint32_t array, Bytes first, std::span<std::byte> to) {
  const MomentFormat format = options_.arrays[parameter][array];
  for (std::size_t i = first_piece_[parameter]; i < pieces_.size() && pieces_[i].parameter == parameter; ++i) {
    bool here = false;  // the piece, in copy_
    for (const Part& part : parts_of(pieces_[i], format)) {
      const Bytes begin = std::max(part.in_whole, first);
      const Bytes end = std::min(part.in_whole + part.size, first + to.size());
      if (begin >= end) continue;
      if (!std::exchange(here, true)) RONDO_RETURN_IF_ERROR(read_piece(pieces_[i], array));
      std::memcpy(to.data() + (begin - first), copy_.bytes.data() + part.in_piece + (begin - part.in_whole),
                  end - begin);
    }
  }
  return absl::OkStatus();
}

absl::Status DiskTier::write_whole(std::size_t parameter, std::uint32_t array, std::span<const std::byte> from) {
  const MomentFormat format = options_.arrays[parameter][array];
  for (std::size_t i = first_piece_[parameter]; i < pieces_.size() && pieces_[i].parameter == parameter; ++i) {
    for (const Part& part : parts_of(pieces_[i], format)) {
      std::memcpy(copy_.bytes.data() + part.in_piece, from.data() + part.in_whole, part.size);
    }
    RONDO_RETURN_IF_ERROR(write_piece(pieces_[i], array));
  }
  return absl::OkStatus();
}

absl::Status DiskTier::start() {
  if (pieces_.empty() || !threads_.empty()) return absl::OkStatus();
  for (std::uint32_t i = 0; i < options_.requests; ++i) {
    RONDO_ASSIGN_OR_RETURN(std::thread thread, start_thread("the optimizer's state on disk", [this] { work_loop(); }));
    threads_.push_back(std::move(thread));
  }
  return absl::OkStatus();
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
    const std::span<std::byte> memory = slot->memory.bytes.first(part.size);
    const absl::Status status = writes ? file_->write(part.offset, memory) : file_->read(part.offset, memory);
    if (status.ok() && !writes) {
      slot->chunk.first = part.first;
      slot->chunk.elements = part.elements;
      slot->chunk.arrays.clear();
      Bytes offset = 0;
      for (const MomentFormat format : options_.arrays[part.parameter]) {
        slot->chunk.arrays.push_back(memory.subspan(offset, moment_bytes(format, part.elements)));
        offset += section_bytes(format, part.elements);
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
