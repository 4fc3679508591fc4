// Look-up, its gradient by row, the last token's row.
#include <map>
#include <vector>

#include "values.h"

namespace rondo::devices::reference {

void embedding(const Call& call) {
  const std::int32_t* ids = call.in(0).integers();
  const Values table = call.in(1);
  Values x = call.out(0);
  const std::int64_t width = table.columns();
  const double scale = call.attributes<EmbeddingAttributes>().scale;
  for (std::int64_t t = 0; t < x.rows(); ++t) {
    for (std::int64_t c = 0; c < width; ++c) x.set(t * width + c, ids[t] < 0 ? 0.0 : scale * table[ids[t] * width + c]);
  }
}

void embedding_backward(const Call& call) {
  const std::int32_t* ids = call.in(0).integers();
  const Sequences sequences(call.in(1));
  const Values dy = call.in(2);
  std::int32_t* row_ids = call.out(0).integers();
  Values rows = call.out(1);
  const std::int64_t width = dy.columns();
  const double scale = call.attributes<EmbeddingAttributes>().scale;
  std::map<std::int32_t, std::vector<double>> sums;  // rising ids
  for (std::int64_t t = 0; t < sequences.real_tokens(); ++t) {
    if (ids[t] < 0) continue;
    auto& sum = sums.try_emplace(ids[t], static_cast<std::size_t>(width)).first->second;
    for (std::int64_t c = 0; c < width; ++c) sum[static_cast<std::size_t>(c)] += dy[t * width + c];
  }
  row_ids[0] = static_cast<std::int32_t>(sums.size());
  std::int64_t row = 0;
  for (const auto& [id, sum] : sums) {
    row_ids[row + 1] = id;
    for (std::int64_t c = 0; c < width; ++c) rows.set(row * width + c, scale * sum[static_cast<std::size_t>(c)]);
    ++row;
  }
}

void select_last(const Call& call) {
  const Values x = call.in(0);
  const std::int64_t last = Sequences(call.in(1)).real_tokens() - 1;
  Values y = call.out(0);
  for (std::int64_t c = 0; c < x.columns(); ++c) y.set(c, x[last * x.columns() + c]);
}

}  // namespace rondo::devices::reference
