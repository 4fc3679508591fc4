#include "rondo/train/generator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "rondo/base/status.h"
#include "rondo/devices/random.h"
#include "rondo/schedule/batch.h"
#include "rondo/schedule/shape.h"

namespace rondo::train {
namespace {

constexpr auto kNever = std::chrono::steady_clock::time_point::max();

/// Ids by falling logit, equal ones by rising id; only the first `count` are in order.
std::vector<std::int32_t> ranked(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(), more_likely);
  ids.resize(count);
  return ids;
}

/// Tokens that may come after up to `capacity` in all, through one layer. `scratch`: comes to be at least what the
/// program works in.
absl::StatusOr<std::unique_ptr<devices::Program>> compile_layer(const model::Architecture& model,
                                                                devices::Device& device, model::LayerIndex layer,
                                                                std::uint32_t tokens, std::uint32_t capacity,
                                                                Bytes& scratch) {
  const devices::OpList list = model.record(layer, model::Phase::kDecode, model::Keep::kNothing, tokens, capacity);
  RONDO_RETURN_IF_ERROR(devices::validate(list));
  const devices::ArenaLayout layout = devices::plan_arena(list);
  scratch = std::max(scratch, layout.size);
  return device.compile(list, layout);
}

}  // namespace

absl::Status try_generation(const model::Architecture& model, devices::Device& device, std::uint32_t prompt_tokens,
                            std::uint32_t capacity) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<devices::Program>> programs;  // class, tokens
  Bytes scratch = 0;
  for (model::LayerIndex layer = 0; layer <= model.first_head_layer(); ++layer) {
    for (const std::uint32_t tokens : {devices::token_bucket(prompt_tokens), std::uint32_t{1}}) {
      auto& program = programs[{model.layers()[layer].program_class, tokens}];
      if (program != nullptr) continue;
      RONDO_ASSIGN_OR_RETURN(program, compile_layer(model, device, layer, tokens, capacity, scratch));
    }
  }
  return absl::OkStatus();
}

std::int32_t choose_token(std::span<const float> logits, const SamplingOptions& options, std::uint64_t position) {
  if (options.temperature <= 0) {
    return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const std::size_t kept = options.top_k > 0 ? std::min<std::size_t>(options.top_k, logits.size()) : logits.size();
  const std::vector<std::int32_t> ids = ranked(logits, kept);
  std::vector<double> weights;
  const double best = logits[static_cast<std::size_t>(ids[0])];
  double sum = 0;
  for (const std::int32_t id : ids) {
    weights.push_back(
        std::exp((static_cast<double>(logits[static_cast<std::size_t>(id)]) - best) / options.temperature));
    sum += weights.back();
  }
  // The smallest set of most likely tokens that holds top_p of the probability.
  std::size_t count = 0;
  double mass = 0;
  while (count < weights.size() && (count == 0 || mass < options.top_p * sum)) mass += weights[count++];
  const std::uint64_t draw = devices::mix64(devices::combine_keys(options.seed, position));
  double target = static_cast<double>(draw >> 11U) * 0x1.0p-53 * mass;
  for (std::size_t i = 0; i < count; ++i) {
    target -= weights[i];
    if (target < 0) return ids[i];
  }
  return ids[count - 1];
}

class Generator::Impl {
 public:
  Impl(const model::Architecture& model, offload::ParameterStore& parameters, devices::Device& device,
       std::uint32_t capacity)
      : model_(model),
        parameters_(parameters),
        device_(device),
        unified_(device.caps().unified_memory),
        capacity_(capacity) {}

  absl::Status prepare(std::uint32_t prompt_tokens, const Impl* lender) {
    RONDO_ASSIGN_OR_RETURN(timeline_, device_.timeline());
    prompt_bucket_ = devices::token_bucket(prompt_tokens);
    for (const std::uint32_t tokens : {prompt_bucket_, std::uint32_t{1}}) RONDO_RETURN_IF_ERROR(compile(tokens));
    RONDO_RETURN_IF_ERROR(place_weights(lender));
    caches_.resize(model_.layers().size());
    for (model::LayerIndex layer = 0; layer <= model_.first_head_layer(); ++layer) {
      RONDO_RETURN_IF_ERROR(take_caches(layer));
    }
    for (devices::Buffer& buffer : activations_)
      RONDO_RETURN_IF_ERROR(take(buffer, model_.boundary_bytes(prompt_bucket_, model::Phase::kDecode)));
    RONDO_RETURN_IF_ERROR(take_scratch());
    RONDO_RETURN_IF_ERROR(take(batch_, schedule::BatchLayout(model_, prompt_bucket_).total()));
    RONDO_RETURN_IF_ERROR(take(logits_, Bytes{model_.config().vocab_size} * sizeof(float)));
    RONDO_ASSIGN_OR_RETURN(host_batch_, devices::allocate_host(batch_.size(), "generation"));
    RONDO_ASSIGN_OR_RETURN(host_logits_, devices::allocate_host(logits_.size(), "generation"));
    return absl::OkStatus();
  }

  /// Logits after `prompt`; what it shares with the tokens in the caches is left as it is.
  absl::StatusOr<std::span<const float>> begin(std::span<const std::int32_t> prompt) {
    if (prompt.empty()) return invalid_input("the prompt gives no token");
    if (prompt.size() > capacity_) {
      return invalid_input("the prompt has {} tokens, the key/value cache room for {}", prompt.size(), capacity_);
    }
    const auto ends = std::ranges::mismatch(cached_, prompt);
    // The last token is computed in any case: its logits begin the answer.
    reused_ = std::min(static_cast<std::size_t>(ends.in1 - cached_.begin()), prompt.size() - 1);
    if (keeps_states(model_.config()) && reused_ < cached_.size()) reused_ = 0;
    cached_.resize(reused_);
    std::span<const float> logits;
    while (cached_.size() < prompt.size()) {
      const std::size_t count = std::min<std::size_t>(prompt.size() - cached_.size(), prompt_bucket_);
      RONDO_ASSIGN_OR_RETURN(logits, append(prompt.subspan(cached_.size(), count)));
    }
    return logits;
  }

  /// Logits after `ids`, which follow the tokens in the caches.
  absl::StatusOr<std::span<const float>> append(std::span<const std::int32_t> ids) {
    const auto first = static_cast<std::uint32_t>(cached_.size());
    const std::uint32_t tokens =
        ids.size() == 1 ? 1 : std::min(devices::token_bucket(static_cast<std::uint32_t>(ids.size())), prompt_bucket_);
    RONDO_RETURN_IF_ERROR(compile(tokens));
    if (scratch_bytes_ > scratch_.size()) RONDO_RETURN_IF_ERROR(take_scratch());
    schedule::Microbatch batch;
    batch.ids.assign(ids.begin(), ids.end());
    for (std::size_t i = 0; i < ids.size(); ++i) batch.positions.push_back(static_cast<std::int32_t>(first + i));
    batch.targets.assign(ids.size(), -1);
    batch.keys.assign(ids.size(), 0);
    batch.bounds = {0, static_cast<std::int32_t>(ids.size())};
    const devices::BufferView table =
        model_.block_table() ? weights_[model_.block_table()->table] : devices::BufferView();
    schedule::pack_batch(model_, table, batch, tokens, nullptr, host_batch_.view().host());
    const Bytes batch_bytes = schedule::BatchLayout(model_, tokens).total();
    RONDO_RETURN_IF_ERROR(
        copy(devices::QueueRole::kUp, host_batch_.view().part(0, batch_bytes), batch_.view().part(0, batch_bytes)));
    std::vector<devices::Bindings> bindings(model_.layers().size());
    std::uint64_t last = 0;
    for (model::LayerIndex layer = 0; layer <= model_.first_head_layer(); ++layer) {
      const devices::Program& program = *programs_.at({model_.layers()[layer].program_class, tokens});
      bind(layer, tokens, program.ops(), bindings[layer]);
      last = ++value_;
      device_.queue(devices::QueueRole::kCompute)
          .run(program, bindings[layer], {}, {timeline_.get(), last}, {"decode", 0, 0, 0});
    }
    RONDO_RETURN_IF_ERROR(timeline_->wait(last, kNever));
    RONDO_RETURN_IF_ERROR(copy(devices::QueueRole::kDown, logits_.view(), host_logits_.view()));
    cached_.insert(cached_.end(), ids.begin(), ids.end());
    return std::span<const float>(reinterpret_cast<const float*>(host_logits_.view().host()),
                                  model_.config().vocab_size);
  }

  std::uint32_t capacity() const { return capacity_; }
  std::size_t reused() const { return reused_; }
  void forget() { cached_.clear(); }

 private:
  absl::Status take(devices::Buffer& buffer, Bytes size) {
    RONDO_ASSIGN_OR_RETURN(buffer, device_.allocate(size, devices::MemoryKind::kDevice));
    return absl::OkStatus();
  }

  /// As its program says.
  absl::Status take_caches(model::LayerIndex layer) {
    for (const devices::TensorDesc& tensor : programs_.at({model_.layers()[layer].program_class, 1})->ops().tensors) {
      if (tensor.role != devices::TensorRole::kState) continue;
      if (caches_[layer].size() <= tensor.index) caches_[layer].resize(tensor.index + 1);
      RONDO_RETURN_IF_ERROR(take(caches_[layer][tensor.index], std::max<Bytes>(tensor.bytes(), 1)));
    }
    return absl::OkStatus();
  }

  absl::Status take_scratch() { return take(scratch_, std::max<Bytes>(scratch_bytes_, 64)); }

  absl::Status compile(std::uint32_t tokens) {
    for (model::LayerIndex layer = 0; layer <= model_.first_head_layer(); ++layer) {
      RONDO_RETURN_IF_ERROR(compile(layer, tokens));
    }
    return absl::OkStatus();
  }

  absl::Status compile(model::LayerIndex layer, std::uint32_t tokens) {
    const auto key = std::pair(model_.layers()[layer].program_class, tokens);
    if (programs_.contains(key)) return absl::OkStatus();
    RONDO_ASSIGN_OR_RETURN(auto program, compile_layer(model_, device_, layer, tokens, capacity_, scratch_bytes_));
    programs_.emplace(key, std::move(program));
    return absl::OkStatus();
  }

  absl::Status place_weights(const Impl* lender) {
    std::map<std::string, devices::BufferView> lent;
    for (model::ParameterId id = 0; lender != nullptr && id < lender->weights_.size(); ++id) {
      lent[lender->model_.parameters()[id].name] = lender->weights_[id];
    }
    weights_.resize(model_.parameters().size());
    for (model::ParameterId id = 0; id < weights_.size(); ++id) {
      if (const auto found = lent.find(model_.parameters()[id].name); found != lent.end()) {
        weights_[id] = found->second;
        continue;
      }
      const devices::BufferView home = parameters_.published(id);
      weights_[id] = home;
      const bool looked_up = model_.block_table() && model_.block_table()->table == id;  // here
      if (unified_ || looked_up) continue;
      if (device_.caps().weights_in_place) {
        RONDO_RETURN_IF_ERROR(device_.use_in_place(home));
        continue;
      }
      RONDO_ASSIGN_OR_RETURN(devices::Buffer buffer, device_.allocate(home.size, devices::MemoryKind::kDevice));
      RONDO_RETURN_IF_ERROR(copy(devices::QueueRole::kUp, home, buffer.view()));
      weights_[id] = buffer.view();
      resident_.push_back(std::move(buffer));
    }
    return absl::OkStatus();
  }

  absl::Status copy(devices::QueueRole role, devices::BufferView from, devices::BufferView to) {
    device_.queue(role).copy(from, to, {}, {timeline_.get(), ++value_}, {"copy", 0, 0, 0});
    return timeline_->wait(value_, kNever);
  }

  /// A head in parts reads all rows at once here.
  devices::BufferView weight_of(model::LayerIndex layer, std::uint32_t index) const {
    const model::ParameterUse& use = model_.layers()[layer].parameters[index];
    return model_.is_head(layer) ? weights_[use.id] : schedule::rows_of(model_, use, weights_[use.id]);
  }

  void bind(model::LayerIndex layer, std::uint32_t tokens, const devices::OpList& list, devices::Bindings& bindings) {
    const schedule::BatchLayout batch(model_, tokens);
    bindings.tensors.resize(list.tensors.size());
    for (std::size_t i = 0; i < list.tensors.size(); ++i) {
      const devices::TensorDesc& tensor = list.tensors[i];
      devices::BufferView& view = bindings.tensors[i];
      switch (tensor.role) {
        case devices::TensorRole::kWeight:
          view = weight_of(layer, tensor.index);
          break;
        case devices::TensorRole::kInput:
          view = activations_[(layer + 1) % 2].view().part(0, tensor.bytes());
          break;
        case devices::TensorRole::kOutput:
          view = activations_[layer % 2].view().part(0, tensor.bytes());
          break;
        case devices::TensorRole::kBatch: {
          const auto which = static_cast<devices::BatchTensor>(tensor.index);
          view = batch_.view().part(batch.offset(which, model_.layers()[layer].block), batch.size(which));
          break;
        }
        case devices::TensorRole::kState:
          view = caches_[layer][tensor.index].view();
          break;
        case devices::TensorRole::kLogits:
          view = logits_.view();
          break;
        default:
          break;
      }
    }
    bindings.scratch = scratch_.view();
    bindings.layer = layer;
  }

  const model::Architecture& model_;
  offload::ParameterStore& parameters_;
  devices::Device& device_;
  const bool unified_;
  const std::uint32_t capacity_;
  std::uint32_t prompt_bucket_ = 0;
  Bytes scratch_bytes_ = 0;
  std::unique_ptr<devices::Timeline> timeline_;
  std::uint64_t value_ = 0;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::unique_ptr<devices::Program>> programs_;  // class, tokens
  std::vector<devices::BufferView> weights_;
  std::vector<devices::Buffer> resident_;
  std::vector<std::vector<devices::Buffer>> caches_;  // by layer and index of a state
  std::vector<std::int32_t> cached_;                  // the tokens that the caches hold
  std::size_t reused_ = 0;
  std::array<devices::Buffer, 2> activations_;
  devices::Buffer scratch_, batch_, logits_, host_batch_, host_logits_;
};

Generator::Generator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Generator::~Generator() = default;

absl::StatusOr<std::unique_ptr<Generator>> Generator::make(const model::Architecture& model,
                                                           offload::ParameterStore& parameters, devices::Device& device,
                                                           std::uint32_t prompt_tokens, std::uint32_t capacity,
                                                           const Generator* lender) {
  auto impl = std::make_unique<Impl>(model, parameters, device, capacity);
  RONDO_RETURN_IF_ERROR(impl->prepare(prompt_tokens, lender == nullptr ? nullptr : lender->impl_.get()));
  return std::unique_ptr<Generator>(new Generator(std::move(impl)));
}

void Generator::forget() { impl_->forget(); }

std::uint32_t Generator::reused_tokens() const { return static_cast<std::uint32_t>(impl_->reused()); }

absl::StatusOr<std::vector<std::int32_t>> Generator::generate(std::span<const std::int32_t> prompt,
                                                              const SamplingOptions& options,
                                                              const std::function<void(std::int32_t)>& on_token) {
  std::vector<std::int32_t> answer;
  auto position = static_cast<std::uint32_t>(prompt.size());
  const auto stopped = [&options] { return options.stop != nullptr && options.stop->load(std::memory_order_relaxed); };
  RONDO_ASSIGN_OR_RETURN(std::span<const float> logits, impl_->begin(prompt));
  while (answer.size() < options.max_new_tokens && !stopped()) {
    const std::int32_t id = choose_token(logits, options, position);
    answer.push_back(id);
    if (on_token) on_token(id);
    if (std::ranges::count(options.stop_ids, id) > 0 || position >= impl_->capacity()) break;
    if (answer.size() == options.max_new_tokens || stopped()) break;
    RONDO_ASSIGN_OR_RETURN(logits, impl_->append(std::span(&id, 1)));
    ++position;
  }
  return answer;
}

}  // namespace rondo::train
