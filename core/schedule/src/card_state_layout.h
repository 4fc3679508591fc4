// Where the state of what is trained lies on a device that holds it: in chunks of flat arrays, in which each parameter
// begins a block of devices::kUpdateBlock elements, so that one op updates all of a chunk. A chunk's moments are all
// codes or all numbers. Arrays lie in blocks of memory that are no larger than a device gives at once; how many bytes
// they take together does not depend on that.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rondo/devices/moment_tables.h"
#include "rondo/devices/update_block.h"
#include "rondo/model/architecture.h"
#include "rondo/offload/optimizer_state.h"

namespace rondo::schedule {

class CardStateLayout {
 public:
  /// `optimizer`: AdamW, with moments in fp32 or in codes. `most_at_once`: what a block of memory may have, where no
  /// array alone has more.
  CardStateLayout(const model::Architecture& model, const offload::OptimizerSettings& optimizer,
                  Bytes most_at_once = ~Bytes{0});

  static constexpr std::uint64_t kBlock = devices::kUpdateBlock;

  struct Entry {
    model::ParameterId id = 0;
    std::size_t chunk = 0;
    std::uint64_t first = 0;        // element of the chunk's arrays
    std::uint64_t first_block = 0;  // of all
    std::uint64_t elements = 0;
    std::uint64_t blocks = 0;
  };
  /// In the order of updates.
  const std::vector<Entry>& entries() const { return entries_; }

  struct Chunk {
    bool coded = false;             // moments
    std::uint64_t first_block = 0;  // of all
    std::uint64_t blocks = 0;
    std::uint64_t elements() const { return blocks * kBlock; }
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }
  std::uint64_t blocks() const { return blocks_; }
  /// What weights are published in: fp32 with none beside the masters.
  devices::DType published() const { return published_; }
  bool publishes() const { return published_ != devices::DType::kFloat32; }

  /// A chunk's arrays. Which of the moments' it has, Chunk::coded says.
  enum class Part : std::uint8_t {
    kSums,
    kMaster,
    kFirst,
    kSecond,
    kFirstCodes,
    kFirstScales,
    kSecondCodes,
    kSecondScales,
    kPublished,
  };
  static constexpr std::size_t kParts = 9;
  /// What all chunks share. kFactors: of the parameters, with their keys behind them. kRows: the sum of the rows of a
  /// table whose gradient has a dense part too.
  enum class Shared : std::uint8_t { kTables, kFactors, kOwners, kSquares, kRows };
  static constexpr std::size_t kShared = 5;

  struct Place {
    std::size_t block = 0;  // of memory
    Bytes offset = 0;       // a multiple of partition::kAlignment
    Bytes size = 0;
  };
  const Place& place(std::size_t chunk, Part part) const { return parts_[chunk][static_cast<std::size_t>(part)]; }
  const Place& place(Shared shared) const { return shared_[static_cast<std::size_t>(shared)]; }
  /// Sizes of the blocks of memory.
  const std::vector<Bytes>& memory() const { return memory_; }
  Bytes bytes() const;
  /// The least that a device must give at once.
  Bytes largest_array() const { return largest_; }
  /// Where keys begin behind factors.
  Bytes keys_offset() const { return entries_.size() * devices::kUpdateFactors * sizeof(float); }
  /// Read and written by the norm and one update.
  Bytes update_bytes() const;
  /// Of main memory: factors and keys, squares, and while they are brought owners, tables and a block of codes.
  Bytes host_bytes() const;

 private:
  void share_out(const model::Architecture& model, const offload::OptimizerSettings& optimizer, Bytes most_at_once);
  void place(Place& place, Bytes size, Bytes most_at_once);

  std::vector<Entry> entries_;
  std::vector<Chunk> chunks_;
  std::uint64_t blocks_ = 0;
  devices::DType published_ = devices::DType::kFloat32;
  std::vector<std::array<Place, kParts>> parts_;  // by chunk
  std::array<Place, kShared> shared_;
  std::vector<Bytes> memory_;
  Bytes largest_ = 0;
};

}  // namespace rondo::schedule
