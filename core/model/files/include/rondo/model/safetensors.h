// safetensors files, single and sharded: mapped for reading, streamed for writing.
//
//   file   = header_size:u64le  header:JSON  data
//   header = { "__metadata__"?: {string: string}, name: { "dtype": D, "shape": [n...], "data_offsets": [begin, end) }
//   ... }
//
// Offsets count from the end of the header; tensors neither overlap nor leave holes. A TensorFile may be read from any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rondo/base/file.h"
#include "rondo/base/units.h"
#include "rondo/model/config.h"

namespace rondo::model {

/// One tensor inside a mapped file. The view lives as long as the TensorFiles it came from.
struct TensorView {
  std::string name;
  WeightType type = WeightType::kFloat32;  // of the numbers; with `decode`: the type that suits them when written
  std::vector<std::uint64_t> shape;        // row-major, outermost first
  std::span<const std::byte> data;         // product(shape) * size(type) bytes, little-endian; with `decode` any
  std::string file;                        // for messages
  bool codes = false;                      // U8: bytes, from which other tensors are read (stacked_experts.h)
  /// For tensors that do not lie plainly in `data` (blocks of quantized numbers, rows in another order): puts the
  /// numbers from `first` on as fp32. Empty: they lie plainly.
  std::function<void(std::uint64_t first, std::span<float> out)> decode;
  /// Of tensors in MXFP4, for which `decode` is there too: copies the codes of all elements, two in a byte, the first
  /// in its lower half, and the scales of all blocks of 32.
  std::function<void(std::span<std::byte> codes, std::span<std::byte> scales)> copy_mxfp4;
  std::uint64_t elements() const;
};

/// All tensors of a model directory or of one file.
class TensorFiles {
 public:
  /// model.safetensors, or the shards that model.safetensors.index.json lists.
  /// Errors: InvalidArgument naming file and tensor: header over 100 MB or past the end, broken JSON, unknown dtype,
  /// offsets that overlap, leave a hole or disagree with the shape, a tensor twice, a shard or an indexed tensor
  /// missing. U8 is let pass in models: check_model_tensors() refuses it where numbers are expected.
  static absl::StatusOr<TensorFiles> open_model(const std::filesystem::path& folder);
  static absl::StatusOr<TensorFiles> open_file(const std::filesystem::path& file);
  /// The tensors of a file of another format, each name once, their data inside `file`.
  static TensorFiles from_views(MappedFile file, std::vector<TensorView> views);

  /// Null when there is none of that name.
  const TensorView* find(const std::string& name) const;
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  /// Copies a tensor as fp32; `out` holds elements() numbers. fp16 and bf16 widen exactly.
  static void read_as_float32(const TensorView& tensor, std::span<float> out);
  /// The same of out.size() numbers from `first` on, which the tensor has.
  static void read_as_float32(const TensorView& tensor, std::uint64_t first, std::span<float> out);
  /// Copies a tensor as bf16 bits (to nearest, ties to even).
  static void read_as_bfloat16(const TensorView& tensor, std::span<std::uint16_t> out);
  /// Another view on what is open; of its name there is none yet.
  void add(TensorView view);
  void erase(const std::string& name) { tensors_.erase(name); }
  /// The pages of this tensor need not stay in memory.
  void release(const TensorView& tensor) const;
  /// The folder or file that was opened, for messages.
  const std::string& origin() const { return origin_; }

 private:
  absl::Status add_file(const std::filesystem::path& file, bool codes);

  std::string origin_;
  std::vector<std::unique_ptr<MappedFile>> files_;
  std::map<std::string, TensorView> tensors_;
};

/// Puts fp32 numbers as `type` (to nearest, ties to even; too large for fp16 is infinity). `out` holds values.size()
/// numbers of that type.
void store_float32(std::span<const float> values, WeightType type, std::span<std::byte> out);

/// What to write: bytes are asked for one tensor at a time, in order, so that no second copy of the model exists.
struct TensorToWrite {
  std::string name;
  WeightType type = WeightType::kFloat32;
  std::vector<std::uint64_t> shape;
};

/// Takes the next bytes of a tensor.
using TensorSink = std::function<absl::Status(std::span<const std::byte>)>;
/// Passes all bytes of tensors[index] on to `sink`, in order, in pieces of any size.
using TensorProducer = std::function<absl::Status(std::size_t index, const TensorSink& sink)>;

/// Of tensors that are made whole: `fill(index, out)` puts the bytes of tensors[index] into a buffer, which comes to be
/// as long as the largest.
TensorProducer produce_whole(std::vector<TensorToWrite> tensors,
                             std::function<absl::Status(std::size_t, std::span<std::byte>)> fill);

/// Writes one file atomically: aside, synced, renamed, folder synced. Errors: Internal naming the path (disk full, no
/// permission) or the tensor of which more or fewer bytes come than it has; what the producer returns.
absl::Status write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                               const std::map<std::string, std::string>& metadata, const TensorProducer& produce);

/// Writes a model's weights below `folder`, which exists: model.safetensors when they fit in `max_shard_bytes`, else
/// model-00001-of-0000N.safetensors in the order given and, last, model.safetensors.index.json. A model.safetensors of
/// an earlier, smaller model is then removed, since readers would prefer it. A tensor larger than the limit gets a
/// shard of its own. Errors as above.
constexpr Bytes kDefaultShardBytes = 5'000'000'000;
absl::Status write_sharded_safetensors(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                                       const TensorProducer& produce, Bytes max_shard_bytes = kDefaultShardBytes);

}  // namespace rondo::model
