// Every op of tests/ops on the first Vulkan card at the sizes of one layer of a 135-million-parameter model, square
// products, and the host's share of a program of many small dispatches.
//
// PairedProduct runs a product on the CPU backend and on the card in turns and reports the median of the pairs' ratios,
// of time and of what the threads of this process computed: other programs disturb these less than either time. So is
// "CPU" what all threads computed, of use where the card is a processor. PairedExperts does so with a grouped product
// and a dense one of as much work.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "expert_descriptions.h"
#include "heads_case.h"
#include "op_case.h"
#include "rondo/base/status.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/reference/reference.h"
#include "rondo/devices/vulkan/vulkan_device.h"
#include "vulkan_card.h"

namespace rondo::devices::testing {
namespace {

absl::StatusOr<std::unique_ptr<Device>> open_card(vulkan::VulkanOptions options) {
  const auto card = test::usable_vulkan_card();
  if (!card) return invalid_input("no Vulkan card that can be used");
  options.index = card->index;
  return vulkan::open_vulkan(options);
}

/// Opened once; it stays open until the process ends.
absl::StatusOr<Device*> card() {
  static const auto* const device = new absl::StatusOr<std::unique_ptr<Device>>(open_card({}));
  if (!device->ok()) return device->status();
  return (*device)->get();
}

absl::StatusOr<Device*> processor() {
  static const auto* const device = new absl::StatusOr<std::unique_ptr<Device>>(
      cpu::open_cpu({}, *new ThreadPool(std::thread::hardware_concurrency())));
  if (!device->ok()) return device->status();
  return (*device)->get();
}

/// A program with its tensors on a device.
class OnCard {
 public:
  static absl::StatusOr<std::unique_ptr<OnCard>> make(absl::StatusOr<Device*> device, const OpList& list,
                                                      const CaseMemory* contents) {
    auto on_card = std::make_unique<OnCard>();
    RONDO_ASSIGN_OR_RETURN(on_card->device_, device);
    const ArenaLayout layout = plan_arena(list);
    RONDO_ASSIGN_OR_RETURN(on_card->program_, on_card->device_->compile(list, layout));
    RONDO_ASSIGN_OR_RETURN(on_card->timeline_, on_card->device_->timeline());
    for (std::size_t id = 0; id < list.tensors.size(); ++id) {
      RONDO_ASSIGN_OR_RETURN(Buffer buffer, on_card->device_->allocate(list.tensors[id].bytes(), MemoryKind::kDevice));
      on_card->bindings_.tensors.push_back(buffer.view());
      on_card->buffers_.push_back(std::move(buffer));
      if (contents == nullptr) continue;
      on_card->device_->queue(QueueRole::kUp)
          .copy(contents->bindings().tensors[id], on_card->bindings_.tensors[id], {}, on_card->next(), {"bench"});
      RONDO_RETURN_IF_ERROR(on_card->wait());
    }
    RONDO_ASSIGN_OR_RETURN(Buffer scratch,
                           on_card->device_->allocate(std::max<Bytes>(layout.size, 64), MemoryKind::kDevice));
    on_card->bindings_.scratch = scratch.view();
    on_card->buffers_.push_back(std::move(scratch));
    return on_card;
  }

  absl::Status run() { return run_in_turn(1); }
  /// As often as `times`, each when the one before has ended.
  absl::Status run_in_turn(std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i) {
      const Point before{timeline_.get(), value_};
      device_->queue(QueueRole::kCompute).run(*program_, bindings_, {&before, 1}, next(), {"bench"});
    }
    return wait();
  }

 private:
  Point next() { return {timeline_.get(), ++value_}; }
  absl::Status wait() { return timeline_->wait(value_, std::chrono::steady_clock::time_point::max()); }

  Device* device_ = nullptr;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Timeline> timeline_;
  std::vector<Buffer> buffers_;
  Bindings bindings_;
  std::uint64_t value_ = 0;
};

void time_list(benchmark::State& state, const OpList& list, const CaseMemory* contents) {
  auto on_card = OnCard::make(card(), list, contents);
  if (!on_card.ok()) return state.SkipWithError(std::string(on_card.status().message()).c_str());
  absl::Status status = (*on_card)->run();  // the first run is not counted
  for (auto _ : state) status = (*on_card)->run();
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  const OpCost cost = cost_of(list, list.tokens);
  const auto runs = static_cast<double>(state.iterations());
  if (cost.flops > 0) state.counters["FLOP/s"] = benchmark::Counter(cost.flops * runs, benchmark::Counter::kIsRate);
  state.counters["bytes/s"] = benchmark::Counter(cost.bytes * runs, benchmark::Counter::kIsRate);
}

void time_op(benchmark::State& state, const OpCase& op_case, std::size_t place) {
  const auto memory = CaseMemory::make(op_case, 1);
  if (!memory.ok()) return state.SkipWithError("the case cannot be made");
  time_list(state, single_op(op_case.list, place), &*memory);
}

/// The reference's plain loops on one thread, to hold kernels against where nothing faster is to be had.
void time_plain_loops(benchmark::State& state, const OpCase& op_case, std::size_t place) {
  const auto memory = CaseMemory::make(op_case, 1);
  if (!memory.ok()) return state.SkipWithError("the case cannot be made");
  const OpList list = single_op(op_case.list, place);
  absl::Status status;
  for (auto _ : state) status = run_reference(list, memory->bindings());
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
}

/// `count` additions of 64 elements one after the other.
OpList additions(std::int64_t count) {
  OpList list;
  list.tokens = 1;
  list.tensors.push_back({"x", {1, 64}, DType::kFloat32, TensorRole::kInput, 0});
  for (std::int64_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    list.tensors.push_back({"y", {1, 64}, DType::kFloat32, last ? TensorRole::kOutput : TensorRole::kScratch, 0});
    list.ops.push_back({OpKind::kAdd, NoAttributes{}, {static_cast<TensorId>(i), 0}, {static_cast<TensorId>(i + 1)}});
  }
  return list;
}

/// What a dispatch costs when it has nothing to do.
void time_small_dispatches(benchmark::State& state) { time_list(state, additions(state.range(0)), nullptr); }

/// And what programs cost that wait for each other, as those of a stage's layers do.
void time_programs_in_turn(benchmark::State& state) {
  constexpr std::int64_t kPrograms = 64;
  auto on_card = OnCard::make(card(), additions(state.range(0)), nullptr);
  if (!on_card.ok()) return state.SkipWithError(std::string(on_card.status().message()).c_str());
  absl::Status status = (*on_card)->run();
  for (auto _ : state) status.Update((*on_card)->run_in_turn(kPrograms));
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  state.counters["program"] = benchmark::Counter(static_cast<double>(kPrograms * state.iterations()),
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

struct Spent {
  double seconds = 0;
  double processor_seconds = 0;  // of all threads
};
Spent spent(OnCard& program, absl::Status& status) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t processor_begin = std::clock();
  status.Update(program.run());
  const double processor = static_cast<double>(std::clock() - processor_begin) / CLOCKS_PER_SEC;
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), processor};
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// C [M, N] = A [M, K] B [N, K]^T for the benchmark's M, K and N.
OpList product(const benchmark::State& state, DType dtype) {
  const std::int64_t rows = state.range(0);
  const std::int64_t depth = state.range(1);
  const std::int64_t columns = state.range(2);
  OpList list;
  list.tokens = static_cast<std::uint32_t>(rows);
  list.tensors.push_back({"a", {rows, depth}, dtype, TensorRole::kInput, 0});
  list.tensors.push_back({"b", {columns, depth}, dtype, TensorRole::kInput, 0});
  list.tensors.push_back({"c", {rows, columns}, dtype, TensorRole::kOutput, 0});
  list.ops.push_back({OpKind::kMatMul, MatMulAttributes{}, {0, 1}, {2}});
  return list;
}

/// Runs both in turns; the time counted, and `list`, are those of `on_measured`.
using OnCardOr = absl::StatusOr<std::unique_ptr<OnCard>>;
void time_in_turns(benchmark::State& state, const OpList& list, const OnCardOr& on_measured, const OnCardOr& on_other,
                   const char* ratio) {
  for (const absl::Status& status : {on_measured.status(), on_other.status()}) {
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  }
  absl::Status status = (*on_measured)->run();  // the first runs are not counted
  status.Update((*on_other)->run());
  std::vector<double> ratios;
  std::vector<double> processor_ratios;
  for (auto _ : state) {
    const Spent others = spent(**on_other, status);
    const Spent own = spent(**on_measured, status);
    ratios.push_back(others.seconds / own.seconds);
    processor_ratios.push_back(others.processor_seconds / own.processor_seconds);
    state.SetIterationTime(own.seconds);
  }
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  state.counters[ratio] = median(std::move(ratios));
  state.counters["by_processor_time"] = median(std::move(processor_ratios));
  state.counters["FLOP/s"] =
      benchmark::Counter(cost_of(list, list.tokens).flops, benchmark::Counter::kIsIterationInvariantRate);
}

/// In fp32 on the card and on the CPU backend.
void time_paired_product(benchmark::State& state) {
  const OpList list = product(state, DType::kFloat32);
  time_in_turns(state, list, OnCard::make(card(), list, nullptr), OnCard::make(processor(), list, nullptr),
                "of_cpu_speed");
}

/// The card with and without its matrix units, and a type that they multiply.
struct UnitsAndNone {
  std::unique_ptr<Device> with;
  std::unique_ptr<Device> without;
  DType dtype = DType::kFloat16;
};
std::optional<UnitsAndNone> units_and_none(benchmark::State& state, bool no_bfloat16_units = false) {
  auto with = open_card({.no_bfloat16_units = no_bfloat16_units, .matrix_units = vulkan::Use::kAlways});
  auto without = open_card({.matrix_units = vulkan::Use::kNever});
  if (!with.ok() || !without.ok()) {
    state.SkipWithError("no card");
    return std::nullopt;
  }
  const std::vector<DType>& dtypes = (*with)->caps().matrix_dtypes;
  if (dtypes.empty()) {
    state.SkipWithError("the driver has no cooperative matrices");
    return std::nullopt;
  }
  const DType dtype = dtypes.front();
  return UnitsAndNone{*std::move(with), *std::move(without), dtype};
}

/// `scaled`: bf16 on units for fp16.
void time_paired_matrix_units(benchmark::State& state, DType dtype, bool scaled) {
  const auto cards = units_and_none(state, scaled);
  if (!cards) return;
  const OpList list = product(state, dtype);
  time_in_turns(state, list, OnCard::make(cards->with.get(), list, nullptr),
                OnCard::make(cards->without.get(), list, nullptr), "of_speed_without");
}

/// Attention of one sequence, the benchmark's tokens and channels of a head: forward (0) or its gradient (1).
void time_paired_attention(benchmark::State& state) {
  const auto cards = units_and_none(state);
  if (!cards) return;
  const auto tokens = static_cast<std::uint32_t>(state.range(0));
  const OpCase op_case =
      case_of({"", tokens, {static_cast<std::int32_t>(tokens)}, 16, 8, state.range(1), 0}, cards->dtype);
  const auto memory = CaseMemory::make(op_case, 1);
  if (!memory.ok()) return state.SkipWithError("the case cannot be made");
  const OpList list = single_op(op_case.list, static_cast<std::size_t>(state.range(2)));
  time_in_turns(state, list, OnCard::make(cards->with.get(), list, &*memory),
                OnCard::make(cards->without.get(), list, &*memory), "of_speed_without");
}

/// A product, and its gradients in the order of grouped_case().
OpCase dense_case(DType storage, std::int64_t rows, std::int64_t in, std::int64_t out) {
  CaseBuilder b(storage, static_cast<std::uint32_t>(rows));
  const TensorId x = b.input("x", {rows, in}), dy = b.input("dy", {rows, out}), more = b.input("more", {rows, in});
  const TensorId w = b.weight("w", {out, in}), dw = b.gradient("dw", {out, in});
  const TensorId y = b.output("y", {rows, out}), dx = b.output("dx", {rows, in});
  b.op(OpKind::kMatMul, {x, w}, {y}, MatMulAttributes{});
  b.op(OpKind::kMatMulInputGradient, {dy, w, more}, {dx}, MatMulAttributes{1.0F, false, true});
  b.op(OpKind::kMatMulWeightGradient, {dy, x}, {dw}, MatMulAttributes{});
  return b.result();
}

/// Experts with so many rows each, from so many columns to so many: which of the product (0) and the gradients of rows
/// (1) and weights (2), beside a dense product of all rows.
void time_paired_experts(benchmark::State& state, DType dtype, vulkan::Use units, bool no_bfloat16_units) {
  const auto device = open_card({.no_bfloat16_units = no_bfloat16_units, .matrix_units = units});
  if (!device.ok()) return state.SkipWithError("no card");
  const auto place = static_cast<std::size_t>(state.range(4));
  const std::vector<std::int32_t> rows(static_cast<std::size_t>(state.range(0)),
                                       static_cast<std::int32_t>(state.range(1)));
  const OpCase grouped = grouped_case(dtype, {rows, 0, state.range(2), state.range(3)});
  const OpCase dense = dense_case(dtype, state.range(0) * state.range(1), state.range(2), state.range(3));
  const auto grouped_memory = CaseMemory::make(grouped, 1);
  const auto dense_memory = CaseMemory::make(dense, 1);
  if (!grouped_memory.ok() || !dense_memory.ok()) return state.SkipWithError("the case cannot be made");
  const OpList list = single_op(grouped.list, place);
  time_in_turns(state, list, OnCard::make(device->get(), list, &*grouped_memory),
                OnCard::make(device->get(), single_op(dense.list, place), &*dense_memory), "of_dense_speed");
}

/// One way for bytes from the host's memory to the card's.
struct Upload {
  std::unique_ptr<Device> device;
  Buffer from;
  Buffer to;
  std::unique_ptr<Timeline> timeline;
  std::uint64_t value = 0;

  /// `expected`: the card has been told of the memory.
  static absl::StatusOr<Upload> make(const vulkan::VulkanOptions& options, Bytes size, bool expected) {
    Upload made;
    RONDO_ASSIGN_OR_RETURN(made.device, open_card(options));
    RONDO_ASSIGN_OR_RETURN(made.from, allocate_resident_host(size, "bench"));
    RONDO_ASSIGN_OR_RETURN(made.to, made.device->allocate(size, MemoryKind::kDevice));
    RONDO_ASSIGN_OR_RETURN(made.timeline, made.device->timeline());
    if (expected) made.device->expect_copies(made.from.view(), QueueRole::kUp);
    RONDO_RETURN_IF_ERROR(made.seconds().status());  // the first is not counted
    return made;
  }
  absl::StatusOr<double> seconds() {
    const auto begin = std::chrono::steady_clock::now();
    device->queue(QueueRole::kUp).copy(from.view(), to.view(), {}, {timeline.get(), ++value}, {"bench"});
    RONDO_RETURN_IF_ERROR(timeline->wait(value, std::chrono::steady_clock::time_point::max()));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

/// The benchmark's KiB by the card's own copies from where they lie, and in turns through staging memory (0) or, where
/// the host reaches the card's memory, written by the host (1). The time counted is that of the first.
void time_paired_upload(benchmark::State& state) {
  const auto size = static_cast<Bytes>(state.range(0)) * 1_KiB;
  const bool against_host = state.range(1) != 0;
  auto direct = Upload::make({.host_reaches = against_host, .card_copies_from = 0}, size, true);
  auto other = Upload::make({.host_reaches = against_host, .card_copies_from = ~Bytes{0}}, size, false);
  absl::Status status = direct.status();
  status.Update(other.status());
  std::vector<double> ratios;
  if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
  for (auto _ : state) {
    const absl::StatusOr<double> slow = other->seconds();
    const absl::StatusOr<double> fast = direct->seconds();
    status.Update(slow.status());
    status.Update(fast.status());
    if (!status.ok()) return state.SkipWithError(std::string(status.message()).c_str());
    ratios.push_back(*slow / *fast);
    state.SetIterationTime(*fast);
  }
  state.counters[against_host ? "of_host_speed" : "of_staged_speed"] = median(std::move(ratios));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size));
}

const int registered_on_card = [] {
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      const OpList list = description.make(storage, Scale::kOdd).list;
      for (std::size_t place = 0; place < list.ops.size(); ++place) {
        const std::string name = std::string("VulkanOp/") + description.name + "/" + name_of(list.ops[place].kind) +
                                 "/" + std::to_string(place) + "/" + name_of(storage);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [&description, storage, place](benchmark::State& state) {
                                       time_op(state, description.make(storage, Scale::kModel), place);
                                     })
            ->UseRealTime()
            ->MeasureProcessCPUTime();
        const std::string plain = "PlainLoops" + name.substr(name.find('/'));
        benchmark::RegisterBenchmark(plain.c_str(),
                                     [&description, storage, place](benchmark::State& state) {
                                       time_plain_loops(state, description.make(storage, Scale::kModel), place);
                                     })
            ->UseRealTime()
            ->MeasureProcessCPUTime();
      }
    }
  }
  benchmark::RegisterBenchmark("PairedProduct", time_paired_product)
      ->Args({2048, 576, 1536})
      ->Args({512, 1536, 576})
      ->Args({1024, 2048, 2048})
      ->Args({512, 576, 16})
      ->UseManualTime();
  const auto time_units = [](const char* name, DType dtype, bool scaled) {
    benchmark::RegisterBenchmark(name, time_paired_matrix_units, dtype, scaled)
        ->Args({2048, 576, 1536})
        ->Args({2048, 4096, 4096})
        ->UseManualTime();
  };
  time_units("PairedMatrixUnits/bf16", DType::kBfloat16, false);
  time_units("PairedMatrixUnits/bf16_scaled", DType::kBfloat16, true);
  time_units("PairedMatrixUnits/fp16", DType::kFloat16, false);
  benchmark::RegisterBenchmark("PairedMatrixUnits_Attention", time_paired_attention)
      ->Args({512, 64, 0})
      ->Args({512, 64, 1})
      ->Args({2048, 128, 0})
      ->Args({2048, 128, 1})
      ->UseManualTime();
  const auto time_experts = [](const char* name, DType dtype, vulkan::Use units, bool scaled) {
    benchmark::RegisterBenchmark(name, time_paired_experts, dtype, units, scaled)
        ->ArgNames({"experts", "rows", "in", "out", "which"})
        ->ArgsProduct({{8}, {128}, {576}, {384}, {0, 1, 2}})
        ->ArgsProduct({{32}, {256}, {2048}, {768}, {0, 1, 2}})
        ->UseManualTime();
  };
  time_experts("PairedExperts/fp32", DType::kFloat32, vulkan::Use::kNever, false);
  time_experts("PairedExperts/bf16", DType::kBfloat16, vulkan::Use::kNever, false);
  time_experts("PairedExperts/bf16_units", DType::kBfloat16, vulkan::Use::kAlways, false);
  time_experts("PairedExperts/bf16_scaled", DType::kBfloat16, vulkan::Use::kAlways, true);
  time_experts("PairedExperts/fp16_units", DType::kFloat16, vulkan::Use::kAlways, false);
  benchmark::RegisterBenchmark("PairedUpload", time_paired_upload)
      ->ArgNames({"KiB", "host"})
      ->ArgsProduct({{64, 256, 1024, 16384}, {0, 1}})
      ->UseManualTime();
  benchmark::RegisterBenchmark("VulkanDispatches", time_small_dispatches)->Arg(1)->Arg(64)->UseRealTime();
  benchmark::RegisterBenchmark("VulkanPrograms", time_programs_in_turn)->Arg(1)->Arg(16)->UseRealTime();
  return 0;
}();

}  // namespace
}  // namespace rondo::devices::testing
