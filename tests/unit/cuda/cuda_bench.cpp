// Times on a real card, as one JSON list on the standard output: every op of tests/ops at the sizes of a real model,
// products and attention of larger ones, and what sending a program costs. Each figure is the best of kTries rounds of
// kRuns runs in flight.
//
//   cuda_bench [BEGINNING]...     all figures, or those whose names begin so
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "heads_case.h"
#include "op_case.h"
#include "rondo/base/status.h"
#include "rondo/devices/cuda/cuda_device.h"

namespace rondo::devices::testing {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTries = 3;
constexpr std::uint64_t kRuns = 10;

class Stopwatch {
 public:
  explicit Stopwatch(Device& device) : device_(device) {}

  struct Times {
    double seconds = 0;
    double enqueue_seconds = 0;  // the host's, until it can go on to other things
  };
  absl::StatusOr<Times> times_of(const OpCase& op_case, const OpList& list) {
    RONDO_ASSIGN_OR_RETURN(const CaseMemory memory, CaseMemory::make(op_case, 1));
    RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Timeline> line, device_.timeline());
    RONDO_ASSIGN_OR_RETURN(const std::unique_ptr<Program> program, device_.compile(list, plan_arena(list)));
    std::vector<Buffer> buffers;
    Bindings bindings;
    std::uint64_t value = 0;
    for (TensorId id = 0; id < list.tensors.size(); ++id) {
      const Bytes bytes = list.tensors[id].bytes();
      RONDO_ASSIGN_OR_RETURN(Buffer buffer, device_.allocate(std::max<Bytes>(bytes, 1), MemoryKind::kDevice));
      bindings.tensors.push_back(buffer.view().part(0, bytes));
      buffers.push_back(std::move(buffer));
      device_.queue(QueueRole::kUp)
          .copy(memory.bindings().tensors[id], bindings.tensors[id], {}, {line.get(), ++value}, {"upload"});
    }
    RONDO_RETURN_IF_ERROR(line->wait(value, Clock::now() + std::chrono::seconds(30)));
    constexpr double kNever = std::numeric_limits<double>::infinity();
    Times best{kNever, kNever};
    for (int attempt = 0; attempt <= kTries; ++attempt) {
      const auto begin = Clock::now();
      for (std::uint64_t i = 0; i < kRuns; ++i) {
        device_.queue(QueueRole::kCompute).run(*program, bindings, {}, {line.get(), ++value}, {"bench"});
      }
      const std::chrono::duration<double> enqueued = Clock::now() - begin;
      RONDO_RETURN_IF_ERROR(line->wait(value, Clock::now() + std::chrono::seconds(30)));
      const std::chrono::duration<double> taken = Clock::now() - begin;
      if (attempt == 0) continue;  // it warms up
      best.seconds = std::min(best.seconds, taken.count() / static_cast<double>(kRuns));
      best.enqueue_seconds = std::min(best.enqueue_seconds, enqueued.count() / static_cast<double>(kRuns));
    }
    return best;
  }

 private:
  Device& device_;
};

/// The list on the standard output.
class Report {
 public:
  explicit Report(std::vector<std::string> wanted) : wanted_(std::move(wanted)) {}

  bool wants(const std::string& name) const {
    return wanted_.empty() || std::any_of(wanted_.begin(), wanted_.end(),
                                          [&](const std::string& beginning) { return name.starts_with(beginning); });
  }
  /// Begins an entry; false when it has ended with an error.
  bool begin_entry(const std::string& name, const absl::Status& status);
  /// Times and prints one op.
  void add(Stopwatch& stopwatch, const std::string& name, const OpCase& op_case, std::size_t place);
  /// What sending a program costs: many steps with next to no work in them. One graph, or step by step.
  void add_sending(bool graphs);

 private:
  const std::vector<std::string> wanted_;  // beginnings of names; none: all
  bool first_ = true;
};

bool Report::begin_entry(const std::string& name, const absl::Status& status) {
  fmt::print("{}  {{\"name\": \"{}\", ", first_ ? "" : ",\n", name);
  first_ = false;
  if (status.ok()) return true;
  fmt::print("\"error\": \"{}\"}}", std::string_view(status.message().data(), status.message().size()));
  return false;
}

void Report::add(Stopwatch& stopwatch, const std::string& name, const OpCase& op_case, std::size_t place) {
  if (!wants(name)) return;
  const absl::StatusOr<Stopwatch::Times> times = stopwatch.times_of(op_case, single_op(op_case.list, place));
  if (!begin_entry(name, times.status())) return;
  const OpCost cost = cost_of(op_case.list, op_case.list.ops[place], op_case.list.tokens);
  fmt::print("\"seconds\": {:.3e}, \"flops_per_second\": {:.3e}, \"bytes_per_second\": {:.3e}}}", times->seconds,
             cost.flops / times->seconds, cost.bytes / times->seconds);
}

void Report::add_sending(bool graphs) {
  constexpr int kSteps = 40;
  const std::string name = fmt::format("Sending/{} additions/{}", kSteps, graphs ? "graph" : "step by step");
  if (!wants(name)) return;
  CaseBuilder b(DType::kFloat32, 64);
  const TensorId x = b.input("x", {64, 64});
  TensorId last = x;
  for (int i = 0; i < kSteps; ++i) {
    const TensorId sum = b.output("y", {64, 64});
    b.op(OpKind::kAdd, {last, x}, {sum}, NoAttributes{});
    last = sum;
  }
  const OpCase additions = b.result();
  setenv("RONDO_CUDA_GRAPHS", graphs ? "on" : "off", 1);
  const auto device = cuda::open_cuda({});
  unsetenv("RONDO_CUDA_GRAPHS");
  const auto times = [&]() -> absl::StatusOr<Stopwatch::Times> {
    RONDO_RETURN_IF_ERROR(device.status());
    return Stopwatch(**device).times_of(additions, additions.list);
  }();
  if (!begin_entry(name, times.status())) return;
  fmt::print("\"seconds\": {:.3e}, \"enqueue_seconds\": {:.3e}}}", times->seconds, times->enqueue_seconds);
}

OpCase product(std::uint32_t tokens, std::int64_t outputs, std::int64_t inputs, OpKind kind, DType storage,
               bool fp8 = false) {
  CaseBuilder b(storage, tokens);
  const TensorId x = b.input("x", {tokens, inputs});
  const TensorId dy = b.input("dy", {tokens, outputs});
  const TensorId w = b.weight("w", {outputs, inputs}, 0.05);
  if (kind == OpKind::kMatMul)
    b.op(kind, {x, w}, {b.output("y", {tokens, outputs})},
         MatMulAttributes{.fp8 = fp8 ? Fp8Format::kE4m3 : Fp8Format::kNone});
  if (kind == OpKind::kMatMulInputGradient)
    b.op(kind, {dy, w}, {b.output("dx", {tokens, inputs})},
         MatMulAttributes{.fp8 = fp8 ? Fp8Format::kE4m3 : Fp8Format::kNone});
  if (kind == OpKind::kMatMulWeightGradient) {
    b.op(kind, {dy, x}, {b.gradient("dw", {outputs, inputs})}, MatMulAttributes{});
  }
  return b.result();
}

/// What peer_ops.py measures of PyTorch: heads of most models, of Phi-3, and of Gemma 3, Qwen3.5 and others.
const HeadsCase kAttention[] = {
    {"4096x32x8x128", 4096, {4096}, 32, 8, 128, 0},
    {"4096x32x32x96", 4096, {4096}, 32, 32, 96, 0},
    {"4096x16x4x256", 4096, {4096}, 16, 4, 256, 0},
    {"4096x16x2x512", 4096, {4096}, 16, 2, 512, 0},
};

int run(std::vector<std::string> wanted) {
  auto device = cuda::open_cuda({});
  if (!device.ok()) {
    fmt::print(stderr, "{}\n", std::string(device.status().message()));
    return 1;
  }
  Stopwatch stopwatch(**device);
  Report report(std::move(wanted));
  fmt::print("[\n");
  for (const OpDescription& description : op_descriptions()) {
    for (const DType storage : {DType::kFloat32, DType::kBfloat16}) {
      const OpCase op_case = description.make(storage, Scale::kModel);
      for (std::size_t place = 0; place < op_case.list.ops.size(); ++place) {
        report.add(stopwatch,
                   fmt::format("{}/{}/{}/{}", description.name, name_of(op_case.list.ops[place].kind), place,
                               name_of(storage)),
                   op_case, place);
      }
    }
  }
  for (const OpKind kind : {OpKind::kMatMul, OpKind::kMatMulInputGradient, OpKind::kMatMulWeightGradient}) {
    report.add(stopwatch, fmt::format("Product/{}/4096x4096x4096/bf16", name_of(kind)),
               product(4096, 4096, 4096, kind, DType::kBfloat16), 0);
    if (kind == OpKind::kMatMulWeightGradient || !(*device)->caps().fp8) continue;
    report.add(stopwatch, fmt::format("Product/{}/4096x4096x4096/fp8", name_of(kind)),
               product(4096, 4096, 4096, kind, DType::kBfloat16, true), 0);
  }
  for (const HeadsCase& heads : kAttention) {
    for (const std::size_t place : {std::size_t{0}, std::size_t{1}}) {
      report.add(stopwatch, fmt::format("Attention/{}/{}/bf16", heads.name, place == 0 ? "forward" : "backward"),
                 case_of(heads, DType::kBfloat16), place);
    }
  }
  device->reset();
  for (const bool graphs : {true, false}) report.add_sending(graphs);
  fmt::print("\n]\n");
  return 0;
}

}  // namespace
}  // namespace rondo::devices::testing

int main(int argc, char** argv) { return rondo::devices::testing::run({argv + 1, argv + argc}); }
