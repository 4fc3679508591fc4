// Copies in flight as flows: each direction of each link carries one flow at a time, the urgent one first; flows of one
// root complex share the bandwidth of its fastest link fairly, and all flows together, where it is asked for, that of
// the host's memory. The host's optimizer is a flow too.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "rondo/partition/shape.h"

namespace rondo::partition {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// Indices of flows: 2 d is the link up of device d, 2 d + 1 its link down, the last one is the optimizer.
using LinkIndex = std::uint32_t;

class FluidLinks {
 public:
  enum Lane : std::uint8_t { kUrgent = 0, kBulk = 1 };

  explicit FluidLinks(const MachineShape& machine);

  LinkIndex up(DeviceIndex device) const { return 2 * device; }
  LinkIndex down(DeviceIndex device) const { return 2 * device + 1; }
  LinkIndex optimizer() const { return static_cast<LinkIndex>(links_.size() - 1); }

  /// Seconds that a copy takes alone.
  double seconds_alone(LinkIndex link, double bytes) const;

  /// A copy of `bytes` begins at `now`; an urgent one stops a bulk one on the same link. REQUIRES: the lane is idle.
  void begin(LinkIndex link, Lane lane, double bytes, double now);
  /// The same with a known time of its own, `seconds` for `bytes`.
  void begin(LinkIndex link, Lane lane, double bytes, double seconds, double now);
  bool idle(LinkIndex link, Lane lane) const { return links_[link].lanes[lane].remaining <= 0; }

  /// Links whose flow has another end than before, since the last call.
  const std::vector<LinkIndex>& changed() const { return changed_; }
  void clear_changed() { changed_.clear(); }
  double end_of(LinkIndex link) const { return links_[link].end; }
  /// Ends the running flow of `link` at its end; says which lane it was.
  Lane finish(LinkIndex link, double now);

 private:
  struct Flow {
    double remaining = 0;  // bytes; 0: idle
    double own_rate = 0;   // bytes/s when nothing is shared
  };
  struct Link {
    std::array<Flow, 2> lanes;
    double bandwidth = 0;
    double latency = 0;
    double chunk = 1;
    std::int32_t group = -1;  // of links that share; -1: alone
    double rate = 0;          // of the running flow
    double since = 0;         // its `remaining` was right then
    double end = kNever;
    bool running() const { return lanes[0].remaining > 0 || lanes[1].remaining > 0; }
    Flow& flow() { return lanes[lanes[0].remaining > 0 ? 0 : 1]; }
  };
  struct Group {
    std::vector<LinkIndex> links;
    double bandwidth = 0;
  };

  void settle(Link& link, double now) const;
  void share(LinkIndex link, double now);
  void share_group(Group& group);
  void set_end(LinkIndex index, double before, double now);

  std::vector<Link> links_;
  std::vector<Group> groups_;
  double host_bandwidth_ = 0;  // 0: not shared
  std::vector<LinkIndex> changed_;
  std::vector<double> rates_;  // before a change, by link
  std::vector<bool> settled_;  // of the group at hand, by member
};

}  // namespace rondo::partition
