// Programs of prepared ops, and the executor that runs one at a time in scratch that all of them share.
//
// Lock order: the permit (a ticket, held for a whole run) before the pool's own turn. Scratch becomes what the programs
// that are left need in compile() only, under the permit, so that no run can be using it.
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "kernels.h"
#include "prepared_op.h"
#include "prepared_tiles.h"
#include "rondo/base/mutex.h"
#include "rondo/base/status.h"
#include "rondo/devices/cpu/cpu_device.h"
#include "rondo/devices/host_memory.h"

namespace rondo::devices::cpu {
namespace {

/// Changes with every change of a kernel that changes bits.
constexpr int kKernelSet = 3;

/// The processor's name as the system tells it, "" when it does not.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    return colon == std::string::npos ? "" : line.substr(colon + 2);
  }
  return "";
}

/// Highway's name of the instruction set as people know it.
std::string instruction_set() {
  const std::string target = kernel_target();
  return target.starts_with("AVX3") ? "AVX-512" : target;
}

/// Fair: runs get the permit in the order in which they asked for it.
class ABSL_LOCKABLE Permit {
 public:
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    const MutexLock lock(mutex_);
    const std::uint64_t own = next_++;
    while (serving_ != own) changed_.wait(mutex_);
  }
  void unlock() ABSL_UNLOCK_FUNCTION() {
    const MutexLock lock(mutex_);
    ++serving_;
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::uint64_t next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::uint64_t serving_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ABSL_SCOPED_LOCKABLE PermitLock {
 public:
  explicit PermitLock(Permit& permit) ABSL_EXCLUSIVE_LOCK_FUNCTION(permit) : permit_(permit) { permit_.lock(); }
  ~PermitLock() ABSL_UNLOCK_FUNCTION() { permit_.unlock(); }
  PermitLock(const PermitLock&) = delete;
  PermitLock& operator=(const PermitLock&) = delete;

 private:
  Permit& permit_;
};

/// Kernels that have a storage for each operand; others take one for all.
bool mixes_storage(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingBackward:
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
    case OpKind::kMatMulWeightGradient:
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return true;
    default:
      return false;
  }
}

/// What an op takes of main memory with its tensors in a program: in the list, in the layout of the arena and as
/// prepared.
constexpr Bytes kOpBytes = 750;

/// Of the scratch, what each program that is left needs. Shared: programs may outlive the executor.
class ScratchNeeds {
 public:
  void add(Bytes need) {
    const MutexLock lock(mutex_);
    needs_.insert(need);
  }
  void remove(Bytes need) {
    const MutexLock lock(mutex_);
    needs_.erase(needs_.find(need));
  }
  Bytes most() const {
    const MutexLock lock(mutex_);
    return needs_.empty() ? 0 : *needs_.rbegin();
  }

 private:
  mutable Mutex mutex_;
  std::multiset<Bytes> needs_ ABSL_GUARDED_BY(mutex_);
};

class CpuProgram final : public Program {
 public:
  ~CpuProgram() override {
    if (needs_ != nullptr) needs_->remove(need_);
  }
  /// `tiles`: null where bf16 is multiplied as fp32.
  CpuProgram(const OpList& list, const ArenaLayout& layout, std::uint32_t members,
             const std::shared_ptr<PreparedTiles>& tiles)
      : list_(list), layout_(layout), wide_(TileArithmetic::kFloat32, members) {
    if (tiles != nullptr) narrow_ = std::make_unique<TileEngine>(tiles);
  }

  absl::Status prepare();
  const OpList& ops() const override { return list_; }
  Bytes scratch_bytes(std::uint32_t members) const;
  /// Counts what it needs in `needs` for as long as it lives. REQUIRES: once.
  void count_need(Bytes need, std::shared_ptr<ScratchNeeds> needs) {
    need_ = need;
    needs_ = std::move(needs);
    needs_->add(need);
  }
  absl::Status run(ThreadPool& pool, const Bindings& bindings, const BufferView& scratch) const;

 private:
  absl::Status check_storage(const Op& op) const {
    return devices::check_storage(list_, op, mixes_storage(op.kind), "the CPU");
  }
  PreparedOr prepare_op(const Op& op, const Engines& engines) const;
  PreparedOr prepare_pair(const ProductPair& pair, const Engines& engines) const;
  absl::Status check(const Bindings& bindings) const;

  const OpList list_;
  const ArenaLayout layout_;
  TileEngine wide_;
  std::unique_ptr<TileEngine> narrow_;
  std::vector<std::unique_ptr<PreparedOp>> prepared_;
  CountedMemory memory_{kPrograms};
  Bytes need_ = 0;
  std::shared_ptr<ScratchNeeds> needs_;
};

PreparedOr CpuProgram::prepare_pair(const ProductPair& pair, const Engines& engines) const {
  RONDO_RETURN_IF_ERROR(check_storage(list_.ops[pair.first]));
  RONDO_RETURN_IF_ERROR(check_storage(list_.ops[pair.second]));
  return prepare_matmul_pair(list_, pair, engines);
}

PreparedOr CpuProgram::prepare_op(const Op& op, const Engines& engines) const {
  RONDO_RETURN_IF_ERROR(check_storage(op));
  const Preparation preparation{list_, op, engines};
  switch (op.kind) {
    case OpKind::kMatMul:
    case OpKind::kMatMulInputGradient:
      return prepare_matmul(preparation);
    case OpKind::kAddRows:
    case OpKind::kSumOfSquares:
    case OpKind::kAdamW:
    case OpKind::kAdamW8:
      return prepare_update_op(preparation);
    case OpKind::kMatMulWeightGradient:
      return prepare_matmul_weight_gradient(preparation);
    case OpKind::kVocabularyStatistics:
    case OpKind::kVocabularyLoss:
    case OpKind::kVocabularyGradient:
      return prepare_vocabulary(preparation);
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingBackward:
    case OpKind::kSelectLast:
      return prepare_row_op(preparation);
    case OpKind::kRoute:
    case OpKind::kRouteBackward:
    case OpKind::kShareScale:
    case OpKind::kShareScaleBackward:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kCombineBackward:
    case OpKind::kGroupedBias:
    case OpKind::kGroupedBiasGradient:
      return prepare_route_op(preparation);
    case OpKind::kConvolution:
    case OpKind::kConvolutionBackward:
    case OpKind::kDecay:
    case OpKind::kDecayBackward:
    case OpKind::kDeltaRule:
    case OpKind::kDeltaRuleBackward:
      return prepare_delta_op(preparation);
    case OpKind::kAttentionSink:
    case OpKind::kAttentionSinkGradient:
      return prepare_sink_op(preparation);
    case OpKind::kJoinHeads:
    case OpKind::kJoinHeadsBackward:
    case OpKind::kHeadScaleGradient:
      return prepare_heads_op(preparation);
    case OpKind::kGroupedMatMul:
    case OpKind::kGroupedMatMulInputGradient:
    case OpKind::kGroupedMatMulWeightGradient:
      return prepare_grouped_product(preparation);
    default:
      return prepare_vector_op(preparation);
  }
}

absl::Status CpuProgram::prepare() {
  RONDO_RETURN_IF_ERROR(validate(list_));
  const Engines engines{&wide_, narrow_.get()};
  const std::vector<std::optional<ProductPair>> pair_of =
      pairs_by_op(list_, [&](const ProductPair& pair) { return can_pair(list_, pair, engines); });
  for (std::size_t i = 0; i < list_.ops.size(); ++i) {
    const std::optional<ProductPair>& pair = pair_of[i];
    if (pair && i == pair->first) continue;
    RONDO_ASSIGN_OR_RETURN(auto prepared, pair ? prepare_pair(*pair, engines) : prepare_op(list_.ops[i], engines));
    prepared_.push_back(std::move(prepared));
  }
  memory_.add(kOpBytes * list_.ops.size());
  return absl::OkStatus();
}

Bytes CpuProgram::scratch_bytes(std::uint32_t members) const {
  Bytes most = 0;
  for (const auto& prepared : prepared_) most = std::max(most, prepared->scratch_bytes(members));
  return round_up(most, 64);
}

absl::Status CpuProgram::check(const Bindings& bindings) const {
  if (layout_.size > 0 && (bindings.scratch.host() == nullptr || bindings.scratch.size < layout_.size)) {
    return internal_error("scratch of {} bytes bound, the program needs {}", bindings.scratch.size, layout_.size);
  }
  if (bindings.tensors.size() < list_.tensors.size()) {
    return internal_error("{} tensors bound, the program has {}", bindings.tensors.size(), list_.tensors.size());
  }
  for (std::size_t id = 0; id < list_.tensors.size(); ++id) {
    const TensorDesc& tensor = list_.tensors[id];
    if (tensor.role == TensorRole::kScratch) continue;
    if (bindings.tensors[id].host() == nullptr || bindings.tensors[id].size < tensor.bytes()) {
      return internal_error("tensor '{}' is bound to {} bytes that the host can address, it needs {}", tensor.name,
                            bindings.tensors[id].host() == nullptr ? 0 : bindings.tensors[id].size, tensor.bytes());
    }
  }
  return absl::OkStatus();
}

absl::Status CpuProgram::run(ThreadPool& pool, const Bindings& bindings, const BufferView& scratch) const {
  RONDO_RETURN_IF_ERROR(check(bindings));
  if (const Bytes needed = scratch_bytes(pool.threads()); scratch.size < needed) {
    return internal_error(
        "the CPU's scratch of {} bytes is too small, {} needed: it could not grow when a program was "
        "compiled",
        scratch.size, needed);
  }
  const RunContext context{pool, list_, layout_, bindings, scratch.host()};
  for (const auto& prepared : prepared_) RONDO_RETURN_IF_ERROR(prepared->run(context));
  return absl::OkStatus();
}

}  // namespace

class CpuExecutor::Impl {
 public:
  explicit Impl(ThreadPool& threads) : threads_(threads) {
    if (arithmetic_for_bfloat16() == TileArithmetic::kBfloat16) {
      tiles_ = std::make_shared<PreparedTiles>(threads.threads());
    }
  }

  absl::StatusOr<std::unique_ptr<Program>> compile(const OpList& list, const ArenaLayout& layout) {
    auto program = std::make_unique<CpuProgram>(list, layout, threads_.threads(), tiles_);
    RONDO_RETURN_IF_ERROR(program->prepare());
    program->count_need(program->scratch_bytes(threads_.threads()), needs_);
    const PermitLock permit(permit_);
    if (const Bytes needed = needs_->most(); needed != scratch_.size()) {
      scratch_ = Buffer();  // first: the two need not fit side by side; run() notices when the new one failed
      if (needed == 0) return program;
      RONDO_ASSIGN_OR_RETURN(scratch_, allocate_host(needed, kProcessorScratch));
    }
    return program;
  }

  absl::Status execute(const Program& program, const Bindings& bindings) {
    const auto* own = dynamic_cast<const CpuProgram*>(&program);
    if (own == nullptr) return internal_error("a program that another backend compiled was given to the CPU");
    const PermitLock permit(permit_);
    return own->run(threads_, bindings, scratch_.view());
  }

  Bytes scratch_bytes() {
    const PermitLock permit(permit_);
    return scratch_.size();
  }

  std::uint32_t threads() const { return threads_.threads(); }

 private:
  ThreadPool& threads_;
  std::shared_ptr<PreparedTiles> tiles_;  // shared: programs may outlive the executor
  const std::shared_ptr<ScratchNeeds> needs_ = std::make_shared<ScratchNeeds>();
  Permit permit_;
  Buffer scratch_ ABSL_GUARDED_BY(permit_);
};

CpuExecutor::CpuExecutor(ThreadPool& threads) : impl_(std::make_unique<Impl>(threads)) {}
CpuExecutor::~CpuExecutor() = default;

absl::StatusOr<std::unique_ptr<Program>> CpuExecutor::compile(const OpList& list, const ArenaLayout& layout) {
  return impl_->compile(list, layout);
}

absl::Status CpuExecutor::execute(const Program& program, const Bindings& bindings) {
  return impl_->execute(program, bindings);
}

Bytes CpuExecutor::scratch_bytes() const { return impl_->scratch_bytes(); }

std::string CpuExecutor::numerics_class() const {
  std::string target = instruction_set() == "AVX-512" ? "avx512" : "avx2";
  if (arithmetic_for_bfloat16() == TileArithmetic::kBfloat16) target += multiplies_in_tiles() ? "-amx-bf16" : "-bf16";
  return fmt::format("cpu{}-{}-onednn{}", kKernelSet, target, onednn_version());
}

Bytes CpuExecutor::library_bytes() {
  // oneDNN's kernels of AVX-512 are longer than those of AVX2, and its sgemm copies what it reads.
  return multiplies_as_avx2() ? 0 : 2_MiB;
}

std::string CpuExecutor::description() const {
  const std::string name = processor_name();
  return fmt::format("{}, {} threads, {}", name.empty() ? "CPU" : name, impl_->threads(), instruction_set());
}

}  // namespace rondo::devices::cpu
