// A SAX handler that builds the document and refuses what a plain parser lets pass.
#include "json_reader.h"

#include <utility>
#include <vector>

#include "rondo/base/file.h"
#include "rondo/base/status.h"

namespace rondo::model {
namespace {

constexpr std::size_t kMaxDepth = 32;
constexpr std::size_t kMaxValues =
    5'000'000;  // a header of 100 MB may hold no more: a document is far larger than its text
constexpr std::size_t kMaxExcerpt = 60;

/// Builds `root`. Every method returns false to stop; `error` then says why, except after parse_error.
class StrictBuilder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name))
      return fail(fmt::format("the key {} stands twice in one object", quoted_name(name)));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("not valid JSON at byte {}", position));
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  bool fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    return false;
  }

  template <typename Value>
  bool add(Value&& value) {
    return place(Json(std::forward<Value>(value))) != nullptr;
  }

  Json* place(Json value) {
    if (++values_ > kMaxValues) {
      fail(fmt::format("more than {} values", kMaxValues));
      return nullptr;
    }
    if (open_.empty()) return &(root_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth) return fail(fmt::format("nested more than {} deep", kMaxDepth));
    Json* place_in_document = place(std::move(container));
    if (place_in_document == nullptr) return false;
    open_.push_back(place_in_document);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // an open array does not grow while one of its elements is open: pointers stay valid
  std::string key_;
  std::string error_;
  std::size_t values_ = 0;
};

}  // namespace

absl::StatusOr<Json> parse_json(std::string_view text, const std::string& origin) {
  StrictBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return invalid_input("{}: {}; expected one JSON document", origin, builder.error());
  }
  return builder.take();
}

absl::StatusOr<Json> read_json_file(const std::filesystem::path& path, std::size_t limit) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (!error && size > limit) {
    return invalid_input("{}: expected at most {} bytes, found {}", path.string(), limit, size);
  }
  RONDO_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  return parse_json(text, path.string());
}

std::string excerpt(const Json& value) {
  // A long list would be written out whole only to be cut: name its kind instead.
  if (value.is_array() && value.size() > 16) return fmt::format("a list of {}", value.size());
  if (value.is_object() && value.size() > 4) return fmt::format("an object of {} keys", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxExcerpt) text = text.substr(0, kMaxExcerpt) + "...";
  return text;
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kLongest = 200;
  const bool cut = name.size() > kLongest;
  std::string text = Json(std::string(name.substr(0, kLongest))).dump(-1, ' ', true, Json::error_handler_t::replace);
  return cut ? text + "..." : text;
}

std::string to_text(const OrderedJson& document) {
  return document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace rondo::model
