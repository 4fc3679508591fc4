// The file of measured speeds: opened with care, then read and written in transactions of a moment.
#include "rondo/devices/calibration_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <system_error>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices {
namespace {

namespace fs = std::filesystem;
using sqlite::Database;
using sqlite::Statement;
using Step = Statement::Step;

constexpr std::int64_t kApplication = 0x726e646f;  // "rndo"
constexpr std::int64_t kVersion = 1;
constexpr int kMostDevices = 32;  // programs that are built again and again leave entries behind
constexpr int kMostSpeeds = 8192;

constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS devices(id INTEGER PRIMARY KEY, device TEXT NOT NULL, driver TEXT NOT NULL, "
    "build TEXT NOT NULL, seen INTEGER NOT NULL, UNIQUE(device, driver, build)); "
    "CREATE TABLE IF NOT EXISTS speeds(device INTEGER NOT NULL, what TEXT NOT NULL, dtype TEXT NOT NULL, "
    "reads INTEGER NOT NULL, writes INTEGER NOT NULL, rows INTEGER NOT NULL, columns INTEGER NOT NULL, "
    "inner INTEGER NOT NULL, heads INTEGER NOT NULL, rate REAL NOT NULL, spread REAL NOT NULL, "
    "samples INTEGER NOT NULL, seen INTEGER NOT NULL, "
    "PRIMARY KEY(device, what, dtype, reads, writes, rows, columns, inner, heads)) WITHOUT ROWID; ";

/// The rows of `speeds` that belong to a device of this key.
constexpr const char* kOfDevice = "device = (SELECT id FROM devices WHERE device = ? AND driver = ? AND build = ?)";

void bind(const DeviceKey& key, Statement& statement) {
  statement.bind(key.device);
  statement.bind(key.driver);
  statement.bind(key.build);
}

void bind(const SpeedKey& key, Statement& statement) {
  statement.bind(key.what);
  statement.bind(key.dtype);
  for (const std::int64_t number : {key.reads, key.writes, key.rows, key.columns, key.inner, key.heads}) {
    statement.bind(number);
  }
}

std::int64_t number_of(const Database& database, const char* sql) {
  Statement row(database, sql);
  return row.ok() && row.step() == Step::kRow ? row.whole(0) : -1;
}

/// Why the file is no store of ours; empty when it is one or can become one, nothing when that cannot be told now (it
/// is locked).
std::optional<std::string> fault_of(const Database& database) {
  Statement check(database, "PRAGMA quick_check(1)");
  const Step step = check.ok() ? check.step() : Step::kError;
  if (step != Step::kRow) {
    return database.broken() ? std::optional(std::string("it is no SQLite file, or a broken one")) : std::nullopt;
  }
  if (check.text(0) != "ok") return "it is a broken SQLite file";
  const std::int64_t application = number_of(database, "PRAGMA application_id");
  const std::int64_t version = number_of(database, "PRAGMA user_version");
  const std::int64_t tables = number_of(database, "SELECT count(*) FROM sqlite_master");
  if (application < 0 || version < 0 || tables < 0) return std::nullopt;
  if (application == 0 && version == 0 && tables == 0) return "";
  if (application != kApplication) return "it is the file of another program";
  if (version != kVersion) return fmt::format("it is of version {}, this program writes {}", version, kVersion);
  return "";
}

/// Which file a path names; 0: none.
ino_t file_number(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

/// Which build of the program this is, told by its file.
std::string build_stamp() {
  struct stat info {};
  if (::stat("/proc/self/exe", &info) != 0) return "unknown";
  return fmt::format("{}.{}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

OpKind kind_named(const std::string& name, bool& found) {
  for (int i = 0; i < 256; ++i) {
    const auto kind = static_cast<OpKind>(i);
    found = name == name_of(kind);
    if (found) return kind;
    if (std::string_view(name_of(kind)) == "unknown") break;
  }
  return OpKind::kAdd;
}

constexpr std::string_view kEightBits = "fp8 ";
constexpr DType kComputed[] = {DType::kFloat32, DType::kBfloat16, DType::kFloat16};

}  // namespace

DeviceKey DeviceKey::of(const Device& device) {
  const DeviceCaps& caps = device.caps();
  DeviceKey key{fmt::format("{}; {}", caps.backend, caps.description), caps.numerics_class, build_stamp()};
  if (caps.backend != "cuda") return key;
  // The driver's kernels are its libraries', which the class of numbers names; what schedules them is the driver.
  if (const auto driver = cuda::describe_driver(); driver.ok()) {
    key.driver += fmt::format("; CUDA {}.{}", driver->major, driver->minor);
  }
  return key;
}

SpeedKey SpeedKey::of(const OpShape& shape) {
  const std::string dtype = std::string(shape.fp8 ? kEightBits : "") + name_of(shape.dtype);
  return {name_of(shape.kind), dtype, shape.reads, shape.writes, shape.rows, shape.columns, shape.inner, shape.heads};
}

std::optional<OpShape> SpeedKey::shape() const {
  bool known = false;
  OpShape shape;
  shape.kind = kind_named(what, known);
  shape.fp8 = dtype.starts_with(kEightBits);
  const std::string_view plain = std::string_view(dtype).substr(shape.fp8 ? kEightBits.size() : 0);
  const auto named = std::ranges::find_if(kComputed, [&](DType candidate) { return plain == name_of(candidate); });
  if (!known || named == std::end(kComputed) || reads < 0 || reads > 255 || writes < 0 || writes > 255) {
    return std::nullopt;
  }
  shape.dtype = *named;
  shape.reads = static_cast<std::uint8_t>(reads);
  shape.writes = static_cast<std::uint8_t>(writes);
  shape.rows = rows;
  shape.columns = columns;
  shape.inner = inner;
  shape.heads = heads;
  return shape;
}

Speed refined(const Speed& known, double rate) {
  constexpr std::int64_t kUsual = 3;  // runs until it is known what is usual
  constexpr double kLeastUsual = 0.1;
  const double most = std::log(2.0);
  const double change = std::clamp(std::log(rate / known.rate), -most, most);
  const double limit = known.samples > kUsual ? std::clamp(3 * known.spread, kLeastUsual, most) : most;
  const double weight = std::max(1.0 / static_cast<double>(std::max<std::int64_t>(known.samples, 1)), 0.25);
  Speed speed = known;
  speed.rate *= std::exp(weight * std::clamp(change, -limit, limit));
  speed.spread += weight * (std::abs(change) - known.spread);
  ++speed.samples;
  return speed;
}

CalibrationStore::CalibrationStore(fs::path file) : file_(std::move(file)) {
  if (!file_.empty()) open();
}

CalibrationStore CalibrationStore::of_user() {
  const fs::path folder = user_cache_folder();
  return CalibrationStore(folder.empty() ? folder : folder / "calibration.sqlite");
}

void CalibrationStore::open() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    const ino_t before = file_number(file_);
    absl::StatusOr<Database> database = Database::open(file_, Database::Access::kWrite);
    if (!database.ok()) return;  // no place for it: the doctor tells
    const std::optional<std::string> fault = fault_of(*database);
    if (!fault) return;
    if (fault->empty()) {
      // Where a file system cannot do it, the old journal serves as well.
      (void)database->run("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
      const std::string make =
          fmt::format("BEGIN IMMEDIATE; {}PRAGMA application_id = {}; PRAGMA user_version = {}; COMMIT", kSchema,
                      kApplication, kVersion);
      const bool made = number_of(*database, "PRAGMA user_version") == kVersion || database->run(make).ok();
      if (made) database_.emplace(*std::move(database));
      return;
    }
    if (file_number(file_) != before) continue;  // another process has put it aside meanwhile
    const fs::path aside = file_.string() + ".aside";
    std::error_code failed;
    fs::rename(file_, aside, failed);
    note_ = fmt::format("{}: {}; {} and speeds are measured anew", file_.string(), *fault,
                        failed ? "it cannot be put aside: nothing is remembered," : "it is kept as " + aside.string());
    if (failed) return;
    for (const char* end : {"-wal", "-shm"}) {
      std::error_code ignored;
      fs::rename(file_.string() + end, aside.string() + end, ignored);
    }
  }
}

Speeds CalibrationStore::find(const DeviceKey& device) {
  Speeds speeds;
  if (!database_) return speeds;
  Statement rows(*database_,
                 fmt::format("SELECT what, dtype, reads, writes, rows, columns, inner, heads, rate, spread, samples, "
                             "seen FROM speeds WHERE {}",
                             kOfDevice));
  if (!rows.ok()) return speeds;
  bind(device, rows);
  while (rows.step() == Step::kRow) {
    const SpeedKey key{rows.text(0),  rows.text(1),  rows.whole(2), rows.whole(3),
                       rows.whole(4), rows.whole(5), rows.whole(6), rows.whole(7)};
    const Speed speed{rows.number(8), rows.number(9), rows.whole(10), rows.whole(11)};
    // Anyone may have written it.
    if (std::isfinite(speed.rate) && speed.rate > 0 && std::isfinite(speed.spread)) speeds[key] = speed;
  }
  return speeds;
}

/// `change` of what is known (nothing: null) and a measured rate, within one transaction.
template <typename Change>
void CalibrationStore::write(const DeviceKey& device, const MeasuredSpeeds& speeds, Change change) {
  if (!database_ || speeds.empty() || !database_->run("BEGIN IMMEDIATE").ok()) return;
  const std::int64_t now = std::time(nullptr);
  const Speeds before = find(device);
  bool good = false;
  {
    Statement own(*database_,
                  "INSERT INTO devices(device, driver, build, seen) VALUES(?, ?, ?, ?) "
                  "ON CONFLICT(device, driver, build) DO UPDATE SET seen = excluded.seen");
    bind(device, own);
    own.bind(now);
    good = own.ok() && own.step() == Step::kDone;
  }
  {
    Statement row(*database_,
                  "INSERT OR REPLACE INTO speeds VALUES((SELECT id FROM devices WHERE device = ? AND driver = ? AND "
                  "build = ?), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    good = good && row.ok();
    for (const auto& [key, rate] : speeds) {
      if (!good || !std::isfinite(rate) || rate <= 0) continue;
      const auto known = before.find(key);
      const Speed speed = change(known == before.end() ? nullptr : &known->second, rate);
      row.restart();
      bind(device, row);
      bind(key, row);
      row.bind(speed.rate);
      row.bind(speed.spread);
      row.bind(speed.samples);
      row.bind(now);
      good = row.step() == Step::kDone;
    }
  }
  const std::string prune = fmt::format(
      "DELETE FROM devices WHERE id NOT IN (SELECT id FROM devices ORDER BY seen DESC, id DESC LIMIT {}); "
      "DELETE FROM speeds WHERE device NOT IN (SELECT id FROM devices) OR seen < (SELECT seen FROM speeds ORDER BY "
      "seen DESC LIMIT 1 OFFSET {})",
      kMostDevices, kMostSpeeds);
  good = good && database_->run(prune).ok();
  if (!good || !database_->run("COMMIT").ok()) (void)database_->run("ROLLBACK");
}

void CalibrationStore::put(const DeviceKey& device, const MeasuredSpeeds& speeds) {
  write(device, speeds, [](const Speed*, double rate) { return Speed{rate, 0, 1, 0}; });
}

void CalibrationStore::refine(const DeviceKey& device, const MeasuredSpeeds& speeds) {
  write(device, speeds, [](const Speed* known, double rate) {
    return known != nullptr ? refined(*known, rate) : Speed{rate, 0, 1, 0};
  });
}

void CalibrationStore::forget_ops(const DeviceKey& device) {
  if (!database_) return;
  Statement gone(*database_, fmt::format("DELETE FROM speeds WHERE {} AND reads > 0", kOfDevice));
  if (!gone.ok()) return;
  bind(device, gone);
  (void)gone.step();
}

std::optional<DeviceProfile> profile_of(const Device& device, const Speeds& speeds) {
  DeviceProfile profile;
  profile.name = device.caps().name;
  profile.memory_bytes = device.caps().memory_bytes;
  profile.jitter = 0;
  profile.link_latency_seconds = 0;
  profile.source = "measured";
  bool any = false;
  const auto rate = [&](const SpeedKey& key) {
    const auto found = speeds.find(key);
    any = any || found != speeds.end();
    return found != speeds.end() ? found->second.rate : 0;
  };
  for (const DType dtype : device.caps().compute_dtypes) profile.flops[dtype] = rate({"product", name_of(dtype)});
  profile.memory_bandwidth = rate({"memory", ""});
  profile.link_up = rate({"link_up", ""});
  profile.link_down = rate({"link_down", ""});
  if (const double trips = rate({"link_latency", ""}); trips > 0) {
    profile.link_latency_seconds = std::round(1e9 / trips) / 1e9;  // as clocks tell it: whole nanoseconds
  }
  return any ? std::optional(std::move(profile)) : std::nullopt;
}

MeasuredSpeeds speeds_of(const DeviceProfile& profile) {
  MeasuredSpeeds speeds;
  const auto add = [&](SpeedKey key, double rate) {
    if (std::isfinite(rate) && rate > 0) speeds.emplace_back(std::move(key), rate);
  };
  for (const auto& [dtype, flops] : profile.flops) add({"product", name_of(dtype)}, flops);
  add({"memory", ""}, profile.memory_bandwidth);
  add({"link_up", ""}, profile.link_up);
  add({"link_down", ""}, profile.link_down);
  if (profile.link_up > 0 && profile.link_latency_seconds > 0)
    add({"link_latency", ""}, 1 / profile.link_latency_seconds);
  return speeds;
}

}  // namespace rondo::devices
