// Encoded weights back to numbers, element by element (encoding.h).
#include "rondo/devices/encoding.h"
#include "values.h"

namespace rondo::devices::reference {
namespace {

template <typename T>
T element(const std::byte* data, Bytes section, std::int64_t index) {
  T value;
  std::memcpy(&value, data + section + static_cast<Bytes>(index) * sizeof(T), sizeof(T));
  return value;
}

float int8_element(const std::byte* data, const EncodedLayout& layout, std::int64_t i) {
  return static_cast<float>(element<std::int8_t>(data, layout.codes, i)) *
         element<float>(data, layout.scales, i / kEncodedBlock);
}

float nf4_element(const std::byte* data, const EncodedLayout& layout, std::int64_t i) {
  const std::int64_t block = i / kEncodedBlock;
  const float share = dynamic_map()[element<std::uint8_t>(data, layout.block_codes, block)];
  const float scaled = share * element<float>(data, layout.block_scales, block / kScaleBlock);
  const float magnitude = scaled + element<float>(data, layout.offset, 0);
  const auto pair = element<std::uint8_t>(data, layout.codes, i / 2);
  return kNf4Values[i % 2 == 0 ? pair >> 4U : pair & 15U] * magnitude;
}

}  // namespace

void expand(const Call& call) {
  const TensorDesc& encoded = call.list.tensors[call.op.reads[0]];
  const EncodedLayout layout(encoded.encoding, encoded.elements());
  const std::byte* data = call.in(0).bytes();
  Values y = call.out(0);
  for (std::int64_t i = 0; i < y.size(); ++i) {
    const float value =
        encoded.encoding == Encoding::kInt8 ? int8_element(data, layout, i) : nf4_element(data, layout, i);
    y.set(i, static_cast<double>(value));
  }
}

}  // namespace rondo::devices::reference
