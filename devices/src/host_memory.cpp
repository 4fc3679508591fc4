// Host memory that is counted by purpose, and what the kernel says about this process and the machine.
//
// Thread rule: one mutex guards the account; figures from /proc are read anew at each call.
#include "rondo/devices/host_memory.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>

#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/devices/device.h"

namespace rondo::devices {
namespace {

constexpr Bytes kHostAlignment = 64;
constexpr Bytes kAskKernelFrom = 1_MiB;

class Account {
 public:
  void add(const std::string& purpose, Bytes bytes) {
    const MutexLock lock(mutex_);
    for (const std::string& key : {purpose, std::string()}) {
      HostMemoryUse& use = uses_[key];
      use.now += bytes;
      use.peak = std::max(use.peak, use.now);
    }
  }
  void remove(const std::string& purpose, Bytes bytes) {
    const MutexLock lock(mutex_);
    uses_[purpose].now -= bytes;
    uses_[std::string()].now -= bytes;
  }
  std::map<std::string, HostMemoryUse> snapshot() {
    const MutexLock lock(mutex_);
    return uses_;
  }

 private:
  Mutex mutex_;
  std::map<std::string, HostMemoryUse> uses_ ABSL_GUARDED_BY(mutex_) = {{std::string(), {}}};
};

/// Of the process: memory belongs to it, not to an object. Never destroyed, since buffers may outlive main.
Account& account() {
  static Account* const instance = new Account;
  return *instance;
}

class HostMemory final : public Memory {
 public:
  HostMemory(Bytes size, std::byte* data, Bytes mapped, const char* purpose)
      : Memory(size, data), mapped_(mapped), purpose_(purpose) {
    account().add(purpose_, size);
  }
  ~HostMemory() override {
    untie();
    account().remove(purpose_, size());
    if (mapped_ > 0) {
      ::munmap(host(), mapped_);
    } else {
      std::free(host());
    }
  }

 private:
  const Bytes mapped_;  // 0: from aligned_alloc
  const std::string purpose_;
};

class PhantomMemory final : public Memory {
 public:
  explicit PhantomMemory(Bytes size) : Memory(size, nullptr) {}
};

/// The kB figure of a line "Key:   123 kB" of a file below /proc, in bytes; 0 when there is none.
Bytes proc_figure(const char* path, std::string_view key) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "re"), &std::fclose);
  if (!file) return 0;
  char line[256];
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    if (std::string_view(line).substr(0, key.size()) == key) {
      return std::strtoull(line + key.size(), nullptr, 10) * 1_KiB;
    }
  }
  return 0;
}

}  // namespace

void Memory::tie(const void* owner, std::unique_ptr<Tie> tie) {
  const MutexLock lock(mutex_);
  for (const auto& [of, held] : ties_) {
    if (of == owner) return;
  }
  ties_.emplace_back(owner, std::move(tie));
}

const Memory::Tie* Memory::tied(const void* owner) const {
  const MutexLock lock(mutex_);
  for (const auto& [of, held] : ties_) {
    if (of == owner) return held.get();
  }
  return nullptr;
}

void Memory::untie() {
  const MutexLock lock(mutex_);
  ties_.clear();
}

namespace {

/// `map_from`: from so many bytes on as pages of its own.
absl::StatusOr<Buffer> allocate(Bytes size, const char* purpose, Bytes map_from) {
  const Bytes rounded = round_up(std::max<Bytes>(size, 1), kHostAlignment);
  // The kernel promises more than it has; a refusal now is worth more than being killed later.
  if (size >= kAskKernelFrom) {
    const Bytes available = available_memory();
    if (available > 0 && size > available) {
      return resource_exhausted(
          "host memory for {}: {} asked ({} bytes), {} available; lower the need or raise the limit", purpose,
          format_bytes(size), size, format_bytes(available));
    }
  }
  if (rounded >= map_from) {
    void* data = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      return resource_exhausted("host memory for {}: {} asked ({} bytes), {} available: {}", purpose,
                                format_bytes(size), size, format_bytes(available_memory()), std::strerror(errno));
    }
    ::madvise(data, rounded, MADV_HUGEPAGE);  // neighbouring mappings become one: small buffers gain as well
    return Buffer(std::make_unique<HostMemory>(size, static_cast<std::byte*>(data), rounded, purpose));
  }
  void* data = std::aligned_alloc(kHostAlignment, rounded);
  if (data == nullptr) {
    return resource_exhausted("host memory for {}: {} bytes asked, none to be had", purpose, size);
  }
  std::memset(data, 0, rounded);
  return Buffer(std::make_unique<HostMemory>(size, static_cast<std::byte*>(data), 0, purpose));
}

}  // namespace

absl::StatusOr<Buffer> allocate_host(Bytes size, const char* purpose) { return allocate(size, purpose, kMapFrom); }

absl::StatusOr<Buffer> allocate_host_pages(Bytes size, const char* purpose) { return allocate(size, purpose, 0); }

absl::StatusOr<Buffer> allocate_resident_host(Bytes size, const char* purpose) {
  RONDO_ASSIGN_OR_RETURN(Buffer buffer, allocate_host(size, purpose));
  std::memset(buffer.view().host(), 0, size);
  return buffer;
}

Buffer phantom_host(Bytes size) { return Buffer(std::make_unique<PhantomMemory>(size)); }

absl::StatusOr<Buffer> allocate_host_unless(bool phantom, Bytes size, const char* purpose) {
  if (phantom) return phantom_host(size);
  return allocate_host(size, purpose);
}

CountedMemory::~CountedMemory() { account().remove(purpose_, bytes_); }

void CountedMemory::add(Bytes bytes) {
  account().add(purpose_, bytes);
  bytes_ += bytes;
}

std::map<std::string, HostMemoryUse> host_memory_account() { return account().snapshot(); }

Bytes program_memory() {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/smaps", "re"), &std::fclose);
  if (!file) return 0;
  std::error_code ignored;
  const std::string program = " " + std::filesystem::read_symlink("/proc/self/exe", ignored).string() + "\n";
  char line[512];
  bool counts = false;
  Bytes bytes = 0;
  while (std::fgets(line, sizeof(line), file.get()) != nullptr) {
    const std::string_view text(line);
    if (text.starts_with("Rss:")) {
      if (counts) bytes += std::strtoull(line + 4, nullptr, 10) * 1_KiB;
    } else if (text.find('-') != std::string_view::npos && text.find('-') < text.find(' ')) {
      // The first line of a mapping: range, permissions, ..., path.
      counts = text.find(".so") != std::string_view::npos || text.ends_with(program);
    }
  }
  return bytes;
}

HostMemoryUse process_memory() {
  return {proc_figure("/proc/self/status", "VmRSS:"), proc_figure("/proc/self/status", "VmHWM:")};
}

void reset_process_peak() {
  ::malloc_trim(0);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen("/proc/self/clear_refs", "we"), &std::fclose);
  if (file) std::fputs("5", file.get());
}

Bytes available_memory() { return proc_figure("/proc/meminfo", "MemAvailable:"); }

}  // namespace rondo::devices
