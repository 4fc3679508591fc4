#include "rondo/train/stored_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "rondo/base/status.h"
#include "rondo/partition/slots.h"

namespace rondo::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDeferring = "deferring";
constexpr std::array kStoredPhases = {partition::SlotPhase::kForward, partition::SlotPhase::kFused,
                                      partition::SlotPhase::kBackward, partition::SlotPhase::kWeightGradient};

const char* recompute_of(partition::Keep keep) {
  if (keep == partition::Keep::kNothing) return "full";
  return keep == partition::Keep::kAll ? "none" : "selective";
}

std::vector<std::string> names_of(const Machine& machine) {
  std::vector<std::string> names;
  for (const partition::DeviceShape& device : machine.shape.devices) names.push_back(device.name);
  return names;
}

/// None: not the text of a slot. Whether its group goes on follows from its round.
std::optional<partition::Slot> slot_of(const std::string& text) {
  std::istringstream words(text);
  std::string phase;
  partition::Slot slot;
  words >> phase >> slot.first_layer >> slot.last_layer >> slot.device >> slot.round;
  const auto found = std::ranges::find_if(
      kStoredPhases, [&phase](partition::SlotPhase one) { return phase == partition::name_of(one); });
  if (!words || found == kStoredPhases.end()) return std::nullopt;
  slot.phase = *found;
  std::string rest;
  if (words >> rest) slot.defers_weights = true;
  if (slot.defers_weights && rest != kDeferring) return std::nullopt;
  return slot;
}

/// Of its rounds and slots; false: they are not there in this form.
bool read_dealing(const Json& stored, std::uint32_t group, std::uint32_t microbatches, partition::Plan& plan) {
  if (!stored.contains("rounds") || !stored["rounds"].is_array()) return false;
  if (!stored.contains("slots") || !stored["slots"].is_array()) return false;
  std::uint32_t next = 0;
  for (const Json& round : stored["rounds"]) {
    if (!round.is_number_unsigned() || round.get<std::uint64_t>() > microbatches - next) return false;
    plan.rounds.push_back({next, round.get<std::uint32_t>()});
    next += plan.rounds.back().microbatches;
  }
  for (const Json& text : stored["slots"]) {
    const auto slot = text.is_string() ? slot_of(text.get<std::string>()) : std::nullopt;
    if (!slot || slot->round >= plan.rounds.size()) return false;
    plan.slots.push_back(*slot);
    const partition::Round& round = plan.rounds[slot->round];
    const std::uint32_t end = round.first_microbatch + round.microbatches;
    plan.slots.back().group_goes_on = slot->phase != partition::SlotPhase::kForward &&
                                      (slot->defers_weights || !partition::completes_group(end, group, microbatches));
  }
  return true;
}

}  // namespace

bool has_several_classes(const Machine& machine) {
  return std::ranges::any_of(machine.pool, [&](const devices::PoolMember& member) {
    return member.device->caps().numerics_class != machine.pool.front().device->caps().numerics_class;
  });
}

Json store_plan(const partition::Plan& plan, const Machine& machine) {
  Json rounds = Json::array();
  for (const partition::Round& round : plan.rounds) rounds.push_back(round.microbatches);
  Json slots = Json::array();
  for (const partition::Slot& slot : plan.slots) {
    slots.push_back(fmt::format("{} {} {} {} {}{}{}", partition::name_of(slot.phase), slot.first_layer, slot.last_layer,
                                slot.device, slot.round, slot.defers_weights ? " " : "",
                                slot.defers_weights ? kDeferring : ""));
  }
  return {{"devices", names_of(machine)},
          {"schedule", partition::name_of(plan.schedule)},
          {"recompute", recompute_of(plan.keep)},
          {"rounds", std::move(rounds)},
          {"slots", std::move(slots)}};
}

absl::StatusOr<partition::Plan> read_plan(const Json& stored, const Config& config, const Machine& machine) {
  const auto other = [](const std::string& why) { return absl::FailedPreconditionError(why); };
  if (!stored.is_object()) return other("the checkpoint holds no plan");
  const auto text = [&stored](const char* key) { return stored.value(key, Json()).dump(); };
  if (stored.value("devices", Json()) != Json(names_of(machine))) {
    return other(fmt::format("the checkpoint's was for devices {}", text("devices")));
  }
  if (stored.value("schedule", Json()) != Json(config.schedule)) {
    return other(fmt::format("the checkpoint's had schedule {}", text("schedule")));
  }
  partition::Plan plan;
  plan.schedule = partition::executable_schedule(config.schedule).value_or(partition::Schedule::kRoundPipe);
  const Json kept = stored.value("recompute", Json());
  for (const partition::Keep keep : {partition::Keep::kNothing, partition::Keep::kSelective, partition::Keep::kAll}) {
    if (kept == Json(recompute_of(keep))) plan.keep = keep;
  }
  if (kept != Json(recompute_of(plan.keep))) return other("the checkpoint's cannot be read");
  if (config.recompute != "auto" && kept != Json(config.recompute)) {
    return other(fmt::format("the checkpoint's had recompute {}", text("recompute")));
  }
  plan.reduction_group = std::min(config.reduction_group, config.gradient_accumulation_steps);
  if (!read_dealing(stored, plan.reduction_group, config.gradient_accumulation_steps, plan)) {
    return other("the checkpoint's cannot be read");
  }
  return plan;
}

}  // namespace rondo::train
