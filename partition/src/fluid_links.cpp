#include "fluid_links.h"

#include <algorithm>
#include <map>
#include <string>

#include "rondo/devices/chunk.h"

namespace rondo::partition {

FluidLinks::FluidLinks(const MachineShape& machine) : links_(2 * machine.devices.size() + 1) {
  std::map<std::string, std::int32_t> roots;
  for (DeviceIndex i = 0; i < machine.devices.size(); ++i) {
    const devices::DeviceProfile& profile = machine.devices[i].profile;
    const bool copies = !machine.devices[i].unified_memory;
    for (const LinkIndex index : {up(i), down(i)}) {
      Link& link = links_[index];
      link.bandwidth = !copies ? 0 : index == up(i) ? profile.link_up : profile.link_down;
      link.latency = profile.link_latency_seconds;
      link.chunk = static_cast<double>(devices::chunk_for(profile.link_up));
      if (profile.root.empty() || link.bandwidth <= 0) continue;
      const std::string name = profile.root + (index == up(i) ? " up" : " down");
      const auto [root, added] = roots.try_emplace(name, static_cast<std::int32_t>(groups_.size()));
      if (added) groups_.emplace_back();
      link.group = root->second;
      Group& group = groups_[static_cast<std::size_t>(root->second)];
      group.links.push_back(index);
      group.bandwidth = std::max(group.bandwidth, link.bandwidth);
    }
  }
  if (machine.copies_use_host_memory) host_bandwidth_ = machine.host.memory_bandwidth;
  rates_.resize(links_.size());
}

double FluidLinks::seconds_alone(LinkIndex link, double bytes) const {
  const Link& shape = links_[link];
  if (bytes <= 0 || shape.bandwidth <= 0) return 0;
  return bytes / shape.bandwidth + shape.latency * std::max(1.0, bytes / shape.chunk);
}

void FluidLinks::begin(LinkIndex link, Lane lane, double bytes, double now) {
  begin(link, lane, bytes, seconds_alone(link, bytes), now);
}

void FluidLinks::begin(LinkIndex index, Lane lane, double bytes, double seconds, double now) {
  Link& link = links_[index];
  settle(link, now);
  link.lanes[lane] = {bytes, bytes / seconds};
  share(index, now);
}

FluidLinks::Lane FluidLinks::finish(LinkIndex index, double now) {
  Link& link = links_[index];
  const Lane lane = link.lanes[kUrgent].remaining > 0 ? kUrgent : kBulk;
  settle(link, now);
  link.lanes[lane].remaining = 0;
  share(index, now);
  return lane;
}

void FluidLinks::settle(Link& link, double now) const {
  if (link.running()) {
    Flow& flow = link.flow();
    flow.remaining = std::max(flow.remaining - (now - link.since) * link.rate, 1e-6);
  }
  link.since = now;
}

void FluidLinks::set_end(LinkIndex index, double before, double now) {
  Link& link = links_[index];
  const double end = link.running() && link.rate > 0 ? now + link.flow().remaining / link.rate : kNever;
  if (link.rate == before && end == link.end) return;
  link.end = end;
  changed_.push_back(index);
}

void FluidLinks::share(LinkIndex index, double now) {
  Link& link = links_[index];
  const auto alone = [](Link& other) { other.rate = other.running() ? other.flow().own_rate : 0; };
  if (host_bandwidth_ <= 0 && link.group < 0) {
    alone(link);
    link.end = kNever;
    return set_end(index, -1, now);
  }
  const bool everything = host_bandwidth_ > 0;
  std::vector<LinkIndex>* members =
      everything || link.group < 0 ? nullptr : &groups_[static_cast<std::size_t>(link.group)].links;
  const std::size_t count = members != nullptr ? members->size() : links_.size();
  const auto member = [&](std::size_t i) { return members != nullptr ? (*members)[i] : static_cast<LinkIndex>(i); };
  for (std::size_t i = 0; i < count; ++i) {
    Link& other = links_[member(i)];
    if (member(i) != index) settle(other, now);
    rates_[member(i)] = other.rate;
    alone(other);
  }
  if (everything) {
    for (Group& group : groups_) share_group(group);
    double total = 0;
    for (const Link& other : links_) total += other.rate;
    const double scale = total > host_bandwidth_ ? host_bandwidth_ / total : 1.0;
    for (Link& other : links_) other.rate *= scale;
  } else {
    share_group(groups_[static_cast<std::size_t>(link.group)]);
  }
  link.end = kNever;
  for (std::size_t i = 0; i < count; ++i) set_end(member(i), member(i) == index ? -1 : rates_[member(i)], now);
}

/// Flows slower than their part leave the rest to the others: repeat until none is.
void FluidLinks::share_group(Group& group) {
  double left = group.bandwidth;
  std::size_t open = 0;
  for (const LinkIndex index : group.links) open += links_[index].rate > 0 ? 1U : 0U;
  std::vector<bool>& settled = settled_;
  settled.assign(group.links.size(), false);
  while (open > 0) {
    const double part = left / static_cast<double>(open);
    bool any = false;
    for (std::size_t i = 0; i < group.links.size(); ++i) {
      const Link& link = links_[group.links[i]];
      if (settled[i] || link.rate <= 0 || link.rate > part) continue;
      settled[i] = any = true;
      left -= link.rate;
      --open;
    }
    if (any) continue;
    for (std::size_t i = 0; i < group.links.size(); ++i) {
      Link& link = links_[group.links[i]];
      if (!settled[i] && link.rate > 0) link.rate = part;
    }
    return;
  }
}

}  // namespace rondo::partition
