// Expressions.
#include "evaluator.h"

#include <fmt/format.h>

#include "attributes.h"
#include "filters.h"
#include "functions.h"
#include "methods.h"
#include "operators.h"
#include "representation.h"
#include "tests.h"

namespace rondo::data::jinja {

Value Evaluator::evaluate(const Expression& expression) {
  const Heap::Level level(heap_);
  heap_.step();
  switch (expression.kind) {
    case ExpressionKind::kConstant:
      return expression.constant;
    case ExpressionKind::kName:
      return evaluate_name(expression);
    case ExpressionKind::kTuple:
      return heap_.tuple(evaluate_all(expression));
    case ExpressionKind::kList:
      return heap_.list(evaluate_all(expression));
    case ExpressionKind::kDict:
      return evaluate_dict(expression);
    case ExpressionKind::kBinary:
      return evaluate_binary(expression);
    case ExpressionKind::kCompare:
      return evaluate_compare(expression);
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr:
      return evaluate_logic(expression);
    case ExpressionKind::kNot:
      return Value::boolean(!truth(evaluate(*expression.items[0])));
    case ExpressionKind::kNegate:
      return negate(evaluate(*expression.items[0]));
    case ExpressionKind::kPositive:
      return positive(evaluate(*expression.items[0]));
    case ExpressionKind::kConcat:
      return evaluate_concat(expression);
    case ExpressionKind::kConditional:
      return evaluate_conditional(expression);
    case ExpressionKind::kAttribute:
      return get_attribute(heap_, evaluate(*expression.items[0]), expression.text);
    case ExpressionKind::kItem: {
      const Value object = evaluate(*expression.items[0]);
      return get_item(heap_, object, evaluate(*expression.items[1]));
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(expression);
    case ExpressionKind::kCall:
      return evaluate_call(expression, nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(expression);
    case ExpressionKind::kTest:
      return evaluate_test(expression);
    case ExpressionKind::kAttributeTarget:
      break;
  }
  throw Failure{"this expression has no value"};
}

Value Evaluator::evaluate_name(const Expression& expression) {
  const Value& value = variable(expression.slot);
  return value.is_missing() ? heap_.undefined(fmt::format("'{}' is undefined", expression.text)) : value;
}

std::vector<Value> Evaluator::evaluate_all(const Expression& expression) {
  std::vector<Value> values;
  values.reserve(expression.items.size());
  for (const ExpressionPtr& item : expression.items) values.push_back(evaluate(*item));
  return values;
}

Value Evaluator::evaluate_dict(const Expression& expression) {
  auto& dict = heap_.make<DictObject>();
  for (std::size_t i = 0; i + 1 < expression.items.size(); i += 2) {
    const Value key = evaluate(*expression.items[i]);
    require_hashable(key);
    heap_.step(dict.steps_to_find(key));
    dict.set(key, evaluate(*expression.items[i + 1]));
  }
  return Value::of(Type::kDict, &dict);
}

Value Evaluator::evaluate_binary(const Expression& expression) {
  Value value = evaluate(*expression.items[0]);
  for (std::size_t i = 0; i < expression.ops.size(); ++i) {
    value = binary(heap_, expression.ops[i], value, evaluate(*expression.items[i + 1]));
  }
  return value;
}

Value Evaluator::evaluate_compare(const Expression& expression) {
  Value left = evaluate(*expression.items[0]);
  for (std::size_t i = 0; i < expression.compares.size(); ++i) {
    const Value right = evaluate(*expression.items[i + 1]);
    if (!compare(heap_, expression.compares[i], left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_logic(const Expression& expression) {
  const bool decides = expression.kind == ExpressionKind::kOr;
  Value value;
  for (const ExpressionPtr& item : expression.items) {
    value = evaluate(*item);
    if (truth(value) == decides) return value;
  }
  return value;
}

Value Evaluator::evaluate_concat(const Expression& expression) {
  std::string text;
  for (const ExpressionPtr& item : expression.items) {
    text += to_text(heap_, evaluate(*item));
    heap_.charge(text.size());
  }
  return heap_.string(std::move(text));
}

Value Evaluator::evaluate_conditional(const Expression& expression) {
  if (truth(evaluate(*expression.items[1]))) return evaluate(*expression.items[0]);
  if (expression.items[2]) return evaluate(*expression.items[2]);
  return heap_.undefined("the inline if has no else, and its condition is false");
}

Value Evaluator::evaluate_slice(const Expression& expression) {
  const Value object = evaluate(*expression.items[0]);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    bounds[i] = expression.items[i + 1] ? evaluate(*expression.items[i + 1]) : Value::none();
  }
  return get_slice(heap_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Evaluator::evaluate_arguments(const Expression& expression) {
  Arguments arguments;
  for (std::size_t i = 1; i < expression.items.size(); ++i)
    arguments.positional.push_back(evaluate(*expression.items[i]));
  if (expression.star_arguments) {
    const std::vector<Value> more = collect(heap_, evaluate(*expression.star_arguments));
    arguments.positional.insert(arguments.positional.end(), more.begin(), more.end());
  }
  for (const auto& [name, value] : expression.keywords) arguments.keyword.emplace_back(name, evaluate(*value));
  if (expression.star_keywords) {
    const Value more = evaluate(*expression.star_keywords);
    if (!more.is_dict()) throw Failure{fmt::format("** needs a mapping, not {}", type_name(more))};
    for (const auto& [name, value] : more.as_dict().entries)
      arguments.keyword.emplace_back(to_text(heap_, name), value);
  }
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, const Value* caller) {
  const Value callee = evaluate(*expression.items[0]);
  Arguments arguments = evaluate_arguments(expression);
  if (caller != nullptr) arguments.keyword.emplace_back("caller", *caller);
  return call(callee, std::move(arguments));
}

Value Evaluator::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (callee.is(Type::kJoiner)) {
    auto& joiner = callee.as<JoinerObject>();
    return std::exchange(joiner.used, true) ? joiner.separator : heap_.string("");
  }
  if (!callee.is(Type::kCallable)) throw Failure{fmt::format("{} cannot be called", type_name(callee))};
  const auto& callable = callee.as<CallableObject>();
  switch (callable.kind) {
    case CallableObject::Kind::kMacro:
      return call_macro(callable, std::move(arguments));
    case CallableObject::Kind::kMethod:
      return call_method(heap_, callable.self, callable.name, arguments);
    case CallableObject::Kind::kGlobal:
      return call_function(heap_, callable.name, arguments);
  }
  return Value::none();
}

Value Evaluator::evaluate_filter(const Expression& expression) {
  const Value input = expression.items[0] ? evaluate(*expression.items[0]) : *block_text_;
  return apply_filter(heap_, expression.text, input, evaluate_arguments(expression));
}

Value Evaluator::evaluate_test(const Expression& expression) {
  const Value input = evaluate(*expression.items[0]);
  return Value::boolean(apply_test(heap_, expression.text, input, evaluate_arguments(expression)));
}

}  // namespace rondo::data::jinja
