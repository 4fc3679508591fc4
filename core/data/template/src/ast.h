// A parsed template: expressions and statements, and, after binding (scope.h), where each variable lives.
//
// Trees are built once and never change, so any thread may read them. Constants point into the template's own Heap.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operators.h"
#include "value.h"

namespace rondo::data::jinja {

/// A variable: the nesting level of the frame that holds it, and its place there.
struct Slot {
  std::uint32_t level = 0;
  std::uint32_t index = 0;
};

enum class ExpressionKind : std::uint8_t {
  kConstant,
  kName,
  kAttributeTarget,  // `ns.attr` on the left of a set
  kTuple,
  kList,
  kDict,     // items: key, value, key, value...
  kBinary,   // items[0] ops[0] items[1] ops[1] ..., from the left
  kCompare,  // items[0] compares[0] items[1] ..., chained
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPositive,
  kConcat,
  kConditional,  // items: value, condition, otherwise or null
  kAttribute,
  kItem,    // items: object, index
  kSlice,   // items: object, start, stop, step; the last three may be null
  kCall,    // items: callee, arguments...
  kFilter,  // items: input or null (the block's text), arguments...
  kTest,    // items: input, arguments...
};

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::kConstant;
  std::uint32_t line = 1;
  std::uint32_t height = 1;
  std::string text;  // a name, an attribute, a filter's or test's name
  Value constant;
  Slot slot;
  std::vector<ExpressionPtr> items;
  std::vector<BinaryOp> ops;
  std::vector<CompareOp> compares;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr star_arguments;  // *args
  ExpressionPtr star_keywords;   // **kwargs
};

/// How a frame's variable gets its value when the frame is entered.
struct Load {
  enum class Action : std::uint8_t { kParameter, kContext, kAlias, kUndefined };
  Action action = Action::kUndefined;
  std::uint32_t index = 0;
  std::string name;  // of kContext
  Slot source;       // of kAlias
};

struct Frame {
  std::uint32_t level = 0;
  std::uint32_t size = 0;
  std::vector<Load> loads;
};

enum class StatementKind : std::uint8_t {
  kText,
  kOutput,       // expression
  kFor,          // target, expression (iterable), condition, body, otherwise
  kIf,           // branches, otherwise
  kMacro,        // text (name), slot, parameters, defaults, body
  kCallBlock,    // expression (a call), parameters, defaults, body
  kFilterBlock,  // expression (a chain of filters on null), body
  kSet,          // target, expression
  kSetBlock,     // target, expression (filters on null) or null, body
  kWith,         // targets, values, body
  kGeneration,   // body
  kBreak,
  kContinue,
};

struct Statement;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  std::uint32_t line = 1;
  std::uint32_t height = 1;
  std::string text;
  Slot slot;
  ExpressionPtr target;
  ExpressionPtr expression;
  ExpressionPtr condition;
  Body body;
  Body otherwise;
  std::vector<Branch> branches;
  std::vector<ExpressionPtr> targets;  // of with; a macro's parameters
  std::vector<ExpressionPtr> values;   // of with; a macro's defaults, for its last parameters
  Frame frame;
  Frame condition_frame;
  Frame otherwise_frame;
  Slot loop_slot;
  // A macro's implicit parameters, where its body names them.
  bool takes_caller = false;
  bool takes_keywords = false;
  bool takes_positionals = false;
  Slot caller_slot;
  Slot keywords_slot;
  Slot positionals_slot;
};

struct Template {
  Body body;
  Frame frame;
};

}  // namespace rondo::data::jinja
