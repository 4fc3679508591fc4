// The file of remembered speeds: read as a whole, written as a whole.
#include "rondo/devices/speed_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <system_error>

#include "rondo/base/file.h"

namespace rondo::devices {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::size_t kMostEntries = 32;  // programs that are built again and again leave entries behind

/// Which build of the program this is, told by its file.
std::string build_stamp() {
  struct stat info {};
  if (::stat("/proc/self/exe", &info) != 0) return "unknown";
  return fmt::format("{}.{}.{}", info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

std::string key_of(const Device& device) {
  const DeviceCaps& caps = device.caps();
  return fmt::format("{}; {}; {}; build {}", caps.backend, caps.description, caps.numerics_class, build_stamp());
}

Json entries_of(const std::filesystem::path& file) {
  const auto text = read_file(file);
  if (!text.ok()) return Json::array();
  const Json document = Json::parse(*text, nullptr, false);
  if (!document.is_object()) return Json::array();
  const auto speeds = document.find("speeds");
  return speeds != document.end() && speeds->is_array() ? *speeds : Json::array();
}

bool is_of(const Json& entry, const std::string& key) {
  if (!entry.is_object()) return false;
  const auto found = entry.find("key");
  return found != entry.end() && found->is_string() && found->get<std::string>() == key;
}

/// A speed of a file that anyone may have written: finite and above zero, else 0.
double speed_in(const Json& object, const char* name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return 0;
  const double value = found->get<double>();
  return std::isfinite(value) && value > 0 ? value : 0;
}

}  // namespace

SpeedCache SpeedCache::of_user() {
  const std::filesystem::path folder = user_cache_folder();
  return SpeedCache(folder.empty() ? folder : folder / "speeds.json");
}

std::optional<DeviceProfile> SpeedCache::find(const Device& device) const {
  if (file_.empty()) return std::nullopt;
  const std::string key = key_of(device);
  for (const Json& entry : entries_of(file_)) {
    if (!is_of(entry, key)) continue;
    DeviceProfile profile;
    profile.name = device.caps().name;
    profile.memory_bytes = device.caps().memory_bytes;
    profile.jitter = 0;
    profile.source = "measured";
    const Json flops = entry.contains("flops") ? entry["flops"] : Json::object();
    for (const DType dtype : device.caps().compute_dtypes) profile.flops[dtype] = speed_in(flops, name_of(dtype));
    profile.memory_bandwidth = speed_in(entry, "memory_bandwidth");
    const Json link = entry.contains("link") ? entry["link"] : Json::object();
    profile.link_up = speed_in(link, "up");
    profile.link_down = speed_in(link, "down");
    profile.link_latency_seconds = speed_in(link, "latency");
    return profile;
  }
  return std::nullopt;
}

void SpeedCache::remember(const Device& device, const DeviceProfile& measured) const {
  if (file_.empty()) return;
  const std::string key = key_of(device);
  Json entries = Json::array();
  Json own = {{"key", key}, {"flops", Json::object()}};
  for (const Json& entry : entries_of(file_)) {
    if (is_of(entry, key)) {
      own = entry;
    } else if (entry.is_object()) {
      entries.push_back(entry);
    }
  }
  if (!own.contains("flops") || !own["flops"].is_object()) own["flops"] = Json::object();
  for (const auto& [dtype, speed] : measured.flops) {
    if (speed > 0) own["flops"][name_of(dtype)] = speed;
  }
  if (measured.memory_bandwidth > 0) own["memory_bandwidth"] = measured.memory_bandwidth;
  if (measured.link_up > 0) {
    own["link"] = {{"up", measured.link_up}, {"down", measured.link_down}, {"latency", measured.link_latency_seconds}};
  }
  while (entries.size() >= kMostEntries) entries.erase(0);
  entries.push_back(std::move(own));
  std::error_code ignored;
  std::filesystem::create_directories(file_.parent_path(), ignored);
  // Without a place for it the next run measures again.
  (void)write_file_atomically(file_, Json{{"speeds", std::move(entries)}}.dump(1) + "\n");
}

}  // namespace rondo::devices
