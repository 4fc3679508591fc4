// Encoded weights back to numbers, element by element (encoding.h).
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

}  // namespace rondo::devices::reference
