// See layer_types.h.
#include "layer_types.h"

#include "rondo/base/status.h"

namespace rondo::model {

std::vector<bool> parse_layer_types(Fields& fields, std::uint32_t layers, const char* kind) {
  std::vector<bool> of_kind;
  if (!fields.has("layer_types")) return of_kind;
  const Json& types = fields.at("layer_types");
  if (!types.is_array() || types.size() != layers) {
    fields.expected("layer_types", fmt::format("a list of num_hidden_layers ({}) names", layers));
    return of_kind;
  }
  for (const Json& type : types) {
    of_kind.push_back(type == kind);
    if (of_kind.back() || type == "full_attention") continue;
    fields.refuse("layer_types",
                  fmt::format("the layer {} is not supported; supported: full_attention, {}", excerpt(type), kind));
  }
  return of_kind;
}

void add_layer_types(const std::vector<bool>& of_kind, const char* kind, OrderedJson& out) {
  OrderedJson types = OrderedJson::array();
  for (const bool one : of_kind) types.push_back(one ? kind : "full_attention");
  out["layer_types"] = std::move(types);
}

}  // namespace rondo::model
