// POSIX file access behind rondo/base/file.h, and the formatting of byte counts.
#include "rondo/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "rondo/base/atomic_file.h"
#include "rondo/base/status.h"
#include "rondo/base/units.h"

namespace rondo {
namespace {

// Of a file that is in memory Linux maps pages beside the one that is read too: as far as its fault_around_bytes, and
// the rest of a large folio, which is no longer than a huge page.
constexpr std::size_t kMappedBeside = 2_MiB;

// A pipe without a writer would be waited for, before it can be seen that it is no file; files do not heed O_NONBLOCK.
constexpr int kToRead = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

/// Closes on every way out.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::StatusOr<std::size_t> regular_file_size(int fd, const std::filesystem::path& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return invalid_input("{}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return invalid_input("{}: not a regular file", path.string());
  return static_cast<std::size_t>(info.st_size);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), kToRead));
  if (fd.get() < 0) return invalid_input("{}: {}", path.string(), std::strerror(errno));
  RONDO_ASSIGN_OR_RETURN(const std::size_t size, regular_file_size(fd.get(), path));
  MappedFile file;
  file.path_ = path;
  if (size > 0) {
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (data == MAP_FAILED) return invalid_input("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
    file.data_ = static_cast<const std::byte*>(data);
    file.size_ = size;
  }
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release_pages(std::span<const std::byte> range) const {
  // std::less orders pointers into different objects, which `<` need not.
  constexpr std::less<const std::byte*> kBefore;
  const std::byte* const last = data_ + size_;
  if (range.empty() || kBefore(range.data(), data_) || kBefore(last, range.data() + range.size())) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto first = static_cast<std::size_t>(range.data() - data_);  // the mapping begins at a page
  const std::size_t begin = (first - std::min(first, kMappedBeside)) / page * page;
  const std::size_t end = std::min(first + range.size() + kMappedBeside, size_);
  ::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

absl::StatusOr<std::string> read_file(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), kToRead));
  if (fd.get() < 0) return invalid_input("{}: {}", path.string(), std::strerror(errno));
  RONDO_ASSIGN_OR_RETURN(const std::size_t size, regular_file_size(fd.get(), path));
  std::string contents(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd.get(), contents.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return invalid_input("{}: {}", path.string(), std::strerror(errno));
    if (n == 0) break;
    done += static_cast<std::size_t>(n);
  }
  contents.resize(done);
  return contents;
}

absl::Status sync_path(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), kToRead));
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) {
    return internal_error("{}: cannot be synced: {}", path.string(), std::strerror(errno));
  }
  return absl::OkStatus();
}

absl::Status write_file_atomically(const std::filesystem::path& path, std::string_view contents) {
  RONDO_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  RONDO_RETURN_IF_ERROR(file.write(std::as_bytes(std::span(contents))));
  return file.commit();
}

absl::Status check_writable(const std::filesystem::path& path) {
  const absl::Status status = AtomicFile::create(path).status();
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

std::filesystem::path user_cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value != nullptr ? value : "");
  };
  if (const auto cache = variable("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "rondo";
  if (const auto home = variable("HOME"); home.is_absolute()) return home / ".cache" / "rondo";
  return {};
}

std::string format_bytes(Bytes bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < std::size(kUnits)) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace rondo
