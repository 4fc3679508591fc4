#include "program_cache.h"

#include <algorithm>

#include "rondo/base/status.h"
#include "rondo/partition/shape.h"
#include "rondo/schedule/programs.h"

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

namespace {

absl::Status prepare_forward(const model::Architecture& model, model::LayerIndex index, std::uint32_t bucket,
                             ProgramCache& programs) {
  const bool head = model.layers()[index].kind == model::LayerKind::kHead;
  const bool part = head && index + 1 < model.layers().size();
  const model::Phase phase = head ? model::Phase::kEvaluate : model::Phase::kForward;
  RONDO_RETURN_IF_ERROR(programs.prepare(index, phase, model::Keep::kNothing, bucket).status());
  if (!part) return absl::OkStatus();
  return programs.prepare(index, model::Phase::kForward, model::Keep::kNothing, bucket).status();
}

absl::Status prepare_back(const model::Architecture& model, model::LayerIndex index, std::uint32_t bucket,
                          ProgramCache& programs) {
  const model::Layer& layer = model.layers()[index];
  const bool head = layer.kind == model::LayerKind::kHead;
  const bool part = head && index + 1 < model.layers().size();
  const auto compile = [&](model::Phase phase, model::Keep keep) {
    return programs.prepare(index, phase, keep, bucket).status();
  };
  if (!layer.has_backward) return absl::OkStatus();
  if (part) RONDO_RETURN_IF_ERROR(compile(model::Phase::kBackward, model::Keep::kNothing));
  for (std::size_t k = 0; k < partition::kKeeps; ++k) {
    const auto keep = static_cast<model::Keep>(k);
    RONDO_RETURN_IF_ERROR(compile(head ? model::Phase::kFused : model::Phase::kBackward, keep));
    if (!head) RONDO_RETURN_IF_ERROR(compile(model::Phase::kForward, keep));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status try_programs(devices::Device& device, const model::Architecture& model, std::uint32_t tokens,
                          std::uint32_t sequence_length) {
  ProgramCache programs(device, model, sequence_length);
  const std::uint32_t bucket = devices::token_bucket(tokens);
  for (model::LayerIndex i = 0; i < model.layers().size(); ++i) {
    RONDO_RETURN_IF_ERROR(prepare_forward(model, i, bucket, programs));
    RONDO_RETURN_IF_ERROR(prepare_back(model, i, bucket, programs));
  }
  return absl::OkStatus();
}

absl::Status try_layer(devices::Device& device, const model::Architecture& model, model::LayerIndex layer,
                       bool goes_back, std::uint32_t tokens, std::uint32_t sequence_length) {
  ProgramCache programs(device, model, sequence_length);
  const std::uint32_t bucket = devices::token_bucket(tokens);
  return goes_back ? prepare_back(model, layer, bucket, programs) : prepare_forward(model, layer, bucket, programs);
}

}  // namespace rondo::schedule
