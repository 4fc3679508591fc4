// Encoded tensors back to numbers, element by element, and numbers into codes (encoding.h).
#include <vector>

#include "rondo/devices/encoding.h"
#include "values.h"

namespace rondo::devices::reference {

void expand(const Call& call) {
  const TensorDesc& encoded = call.list.tensors[call.op.reads[0]];
  const EncodedLayout layout(encoded.encoding, encoded.elements());
  const std::byte* data = call.in(0).bytes();
  Values y = call.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    y.set(i, static_cast<double>(decoded_element(encoded.encoding, layout, data, i)));
  }
}

void encode(const Call& call) {
  const TensorDesc& encoded = call.list.tensors[call.op.writes[0]];
  const Values x = call.in(0);
  std::vector<float> values(static_cast<std::size_t>(x.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(x[static_cast<std::int64_t>(i)]);
  }
  BlockEncoder encoder(encoded.encoding, x.size(), {call.out(0).bytes(), encoded.bytes()});
  encoder.append(values);
  encoder.finish();
}

}  // namespace rondo::devices::reference
