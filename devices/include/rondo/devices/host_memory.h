// The account of host memory: who holds how much, now and at most.
//
// All large allocations of the host go through allocate_host() (device.h) and are counted here by purpose. Thread-safe.
#pragma once

#include <map>
#include <string>

#include "rondo/base/units.h"

namespace rondo::devices {

struct HostMemoryUse {
  Bytes now = 0;
  Bytes peak = 0;
};

/// By purpose, as named at allocation; the entry "" is the total.
std::map<std::string, HostMemoryUse> host_memory_account();

/// Resident memory of this process and its high-water mark (VmRSS, VmHWM), in bytes.
HostMemoryUse process_memory();

/// Gives unused memory back and begins the high-water mark anew, where the system lets one (Linux's clear_refs).
void reset_process_peak();

/// Of the resident memory: the program itself and its shared libraries, in bytes.
Bytes program_memory();

/// The machine's memory that can still be had without swapping (MemAvailable).
Bytes available_memory();

}  // namespace rondo::devices
