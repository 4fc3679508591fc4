// Tiles by oneDNN: sgemm for fp32, prepared matmul primitives for bf16.
//
// oneDNN's own short-lived allocations inside a call (a 16 KiB work area of sgemm, the argument map of a primitive) are
// its business; nothing here allocates while a program runs.
#include "tile_engine.h"

#include <cpuid.h>
#include <omp.h>

#include <algorithm>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

/// OpenMP keeps the team size per thread; oneDNN asks for it when it creates a primitive and when it runs.
void hold_team_to_one_thread() {
  thread_local const bool done = [] {
    omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

absl::Status check(dnnl_status_t status, const char* doing) {
  if (status == dnnl_success) return absl::OkStatus();
  return internal_error("oneDNN failed with status {} while {}", static_cast<int>(status), doing);
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, std::int64_t leading,
                            dnnl::memory::data_type type) {
  return dnnl::memory::desc({rows, columns}, type, dnnl::memory::dims{leading, 1});
}

/// Intel's cores from Sapphire Rapids on multiply bf16 in their tiles (AMX), which a virtual machine may hide. Their
/// VDPBF16PS does half the FLOP/s of their fp32 arithmetic (docs/results/cpu.md), where Cooper Lake and AMD's cores do
/// twice as many. Known by AVX512-FP16: the rates themselves are not measured, for timing may not enter a result.
bool has_slow_bfloat16_dots() {
  constexpr unsigned kAvx512Fp16 = 1U << 23U;  // of EDX of leaf 7, Intel's Software Developer's Manual, volume 2, CPUID
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __builtin_cpu_is("intel") != 0 && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kAvx512Fp16) != 0;
}

/// Whether oneDNN uses these instructions: its names are sets of bits, of which later versions have more.
bool multiplies_by(dnnl_cpu_isa_t instructions) {
  const auto wanted = static_cast<unsigned>(instructions);
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & wanted) == wanted;
}

/// The argument by which oneDNN 3 reads a product's factor from memory in each run; version 2 knows it beforehand.
#if DNNL_VERSION_MAJOR >= 3
constexpr int kFactor = DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS;
#else
constexpr int kFactor = 0;
#endif

/// Has sums multiplied by a factor; where that is read from memory, the memory.
std::optional<dnnl::memory> put_factor(float factor, dnnl::primitive_attr& attributes,
                                       [[maybe_unused]] const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, 0);
  dnnl::memory memory({{1}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a}, engine);
  *static_cast<float*>(memory.get_data_handle()) = factor;
  return memory;
#else
  attributes.set_output_scales(0, {factor});
  return std::nullopt;
#endif
}

dnnl::matmul::primitive_desc describe_product(const dnnl::memory::desc& a, const dnnl::memory::desc& b,
                                              const dnnl::memory::desc& c, const dnnl::primitive_attr& attributes,
                                              const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, c), attributes, engine};
#endif
}

}  // namespace

TileArithmetic arithmetic_for_bfloat16() {
  if (multiplies_in_tiles()) return TileArithmetic::kBfloat16;
  return multiplies_by(dnnl_cpu_isa_avx512_core_bf16) && !has_slow_bfloat16_dots() ? TileArithmetic::kBfloat16
                                                                                   : TileArithmetic::kFloat32;
}

bool multiplies_as_avx2() { return !multiplies_by(dnnl_cpu_isa_avx512_core); }

bool multiplies_in_tiles() { return multiplies_by(dnnl_cpu_isa_avx512_core_amx); }

// Version 3.7 makes code for more cases of each product than 2.6 and 3.1, whose code is counted with what devices keep
// of products; those between have not been seen.
constexpr bool kMuchCode = DNNL_VERSION_MAJOR > 3 || (DNNL_VERSION_MAJOR == 3 && DNNL_VERSION_MINOR > 1);
Bytes product_code_bytes() { return kMuchCode ? 1600_KiB : 0; }
Bytes more_product_code_bytes() { return kMuchCode ? 832_KiB : 0; }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

/// Every prepared shape with one set of memory objects a member, so that members never share mutable state.
class TileEngine::Primitives {
 public:
  explicit Primitives(std::uint32_t members) : members_(members), engine_(dnnl::engine::kind::cpu, 0) {
    streams_.reserve(members);
    for (std::uint32_t i = 0; i < members; ++i) streams_.emplace_back(engine_);
  }

  absl::Status prepare(const TileShape& shape) {
    if (find(shape) != nullptr) return absl::OkStatus();
    try {  // oneDNN's C++ layer throws; nothing does outside this function
      prepared_.push_back(create(shape));
    } catch (const dnnl::error& error) {
      return unimplemented("oneDNN has no product of {} x {} x {} in this arithmetic: {}", shape.rows, shape.columns,
                           shape.inner, error.what());
    }
    return absl::OkStatus();
  }

  Bytes scratch_bytes() const { return scratch_bytes_; }

  absl::Status run(const TileShape& shape, std::uint32_t member, const void* a, const void* b, float* c,
                   std::byte* scratch) const {
    const Prepared* prepared = find(shape);
    if (prepared == nullptr) {
      return internal_error("a product of {} x {} x {} was not prepared", shape.rows, shape.columns, shape.inner);
    }
    const PerMember& own = prepared->members[member];
    // The handles are plain pointers inside oneDNN: it writes neither operand.
    RONDO_RETURN_IF_ERROR(check(dnnl_memory_set_data_handle(own.a.get(), const_cast<void*>(a)), "binding A"));
    RONDO_RETURN_IF_ERROR(check(dnnl_memory_set_data_handle(own.b.get(), const_cast<void*>(b)), "binding B"));
    RONDO_RETURN_IF_ERROR(check(dnnl_memory_set_data_handle(own.c.get(), c), "binding C"));
    RONDO_RETURN_IF_ERROR(check(dnnl_memory_set_data_handle(own.scratch.get(), scratch), "binding scratch"));
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, own.a.get()},
                                         {DNNL_ARG_WEIGHTS, own.b.get()},
                                         {DNNL_ARG_DST, own.c.get()},
                                         {DNNL_ARG_SCRATCHPAD, own.scratch.get()},
                                         {kFactor, prepared->factor ? prepared->factor->get() : nullptr}};
    return check(
        dnnl_primitive_execute(prepared->primitive.get(), streams_[member].get(), prepared->factor ? 5 : 4, arguments),
        "running a product");
  }

 private:
  struct PerMember {
    dnnl::memory a, b, c, scratch;
  };
  struct Prepared {
    TileShape shape;
    dnnl::matmul primitive;
    std::optional<dnnl::memory> factor;  // null: it is 1, or the primitive knows it
    std::vector<PerMember> members;
  };

  Prepared create(const TileShape& shape) {
    const auto a = describe(shape.rows, shape.inner, shape.lda, dnnl::memory::data_type::bf16);
    const dnnl::memory::desc b({shape.inner, shape.columns}, dnnl::memory::data_type::bf16,
                               dnnl::memory::format_tag::BA16a64b2a);  // pairs.h
    const auto c = describe(shape.rows, shape.columns, shape.ldc, dnnl::memory::data_type::f32);
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    std::optional<dnnl::memory> factor;
    if (shape.alpha != 1.0F) factor = put_factor(shape.alpha, attributes, engine_);
    if (shape.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0F);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc description = describe_product(a, b, c, attributes, engine_);
    Prepared prepared{shape, dnnl::matmul(description), std::move(factor), {}};
    for (std::uint32_t i = 0; i < members_; ++i) {
      prepared.members.push_back({dnnl::memory(a, engine_, nullptr), dnnl::memory(b, engine_, nullptr),
                                  dnnl::memory(c, engine_, nullptr),
                                  dnnl::memory(description.scratchpad_desc(), engine_, nullptr)});
    }
    scratch_bytes_ = std::max<Bytes>(scratch_bytes_, round_up(description.scratchpad_desc().get_size(), 64));
    return prepared;
  }

  /// A program has a few dozen shapes and a tile takes tens of microseconds: a linear search is not seen.
  const Prepared* find(const TileShape& shape) const {
    const auto found = std::find_if(prepared_.begin(), prepared_.end(),
                                    [&shape](const Prepared& prepared) { return prepared.shape == shape; });
    return found == prepared_.end() ? nullptr : &*found;
  }

  const std::uint32_t members_;
  const dnnl::engine engine_;
  std::vector<dnnl::stream> streams_;
  std::vector<Prepared> prepared_;
  Bytes scratch_bytes_ = 0;
};

TileEngine::TileEngine(TileArithmetic arithmetic, std::uint32_t members) : arithmetic_(arithmetic) {
  hold_team_to_one_thread();
  if (arithmetic == TileArithmetic::kBfloat16) primitives_ = std::make_unique<Primitives>(members);
}
TileEngine::~TileEngine() = default;

TileArithmetic TileEngine::arithmetic() const { return arithmetic_; }

std::int64_t TileEngine::row_group() const {
  constexpr std::int64_t kAnyGroup = 24;  // whole groups of AVX2 (6) and of AVX-512 (8)
  if (primitives_ != nullptr) return 1;
  return multiplies_as_avx2() ? 6 : kAnyGroup;
}

std::int64_t TileEngine::most_columns() const { return multiplies_as_avx2() ? 96 : 192; }

absl::Status TileEngine::prepare(const TileShape& shape) {
  hold_team_to_one_thread();
  return primitives_ == nullptr ? absl::OkStatus() : primitives_->prepare(shape);
}

Bytes TileEngine::member_scratch_bytes() const { return primitives_ == nullptr ? 0 : primitives_->scratch_bytes(); }

absl::Status TileEngine::run(const TileShape& shape, std::uint32_t member, const void* a, const void* b, float* c,
                             std::byte* scratch) const {
  hold_team_to_one_thread();
  if (primitives_ != nullptr) return primitives_->run(shape, member, a, b, c, scratch);
  const float beta = shape.accumulate ? 1.0F : 0.0F;
  return check(
      dnnl_sgemm(shape.a_transposed ? 'T' : 'N', 'N', shape.rows, shape.columns, shape.inner, shape.alpha,
                 static_cast<const float*>(a), shape.lda, static_cast<const float*>(b), shape.ldb, beta, c, shape.ldc),
      "running a product");
}

}  // namespace rondo::devices::cpu
