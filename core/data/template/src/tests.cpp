// A table from a test's name to its function.
#include "tests.h"

#include <fmt/format.h>

#include <algorithm>

#include "filters.h"
#include "iteration.h"
#include "operators.h"
#include "representation.h"
#include "text.h"

namespace rondo::data::jinja {
namespace {

struct TestCall {
  Heap& heap;
  const Value& input;
  const std::vector<Value>& operands;
};

using Test = bool (*)(const TestCall& call);

struct NamedTest {
  std::string_view name;
  std::size_t operands;
  Test test;
};

std::int64_t modulo(const TestCall& call, const Value& divisor) {
  const Value remainder = binary(call.heap, BinaryOp::kMod, call.input, divisor);
  // A text would be formatted, not divided: as in Python, the result is then not the number asked for.
  if (!remainder.is_number()) return -1;
  return remainder.as_real() == 0.0 ? 0 : remainder.as_real() == 1.0 ? 1 : 2;
}

template <CompareOp op>
bool compared(const TestCall& call) {
  return compare(call.heap, op, call.input, call.operands[0]);
}

template <Type type>
bool is_type(const TestCall& call) {
  return call.input.is(type);
}

bool is_sequence(const TestCall& call) {
  return has_length(call.input) && !call.input.is(Type::kView) && !call.input.is(Type::kLoop);
}

bool is_callable(const TestCall& call) {
  return call.input.is(Type::kCallable) || call.input.is(Type::kJoiner) || call.input.is(Type::kLoop) ||
         call.input.is_undefined();
}

template <bool upper_case>
bool is_cased(const TestCall& call) {
  return is_cased_as(to_text(call.heap, call.input), upper_case);
}

constexpr NamedTest kTests[] = {
    {"defined", 0, [](const TestCall& call) { return !call.input.is_undefined(); }},
    {"undefined", 0, is_type<Type::kUndefined>},
    {"none", 0, is_type<Type::kNone>},
    {"string", 0, is_type<Type::kString>},
    {"mapping", 0, is_type<Type::kDict>},
    {"sequence", 0, is_sequence},
    {"iterable", 0, [](const TestCall& call) { return can_iterate(call.input); }},
    {"callable", 0, is_callable},
    {"number", 0, [](const TestCall& call) { return call.input.is_number(); }},
    {"integer", 0, is_type<Type::kInt>},
    {"float", 0, is_type<Type::kFloat>},
    {"boolean", 0, is_type<Type::kBool>},
    {"true", 0, [](const TestCall& call) { return call.input.is(Type::kBool) && call.input.as_bool(); }},
    {"false", 0, [](const TestCall& call) { return call.input.is(Type::kBool) && !call.input.as_bool(); }},
    {"lower", 0, is_cased<false>},
    {"upper", 0, is_cased<true>},
    {"escaped", 0, [](const TestCall& call) { return call.input.is_string() && call.input.as_string().markup; }},
    {"odd", 0, [](const TestCall& call) { return modulo(call, Value::integer(2)) == 1; }},
    {"even", 0, [](const TestCall& call) { return modulo(call, Value::integer(2)) == 0; }},
    {"divisibleby", 1, [](const TestCall& call) { return modulo(call, call.operands[0]) == 0; }},
    {"sameas", 1, [](const TestCall& call) { return identical(call.input, call.operands[0]); }},
    {"in", 1, compared<CompareOp::kIn>},
    {"==", 1, compared<CompareOp::kEq>},
    {"eq", 1, compared<CompareOp::kEq>},
    {"equalto", 1, compared<CompareOp::kEq>},
    {"!=", 1, compared<CompareOp::kNe>},
    {"ne", 1, compared<CompareOp::kNe>},
    {">", 1, compared<CompareOp::kGt>},
    {"gt", 1, compared<CompareOp::kGt>},
    {"greaterthan", 1, compared<CompareOp::kGt>},
    {">=", 1, compared<CompareOp::kGe>},
    {"ge", 1, compared<CompareOp::kGe>},
    {"<", 1, compared<CompareOp::kLt>},
    {"lt", 1, compared<CompareOp::kLt>},
    {"lessthan", 1, compared<CompareOp::kLt>},
    {"<=", 1, compared<CompareOp::kLe>},
    {"le", 1, compared<CompareOp::kLe>},
    {"filter", 0, [](const TestCall& call) { return call.input.is_string() && has_filter(call.input.text()); }},
    {"test", 0, [](const TestCall& call) { return call.input.is_string() && has_test(call.input.text()); }},
};

const NamedTest* find_test(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kTests), std::end(kTests), [name](const NamedTest& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool has_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(Heap& heap, std::string_view name, const Value& input, const Arguments& arguments) {
  const NamedTest* const entry = find_test(name);
  if (entry == nullptr) throw Failure{fmt::format("the test '{}' does not exist or is not supported here", name)};
  std::vector<Value> operands = arguments.positional;
  for (const auto& keyword : arguments.keyword) operands.push_back(keyword.second);
  if (operands.size() != entry->operands) {
    throw Failure{fmt::format("the test '{}' takes {} arguments, {} given", name, entry->operands, operands.size())};
  }
  return entry->test({heap, input, operands});
}

}  // namespace rondo::data::jinja
