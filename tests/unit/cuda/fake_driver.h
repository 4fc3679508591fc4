// A driver played by the host: memory is the host's, streams are threads, kernels run as their host emulation.
//
// Streams run on their own and events order them, as on a card: what is not ordered by an event really runs at the same
// time. Everything is kept in rings of fixed size, so that a step that allocates nothing still does not. What a stream
// captures is kept instead and runs at each launch of its graph. A case can script failures and read how often a
// function was called.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "context.h"
#include "driver.h"

namespace rondo::devices::cuda::testing {

/// What the fake card is and does. Set between cases, with no device open.
struct FakeScript {
  int driver_version = 13000;
  int cards = 1;
  int major = 8;
  int minor = 9;
  CardUuid uuid{};  // of every card; zeros: one for each
  std::size_t memory = std::size_t{1} << 30U;
  /// The call number `fail_at` (from 1) of the function `fail_call` gives `fail_result`.
  std::string fail_call;
  int fail_at = 0;
  Result fail_result = 0;
  /// The launch number `fault_at` (from 1) fails on the card itself: all later calls that wait give `fault_result`.
  int fault_at = 0;
  Result fault_result = 700;
};

const Driver& fake_driver();
/// Any bytes: the fake finds its kernels by their names.
KernelImage fake_image();
/// Puts the card back to its first state. REQUIRES: no device is open.
void reset_fake(const FakeScript& script = {});
/// The next call of the function gives `result`.
void fail_next(const std::string& name, Result result);
/// Calls of a function since reset_fake().
int calls_of(const std::string& name);
/// Pieces of host memory that are locked.
int registered_memory();
/// The same of all functions that were called and can fail.
std::map<std::string, int> all_calls();
/// Device memory and pinned memory that is still allocated, and contexts, streams, events, modules and graphs not given
/// back.
int things_left();
/// As cuGetProcAddress: finds the fake's functions, but for the one named in fake_lacks().
Result fake_look_up(const char* name, void** function, int version, std::uint64_t flags, int* found);
void fake_lacks(const std::string& name);

}  // namespace rondo::devices::cuda::testing
