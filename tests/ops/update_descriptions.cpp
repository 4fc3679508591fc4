#include "update_descriptions.h"

#include <algorithm>
#include <cstring>

#include "case_sizes.h"
#include "rondo/devices/moment_codes.h"
#include "rondo/devices/update_block.h"

namespace rondo::devices::testing {
namespace {

/// What all updates read: three parameters, of which the second begins in the middle of the blocks and the third has
/// three.
class UpdateBuilder {
 public:
  UpdateBuilder(DType storage, Scale scale) : b_(storage, 3), storage_(storage) {
    const std::vector<std::int32_t> places = {0, 0, 0, 1, 1, 0, 2, 0, 2, 1, 2, 2};
    const int copies = scale == Scale::kOdd ? 1 : 40;
    std::vector<std::int32_t> owners;
    for (int i = 0; i < copies; ++i) owners.insert(owners.end(), places.begin(), places.end());
    blocks_ = static_cast<std::int64_t>(owners.size() / 2);
    gradient_ = wide(b_.input("gradient", flat()), {1.0, 0, {}});
    const TensorId factors = wide(b_.input("factors", {3, kUpdateFactors}), {0.05, 0.6, {}});
    const TensorId keys = b_.keys();
    const TensorId owner = b_.integers("owners", BatchTensor::kIds, owners);
    list().tensors[owner].shape = {blocks_, 2};
    reads_ = {gradient_, factors, keys, owner, wide(b_.state("master", flat()), {1.0, 0, {}})};
  }

  CaseBuilder& builder() { return b_; }
  std::int64_t blocks() const { return blocks_; }
  Shape flat() const { return {blocks_ * static_cast<std::int64_t>(kUpdateBlock)}; }
  TensorId gradient() const { return gradient_; }

  void reads(TensorId id) { reads_.push_back(id); }
  /// In fp32 whatever the storage.
  TensorId wide(TensorId id, Contents contents) {
    if (storage_ != DType::kFloat64) list().tensors[id].dtype = DType::kFloat32;
    b_.result().contents[id] = std::move(contents);
    return id;
  }
  /// Integers that are no part of a batch.
  TensorId words(const char* name, const std::vector<std::int32_t>& values, TensorRole role) {
    const TensorId id = b_.integers(name, BatchTensor::kIds, values);
    list().tensors[id].shape = {static_cast<std::int64_t>(values.size())};
    list().tensors[id].role = role;
    return id;
  }
  OpCase update(OpKind kind) {
    std::vector<TensorId> writes;
    if (size_of(storage_) == 2) writes.push_back(b_.output("published", flat()));
    b_.op(kind, reads_, writes);
    b_.result().reduction = static_cast<std::int64_t>(kUpdateBlock);
    return b_.result();
  }

 private:
  OpList& list() { return b_.result().list; }

  CaseBuilder b_;
  const DType storage_;
  std::int64_t blocks_ = 0;
  TensorId gradient_ = 0;
  std::vector<TensorId> reads_;
};

}  // namespace

OpCase update_case(DType storage, Scale scale) {
  UpdateBuilder b(storage, scale);
  b.reads(b.wide(b.builder().state("first moment", b.flat()), {0.1, 0, {}}));
  b.reads(b.wide(b.builder().state("second moment", b.flat()), {0, 0.3, {}}));
  const TensorId sums = b.builder().output("sums", {b.blocks()}, DType::kFloat64);
  b.builder().op(OpKind::kSumOfSquares, {b.gradient()}, {sums});
  return b.update(OpKind::kAdamW);
}

OpCase coded_update_case(DType storage, Scale scale) {
  UpdateBuilder b(storage, scale);
  const std::int64_t elements = b.flat()[0];
  std::uint32_t random = 1;
  for (const char* name : {"first", "second"}) {
    std::vector<std::int32_t> codes(static_cast<std::size_t>(elements / 4));
    for (std::int32_t& four : codes) four = static_cast<std::int32_t>(random = random * 1664525U + 1013904223U);
    b.reads(b.words((std::string(name) + " codes").c_str(), codes, TensorRole::kState));
    const Shape blocks = {elements / static_cast<std::int64_t>(kMomentBlock)};
    b.reads(b.wide(b.builder().state((std::string(name) + " scales").c_str(), blocks), {0, 0.3, {}}));
  }
  std::vector<std::int32_t> tables(kMomentTableWords);
  std::memcpy(tables.data(), &moment_tables(), sizeof(MomentTables));
  b.reads(b.words("code tables", tables, TensorRole::kInput));
  return b.update(OpKind::kAdamW8);
}

/// Fewer rows than there is room for, one of them the padding token's.
OpCase add_rows_case(DType storage, Scale scale) {
  const Sizes s = sizes_of(scale);
  CaseBuilder b(storage, s.tokens);
  std::vector<std::int32_t> list(s.tokens + 1, 0x55555555);
  list[0] = static_cast<std::int32_t>(s.tokens) - 5;
  for (std::int32_t i = 0; i < list[0]; ++i) list[static_cast<std::size_t>(i) + 1] = 2 * i + 1;
  const TensorId ids = b.integers("row ids", BatchTensor::kIds, list);
  const TensorId rows = b.input("rows", {s.tokens, s.hidden});
  if (storage != DType::kFloat64) b.result().list.tensors[rows].dtype = DType::kFloat32;
  const TensorId table = b.gradient("table", {std::max<std::int64_t>(s.vocabulary, 2 * s.tokens), s.hidden});
  b.op(OpKind::kAddRows, {ids, rows}, {table}, AddRowsAttributes{7});
  return b.result();
}

}  // namespace rondo::devices::testing
