// From tokens to a tree, by recursive descent with bounded depth.
//
// The grammar is Jinja2's, binding strength from weak to strong: if-else, or, and, not, comparisons and in, + -, ~,
// * / // %, ** (from the left), signs, postfix (attribute, item, call), filters and tests. Statements outside the
// subset (block, extends, include, import, autoescape, recursive loops) are refused by name.
#pragma once

#include <string>
#include <vector>

#include "ast.h"
#include "heap.h"
#include "lexer.h"

namespace rondo::data::jinja {

class Parser {
 public:
  /// Constants are made on `heap`, whose depth limit bounds the tree.
  Parser(std::vector<Token> tokens, Heap& heap) : tokens_(std::move(tokens)), heap_(heap) {}
  /// Throws Failure with the line.
  Body parse();

 private:
  class Nesting;
  using EndNames = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& current() const { return tokens_[position_]; }
  const Token& following() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  const Token& advance();
  bool skip_operator(std::string_view symbol);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view symbol);
  void expect_type(TokenType type, std::string_view what);
  std::string expect_name(std::string_view what);
  [[noreturn]] void fail(const std::string& message) const;

  // Statements (parser.cpp).
  Body parse_body(EndNames ends);
  Body parse_block(EndNames ends);
  StatementPtr parse_statement();
  StatementPtr parse_for();
  StatementPtr parse_if();
  StatementPtr parse_set();
  StatementPtr parse_with();
  StatementPtr parse_macro();
  StatementPtr parse_call_block();
  StatementPtr parse_filter_block();
  StatementPtr parse_generation();
  StatementPtr parse_loop_control(StatementKind kind);
  void parse_print(Body& body);
  void parse_signature(Statement& statement);
  StatementPtr make_statement(StatementKind kind);
  void close(Statement& statement) const;

  // Expressions (parse_expression.cpp).
  ExpressionPtr parse_expression(bool with_conditional = true);
  ExpressionPtr parse_or();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concat();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filter = true);
  ExpressionPtr parse_primary(bool with_attribute_target = false);
  ExpressionPtr parse_name(bool with_attribute_target);
  ExpressionPtr parse_number();
  ExpressionPtr parse_strings();
  ExpressionPtr parse_list();
  ExpressionPtr parse_dict();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_filters_and_tests(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr input);
  ExpressionPtr parse_test(ExpressionPtr input);
  ExpressionPtr parse_subscript(ExpressionPtr object);
  ExpressionPtr parse_attribute(ExpressionPtr object);
  ExpressionPtr parse_call(ExpressionPtr callee);
  void parse_arguments(Expression& call);
  struct TupleRules {
    bool primary_only = false;
    bool attribute_targets = false;
    bool with_conditional = true;
    bool parentheses = false;
    std::string_view end_name = {};
  };
  ExpressionPtr parse_tuple(const TupleRules& rules);
  bool at_tuple_end(std::string_view end_name) const;
  ExpressionPtr parse_target(bool attribute_targets, std::string_view end_name);
  void check_target(const Expression& target) const;
  ExpressionPtr make(ExpressionKind kind) const;
  void close(Expression& expression) const;

  std::vector<Token> tokens_;
  std::size_t position_ = 0;
  Heap& heap_;
  std::uint32_t depth_ = 0;
  std::uint32_t loops_ = 0;  // loops around this place that break and continue may mean
};

/// One level of the grammar while it lives. Throws Failure at the depth limit.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser);
  ~Nesting() { --parser_.depth_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace rondo::data::jinja
