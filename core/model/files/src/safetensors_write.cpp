// Writing tensors as their bytes come, and cutting a model into shards.

#include <utility>

#include "json_reader.h"
#include "rondo/base/atomic_file.h"
#include "rondo/base/status.h"
#include "rondo/model/safetensors.h"
#include "safetensors_header.h"

namespace rondo::model {
namespace {

/// tensors[begin, end) go into one shard.
struct Shard {
  std::size_t begin = 0;
  std::size_t end = 0;
};

std::vector<Shard> cut_into_shards(const std::vector<TensorToWrite>& tensors, Bytes max_shard_bytes) {
  std::vector<Shard> shards = {{0, 0}};
  Bytes used = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    // A size that overflows is refused by the writer; here it only ends the shard.
    const Bytes bytes = tensor_bytes(tensors[i].type, tensors[i].shape).value_or(max_shard_bytes);
    const bool fits = used <= max_shard_bytes && bytes <= max_shard_bytes - used;
    if (!fits && shards.back().end > shards.back().begin) {
      shards.push_back({i, i});
      used = 0;
    }
    shards.back().end = i + 1;
    used += bytes;
  }
  return shards;
}

std::string shard_name(std::size_t number, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

std::string make_index(const std::vector<TensorToWrite>& tensors, const std::vector<Shard>& shards) {
  Json places = Json::object();
  std::uint64_t total = 0;
  std::uint64_t parameters = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    for (std::size_t i = shards[s].begin; i < shards[s].end; ++i) {
      places[tensors[i].name] = shard_name(s + 1, shards.size());
      const std::uint64_t bytes = tensor_bytes(tensors[i].type, tensors[i].shape).value_or(0);
      total += bytes;
      parameters += bytes / weight_type_size(tensors[i].type);
    }
  }
  OrderedJson index;
  index["metadata"]["total_parameters"] = parameters;
  index["metadata"]["total_size"] = total;
  index["weight_map"] = places;
  return to_text(index);
}

}  // namespace

TensorProducer produce_whole(std::vector<TensorToWrite> tensors,
                             std::function<absl::Status(std::size_t, std::span<std::byte>)> fill) {
  return [tensors = std::move(tensors), fill = std::move(fill), buffer = std::vector<std::byte>()](
             std::size_t index, const TensorSink& sink) mutable {
    const std::size_t bytes = tensor_bytes(tensors[index].type, tensors[index].shape).value_or(0);
    if (bytes > buffer.size()) buffer.resize(bytes);
    const std::span<std::byte> place = std::span(buffer).first(bytes);
    RONDO_RETURN_IF_ERROR(fill(index, place));
    return sink(place);
  };
}

absl::Status write_safetensors(const std::filesystem::path& file, const std::vector<TensorToWrite>& tensors,
                               const std::map<std::string, std::string>& metadata, const TensorProducer& produce) {
  RONDO_ASSIGN_OR_RETURN(const std::string header, make_header(tensors, metadata, file.string()));
  RONDO_ASSIGN_OR_RETURN(AtomicFile out, AtomicFile::create(file));
  RONDO_RETURN_IF_ERROR(out.write(std::as_bytes(std::span(header))));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = tensor_bytes(tensors[i].type, tensors[i].shape).value_or(0);
    std::size_t written = 0;
    RONDO_RETURN_IF_ERROR(produce(i, [&](std::span<const std::byte> piece) {
      written += piece.size();
      if (written > bytes)
        return internal_error("{}: tensor {} has {} bytes, more came", file.string(), tensors[i].name, bytes);
      return out.write(piece);
    }));
    if (written < bytes) {
      return internal_error("{}: tensor {} has {} bytes, {} came", file.string(), tensors[i].name, bytes, written);
    }
  }
  return out.commit();
}

absl::Status write_sharded_safetensors(const std::filesystem::path& folder, const std::vector<TensorToWrite>& tensors,
                                       const TensorProducer& produce, Bytes max_shard_bytes) {
  const std::map<std::string, std::string> metadata = {{"format", "pt"}};  // transformers asks for it
  // Checks all names and sizes at once: a mistake must not show after half the shards are written.
  RONDO_RETURN_IF_ERROR(make_header(tensors, metadata, folder.string()).status());
  const std::vector<Shard> shards = cut_into_shards(tensors, max_shard_bytes);
  const std::filesystem::path single = folder / "model.safetensors";
  if (shards.size() == 1) return write_safetensors(single, tensors, metadata, produce);
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::size_t begin = shards[s].begin;
    const std::vector<TensorToWrite> part(tensors.begin() + static_cast<std::ptrdiff_t>(begin),
                                          tensors.begin() + static_cast<std::ptrdiff_t>(shards[s].end));
    RONDO_RETURN_IF_ERROR(
        write_safetensors(folder / shard_name(s + 1, shards.size()), part, metadata,
                          [&](std::size_t index, const TensorSink& sink) { return produce(begin + index, sink); }));
  }
  RONDO_RETURN_IF_ERROR(write_file_atomically(folder / "model.safetensors.index.json", make_index(tensors, shards)));
  std::error_code error;
  std::filesystem::remove(single, error);
  if (error) return internal_error("{}: cannot be removed: {}", single.string(), error.message());
  return absl::OkStatus();
}

}  // namespace rondo::model
