// Where the state of what is trained lies on a device that holds it: flat arrays, in which each parameter begins a
// block of devices::kUpdateBlock elements, so that one program updates all of them. Parameters whose moments are codes
// come first; the moments' arrays are of these or of the others.
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
  /// `optimizer`: AdamW, with moments in fp32 or in codes.
  CardStateLayout(const model::Architecture& model, const offload::OptimizerSettings& optimizer);

  struct Entry {
    model::ParameterId id = 0;
    std::uint64_t first = 0;  // element of the flat arrays
    std::uint64_t elements = 0;
    std::uint64_t blocks = 0;
    bool coded = false;  // moments
    std::uint64_t first_block() const { return first / kBlock; }
  };
  /// In the order of updates.
  const std::vector<Entry>& entries() const { return entries_; }
  std::uint64_t elements() const { return blocks_ * kBlock; }
  std::uint64_t blocks() const { return blocks_; }
  /// Of parameters whose moments are codes, in front of the others.
  std::uint64_t coded_blocks() const { return coded_blocks_; }
  /// What weights are published in: fp32 with none beside the masters.
  devices::DType published() const { return published_; }
  bool publishes() const { return published_ != devices::DType::kFloat32; }

  /// Parts of one block of memory, in this order; offsets are multiples of partition::kAlignment. kRows: the sum of the
  /// rows of a table whose gradient has a dense part too.
  enum class Part : std::uint8_t {
    kSums,
    kMaster,
    kFirst,  // behind the coded blocks
    kSecond,
    kFirstCodes,  // of the coded blocks
    kFirstScales,
    kSecondCodes,
    kSecondScales,
    kTables,  // of the codes
    kPublished,
    kFactors,
    kKeys,
    kOwners,
    kSquares,
    kRows,
  };
  static constexpr std::size_t kParts = 15;
  Bytes offset(Part part) const { return offsets_[static_cast<std::size_t>(part)]; }
  Bytes size(Part part) const { return sizes_[static_cast<std::size_t>(part)]; }
  Bytes bytes() const { return bytes_; }
  /// Read and written by the norm and one update.
  Bytes update_bytes() const;
  /// Of main memory: factors and keys, squares, and while they are brought owners, tables and a block of codes.
  Bytes host_bytes() const {
    const Bytes of_codes = coded_blocks_ > 0 ? size(Part::kTables) + devices::kMomentBlock : 0;
    return size(Part::kFactors) + size(Part::kKeys) + size(Part::kOwners) + size(Part::kSquares) + of_codes;
  }

  static constexpr std::uint64_t kBlock = devices::kUpdateBlock;

 private:
  std::vector<Entry> entries_;
  std::uint64_t blocks_ = 0;
  std::uint64_t coded_blocks_ = 0;
  devices::DType published_ = devices::DType::kFloat32;
  std::array<Bytes, kParts> offsets_{};
  std::array<Bytes, kParts> sizes_{};
  Bytes bytes_ = 0;
};

}  // namespace rondo::schedule
