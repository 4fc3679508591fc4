// From the `devices` key to open devices.
//
//   pool   = "auto" | "all" | entry { "," entry }  entry = device [ "*" count ]
//   device = "cpu" [ ":0" ] | ( "cuda" | "vulkan" ) [ ":" index ] | "emulated:" card | "timed:" card | "null"
//          | card, of the kind of the card before it
//   limits = [ name "=" bytes { "," name "=" bytes } ]
#include "rondo/devices/pool.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "machine_devices.h"
#include "rondo/base/status.h"
#include "rondo/base/text.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/cuda/cuda_device.h"
#include "rondo/devices/emulated/emulated_device.h"
#include "rondo/devices/host_memory.h"
#include "rondo/devices/null/null_device.h"
#include "rondo/devices/random.h"
#include "rondo/devices/vulkan/vulkan_device.h"

namespace rondo::devices {
namespace {

constexpr std::uint64_t kMostMembers = 1024;
constexpr const char* kPossible =
    "possible are cpu, cuda:N, vulkan:N, emulated:CARD and timed:CARD (CARD: see `rondo devices --catalogue`)";

enum class Kind : std::uint8_t { kCpu, kNull, kEmulated, kTimed, kVulkan, kCuda };

/// A member before it is opened.
struct Request {
  Kind kind = Kind::kCpu;
  std::string name;
  DeviceProfile card;         // emulated and timed
  Bytes limit = 0;            // 0: none
  vulkan::CardInfo vulkan;    // vulkan
  std::uint32_t cuda = 0;     // cuda: the card's number
  CardUuid uuid{};            // cuda and vulkan
  std::uint32_t sharers = 1;  // requests for the same memory of the machine: its own, or a card's
};

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  std::size_t from = 0;
  for (;;) {
    const std::size_t comma = text.find(',', from);
    parts.emplace_back(trimmed(text.substr(from, comma == std::string::npos ? comma : comma - from)));
    if (comma == std::string::npos) return parts;
    from = comma + 1;
  }
}

bool starts_with(const std::string& text, std::string_view prefix) { return text.rfind(prefix, 0) == 0; }

/// Takes "*n" off the end of `entry`.
absl::StatusOr<std::uint64_t> take_count(std::string& entry) {
  const std::size_t star = entry.rfind('*');
  if (star == std::string::npos) return 1;
  const std::string digits(trimmed(std::string_view(entry).substr(star + 1)));
  const bool number = !digits.empty() && digits.size() < 6 && std::all_of(digits.begin(), digits.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  const std::uint64_t count = number ? std::strtoull(digits.c_str(), nullptr, 10) : 0;
  if (count == 0 || count > kMostMembers) {
    return invalid_input("devices: '{}': expected a count from 1 to {} after '*'", entry, kMostMembers);
  }
  entry = std::string(trimmed(std::string_view(entry).substr(0, star)));
  return count;
}

/// The N of "BACKEND:N", 0 of "BACKEND".
absl::StatusOr<std::uint32_t> card_number(const std::string& entry, const std::string& backend) {
  const std::string digits = entry == backend ? "0" : entry.substr(backend.size() + 1);
  const bool number = !digits.empty() && digits.size() < 4 && std::all_of(digits.begin(), digits.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
  if (!number) return invalid_input("devices: '{}': expected {}:N, N the card's number from 0", entry, backend);
  return static_cast<std::uint32_t>(std::strtoul(digits.c_str(), nullptr, 10));
}

/// `entry` is "cuda" or begins with "cuda:". Whether there is such a card shows when it is opened.
absl::StatusOr<Request> cuda_request(const std::string& entry) {
  if (!cuda::has_kernels()) {
    return invalid_input("devices: '{}': this build has no cuda backend; {}", entry, kPossible);
  }
  Request request;
  request.kind = Kind::kCuda;
  RONDO_ASSIGN_OR_RETURN(request.cuda, card_number(entry, "cuda"));
  const auto cards = cuda::list_cards();
  if (cards.ok() && request.cuda < cards->size()) request.uuid = (*cards)[request.cuda].uuid;
  return request;
}

/// `entry` is "vulkan" or begins with "vulkan:".
absl::StatusOr<Request> vulkan_request(const std::string& entry) {
  RONDO_ASSIGN_OR_RETURN(const std::size_t index, card_number(entry, "vulkan"));
  const auto cards = vulkan::list_cards();
  if (!cards.ok()) {
    return invalid_input("devices: '{}': {}; {}", entry, message_of(cards.status()), kPossible);
  }
  if (index >= cards->size()) {
    return invalid_input("devices: '{}': this machine has {} Vulkan device(s), the last is vulkan:{}", entry,
                         cards->size(), cards->size() - 1);
  }
  Request request;
  request.kind = Kind::kVulkan;
  request.vulkan = (*cards)[index];
  request.uuid = request.vulkan.uuid;
  return request;
}

std::string devices_of_machine(bool all) {
  const auto cuda_cards = cuda::has_kernels() ? cuda::list_cards() : std::vector<cuda::CardInfo>{};
  const auto vulkan_cards = vulkan::list_cards();
  return machine_devices(cuda_cards.value_or(std::vector<cuda::CardInfo>{}),
                         vulkan_cards.value_or(std::vector<vulkan::CardInfo>{}), all);
}

absl::StatusOr<Request> request_of(const std::string& entry) {
  Request request;
  if (entry == "cpu" || entry == "cpu:0") return request;
  if (entry == "null") {
    request.kind = Kind::kNull;
    return request;
  }
  if (starts_with(entry, "cpu:")) return invalid_input("devices: '{}': this machine has one CPU, 'cpu:0'", entry);
  for (const auto& [prefix, kind] : {std::pair{"emulated:", Kind::kEmulated}, std::pair{"timed:", Kind::kTimed}}) {
    if (!starts_with(entry, prefix)) continue;
    request.kind = kind;
    absl::StatusOr<DeviceProfile> card = find_card(entry.substr(std::string_view(prefix).size()));
    if (!card.ok()) return with_context(card.status(), fmt::format("devices: '{}'", entry));
    request.card = *std::move(card);
    return request;
  }
  if (entry == "vulkan" || starts_with(entry, "vulkan:")) return vulkan_request(entry);
  if (entry == "cuda" || starts_with(entry, "cuda:")) return cuda_request(entry);
  return invalid_input("devices: '{}' is no device; {}", entry, kPossible);
}

/// What members are counted under: "cpu", "emulated:rtx4090".
std::string family_of(const Request& request) {
  switch (request.kind) {
    case Kind::kCpu:
      return "cpu";
    case Kind::kNull:
      return "null";
    case Kind::kEmulated:
      return "emulated:" + request.card.name;
    case Kind::kTimed:
      return "timed:" + request.card.name;
    case Kind::kVulkan:
      return fmt::format("vulkan:{}", request.vulkan.index);
    case Kind::kCuda:
      return fmt::format("cuda:{}", request.cuda);
  }
  return "";
}

absl::StatusOr<std::vector<Request>> parse_devices(const std::string& devices) {
  std::vector<Request> requests;
  std::map<std::string, std::uint64_t> members;  // by family
  const std::string wanted(trimmed(devices));
  const bool chosen_here = wanted == "auto" || wanted == "all";
  std::string kind_before;  // "emulated:rtx4090*2,rtx3060": a card alone is of the kind named last
  for (std::string entry : split(chosen_here ? devices_of_machine(wanted == "all") : wanted)) {
    const std::string written = entry;
    RONDO_ASSIGN_OR_RETURN(const std::uint64_t count, take_count(entry));
    for (const char* kind : {"emulated:", "timed:"}) {
      if (starts_with(entry, kind)) kind_before = kind;
    }
    if (!kind_before.empty() && entry.find(':') == std::string::npos && find_card(entry).ok()) {
      entry.insert(0, kind_before);
    }
    RONDO_ASSIGN_OR_RETURN(Request request, request_of(entry));
    if (entry == "cpu:0" && (count > 1 || members["cpu"] > 0)) {
      return invalid_input("devices: '{}': 'cpu:0' is in the pool already; write cpu*n for several", written);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t member = members[family_of(request)]++;
      request.name = fmt::format("{}:{}", family_of(request), member);
      // A card of the machine bears its own number; opened again ("vulkan:0*2") it gets another behind it.
      const bool of_machine = request.kind == Kind::kVulkan || request.kind == Kind::kCuda;
      if (of_machine && member == 0) request.name = family_of(request);
      requests.push_back(request);
    }
    if (requests.size() > kMostMembers) return invalid_input("devices: more than {} members", kMostMembers);
  }
  const auto timed =
      std::count_if(requests.begin(), requests.end(), [](const Request& r) { return r.kind == Kind::kTimed; });
  if (timed > 0 && static_cast<std::size_t>(timed) < requests.size()) {
    return invalid_input("devices: '{}': timed devices compute nothing and cannot be mixed with others", devices);
  }
  return requests;
}

absl::Status apply_limits(const std::string& limits, std::vector<Request>& requests) {
  if (trimmed(limits).empty()) return absl::OkStatus();
  std::set<std::string> limited;
  for (const std::string& part : split(limits)) {
    const std::size_t equals = part.rfind('=');
    if (equals == std::string::npos) {
      return invalid_input("memory_limit: '{}': expected NAME=BYTES, such as {}=8GiB", part, requests.front().name);
    }
    const std::string name(trimmed(std::string_view(part).substr(0, equals)));
    const absl::StatusOr<Bytes> bytes = parse_bytes(std::string(trimmed(std::string_view(part).substr(equals + 1))));
    if (!bytes.ok()) return with_context(bytes.status(), "memory_limit: " + name);
    const auto found =
        std::find_if(requests.begin(), requests.end(), [&name](const Request& r) { return r.name == name; });
    if (found == requests.end()) {
      std::vector<std::string> names;
      for (const Request& request : requests) names.push_back(request.name);
      return invalid_input("memory_limit: no device '{}' in the pool; it has {}", name, fmt::join(names, ", "));
    }
    if (!limited.insert(name).second) return invalid_input("memory_limit: {}: given twice; leave one of them", name);
    found->limit = *bytes;
  }
  return absl::OkStatus();
}

/// A CPU's speeds before any measurement: modest for a core of the last ten years.
DeviceProfile estimated_cpu(const Device& device, const ThreadPool& threads) {
  const auto cores = static_cast<double>(threads.threads());
  DeviceProfile profile;
  profile.name = "cpu";
  profile.flops = {{DType::kFloat32, 60e9 * cores}, {DType::kBfloat16, 60e9 * cores}, {DType::kFloat16, 60e9 * cores}};
  profile.memory_bytes = device.caps().memory_bytes;
  profile.memory_bandwidth = std::min(8e9 * cores, 80e9);
  profile.link_up = profile.memory_bandwidth / 2;
  profile.link_down = profile.memory_bandwidth / 2;
  profile.link_latency_seconds = 1e-5;
  profile.jitter = 0;
  profile.source = "an estimate from the number of threads";
  return profile;
}

/// A card's speeds before any measurement, by what kind of card it is.
DeviceProfile estimated_vulkan(const Device& device, const vulkan::CardInfo& card, const ThreadPool& threads) {
  DeviceProfile profile = estimated_cpu(device, threads);
  profile.source = "an estimate from the kind of card";
  if (card.software) {
    // The same cores by way of kernels that were written for GPUs.
    for (auto& [dtype, speed] : profile.flops) speed /= 10;
    return profile;
  }
  profile.name = card.name;
  const double flops = card.integrated ? 5e11 : 5e12;
  profile.flops = {{DType::kFloat32, flops}, {DType::kBfloat16, flops}, {DType::kFloat16, flops}};
  profile.memory_bandwidth = card.integrated ? 5e10 : 3e11;
  profile.link_up = card.integrated ? 1e10 : 1.2e10;
  profile.link_down = profile.link_up;
  return profile;
}

bool share_memory(const Request& one, const Request& other) {
  const auto place = [](const Request& request) {
    return std::tuple(request.kind, request.vulkan.index, request.cuda);
  };
  return place(one) == place(other) || is_one_card(one.uuid, other.uuid);
}

void count_sharers(std::vector<Request>& requests) {
  for (Request& request : requests) {
    const auto shares = [&request](const Request& other) { return share_memory(request, other); };
    request.sharers = static_cast<std::uint32_t>(std::ranges::count_if(requests, shares));
  }
}

/// Opens members one by one; remembers the root complexes that cards share.
class Opener {
 public:
  explicit Opener(ThreadPool& threads) : threads_(threads) {}

  absl::StatusOr<PoolMember> open(const Request& request) {
    PoolMember member;
    switch (request.kind) {
      case Kind::kCpu: {
        RONDO_ASSIGN_OR_RETURN(member.device, open_cpu(request));
        member.profile = estimated_cpu(*member.device, threads_);
        break;
      }
      case Kind::kNull: {
        RONDO_ASSIGN_OR_RETURN(member.device,
                               null::open_null({request.name, request.limit > 0 ? request.limit : 64_MiB}));
        member.profile = estimated_cpu(*member.device, threads_);
        member.profile.name = "null";
        break;
      }
      case Kind::kEmulated:
      case Kind::kTimed: {
        RONDO_ASSIGN_OR_RETURN(member.device, open_card(request));
        member.profile = request.card;
        member.described = true;
        break;
      }
      case Kind::kVulkan: {
        RONDO_ASSIGN_OR_RETURN(member.device, open_card_of_machine(request));
        member.profile = estimated_vulkan(*member.device, request.vulkan, threads_);
        break;
      }
      case Kind::kCuda: {
        const cuda::CudaOptions options{request.name, request.cuda, request.limit, request.sharers, false};
        RONDO_ASSIGN_OR_RETURN(member.device, cuda::open_cuda(options, &member.profile));
        break;
      }
    }
    member.profile.memory_bytes = member.device->caps().memory_bytes;
    return member;
  }

 private:
  absl::StatusOr<std::unique_ptr<Device>> open_cpu(const Request& request) {
    cpu::CpuOptions options;
    options.name = request.name;
    options.memory_limit = request.limit;
    if (options.memory_limit == 0 && request.sharers > 1) options.memory_limit = available_memory() / request.sharers;
    return cpu::open_cpu(options, threads_);
  }

  absl::StatusOr<std::unique_ptr<Device>> open_card(const Request& request) {
    emulated::CardOptions options;
    options.name = request.name;
    options.profile = request.card;
    options.memory_limit = request.limit;
    options.seed = mix64(++opened_);
    if (!request.card.root.empty()) {
      auto& root = roots_[request.card.root];
      if (root == nullptr) root = emulated::make_root_complex();
      options.root = root;
    }
    return request.kind == Kind::kTimed ? emulated::open_timed(options) : emulated::open_emulated(options, threads_);
  }

  static absl::StatusOr<std::unique_ptr<Device>> open_card_of_machine(const Request& request) {
    vulkan::VulkanOptions options;
    options.name = request.name;
    options.index = request.vulkan.index;
    options.memory_limit = request.limit;
    options.sharers = request.sharers;
    return vulkan::open_vulkan(options);
  }

  ThreadPool& threads_;
  std::uint64_t opened_ = 0;
  std::map<std::string, std::shared_ptr<emulated::RootComplex>> roots_;
};

}  // namespace

absl::StatusOr<std::vector<PoolMember>> open_pool(const PoolOptions& options, ThreadPool& threads) {
  RONDO_ASSIGN_OR_RETURN(std::vector<Request> requests, parse_devices(options.devices));
  RONDO_RETURN_IF_ERROR(apply_limits(options.memory_limit, requests));
  count_sharers(requests);
  Opener opener(threads);
  std::vector<PoolMember> members;
  for (const Request& request : requests) {
    absl::StatusOr<PoolMember> member = opener.open(request);
    if (!member.ok()) {
      const bool says_which = starts_with(message_of(member.status()), request.name + ":");
      return says_which ? member.status() : with_context(member.status(), request.name);
    }
    members.push_back(*std::move(member));
  }
  return members;
}

}  // namespace rondo::devices
