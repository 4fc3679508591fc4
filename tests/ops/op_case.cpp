// See op_case.h: building cases and filling their memory.
#include "op_case.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "rondo/base/float16.h"
#include "rondo/base/status.h"
#include "rondo/devices/encoding.h"
#include "rondo/devices/random.h"

namespace rondo::devices::testing {

CaseBuilder::CaseBuilder(DType storage, std::uint32_t tokens) : storage_(storage) { case_.list.tokens = tokens; }

TensorId CaseBuilder::add(const char* name, const Shape& shape, DType dtype, TensorRole role, Contents contents) {
  TensorDesc desc;
  desc.name = name;
  desc.shape = shape;
  desc.dtype = dtype;
  desc.role = role;
  desc.index = static_cast<std::uint32_t>(case_.list.tensors.size());
  case_.list.tensors.push_back(desc);
  case_.contents.push_back(std::move(contents));
  return desc.index;
}

TensorId CaseBuilder::input(const char* name, const Shape& shape, double spread) {
  return add(name, shape, storage_, TensorRole::kInput, {spread, 0, {}});
}

TensorId CaseBuilder::wide_input(const char* name, const Shape& shape) {
  return add(name, shape, wide(), TensorRole::kInput, {1.0, 0, {}});
}

TensorId CaseBuilder::weight(const char* name, const Shape& shape, double spread) {
  return add(name, shape, storage_, TensorRole::kWeight, {spread, 0, {}});
}

TensorId CaseBuilder::wide_weight(const char* name, const Shape& shape) {
  return add(name, shape, wide(), TensorRole::kWeight, {1.0, 0, {}});
}

TensorId CaseBuilder::encoded(TensorId id, Encoding encoding) {
  case_.list.tensors[id].encoding = encoding;
  return id;
}

TensorId CaseBuilder::state(const char* name, const Shape& shape) {
  return add(name, shape, storage_, TensorRole::kState, {1.0, 0, {}});
}

TensorId CaseBuilder::wide_state(const char* name, const Shape& shape) {
  return add(name, shape, wide(), TensorRole::kState, {1.0, 0, {}});
}

TensorId CaseBuilder::integers(const char* name, BatchTensor which, const std::vector<std::int32_t>& values) {
  const TensorId id =
      add(name, {static_cast<std::int64_t>(values.size())}, DType::kInt32, TensorRole::kBatch, {0, 0, values});
  case_.list.tensors[id].index = static_cast<std::uint32_t>(which);
  return id;
}

TensorId CaseBuilder::loss_scale(double value) {
  const TensorId id = add("loss_scale", {1}, wide(), TensorRole::kBatch, {0, value, {}});
  case_.list.tensors[id].index = static_cast<std::uint32_t>(BatchTensor::kLossScale);
  return id;
}

TensorId CaseBuilder::keys() {
  const TensorId id = add("keys", {tokens()}, DType::kUInt64, TensorRole::kBatch, {});
  case_.list.tensors[id].index = static_cast<std::uint32_t>(BatchTensor::kKeys);
  return id;
}

TensorId CaseBuilder::output(const char* name, const Shape& shape, DType dtype, TensorRole role) {
  constexpr double kSentinel = 77.0;
  return add(name, shape, dtype, role, {0, kSentinel, {}});
}

TensorId CaseBuilder::output(const char* name, const Shape& shape) { return output(name, shape, storage_); }

TensorId CaseBuilder::saved(const char* name, const Shape& shape) {
  return output(name, shape, storage_, TensorRole::kSaved);
}

TensorId CaseBuilder::saved_wide(const char* name, const Shape& shape) {
  return output(name, shape, wide(), TensorRole::kSaved);
}

TensorId CaseBuilder::saved_integers(const char* name, const Shape& shape, std::vector<std::int32_t> values) {
  return add(name, shape, DType::kInt32, TensorRole::kSaved, {0, 0, std::move(values)});
}

TensorId CaseBuilder::gradient(const char* name, const Shape& shape) {
  const double spread = storage_ == DType::kFloat64 ? 0.0 : 1.0;
  return add(name, shape, wide(), TensorRole::kGradient, {spread, 0, {}});
}

void CaseBuilder::sequences(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> bounds{static_cast<std::int32_t>(lengths.size())};
  std::vector<std::int32_t> positions;
  for (const std::int32_t length : lengths) {
    bounds.push_back(static_cast<std::int32_t>(positions.size()));
    for (std::int32_t i = 0; i < length; ++i) positions.push_back(i);
  }
  bounds.push_back(static_cast<std::int32_t>(positions.size()));
  bounds.resize(tokens() + 2);
  positions.resize(tokens());
  bounds_ = integers("bounds", BatchTensor::kBounds, bounds);
  positions_ = integers("positions", BatchTensor::kPositions, positions);
}

void CaseBuilder::op(OpKind kind, std::vector<TensorId> reads, std::vector<TensorId> writes, OpAttributes attributes) {
  Op op;
  op.kind = kind;
  op.attributes = std::move(attributes);
  op.reads.assign(reads.begin(), reads.end());
  op.writes.assign(writes.begin(), writes.end());
  case_.list.ops.push_back(std::move(op));
}

OpList single_op(const OpList& list, std::size_t place) {
  OpList single = list;
  single.ops = {list.ops[place]};
  for (const TensorId id : single.ops[0].reads) {
    TensorRole& role = single.tensors[id].role;
    if (role == TensorRole::kSaved || role == TensorRole::kOutput) role = TensorRole::kInput;
  }
  for (const TensorId id : single.ops[0].writes) {
    TensorRole& role = single.tensors[id].role;
    if (role == TensorRole::kSaved) role = TensorRole::kOutput;
  }
  return single;
}

namespace {

std::uint16_t narrow(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

void fill(CaseMemory& memory, TensorId id, const TensorDesc& desc, const Contents& contents, std::uint64_t seed) {
  std::byte* const data = memory.data(id);
  if (desc.encoding != Encoding::kPlain) {
    std::vector<float> values(static_cast<std::size_t>(desc.elements()));
    std::mt19937_64 generator(seed);
    std::normal_distribution<float> normal(0.0F, static_cast<float>(contents.spread) + 1e-9F);
    for (float& value : values) value = normal(generator);
    BlockEncoder encoder(desc.encoding, desc.elements(), {data, desc.bytes()});
    encoder.append(values);
    return encoder.finish();
  }
  if (desc.dtype == DType::kInt32) {
    if (contents.integers.empty()) {
      std::memset(data, 0x55, desc.bytes());
    } else {
      std::memcpy(data, contents.integers.data(), desc.bytes());
    }
    return;
  }
  if (desc.dtype == DType::kUInt64) {
    for (std::int64_t i = 0; i < desc.elements(); ++i) {
      const std::uint64_t key = combine_keys(seed, static_cast<std::uint64_t>(i));
      std::memcpy(data + static_cast<std::size_t>(i) * sizeof(key), &key, sizeof(key));
    }
    return;
  }
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < desc.elements(); ++i) {
    const double spread = contents.spread > 0 ? static_cast<double>(normal(generator)) * contents.spread : 0.0;
    memory.set(id, i, contents.value + spread);
  }
}

}  // namespace

absl::StatusOr<CaseMemory> CaseMemory::make(const OpCase& op_case, std::uint64_t seed) {
  CaseMemory memory;
  const OpList& list = op_case.list;
  memory.bindings_.tensors.resize(list.tensors.size());
  memory.bindings_.layer = 3;
  for (std::size_t id = 0; id < list.tensors.size(); ++id) {
    const TensorDesc& desc = list.tensors[id];
    RONDO_ASSIGN_OR_RETURN(Buffer buffer, allocate_host(desc.bytes(), "op case"));
    memory.bindings_.tensors[id] = buffer.view().part(0, desc.bytes());
    memory.buffers_.push_back(std::move(buffer));
    memory.dtypes_.push_back(desc.dtype);
    fill(memory, static_cast<TensorId>(id), desc, op_case.contents[id], combine_keys(seed, id));
  }
  return memory;
}

double CaseMemory::get(TensorId id, std::int64_t i) const {
  const DType dtype = dtypes_[id];
  const std::byte* at = data(id) + static_cast<std::size_t>(i) * size_of(dtype);
  if (dtype == DType::kFloat64) {
    double value = 0;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  if (dtype == DType::kBfloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U));
  }
  if (dtype == DType::kFloat16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, at, sizeof(bits));
    return static_cast<double>(from_float16(bits));
  }
  float value = 0;
  std::memcpy(&value, at, sizeof(value));
  return static_cast<double>(value);
}

void CaseMemory::set(TensorId id, std::int64_t i, double value) {
  const DType dtype = dtypes_[id];
  std::byte* at = data(id) + static_cast<std::size_t>(i) * size_of(dtype);
  if (dtype == DType::kFloat64) {
    std::memcpy(at, &value, sizeof(value));
  } else if (dtype == DType::kFloat16) {
    const std::uint16_t bits = to_float16(static_cast<float>(value));
    std::memcpy(at, &bits, sizeof(bits));
  } else if (dtype == DType::kBfloat16) {
    const std::uint16_t bits = narrow(static_cast<float>(value));
    std::memcpy(at, &bits, sizeof(bits));
  } else {
    const auto bits = static_cast<float>(value);
    std::memcpy(at, &bits, sizeof(bits));
  }
}

void CaseMemory::copy_from(const CaseMemory& other) {
  for (std::size_t id = 0; id < buffers_.size(); ++id) {
    std::memcpy(bindings_.tensors[id].host(), other.bindings_.tensors[id].host(), bindings_.tensors[id].size);
  }
}

}  // namespace rondo::devices::testing
