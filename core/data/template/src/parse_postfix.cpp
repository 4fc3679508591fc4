// What follows a value: attributes, items, slices, calls, filters and tests.
#include <fmt/format.h>

#include "parser.h"

namespace rondo::data::jinja {

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (current().is_operator(".")) {
      node = parse_attribute(std::move(node));
    } else if (current().is_operator("[")) {
      node = parse_subscript(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (current().is_operator("|")) {
      node = parse_filter(std::move(node));
    } else if (current().is_name("is")) {
      node = parse_test(std::move(node));
    } else if (current().is_operator("(")) {
      node = parse_call(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_attribute(ExpressionPtr object) {
  auto node = make(ExpressionKind::kAttribute);
  advance();
  node->items.push_back(std::move(object));
  if (current().type == TokenType::kInteger) {
    node->kind = ExpressionKind::kItem;
    node->items.push_back(parse_number());
  } else {
    node->text = expect_name("a name or a number");
  }
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr object) {
  auto node = make(ExpressionKind::kItem);
  advance();
  node->items.push_back(std::move(object));
  ExpressionPtr start = current().is_operator(":") ? nullptr : parse_expression();
  if (!current().is_operator(":")) {
    if (current().is_operator(",")) fail("several indices are not supported");
    node->items.push_back(std::move(start));
  } else {
    node->kind = ExpressionKind::kSlice;
    node->items.push_back(std::move(start));
    advance();
    const auto part = [this]() -> ExpressionPtr {
      return current().is_operator(":") || current().is_operator("]") ? nullptr : parse_expression();
    };
    node->items.push_back(part());
    node->items.push_back(skip_operator(":") ? part() : nullptr);
  }
  expect_operator("]");
  close(*node);
  return node;
}

ExpressionPtr Parser::parse_call(ExpressionPtr callee) {
  auto node = make(ExpressionKind::kCall);
  node->items.push_back(std::move(callee));
  parse_arguments(*node);
  close(*node);
  return node;
}

void Parser::parse_arguments(Expression& call) {
  expect_operator("(");
  bool first = true;
  const auto ensure = [this](bool valid) {
    if (!valid) fail("the arguments of a call are out of order");
  };
  while (!current().is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (current().is_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(!call.star_arguments && !call.star_keywords);
      call.star_arguments = parse_expression();
    } else if (skip_operator("**")) {
      ensure(!call.star_keywords);
      call.star_keywords = parse_expression();
    } else if (current().type == TokenType::kName && following().is_operator("=")) {
      ensure(!call.star_keywords);
      std::string name = advance().text;
      advance();
      call.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      ensure(!call.star_arguments && !call.star_keywords && call.keywords.empty());
      call.items.push_back(parse_expression());
    }
  }
  advance();
}

/// One filter or a chain: `|` stands before each but perhaps the first.
ExpressionPtr Parser::parse_filter(ExpressionPtr input) {
  bool first = !current().is_operator("|");
  while (first || skip_operator("|")) {
    first = false;
    auto node = make(ExpressionKind::kFilter);
    node->text = expect_name("a filter's name");
    while (skip_operator(".")) node->text += "." + expect_name("a filter's name");
    node->items.push_back(std::move(input));
    if (current().is_operator("(")) parse_arguments(*node);
    close(*node);
    input = std::move(node);
  }
  return input;
}

ExpressionPtr Parser::parse_test(ExpressionPtr input) {
  auto node = make(ExpressionKind::kTest);
  advance();
  const bool negated = skip_name("not");
  node->text = expect_name("a test's name");
  while (skip_operator(".")) node->text += "." + expect_name("a test's name");
  node->items.push_back(std::move(input));
  const Token& token = current();
  const bool operand = token.type == TokenType::kName || token.type == TokenType::kString ||
                       token.type == TokenType::kInteger || token.type == TokenType::kFloat || token.is_operator("[") ||
                       token.is_operator("{");
  if (token.is_operator("(")) {
    parse_arguments(*node);
  } else if (operand && !token.is_name("else") && !token.is_name("or") && !token.is_name("and")) {
    if (token.is_name("is")) fail("tests cannot be chained with 'is'");
    node->items.push_back(parse_postfix(parse_primary()));
  }
  close(*node);
  if (!negated) return node;
  auto inverse = make(ExpressionKind::kNot);
  inverse->items.push_back(std::move(node));
  close(*inverse);
  return inverse;
}

}  // namespace rondo::data::jinja
