#include "json_fields.h"

#include <cstdint>

#include "rondo/base/file.h"
#include "rondo/base/status.h"
#include "utf8.h"

namespace rondo::data::tok {

Fields Fields::member(const char* key) const {
  static const Json kNull;
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, where_.empty() ? key : where_ + "." + key};
}

bool Fields::has(const char* key) const { return value_->is_object() && value_->contains(key); }

absl::Status Fields::error(std::string_view what) const { return invalid_input("{}: {}", where_, what); }

absl::Status Fields::expect_object() const {
  if (value_->is_object()) return absl::OkStatus();
  return error(fmt::format("expected an object, found {}", value_->type_name()));
}

absl::StatusOr<std::string> Fields::text(const char* key) const {
  const Fields field = member(key);
  if (!field.value().is_string()) {
    return field.error(fmt::format("expected a string, found {}", field.value().type_name()));
  }
  return field.value().get_ref<const std::string&>();
}

absl::StatusOr<bool> Fields::flag(const char* key) const {
  const Fields field = member(key);
  if (!field.value().is_boolean()) {
    return field.error(fmt::format("expected true or false, found {}", field.value().type_name()));
  }
  return field.value().get<bool>();
}

absl::StatusOr<bool> Fields::flag_or(const char* key, bool absent) const {
  if (member(key).value().is_null()) return absent;
  return flag(key);
}

absl::StatusOr<std::size_t> Fields::count(const char* key) const {
  const Fields field = member(key);
  if (!field.value().is_number_unsigned()) return field.error("expected a whole number from 0 on");
  return field.value().get<std::size_t>();
}

absl::StatusOr<std::string> Fields::character(const char* key) const {
  RONDO_ASSIGN_OR_RETURN(std::string value, text(key));
  if (value.empty() || decode_utf8(value, 0).size != value.size()) {
    return member(key).error(fmt::format("expected one character, found '{}'", value));
  }
  return value;
}

absl::StatusOr<std::vector<Fields>> Fields::list(const char* key) const {
  const Fields field = member(key);
  if (!field.value().is_array()) {
    return field.error(fmt::format("expected an array, found {}", field.value().type_name()));
  }
  std::vector<Fields> out;
  for (const Json& element : field.value()) {
    out.emplace_back(element, fmt::format("{}[{}]", field.where(), out.size()));
  }
  return out;
}

absl::StatusOr<std::string> Fields::type() const {
  RONDO_RETURN_IF_ERROR(expect_object());
  return text("type");
}

absl::StatusOr<Json> read_json(const Documents& documents, const std::string& name) {
  RONDO_ASSIGN_OR_RETURN(const std::string text, documents.read(name));
  const std::string path = documents.place(name);
  Json value = Json::parse(text, nullptr, false);
  if (value.is_discarded()) return invalid_input("{}: not valid JSON; is the file complete?", path);
  if (!value.is_object()) return invalid_input("{}: expected a JSON object, found {}", path, value.type_name());
  return value;
}

absl::StatusOr<std::int32_t> token_id(const Fields& value) {
  if (!value.value().is_number_unsigned() || value.value().get<std::uint64_t>() > kLargestId) {
    return value.error(fmt::format("expected a token id from 0 to {}", kLargestId));
  }
  return value.value().get<std::int32_t>();
}

}  // namespace rondo::data::tok
