#include "card_state.h"

#include <algorithm>
#include <cstring>

#include "rondo/base/status.h"
#include "rondo/devices/moment_codes.h"
#include "rondo/devices/update.h"
#include "rondo/schedule/shape.h"

namespace rondo::schedule {
namespace {

using devices::BufferView;
using devices::DType;
using devices::QueueRole;
using devices::TensorRole;
using offload::StateArray;
using Clock = std::chrono::steady_clock;
using Part = CardStateLayout::Part;
using Shared = CardStateLayout::Shared;

/// Where a moment lies: as numbers, or as codes and scales.
struct Moment {
  StateArray which{};
  Part numbers{};
  Part codes{};
  Part scales{};
};
constexpr Moment kMomentsOf[] = {{StateArray::kFirstMoment, Part::kFirst, Part::kFirstCodes, Part::kFirstScales},
                                 {StateArray::kSecondMoment, Part::kSecond, Part::kSecondCodes, Part::kSecondScales}};

}  // namespace

/// A program's ops, and its tensors with what they are bound to.
struct CardState::BoundList {
  devices::OpList list;
  devices::Bindings bindings;

  devices::TensorId add(const char* name, const devices::Shape& shape, DType dtype, BufferView view,
                        TensorRole role = TensorRole::kInput) {
    bindings.tensors.push_back(view);
    list.tensors.push_back({name, shape, dtype, role});
    return static_cast<devices::TensorId>(list.tensors.size() - 1);
  }
};

/// An update of a chunk.
void CardState::add_update(BoundList& update, devices::TensorId factors, devices::TensorId keys,
                           std::size_t chunk) const {
  const CardStateLayout::Chunk& own = layout_.chunks()[chunk];
  const auto elements = static_cast<std::int64_t>(own.elements());
  const auto add = [&](const char* name, Part of, const devices::Shape& shape, DType dtype, TensorRole role) {
    return update.add(name, shape, dtype, part(chunk, of), role);
  };
  const auto numbers = [&](const char* name, Part of, TensorRole role) {
    return add(name, of, {elements}, DType::kFloat32, role);
  };
  devices::Op op{own.coded ? devices::OpKind::kAdamW8 : devices::OpKind::kAdamW, {}, {}, {}};
  op.reads = {numbers("gradients", Part::kSums, TensorRole::kInput), factors, keys};
  op.reads.push_back(update.add("owners", {static_cast<std::int64_t>(own.blocks), 2}, DType::kInt32,
                                part(Shared::kOwners, own, 2 * sizeof(std::int32_t))));
  op.reads.push_back(numbers("masters", Part::kMaster, TensorRole::kState));
  for (const Moment& moment : kMomentsOf) {
    if (!own.coded) {
      op.reads.push_back(numbers("moments", moment.numbers, TensorRole::kState));
      continue;
    }
    op.reads.push_back(add("codes", moment.codes, {elements / 4}, DType::kInt32, TensorRole::kState));
    op.reads.push_back(add("scales", moment.scales, {elements / static_cast<std::int64_t>(devices::kMomentBlock)},
                           DType::kFloat32, TensorRole::kState));
  }
  if (own.coded) {
    op.reads.push_back(update.add("code tables", {devices::kMomentTableWords}, DType::kInt32, part(Shared::kTables)));
  }
  if (layout_.publishes()) {
    op.writes = {add("weights", Part::kPublished, {elements}, layout_.published(), TensorRole::kOutput)};
  }
  update.list.ops.push_back(std::move(op));
}

CardState::CardState(const ExecutorParts& parts, devices::Device& device)
    : parts_(parts),
      device_(device),
      layout_(*parts.model, parts.optimizer, device.caps().most_block_bytes),
      specs_(gradient_specs(*parts.model)) {
  index_.resize(parts.model->parameters().size());
  for (std::size_t i = 0; i < layout_.entries().size(); ++i) index_[layout_.entries()[i].id] = i;
  for (const offload::GradientSpec& spec : specs_) {
    if (spec.sparse) table_ = &spec;
  }
}

absl::StatusOr<std::unique_ptr<CardState>> CardState::make(const ExecutorParts& parts, devices::Device& device) {
  auto state = std::unique_ptr<CardState>(new CardState(parts, device));
  RONDO_RETURN_IF_ERROR(state->prepare());
  return state;
}

absl::Status CardState::prepare() {
  for (const Bytes size : layout_.memory()) {
    RONDO_ASSIGN_OR_RETURN(devices::Buffer block, device_.allocate(size, devices::MemoryKind::kDevice));
    memory_.push_back(std::move(block));
  }
  if (const Bytes rows = parts_.shape->row_place_bytes; rows > 0) {
    RONDO_ASSIGN_OR_RETURN(rows_, device_.allocate(rows, devices::MemoryKind::kDevice));
  }
  const auto host = [this](Bytes size) {
    return devices::allocate_host_unless(parts_.parameters->phantom(), size, "optimizer");
  };
  RONDO_ASSIGN_OR_RETURN(host_factors_, host(layout_.place(Shared::kFactors).size));
  RONDO_ASSIGN_OR_RETURN(host_squares_, host(layout_.place(Shared::kSquares).size));
  RONDO_ASSIGN_OR_RETURN(timeline_, device_.timeline());

  const auto parameters = static_cast<std::int64_t>(layout_.entries().size());
  BoundList squares;
  BoundList update;
  const BufferView of_step = part(Shared::kFactors);
  const auto factors = update.add("factors", {parameters, devices::kUpdateFactors}, DType::kFloat32,
                                  of_step.part(0, layout_.keys_offset()));
  const auto keys = update.add("keys", {parameters}, DType::kUInt64,
                               of_step.part(layout_.keys_offset(), layout_.entries().size() * sizeof(std::uint64_t)));
  for (std::size_t i = 0; i < layout_.chunks().size(); ++i) {
    const CardStateLayout::Chunk& chunk = layout_.chunks()[i];
    const auto sums =
        squares.add("gradients", {static_cast<std::int64_t>(chunk.elements())}, DType::kFloat32, part(i, Part::kSums));
    const auto of_blocks = squares.add("squares", {static_cast<std::int64_t>(chunk.blocks)}, DType::kFloat64,
                                       part(Shared::kSquares, chunk, sizeof(double)), TensorRole::kOutput);
    squares.list.ops.push_back({devices::OpKind::kSumOfSquares, {}, {sums}, {of_blocks}});
    add_update(update, factors, keys, i);
  }
  RONDO_ASSIGN_OR_RETURN(squares_, compile(std::move(squares)));
  RONDO_ASSIGN_OR_RETURN(update_, compile(std::move(update)));

  if (table_ == nullptr) return absl::OkStatus();
  for (const std::uint32_t bucket : parts_.buckets) RONDO_RETURN_IF_ERROR(compile_rows(bucket));
  if (!table_->dense) return absl::OkStatus();
  const devices::Shape elements = {static_cast<std::int64_t>(table_->elements)};
  const BufferView of_table = sum(table_->parameter);
  BoundList join;
  const auto dense = join.add("sum", elements, DType::kFloat32, of_table);
  const auto rows = join.add("sum of rows", elements, DType::kFloat32, rows_sum());
  const auto both = join.add("both", elements, DType::kFloat32, of_table, TensorRole::kOutput);  // one by one, in place
  join.list.ops.push_back({devices::OpKind::kAdd, {}, {dense, rows}, {both}});
  RONDO_ASSIGN_OR_RETURN(join_rows_, compile(std::move(join)));
  return absl::OkStatus();
}

absl::Status CardState::compile_rows(std::uint32_t bucket) {
  const auto width = static_cast<std::int64_t>(table_->row_width);
  const auto height = static_cast<std::int64_t>(table_->elements) / width;
  const RowViews from = rows(bucket);
  BoundList addition;
  addition.list.tokens = bucket;
  const auto ids = addition.add("row ids", {bucket + 1}, DType::kInt32, from.ids);
  const auto rows = addition.add("rows", {bucket, width}, DType::kFloat32, from.rows);
  const auto sum = addition.add("sum", {height, width}, DType::kFloat32, rows_sum(), TensorRole::kGradient);
  addition.list.ops.push_back(
      {devices::OpKind::kAddRows, devices::AddRowsAttributes{table_->padding_row}, {ids, rows}, {sum}});
  RONDO_ASSIGN_OR_RETURN(Bound made, compile(std::move(addition)));
  add_rows_.emplace_back(bucket, std::move(made));
  return absl::OkStatus();
}

absl::StatusOr<CardState::Bound> CardState::compile(BoundList bound) {
  RONDO_RETURN_IF_ERROR(devices::validate(bound.list));
  RONDO_ASSIGN_OR_RETURN(std::unique_ptr<devices::Program> program,
                         device_.compile(bound.list, devices::plan_arena(bound.list)));
  return Bound{std::move(program), std::move(bound.bindings)};
}

BufferView CardState::elements_of(Part of, const CardStateLayout::Entry& entry, Bytes size) const {
  return part(entry.chunk, of).part(entry.first * size, entry.elements * size);
}

BufferView CardState::weights(model::ParameterId id) const {
  const CardStateLayout::Entry& entry = layout_.entries()[index_[id]];
  const bool wide = parts_.parameters->dtype_of(id) == DType::kFloat32;
  return wide ? elements_of(Part::kMaster, entry, sizeof(float))
              : elements_of(Part::kPublished, entry, devices::size_of(layout_.published()));
}

BufferView CardState::sum(model::ParameterId id) const {
  return elements_of(Part::kSums, layout_.entries()[index_[id]], sizeof(float));
}

RowViews CardState::rows(std::uint32_t bucket) const {
  if (table_ == nullptr) return {};
  return row_views(rows_.view(), bucket, table_->row_width);
}

BufferView CardState::rows_sum() const { return table_->dense ? part(Shared::kRows) : sum(table_->parameter); }

const CardState::Bound& CardState::rows_addition(std::uint32_t bucket) const {
  return std::ranges::find(add_rows_, bucket, &std::pair<std::uint32_t, Bound>::first)->second;
}

void CardState::clear(BufferView view) {
  device_.queue(QueueRole::kCompute).clear(view, {}, {timeline_.get(), ++value_}, {"clear", step_, 0, 0});
}

/// Behind what was begun before, on whatever queue.
void CardState::copy(QueueRole role, BufferView from, BufferView to) {
  const devices::Point before{timeline_.get(), value_};
  device_.queue(role).copy(from, to, {&before, value_ == 0 ? 0U : 1U}, {timeline_.get(), value_ + 1},
                           {"optimizer", step_, 0, 0});
  ++value_;
}

void CardState::run(const Bound& bound, const char* name) {
  const devices::Point before{timeline_.get(), value_};
  device_.queue(QueueRole::kCompute)
      .run(*bound.program, bound.bindings, {&before, value_ == 0 ? 0U : 1U}, {timeline_.get(), value_ + 1},
           {name, step_, 0, 0});
  ++value_;
}

/// What is begun before a wait takes as long as its bytes take on the link or in the device's memory.
absl::Status CardState::wait() {
  if (!failed_.ok()) return failed_;
  const devices::DeviceProfile& profile = parts_.devices.front().profile;
  const double slowest = std::min({profile.link_up, profile.link_down, profile.memory_bandwidth});
  const double expected = slowest > 0 ? static_cast<double>(layout_.bytes()) / slowest : 0;
  const double patience = std::max(parts_.recovery.hang_seconds, parts_.recovery.hang_factor * expected);
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience));
  failed_ = timeline_->wait(value_, deadline);
  if (failed_.code() == absl::StatusCode::kDeadlineExceeded) {
    failed_ = absl::UnavailableError(
        fmt::format("{}: hangs: {:.1f} s of its optimizer's work and nothing finished", device_.caps().name, patience));
  }
  return failed_;
}

absl::Status CardState::load() {
  if (loaded_ || parts_.parameters->phantom()) return failed_;
  const Bytes tables = layout_.place(Shared::kTables).size;
  // Both before anything is begun.
  RONDO_ASSIGN_OR_RETURN(owners_, devices::allocate_host(layout_.place(Shared::kOwners).size, "optimizer"));
  if (tables > 0) {
    RONDO_ASSIGN_OR_RETURN(of_codes_, devices::allocate_host(tables + devices::kMomentBlock, "optimizer"));
  }
  loaded_ = true;
  for (std::size_t i = 0; i < layout_.entries().size(); ++i) {
    const CardStateLayout::Entry& entry = layout_.entries()[i];
    auto* owner = reinterpret_cast<std::int32_t*>(owners_.view().host()) + 2 * entry.first_block;
    for (std::uint64_t block = 0; block < entry.blocks; ++block) {
      *owner++ = static_cast<std::int32_t>(i);
      *owner++ = static_cast<std::int32_t>(block);
    }
  }
  // What lies between parameters is updated with them.
  for (const devices::Buffer& block : memory_) clear(block.view());
  copy(QueueRole::kUp, owners_.view(), part(Shared::kOwners));
  BufferView zero_codes;
  if (tables > 0) {
    std::memcpy(of_codes_.view().host(), &devices::moment_tables(), tables);
    zero_codes = of_codes_.view().part(tables, devices::kMomentBlock);
    std::memset(zero_codes.host(), devices::kSignedZero, devices::kMomentBlock);
    copy(QueueRole::kUp, of_codes_.view().part(0, tables), part(Shared::kTables));
  }
  for (const CardStateLayout::Entry& entry : layout_.entries()) {
    for (const auto& [home, here] : arrays_of(entry)) copy(QueueRole::kUp, home, here);
    // What shares a scale with a parameter's last elements is to stay 0.
    const Bytes past = round_up(entry.elements, devices::kMomentBlock) - entry.elements;
    if (layout_.chunks()[entry.chunk].coded && past > 0) {
      copy(QueueRole::kUp, zero_codes.part(0, past),
           part(entry.chunk, Part::kFirstCodes).part(entry.first + entry.elements, past));
    }
    if (parts_.parameters->dtype_of(entry.id) == DType::kFloat32) continue;
    copy(QueueRole::kUp, parts_.parameters->published(entry.id), weights(entry.id));
  }
  RONDO_RETURN_IF_ERROR(wait());
  owners_ = {};
  of_codes_ = {};
  return absl::OkStatus();
}

std::vector<CardState::Twins> CardState::arrays_of(const CardStateLayout::Entry& entry) const {
  const auto home = [&](StateArray which) { return parts_.parameters->state_view(entry.id, which); };
  std::vector<Twins> arrays = {{home(StateArray::kMaster), elements_of(Part::kMaster, entry, sizeof(float))}};
  for (const Moment& moment : kMomentsOf) {
    const BufferView of = home(moment.which);
    if (!layout_.chunks()[entry.chunk].coded) {
      arrays.push_back({of, part(entry.chunk, moment.numbers).part(entry.first * sizeof(float), of.size)});
      continue;
    }
    const Bytes scales = round_up(entry.elements, 4);  // begin there, see MomentFormat::kBlocks8
    arrays.push_back({of.part(0, entry.elements), part(entry.chunk, moment.codes).part(entry.first, entry.elements)});
    arrays.push_back(
        {of.part(scales, of.size - scales),
         part(entry.chunk, moment.scales).part(entry.first / devices::kMomentBlock * sizeof(float), of.size - scales)});
  }
  return arrays;
}

absl::Status CardState::take_squares(std::uint32_t step, std::vector<double>& squares) {
  if (!failed_.ok()) return failed_;
  step_ = step;
  if (join_rows_.program != nullptr) run(join_rows_, "gradients");
  run(squares_, "norm");
  copy(QueueRole::kDown, part(Shared::kSquares), host_squares_.view());
  RONDO_RETURN_IF_ERROR(wait());
  squares.assign(layout_.entries().size(), 0.0);
  const auto* of_blocks = reinterpret_cast<const double*>(host_squares_.view().host());
  if (of_blocks == nullptr) return absl::OkStatus();
  for (std::size_t i = 0; i < squares.size(); ++i) {
    const CardStateLayout::Entry& entry = layout_.entries()[i];
    for (std::uint64_t block = 0; block < entry.blocks; ++block) squares[i] += of_blocks[entry.first_block + block];
  }
  return absl::OkStatus();
}

void CardState::begin_update(const devices::StepFactors& factors, std::uint32_t step, std::uint64_t version) {
  step_ = step;
  // The last update has read them: its step's gradients came after it.
  if (std::byte* host = host_factors_.view().host(); host != nullptr) {
    auto* row = reinterpret_cast<float*>(host);
    auto* key = reinterpret_cast<std::uint64_t*>(host + layout_.keys_offset());
    for (const CardStateLayout::Entry& entry : layout_.entries()) {
      devices::pack(offload::factors_of(parts_.parameters->specs()[entry.id], parts_.optimizer, factors), row);
      row += devices::kUpdateFactors;
      *key++ = devices::version_key(entry.id, version);
    }
  }
  copy(QueueRole::kUp, host_factors_.view(), part(Shared::kFactors));
  run(update_, "optimizer");
  at_home_ = false;
  version_ = version;
  parts_.parameters->set_all_versions(version);
}

absl::Status CardState::bring_home() {
  if (!failed_.ok()) return failed_;
  if (at_home_ || parts_.parameters->phantom()) return absl::OkStatus();
  for (const CardStateLayout::Entry& entry : layout_.entries()) {
    for (const auto& [home, here] : arrays_of(entry)) copy(QueueRole::kDown, here, home);
  }
  RONDO_RETURN_IF_ERROR(wait());
  parts_.threads->parallel_for(static_cast<std::int64_t>(layout_.entries().size()), [&](std::int64_t i, std::uint32_t) {
    parts_.parameters->publish_from_master(layout_.entries()[static_cast<std::size_t>(i)].id, version_);
  });
  at_home_ = true;
  return absl::OkStatus();
}

}  // namespace rondo::schedule
