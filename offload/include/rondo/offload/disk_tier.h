// Masters and moments on disk, and the stream in which the optimizer passes over them.
//
// A parameter's state is cut into chunks; a chunk's arrays (master, moments) lie one behind the other, so that one
// request brings them and one takes them back. Passes go over all chunks in the order in which parameters are updated;
// chunks are read ahead, over the end of a pass too, and written behind, several at a time. Thread rule: one caller;
// the threads within are its own. Nothing allocates after start().
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/base/mutex.h"
#include "rondo/offload/optimizer_state.h"
#include "rondo/offload/scratch_file.h"

namespace rondo::offload {

struct DiskTierOptions {
  std::filesystem::path folder;
  std::vector<std::uint64_t> elements;            // of each parameter, in the order of updates
  std::vector<std::vector<MomentFormat>> arrays;  // of each parameter; see disk_arrays()
  std::uint32_t depth = 8;                        // chunks in memory
  std::uint32_t requests = 4;                     // in flight at most: a thread each
  std::uint64_t chunk_elements = std::uint64_t{1} << 18U;
};

class DiskTier {
 public:
  /// Errors: those of ScratchFile::make; ResourceExhausted for the chunks' memory.
  static absl::StatusOr<std::unique_ptr<DiskTier>> make(const DiskTierOptions& options);
  /// Bytes on disk of a parameter of so many elements.
  static Bytes bytes_for(std::uint64_t elements, const std::vector<MomentFormat>& arrays);
  /// Memory of the chunks held, of parameters with no more than these arrays.
  static Bytes buffer_bytes(const std::vector<MomentFormat>& arrays);
  ~DiskTier();

  Bytes disk_bytes() const { return file_->size(); }
  const ScratchFile& file() const { return *file_; }

  /// Bytes of an array from byte `first` on, as moment_bytes() lays it out; by themselves, not part of a pass.
  /// REQUIRES: no pass under way.
  absl::Status read(std::size_t parameter, std::uint32_t array, Bytes first, std::span<std::byte> to);
  /// An fp32 array from element `first` on. REQUIRES: before start().
  absl::Status write(std::size_t parameter, std::uint32_t array, std::uint64_t first, std::span<const float> from);
  /// The same of a whole array of any format.
  absl::Status write_whole(std::size_t parameter, std::uint32_t array, std::span<const std::byte> from);

  /// Begins to read ahead. Errors: ResourceExhausted when there are no threads for it.
  absl::Status start();
  struct Chunk {
    std::uint64_t first = 0;  // element of the parameter
    std::uint64_t elements = 0;
    std::vector<std::span<std::byte>> arrays;  // to be changed in place, each as moment_bytes() lays out its elements
  };
  /// The next chunk of the pass, waiting for it; chunks of a parameter come in rising order. Errors: the first of any
  /// request; it stays.
  absl::StatusOr<const Chunk*> next();
  /// The chunk that next() gave is done with: it is written.
  void done();
  /// Waits until everything is written.
  absl::Status drain_and_wait();
  /// The first error of any request so far.
  absl::Status status() const;

 private:
  struct Piece {
    std::size_t parameter = 0;
    std::uint64_t first = 0;
    std::uint64_t elements = 0;
    Bytes offset = 0;  // in the file
    Bytes size = 0;    // of all arrays, each padded
  };
  enum class State : std::uint8_t { kFree, kReading, kReady, kInUse, kToWrite, kWriting };
  struct Slot {
    DiskBuffer memory;
    Chunk chunk;
    std::uint64_t number = 0;  // of the piece, counted over all passes
    State state = State::kFree;
  };
  explicit DiskTier(const DiskTierOptions& options) : options_(options) {}
  void cut();
  const Piece& piece(std::uint64_t number) const { return pieces_[number % pieces_.size()]; }
  /// The part of a parameter's pieces that holds element `first`.
  std::size_t piece_of(std::size_t parameter, std::uint64_t first) const;
  /// Bytes of a piece before one of its arrays.
  Bytes offset_of(const Piece& piece, std::size_t array) const;
  /// Brings a piece's array into copy_, or takes it from there.
  absl::Status read_piece(const Piece& piece, std::uint32_t array);
  absl::Status write_piece(const Piece& piece, std::uint32_t array);
  std::span<std::byte> section_of(const Piece& piece, std::uint32_t array) const;
  /// Calls `take(part, offset)` for the pieces of an array, with where each lies in the array's whole layout: codes (or
  /// numbers), and scales.
  struct Part {
    Bytes in_piece = 0;
    Bytes in_whole = 0;
    Bytes size = 0;
  };
  std::vector<Part> parts_of(const Piece& piece, MomentFormat format) const;
  Slot* take_work() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool may_read(std::uint64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void work_loop();

  const DiskTierOptions options_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_piece_;  // by parameter
  std::unique_ptr<ScratchFile> file_;
  DiskBuffer copy_;  // of read() and write()
  std::vector<std::thread> threads_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);  // their memory belongs to whoever their state says
  std::uint64_t next_read_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_use_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace rondo::offload
