// One function a subject; each finding is a line.
#include "rondo/train/doctor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "rondo/base/folder.h"
#include "rondo/base/status.h"
#include "rondo/base/units.h"
#include "rondo/devices/calibration_store.h"
#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/pool.h"
#include "rondo/devices/thread_pool.h"
#include "rondo/devices/vulkan/vulkan_device.h"
#include "rondo/offload/scratch_file.h"
#include "rondo/train/model_place.h"

namespace rondo::train {
namespace {

namespace fs = std::filesystem;
using Findings = std::vector<Finding>;

/// The text after "name :" of the first such line of a file of /proc; empty when there is none.
std::string proc_line(const char* file, std::string_view name) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    if (!line.starts_with(name)) continue;
    const std::size_t colon = line.find(':');
    const std::size_t begin = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return {};
}

bool has_word(const std::string& words, std::string_view word) {
  return (" " + words + " ").find(fmt::format(" {} ", word)) != std::string::npos;
}

void look_at_processor(Findings& findings) {
  const std::string flags = proc_line("/proc/cpuinfo", "flags");
  std::string units;
  for (const char* unit : {"avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (has_word(flags, unit)) units += fmt::format(" {}", unit);
  }
  std::string name = proc_line("/proc/cpuinfo", "model name");
  if (name.empty()) name = "a processor without a name";
  if (!has_word(flags, "avx2") || !has_word(flags, "fma")) {
    findings.push_back({Health::kProblem, "processor",
                        fmt::format("{} has no AVX2 and FMA, which the host's arithmetic needs", name)});
    return;
  }
  findings.push_back(
      {Health::kOk, "processor", fmt::format("{}, {} threads,{}", name, devices::usable_threads(), units)});
}

/// The limit of this process's control group; 0: none.
Bytes group_limit() {
  std::ifstream stream("/sys/fs/cgroup/memory.max");
  std::string text;
  Bytes bytes = 0;
  if (!(stream >> text) || std::from_chars(text.data(), text.data() + text.size(), bytes).ec != std::errc()) return 0;
  return bytes;
}

void look_at_memory(Findings& findings) {
  const Bytes free = devices::available_memory();
  const std::string total = proc_line("/proc/meminfo", "MemTotal");
  Bytes kibibytes = 0;
  std::from_chars(total.data(), total.data() + total.size(), kibibytes);
  std::string text = fmt::format("{} of {} free", format_bytes(free), format_bytes(kibibytes * 1024));
  const Bytes limit = group_limit();
  if (limit > 0 && limit < kibibytes * 1024) {
    text += fmt::format("; this process may have {}: give host_memory_limit below that", format_bytes(limit));
    findings.push_back({Health::kAdvice, "memory", text});
    return;
  }
  if (free < 512_MiB) {
    findings.push_back({Health::kProblem, "memory", text + "; end other programs: even small models need 512 MiB"});
  } else if (free < 4_GiB) {
    findings.push_back({Health::kAdvice, "memory", text + "; larger models want quantization_bit 4, or nvme_path"});
  } else {
    findings.push_back({Health::kOk, "memory", text});
  }
}

void look_at_locks(bool has_cards, Findings& findings) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return;
  if (limit.rlim_cur == RLIM_INFINITY) {
    findings.push_back({Health::kOk, "memory lock", "unlimited"});
  } else if (!has_cards || limit.rlim_cur >= 1_GiB) {
    findings.push_back(
        {Health::kOk, "memory lock",
         fmt::format("{}{}", format_bytes(limit.rlim_cur), has_cards ? "" : ", which no card asks for")});
  } else {
    findings.push_back({Health::kAdvice, "memory lock",
                        fmt::format("{}: some drivers count pinned memory against it; raise memlock in "
                                    "/etc/security/limits.conf, or run `ulimit -l unlimited`",
                                    format_bytes(limit.rlim_cur))});
  }
}

/// PCI vendors of the display adapters: 0x10de NVIDIA, 0x1002 AMD, 0x8086 Intel.
std::vector<std::string> card_vendors() {
  std::vector<std::string> vendors;
  std::error_code error;
  for (const fs::path& path : entries_of("/sys/class/drm", error)) {
    const std::string name = path.filename().string();
    if (!name.starts_with("card") || name.find('-') != std::string::npos) continue;
    std::ifstream stream(path / "device" / "vendor");
    if (std::string vendor; stream >> vendor) vendors.push_back(vendor);
  }
  return vendors;
}

void look_at_render_nodes(Findings& findings) {
  std::error_code error;
  for (const fs::path& path : entries_of("/dev/dri", error)) {
    if (!path.filename().string().starts_with("renderD")) continue;
    if (::access(path.c_str(), R_OK | W_OK) == 0) continue;
    findings.push_back({Health::kAdvice, "vulkan",
                        fmt::format("{} may not be opened; run `sudo usermod -aG render,video $USER` and log in again",
                                    path.string())});
  }
}

/// Returns whether a card can be used.
bool look_at_vulkan(const std::vector<std::string>& vendors, Findings& findings) {
  look_at_render_nodes(findings);
  const auto cards = devices::vulkan::list_cards();
  if (!cards.ok()) {
    findings.push_back({Health::kAdvice, "vulkan", message_of(cards.status())});
    return false;
  }
  bool usable = false;
  for (const devices::vulkan::CardInfo& card : *cards) {
    std::string text =
        fmt::format("vulkan:{} {}, {}, {}", card.index, card.name, card.driver, format_bytes(card.memory_bytes));
    if (!card.unsuitable.empty()) {
      findings.push_back({Health::kAdvice, "vulkan", text + ": " + card.unsuitable});
      continue;
    }
    if (card.software) text += ", a processor that poses as a card";
    usable = usable || !card.software;
    findings.push_back({Health::kOk, "vulkan", text});
  }
  const bool wants_mesa =
      std::any_of(vendors.begin(), vendors.end(), [](const std::string& v) { return v == "0x1002" || v == "0x8086"; });
  if (wants_mesa && !usable) {
    findings.push_back({Health::kAdvice, "vulkan",
                        "there is an AMD or Intel card without a driver for it; install mesa-vulkan-drivers, and "
                        "firmware-amd-graphics or firmware-misc-nonfree"});
  }
  return usable;
}

bool look_at_cuda(const std::vector<std::string>& vendors, Findings& findings) {
  const auto driver = devices::cuda::describe_driver();
  const bool has_card = std::count(vendors.begin(), vendors.end(), "0x10de") > 0;
  if (!driver.ok()) {
    if (has_card) {
      findings.push_back(
          {Health::kAdvice, "cuda", message_of(driver.status()) + "; Debian's package is nvidia-driver"});
    } else {
      findings.push_back({Health::kOk, "cuda", "no NVIDIA card and no driver for one"});
    }
    return false;
  }
  std::string text = fmt::format("the driver knows CUDA {}.{}, {} card{}", driver->major, driver->minor, driver->cards,
                                 driver->cards == 1 ? "" : "s");
  if (driver->cards > 0 && !devices::cuda::has_kernels()) {
    findings.push_back(
        {Health::kAdvice, "cuda", text + "; this build has no kernels for CUDA: build the preset cuda, or use vulkan"});
    return false;
  }
  findings.push_back({Health::kOk, "cuda", text});
  return driver->cards > 0;
}

void look_at_pool(const Config& config, Findings& findings) {
  devices::ThreadPool threads(config.threads);
  const auto pool = devices::open_pool({config.devices, config.memory_limit}, threads);
  if (!pool.ok()) {
    findings.push_back({Health::kProblem, "devices", message_of(pool.status())});
    return;
  }
  std::string names;
  for (const devices::PoolMember& member : *pool) {
    names += (names.empty() ? "" : ", ") + member.device->caps().name;
  }
  findings.push_back({Health::kOk, "devices", fmt::format("devices: {} means {}", config.devices, names)});
}

fs::path nearest_folder(const fs::path& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path.empty() ? fs::path(".") : path, ignored);
  while (!fs::is_directory(folder, ignored) && folder.has_parent_path() && folder != folder.parent_path()) {
    folder = folder.parent_path();
  }
  return folder;
}

/// Whether files can be made in `path`, or the folder itself where it is not there yet.
bool look_at_folder(const char* subject, const std::string& path, Health otherwise, const std::string& advice,
                    Findings& findings) {
  const fs::path folder = nearest_folder(path);
  std::error_code ignored;
  fs::path there = path;  // or the nearest above it that is
  while (there.has_relative_path() && !fs::exists(there, ignored)) there = there.parent_path();
  const bool blocked = there.has_relative_path() && !fs::is_directory(there, ignored);
  if (!blocked && ::access(folder.c_str(), W_OK | X_OK) == 0) {
    findings.push_back(
        {Health::kOk, subject, fmt::format("{} can be written", path.empty() ? "the current folder" : path)});
    return true;
  }
  findings.push_back({otherwise, subject,
                      fmt::format("{} {}; {}", blocked ? there.string() : folder.string(),
                                  blocked ? "is a file" : "cannot be written by this user", advice)});
  return false;
}

void look_at_space(const std::string& path, Findings& findings) {
  const Bytes free = offload::free_disk_bytes(nearest_folder(path));
  const std::string text = fmt::format("{} free in {}", format_bytes(free), nearest_folder(path).string());
  if (free < 256_MiB) {
    findings.push_back({Health::kProblem, "disk space", text + "; make room: a checkpoint does not fit"});
  } else if (free < 10_GiB) {
    findings.push_back({Health::kAdvice, "disk space", text + "; checkpoints of full runs take 12 bytes a parameter"});
  } else {
    findings.push_back({Health::kOk, "disk space", text});
  }
}

void look_at_disk_speed(const std::string& nvme_path, Findings& findings) {
  const fs::path folder = nearest_folder(nvme_path);
  const auto speed = offload::measure_disk(folder);
  if (!speed.ok()) {
    findings.push_back(
        {nvme_path.empty() ? Health::kAdvice : Health::kProblem, "disk speed", message_of(speed.status())});
    return;
  }
  const std::string text =
      fmt::format("{:.2f} GB/s, reading and writing in turn, in {}", *speed / 1e9, folder.string());
  const bool slow = !nvme_path.empty() && *speed < 1e9;
  findings.push_back({slow ? Health::kAdvice : Health::kOk, "disk speed",
                      slow ? text + "; steps will wait for it: `rondo plan` tells how long" : text});
}

void look_at_caches(Findings& findings) {
  const char* const forgets = "measured speeds will not be remembered: name a folder in XDG_CACHE_HOME";
  const devices::CalibrationStore store = devices::CalibrationStore::of_user();
  if (!store.note().empty()) findings.push_back({Health::kAdvice, "cache", store.note()});
  if (const fs::path& speeds = store.file(); speeds.empty()) {
    findings.push_back({Health::kAdvice, "cache", forgets});
  } else {
    look_at_folder("cache", speeds.parent_path().string(), Health::kAdvice, forgets, findings);
  }
  const std::string hub = hub_cache().string();
  std::error_code error;
  std::size_t models = 0;
  for (const fs::path& path : entries_of(hub, error)) {
    if (path.filename().string().starts_with("models--")) ++models;
  }
  findings.push_back({Health::kOk, "hugging face",
                      error ? fmt::format("no cache in {}: models are named by their folder", hub)
                            : fmt::format("{} models in {}", models, hub)});
}

void look_at_editing(Findings& findings) {
  if (void* library = ::dlopen("libedit.so.2", RTLD_LAZY | RTLD_LOCAL); library != nullptr) {
    ::dlclose(library);
    findings.push_back({Health::kOk, "line editing", "libedit is there for `rondo chat`"});
  } else {
    findings.push_back({Health::kAdvice, "line editing", "`rondo chat` edits lines with libedit; install libedit2"});
  }
}

}  // namespace

const char* name_of(Health health) {
  return health == Health::kOk ? "ok" : health == Health::kAdvice ? "advice" : "problem";
}

std::vector<Finding> diagnose(const Config& config) {
  Findings findings;
  look_at_processor(findings);
  look_at_memory(findings);
  const std::vector<std::string> vendors = card_vendors();
  const bool by_vulkan = look_at_vulkan(vendors, findings);
  const bool by_cuda = look_at_cuda(vendors, findings);
  look_at_locks(by_vulkan || by_cuda, findings);
  look_at_pool(config, findings);
  look_at_folder("output", config.output_dir, Health::kProblem, "name another folder in output_dir", findings);
  look_at_space(config.output_dir, findings);
  if (!config.nvme_path.empty()) {
    look_at_folder("nvme_path", config.nvme_path, Health::kProblem, "name another folder in nvme_path", findings);
  }
  look_at_disk_speed(config.nvme_path, findings);
  look_at_caches(findings);
  look_at_editing(findings);
  return findings;
}

}  // namespace rondo::train
