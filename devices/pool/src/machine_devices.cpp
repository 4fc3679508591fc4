// Behind machine_devices.h.
#include "machine_devices.h"

#include <algorithm>
#include <vector>

#include "fmt/ranges.h"

namespace rondo::devices {
namespace {

/// Whether a card that Vulkan shows is left to CUDA: it is among the cards that CUDA can open, or hidden from it.
bool belongs_to_cuda(const vulkan::CardInfo& card, std::span<const cuda::CardInfo> cuda) {
  const auto same = [&card](const cuda::CardInfo& one) { return is_one_card(one.uuid, card.uuid); };
  const auto found = std::find_if(cuda.begin(), cuda.end(), same);
  if (found != cuda.end()) return found->unsuitable.empty();
  return card.cuda_too && !cuda.empty();
}

}  // namespace

bool is_one_card(const CardUuid& first, const CardUuid& second) { return first == second && first != CardUuid{}; }

std::string machine_devices(std::span<const cuda::CardInfo> cuda, std::span<const vulkan::CardInfo> vulkan, bool all) {
  std::vector<std::string> entries;
  for (std::size_t i = 0; i < cuda.size(); ++i) {
    if (cuda[i].unsuitable.empty()) entries.push_back(fmt::format("cuda:{}", i));
  }
  std::vector<CardUuid> taken;
  for (const vulkan::CardInfo& card : vulkan) {
    if (!card.unsuitable.empty() || (card.software && !all) || belongs_to_cuda(card, cuda)) continue;
    if (std::ranges::any_of(taken, [&card](const CardUuid& one) { return is_one_card(one, card.uuid); })) continue;
    taken.push_back(card.uuid);
    entries.push_back(fmt::format("vulkan:{}", card.index));
  }
  if (all || entries.empty()) entries.insert(entries.begin(), "cpu");
  return fmt::format("{}", fmt::join(entries, ","));
}

}  // namespace rondo::devices
