// Statements, variables and macros.
#include <fmt/format.h>

#include <algorithm>

#include "evaluator.h"
#include "filters.h"
#include "functions.h"
#include "operators.h"
#include "representation.h"

namespace rondo::data::jinja {

/// A frame's variables while it lives. Where a macro captured them they stay, emptied if the frame is no macro's own.
class Evaluator::Scope {
 public:
  Scope(Evaluator& evaluator, const Frame& frame, Environment* parent, bool keeps_values = false)
      : evaluator_(evaluator),
        previous_(evaluator.environment_),
        own_(std::make_unique<Environment>()),
        keeps_(keeps_values) {
    evaluator_.heap_.charge(sizeof(Environment) + frame.size * sizeof(Value));
    own_->parent = parent;
    own_->level = frame.level;
    own_->slots.resize(frame.size);
    evaluator_.environment_ = own_.get();
  }
  ~Scope() {
    evaluator_.environment_ = previous_;
    if (!own_->captured) return;
    if (!keeps_) std::fill(own_->slots.begin(), own_->slots.end(), Value());
    evaluator_.retained_.push_back(std::move(own_));
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  Evaluator& evaluator_;
  Environment* previous_;
  std::unique_ptr<Environment> own_;
  bool keeps_;
};

/// Collects what is written while it lives.
class Evaluator::Capture {
 public:
  explicit Capture(Evaluator& evaluator) : evaluator_(evaluator), previous_(std::exchange(evaluator.output_, &text_)) {}
  ~Capture() { evaluator_.output_ = previous_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return evaluator_.heap_.string(std::move(text_)); }

 private:
  Evaluator& evaluator_;
  std::string text_;
  std::string* previous_;
};

std::string Evaluator::render(const Template& parsed) {
  std::string text;
  output_ = &text;
  const Scope scope(*this, parsed.frame, nullptr);
  load_frame(parsed.frame);
  run(parsed.body);
  return text;
}

void Evaluator::write(std::string_view text) {
  if (output_->size() + text.size() > heap_.limits().output_bytes) {
    throw Failure{fmt::format("the template writes more than its limit of {} bytes", heap_.limits().output_bytes)};
  }
  heap_.charge(text.size());
  output_->append(text);
}

Value Evaluator::resolve(const std::string& name) {
  if (const Value* const found = context_.find(std::string_view(name))) return *found;
  const std::string_view function = function_name(name);
  if (function.empty()) return {};
  auto& callable = heap_.make<CallableObject>();
  callable.name = function;
  return Value::of(Type::kCallable, &callable);
}

Value& Evaluator::variable(Slot slot) {
  Environment* environment = environment_;
  while (environment->level > slot.level) environment = environment->parent;
  return environment->slots[slot.index];
}

void Evaluator::load_frame(const Frame& frame) {
  for (const Load& load : frame.loads) {
    Value& slot = environment_->slots[load.index];
    switch (load.action) {
      case Load::Action::kParameter:
        break;
      case Load::Action::kContext:
        slot = resolve(load.name);
        break;
      case Load::Action::kAlias:
        slot = variable(load.source);
        break;
      case Load::Action::kUndefined:
        slot = Value();
        break;
    }
  }
}

Evaluator::Flow Evaluator::run(const Body& body) {
  for (const StatementPtr& statement : body) {
    Flow flow = Flow::kNext;
    try {
      flow = run(*statement);
    } catch (Failure& failure) {
      if (failure.line == 0) failure.line = statement->line;
      throw;
    }
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run(const Statement& statement) {
  const Heap::Level level(heap_);
  heap_.step();
  switch (statement.kind) {
    case StatementKind::kText:
      write(statement.text);
      return Flow::kNext;
    case StatementKind::kOutput:
      write(to_text(heap_, evaluate(*statement.expression)));
      return Flow::kNext;
    case StatementKind::kFor:
      return run_for(statement);
    case StatementKind::kIf:
      return run_if(statement);
    case StatementKind::kMacro:
      variable(statement.slot) = make_macro(statement);
      return Flow::kNext;
    case StatementKind::kCallBlock:
      run_call_block(statement);
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      return run_filter_block(statement);
    case StatementKind::kSet:
      check_namespaces(*statement.target);
      assign(*statement.target, evaluate(*statement.expression));
      return Flow::kNext;
    case StatementKind::kSetBlock:
      return run_set_block(statement);
    case StatementKind::kWith:
      return run_with(statement);
    case StatementKind::kGeneration:
      return run_scoped(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_if(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (truth(evaluate(*branch.condition))) return run(branch.body);
  }
  return run(statement.otherwise);
}

/// The items that pass the loop's condition, which is asked as each is wanted.
Value Evaluator::filtered_items(const Statement& statement, const Value& iterable) {
  IteratorObject& source = iterate(heap_, iterable);
  Environment* const outside = environment_;
  return make_generator(heap_, [this, &statement, &source, outside](Value& value) {
    const Scope scope(*this, statement.condition_frame, outside);
    load_frame(statement.condition_frame);
    while (source.next(value)) {
      heap_.step();
      assign(*statement.target, value);
      if (truth(evaluate(*statement.condition))) return true;
    }
    return false;
  });
}

/// False when no iteration came to its end.
bool Evaluator::run_loop(const Statement& statement, LoopObject& loop, Flow& flow) {
  bool completed = false;
  const Scope scope(*this, statement.frame, environment_);
  for (Value item; loop.advance(item);) {
    heap_.step();
    variable(statement.loop_slot) = Value::of(Type::kLoop, &loop);
    assign(*statement.target, item);
    load_frame(statement.frame);
    flow = run(statement.body);
    if (flow == Flow::kBreak) break;
    // As in Jinja2, an iteration that was left early does not keep `else` from running.
    if (flow == Flow::kNext) completed = true;
  }
  flow = Flow::kNext;
  return completed;
}

Evaluator::Flow Evaluator::run_for(const Statement& statement) {
  Value iterable = evaluate(*statement.expression);
  if (statement.condition) iterable = filtered_items(statement, iterable);
  auto& loop = heap_.make<LoopObject>(heap_, iterable);
  Flow flow = Flow::kNext;
  if (run_loop(statement, loop, flow) || statement.otherwise.empty()) return flow;
  const Scope scope(*this, statement.otherwise_frame, environment_);
  load_frame(statement.otherwise_frame);
  return run(statement.otherwise);
}

Evaluator::Flow Evaluator::run_scoped(const Statement& statement) {
  const Scope scope(*this, statement.frame, environment_);
  load_frame(statement.frame);
  return run(statement.body);
}

Evaluator::Flow Evaluator::run_with(const Statement& statement) {
  std::vector<Value> values;
  for (const ExpressionPtr& value : statement.values) values.push_back(evaluate(*value));
  const Scope scope(*this, statement.frame, environment_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(*statement.targets[i], values[i]);
  load_frame(statement.frame);
  return run(statement.body);
}

Evaluator::Flow Evaluator::capture_block(const Statement& statement, Value& text) {
  const Scope scope(*this, statement.frame, environment_);
  load_frame(statement.frame);
  Capture capture(*this);
  if (const Flow flow = run(statement.body); flow != Flow::kNext) return flow;
  text = capture.take();
  if (statement.expression) {
    const Value* const outer = std::exchange(block_text_, &text);
    text = evaluate(*statement.expression);
    block_text_ = outer;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_set_block(const Statement& statement) {
  Value text;
  if (const Flow flow = capture_block(statement, text); flow != Flow::kNext) return flow;
  check_namespaces(*statement.target);
  assign(*statement.target, text);
  return Flow::kNext;
}

Evaluator::Flow Evaluator::run_filter_block(const Statement& statement) {
  Value text;
  if (const Flow flow = capture_block(statement, text); flow != Flow::kNext) return flow;
  write(to_text(heap_, text));
  return Flow::kNext;
}

void Evaluator::run_call_block(const Statement& statement) {
  const Value caller = make_macro(statement);
  write(to_text(heap_, evaluate_call(*statement.expression, &caller)));
}

void Evaluator::check_namespaces(const Expression& target) {
  if (target.kind == ExpressionKind::kAttributeTarget && !variable(target.items[0]->slot).is(Type::kNamespace)) {
    throw Failure{fmt::format("cannot set an attribute of '{}': it is no namespace", target.items[0]->text)};
  }
  if (target.kind != ExpressionKind::kTuple) return;
  for (const ExpressionPtr& item : target.items) check_namespaces(*item);
}

void Evaluator::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::kName) {
    variable(target.slot) = value;
    return;
  }
  if (target.kind == ExpressionKind::kAttributeTarget) {
    // Looked at again: an earlier part of the same assignment may have replaced the variable.
    check_namespaces(target);
    auto& space = variable(target.items[0]->slot).as<NamespaceObject>();
    set_namespace_entry(space, heap_.string(target.text), value);
    return;
  }
  const std::vector<Value> values = collect(heap_, value);
  if (values.size() != target.items.size()) {
    throw Failure{fmt::format("{} values do not fit {} variables", values.size(), target.items.size())};
  }
  for (std::size_t i = 0; i < values.size(); ++i) assign(*target.items[i], values[i]);
}

Value Evaluator::make_macro(const Statement& statement) {
  for (Environment* e = environment_; e != nullptr && !e->captured; e = e->parent) e->captured = true;
  auto& callable = heap_.make<CallableObject>();
  callable.kind = CallableObject::Kind::kMacro;
  callable.macro = &statement;
  callable.closure = environment_;
  return Value::of(Type::kCallable, &callable);
}

Value Evaluator::call_macro(const CallableObject& callable, Arguments arguments) {
  const Statement& macro = *callable.macro;
  if (macro_depth_ >= heap_.limits().depth) {
    throw Failure{fmt::format("macros call each other more deeply than the limit of {}", heap_.limits().depth)};
  }
  const Scope scope(*this, macro.frame, callable.closure, true);
  const auto take_keyword = [&arguments](std::string_view name) {
    const auto found = std::find_if(arguments.keyword.begin(), arguments.keyword.end(),
                                    [name](const auto& keyword) { return keyword.first == name; });
    if (found == arguments.keyword.end()) return Value();
    const Value value = found->second;
    arguments.keyword.erase(found);
    return value;
  };
  const std::size_t count = macro.targets.size();
  for (std::size_t i = 0; i < count; ++i) {
    variable(macro.targets[i]->slot) =
        i < arguments.positional.size() ? arguments.positional[i] : take_keyword(macro.targets[i]->text);
  }
  if (macro.takes_caller) {
    const Value caller = take_keyword("caller");
    variable(macro.caller_slot) = caller.is_missing() ? heap_.undefined("no caller is defined") : caller;
  }
  if (macro.takes_keywords) {
    auto& rest = heap_.make<DictObject>();
    for (const auto& [name, value] : arguments.keyword) rest.set(heap_.string(name), value);
    variable(macro.keywords_slot) = Value::of(Type::kDict, &rest);
  } else if (!arguments.keyword.empty()) {
    throw Failure{fmt::format("macro '{}' has no argument named '{}'", macro.text, arguments.keyword.front().first)};
  }
  if (macro.takes_positionals) {
    const auto first =
        arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
    variable(macro.positionals_slot) = heap_.tuple(std::vector<Value>(first, arguments.positional.end()));
  } else if (arguments.positional.size() > count) {
    throw Failure{fmt::format("macro '{}' takes at most {} arguments", macro.text, count)};
  }
  load_frame(macro.frame);
  const std::size_t required = count - macro.values.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (!variable(macro.targets[i]->slot).is_missing()) continue;
    const std::string& name = macro.targets[i]->text;
    variable(macro.targets[i]->slot) = i < required
                                           ? heap_.undefined(fmt::format("parameter '{}' was not provided", name))
                                           : evaluate(*macro.values[i - required]);
  }
  ++macro_depth_;
  Capture capture(*this);
  run(macro.body);
  --macro_depth_;
  return capture.take();
}

}  // namespace rondo::data::jinja
