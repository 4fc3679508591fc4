// Statements and the handling of tokens.
#include "parser.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::data::jinja {

constexpr std::uint32_t kHeightPerDepth = 4;  // a chain such as a.b.c()|f is a tall tree without nesting

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (parser.depth_ >= parser.heap_.limits().depth) {
    parser.fail(fmt::format("the template nests more deeply than its limit of {}", parser.heap_.limits().depth));
  }
  ++parser.depth_;
}

void Parser::fail(const std::string& message) const { throw Failure{message, current().line}; }

const Token& Parser::advance() {
  const Token& token = tokens_[position_];
  if (position_ + 1 < tokens_.size()) ++position_;
  return token;
}

bool Parser::skip_operator(std::string_view symbol) {
  if (!current().is_operator(symbol)) return false;
  advance();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  advance();
  return true;
}

void Parser::expect_operator(std::string_view symbol) {
  if (!skip_operator(symbol)) fail(fmt::format("expected '{}', found {}", symbol, describe(current())));
}

void Parser::expect_type(TokenType type, std::string_view what) {
  if (current().type != type) fail(fmt::format("expected '{}', found {}", what, describe(current())));
  advance();
}

std::string Parser::expect_name(std::string_view what) {
  if (current().type != TokenType::kName) fail(fmt::format("expected {}, found {}", what, describe(current())));
  return advance().text;
}

StatementPtr Parser::make_statement(StatementKind kind) {
  auto statement = std::make_unique<Statement>();
  statement->kind = kind;
  statement->line = current().line;
  return statement;
}

void Parser::close(Statement& statement) const {
  const auto grow = [&statement](const auto& child) {
    if (child) statement.height = std::max(statement.height, child->height + 1);
  };
  const auto grow_all = [&grow](const auto& children) { std::for_each(children.begin(), children.end(), grow); };
  grow(statement.target);
  grow(statement.expression);
  grow(statement.condition);
  grow_all(statement.body);
  grow_all(statement.otherwise);
  grow_all(statement.targets);
  grow_all(statement.values);
  for (const Branch& branch : statement.branches) {
    grow(branch.condition);
    grow_all(branch.body);
  }
  if (statement.height > heap_.limits().depth * kHeightPerDepth) fail("the template nests too deeply");
}

Body Parser::parse() {
  Body body = parse_body({});
  if (current().type != TokenType::kEnd) fail(fmt::format("unexpected {}", describe(current())));
  return body;
}

/// Up to the name of one of `ends`, which stays the current token (its block already begun), or the template's end.
Body Parser::parse_body(EndNames ends) {
  const Nesting nesting(*this);
  Body body;
  while (current().type != TokenType::kEnd) {
    heap_.step();
    if (current().type == TokenType::kData) {
      auto text = make_statement(StatementKind::kText);
      text->text = advance().text;
      body.push_back(std::move(text));
    } else if (current().type == TokenType::kVariableBegin) {
      auto output = make_statement(StatementKind::kOutput);
      advance();
      output->line = current().line;
      output->expression = parse_tuple({});
      expect_type(TokenType::kVariableEnd, "}}");
      close(*output);
      body.push_back(std::move(output));
    } else {
      expect_type(TokenType::kBlockBegin, "{%");
      const bool ended = std::any_of(ends.begin(), ends.end(), [this](auto end) { return current().is_name(end); });
      if (ended) return body;
      if (current().is_name("print")) {
        parse_print(body);
      } else {
        body.push_back(parse_statement());
      }
      expect_type(TokenType::kBlockEnd, "%}");
    }
  }
  return body;
}

Body Parser::parse_block(EndNames ends) {
  const std::uint32_t line = current().line;
  skip_operator(":");
  expect_type(TokenType::kBlockEnd, "%}");
  Body body = parse_body(ends);
  if (current().type == TokenType::kEnd) {
    throw Failure{fmt::format("the block that begins on line {} is not closed: expected '{}'", line, *(ends.end() - 1)),
                  current().line};
  }
  return body;
}

StatementPtr Parser::parse_statement() {
  if (current().type != TokenType::kName) fail(fmt::format("expected a statement, found {}", describe(current())));
  const std::string& name = current().text;
  if (name == "for") return parse_for();
  if (name == "if") return parse_if();
  if (name == "set") return parse_set();
  if (name == "with") return parse_with();
  if (name == "macro") return parse_macro();
  if (name == "call") return parse_call_block();
  if (name == "filter") return parse_filter_block();
  if (name == "generation") return parse_generation();
  if (name == "break") return parse_loop_control(StatementKind::kBreak);
  if (name == "continue") return parse_loop_control(StatementKind::kContinue);
  constexpr std::string_view kRefused[] = {"block", "extends", "include", "import", "from", "autoescape"};
  if (std::find(std::begin(kRefused), std::end(kRefused), name) != std::end(kRefused)) {
    fail(fmt::format("'{}' is not supported in chat templates here", name));
  }
  fail(fmt::format("unknown or misplaced statement '{}'", name));
}

StatementPtr Parser::parse_for() {
  auto statement = make_statement(StatementKind::kFor);
  advance();
  statement->target = parse_target(false, "in");
  if (!skip_name("in")) fail(fmt::format("expected 'in', found {}", describe(current())));
  statement->expression = parse_tuple({.with_conditional = false, .end_name = "recursive"});
  if (skip_name("if")) statement->condition = parse_expression();
  if (current().is_name("recursive")) fail("recursive loops are not supported in chat templates here");
  ++loops_;
  statement->body = parse_block({"else", "endfor"});
  --loops_;
  if (advance().text == "else") {
    statement->otherwise = parse_block({"endfor"});
    advance();
  }
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_if() {
  auto statement = make_statement(StatementKind::kIf);
  do {
    advance();
    Branch branch;
    branch.condition = parse_tuple({.with_conditional = false});
    branch.body = parse_block({"elif", "else", "endif"});
    statement->branches.push_back(std::move(branch));
  } while (current().is_name("elif"));
  if (advance().text == "else") {
    statement->otherwise = parse_block({"endif"});
    advance();
  }
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_set() {
  auto statement = make_statement(StatementKind::kSet);
  advance();
  statement->target = parse_target(true, "");
  if (skip_operator("=")) {
    statement->expression = parse_tuple({});
  } else {
    statement->kind = StatementKind::kSetBlock;
    if (current().is_operator("|")) statement->expression = parse_filter(nullptr);
    statement->body = parse_block({"endset"});
    advance();
  }
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_with() {
  auto statement = make_statement(StatementKind::kWith);
  advance();
  while (current().type != TokenType::kBlockEnd) {
    if (!statement->targets.empty()) expect_operator(",");
    statement->targets.push_back(parse_target(false, ""));
    expect_operator("=");
    statement->values.push_back(parse_expression());
  }
  statement->body = parse_block({"endwith"});
  advance();
  close(*statement);
  return statement;
}

void Parser::parse_signature(Statement& statement) {
  expect_operator("(");
  while (!current().is_operator(")")) {
    if (!statement.targets.empty()) expect_operator(",");
    auto parameter = make(ExpressionKind::kName);
    parameter->text = expect_name("a parameter's name");
    if (skip_operator("=")) {
      statement.values.push_back(parse_expression());
    } else if (!statement.values.empty()) {
      fail("a parameter without a default follows one with a default");
    }
    const bool twice = std::any_of(statement.targets.begin(), statement.targets.end(),
                                   [&parameter](const auto& other) { return other->text == parameter->text; });
    if (twice) fail(fmt::format("parameter '{}' appears twice", parameter->text));
    statement.targets.push_back(std::move(parameter));
  }
  advance();
}

StatementPtr Parser::parse_macro() {
  auto statement = make_statement(StatementKind::kMacro);
  advance();
  statement->text = expect_name("the macro's name");
  parse_signature(*statement);
  const std::uint32_t loops = std::exchange(loops_, 0);
  statement->body = parse_block({"endmacro"});
  loops_ = loops;
  advance();
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_call_block() {
  auto statement = make_statement(StatementKind::kCallBlock);
  advance();
  if (current().is_operator("(")) parse_signature(*statement);
  statement->expression = parse_expression();
  if (statement->expression->kind != ExpressionKind::kCall) fail("expected a call");
  const std::uint32_t loops = std::exchange(loops_, 0);
  statement->body = parse_block({"endcall"});
  loops_ = loops;
  advance();
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_filter_block() {
  auto statement = make_statement(StatementKind::kFilterBlock);
  advance();
  statement->expression = parse_filter(nullptr);
  statement->body = parse_block({"endfilter"});
  advance();
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_generation() {
  auto statement = make_statement(StatementKind::kGeneration);
  advance();
  const std::uint32_t loops = std::exchange(loops_, 0);
  statement->body = parse_block({"endgeneration"});
  loops_ = loops;
  advance();
  close(*statement);
  return statement;
}

StatementPtr Parser::parse_loop_control(StatementKind kind) {
  if (loops_ == 0) fail(fmt::format("'{}' outside a loop", current().text));
  auto statement = make_statement(kind);
  advance();
  return statement;
}

void Parser::parse_print(Body& body) {
  advance();
  for (bool first = true; current().type != TokenType::kBlockEnd; first = false) {
    if (!first) expect_operator(",");
    auto output = make_statement(StatementKind::kOutput);
    output->expression = parse_expression();
    close(*output);
    body.push_back(std::move(output));
  }
}

}  // namespace rondo::data::jinja
