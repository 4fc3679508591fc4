// Moves bytes between the host and one device: a priority queue for each direction, cut into chunks so that an urgent
// copy never waits long behind a large one.
//
// A transfer is handed in when both its ends are ready: the engine never waits for compute. Within one urgency the
// order is first come, first served. Each direction has one thread, and who hands a transfer to an idle link gives its
// first chunk to the device by itself; nothing allocates after construction. Where the device copies at full speed from
// pinned memory only, chunks go through a small pinned ring; so do downloads from a device that may be lost, because a
// hung one may still write into what a download was aimed at.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rondo/devices/device.h"

namespace rondo::transfer {

enum class Direction : std::uint8_t { kUp, kDown };

/// From the most urgent on.
enum class Urgency : std::uint8_t { kActivation, kWeight, kGradient, kBackground };
inline constexpr std::size_t kUrgencies = 4;
const char* name_of(Urgency urgency);

/// Told when a transfer has ended, before who waits for it is; called from the engine's thread, must not block for long
/// nor call the engine. After TransferEngine::fail() no transfer ends well.
class TransferListener {
 public:
  virtual ~TransferListener() = default;
  virtual void on_transfer(std::uint64_t cookie, const absl::Status& status) = 0;
};

struct Transfer {
  devices::BufferView from;
  devices::BufferView to;  // of equal size
  Urgency urgency = Urgency::kBackground;
  devices::WorkTag tag;
  TransferListener* listener = nullptr;  // may be null
  std::uint64_t cookie = 0;              // handed to the listener
};

/// Names a transfer handed in. Trivial to copy; 0 is complete from the start.
struct Ticket {
  std::uint64_t number = 0;
};

/// What a link carried, by urgency.
struct LinkStats {
  struct Class {
    std::uint64_t transfers = 0;
    Bytes bytes = 0;
    double busy_seconds = 0;          // chunks of this class were on the link
    double longest_wait_seconds = 0;  // from submit to the first chunk's start
  };
  std::array<Class, kUrgencies> classes;
  std::uint64_t repeated_chunks = 0;  // that arrived changed (EngineOptions::verify)
  /// Bytes per second while busy, of all classes together; 0 before the first transfer.
  double bandwidth() const;
};

/// For who watches over a link: it hangs when chunks are under way and none lands.
struct LinkProgress {
  std::uint64_t landed_chunks = 0;
  bool under_way = false;
};

struct EngineOptions {
  Bytes chunk_bytes = 4_MiB;
  std::uint32_t capacity = 512;  // transfers handed in and not finished, a direction; submit() blocks while it is full
  bool staging = false;          // through pinned memory, both ways
  bool staging_down = false;     // downloads alone
  bool verify = false;           // compares checksums of each chunk's two ends; a chunk that differs is sent once more
  /// By direction: bytes of the longest transfer. Staging memory need not be longer.
  std::array<Bytes, 2> longest = {~Bytes{0}, ~Bytes{0}};
  std::uint32_t copiers = 1;  // threads that copy from and to staging memory, of a direction
};

class TransferEngine {
 public:
  /// `device` outlives the engine. Errors: ResourceExhausted when staging memory cannot be had.
  /// Verifying needs memory of the device that the host can address (Memory::host), or a second reading through pinned
  /// memory, which takes as long as the transfer.
  static absl::StatusOr<std::unique_ptr<TransferEngine>> make(devices::Device& device, const EngineOptions& options);
  /// Pieces of pinned host memory, of staging_piece() bytes each, that an engine with these options holds in a
  /// direction where copies are real.
  static std::uint32_t staging_pieces(Direction direction, const EngineOptions& options);
  /// Finishes nothing: what is still queued ends as Cancelled.
  ~TransferEngine();

  /// Blocks while `capacity` transfers are not finished, and as long as the device needs to take a copy, which is for
  /// good when it hangs. After fail() nothing is taken; wait() says why.
  Ticket submit(Direction direction, const Transfer& transfer);
  /// Blocks until the transfer has ended. DeadlineExceeded leaves it running. DataLoss: it arrived changed, twice. Once
  /// a transfer has failed its error is the answer for every other of that direction: the device is not to be trusted.
  absl::Status wait(Direction direction, Ticket ticket, std::chrono::steady_clock::time_point deadline);
  /// Blocks until the device has been given all of the transfer and returns the point that it reaches with it, for work
  /// on its queues that is to follow; with `verify` until the transfer has ended. A point without a timeline: it has
  /// ended. Errors as wait().
  absl::StatusOr<devices::Point> wait_until_enqueued(Direction direction, Ticket ticket,
                                                     std::chrono::steady_clock::time_point deadline);
  /// The device is lost: ends all waits, now and later, with `why`. After it nothing is written to the host any more,
  /// but staging memory may be while the device's queues hold work.
  void fail(const absl::Status& why);
  /// After fail(): waits until the engine's threads have left, so that it will enqueue nothing more.
  void join();
  LinkProgress progress(Direction direction) const;
  LinkStats stats(Direction direction) const;
  /// Pinned memory held.
  Bytes staging_bytes() const;

 private:
  class Link;
  TransferEngine() = default;
  std::array<std::unique_ptr<Link>, 2> links_;
};

}  // namespace rondo::transfer
