// Expressions. Chains of one binding strength become one flat node, so that long ones are not deep ones.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "parser.h"

namespace rondo::data::jinja {
namespace {

constexpr std::uint32_t kHeightPerDepth = 4;

std::optional<CompareOp> compare_op(const Token& token) {
  if (token.type != TokenType::kOperator) return std::nullopt;
  if (token.text == "==") return CompareOp::kEq;
  if (token.text == "!=") return CompareOp::kNe;
  if (token.text == "<") return CompareOp::kLt;
  if (token.text == "<=") return CompareOp::kLe;
  if (token.text == ">") return CompareOp::kGt;
  if (token.text == ">=") return CompareOp::kGe;
  return std::nullopt;
}

bool is_constant_name(std::string_view name) {
  return name == "true" || name == "True" || name == "false" || name == "False" || name == "none" || name == "None";
}

}  // namespace

ExpressionPtr Parser::make(ExpressionKind kind) const {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->line = current().line;
  return expression;
}

void Parser::close(Expression& expression) const {
  const auto grow = [&expression](const ExpressionPtr& child) {
    if (child) expression.height = std::max(expression.height, child->height + 1);
  };
  for (const ExpressionPtr& item : expression.items) grow(item);
  for (const auto& [name, value] : expression.keywords) grow(value);
  grow(expression.star_arguments);
  grow(expression.star_keywords);
  if (expression.height > heap_.limits().depth * kHeightPerDepth) fail("an expression is too long a chain");
}

ExpressionPtr Parser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  ExpressionPtr value = parse_or();
  while (with_conditional && current().is_name("if")) {
    auto node = make(ExpressionKind::kConditional);
    advance();
    node->items.push_back(std::move(value));
    node->items.push_back(parse_or());
    node->items.push_back(skip_name("else") ? parse_expression() : nullptr);
    close(*node);
    value = std::move(node);
  }
  return value;
}

ExpressionPtr Parser::parse_or() {
  ExpressionPtr first = parse_and();
  if (!current().is_name("or")) return first;
  auto node = make(ExpressionKind::kOr);
  node->items.push_back(std::move(first));
  while (skip_name("or")) node->items.push_back(parse_and());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_and() {
  ExpressionPtr first = parse_not();
  if (!current().is_name("and")) return first;
  auto node = make(ExpressionKind::kAnd);
  node->items.push_back(std::move(first));
  while (skip_name("and")) node->items.push_back(parse_not());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_not() {
  if (!current().is_name("not")) return parse_comparison();
  const Nesting nesting(*this);
  auto node = make(ExpressionKind::kNot);
  advance();
  node->items.push_back(parse_not());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_comparison() {
  auto node = make(ExpressionKind::kCompare);
  node->items.push_back(parse_sum());
  while (true) {
    if (const auto op = compare_op(current())) {
      advance();
      node->compares.push_back(*op);
    } else if (skip_name("in")) {
      node->compares.push_back(CompareOp::kIn);
    } else if (current().is_name("not") && following().is_name("in")) {
      advance();
      advance();
      node->compares.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    node->items.push_back(parse_sum());
  }
  if (node->compares.empty()) return std::move(node->items.front());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_sum() {
  auto node = make(ExpressionKind::kBinary);
  node->items.push_back(parse_concat());
  while (current().is_operator("+") || current().is_operator("-")) {
    node->ops.push_back(advance().text == "+" ? BinaryOp::kAdd : BinaryOp::kSub);
    node->items.push_back(parse_concat());
  }
  if (node->ops.empty()) return std::move(node->items.front());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_concat() {
  auto node = make(ExpressionKind::kConcat);
  node->items.push_back(parse_product());
  while (skip_operator("~")) node->items.push_back(parse_product());
  if (node->items.size() == 1) return std::move(node->items.front());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_product() {
  const auto op = [this]() -> std::optional<BinaryOp> {
    if (current().is_operator("*")) return BinaryOp::kMul;
    if (current().is_operator("/")) return BinaryOp::kDiv;
    if (current().is_operator("//")) return BinaryOp::kFloorDiv;
    if (current().is_operator("%")) return BinaryOp::kMod;
    return std::nullopt;
  };
  auto node = make(ExpressionKind::kBinary);
  node->items.push_back(parse_power());
  while (const auto found = op()) {
    advance();
    node->ops.push_back(*found);
    node->items.push_back(parse_power());
  }
  if (node->ops.empty()) return std::move(node->items.front());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_power() {
  auto node = make(ExpressionKind::kBinary);
  node->items.push_back(parse_unary());
  while (skip_operator("**")) {
    node->ops.push_back(BinaryOp::kPow);
    node->items.push_back(parse_unary());
  }
  if (node->ops.empty()) return std::move(node->items.front());
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_unary(bool with_filter) {
  heap_.step();
  ExpressionPtr node;
  if (current().is_operator("-") || current().is_operator("+")) {
    const Nesting nesting(*this);
    node = make(current().is_operator("-") ? ExpressionKind::kNegate : ExpressionKind::kPositive);
    advance();
    node->items.push_back(parse_unary(false));
    close(*node);
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_name(bool with_attribute_target) {
  auto node = make(ExpressionKind::kName);
  node->text = advance().text;
  if (is_constant_name(node->text)) {
    const char initial = static_cast<char>(node->text.front() | 0x20);
    node->kind = ExpressionKind::kConstant;
    node->constant = initial == 'n' ? Value::none() : Value::boolean(initial == 't');
  } else if (with_attribute_target && skip_operator(".")) {
    node->kind = ExpressionKind::kAttributeTarget;
    auto name = make(ExpressionKind::kName);
    name->text = std::exchange(node->text, expect_name("an attribute's name"));
    node->items.push_back(std::move(name));
  }
  return node;
}

ExpressionPtr Parser::parse_number() {
  auto node = make(ExpressionKind::kConstant);
  const Token& token = advance();
  if (token.type == TokenType::kFloat) {
    node->constant = Value::real(std::strtod(token.text.c_str(), nullptr));
    return node;
  }
  std::string_view digits = token.text;
  const char radix = digits.size() > 2 ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int base = radix == 'x' ? 16 : radix == 'o' ? 8 : radix == 'b' ? 2 : 10;
  if (base != 10) digits.remove_prefix(2);
  std::int64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value, base).ec != std::errc()) {
    throw Failure{fmt::format("the number {} does not fit in 64 bits", token.text), token.line};
  }
  node->constant = Value::integer(value);
  return node;
}

ExpressionPtr Parser::parse_strings() {
  auto node = make(ExpressionKind::kConstant);
  std::string text;
  while (current().type == TokenType::kString) text += advance().text;
  node->constant = heap_.string(std::move(text));
  return node;
}

ExpressionPtr Parser::parse_primary(bool with_attribute_target) {
  const Token& token = current();
  if (token.type == TokenType::kName) return parse_name(with_attribute_target);
  if (token.type == TokenType::kString) return parse_strings();
  if (token.type == TokenType::kInteger || token.type == TokenType::kFloat) return parse_number();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  if (!token.is_operator("(")) fail(fmt::format("expected an expression, found {}", describe(token)));
  advance();
  ExpressionPtr node = parse_tuple({.parentheses = true});
  expect_operator(")");
  return node;
}

bool Parser::at_tuple_end(std::string_view end_name) const {
  return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
         current().is_operator(")") || (!end_name.empty() && current().is_name(end_name));
}

ExpressionPtr Parser::parse_tuple(const TupleRules& rules) {
  auto node = make(ExpressionKind::kTuple);
  bool is_tuple = false;
  while (true) {
    if (!node->items.empty()) expect_operator(",");
    if (at_tuple_end(rules.end_name)) break;
    node->items.push_back(rules.primary_only ? parse_primary(rules.attribute_targets)
                                             : parse_expression(rules.with_conditional));
    if (!current().is_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->items.empty()) return std::move(node->items.front());
  if (!is_tuple && !rules.parentheses) fail(fmt::format("expected an expression, found {}", describe(current())));
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_target(bool attribute_targets, std::string_view end_name) {
  ExpressionPtr target =
      parse_tuple({.primary_only = true, .attribute_targets = attribute_targets, .end_name = end_name});
  check_target(*target);
  return target;
}

void Parser::check_target(const Expression& target) const {
  if (target.kind == ExpressionKind::kName || target.kind == ExpressionKind::kAttributeTarget) return;
  if (target.kind != ExpressionKind::kTuple) throw Failure{"cannot assign to this expression", target.line};
  for (const ExpressionPtr& item : target.items) check_target(*item);
}

ExpressionPtr Parser::parse_list() {
  auto node = make(ExpressionKind::kList);
  advance();
  while (!current().is_operator("]")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("]")) break;
    node->items.push_back(parse_expression());
  }
  advance();
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_dict() {
  auto node = make(ExpressionKind::kDict);
  advance();
  while (!current().is_operator("}")) {
    if (!node->items.empty()) expect_operator(",");
    if (current().is_operator("}")) break;
    node->items.push_back(parse_expression());
    expect_operator(":");
    node->items.push_back(parse_expression());
  }
  advance();
  close(*node);
  return node;
}

}  // namespace rondo::data::jinja
