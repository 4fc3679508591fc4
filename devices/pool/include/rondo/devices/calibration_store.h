// What was measured of this machine's devices, kept from one run of the program to the next in an SQLite file.
//
//   CREATE TABLE devices(id INTEGER PRIMARY KEY, device TEXT, driver TEXT, build TEXT, seen INTEGER,
//     UNIQUE(device, driver, build))
//   CREATE TABLE speeds(device INTEGER, what TEXT, dtype TEXT, reads, writes, rows, columns, inner, heads, rate REAL,
//     spread REAL, samples INTEGER, seen INTEGER, PRIMARY KEY(device, ..., heads))    seen: seconds since 1970
//
// `what` is an op's name, of which the numbers are the OpShape, or product, memory, link_up, link_down, link_latency.
// Another driver or another build of the program may have other kernels: it begins with nothing. It is a cache: what
// cannot be read or written counts as not known, and a file that is broken or something else is put aside and begun
// anew. Several processes may use the file at once; an object is used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "rondo/devices/device.h"
#include "rondo/devices/op_shape.h"
#include "rondo/devices/profile.h"
#include "rondo/sqlite/database.h"

namespace rondo::devices {

/// Whose speeds: device (for the CPU with its number of threads), driver or library, and build of the program.
struct DeviceKey {
  std::string device;
  std::string driver;
  std::string build;

  static DeviceKey of(const Device& device);
};

/// Of what: an op of a shape, or one of the plain speeds, with the numbers that it needs.
struct SpeedKey {
  std::string what;
  std::string dtype;  // empty: none; of products of eight bits with "fp8 " before it
  std::int64_t reads = 0;
  std::int64_t writes = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t inner = 0;
  std::int64_t heads = 0;

  static SpeedKey of(const OpShape& shape);
  /// Nothing when it is no op.
  std::optional<OpShape> shape() const;
  bool operator==(const SpeedKey&) const = default;
  bool operator<(const SpeedKey& other) const {
    return std::tie(what, dtype, reads, writes, rows, columns, inner, heads) <
           std::tie(other.what, other.dtype, other.reads, other.writes, other.rows, other.columns, other.inner,
                    other.heads);
  }
};

struct Speed {
  double rate = 0;           // work a second
  double spread = 0;         // how far single observations lie from it, as a share
  std::int64_t samples = 0;  // measurements and runs that it stands on
  std::int64_t seen = 0;     // when the last of them was, seconds since 1970
};

using Speeds = std::map<SpeedKey, Speed>;
using MeasuredSpeeds = std::vector<std::pair<SpeedKey, double>>;

/// `known` after a run has seen `rate`: the first run replaces what a short measurement said, later ones weigh less and
/// less, down to a quarter. One that lies far outside of what was usual moves it by little more than the usual; a rate
/// never changes by more than a factor of two at a time.
Speed refined(const Speed& known, double rate);

class CalibrationStore {
 public:
  /// `file` need not exist; an empty path remembers nothing.
  explicit CalibrationStore(std::filesystem::path file);
  /// calibration.sqlite in $XDG_CACHE_HOME/rondo or $HOME/.cache/rondo; without either, nothing is remembered.
  static CalibrationStore of_user();
  const std::filesystem::path& file() const { return file_; }
  /// One line when the file was no store of this version and was put aside; else empty.
  const std::string& note() const { return note_; }

  Speeds find(const DeviceKey& device);
  /// From a measurement: stand in place of what was known.
  void put(const DeviceKey& device, const MeasuredSpeeds& speeds);
  /// From a run: see refined(). What was not known stands as it is.
  void refine(const DeviceKey& device, const MeasuredSpeeds& speeds);
  /// All of its ops.
  void forget_ops(const DeviceKey& device);

 private:
  void open();
  template <typename Change>
  void write(const DeviceKey& device, const MeasuredSpeeds& speeds, Change change);

  std::filesystem::path file_;
  std::string note_;
  std::optional<sqlite::Database> database_;
};

/// The plain speeds of `speeds` as a profile of `device`, zeros for what is not known; nothing when none is.
std::optional<DeviceProfile> profile_of(const Device& device, const Speeds& speeds);
/// Every speed of `profile` above zero.
MeasuredSpeeds speeds_of(const DeviceProfile& profile);

}  // namespace rondo::devices
