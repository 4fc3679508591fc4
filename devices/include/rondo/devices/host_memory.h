// The account of host memory: who holds how much, now and at most.
//
// All large allocations of the host go through allocate_host() (device.h) and are counted here by purpose. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "rondo/base/units.h"

namespace rondo::devices {

/// From so many bytes on allocate_host() takes pages of its own: zeroed by the kernel, resident only once touched,
/// returned when freed. Less is zeroed, and so resident, at once.
inline constexpr Bytes kMapFrom = 64_KiB;

struct HostMemoryUse {
  Bytes now = 0;
  Bytes peak = 0;
};

/// By purpose, as named at allocation; the entry "" is the total.
std::map<std::string, HostMemoryUse> host_memory_account();

/// The purpose of programs that the processor runs.
inline constexpr const char* kPrograms = "programs";
/// The purpose of what these work in, one at a time.
inline constexpr const char* kProcessorScratch = "cpu scratch";
/// The purpose of what a library keeps for the process of the products that devices have prepared.
inline constexpr const char* kCodeOfProducts = "code of products";

/// Memory that a library allocates for what we ask of it, counted for `purpose` as long as this lives.
class CountedMemory {
 public:
  explicit CountedMemory(const char* purpose) : purpose_(purpose) {}
  ~CountedMemory();
  CountedMemory(const CountedMemory&) = delete;
  CountedMemory& operator=(const CountedMemory&) = delete;
  void add(Bytes bytes);

 private:
  const char* const purpose_;
  Bytes bytes_ = 0;
};

/// Resident memory of this process and its high-water mark (VmRSS, VmHWM), in bytes.
HostMemoryUse process_memory();

/// Gives unused memory back and begins the high-water mark anew, where the system lets one (Linux's clear_refs).
void reset_process_peak();

/// Of the resident memory: the program itself and its shared libraries, in bytes.
Bytes program_memory();

/// The machine's memory that can still be had without swapping (MemAvailable).
Bytes available_memory();

}  // namespace rondo::devices
