// What lies between two layers: the residual stream, and of Gemma 4's smaller models beside it the embedding, of which
// each block makes inputs of its own, and keys and values that later blocks share.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rondo/model/config.h"
#include "rondo/model/recorder.h"

namespace rondo::model {

/// Channels of what is carried, in this order; of most models the stream is all.
struct CarriedWidths {
  std::int64_t stream = 0;
  std::int64_t embedded = 0;
  std::int64_t window_keys = 0;  // keys and values of blocks with a window, one after the other
  std::int64_t global_keys = 0;  // likewise, of blocks without
  std::int64_t all() const { return stream + embedded + window_keys + global_keys; }
};
CarriedWidths carried_widths(const ModelConfig& config);

/// What a block is given, taken apart as far as the block asks, and put together with what it makes of it.
class Carried {
 public:
  /// `arrived`: [T, CarriedWidths::all()].
  Carried(Recorder& recorder, const ModelConfig& config, TensorId arrived);

  TensorId stream() const { return stream_; }
  TensorId embedded() { return part(Place::kEmbedded); }
  struct Keys {
    TensorId k;  // [T, Hkv, D], normed and turned
    TensorId v;
  };
  /// What the block attends to that shares those of another.
  Keys shared_keys(std::uint32_t block);
  /// Later blocks share these.
  void lend(const Keys& keys, std::uint32_t block);
  /// What goes on, with `stream` in the place of the one that came.
  TensorId with(TensorId stream);

 private:
  enum class Place : std::uint8_t { kEmbedded, kWindowKeys, kGlobalKeys };
  struct Part {
    Place place;
    std::int64_t width;
  };
  std::size_t index_of(Place place) const;
  Place place_of(std::uint32_t block) const;
  TensorId& part(Place place);

  Recorder& recorder_;
  const ModelConfig& config_;
  TensorId stream_;
  std::vector<Part> places_;      // those that the model has
  std::vector<TensorId> opened_;  // the first ones of these
  std::optional<TensorId> rest_;  // all others, as one
};

/// What the first block is given.
TensorId record_first_carried(Recorder& recorder, TensorId embedded, const ModelConfig& config);
/// The stream alone of what the last block gives, or of some of its rows.
TensorId record_stream(Recorder& recorder, TensorId carried, const ModelConfig& config);

}  // namespace rondo::model
