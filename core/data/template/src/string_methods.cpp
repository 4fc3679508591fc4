// Methods of strings. Positions and widths count code points; a Markup string yields Markup.
#include <fmt/format.h>

#include <algorithm>

#include "format.h"
#include "iteration.h"
#include "methods.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

struct Call {
  Heap& heap;
  const Value& self;
  std::string_view name;
  const Arguments& arguments;

  std::string_view text() const { return self.text(); }
  Value same(std::string result) const { return heap.string(std::move(result), self.as_string().markup); }
  std::string_view string_of(const Value& value) const {
    if (!value.is_string()) throw Failure{fmt::format("{} needs a str, not {}", name, type_name(value))};
    return value.text();
  }
};

Value list_of(const Call& call, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  for (const std::string_view part : parts) items.push_back(call.same(std::string(part)));
  return call.heap.list(std::move(items));
}

template <std::string (*convert)(std::string_view)>
Value converted(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {});
  call.heap.step(call.text().size() / kBytesPerCaseStep);
  return call.same(convert(call.text()));
}

template <Side side>
Value stripped(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"chars"});
  const Value chars = bound.get(0);
  return call.same(std::string(chars.is_none() ? strip_space(call.text(), side)
                                               : strip_characters(call.text(), call.string_of(chars), side)));
}

/// At white space; the last of more than `limit` + 1 words holds all the rest.
std::vector<std::string_view> words(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts;
  for (text = strip_space(text, Side::kLeft); !text.empty();) {
    if (limit >= 0 && static_cast<std::int64_t>(parts.size()) == limit) {
      parts.push_back(text);
      break;
    }
    std::size_t cut = text.size();
    for (std::size_t position = 0; position < cut;) {
      const std::size_t start = position;
      if (is_space(next_code_point(text, position))) cut = start;
    }
    parts.push_back(text.substr(0, cut));
    text = strip_space(text.substr(cut), Side::kLeft);
  }
  return parts;
}

/// The same from the right: the first of more than `limit` + 1 words holds all before it, white space too.
std::vector<std::string_view> words_from_right(std::string_view text, std::int64_t limit) {
  std::vector<std::string_view> parts = words(text, -1);
  if (limit < 0 || static_cast<std::int64_t>(parts.size()) <= limit) return parts;
  const auto last = static_cast<std::ptrdiff_t>(parts.size()) - 1 - limit;
  const std::string_view word = parts[static_cast<std::size_t>(last)];
  parts.erase(parts.begin(), parts.begin() + last);
  parts.front() = text.substr(0, static_cast<std::size_t>(word.data() - text.data()) + word.size());
  return parts;
}

template <bool from_right>
Value split(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"sep", "maxsplit"});
  const std::int64_t limit = bound.integer(1, -1);
  call.heap.charge(call.text().size());
  if (bound.get(0).is_none()) {
    return list_of(call, from_right ? words_from_right(call.text(), limit) : words(call.text(), limit));
  }
  const std::string_view separator = call.string_of(bound.get(0));
  if (separator.empty()) throw Failure{fmt::format("{} needs a separator that is not empty", call.name)};
  std::vector<std::size_t> cuts = find_all(call.text(), separator, limit, from_right);
  if (from_right) std::reverse(cuts.begin(), cuts.end());
  std::vector<std::string_view> parts;
  std::size_t start = 0;
  for (const std::size_t cut : cuts) {
    parts.push_back(call.text().substr(start, cut - start));
    start = cut + separator.size();
  }
  parts.push_back(call.text().substr(start));
  return list_of(call, parts);
}

template <bool from_right>
Value partition(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"sep"}, 1);
  const std::string_view separator = call.string_of(bound.get(0));
  if (separator.empty()) throw Failure{fmt::format("{} needs a separator that is not empty", call.name)};
  const std::string_view text = call.text();
  const std::vector<std::size_t> cuts = find_all(text, separator, 1, from_right);
  const auto part = [&call](std::string_view piece) { return call.same(std::string(piece)); };
  if (cuts.empty()) {
    return call.heap.tuple(from_right ? std::vector<Value>{part(""), part(""), part(text)}
                                      : std::vector<Value>{part(text), part(""), part("")});
  }
  const std::string_view tail = text.substr(cuts[0] + separator.size());
  return call.heap.tuple({part(text.substr(0, cuts[0])), part(separator), part(tail)});
}

/// The part between the optional `start` and `stop`; `first` is its own first byte. False when start is past the end.
bool limit_text(const Call& call, const BoundArguments& bound, std::string_view& part, std::size_t& first) {
  const auto length = static_cast<std::int64_t>(call.self.as_string().length);
  const auto index = [length, &bound](std::size_t argument, std::int64_t otherwise) {
    const std::int64_t value = bound.get(argument).is_none() ? otherwise : bound.integer(argument, otherwise);
    return value < 0 ? std::max<std::int64_t>(value + length, 0) : value;
  };
  const std::int64_t start = index(1, 0);
  const std::int64_t stop = std::min(index(2, length), length);
  if (start > length || start > stop) return false;
  first = byte_offset(call.text(), static_cast<std::size_t>(start));
  part = call.text().substr(0, byte_offset(call.text(), static_cast<std::size_t>(stop))).substr(first);
  return true;
}

template <bool from_right, bool must_exist>
Value find(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"sub", "start", "end"}, 1);
  call.heap.charge(call.text().size());
  const std::string_view wanted = call.string_of(bound.get(0));
  std::string_view part;
  std::size_t first = 0;
  const bool inside = limit_text(call, bound, part, first);
  std::size_t found = std::string_view::npos;
  if (inside && wanted.empty()) {
    found = from_right ? part.size() : 0;
  } else if (inside) {
    const std::vector<std::size_t> places = find_all(part, wanted, 1, from_right);
    if (!places.empty()) found = places[0];
  }
  if (found == std::string_view::npos) {
    if (must_exist) throw Failure{fmt::format("{}: the text is not found", call.name)};
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(code_point_count(call.text().substr(0, first + found))));
}

Value count(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"sub", "start", "end"}, 1);
  call.heap.charge(call.text().size());
  const std::string_view wanted = call.string_of(bound.get(0));
  std::string_view part;
  std::size_t first = 0;
  if (!limit_text(call, bound, part, first)) return Value::integer(0);
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(code_point_count(part)) + 1);
  return Value::integer(static_cast<std::int64_t>(find_all(part, wanted, -1, false).size()));
}

template <bool at_end>
Value affixed(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"affix", "start", "end"}, 1);
  std::string_view part;
  std::size_t first = 0;
  if (!limit_text(call, bound, part, first)) return Value::boolean(false);
  const auto matches = [&](const Value& value) {
    const std::string_view affix = call.string_of(value);
    return affix.size() <= part.size() && part.substr(at_end ? part.size() - affix.size() : 0, affix.size()) == affix;
  };
  const Value affix = bound.get(0);
  if (!affix.is(Type::kTuple)) return Value::boolean(matches(affix));
  return Value::boolean(std::any_of(affix.items().begin(), affix.items().end(), matches));
}

template <bool at_end>
Value remove_affix(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"affix"}, 1);
  const std::string_view affix = call.string_of(bound.get(0));
  std::string_view text = call.text();
  if (affix.size() <= text.size() && text.substr(at_end ? text.size() - affix.size() : 0, affix.size()) == affix) {
    text = at_end ? text.substr(0, text.size() - affix.size()) : text.substr(affix.size());
  }
  return call.same(std::string(text));
}

Value replace(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"old", "new", "count"}, 2);
  call.string_of(bound.get(0));
  call.string_of(bound.get(1));
  return replace_text(call.heap, call.self, bound.get(0), bound.get(1), bound.integer(2, -1));
}

Value join(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"iterable"}, 1);
  const std::vector<Value> items = collect(call.heap, bound.get(0));
  for (const Value& item : items) call.string_of(item);
  return join_texts(call.heap, call.self, items);
}

Value lines(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"keepends"});
  return list_of(call, split_lines(call.text(), bound.flag(0)));
}

template <char alignment>
Value padded(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"width", "fillchar"}, 1);
  const std::string_view fill = bound.has(1) ? call.string_of(bound.get(1)) : " ";
  if (code_point_count(fill) != 1) throw Failure{fmt::format("{} needs one character to fill with", call.name)};
  const std::int64_t width = bound.integer(0, 0);
  const auto length = static_cast<std::int64_t>(call.self.as_string().length);
  if (width <= length) return call.self;
  const std::int64_t missing = width - length;
  // Python's own rounding of an odd remainder.
  const std::int64_t left = alignment == '<' ? 0 : alignment == '>' ? missing : missing / 2 + (missing & width & 1);
  const Value filler = call.heap.string(std::string(fill));
  const std::string before = repeat(call.heap, filler, left).text();
  return call.same(before + std::string(call.text()) + repeat(call.heap, filler, missing - left).text());
}

Value zero_filled(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {"width"}, 1);
  const std::int64_t width = bound.integer(0, 0);
  const auto length = static_cast<std::int64_t>(call.self.as_string().length);
  if (width <= length) return call.self;
  const std::int64_t missing = width - length;
  std::string text(call.text());
  const std::string zeros = repeat(call.heap, call.heap.string("0"), missing).text();
  return call.same(text.insert(!text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0, zeros));
}

template <CharacterTest test>
Value all_are(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {});
  return Value::boolean(all_characters(call.text(), test));
}

template <bool upper_case>
Value cased(const Call& call) {
  const BoundArguments bound(call.arguments, call.name, {});
  return Value::boolean(is_cased_as(call.text(), upper_case));
}

Value is_ascii(const Call& call) { return Value::boolean(call.self.as_string().ascii()); }

Value format(const Call& call) { return format_braces(call.heap, call.self, call.arguments); }

struct Method {
  std::string_view name;
  Value (*call)(const Call& call);
};

constexpr Method kMethods[] = {
    {"strip", stripped<Side::kBoth>},
    {"lstrip", stripped<Side::kLeft>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", lines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"startswith", affixed<false>},
    {"endswith", affixed<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"upper", converted<upper>},
    {"lower", converted<lower>},
    {"title", converted<title>},
    {"capitalize", converted<capitalize>},
    {"swapcase", converted<swap_case>},
    {"replace", replace},
    {"join", join},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count},
    {"format", format},
    {"ljust", padded<'<'>},
    {"rjust", padded<'>'>},
    {"center", padded<'^'>},
    {"zfill", zero_filled},
    {"isalnum", all_are<CharacterTest::kAlnum>},
    {"isalpha", all_are<CharacterTest::kAlpha>},
    {"isdecimal", all_are<CharacterTest::kDecimal>},
    {"isdigit", all_are<CharacterTest::kDigit>},
    {"isnumeric", all_are<CharacterTest::kNumeric>},
    {"isspace", all_are<CharacterTest::kSpace>},
    {"isprintable", all_are<CharacterTest::kPrintable>},
    {"islower", cased<false>},
    {"isupper", cased<true>},
    {"isascii", is_ascii},
};

const Method* find_method(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kMethods), std::end(kMethods),
                                         [name](const Method& method) { return method.name == name; });
  return found == std::end(kMethods) ? nullptr : found;
}

}  // namespace

std::string_view string_method_name(std::string_view name) {
  const Method* const method = find_method(name);
  return method == nullptr ? std::string_view() : method->name;
}

Value call_string_method(Heap& heap, const Value& self, std::string_view name, const Arguments& arguments) {
  heap.charge(self.text().size());
  return find_method(name)->call({heap, self, name, arguments});
}

Value replace_text(Heap& heap, const Value& self, const Value& from, const Value& to, std::int64_t count) {
  const bool markup = self.as_string().markup;
  const std::string replacement = markup && !to.as_string().markup ? escape_html(to.text()) : to.text();
  // Bounds the result before it is made.
  const std::size_t places = self.text().size() / std::max<std::size_t>(from.text().size(), 1) + 1;
  const std::size_t most = count < 0 ? places : std::min(places, static_cast<std::size_t>(count));
  if (replacement.size() > heap.limits().output_bytes / most) {
    const std::size_t found =
        from.text().empty() ? most : find_all(self.text(), from.text(), static_cast<std::int64_t>(most), false).size();
    heap.charge(found > heap.limits().output_bytes / std::max<std::size_t>(replacement.size(), 1)
                    ? static_cast<std::size_t>(heap.limits().output_bytes) + 1
                    : found * replacement.size());
  }
  return heap.string(replace_all(self.text(), from.text(), replacement, count), markup);
}

Value join_texts(Heap& heap, const Value& separator, const std::vector<Value>& items) {
  const bool markup = separator.as_string().markup;
  std::string result;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) result += separator.text();
    const StringObject& item = items[i].as_string();
    result += markup && !item.markup ? escape_html(item.text) : item.text;
    if (result.size() > heap.limits().output_bytes) break;  // the charge below then refuses it
  }
  return heap.string(std::move(result), markup);
}

}  // namespace rondo::data::jinja
