#include "program_cache.h"

#include <algorithm>

#include "rondo/base/status.h"

namespace rondo::schedule {

absl::StatusOr<const devices::Program*> ProgramCache::prepare(model::LayerIndex layer, model::Phase phase,
                                                              model::Keep keep, std::uint32_t bucket) {
  const Key key = key_of(layer, phase, keep, bucket);
  const auto found = programs_.find(key);
  if (found != programs_.end()) return found->second.get();
  devices::OpList list = model_.record(layer, phase, keep, bucket);
  list.sequence_length = std::min(sequence_length_, bucket);
  RONDO_RETURN_IF_ERROR(devices::validate(list));
  auto program = device_.compile(list, devices::plan_arena(list));
  if (!program.ok()) return with_context(program.status(), device_.caps().name);
  return programs_.emplace(key, *std::move(program)).first->second.get();
}

const devices::Program& ProgramCache::get(model::LayerIndex layer, model::Phase phase, model::Keep keep,
                                          std::uint32_t bucket) const {
  return *programs_.at(key_of(layer, phase, keep, bucket));
}

}  // namespace rondo::schedule
