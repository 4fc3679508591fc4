// oneDNN's matmul primitives with one set of memory objects a member, so that members never share mutable state.
#include "prepared_tiles.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "rondo/base/status.h"

namespace rondo::devices::cpu {
namespace {

/// Of main memory: code for a shape, 41 to 77 KiB by the rests that it leaves in the code's blocks, and the memory
/// objects of a member. Seen (oneDNN 2.6, AVX-512).
constexpr Bytes kCodeBytes = 42_KiB;
constexpr Bytes kMemberBytes = 3584;

/// oneDNN keeps the code of a shape for the process, whoever asked for it: it is counted when it is first seen.
void count_code(const TileShape& shape) {
  static Mutex mutex;
  static std::set<TileShape>& seen = *new std::set<TileShape>;
  static CountedMemory& memory = *new CountedMemory(kCodeOfProducts);
  const MutexLock lock(mutex);
  if (seen.insert(shape).second) memory.add(kCodeBytes);
}

dnnl::memory::desc describe(std::int64_t rows, std::int64_t columns, std::int64_t leading,
                            dnnl::memory::data_type type) {
  return dnnl::memory::desc({rows, columns}, type, dnnl::memory::dims{leading, 1});
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

struct PreparedTiles::Engine {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::vector<dnnl::stream> streams;  // one a member
};

class PreparedTile {
 public:
  /// Throws what oneDNN's C++ layer throws.
  PreparedTile(const TileShape& tile, const dnnl::engine& engine, const std::vector<dnnl::stream>& streams);

  absl::Status run(std::uint32_t member, const void* a, const void* b, float* c, std::byte* scratch) const;

  const TileShape shape;
  Bytes scratch_bytes = 0;

 private:
  struct Member {
    dnnl::stream stream;
    dnnl::memory a, b, c, scratch;
  };

  dnnl::matmul primitive_;
  std::optional<dnnl::memory> factor_;  // null: it is 1, or the primitive knows it
  std::vector<Member> members_;
};

PreparedTile::PreparedTile(const TileShape& tile, const dnnl::engine& engine, const std::vector<dnnl::stream>& streams)
    : shape(tile) {
  const auto a = describe(shape.rows, shape.inner, shape.lda, dnnl::memory::data_type::bf16);
  const dnnl::memory::desc b({shape.inner, shape.columns}, dnnl::memory::data_type::bf16,
                             dnnl::memory::format_tag::BA16a64b2a);  // pairs.h
  const auto c = describe(shape.rows, shape.columns, shape.ldc, dnnl::memory::data_type::f32);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (shape.alpha != 1.0F) factor_ = put_factor(shape.alpha, attributes, engine);
  if (shape.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc description = describe_product(a, b, c, attributes, engine);
  primitive_ = dnnl::matmul(description);
  const dnnl::memory::desc scratch = description.scratchpad_desc();
  scratch_bytes = round_up(scratch.get_size(), 64);
  members_.reserve(streams.size());
  for (const dnnl::stream& stream : streams) {
    members_.push_back({stream, dnnl::memory(a, engine, nullptr), dnnl::memory(b, engine, nullptr),
                        dnnl::memory(c, engine, nullptr), dnnl::memory(scratch, engine, nullptr)});
  }
}

absl::Status PreparedTile::run(std::uint32_t member, const void* a, const void* b, float* c, std::byte* scratch) const {
  const Member& own = members_[member];
  const auto bind = [](const dnnl::memory& memory, const void* data, const char* doing) {
    // The handles are plain pointers inside oneDNN: it writes neither operand.
    return onednn_status(dnnl_memory_set_data_handle(memory.get(), const_cast<void*>(data)), doing);
  };
  RONDO_RETURN_IF_ERROR(bind(own.a, a, "binding A"));
  RONDO_RETURN_IF_ERROR(bind(own.b, b, "binding B"));
  RONDO_RETURN_IF_ERROR(bind(own.c, c, "binding C"));
  RONDO_RETURN_IF_ERROR(bind(own.scratch, scratch, "binding scratch"));
  const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, own.a.get()},
                                       {DNNL_ARG_WEIGHTS, own.b.get()},
                                       {DNNL_ARG_DST, own.c.get()},
                                       {DNNL_ARG_SCRATCHPAD, own.scratch.get()},
                                       {kFactor, factor_ ? factor_->get() : nullptr}};
  return onednn_status(dnnl_primitive_execute(primitive_.get(), own.stream.get(), factor_ ? 5 : 4, arguments),
                       "running a product");
}

PreparedTiles::PreparedTiles(std::uint32_t members)
    : engine_(std::make_unique<Engine>()), memory_("prepared products") {
  for (std::uint32_t i = 0; i < members; ++i) engine_->streams.emplace_back(engine_->engine);
}

PreparedTiles::~PreparedTiles() = default;

absl::StatusOr<const PreparedTile*> PreparedTiles::get(const TileShape& shape) {
  const MutexLock lock(mutex_);
  std::unique_ptr<PreparedTile>& tile = tiles_[shape];
  if (tile != nullptr) return tile.get();
  try {  // oneDNN's C++ layer throws; nothing does outside this function
    tile = std::make_unique<PreparedTile>(shape, engine_->engine, engine_->streams);
  } catch (const dnnl::error& error) {
    return unimplemented("oneDNN has no product of {} x {} x {} in this arithmetic: {}", shape.rows, shape.columns,
                         shape.inner, error.what());
  }
  memory_.add(kMemberBytes * engine_->streams.size());
  count_code(shape);
  return tile.get();
}

const TileShape& shape_of(const PreparedTile& tile) { return tile.shape; }

Bytes scratch_bytes_of(const PreparedTile& tile) { return tile.scratch_bytes; }

absl::Status run_tile(const PreparedTile& tile, std::uint32_t member, const void* a, const void* b, float* c,
                      std::byte* scratch) {
  return tile.run(member, a, b, c, scratch);
}

absl::Status onednn_status(int status, const char* doing) {
  if (status == dnnl_success) return absl::OkStatus();
  return internal_error("oneDNN failed with status {} while {}", status, doing);
}

}  // namespace rondo::devices::cpu
