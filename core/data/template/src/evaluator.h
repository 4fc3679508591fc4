// Walks a bound template and writes its text.
//
// One Evaluator renders once, on one thread. Variables live in Environments, one for each frame that is entered, linked
// as the frames nest; a macro keeps the one that it was defined in.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ast.h"
#include "heap.h"
#include "iteration.h"

namespace rondo::data::jinja {

struct Environment {
  Environment* parent = nullptr;
  std::uint32_t level = 0;
  bool captured = false;  // by a macro, which may outlive the frame
  std::vector<Value> slots;
};

class Evaluator {
 public:
  /// `context` and `parsed` must outlive the Evaluator.
  Evaluator(Heap& heap, const DictObject& context) : heap_(heap), context_(context) {}
  /// Throws Failure.
  std::string render(const Template& parsed);

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class Scope;
  class Capture;

  // Statements (statements.cpp).
  Flow run(const Body& body);
  Flow run(const Statement& statement);
  Flow run_if(const Statement& statement);
  Flow run_for(const Statement& statement);
  bool run_loop(const Statement& statement, LoopObject& loop, Flow& flow);
  Flow run_scoped(const Statement& statement);
  Flow run_with(const Statement& statement);
  /// What the body of a block writes, put through the block's filters where it has them. Unless the flow is kNext the
  /// body was left early and `text` is not set.
  Flow capture_block(const Statement& statement, Value& text);
  Flow run_set_block(const Statement& statement);
  Flow run_filter_block(const Statement& statement);
  void run_call_block(const Statement& statement);
  void check_namespaces(const Expression& target);
  void assign(const Expression& target, const Value& value);
  Value filtered_items(const Statement& statement, const Value& iterable);
  void write(std::string_view text);
  void load_frame(const Frame& frame);
  Value resolve(const std::string& name);
  Value& variable(Slot slot);
  Value make_macro(const Statement& statement);
  Value call_macro(const CallableObject& macro, Arguments arguments);

  // Expressions (evaluator.cpp).
  Value evaluate(const Expression& expression);
  Value evaluate_name(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_binary(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_logic(const Expression& expression);
  Value evaluate_concat(const Expression& expression);
  Value evaluate_conditional(const Expression& expression);
  Value evaluate_slice(const Expression& expression);
  Value evaluate_call(const Expression& expression, const Value* caller);
  Value evaluate_filter(const Expression& expression);
  Value evaluate_test(const Expression& expression);
  std::vector<Value> evaluate_all(const Expression& expression);
  Arguments evaluate_arguments(const Expression& expression);
  Value call(const Value& callee, Arguments arguments);

  Heap& heap_;
  const DictObject& context_;
  Environment* environment_ = nullptr;
  std::string* output_ = nullptr;
  const Value* block_text_ = nullptr;  // what the filters of a filter block work on
  std::uint32_t macro_depth_ = 0;
  std::vector<std::unique_ptr<Environment>> retained_;
};

}  // namespace rondo::data::jinja
